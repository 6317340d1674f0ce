/*
 * The board of several hosts.
 */
#include "tests/gtest/in_time.h"
#include "tests/unit/store/kv/on_stores.h"
#include "tests/unit/store/publish/ranks.h"

#if NG_HAVE_HIREDIS
extern "C" {
#include "store/board/board_client.h"
}
#endif

constexpr uint64_t world = 0x500;

struct BoardMultihost : testing::TestWithParam<const char *>, protected StoreOfTest {
    void SetUp() override
    {
        open_store(GetParam());
    }
    void TearDown() override
    {
        ranks.clear();
    }
    Rank &add(const Host &host, int rank, const std::vector<Group> &groups,
              int64_t ttl_ns = 5 * NG_S)
    {
        Rank::Options options;
        options.ttl_ns = ttl_ns;
        options.host = &host;
        options.groups = groups;
        ranks.push_back(std::make_unique<Rank>(url, rank, options));
        return *ranks.back();
    }
    Rank &start(const Host &host, int rank, int64_t ttl_ns = 5 * NG_S)
    {
        add(host, rank, {{world, 8}}, ttl_ns).start();
        /* Its heart beats, and its host has seen it. */
        round();
        return *ranks.back();
    }
    /* Started by a launcher that tells its run so; 0: by hand. */
    Rank &join(const Host &host, int rank, const std::vector<Group> &groups = {},
               uint64_t launch_run = 0, int64_t ttl_ns = 5 * NG_S)
    {
        Rank &one = add(host, rank, groups, ttl_ns);
        one.box.header->launch_run = launch_run;
        one.start();
        return one;
    }
    static void leave(Rank &rank)
    {
        __atomic_store_n(&rank.box.header->life, (uint32_t)NG_BOX_EXITED, __ATOMIC_SEQ_CST);
        rank.board->ops->leave(rank.board);
        EXPECT_TRUE(rank.join_thread());
    }
    /* It has no incident thread that runs, and no store. */
    void freeze(Rank &rank)
    {
        dead.insert(&rank);
        rank.kv.set(FaultyKv::FAIL);
        __atomic_store_n(&rank.box.header->heartbeat_mono_ns, ng_clock_mono_ns() - 10 * NG_S,
                         __ATOMIC_SEQ_CST);
    }
    /* What the incident threads of all that live do. */
    void round()
    {
        for (auto &rank : ranks)
            if (!dead.count(rank.get())) {
                __atomic_store_n(&rank->box.header->heartbeat_mono_ns, ng_clock_mono_ns(),
                                 __ATOMIC_SEQ_CST);
                rank->board->ops->wait(rank->board, &rank->kick, 1);
            }
    }
    bool soon(const std::function<bool()> &what)
    {
        return eventually([&] {
            round();
            return what();
        });
    }
    void kill(Rank &rank)
    {
        dead.insert(&rank);
        rank.kill();
    }
    static std::string notes(const struct ng_view &view)
    {
        std::string all;
        for (uint32_t i = 0; i < view.note_count; i++)
            all += std::string(view.notes[i]) + "\n";
        return all;
    }
    static struct ng_incident get(Rank &rank, enum ng_incident_source source, uint64_t epoch)
    {
        struct ng_incident incident = {.epoch = epoch, .source = source};
        if (rank.board->ops->get(rank.board, &incident) != 0)
            incident.level = (enum ng_incident_level)0;
        return incident;
    }
    static int publish(Rank &rank, struct ng_incident incident)
    {
        struct ng_verdict_query query = {};
        struct ng_verdict verdict;
        OwnView view;
        ng_view_seal(&view);
        EXPECT_EQ(ng_verdict_reach(&view, &query, &verdict), 0);
        verdict.action = "none";
        incident.state = NG_INCIDENT_JUDGED;
        snprintf(incident.line, sizeof(incident.line), "the verdict");
        int error = rank.board->ops->publish(rank.board, &incident, &verdict);
        ng_verdict_fini(&verdict);
        return error;
    }
    static int next(Rank &rank, enum ng_incident_source source, uint64_t epoch,
                    struct ng_incident *ret_incident)
    {
        struct ng_news news;
        int error = rank.board->ops->next(rank.board, source, epoch, &news);
        if (!error)
            *ret_incident = record_of(news);
        return error;
    }
    Host one, two;
    std::set<Rank *> dead;
    std::vector<std::unique_ptr<Rank>> ranks;
};

INSTANTIATE_ON_STORES(BoardMultihost);

TEST_P(BoardMultihost, AllRanksOfAllHostsAreSeenOnce)
{
    for (int i = 0; i < 4; i++)
        start(i < 2 ? one : two, i);
    round();
    for (auto &rank : ranks) {
        std::map<int, enum ng_life> lives = rank->lives();
        EXPECT_EQ(lives.size(), 4u);
        for (auto &other : lives)
            EXPECT_EQ(other.second, NG_LIFE_RUNNING) << other.first;
        OwnView here;
        EXPECT_EQ(rank->board->ops->view_host(rank->board, &here), 0);
        EXPECT_EQ(here.process_count, 2u);
    }
}

TEST_P(BoardMultihost, ADeathIsToldToOtherHosts)
{
    Rank &a = start(one, 0);
    start(one, 1);
    Rank &b = start(one, 2), &far = start(two, 3);
    round();
    uint32_t ended = far.board->ops->ended(far.board);
    kill(b);
    EXPECT_TRUE(soon([&] { return far.board->ops->ended(far.board) > ended; }));
    EXPECT_EQ(far.lives()[2], NG_LIFE_DEAD);
    EXPECT_EQ(a.lives()[2], NG_LIFE_DEAD);
    EXPECT_EQ(far.lives()[1], NG_LIFE_RUNNING);
}

TEST_P(BoardMultihost, ManyDeathsAtOnceAreAllTold)
{
    constexpr int many = 40;
    Rank &a = start(one, 0, 60 * NG_S); /* while it is held it gives no sign of life */
    start(two, 1);
    round();
    a.kv.hold_answer("get_many", "e"); /* its thread is busy when they are found */
    ASSERT_TRUE(soon([&] { return a.kv.is_held(); }));
    for (int i = 0; i < many; i++)
        kill(add(one, 2 + i, {{world, 64}}));
    for (int i = 0; i < 3; i++)
        round();
    a.kv.release();
    Kv store(url, NG_BOARD_RUN, "job");
    EXPECT_TRUE(soon([&] { return store.value("e") == std::to_string(many); })) << store.value("e");
}

TEST_P(BoardMultihost, ANeighbourTellsOfTheStopped)
{
    start(one, 0);
    Rank &b = start(one, 1), &far = start(two, 2);
    round();
    freeze(b);
    EXPECT_TRUE(soon([&] { return far.lives()[1] == NG_LIFE_STOPPED; }));
    /* And it goes on, though nothing has changed. */
    dead.clear();
    b.kv.set(FaultyKv::PASS);
    EXPECT_TRUE(soon([&] { return far.lives()[1] == NG_LIFE_RUNNING; }));
}

TEST_P(BoardMultihost, BeforeARankLooksItReportsItsFrozenNeighbours)
{
    Rank &a = start(one, 0);
    Rank &b = start(one, 1), &far = start(two, 2);
    round(); /* a has looked after its neighbours just now */
    freeze(b);
    a.board->ops->begin(a.board, NG_INCIDENT_TIMEOUT, NG_CAUSE_LATE);
    /* No further round of a: its incident thread would be waiting for the verdict. */
    EXPECT_TRUE(eventually([&] { return far.lives()[1] == NG_LIFE_STOPPED; }));
}

TEST_P(BoardMultihost, AHostThatIsCutOffIsLost)
{
    Rank &a = start(one, 0, NG_S), &b = start(one, 1, NG_S), &far = start(two, 2, NG_S);
    round();
    uint32_t ended = far.board->ops->ended(far.board);
    for (Rank *rank : {&a, &b})
        rank->kv.set(FaultyKv::HANG);
    EXPECT_TRUE(soon([&] { return far.board->ops->ended(far.board) >= ended + 1; }));
    EXPECT_TRUE(soon([&] {
        std::map<int, enum ng_life> lives = far.lives();
        return lives[0] == NG_LIFE_LOST && lives[1] == NG_LIFE_LOST;
    }));
    /* Each still sees its own processes, and a note that the rest is unknown. */
    OwnView view;
    EXPECT_EQ(a.board->ops->view(a.board, &view), 0);
    EXPECT_EQ(view.process_count, 2u);
    EXPECT_NE(notes(view).find("the store cannot be reached"), std::string::npos) << notes(view);
    for (Rank *rank : {&a, &b})
        rank->kv.set(FaultyKv::PASS);
    EXPECT_TRUE(soon([&] { return far.lives()[0] == NG_LIFE_RUNNING; }));
}

TEST_P(BoardMultihost, OneOfAllClaimsAndTheDocumentsReachTheOtherHost)
{
    Rank &a = start(one, 0), &b = start(one, 1), &far = start(two, 2);
    round();
    struct ng_incident wanted = about(NG_INCIDENT_TIMEOUT, world, 7), mine, theirs;
    ASSERT_EQ(a.claim(wanted, &mine), 0);
    EXPECT_EQ(mine.source, NG_SOURCE_JOB);
    for (Rank *other : {&b, &far}) {
        EXPECT_EQ(other->claim(wanted, &theirs), -EEXIST);
        EXPECT_EQ(theirs.epoch, mine.epoch);
        EXPECT_TRUE(other->board->ops->claimant_alive(other->board, &theirs));
        EXPECT_NE(theirs.claimant_host, 0u);
    }
    ASSERT_EQ(publish(a, mine), 0);
    for (Rank *other : {&b, &far})
        EXPECT_TRUE(soon([&] {
            theirs = get(*other, NG_SOURCE_JOB, mine.epoch);
            return theirs.state == NG_INCIDENT_JUDGED;
        }));
    EXPECT_STREQ(theirs.line, "the verdict");
    struct ng_documents documents = {};
    EXPECT_EQ(b.board->ops->read_verdict(b.board, &theirs, &documents), -ENOENT)
        << "it was reached on this host";
    ASSERT_EQ(far.board->ops->read_verdict(far.board, &theirs, &documents), 0);
    EXPECT_NE(std::string(documents.json, documents.json_bytes).find("healthy"), std::string::npos);
    EXPECT_NE(std::string(documents.text, documents.text_bytes).find("healthy"), std::string::npos);
    ng_arena_reset(&documents.arena);
}

TEST_P(BoardMultihost, DumpsOfAllHostsAreWaitedFor)
{
    Rank &a = start(one, 0), &b = start(one, 1), &far = start(two, 2);
    round();
    EXPECT_EQ(a.lives().size(), 3u);
    struct ng_incident mine;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    EXPECT_EQ(a.board->ops->dumps_missing(a.board, &mine), 2u);
    b.board->ops->dumped(b.board, &mine);
    EXPECT_TRUE(soon([&] { return a.board->ops->dumps_missing(a.board, &mine) == 1; }));
    far.board->ops->dumped(far.board, &mine);
    EXPECT_TRUE(soon([&] { return a.board->ops->dumps_missing(a.board, &mine) == 0; }));
}

TEST_P(BoardMultihost, AClaimantOfAnyHostThatDiesLosesIt)
{
    Rank &a = start(one, 0), &near = start(one, 1), &far = start(two, 2);
    round();
    struct ng_incident wanted = about(NG_INCIDENT_TIMEOUT, world, 7), mine;
    ASSERT_EQ(a.claim(wanted, &mine), 0);
    kill(a);
    EXPECT_TRUE(soon([&] { return !near.board->ops->claimant_alive(near.board, &mine); }));
    EXPECT_TRUE(soon([&] { return !far.board->ops->claimant_alive(far.board, &mine); }));
    wanted.supersedes = mine.epoch;
    ASSERT_EQ(far.claim(wanted, &mine), 0);
    EXPECT_EQ(near.claim(wanted, &wanted), -EEXIST);
    EXPECT_EQ(publish(far, mine), 0);
}

/* Whoever hears of the end may not have heard of the verdict before it. */
TEST_P(BoardMultihost, WhatAClaimantHasJudgedIsKnownOnceItsEndIs)
{
    Rank &a = start(one, 0), &near = start(one, 1), &far = start(two, 2);
    round();
    struct ng_incident mine;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_SUSPECT, world, 7), &mine), 0);
    for (Rank *other : {&near, &far}) {
        ASSERT_TRUE(soon(
            [&] { return get(*other, NG_SOURCE_JOB, mine.epoch).state == NG_INCIDENT_CLAIMED; }));
        other->kv.deaf = true;
    }
    ASSERT_EQ(publish(a, mine), 0);
    leave(a);
    kill(a);
    for (Rank *other : {&near, &far}) {
        ASSERT_TRUE(
            eventually([&] { return !other->board->ops->claimant_alive(other->board, &mine); }));
        EXPECT_EQ(get(*other, NG_SOURCE_JOB, mine.epoch).state, NG_INCIDENT_JUDGED);
    }
}

TEST_P(BoardMultihost, WithoutTheStoreEachHostGoesOnAlone)
{
    Rank &a = start(one, 0), &b = start(one, 1), &far = start(two, 2);
    round();
    for (auto &rank : ranks)
        rank->kv.set(FaultyKv::FAIL);
    struct ng_incident wanted = about(NG_INCIDENT_TIMEOUT, world, 7), mine, theirs;
    EXPECT_TRUE(
        eventually([&] { return a.claim(wanted, &mine) == 0 && mine.source == NG_SOURCE_HOST; }));
    EXPECT_EQ(a.board->ops->begin(a.board, NG_INCIDENT_SUSPECT, NG_CAUSE_END), 0);
    EXPECT_EQ(b.board->ops->begin(b.board, NG_INCIDENT_SUSPECT, NG_CAUSE_END), 0)
        << "everybody may look";
    EXPECT_EQ(b.claim(wanted, &theirs), -EEXIST);
    EXPECT_EQ(theirs.source, NG_SOURCE_HOST);
    ASSERT_EQ(publish(a, mine), 0);
    ASSERT_EQ(next(b, NG_SOURCE_HOST, 0, &theirs), 0);
    EXPECT_EQ(theirs.state, NG_INCIDENT_JUDGED);
    a.board->ops->dumped(a.board, &mine);
    EXPECT_LE(b.board->ops->dumps_missing(b.board, &theirs), 1u);
    EXPECT_EQ(next(far, NG_SOURCE_HOST, 0, &theirs), -ENOENT);
    EXPECT_EQ(far.claim(wanted, &theirs), 0) << "and the other host by itself";
    EXPECT_EQ(theirs.source, NG_SOURCE_HOST);
}

TEST_P(BoardMultihost, AVerdictThatCannotReachTheStoreReachesItsHost)
{
    Rank &a = start(one, 0), &b = start(one, 1);
    round();
    struct ng_incident mine, theirs;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    ASSERT_EQ(mine.source, NG_SOURCE_JOB);
    a.kv.set(FaultyKv::FAIL);
    EXPECT_NE(publish(a, mine), 0);
    ASSERT_EQ(next(b, NG_SOURCE_HOST, 0, &theirs), 0);
    EXPECT_EQ(theirs.state, NG_INCIDENT_JUDGED);
    EXPECT_STREQ(theirs.line, "the verdict");
    EXPECT_EQ(next(a, NG_SOURCE_HOST, 0, &theirs), -ENOENT) << "it has dealt with it";
}

TEST_P(BoardMultihost, EveryCallReturnsThoughTheStoreHangs)
{
    Rank &a = start(one, 0);
    start(two, 1);
    round();
    struct ng_board *board = a.board;
    struct ng_incident mine, wanted = about(NG_INCIDENT_TIMEOUT, world, 7);
    ASSERT_EQ(a.claim(wanted, &mine), 0);
    struct ng_incident foreign = mine;
    foreign.claimant_host++;
    std::vector<std::function<void()>> calls = {
        [&] { board->ops->wait(board, &a.kick, 10); },
        [&] { EXPECT_EQ(board->ops->begin(board, NG_INCIDENT_SUSPECT, NG_CAUSE_END), 0); },
        [&] { board->ops->finish(board, NG_INCIDENT_SUSPECT, true); },
        [&] {
            OwnView view;
            EXPECT_EQ(a.view(&view), 0);
            EXPECT_GE(view.process_count, 1u);
        },
        [&] {
            struct ng_incident got;
            EXPECT_EQ(a.claim(wanted, &got), 0);
            EXPECT_EQ(got.source, NG_SOURCE_HOST);
        },
        [&] { EXPECT_NE(publish(a, mine), 0); },
        [&] { EXPECT_TRUE(board->ops->claimant_alive(board, &foreign)); },
        [&] { EXPECT_EQ(board->ops->dumps_missing(board, &mine), 0u); },
        [&] {
            struct ng_documents documents;
            EXPECT_NE(board->ops->read_verdict(board, &foreign, &documents), 0);
        },
        [&] { board->ops->dumped(board, &mine); },
        [&] { board->ops->leave(board); },
    };
    for (size_t i = 0; i < calls.size(); i++) {
        a.kv.set(FaultyKv::HANG);
        int64_t begun = ng_clock_mono_ns();
        calls[i]();
        EXPECT_IN_TIME(ng_clock_mono_ns() - begun, 10 * NG_S) << i;
        a.kv.set(FaultyKv::PASS);
        bool again = i + 1 == calls.size() || soon([&] { return a.lives().size() == 2; });
        EXPECT_TRUE(again) << i;
    }
}

/* The program may be stuck with malloc's lock. */
TEST_P(BoardMultihost, TheIncidentThreadAllocatesNothing)
{
    Rank &a = start(one, 0), &b = start(one, 1), &far = start(two, 2);
    round();
    struct ng_incident mine, theirs = {};
    struct ng_view view, empty;
    struct ng_verdict_query query = {};
    struct ng_verdict verdict;
    ng_view_init(&empty);
    ng_view_seal(&empty);
    ASSERT_EQ(ng_verdict_reach(&empty, &query, &verdict), 0);
    verdict.action = "none";
    kill(b); /* there is somebody to speak for */
    ng_view_init(&view);
    forbid_malloc(true);
    int results[8];
    struct ng_board *board = a.board;
    for (int i = 0; i < 20; i++)
        board->ops->wait(board, &a.kick, 20);
    results[0] = board->ops->begin(board, NG_INCIDENT_TIMEOUT, NG_CAUSE_LATE);
    results[1] = board->ops->view(board, &view);
    struct ng_incident wanted = about(NG_INCIDENT_TIMEOUT, world, 7);
    results[2] = board->ops->claim(board, &wanted, &mine);
    board->ops->finish(board, NG_INCIDENT_TIMEOUT, false);
    board->ops->dumped(board, &mine);
    board->ops->dumps_missing(board, &mine);
    mine.state = NG_INCIDENT_JUDGED;
    results[3] = board->ops->publish(board, &mine, &verdict);
    results[4] = board->ops->get(board, &mine);
    board->ops->claimant_alive(board, &mine);
    forbid_malloc(false);
    for (int i = 0; i < 5; i++)
        EXPECT_EQ(results[i], 0) << i;
    EXPECT_TRUE(soon([&] {
        return next(far, NG_SOURCE_JOB, 0, &theirs) == 0 && theirs.state == NG_INCIDENT_JUDGED;
    }));
    forbid_malloc(true);
    struct ng_documents documents = {};
    results[5] = far.board->ops->read_verdict(far.board, &theirs, &documents);
    ng_arena_reset(&documents.arena);
    far.board->ops->leave(far.board);
    forbid_malloc(false);
    EXPECT_EQ(results[5], 0);
    ng_view_fini(&view);
    ng_view_fini(&empty);
    ng_verdict_fini(&verdict);
}

TEST_P(BoardMultihost, AForkedChildLetsGo)
{
    Rank &a = start(one, 0), &far = start(two, 1);
    round();
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        a.board->ops->abandon(a.board);
        _exit(0);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(a.lives().size(), 2u);
    EXPECT_EQ(far.lives()[0], NG_LIFE_RUNNING);
}

TEST_P(BoardMultihost, WhoLeavesIsNobodysDeath)
{
    Rank &a = start(one, 0), &b = start(one, 1), &far = start(two, 2);
    round();
    leave(b);
    dead.insert(&b);
    EXPECT_TRUE(soon([&] { return far.lives()[1] == NG_LIFE_EXITED; }));
    EXPECT_EQ(a.lives()[1], NG_LIFE_EXITED);
}

TEST_P(BoardMultihost, WhoLeavesBeforeItHasAPlaceIsToldOfByItsNeighbour)
{
    Rank &a = start(one, 0), &far = start(two, 2);
    Rank &b = add(one, 1, {{world, 8}});
    b.kv.set(FaultyKv::FAIL);
    b.start_without_waiting();
    round();
    __atomic_store_n(&b.box.header->life, (uint32_t)NG_BOX_EXITED, __ATOMIC_SEQ_CST);
    kill(b);
    EXPECT_TRUE(soon([&] { return far.lives().count(1) == 1; }));
    EXPECT_EQ(far.lives()[1], NG_LIFE_EXITED);
    EXPECT_EQ(a.lives()[1], NG_LIFE_EXITED);
}

/* Its place is on the store, but it dies before it hears that it has it; and it has shown no sign
 * of life since its neighbour began. */
TEST_P(BoardMultihost, WhoDiesBeforeItHearsOfItsPlaceIsToldOfByItsNeighbour)
{
    Rank &far = start(two, 2), &b = add(one, 1, {{world, 8}});
    b.kv.hold_answer("put", "p/");
    b.start_without_waiting();
    EXPECT_TRUE(eventually([&] { return b.kv.is_held(); }));
    EXPECT_EQ(b.slot(), 0u);
    Rank &a = add(one, 0, {{world, 8}});
    b.kv.set(FaultyKv::FAIL); /* whatever it still wants */
    b.kv.release();
    dead.insert(&b);
    b.kill();
    __atomic_store_n(&b.box.header->heartbeat_mono_ns, a.box.header->origin_mono_ns - 1,
                     __ATOMIC_SEQ_CST);
    a.start();
    EXPECT_TRUE(soon([&] { return far.lives()[1] == NG_LIFE_DEAD; }));
}

TEST_P(BoardMultihost, WhatAnEarlierRunLeftIsNotToldOf)
{
    Rank &far = start(two, 2), &b = add(one, 1, {{world + 1, 8}}), &a = add(one, 0, {{world, 8}});
    b.kv.set(FaultyKv::FAIL);
    b.start_without_waiting();
    dead.insert(&b);
    b.kill();
    __atomic_store_n(&b.box.header->heartbeat_mono_ns, a.box.header->origin_mono_ns - 1,
                     __ATOMIC_SEQ_CST);
    a.start();
    for (int i = 0; i < 5; i++)
        round();
    Rank &c = start(one, 3);
    uint32_t ended = far.board->ops->ended(far.board);
    kill(c); /* which is told after it, if it is */
    EXPECT_TRUE(soon([&] { return far.board->ops->ended(far.board) > ended; }));
    EXPECT_EQ(far.lives().count(1), 0u);
}

TEST_P(BoardMultihost, ADeathIsToldThoughTheFirstAnswerIsLost)
{
    Rank &a = start(one, 0), &b = start(one, 1), &far = start(two, 2);
    round();
    a.kv.lose_answer("put", "x/");
    kill(b);
    EXPECT_TRUE(soon([&] { return far.lives()[1] == NG_LIFE_DEAD; }));
}

TEST_P(BoardMultihost, ANeighbourThatKnowsNoGroupYetTellsOfADeathWhenItDoes)
{
    Rank &far = start(two, 2), &a = add(one, 0, {}), &b = add(one, 1, {{world, 8}});
    b.kv.set(FaultyKv::FAIL);
    a.start();
    b.start_without_waiting();
    round();
    kill(b);
    for (int i = 0; i < 3; i++)
        round();
    a.add_group({world, 8});
    EXPECT_TRUE(soon([&] { return far.lives().count(1) == 1; }));
    EXPECT_EQ(far.lives()[1], NG_LIFE_DEAD);
}

#if NG_HAVE_HIREDIS
/* The command beside a job, on its store. */
struct Tool {
    explicit Tool(const char *url, const char *name = "job") : job{url, nullptr, name, nullptr}
    {
    }
    int view(struct ng_view *view)
    {
        return ng_board_client_view(&job, within(patience_ms), view, why, sizeof(why));
    }
    int find_runs(uint32_t room = 8)
    {
        return ng_board_client_runs(&job, within(patience_ms), runs, room, why, sizeof(why));
    }
    int order()
    {
        return ng_board_client_order(&job, &command, within(patience_ms), why, sizeof(why));
    }
    int verdict(const std::vector<uint64_t> &groups, uint64_t epoch,
                struct ng_board_client_verdict *ret_verdict, uint32_t *ret_living = nullptr)
    {
        return ng_board_client_verdict(&job, groups.data(), (uint32_t)groups.size(), epoch,
                                       within(patience_ms), ret_verdict, ret_living, why,
                                       sizeof(why));
    }
    struct ng_observed_job job;
    struct ng_command command = {.kind = NG_COMMAND_ABORT};
    struct ng_local_run runs[8] = {};
    char why[NG_BOARD_CLIENT_WHY_BYTES] = "";
};

struct BoardMultihostRedis : BoardMultihost {
};
INSTANTIATE_TEST_SUITE_P(On, BoardMultihostRedis, testing::Values("redis"),
                         [](const auto &info) { return std::string(info.param); });

TEST_P(BoardMultihostRedis, AToolSeesAllAndItsOrderReachesAll)
{
    for (int i = 0; i < 4; i++)
        start(i < 2 ? one : two, i);
    round();
    Tool tool(url.c_str()), nobody(url.c_str(), "other");
    OwnView view, none;
    EXPECT_EQ(tool.view(&view), 4) << tool.why;
    EXPECT_STREQ(view.job, "job");
    struct ng_incident heard = {};
    tool.command.group_id = world;
    snprintf(tool.command.line, sizeof(tool.command.line), "aborted by a person");
    for (uint64_t epoch = 1; epoch <= 3; epoch++) {
        EXPECT_EQ(tool.order(), 4) << tool.why;
        for (auto &rank : ranks) {
            EXPECT_TRUE(soon([&] { return next(*rank, NG_SOURCE_JOB, epoch - 1, &heard) == 0; }));
            EXPECT_EQ(heard.epoch, epoch);
            EXPECT_EQ(heard.level, RECORD_ABORT);
            EXPECT_EQ(heard.group_id, (uint64_t)world);
            EXPECT_EQ(heard.state, NG_INCIDENT_JUDGED);
            EXPECT_STREQ(heard.line, "aborted by a person");
        }
    }
    /* Who claims at the same time does not get into its way, nor it into theirs. */
    std::thread orders([&] {
        for (int i = 0; i < 10; i++)
            EXPECT_EQ(tool.order(), 4);
    });
    for (uint64_t seq = 1; seq <= 10; seq++)
        EXPECT_EQ(ranks[0]->claim(about(NG_INCIDENT_SUSPECT, world, seq), &heard), 0);
    orders.join();
    uint64_t last = 3;
    for (uint64_t epoch = 4; epoch <= 23; epoch++) {
        EXPECT_TRUE(soon([&] { return next(*ranks[3], NG_SOURCE_JOB, epoch - 1, &heard) == 0; }));
        EXPECT_EQ(heard.epoch, ++last) << "no number is left out";
    }
    EXPECT_EQ(nobody.view(&none), 0);
    EXPECT_EQ(nobody.order(), 0);
}

/* Two runs by hand, a rank that may be of either, and one that a launcher started. */
TEST_P(BoardMultihostRedis, AToolSeesEachRunAndItsCommandReachesThatOneAlone)
{
    constexpr uint64_t apart = 0x900;
    const Host three, four, five;
    Rank &a = start(one, 0), &b = start(two, 1);
    Rank &c = join(three, 0, {{apart, 2, 0}}), &open = join(four, 2),
         &launched = join(five, 0, {}, 7);
    round();
    Tool tool(url.c_str());
    std::map<uint64_t, unsigned> living, wanted = {{world, 2}, {apart, 1}, {1, 1}, {7, 1}};
    auto look = [&] {
        living.clear();
        int count = tool.find_runs();
        for (int i = 0; i < count; i++) {
            living[tool.runs[i].id] = tool.runs[i].living;
            EXPECT_STREQ(tool.runs[i].job, "job");
            EXPECT_NE(tool.runs[i].name[0], '\0') << "its host";
        }
        return living == wanted;
    };
    EXPECT_TRUE(soon(look)) << testing::PrintToString(living);
    EXPECT_EQ(tool.find_runs(1), 1) << "no more than there is room for";
    uint64_t epoch = 0;
    for (auto &[id, ranks] : std::map<uint64_t, std::vector<Rank *>>{
             {world, {&a, &b}}, {apart, {&c}}, {1, {&open}}, {7, {&launched}}}) {
        struct ng_incident heard = {};
        OwnView view;
        tool.job.run = id;
        EXPECT_EQ(tool.view(&view), (int)ranks.size());
        EXPECT_EQ(tool.order(), (int)ranks.size());
        epoch++;
        for (Rank *rank : ranks) {
            EXPECT_TRUE(soon([&] { return next(*rank, NG_SOURCE_JOB, 0, &heard) == 0; }));
            EXPECT_EQ(heard.epoch, epoch) << "and of no other before";
        }
    }
    tool.job.run = 0;
    EXPECT_EQ(tool.order(), 5);
    for (Rank *rank : {&a, &b, &c, &open, &launched}) {
        struct ng_incident heard = {};
        EXPECT_TRUE(soon([&] { return next(*rank, NG_SOURCE_JOB, epoch, &heard) == 0; }));
        EXPECT_EQ(heard.epoch, epoch + 1);
    }
}

/* Ranks whose communicators have none in common yet, and one without: a command is for all. */
TEST_P(BoardMultihostRedis, AJobByHandIsOneRunAsLongAsItsRanksFit)
{
    Rank &a = start(one, 0);
    Rank &b = join(two, 1, {{0x900, 2, 0}}), &c = join(two, 2);
    round();
    Tool tool(url.c_str());
    EXPECT_TRUE(soon([&] { return tool.find_runs() == 1 && tool.runs[0].living == 3; }));
    tool.job.run = tool.runs[0].id;
    EXPECT_EQ(tool.order(), 3);
    for (Rank *rank : {&a, &b, &c}) {
        struct ng_incident heard = {};
        EXPECT_TRUE(soon([&] { return next(*rank, NG_SOURCE_JOB, 0, &heard) == 0; }));
    }
}

/* Two hosts whose launchers' words differ. A run beside them: each process hears the command, by
 * its communicator or its launcher's word. */
TEST_P(BoardMultihostRedis, ARunIsOneThoughItsLaunchersWordsDiffer)
{
    constexpr uint64_t apart = 0x900;
    const Host three;
    std::vector<Rank *> all;
    for (int i = 0; i < 4; i++)
        all.push_back(&join(i < 2 ? one : two, i, {}, i < 2 ? 7 : 8));
    round();
    Tool tool(url.c_str());
    auto count = [&](uint32_t living) {
        int found = tool.find_runs();
        return tool.runs[0].living == living ? found : -1;
    };
    EXPECT_TRUE(soon([&] { return count(4) == 1; }));
    for (int i : {0, 1, 2})
        all[i]->add_group({world, 3, i});
    EXPECT_TRUE(soon([&] { return count(4) == 1 && tool.runs[0].id == world; }));
    EXPECT_TRUE(soon([&] { return all[0]->lives().size() == 4; })) << "rank 3 is the missing one";
    std::vector<Rank *> others;
    for (int i = 0; i < 2; i++)
        others.push_back(&join(three, i, {{apart, 2, i}}));
    EXPECT_TRUE(soon([&] { return count(4) == 2; }));
    tool.job.run = world;
    EXPECT_EQ(tool.order(), 4) << tool.why;
    struct ng_incident heard = {};
    for (Rank *rank : all)
        EXPECT_TRUE(soon([&] { return next(*rank, NG_SOURCE_JOB, 0, &heard) == 0; }));
    uint64_t last = heard.epoch;
    tool.job.run = apart;
    EXPECT_EQ(tool.order(), 2) << tool.why;
    for (Rank *rank : others) {
        EXPECT_TRUE(soon([&] { return next(*rank, NG_SOURCE_JOB, 0, &heard) == 0; }));
        EXPECT_GT(heard.epoch, last) << "and of no other before";
    }
    struct ng_board_client_verdict verdict = {};
    uint32_t living = 0;
    EXPECT_EQ(tool.verdict({world}, 0, &verdict, &living), -ENOENT);
    EXPECT_EQ(living, 4u) << "its other host is waited for";
}

/* A command to a run by hand beside a launcher's: also to its ranks without a communicator. */
TEST_P(BoardMultihostRedis, ACommandReachesARunByHandBesideALaunchersOne)
{
    const Host three;
    Rank &a = join(one, 0), &b = join(two, 1), &launched = join(three, 0, {}, 7);
    round();
    Tool tool(url.c_str());
    auto command = [&](uint64_t epoch) {
        EXPECT_TRUE(soon([&] { return tool.find_runs() == 2 && tool.runs[0].living == 2; }));
        tool.job.run = tool.runs[0].id;
        EXPECT_EQ(tool.order(), 2);
        struct ng_incident heard = {};
        for (Rank *rank : {&a, &b})
            EXPECT_TRUE(soon([&] { return next(*rank, NG_SOURCE_JOB, epoch, &heard) == 0; }));
        EXPECT_NE(next(launched, NG_SOURCE_JOB, 0, &heard), 0);
        return heard.epoch;
    };
    uint64_t epoch = command(0);
    a.add_group({world, 2, 0});
    EXPECT_TRUE(soon([&] { return tool.find_runs() >= 0 && tool.runs[0].id == world; }));
    command(epoch);
}

/* A run is known by any of its groups; what is claimed, another run's, or seen already is none. */
TEST_P(BoardMultihostRedis, AToolReadsTheVerdictOnARun)
{
    constexpr uint64_t apart = 0x900;
    Rank &a = start(one, 0);
    join(two, 0, {{apart, 2}});
    round();
    Tool tool(url.c_str()), local("local:");
    local.job.folder = "/nowhere";
    auto read = [&](uint64_t group, uint64_t epoch, struct ng_board_client_verdict *verdict,
                    uint32_t *living = nullptr) {
        return tool.verdict({0x123, group}, epoch, verdict, living);
    };
    struct ng_board_client_verdict verdict = {};
    struct ng_incident suspicion = {}, deadline = {}, later = {};
    uint32_t living = 0;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_SUSPECT, world, 7), &suspicion), 0);
    EXPECT_EQ(read(world, 0, &verdict, &living), -ENOENT) << "nobody has judged it";
    EXPECT_EQ(living, 1u) << "the other is of another run";
    EXPECT_EQ(read(0x77, 0, &verdict, &living), -ENOENT) << "nobody has such a group";
    EXPECT_EQ(living, 2u);
    ASSERT_EQ(publish(a, suspicion), 0);
    ASSERT_EQ(read(world, 0, &verdict), 0) << tool.why;
    EXPECT_EQ(verdict.incident.epoch, suspicion.epoch);
    ng_arena_reset(&verdict.documents.arena);
    EXPECT_EQ(read(world, suspicion.epoch, &verdict), -ENOENT);
    EXPECT_EQ(read(apart, 0, &verdict), -ENOENT) << "it is of another run";
    EXPECT_EQ(read(0x456, 0, &verdict), -ENOENT) << "nobody knows the group";
    /* A deadline's stays the word, whatever is suspected after it. */
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 8), &deadline), 0);
    ASSERT_EQ(publish(a, deadline), 0);
    ASSERT_EQ(a.claim(about(NG_INCIDENT_SUSPECT, world, 9), &later), 0);
    ASSERT_EQ(publish(a, later), 0);
    ASSERT_EQ(read(world, 0, &verdict), 0) << tool.why;
    EXPECT_EQ(verdict.incident.epoch, deadline.epoch);
    EXPECT_EQ(verdict.incident.level, NG_INCIDENT_TIMEOUT);
    EXPECT_STREQ(verdict.incident.line, "the verdict");
    EXPECT_NE(std::string(verdict.documents.json, verdict.documents.json_bytes).find("healthy"),
              std::string::npos);
    ng_arena_reset(&verdict.documents.arena);
    EXPECT_EQ(local.verdict({world}, 0, &verdict), -ENOENT);
}

TEST_P(BoardMultihostRedis, AToolIsToldWhyWithoutThePassword)
{
    OwnView view;
    ASSERT_EQ(server->ask({"CONFIG", "SET", "requirepass", "hush-hush"}), "OK");
    std::string wrong = server->url(":wrong-hush@"), right = server->url(":hush-hush@");
    Tool tool(wrong.c_str());
    EXPECT_EQ(tool.view(&view), -EACCES);
    EXPECT_NE(std::string(tool.why), "");
    EXPECT_EQ(std::string(tool.why).find("hush"), std::string::npos) << tool.why;
    tool.job.url = right.c_str();
    EXPECT_EQ(tool.view(&view), 0) << tool.why;
    tool.job.url = "redis://";
    EXPECT_LT(tool.view(&view), 0);
    tool.job.url = "none";
    EXPECT_EQ(tool.view(&view), -ENOENT);
}
#endif

/* ---- Entries ---- */

static int put_once(Rank &rank, const char *key, const std::string &data, int64_t keep_ns = 0)
{
    struct ng_board_entry entry = {
        .key = key, .data = data.data(), .bytes = data.size(), .keep_ns = keep_ns};
    return rank.board->ops->put(rank.board, &entry);
}

/* Who is not answered within half a second may ask again, as the program's requests do: the other
 * thread may have got no processor. */
static int answered(const std::function<int()> &ask)
{
    int error = -EIO;
    EXPECT_TRUE(eventually([&] { return (error = ask()) != -EIO; }));
    return error;
}

static int put(Rank &rank, const char *key, const std::string &data, int64_t keep_ns = 0)
{
    return answered([&] { return put_once(rank, key, data, keep_ns); });
}

/* What is there, or the error as text. */
static std::string fetch(Rank &rank, const char *key)
{
    char data[NG_BOARD_VALUE_MAX];
    size_t bytes = 0;
    int error = answered([&] { return rank.board->ops->fetch(rank.board, key, data, &bytes); });
    return error ? strerror(-error) : std::string(data, bytes);
}

static int have(Rank &rank, uint32_t first, uint32_t count, uint64_t *ret_there)
{
    return answered(
        [&] { return rank.board->ops->have(rank.board, "b.", first, count, ret_there); });
}

static const std::string nothing = strerror(ENOENT);

TEST_P(BoardMultihost, EntriesAreSeenOnOtherHostsAndPutOnce)
{
    Rank &a = start(one, 0), &far = start(two, 1);
    std::string odd("\0\n\xff", 3), large(NG_BOARD_VALUE_MAX, 'x');
    EXPECT_EQ(fetch(far, "u.key"), nothing);
    EXPECT_EQ(put(a, "u.key", odd), 0);
    EXPECT_EQ(put(a, "u.large", large), 0);
    EXPECT_EQ(put(a, "u.empty", ""), 0);
    EXPECT_EQ(fetch(far, "u.key"), odd);
    EXPECT_EQ(fetch(far, "u.large"), large);
    EXPECT_EQ(fetch(far, "u.empty"), "");
    EXPECT_EQ(put(far, "u.key", odd), -EEXIST) << "by another process";
    EXPECT_EQ(put(a, "u.key", odd), 0) << "the same by the same";
    EXPECT_EQ(put(a, "u.key", "other"), -EEXIST);
}

TEST_P(BoardMultihost, EntriesStayAsLongAsTheirProcessAndNotMuchLonger)
{
    Rank &a = start(one, 0, 3 * NG_S), &far = start(two, 1, 3 * NG_S);
    EXPECT_EQ(put(a, "u.key", "value"), 0);
    EXPECT_EQ(put(a, "b.key", "kept", 60 * NG_S), 0);
    int64_t until = ng_clock_mono_ns() + 5 * NG_S;
    EXPECT_TRUE(soon([&] {
        std::string found = fetch(far, "u.key");
        EXPECT_EQ(found, "value") << (found == nothing ? "late: not kept in time" : "");
        return ng_clock_mono_ns() > until;
    }));
    kill(a);
    EXPECT_TRUE(soon([&] { return fetch(far, "u.key") == nothing; }));
    EXPECT_EQ(fetch(far, "b.key"), "kept");
    EXPECT_EQ(put(far, "u.key", "new"), 0);
}

/* ---- Entries of several runs of one name ---- */

/* As their launchers tell. */
TEST_P(BoardMultihost, EntriesOfARunWithAnotherLauncherAreNotSeen)
{
    const Host hosts[3];
    Rank &first = join(hosts[0], 0, {}, 7), &same = join(hosts[1], 1, {}, 7),
         &other = join(hosts[2], 0, {}, 8);
    EXPECT_EQ(put(first, "u.id", "of the first"), 0);
    EXPECT_EQ(fetch(other, "u.id"), nothing);
    EXPECT_EQ(put(other, "u.id", "of the other"), 0);
    EXPECT_EQ(fetch(same, "u.id"), "of the first");
    EXPECT_EQ(fetch(other, "u.id"), "of the other");
}

/* Words may differ between the hosts of one run, but ranks that complement each other may be of
 * two: a communicator alone tells. */
TEST_P(BoardMultihost, AnEntryWithOtherWordsOfALauncherIsGivenOnlyWhereACommunicatorTells)
{
    const Host hosts[3];
    Rank &first = join(hosts[0], 0, {}, 7), &second = join(hosts[1], 1, {}, 8),
         &twin = join(hosts[2], 0, {}, 9);
    const std::string differ = strerror(EXDEV);
    struct ng_board_entry entry = {};
    char data[NG_BOARD_VALUE_MAX];
    size_t bytes = 0;
    entry.key = "u.id";
    entry.data = "value";
    entry.bytes = 5;
    entry.words = "SLURM_STEP_ID=7\n";
    EXPECT_EQ(answered([&] { return first.board->ops->put(first.board, &entry); }), 0);
    EXPECT_TRUE(soon([&] { return fetch(second, "u.id") == differ; }));
    EXPECT_EQ(second.board->ops->fetch(second.board, "u.id", data, &bytes), -EXDEV);
    EXPECT_EQ(std::string(data, bytes), entry.words);
    EXPECT_EQ(fetch(second, "u.other"), nothing);
    EXPECT_TRUE(soon([&] { return fetch(twin, "u.id") == nothing; })) << "it has the same rank";
    EXPECT_EQ(put(twin, "u.id", "of the twin"), 0);
    first.add_group({world, 2, 0});
    second.add_group({world, 2, 1});
    EXPECT_TRUE(soon([&] { return fetch(second, "u.id") == "value"; }));
    EXPECT_EQ(fetch(first, "u.id"), "value");
    EXPECT_EQ(fetch(twin, "u.id"), "of the twin");
}

/* Each rank that waits for the entry looks again and again. */
TEST_P(BoardMultihost, TheProgressOfAllIsReadOnceASecondForAnEntryWithOtherWords)
{
    const Host hosts[3];
    Rank &first = join(hosts[0], 0, {}, 7), &waiting = join(hosts[2], 1, {}, 9);
    EXPECT_EQ(put(first, "u.id", "value"), 0);
    EXPECT_TRUE(soon([&] { return fetch(waiting, "u.id") == strerror(EXDEV); }));
    int64_t before_ns = ng_clock_mono_ns();
    int readings = waiting.kv.readings;
    for (int i = 0; i < 50; i++)
        EXPECT_EQ(fetch(waiting, "u.id"), strerror(EXDEV));
    EXPECT_LE(waiting.kv.readings - readings, 1 + (ng_clock_mono_ns() - before_ns) / NG_S);
    Rank &twin = join(hosts[1], 0, {}, 8);
    waiting.add_group({world, 2, 1});
    twin.add_group({world, 2, 0});
    EXPECT_TRUE(soon([&] { return fetch(waiting, "u.id") == nothing; })) << "it is looked at again";
}

/* What ranks say holds only until a communicator says otherwise: ranks may be numbered anew. */
TEST_P(BoardMultihost, AnEntryWithOtherWordsThatWasRefusedIsGivenOnceACommunicatorIsInCommon)
{
    const Host hosts[2];
    Rank &first = join(hosts[0], 0, {}, 7), &twin = join(hosts[1], 0, {}, 8);
    EXPECT_EQ(put(first, "u.id", "value"), 0);
    EXPECT_TRUE(soon([&] { return fetch(twin, "u.id") == nothing; })) << "it has the same rank";
    first.add_group({world, 2, 0});
    twin.add_group({world, 2, 1});
    EXPECT_TRUE(soon([&] { return fetch(twin, "u.id") == "value"; }));
}

/* Two runs have put the same key; the first one's process dies. */
TEST_P(BoardMultihost, AnEntryWithOtherWordsIsFoundOnceTheHintOfOneThatHasLeftIsGone)
{
    const Host hosts[3];
    Rank &first = join(hosts[0], 0, {}, 7, 3 * NG_S), &second = join(hosts[1], 0, {}, 8, 3 * NG_S),
         &mate = join(hosts[2], 1, {}, 9, 3 * NG_S);
    EXPECT_EQ(put(first, "u.id", "of the first"), 0);
    EXPECT_EQ(put(second, "u.id", "of the second"), 0);
    second.add_group({world, 2, 0});
    mate.add_group({world, 2, 1});
    round();
    kill(first);
    EXPECT_TRUE(soon([&] { return fetch(mate, "u.id") == "of the second"; }));
}

/* Its key is of one communicator: neither words of launchers nor ranks tell whose it is. */
TEST_P(BoardMultihost, AnEntryWithALifetimeOfItsOwnIsOfAllThatAskForIt)
{
    const Host three, four;
    Rank &a = join(one, 0), &launched = join(two, 1, {}, 7), &twin = join(three, 0),
         &open = join(four, 1);
    auto expect_there = [&] {
        for (Rank *rank : {&launched, &twin, &open}) {
            uint64_t there = 99;
            EXPECT_EQ(fetch(*rank, "b.0"), "kept");
            EXPECT_EQ(put(*rank, "b.0", "x", 60 * NG_S), -EEXIST);
            EXPECT_EQ(have(*rank, 0, 2, &there), 0);
            EXPECT_EQ(there, 1u);
        }
    };
    EXPECT_EQ(put(a, "b.0", "kept", 60 * NG_S), 0);
    expect_there();
    a.board->ops->leave(a.board);
    expect_there();
}

/* Two ranks of two runs each: the first puts, the second gets. */
static void expect_apart(const std::vector<Rank *> &all)
{
    EXPECT_EQ(put(*all[0], "u.id", "of the first"), 0);
    EXPECT_EQ(fetch(*all[2], "u.id"), nothing);
    EXPECT_EQ(fetch(*all[3], "u.id"), nothing);
    EXPECT_EQ(put(*all[2], "u.id", "of the second"), 0);
    EXPECT_EQ(put(*all[2], "u.id", "of the second"), 0) << "the same by the same";
    EXPECT_EQ(put(*all[3], "u.id", "x"), -EEXIST);
    EXPECT_EQ(fetch(*all[1], "u.id"), "of the first");
    EXPECT_EQ(fetch(*all[3], "u.id"), "of the second");
}

/* A communicator of all eight ranks, made just now, tells whose they are. */
TEST_P(BoardMultihost, EntriesOfARunWithAnotherCommunicatorAreNotSeen)
{
    const Host three, four;
    const Host *const hosts[] = {&one, &two, &three, &four};
    std::vector<Rank *> all;
    for (int i = 0; i < 4; i++)
        all.push_back(&join(*hosts[i], i % 2));
    for (int i = 0; i < 4; i++)
        all[i]->add_group({i < 2 ? world : world + 1, 8, i % 2});
    expect_apart(all);
}

TEST_P(BoardMultihost, EntriesOfARunThatHasTheSameRanksAreNotSeen)
{
    const Host three, four;
    const Host *const hosts[] = {&one, &two, &three, &four};
    std::vector<Rank *> all;
    for (int i = 0; i < 4; i++)
        all.push_back(&join(*hosts[i], i % 2, {{i < 2 ? world : world + 1, 2, i % 2}}));
    expect_apart(all);
}

TEST_P(BoardMultihost, EntriesAreSeenByRanksOfTheRunThatHaveNoCommunicatorInCommon)
{
    const Host three;
    Rank &a = join(one, 0, {{world, 2, 0}}), &b = join(two, 2, {{world + 1, 2, 0}}),
         &newcomer = join(three, 4);
    EXPECT_EQ(put(a, "u.id", "value"), 0);
    EXPECT_EQ(fetch(b, "u.id"), "value");
    EXPECT_EQ(fetch(newcomer, "u.id"), "value");
    EXPECT_EQ(put(b, "u.id", "x"), -EEXIST);
}

/* Before any communicator, and without a launcher: a rank that exists twice shows that there are
 * two runs. */
TEST_P(BoardMultihost, EntriesThatMayBeOfEitherOfTwoRunsAreRefusedUntilThatIsKnown)
{
    const Host three, four;
    const Host *const hosts[] = {&one, &two, &three, &four};
    const std::string unclear = strerror(ENOTUNIQ);
    std::vector<Rank *> all;
    for (int i = 0; i < 4; i++)
        all.push_back(&join(*hosts[i], i % 2));
    EXPECT_EQ(put(*all[0], "u.id", "of the first"), 0);
    EXPECT_EQ(fetch(*all[2], "u.id"), nothing) << "it has the same rank";
    EXPECT_EQ(put(*all[2], "u.id", "of the second"), 0);
    EXPECT_EQ(fetch(*all[0], "u.id"), "of the first");
    EXPECT_EQ(fetch(*all[2], "u.id"), "of the second");
    for (int i : {1, 3}) {
        EXPECT_EQ(fetch(*all[i], "u.id"), unclear);
        EXPECT_EQ(put(*all[i], "u.id", "x"), -ENOTUNIQ);
    }
    /* One run has its communicator: what is left is the other. */
    all[0]->add_group({world, 8, 0});
    all[1]->add_group({world, 8, 1});
    EXPECT_TRUE(soon([&] { return fetch(*all[1], "u.id") == "of the first"; }));
    EXPECT_TRUE(soon([&] { return fetch(*all[3], "u.id") == "of the second"; }));
}

/* Nothing tells the next run of that name from this one. */
TEST_P(BoardMultihost, EntriesOfAProcessThatHasLeftAreNotSeenByOnesThatComeLater)
{
    const Host three;
    Rank &a = join(one, 0), &slow = join(two, 1);
    EXPECT_EQ(put(a, "u.id", "value"), 0);
    a.board->ops->leave(a.board);
    EXPECT_EQ(fetch(slow, "u.id"), "value");
    Rank &later = join(three, 0), &other = join(three, 5);
    EXPECT_EQ(fetch(later, "u.id"), nothing);
    EXPECT_EQ(fetch(other, "u.id"), nothing) << "though its rank fits";
    EXPECT_EQ(put(later, "u.id", "new"), 0);
    EXPECT_EQ(fetch(later, "u.id"), "new");
}

TEST_P(BoardMultihost, APutWhoseAnswerWasLostFindsItself)
{
    Rank &a = start(one, 0), &far = start(two, 1);
    a.kv.lose_answer("put", "k/u.key");
    EXPECT_EQ(put_once(a, "u.key", "value"), -EIO);
    EXPECT_TRUE(soon([&] { return put_once(a, "u.key", "value") == 0; }));
    EXPECT_EQ(fetch(far, "u.key"), "value");
}

TEST_P(BoardMultihost, EntriesOfALostStoreAreAskedForInVainAndAtOnce)
{
    Rank &a = start(one, 0);
    uint64_t there;
    char data[NG_BOARD_VALUE_MAX];
    size_t bytes;
    a.kv.set(FaultyKv::HANG);
    int64_t before = ng_clock_mono_ns();
    EXPECT_EQ(a.board->ops->fetch(a.board, "u.key", data, &bytes), -EIO);
    EXPECT_EQ(put_once(a, "u.key", "x"), -EIO);
    EXPECT_EQ(a.board->ops->have(a.board, "b.", 0, 64, &there), -EIO);
    EXPECT_IN_TIME(ng_clock_mono_ns() - before, 20 * NG_S);
    a.kv.set(FaultyKv::PASS);
    EXPECT_TRUE(soon([&] { return put_once(a, "u.key", "x") == 0; }));
}

TEST_P(BoardMultihost, HaveTellsWhichOfManyEntriesAreThere)
{
    Rank &a = start(one, 0), &far = start(two, 1);
    uint64_t there = 99;
    for (const char *key : {"b.0", "b.7", "b.63", "b.70"})
        EXPECT_EQ(put(a, key, "", 60 * NG_S), 0);
    EXPECT_EQ(have(far, 0, 64, &there), 0);
    EXPECT_EQ(there, UINT64_C(1) | UINT64_C(1) << 7 | UINT64_C(1) << 63);
    EXPECT_EQ(have(far, 64, 7, &there), 0);
    EXPECT_EQ(there, UINT64_C(1) << 6);
}

TEST_P(BoardMultihost, EntriesOfOneProcessHaveABound)
{
    Rank &a = start(one, 0);
    for (int i = 0; i < NG_BOARD_KEEP_MAX; i++)
        EXPECT_EQ(put(a, ("u." + std::to_string(i)).c_str(), "x"), 0);
    EXPECT_EQ(put(a, "u.more", "x"), -ENOSPC);
    EXPECT_EQ(put(a, "b.more", "x", NG_S), 0) << "those that go by themselves have none";
    EXPECT_EQ(put(a, "u.0", "x"), 0) << "what is there counts no more";
}
