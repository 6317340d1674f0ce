/*
 * Ranks on a store, each with the thread that owns its connection.
 */
#include "tests/gtest/in_time.h"
#include "tests/unit/store/kv/on_stores.h"
#include "tests/unit/store/publish/ranks.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NG_OTHER_THREADS /* the sanitizer has one of its own */
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define NG_OTHER_THREADS
#endif

#include <sstream>

#include <spawn.h>

constexpr uint64_t world = 0x500; /* the group of all, and their label */

struct Publish : testing::TestWithParam<const char *>, protected StoreOfTest {
    void SetUp() override
    {
        open_store(GetParam());
        if (!IsSkipped())
            store = std::make_unique<Kv>(url, NG_BOARD_RUN, "job");
    }
    void TearDown() override
    {
        ranks.clear();
        store.reset();
    }
    /* As a server that died comes back. */
    void empty()
    {
#if NG_HAVE_HIREDIS
        if (server) {
            ASSERT_EQ(server->ask({"FLUSHALL"}), "OK");
            return;
        }
#endif
        empty_store(url);
    }
    Rank &add(int rank, int64_t ttl_ns = 5 * NG_S, std::vector<Group> groups = {{world, 8}})
    {
        Rank::Options options;
        options.ttl_ns = ttl_ns;
        options.groups = groups;
        ranks.push_back(std::make_unique<Rank>(url, rank, options));
        return *ranks.back();
    }
    Rank &started(int rank, int64_t ttl_ns = 5 * NG_S, std::vector<Group> groups = {{world, 8}})
    {
        Rank &one = add(rank, ttl_ns, groups);
        one.start();
        return one;
    }
    struct ng_progress_head head(uint64_t slot)
    {
        struct ng_progress_head found = {};
        std::string blob = store->value("p/" + std::to_string(slot));
        EXPECT_EQ(ng_progress_peek(blob.data(), blob.size(), &found), 0) << "slot " << slot;
        return found;
    }
    struct ng_incident incident(uint64_t epoch)
    {
        struct ng_incident found = {};
        std::string bytes = store->value("i/" + std::to_string(epoch));
        EXPECT_EQ(ng_incident_decode(bytes.data(), bytes.size(), &found), 0) << bytes;
        return found;
    }
    static bool has(Kv &store, const std::string &key)
    {
        std::string value;
        return store.get(key, &value) == 0;
    }
    static std::string hex(uint64_t number)
    {
        char text[17];
        snprintf(text, sizeof(text), "%016llx", (unsigned long long)number);
        return text;
    }
    /* Everything that was handed to its thread is done. */
    static void settle(Rank &rank)
    {
        int before = rank.kv.calls;
        for (int i = 0; i < 3; i++)
            rank.ask(NG_ASK_ALIVE);
        /* A whole round of its own, too: its calls come in groups of more than these. */
        EXPECT_TRUE(eventually([&] { return rank.kv.calls > before + 12; }));
    }
    /* What anybody may put there who can write to the store; without a message, and with one. */
    void put(struct ng_incident incident, uint64_t epoch)
    {
        unsigned char bytes[NG_INCIDENT_RECORD_BYTES];
        incident.epoch = epoch;
        incident.state = NG_INCIDENT_JUDGED;
        size_t length = ng_incident_encode(&incident, bytes);
        ASSERT_EQ(store->put("i/" + std::to_string(epoch),
                             std::string(reinterpret_cast<char *>(bytes), length)),
                  0);
    }
    void forge(const struct ng_incident &incident, uint64_t epoch)
    {
        put(incident, epoch);
        ASSERT_EQ(store->publish("m", "incident " + std::to_string(epoch)), 0);
    }
    /* It exits as a program does. */
    static void leave(Rank &rank)
    {
        __atomic_store_n(&rank.box.header->life, (uint32_t)NG_BOX_EXITED, __ATOMIC_SEQ_CST);
        EXPECT_EQ(rank.ask(NG_ASK_LEAVE), 0);
        EXPECT_TRUE(rank.join_thread());
    }
    /* Its place on the store is its own. */
    bool is_there(Rank &rank)
    {
        std::string blob;
        struct ng_progress_head there = {};
        return store->get("p/" + std::to_string(rank.slot()), &blob) == 0 &&
               ng_progress_peek(blob.data(), blob.size(), &there) == 0 &&
               there.process.uid == rank.uid();
    }
    static bool is_judged(Rank &rank, uint64_t epoch, struct ng_incident *ret_incident)
    {
        return ng_publisher_get_incident(rank.publisher, epoch, ret_incident) == 0 &&
               ret_incident->state == NG_INCIDENT_JUDGED;
    }
    /* How many dumps it waits for; -1 not known. */
    static int awaited_dumps(Rank &rank, const struct ng_incident &incident)
    {
        struct ng_ask question = {.kind = NG_ASK_DUMPS, .incident = incident};
        int count = rank.ask(&question) == 0 ? (int)question.count : -1;
        ng_arena_reset(&question.arena);
        return count;
    }
    /* The box's first `groups` communicators are compared across hosts, by this rank. */
    static void tell_hash_logs(Rank &rank, int groups)
    {
        for (int i = 0; i < groups; i++) {
            __atomic_store_n(&rank.box.groups[i].created_by, (uint32_t)NG_OP_CommInitRank,
                             __ATOMIC_SEQ_CST);
            __atomic_store_n(&rank.box.hash_logs[i].across, 1u, __ATOMIC_SEQ_CST);
        }
    }
    uint64_t entered(Rank &from, int rank)
    {
        OwnView view;
        uint64_t found = 0;
        EXPECT_EQ(from.view(&view), 0);
        for (uint32_t i = 0; i < view.member_count; i++)
            if (view.processes[view.members[i].process].rank == rank)
                found = view.members[i].entered;
        return found;
    }
    std::unique_ptr<Kv> store;
    std::vector<std::unique_ptr<Rank>> ranks;
};

INSTANTIATE_ON_STORES(Publish);

/* ---- Places, progress, signs of life ---- */

TEST_P(Publish, AllThatJoinAtOnceGetPlacesOfTheirOwn)
{
    constexpr int count = 6;
    for (int i = 0; i < count; i++)
        add(i).start_without_waiting();
    std::set<uint64_t> slots;
    for (auto &rank : ranks) {
        ASSERT_TRUE(eventually([&] { return rank->up(); }));
        slots.insert(rank->slot());
        EXPECT_EQ(head(rank->slot()).process.uid, rank->uid());
        EXPECT_EQ(head(rank->slot()).label, world);
    }
    EXPECT_EQ(slots, (std::set<uint64_t>{1, 2, 3, 4, 5, 6}));
    for (auto &rank : ranks) {
        std::map<int, enum ng_life> lives = rank->lives();
        EXPECT_EQ(lives.size(), (size_t)count);
        for (auto &one : lives)
            EXPECT_EQ(one.second, NG_LIFE_RUNNING) << one.first;
    }
}

TEST_P(Publish, WhoLooksSeesTheNewest)
{
    Rank &a = started(0), &b = started(1);
    for (uint64_t i = 1; i <= 5; i++) {
        b.set_entered(0, i);
        EXPECT_TRUE(eventually([&] { return entered(a, 1) == i; }));
    }
}

TEST_P(Publish, WhatKeepsChangingIsToldOnceASecond)
{
    Rank &a = started(0);
    std::set<std::string> seen;
    int64_t begun = ng_clock_mono_ns();
    auto took = [&] { return ng_clock_mono_ns() - begun; };
    for (uint64_t i = 1; took() < 3 * NG_S || (seen.size() < 2 && took() < 20 * NG_S); i++) {
        a.set_entered(0, i);
        seen.insert(store->value("p/1"));
        struct timespec pause = {0, 2 * NG_MS};
        nanosleep(&pause, nullptr);
    }
    int64_t seconds = took() / NG_S;
    EXPECT_GE(seen.size(), 2u) << "it is told";
    EXPECT_LE((int64_t)seen.size(), seconds + 2);
}

TEST_P(Publish, WhoLivesKeepsItsSignOfLife)
{
    Rank &a = started(0, 3 * NG_S);
    int64_t until = within(5000);
    while (ng_clock_mono_ns() < until) {
        ASSERT_TRUE(has(*store, "l/" + std::to_string(a.slot()))) << "late: ";
        struct timespec pause = {0, 50 * NG_MS};
        nanosleep(&pause, nullptr);
    }
}

TEST_P(Publish, WhoLeavesHasExitedAndIsNotLost)
{
    Rank &a = started(0), &b = started(1);
    uint64_t slot = b.slot();
    leave(b);
    EXPECT_EQ(head(slot).process.life, NG_LIFE_EXITED);
    EXPECT_TRUE(eventually([&] { return !has(*store, "l/" + std::to_string(slot)); }));
    EXPECT_TRUE(eventually([&] { return ng_publisher_ended(a.publisher) == 1; }));
    EXPECT_EQ(a.lives()[1], NG_LIFE_EXITED);
    EXPECT_EQ(b.ask(NG_ASK_VIEW), -EIO) << "nobody is there any more";
    /* A neighbour that says the same says nothing new. */
    b.spoken_for_by(a, NG_LIFE_DEAD);
    settle(a);
    EXPECT_EQ(store->value("e"), "1");
    EXPECT_FALSE(has(*store, "y/" + std::to_string(slot)));
}

/* The groups that say whose run it is of are told once a round, and it may not stay for one. */
TEST_P(Publish, WhoLeavesRightBehindTheMakingOfItsGroupIsOfThatRun)
{
    Rank &a = started(0), &b = started(1, 5 * NG_S, {});
    b.add_group({world, 8, 1});
    leave(b);
    std::map<int, enum ng_life> lives = a.lives();
    ASSERT_TRUE(lives.count(1));
    EXPECT_EQ(lives[1], NG_LIFE_EXITED);
}

TEST_P(Publish, WhoHasJustMadeItsFirstGroupHearsAndIsSeenAtOnce)
{
    Rank &a = started(0), &b = started(1, 5 * NG_S, {}), &c = started(2, 5 * NG_S, {});
    struct ng_incident mine;
    b.add_group({world, 8, 1});
    ASSERT_EQ(a.claim(about(NG_INCIDENT_SUSPECT, world, 1), &mine), 0);
    EXPECT_EQ(b.heard(0), mine.epoch) << "it is of its own run";
    c.add_group({world, 8, 2});
    std::map<int, enum ng_life> lives = a.lives();
    EXPECT_EQ(lives[1], NG_LIFE_RUNNING);
    EXPECT_EQ(lives[2], NG_LIFE_RUNNING);
    Rank &d = started(3, 5 * NG_S, {});
    d.add_group({world, 8, 3});
    ASSERT_EQ(d.claim(about(NG_INCIDENT_SUSPECT, world, 2), &mine), 0);
    EXPECT_EQ(incident(mine.epoch).label, world) << "else it were for every run";
}

TEST_P(Publish, AnAnswerThatWasLostCostsNoPlace)
{
    Rank &a = add(0);
    a.kv.lose_answer("put", "p/");
    a.start();
    EXPECT_EQ(a.slot(), 1u);
    EXPECT_EQ(store->value("n"), "1");
    EXPECT_EQ(a.lives().size(), 1u);
}

/* ---- Deaths ---- */

TEST_P(Publish, TheRingFindsWhoIsLostAndOneTellsAll)
{
    /* Those that live are not to be lost, whatever keeps their threads for a second. */
    Rank &a = started(0), &b = started(1), &c = started(2, NG_S);
    uint64_t slot = c.slot();
    ng_publisher_news(a.publisher);
    ng_publisher_news(b.publisher);
    c.kill();
    EXPECT_TRUE(eventually([&] {
        return ng_publisher_ended(a.publisher) == 1 && ng_publisher_ended(b.publisher) == 1;
    }));
    EXPECT_TRUE(eventually([&] { return (ng_publisher_news(a.publisher) & NG_BOARD_DEATH) != 0; }));
    EXPECT_TRUE(has(*store, "y/" + std::to_string(slot)));
    EXPECT_EQ(a.lives()[2], NG_LIFE_LOST);
    EXPECT_EQ(b.lives()[1], NG_LIFE_RUNNING);
    settle(a);
    settle(b);
    EXPECT_EQ(store->value("e"), "1");
}

TEST_P(Publish, AWholeHostIsFoundByTheOneBefore)
{
    Rank &a = started(0); /* who lives is not to be lost */
    for (int i = 1; i < 6; i++)
        started(i, NG_S);
    for (int i = 1; i < 6; i++)
        ranks[i]->kill();
    EXPECT_TRUE(eventually([&] { return store->value("e") == "5"; }));
    std::map<int, enum ng_life> lives = a.lives();
    for (int i = 1; i < 6; i++)
        EXPECT_EQ(lives[i], NG_LIFE_LOST);
    EXPECT_EQ(lives[0], NG_LIFE_RUNNING);
}

TEST_P(Publish, OfAllNeighboursOneTellsOfADeath)
{
    for (int i = 0; i < 4; i++)
        started(i);
    Rank &dead = *ranks[3];
    uint64_t slot = dead.slot();
    dead.kill();
    for (int i = 0; i < 3; i++)
        dead.spoken_for_by(*ranks[i], NG_LIFE_DEAD);
    for (int i = 0; i < 3; i++)
        EXPECT_TRUE(eventually([&] { return ng_publisher_ended(ranks[i]->publisher) == 1; }));
    for (int i = 0; i < 3; i++)
        settle(*ranks[i]);
    EXPECT_EQ(store->value("e"), "1");
    EXPECT_EQ(head(slot).process.life, NG_LIFE_DEAD);
    EXPECT_EQ(head(slot).reason, NG_PROGRESS_BY_NEIGHBOUR);
    EXPECT_EQ(ranks[0]->lives()[3], NG_LIFE_DEAD);
}

/* `ncclguard run` above it, which has no slot. */
TEST_P(Publish, ADeathIsToldByAToolOnceThoughTheAnswerGotLost)
{
    Rank &a = started(0), &b = started(1);
    uint64_t slot = b.slot();
    FaultyKv kv(url);
    Told last;
    last.rank = 1;
    last.uid = b.uid();
    last.label = ng_publisher_get_label(a.publisher);
    last.life = NG_LIFE_DEAD;
    std::string blob = told(last);
    b.kill();
    for (const char *key : {"x/", "none"}) {
        kv.lose_answer("put", key);
        EXPECT_EQ(
            ng_publisher_report_end(&kv, last.label, slot, blob.data(), blob.size(), within(5000)),
            0);
    }
    EXPECT_TRUE(eventually([&] { return ng_publisher_ended(a.publisher) == 1; }));
    EXPECT_EQ(store->value("e"), "1");
    EXPECT_EQ(head(slot).process.life, NG_LIFE_DEAD);
    EXPECT_EQ(a.lives()[1], NG_LIFE_DEAD);

    /* Nobody waits for a store that is gone beyond the deadline. */
    kv.set(FaultyKv::FAIL);
    EXPECT_EQ(ng_publisher_report_end(&kv, last.label, slot, blob.data(), blob.size(), within(300)),
              -ECONNREFUSED);
}

/* The launcher ended the neighbour that was about to report the death. */
TEST_P(Publish, ADeathIsReportedThoughTheNeighbourThatWasToReportItEndedFirst)
{
    Rank &a = started(0), &b = started(1), &c = started(2), &d = started(3);
    uint64_t slot = c.slot(), of_neighbour = b.slot();
    c.kill();
    b.kv.hold_answer("put", "x/");
    c.spoken_for_by(b, NG_LIFE_DEAD);
    ASSERT_TRUE(eventually([&] { return b.kv.is_held(); })) << "it has announced its report";
    b.kill();
    b.kv.release();
    ASSERT_EQ(head(slot).process.life, NG_LIFE_RUNNING);
    /* Another neighbour takes over; and reports what it saw later not before that. */
    c.spoken_for_by(d, NG_LIFE_DEAD);
    b.spoken_for_by(d, NG_LIFE_DEAD);
    EXPECT_TRUE(eventually([&] { return head(of_neighbour).process.life == NG_LIFE_DEAD; }));
    EXPECT_EQ(head(slot).process.life, NG_LIFE_DEAD) << "the cause is known before its effect";
    EXPECT_TRUE(eventually([&] { return store->value("e") == "2"; }));
    EXPECT_TRUE(eventually([&] { return ng_publisher_ended(a.publisher) > 0; }));
}

/* The last process of its host, which ends because of the death. */
TEST_P(Publish, AProcessThatLeavesReportsFirstTheDeathThatItHasYetToReport)
{
    Rank &a = started(0), &b = started(1), &c = started(2), &d = started(3);
    uint64_t slot = c.slot();
    c.kill();
    d.kv.hold_answer("put", "x/");
    c.spoken_for_by(d, NG_LIFE_DEAD);
    ASSERT_TRUE(eventually([&] { return d.kv.is_held(); })) << "it has announced its report";
    d.kill();
    d.kv.release();
    c.spoken_for_by(b, NG_LIFE_DEAD);
    /* What its own end publishes is held up behind the death's. */
    b.kv.hold_answer("add", "e");
    __atomic_store_n(&b.box.header->life, (uint32_t)NG_BOX_EXITED, __ATOMIC_SEQ_CST);
    std::thread leaves([&] { EXPECT_EQ(b.ask(NG_ASK_LEAVE), 0); });
    EXPECT_TRUE(eventually([&] { return b.kv.is_held(); }));
    EXPECT_EQ(head(slot).process.life, NG_LIFE_DEAD);
    EXPECT_EQ(head(b.slot()).process.life, NG_LIFE_RUNNING) << "the cause is known first";
    b.kv.release();
    leaves.join();
    EXPECT_TRUE(b.join_thread());
    EXPECT_EQ(head(b.slot()).process.life, NG_LIFE_EXITED);
    EXPECT_EQ(a.lives()[2], NG_LIFE_DEAD);
}

/* Else a slow store would keep the process that ends from what it has to do on its own host. */
TEST_P(Publish, OneThatEndsWaitsForNoAnswerButThatToItsLeaving)
{
    Rank &a = started(0);
    a.kv.hold_answer("get", "l/");
    EXPECT_TRUE(eventually([&] { return a.kv.is_held(); }));
    std::thread asks([&] { EXPECT_EQ(a.ask(NG_ASK_ALIVE, {}, 60000), -ETIMEDOUT); });
    ng_publisher_hurry(a.publisher);
    asks.join();
    EXPECT_EQ(a.ask(NG_ASK_ALIVE, {}, 60000), -ETIMEDOUT);
    __atomic_store_n(&a.box.header->life, (uint32_t)NG_BOX_EXITED, __ATOMIC_SEQ_CST);
    std::thread leaves([&] { EXPECT_EQ(a.ask(NG_ASK_LEAVE), 0); });
    a.kv.release();
    leaves.join();
    EXPECT_TRUE(a.join_thread());
    EXPECT_EQ(head(a.slot()).process.life, NG_LIFE_EXITED);
}

/* `ncclguard run` above both has no time to wait for such a neighbour. */
TEST_P(Publish, AToolReportsADeathThoughANeighbourHasAnnouncedToDoSo)
{
    Rank &a = started(0), &b = started(1), &c = started(2);
    uint64_t slot = c.slot();
    FaultyKv kv(url);
    Told last;
    last.rank = 2;
    last.uid = c.uid();
    last.label = ng_publisher_get_label(a.publisher);
    last.life = NG_LIFE_DEAD;
    std::string blob = told(last);
    c.kill();
    b.kv.hold_answer("put", "x/");
    c.spoken_for_by(b, NG_LIFE_DEAD);
    ASSERT_TRUE(eventually([&] { return b.kv.is_held(); }));
    b.kill();
    b.kv.release();
    EXPECT_EQ(
        ng_publisher_report_end(&kv, last.label, slot, blob.data(), blob.size(), within(5000)), 0);
    EXPECT_EQ(head(slot).process.life, NG_LIFE_DEAD);
    EXPECT_EQ(a.lives()[2], NG_LIFE_DEAD);
}

TEST_P(Publish, WhoDiesAfterItWasStoppedIsDead)
{
    Rank &a = started(0), &b = started(1);
    uint64_t slot = b.slot();
    b.kv.set(FaultyKv::HANG); /* stopped */
    b.spoken_for_by(a, NG_LIFE_STOPPED, true);
    EXPECT_TRUE(eventually([&] { return head(slot).process.life == NG_LIFE_STOPPED; }));
    b.kill();
    b.spoken_for_by(a, NG_LIFE_DEAD);
    EXPECT_TRUE(eventually([&] { return head(slot).process.life == NG_LIFE_DEAD; }));
    EXPECT_TRUE(eventually([&] { return ng_publisher_ended(a.publisher) == 1; }));
}

TEST_P(Publish, WhoWasSpokenForSpeaksAgainThoughNothingChanged)
{
    Rank &a = started(0), &b = started(1);
    b.spoken_for_by(a, NG_LIFE_STOPPED, true);
    EXPECT_TRUE(eventually([&] { return head(b.slot()).process.life == NG_LIFE_STOPPED; }));
    EXPECT_TRUE(eventually([&] { return head(b.slot()).process.life == NG_LIFE_RUNNING; }));
    EXPECT_EQ(head(b.slot()).reason, NG_PROGRESS_BY_ITSELF);
}

/* Its neighbour had the word, and lost the store before it said it. */
TEST_P(Publish, AFrozenOneIsToldOfThoughTheFirstTellingGotLost)
{
    Rank &a = started(0, 60 * NG_S), &b = started(1, 60 * NG_S);
    uint64_t slot = b.slot();
    b.kv.set(FaultyKv::HANG);
    a.kv.lose_answer("put", "s/");
    b.spoken_for_by(a, NG_LIFE_STOPPED, true);
    EXPECT_TRUE(eventually([&] { return has(*store, "s/" + hex(b.uid())); }));
    EXPECT_TRUE(eventually([&] {
        if (head(slot).process.life == NG_LIFE_STOPPED)
            return true;
        b.spoken_for_by(a, NG_LIFE_STOPPED, true); /* as it is looked after once a second */
        usleep(200000);
        return false;
    }));
    b.kv.set(FaultyKv::PASS);
}

TEST_P(Publish, ASilentOneThatLivesIsKeptAlive)
{
    Rank &a = started(0), &b = started(1);
    uint64_t slot = b.slot();
    b.kv.set(FaultyKv::FAIL);
    /* Without a moment in which it has no sign of life: its neighbour would find it lost. */
    std::string sign = "l/" + std::to_string(slot);
    ASSERT_EQ(store->set(sign, "before", 20000), 0);
    b.spoken_for_by(a, NG_LIFE_RUNNING);
    EXPECT_TRUE(eventually([&] { return store->value(sign) == "0"; }));
    EXPECT_EQ(head(slot).reason, NG_PROGRESS_BY_NEIGHBOUR);
    EXPECT_EQ(a.lives()[1], NG_LIFE_RUNNING);
    EXPECT_FALSE(has(*store, "e"));
}

TEST_P(Publish, OtherIncarnationsAreNotSpokenFor)
{
    Rank &a = started(0), &late = started(1, 5 * NG_S, {{0x99, 8}});
    uint64_t slot = late.slot();
    late.kill();
    late.spoken_for_by(a, NG_LIFE_DEAD);
    settle(a);
    EXPECT_EQ(head(slot).process.life, NG_LIFE_RUNNING);
    EXPECT_EQ(head(slot).label, 0x99u);
    EXPECT_FALSE(has(*store, "x/" + hex(late.uid()))) << "its own survivors may tell";
    EXPECT_FALSE(has(*store, "e"));
}

/* Ranks 0 and 1 have one unique id, rank 2 another. */
constexpr uint64_t other_world = 0x99;
static int unite(Rank &rank, const std::vector<uint64_t> &ids)
{
    struct ng_ask question = {
        .kind = NG_ASK_UNITE, .data = ids.data(), .data_bytes = ids.size() * sizeof(ids[0])};
    int error = rank.ask(&question);
    ng_arena_reset(&question.arena);
    return error;
}

TEST_P(Publish, HalvesThatMeanOneGroupHearOfEachOthersIncidentsOnceUnited)
{
    Rank &a = started(0), &b = started(1), &odd = started(2, 5 * NG_S, {{other_world, 8}});
    struct ng_incident before, mine, theirs;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_SUSPECT, world, 1), &before), 0);
    ASSERT_EQ(a.judge(&before), 0);
    ASSERT_EQ(b.heard(0), before.epoch);
    settle(odd);
    EXPECT_EQ(odd.next(0, &theirs), -ENOENT) << "nobody knows yet that they belong together";

    EXPECT_EQ(unite(odd, {world, other_world}), 0);
    ASSERT_EQ(odd.claim(about(NG_INCIDENT_TIMEOUT, world, 0), &mine), 0);
    EXPECT_EQ(a.heard(before.epoch, &theirs), mine.epoch);
    EXPECT_EQ(theirs.claimant_slot, odd.slot());
    EXPECT_EQ(b.heard(before.epoch), mine.epoch);
    /* And the other way round: another claim of the same incident is refused. */
    EXPECT_EQ(b.claim(about(NG_INCIDENT_TIMEOUT, world, 0), &theirs), -EEXIST);
    EXPECT_EQ(theirs.epoch, mine.epoch);
}

TEST_P(Publish, WhoUnitesWaitsForTheDumpsOfAll)
{
    started(0);
    started(1);
    Rank &odd = started(2, 5 * NG_S, {{other_world, 8}});
    ASSERT_EQ(unite(odd, {world, other_world}), 0);
    EXPECT_EQ(awaited_dumps(odd, {}), 2);
}

TEST_P(Publish, RunsThatOverlapAreNotUnited)
{
    Rank &a = started(0), &late = started(2, 5 * NG_S, {{other_world, 8}});
    Rank &gone = started(0, 5 * NG_S, {{other_world, 8}}); /* rank 0 of that run */
    uint64_t slot = gone.slot();
    gone.kill();
    gone.spoken_for_by(late, NG_LIFE_DEAD);
    EXPECT_TRUE(eventually([&] { return head(slot).process.life == NG_LIFE_DEAD; }));
    EXPECT_EQ(unite(a, {world, other_world}), -EPERM);
    EXPECT_EQ(unite(late, {world, other_world}), -EPERM);
    struct ng_incident mine, theirs;
    ASSERT_EQ(late.claim(about(NG_INCIDENT_TIMEOUT, other_world, 0), &mine), 0);
    settle(a);
    EXPECT_EQ(a.next(0, &theirs), -ENOENT);
}

TEST_P(Publish, AGroupThatNobodyHasToldOfIsUnitedWithNothing)
{
    Rank &a = started(0);
    EXPECT_EQ(unite(a, {world, 0x1234}), -ENOENT);
    EXPECT_FALSE(has(*store, "g/" + hex(0x1234)));
}

TEST_P(Publish, ADeathWhileTheStoreIsAwayIsToldAfterwards)
{
    Rank &a = started(0), &b = started(1);
    uint64_t slot = b.slot();
    a.kv.set(FaultyKv::FAIL);
    EXPECT_TRUE(eventually([&] { return !a.up(); }));
    b.kill();
    b.spoken_for_by(a, NG_LIFE_DEAD);
    EXPECT_EQ(head(slot).process.life, NG_LIFE_RUNNING);
    a.kv.set(FaultyKv::PASS);
    EXPECT_TRUE(eventually([&] { return head(slot).process.life == NG_LIFE_DEAD; }));
    EXPECT_TRUE(eventually([&] { return ng_publisher_ended(a.publisher) == 1; }));
}

/* ---- A store that forgets ---- */

TEST_P(Publish, AnEmptiedStoreIsFilledAgain)
{
    for (int i = 0; i < 3; i++)
        started(i);
    struct ng_incident mine;
    for (uint64_t seq = 1; seq <= 3; seq++) {
        ASSERT_EQ(ranks[0]->claim(about(NG_INCIDENT_SUSPECT, world, seq), &mine), 0);
        ASSERT_EQ(ranks[0]->judge(&mine), 0);
    }
    EXPECT_EQ(ranks[1]->heard(2), 3u);
    EXPECT_EQ(ranks[2]->heard(2), 3u);
    empty();
    for (auto &rank : ranks)
        rank->kv.reconnect();
    for (auto &rank : ranks)
        EXPECT_TRUE(eventually([&] { return is_there(*rank); }));
    for (auto &rank : ranks)
        EXPECT_EQ(rank->lives().size(), 3u);
    ASSERT_EQ(ranks[1]->claim(about(NG_INCIDENT_SUSPECT, world, 9), &mine), 0);
    EXPECT_EQ(mine.epoch, 4u) << "numbers go on";
    EXPECT_EQ(ranks[0]->heard(3), 4u);
    /* Who comes anew counts on from there. */
    Rank &late = started(3);
    ASSERT_EQ(late.claim(about(NG_INCIDENT_SUSPECT, world, 10), &mine), 0);
    EXPECT_EQ(mine.epoch, 5u);
}

TEST_P(Publish, ADeadOneDoesNotGetALivingOnesPlace)
{
    Rank &dead = started(3);
    for (int i = 0; i < 3; i++)
        started(i);
    ASSERT_EQ(dead.slot(), 1u);
    dead.kill();
    empty();
    for (auto &rank : ranks)
        rank->kv.reconnect();
    for (size_t i = 1; i < ranks.size(); i++)
        EXPECT_TRUE(eventually([&] { return is_there(*ranks[i]); }));
    EXPECT_NE(head(1).process.uid, dead.uid()) << "somebody has its number";
    for (size_t i = 1; i < ranks.size(); i++)
        dead.spoken_for_by(*ranks[i], NG_LIFE_DEAD);
    /* Who looks while the store is being emptied may see a place without its sign of life, and tell
     * of that. */
    EXPECT_TRUE(eventually([&] { return strtol(store->value("e").c_str(), nullptr, 10) >= 1; }));
    EXPECT_TRUE(eventually([&] { return ranks[1]->lives()[3] == NG_LIFE_DEAD; }));
    for (size_t i = 1; i < ranks.size(); i++) {
        EXPECT_EQ(head(ranks[i]->slot()).process.uid, ranks[i]->uid());
        std::map<int, enum ng_life> lives = ranks[i]->lives();
        EXPECT_EQ(lives.size(), 4u);
        EXPECT_EQ(lives[3], NG_LIFE_DEAD);
        EXPECT_EQ(lives[0], NG_LIFE_RUNNING);
    }
}

TEST_P(Publish, WhoseSlotWasGivenToAnotherJoinsAgain)
{
    Rank &kept = started(0), &lost = started(1);
    ASSERT_EQ(kept.slot(), 1u);
    kept.kv.hold_answer("get", "l/1");
    ASSERT_TRUE(eventually([&] { return kept.kv.is_held(); }));
    empty();
    lost.kv.reconnect();
    EXPECT_TRUE(eventually([&] { return lost.slot() == 1 && is_there(lost); }));
    kept.kv.release(); /* it was told that all is well, and its connection is the old one */
    EXPECT_TRUE(eventually([&] {
        return kept.slot() != lost.slot() && is_there(kept) && is_there(lost) &&
               kept.lives().size() == 2;
    }));
}

TEST_P(Publish, AnotherServerThatHasUsLeavesUsOurPlace)
{
    Rank &a = started(0), &b = started(1);
    uint64_t slot = b.slot();
    int64_t before = b.published_ns();
    a.kv.reconnect();
    b.kv.reconnect();
    EXPECT_TRUE(eventually([&] { return b.published_ns() > before; }));
    settle(b);
    EXPECT_EQ(b.slot(), slot);
    EXPECT_EQ(store->value("n"), "2");
}

TEST_P(Publish, CountersThatFellBackAreRaised)
{
    Rank &a = started(0), &b = started(1);
    struct ng_incident mine;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_SUSPECT, world, 1), &mine), 0);
    EXPECT_EQ(b.heard(0), 1u);
    ASSERT_EQ(store->set("n", "0"), 0); /* a replica that had not heard of it took over */
    ASSERT_EQ(store->remove("i/last"), 0);
    a.kv.reconnect();
    b.kv.reconnect();
    EXPECT_TRUE(eventually([&] { return store->value("n") == "2"; }));
    EXPECT_TRUE(eventually([&] { return store->value("i/last") == "1"; }));
    EXPECT_EQ(a.lives().size(), 2u);
}

/* ---- Incidents ---- */

TEST_P(Publish, OfAllThatClaimOneHasIt)
{
    constexpr int count = 8;
    for (int i = 0; i < count; i++)
        add(i).start_without_waiting();
    for (auto &rank : ranks)
        ASSERT_TRUE(eventually([&] { return rank->up(); }));
    struct ng_incident wanted = about(NG_INCIDENT_TIMEOUT, world, 7);
    std::vector<struct ng_incident> got(count);
    std::vector<int> results(count);
    std::vector<std::thread> threads;
    for (int i = 0; i < count; i++)
        threads.emplace_back(
            [&, i] { results[i] = ranks[i]->claim(wanted, &got[i], patience_ms); });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(std::count(results.begin(), results.end(), 0), 1);
    EXPECT_EQ(std::count(results.begin(), results.end(), -EEXIST), count - 1);
    int winner = (int)(std::find(results.begin(), results.end(), 0) - results.begin());
    for (int i = 0; i < count; i++) {
        EXPECT_EQ(got[i].epoch, got[winner].epoch);
        EXPECT_EQ(got[i].claimant_slot, ranks[winner]->slot());
        EXPECT_EQ(got[i].source, NG_SOURCE_JOB);
        EXPECT_EQ(got[i].state, NG_INCIDENT_CLAIMED);
    }
}

TEST_P(Publish, CallsOfAGroupThatDifferAreToldOnceWhicheverCallItIsTakenFor)
{
    Rank &a = started(0), &b = started(1);
    struct ng_incident first, again, wanted = about(NG_INCIDENT_SUSPECT, world, 20);
    wanted.differs = true;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_SUSPECT, world, 7), &again), 0)
        << "of what is stuck it is not part";
    ASSERT_EQ(a.claim(wanted, &first), 0);
    ASSERT_EQ(a.judge(&first), 0);
    wanted.seq = 19;
    wanted.op = NG_OP_NONE;
    EXPECT_EQ(b.claim(wanted, &again), -EEXIST);
    EXPECT_EQ(again.epoch, first.epoch);
    wanted.group_id = 0x77;
    EXPECT_EQ(b.claim(wanted, &again), 0);
}

TEST_P(Publish, WhereNothingIsCalledHashLogsAreToldSeldom)
{
    Rank &a = add(0, 5 * NG_S, {{0x79, 2}});
    tell_hash_logs(a, 1);
    a.start();
    auto rests = [&] {
        std::string value = store->value("t/" + hex(0x79));
        std::this_thread::sleep_for(std::chrono::seconds(3));
        return store->value("t/" + hex(0x79)) == value;
    };
    /* How long it takes until it is told the next time; where nothing is called, ten seconds. */
    auto until_told = [&] {
        std::string value = store->value("t/" + hex(0x79));
        int64_t begun = ng_clock_mono_ns();
        EXPECT_TRUE(eventually([&] { return store->value("t/" + hex(0x79)) != value; }));
        return ng_clock_mono_ns() - begun;
    };
    EXPECT_IN_TIME(until_told(), 3 * NG_S) << "at first it is, so that others hear of it twice";
    EXPECT_TRUE(eventually(rests));
    a.set_entered(0, 1);
    EXPECT_IN_TIME(until_told(), 3 * NG_S) << "a call";
}

TEST_P(Publish, WhatRanksCalledIsToldAgainAndAgainOfCommunicatorsThatAreAloneWithTheirId)
{
    Rank &a = add(0, 5 * NG_S,
                  {{world, 8},
                   {0x77, 2},
                   {0x77, 2, 0, 0, NG_GROUP_CREATING},
                   {0x78, 2, 0, 0, NG_GROUP_DESTROYED},
                   {0x79, 2}});
    tell_hash_logs(a, 5);
    a.start();
    std::string value;
    ASSERT_TRUE(eventually([&] { return store->get("t/" + hex(0x79), &value) == 0; }));
    EXPECT_TRUE(eventually([&] { return store->value("t/" + hex(0x79)) != value; }));
    EXPECT_TRUE(has(*store, "t/" + hex(world)));
    EXPECT_FALSE(has(*store, "t/" + hex(0x77))) << "which of both?";
    EXPECT_FALSE(has(*store, "t/" + hex(0x78))) << "it has ended";
}

TEST_P(Publish, DifferentIncidentsGetNumbersWithoutGaps)
{
    constexpr int count = 6;
    for (int i = 0; i < count; i++)
        started(i);
    std::vector<std::thread> threads;
    std::vector<uint64_t> epochs(count);
    for (int i = 0; i < count; i++)
        threads.emplace_back([&, i] {
            struct ng_incident mine;
            EXPECT_EQ(ranks[i]->claim(about(NG_INCIDENT_SUSPECT, world, 100 + (uint64_t)i), &mine,
                                      patience_ms),
                      0);
            epochs[i] = mine.epoch;
        });
    for (std::thread &thread : threads)
        thread.join();
    std::sort(epochs.begin(), epochs.end());
    EXPECT_EQ(epochs, (std::vector<uint64_t>{1, 2, 3, 4, 5, 6}));
    for (auto &rank : ranks)
        EXPECT_EQ(rank->heard(5), 6u);
}

TEST_P(Publish, AVerdictIsHeardByAllWithItsDocuments)
{
    Rank &a = started(0), &b = started(1);
    struct ng_incident mine, theirs;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    ASSERT_EQ(b.heard(0, &theirs), 1u);
    EXPECT_EQ(theirs.state, NG_INCIDENT_CLAIMED);
    EXPECT_EQ(b.ask(NG_ASK_VERDICT, theirs), -ENOENT);
    snprintf(mine.line, sizeof(mine.line), "rank 3 is to blame");
    std::string json(100000, 'j');
    ASSERT_EQ(a.judge(&mine, json, "text"), 0);
    EXPECT_TRUE(eventually([&] { return is_judged(b, 1, &theirs); }));
    EXPECT_STREQ(theirs.line, "rank 3 is to blame");
    struct ng_ask question = {.kind = NG_ASK_VERDICT, .incident = theirs};
    ASSERT_EQ(b.ask(&question), 0);
    EXPECT_EQ(std::string(question.documents.json, question.documents.json_bytes), json);
    EXPECT_EQ(std::string(question.documents.text, question.documents.text_bytes), "text");
    ng_arena_reset(&question.arena);
}

TEST_P(Publish, WithoutMessagesTheRoundsFindThem)
{
    Rank &a = started(0), &b = add(1);
    b.kv.deaf = true;
    b.start();
    struct ng_incident mine, theirs;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    EXPECT_EQ(b.heard(0), 1u);
    ASSERT_EQ(a.judge(&mine), 0);
    EXPECT_TRUE(eventually([&] { return is_judged(b, 1, &theirs); }));
}

TEST_P(Publish, AMessageThatWasLostLosesNoIncident)
{
    Rank &a = started(0);
    for (uint64_t epoch = 1; epoch <= 9; epoch += 2) {
        /* Of two, one is announced. */
        put(about(RECORD_ABORT, 0, 0), epoch);
        forge(about(RECORD_ABORT, 0, 0), epoch + 1);
        EXPECT_EQ(a.heard(epoch), epoch + 1);
        EXPECT_EQ(a.heard(epoch - 1), epoch);
    }
}

TEST_P(Publish, NumbersThatWereNeverUsedHideNothing)
{
    Rank &a = started(0);
    put(about(RECORD_ABORT, 0, 0), 5);
    ASSERT_EQ(store->set("i/last", "5"), 0);
    EXPECT_EQ(a.heard(0), 5u);
}

TEST_P(Publish, WhatWasThereBeforeWeCameIsNothingToUs)
{
    Rank &a = started(0);
    struct ng_incident mine;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    ASSERT_EQ(a.judge(&mine), 0);
    Rank &late = started(1);
    settle(late);
    EXPECT_EQ(late.next(0, &mine), -ENOENT);
    ASSERT_EQ(late.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    EXPECT_EQ(mine.epoch, 2u);
}

/* An incident that is claimed while a process joins reaches it, however long it takes to get a
 * slot: others know its run before it has one. */
TEST_P(Publish, WhatIsClaimedWhileWeComeIsHeard)
{
    Rank &a = started(0), &b = add(1, 5 * NG_S, {{world, 8, 1}, {other_world, 8, 1}});
    struct ng_incident mine;
    b.kv.deaf = true;
    b.kv.hold_answer("put",
                     "g/" + hex(other_world)); /* its second group, by which others may find it */
    b.start_without_waiting();
    ASSERT_TRUE(eventually([&] { return b.kv.is_held(); }));
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    b.kv.release();
    EXPECT_EQ(b.heard(0), mine.epoch);
}

/* Where a store comes back empty, some are back before others. */
TEST_P(Publish, WhatHappensBeforeWeAreBackOnAnEmptiedStoreIsHeard)
{
    Rank &a = started(0), &b = started(1), &c = started(2);
    struct ng_incident mine;
    b.kv.deaf = true;
    b.kv.hold_answer("get_many", "e"); /* the last of a round */
    ASSERT_TRUE(eventually([&] { return b.kv.is_held(); }));
    empty();
    for (Rank *rank : {&a, &c}) {
        rank->kv.reconnect();
        ASSERT_TRUE(eventually([&] { return is_there(*rank); }));
    }
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    leave(c);
    uint32_t ended = ng_publisher_ended(b.publisher);
    b.kv.reconnect();
    b.kv.release();
    EXPECT_EQ(b.heard(0), mine.epoch);
    EXPECT_TRUE(eventually([&] { return ng_publisher_ended(b.publisher) > ended; }));
}

TEST_P(Publish, ADeadClaimantsPlaceIsTaken)
{
    Rank &a = started(0, 3 * NG_S), &b = started(1);
    struct ng_incident mine, theirs;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    ASSERT_EQ(b.heard(0, &theirs), 1u);
    EXPECT_EQ(b.ask(NG_ASK_ALIVE, theirs), 0);
    a.kill();
    EXPECT_TRUE(eventually([&] { return b.ask(NG_ASK_ALIVE, theirs) == -ESRCH; }));
    ASSERT_EQ(b.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0) << "without being told";
    EXPECT_EQ(mine.epoch, 2u);
    EXPECT_EQ(b.judge(&mine), 0);
}

TEST_P(Publish, ThatCallsDifferIsToldOnceThoughWhoToldItHasEnded)
{
    Rank &a = started(0, NG_S), &b = started(1, NG_S);
    struct ng_incident first, again, wanted = about(NG_INCIDENT_SUSPECT, world, 20);
    wanted.differs = true;
    ASSERT_EQ(a.claim(wanted, &first), 0);
    ASSERT_EQ(a.judge(&first), 0);
    a.kill();
    EXPECT_TRUE(eventually([&] { return b.ask(NG_ASK_ALIVE, first) == -ESRCH; }));
    EXPECT_EQ(b.claim(wanted, &again), -EEXIST);
    EXPECT_EQ(again.epoch, first.epoch);
}

TEST_P(Publish, ALateClaimantCannotJudge)
{
    Rank &a = started(0), &b = started(1), &c = started(2);
    struct ng_incident first, second, seen;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &first), 0);
    ASSERT_EQ(b.heard(0), 1u);
    ASSERT_EQ(c.heard(0, &seen), 1u);
    struct ng_incident wanted = about(NG_INCIDENT_TIMEOUT, world, 7);
    ASSERT_EQ(b.claim(wanted, &second), -EEXIST);
    wanted.supersedes = 1;
    ASSERT_EQ(b.claim(wanted, &second), 0);
    EXPECT_EQ(second.epoch, 2u);
    EXPECT_TRUE(eventually([&] { return incident(1).claimant_pid == 0; }));
    EXPECT_EQ(a.judge(&first), -EEXIST);
    EXPECT_EQ(incident(1).state, NG_INCIDENT_CLAIMED);
    /* Whoever still waits for it sees that nobody does it. */
    EXPECT_TRUE(eventually([&] {
        return ng_publisher_get_incident(c.publisher, 1, &seen) == 0 &&
               c.ask(NG_ASK_ALIVE, seen) == -ESRCH;
    }));
    EXPECT_EQ(b.judge(&second), 0);
    EXPECT_EQ(incident(2).state, NG_INCIDENT_JUDGED);
}

TEST_P(Publish, OtherIncarnationsIncidentsAreNotHeard)
{
    Rank &a = started(0), &late = started(1, 5 * NG_S, {{0x99, 8}});
    struct ng_incident mine, theirs;
    ASSERT_EQ(late.claim(about(NG_INCIDENT_TIMEOUT, 0x99, 7), &theirs), 0);
    ASSERT_EQ(late.judge(&theirs), 0);
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    EXPECT_EQ(mine.epoch, 2u);
    EXPECT_EQ(a.heard(0), 2u);
    settle(late);
    EXPECT_EQ(late.heard(0), 1u);
    EXPECT_EQ(late.next(1, &theirs), -ENOENT);
    /* A person's order is for all. */
    put(about(RECORD_ABORT, 0, 0), 3);
    EXPECT_EQ(a.heard(2), 3u);
    EXPECT_EQ(late.heard(1), 3u);
}

TEST_P(Publish, WhatARankClaimsWithoutALabelConcernsNobody)
{
    Rank &a = started(0);
    struct ng_incident claim = about(NG_INCIDENT_TIMEOUT, world, 7), heard;
    claim.policy = NG_ON_TIMEOUT_KILL + 1;
    forge(claim, 1);
    claim.level = NG_INCIDENT_SUSPECT;
    forge(claim, 2);
    forge(about(RECORD_ABORT, 0, 0), 3);
    EXPECT_EQ(a.heard(0, &heard), 3u);
    EXPECT_EQ(heard.level, RECORD_ABORT);
}

TEST_P(Publish, ACommandCoversNoIncidentOfItsGroup)
{
    Rank &a = started(0);
    struct ng_incident mine, wanted = about(NG_INCIDENT_SUSPECT, world, 0);
    struct ng_incident order = about(RECORD_ABORT, world, 0);
    wanted.op = order.op = NG_OP_NONE;
    forge(order, 1);
    ASSERT_EQ(a.heard(0), 1u);
    EXPECT_EQ(a.claim(wanted, &mine), 0);
    EXPECT_EQ(mine.epoch, 2u);
}

/* A number near to the end of its type once kept the incident thread from everything else. */
TEST_P(Publish, AnEpochThatNobodyCanHaveCountedToIsPassedOver)
{
    Rank &a = started(0), &b = started(1);
    struct ng_incident mine, order = about(RECORD_ABORT, 0, 0);
    for (uint64_t epoch : {(uint64_t)NG_EPOCH_AHEAD_MAX + 1, (uint64_t)NG_EPOCH_MAX + 1,
                           (uint64_t)INT64_MAX, UINT64_MAX - 1, UINT64_MAX}) {
        forge(order, epoch);
        ASSERT_EQ(store->set("i/last", std::to_string(epoch)), 0);
        settle(a);
        EXPECT_EQ(a.next(0, &mine), -ENOENT) << epoch;
    }
    /* Whoever comes now is not misled, either. */
    Rank &late = started(2);
    EXPECT_EQ(late.next(0, &mine), -ENOENT);
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    EXPECT_EQ(mine.epoch, 1u);
    EXPECT_EQ(b.heard(0), 1u);
    EXPECT_EQ(late.heard(0), 1u);
    EXPECT_EQ(store->value("i/last"), "1");
}

TEST_P(Publish, AtTheLastEpochNothingIsClaimedAndNothingWaits)
{
    ASSERT_EQ(store->set("i/last", std::to_string(NG_EPOCH_MAX)), 0);
    Rank &a = started(0);
    struct ng_incident mine;
    EXPECT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), -EOVERFLOW);
    for (uint64_t epoch : {UINT64_MAX, UINT64_MAX - 1, (uint64_t)NG_EPOCH_MAX, UINT64_C(0)})
        EXPECT_EQ(a.next(epoch, &mine), -ENOENT);
    EXPECT_TRUE(a.up());
}

/* As many records as anybody likes to write: a round reads some of them, and signs of life go on.
 */
TEST_P(Publish, WhileMoreIncidentsAreReadThanARoundTakesSignsOfLifeGoOn)
{
    constexpr uint64_t many = 1000;
    for (uint64_t epoch = 1; epoch <= many; epoch++)
        forge(about(RECORD_ABORT, 0, 0), epoch);
    Rank &a = add(0);
    a.kv.deaf = true;
    a.kv.slow_ms = 2;
    a.start();
    struct ng_incident last;
    ASSERT_GT(a.heard(0), 0u);
    int64_t before = a.published_ns();
    ASSERT_TRUE(eventually([&] { return a.published_ns() != before; }));
    EXPECT_EQ(ng_publisher_get_incident(a.publisher, many, &last), -ENOENT)
        << "all of them came first";
}

TEST_P(Publish, WhileMoreMessagesComeThanCanBeFollowedSignsOfLifeGoOn)
{
    constexpr uint64_t step = 64, many = 300; /* for each message as many are read as are kept */
    Rank &a = started(0);
    struct ng_incident last;
    a.kv.slow_ms = 2;
    for (uint64_t i = 1; i < many; i++)
        ASSERT_EQ(store->publish("m", "incident " + std::to_string(i * step)), 0);
    forge(about(RECORD_ABORT, 0, 0), many * step);
    int calls = a.kv.calls;
    ASSERT_TRUE(eventually([&] { return a.kv.calls > calls + 100; }));
    int64_t before = a.published_ns();
    EXPECT_TRUE(eventually([&] { return a.published_ns() != before; }));
    EXPECT_EQ(ng_publisher_get_incident(a.publisher, many * step, &last), -ENOENT)
        << "all were followed first";
    a.kv.slow_ms = 0;
    EXPECT_GT(a.heard(0), 0u);
}

TEST_P(Publish, GroupsInCommonMakeOneIncarnation)
{
    Rank &a = started(0, 5 * NG_S, {{0x20}}), &b = started(1, 5 * NG_S, {{0x10}});
    struct ng_incident mine;
    EXPECT_EQ(ng_publisher_get_label(a.publisher), 0x20u);
    a.add_group({world, 8});
    b.add_group({world, 8});
    EXPECT_TRUE(eventually([&] { return ng_publisher_get_label(a.publisher) == 0x10; }));
    EXPECT_TRUE(eventually([&] { return head(a.slot()).label == 0x10; })) << "and others are told";
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    EXPECT_EQ(b.heard(0), 1u);
}

TEST_P(Publish, WhoseCommunicatorCouldNotBeMadeHearsTheOthers)
{
    Rank &a = started(0), &failed = started(1, 5 * NG_S, {{world, 8, 1, 0, NG_GROUP_FAILED}});
    struct ng_incident mine;
    EXPECT_EQ(ng_publisher_get_label(failed.publisher), world);
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 0), &mine), 0);
    EXPECT_EQ(failed.heard(0), 1u);
}

TEST_P(Publish, AClaimWhoseAnswerWasLostIsKnown)
{
    Rank &a = started(0), &b = started(1);
    struct ng_incident mine;
    a.kv.lose_answer("put", "i/");
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    EXPECT_EQ(mine.epoch, 1u);
    EXPECT_EQ(b.heard(0), 1u);
    a.kv.lose_answer("cas", "i/");
    EXPECT_EQ(a.judge(&mine), 0);
    EXPECT_EQ(incident(1).state, NG_INCIDENT_JUDGED);
}

TEST_P(Publish, AClaimThatCameTooLateBindsNobody)
{
    Rank &a = started(0), &b = started(1);
    struct ng_incident mine, theirs;
    a.kv.hold_answer("put", "i/");
    /* Its thread may not come to it in time; then it is not claimed at all. */
    for (int64_t ms = 500; !a.kv.is_held() && ms < patience_ms; ms *= 2)
        EXPECT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine, ms), -ETIMEDOUT);
    EXPECT_TRUE(eventually([&] { return a.kv.is_held(); }));
    EXPECT_EQ(b.heard(0, &theirs), 1u);
    a.kv.release();
    EXPECT_TRUE(eventually([&] {
        return ng_publisher_get_incident(b.publisher, 1, &theirs) == 0 &&
               b.ask(NG_ASK_ALIVE, theirs) == -ESRCH;
    }));
    settle(a);
    EXPECT_EQ(a.next(0, &theirs), -ENOENT) << "it does not wait for itself";
    EXPECT_EQ(b.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
}

TEST_P(Publish, DumpsAreWaitedForButNotOfTheDead)
{
    Rank &a = started(0), &b = started(1), &c = started(2, 3 * NG_S);
    struct ng_incident mine;
    EXPECT_EQ(a.lives().size(), 3u);
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine), 0);
    EXPECT_EQ(awaited_dumps(a, mine), 2);
    ng_publisher_report_dump(b.publisher, &mine);
    EXPECT_TRUE(eventually([&] { return awaited_dumps(a, mine) == 1; }));
    c.kill();
    EXPECT_TRUE(eventually([&] { return awaited_dumps(a, mine) == 0; }));
}

/* Refused, as long as what refuses it holds: where the machine took longer, this test is late. */
constexpr int64_t idle_ns = 500 * NG_MS, turn_ns = 3 * NG_S;
#define ASSERT_REFUSED(begin, since_ns, holds_ns)                                                  \
    do {                                                                                           \
        int refused = begin;                                                                       \
        if (refused == 0) {                                                                        \
            ASSERT_LT(ng_clock_mono_ns() - (since_ns), holds_ns) << "late: ";                      \
        }                                                                                          \
        ASSERT_EQ(refused, -EBUSY);                                                                \
    } while (0)

TEST_P(Publish, OneExaminesAtATime)
{
    Rank &a = started(0), &b = started(1), &late = started(2, 5 * NG_S, {{0x99, 8}});
    struct ng_incident level = about(NG_INCIDENT_SUSPECT, 0, 0);
    struct ng_incident deadline = about(NG_INCIDENT_TIMEOUT, 0, 0);
    int64_t since_ns = ng_clock_mono_ns();
    EXPECT_EQ(a.ask(NG_ASK_BEGIN, level), 0);
    ASSERT_REFUSED(b.ask(NG_ASK_BEGIN, level), since_ns, turn_ns);
    EXPECT_EQ(b.ask(NG_ASK_BEGIN, deadline), 0) << "each level has its own";
    EXPECT_EQ(late.ask(NG_ASK_BEGIN, level), 0) << "and each incarnation";
    struct ng_ask question = {.kind = NG_ASK_FINISH, .incident = level, .in_vain = false};
    EXPECT_EQ(a.ask(&question), 0);
    EXPECT_EQ(b.ask(NG_ASK_BEGIN, level), 0);
    question.in_vain = true; /* for a moment nobody needs to look again */
    since_ns = ng_clock_mono_ns();
    EXPECT_EQ(b.ask(&question), 0);
    ASSERT_REFUSED(a.ask(NG_ASK_BEGIN, level), since_ns, idle_ns);
    EXPECT_TRUE(eventually([&] { return a.ask(NG_ASK_BEGIN, level) == 0; }));
    /* Who takes too long is taken for lost. */
    EXPECT_TRUE(eventually([&] { return b.ask(NG_ASK_BEGIN, level) == 0; }));
}

TEST_P(Publish, WhoFoundNothingHoldsBackThoseWithNoBetterCause)
{
    Rank &a = started(0), &b = started(1);
    auto begin = [](Rank &rank, enum ng_claim_cause cause) {
        struct ng_ask question = {
            .kind = NG_ASK_BEGIN, .incident = about(NG_INCIDENT_SUSPECT, 0, 0), .cause = cause};
        return rank.ask(&question);
    };
    auto find_nothing = [](Rank &rank) {
        struct ng_ask question = {
            .kind = NG_ASK_FINISH, .incident = about(NG_INCIDENT_SUSPECT, 0, 0), .in_vain = true};
        return rank.ask(&question);
    };
    int64_t since_ns = 0;
    auto now = [&] { since_ns = ng_clock_mono_ns(); };
    now();
    ASSERT_EQ(begin(a, NG_CAUSE_END), 0);
    /* One at a time, whatever the cause. */
    ASSERT_REFUSED(begin(b, NG_CAUSE_OWN), since_ns, turn_ns);
    now();
    EXPECT_EQ(find_nothing(a), 0);
    ASSERT_REFUSED(begin(b, NG_CAUSE_END), since_ns, idle_ns);
    now();
    ASSERT_EQ(begin(b, NG_CAUSE_LATE), 0);
    /* The turn is the other's now. */
    ASSERT_REFUSED(begin(a, NG_CAUSE_OWN), since_ns, turn_ns);
    now();
    EXPECT_EQ(find_nothing(b), 0);
    ASSERT_REFUSED(begin(a, NG_CAUSE_END), since_ns, idle_ns);
    ASSERT_REFUSED(begin(a, NG_CAUSE_LATE), since_ns, idle_ns);
    ASSERT_EQ(begin(a, NG_CAUSE_OWN), 0);
    now();
    EXPECT_EQ(find_nothing(a), 0);
    ASSERT_REFUSED(begin(b, NG_CAUSE_LATE), since_ns, idle_ns);
    ASSERT_EQ(begin(b, NG_CAUSE_OWN), 0) << "what it knows, nobody has looked for";
    EXPECT_EQ(find_nothing(b), 0);
    EXPECT_TRUE(eventually([&] { return begin(a, NG_CAUSE_END) == 0; })) << "it holds for a moment";
}

/* ---- A store that fails ---- */

TEST_P(Publish, WhateverIsAskedIsAnsweredInTimeThoughTheStoreHangs)
{
    for (enum ng_ask_kind kind : {NG_ASK_BEGIN, NG_ASK_FINISH, NG_ASK_VIEW, NG_ASK_CLAIM,
                                  NG_ASK_JUDGE, NG_ASK_VERDICT, NG_ASK_ALIVE, NG_ASK_DUMPS}) {
        Rank &a = started(2 * kind);
        started(2 * kind + 1);
        EXPECT_GE(a.lives().size(), 2u);
        struct ng_incident incident = about(NG_INCIDENT_TIMEOUT, world, 7);
        incident.epoch = 1;
        incident.claimant_slot = a.slot();
        incident.state = NG_INCIDENT_CLAIMED;
        a.kv.set(FaultyKv::HANG);
        int64_t begun = ng_clock_mono_ns();
        int result = a.ask(kind, incident, 200);
        EXPECT_IN_TIME(ng_clock_mono_ns() - begun, 5 * NG_S) << kind;
        EXPECT_TRUE(result == -ETIMEDOUT || result == -EIO) << kind << ": " << result;
        EXPECT_TRUE(eventually([&] { return !ng_publisher_is_up(a.publisher); }));
        EXPECT_EQ(a.ask(kind, incident, 200), -EIO) << "and then at once";
        ranks.clear();
    }
}

TEST_P(Publish, ASlowStoreIsWaitedForNoLongerThanAsked)
{
    Rank &a = started(0);
    a.kv.slow_ms = 700;
    for (int i = 0; i < 5; i++) {
        int64_t begun = ng_clock_mono_ns();
        struct ng_incident mine;
        int result = a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine, 300);
        EXPECT_IN_TIME(ng_clock_mono_ns() - begun, 5 * NG_S);
        EXPECT_TRUE(result == -ETIMEDOUT || result == -EIO) << result;
    }
    a.kv.slow_ms = 0;
    struct ng_incident mine;
    EXPECT_TRUE(
        eventually([&] { return a.claim(about(NG_INCIDENT_TIMEOUT, world, 7), &mine) == 0; }));
    EXPECT_EQ(a.judge(&mine), 0);
}

TEST_P(Publish, OneLineWhenItIsLostAndOneWhenItIsBack)
{
    LogFile log;
    Rank &a = started(0);
    a.kv.set(FaultyKv::FAIL);
    EXPECT_TRUE(eventually([&] { return log.count("cannot be used") == 1; }));
    for (int i = 0; i < 20; i++)
        EXPECT_EQ(a.ask(NG_ASK_VIEW), -EIO);
    int calls = a.kv.calls;
    EXPECT_TRUE(eventually([&] { return a.kv.calls > calls + 3; }));
    EXPECT_EQ(log.count("is back after"), 0);
    a.kv.set(FaultyKv::PASS);
    EXPECT_TRUE(eventually([&] { return log.count("is back after") == 1; }));
    EXPECT_EQ(log.count("cannot be used"), 1) << log.all();
}

TEST_P(Publish, AThreadThatStoodStillDoesNotTakeTheStoreForLost)
{
    LogFile log;
    Rank &a = started(0);
    int calls = a.kv.calls;
    a.kv.set(FaultyKv::STAND);
    EXPECT_TRUE(eventually([&] { return a.kv.calls > calls + 2; }));
    EXPECT_TRUE(a.up());
    EXPECT_EQ(log.count("cannot be used"), 0) << log.all();
    a.kv.set(FaultyKv::HANG);
    EXPECT_TRUE(eventually([&] { return log.count("cannot be used") == 1; }));
    a.kv.set(FaultyKv::PASS);
    EXPECT_TRUE(eventually([&] { return log.count("is back after") == 1; }));
    EXPECT_EQ(a.ask(NG_ASK_VIEW), 0);
}

TEST_P(Publish, WhereOnlyReadingWorksItIsNotBack)
{
    LogFile log;
    Rank &a = started(0), &b = started(1);
    a.kv.refuse_writes(-EROFS);
    a.set_entered(0, 5);
    EXPECT_TRUE(eventually([&] { return log.count("cannot be used") == 1; }));
    int calls = a.kv.calls;
    EXPECT_TRUE(eventually([&] { return a.kv.calls > calls + 8; }));
    a.set_entered(0, 6);
    calls = a.kv.calls;
    EXPECT_TRUE(eventually([&] { return a.kv.calls > calls + 4; }));
    EXPECT_EQ(log.count("is back after"), 0) << log.all();
    a.kv.refuse_writes(0);
    EXPECT_TRUE(eventually([&] { return log.count("is back after") == 1; }));
    EXPECT_EQ(log.count("cannot be used"), 1) << log.all();
    /* What happened meanwhile is told, though nothing changes any more and nobody asks for it. */
    EXPECT_TRUE(eventually([&] {
        OwnView view;
        uint32_t process;
        std::string blob = store->value("p/" + std::to_string(a.slot()));
        bool newest = ng_progress_decode(&view, blob.data(), blob.size(), &process) == 0 &&
                      view.member_count == 1 && view.members[0].entered == 6;
        return newest;
    }));
    EXPECT_EQ(b.lives().size(), 2u);
}

TEST_P(Publish, WhenTheStoreWasAwayNobodyIsLostForIt)
{
    Rank &a = started(0), &b = started(1), &c = started(2);
    for (auto &rank : ranks)
        rank->kv.set(FaultyKv::FAIL);
    for (auto &rank : ranks)
        EXPECT_TRUE(eventually([&] { return !rank->up(); }));
    for (auto &rank : ranks) /* their time is over */
        store->remove("l/" + std::to_string(rank->slot()));
    a.kv.set(FaultyKv::PASS);
    EXPECT_TRUE(eventually([&] { return a.up(); }));
    std::map<int, enum ng_life> lives = a.lives();
    EXPECT_EQ(lives[1], NG_LIFE_RUNNING);
    EXPECT_EQ(lives[2], NG_LIFE_RUNNING);
    OwnView view;
    ASSERT_EQ(a.view(&view), 0);
    for (uint32_t i = 0; i < view.process_count; i++)
        EXPECT_EQ(view.processes[i].quiet_ns > 0, view.processes[i].rank != 0)
            << "no verdict may be certain of what they told before";
    settle(a);
    EXPECT_FALSE(has(*store, "e"));
    b.kv.set(FaultyKv::PASS);
    /* Who does not come back in time, is. */
    EXPECT_TRUE(eventually([&] { return has(*store, "y/" + std::to_string(c.slot())); }));
    EXPECT_FALSE(has(*store, "y/" + std::to_string(b.slot())));
    EXPECT_TRUE(eventually([&] { return a.lives()[2] == NG_LIFE_LOST; }));
    EXPECT_EQ(b.lives()[0], NG_LIFE_RUNNING);
}

/* ---- The end ---- */

TEST_P(Publish, AForkedChildLetsGo)
{
    Rank &a = started(0), &b = started(1);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        ng_publisher_abandon(a.publisher);
        ng_publisher_abandon(b.publisher);
        _exit(0);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    a.set_entered(0, 3);
    EXPECT_TRUE(eventually([&] { return entered(b, 0) == 3; })) << "the parent goes on";
    EXPECT_TRUE(b.up());
}

static Rank *last_of_all;

/* The test below runs this very program: it is nothing but a rank, whose first thread ends. */
static void be_a_rank(const char *url)
{
    alarm(60);
    Rank::Options options;
    options.groups = {{world, 8}};
    last_of_all = new Rank(url, 1, options);
    last_of_all->start();
    atexit([] {
        __atomic_store_n(&last_of_all->box.header->life, (uint32_t)NG_BOX_EXITED, __ATOMIC_SEQ_CST);
        _exit(last_of_all->ask(NG_ASK_LEAVE) == 0 ? 7 : 3);
    });
    pthread_exit(nullptr);
}

int main(int argc, char **argv)
{
    const char *url = getenv("NG_TEST_LAST_THREAD");
    if (url)
        be_a_rank(url);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}

#if NG_HAVE_HIREDIS
struct PublishRedis : Publish {
};
INSTANTIATE_TEST_SUITE_P(On, PublishRedis, testing::Values("redis"),
                         [](const auto &info) { return std::string(info.param); });

#if !defined(NG_OTHER_THREADS)
TEST_P(PublishRedis, TheProcessEndsWithItsOtherThreads)
{
    std::string environment = "NG_TEST_LAST_THREAD=" + url;
    char program[] = "/proc/self/exe";
    char *arguments[] = {program, nullptr}, *variables[] = {environment.data(), nullptr};
    pid_t child;
    ASSERT_EQ(posix_spawn(&child, program, nullptr, nullptr, arguments, variables), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
    EXPECT_EQ(WEXITSTATUS(status), 7);
    EXPECT_EQ(head(1).process.life, NG_LIFE_EXITED) << "and said goodbye";
}
#endif

TEST_P(PublishRedis, AServerThatDiedIsBackEmptyAndFilledAgain)
{
    LogFile log;
    Rank &a = started(0), &b = started(1);
    struct ng_incident mine;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_SUSPECT, world, 1), &mine), 0);
    ASSERT_EQ(b.heard(0), 1u);
    server->kill();
    for (auto &rank : ranks)
        EXPECT_TRUE(eventually([&] { return !rank->up(); }));
    EXPECT_EQ(a.ask(NG_ASK_VIEW), -EIO);
    server->restart();
    for (auto &rank : ranks)
        EXPECT_TRUE(eventually([&] { return rank->up(); }));
    EXPECT_TRUE(eventually([&] { return a.lives().size() == 2; }));
    EXPECT_EQ(a.lives()[1], NG_LIFE_RUNNING);
    ASSERT_EQ(b.claim(about(NG_INCIDENT_SUSPECT, world, 2), &mine), 0);
    EXPECT_EQ(mine.epoch, 2u);
    EXPECT_EQ(a.heard(1), 2u);
    EXPECT_EQ(log.count("cannot be used"), 2) << log.all();
    EXPECT_EQ(log.count("is back after"), 2) << log.all();
}

TEST_P(PublishRedis, NothingStaysForEver)
{
    Rank &a = started(0), &b = started(1), &c = started(2);
    struct ng_incident mine;
    b.spoken_for_by(a, NG_LIFE_RUNNING);
    EXPECT_EQ(a.lives().size(), 3u);
    EXPECT_EQ(a.ask(NG_ASK_BEGIN, about(NG_INCIDENT_SUSPECT, 0, 0)), 0);
    ASSERT_EQ(a.claim(about(NG_INCIDENT_TIMEOUT, world, 1), &mine), 0);
    ASSERT_EQ(b.heard(0), 1u);
    struct ng_incident again = about(NG_INCIDENT_TIMEOUT, world, 1);
    again.supersedes = 1;
    ASSERT_EQ(b.claim(again, &mine), 0);
    ng_publisher_report_dump(a.publisher, &mine);
    ASSERT_EQ(b.judge(&mine, "json", "text"), 0);
    c.kill();
    c.spoken_for_by(a, NG_LIFE_DEAD);
    EXPECT_TRUE(eventually([&] { return store->value("e") == "1"; }));
    a.kv.reconnect();
    settle(a);
    std::istringstream keys(server->ask({"KEYS", "*"}));
    size_t count = 0;
    for (std::string key; keys >> key; count++)
        EXPECT_NE(server->ask({"TTL", key}), "-1") << key;
    EXPECT_GT(count, 12u);
}

TEST_P(PublishRedis, CountersLiveAsLongAsTheJob)
{
    Rank &a = started(0);
    struct ng_incident mine;
    ASSERT_EQ(a.claim(about(NG_INCIDENT_SUSPECT, world, 1), &mine), 0);
    std::string prefix = "{ncclguard:job:" NG_BOARD_RUN "}:";
    for (const char *key : {"n", "i/last"}) {
        ASSERT_EQ(store->expire(key, 30000), 0);
        EXPECT_LE(std::stol(server->ask({"TTL", prefix + key})), 30);
    }
    a.kv.reconnect();
    for (const char *key : {"n", "i/last"})
        EXPECT_TRUE(eventually([&] {
            return std::stol(server->ask({"TTL", prefix + key})) > 3000;
        }));
}

TEST_P(PublishRedis, ThePasswordIsInNoLine)
{
    LogFile log;
    ASSERT_EQ(server->ask({"ACL", "SETUSER", "guard", "on", ">hush-hush", "~*", "&*", "+@all"}),
              "OK");
    std::string real = url;
    url = server->url("guard:wrong-hush@");
    Rank &a = add(0);
    a.start_without_waiting();
    EXPECT_TRUE(eventually([&] { return log.count("cannot be used") == 1; }));
    url = server->url("guard:hush-hush@");
    started(1);
    EXPECT_EQ(log.count("hush"), 0) << log.all();
    EXPECT_EQ(log.count("on the board"), 1) << log.all();
}
#endif
