/*
 * Incidents on the local board: who gets the claim, whom it covers, who sees it, and what damaged
 * files do.
 */
#include "tests/unit/store/board/peer.h"

#include <pthread.h>
#include <sys/mman.h>

namespace
{

constexpr int claimants = 4, rounds = 200;

/* What the claimants of one round got, in memory that all share. */
struct Race {
    pthread_barrier_t start, end;
    int error[claimants];
    struct ng_incident got[claimants];
};

Race *make_race()
{
    void *memory =
        mmap(nullptr, sizeof(Race), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Race *race = static_cast<Race *>(memory);
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&race->start, &shared, claimants + 1);
    pthread_barrier_init(&race->end, &shared, claimants + 1);
    return race;
}

/* A process that claims in every round, at the same moment as the others. */
pid_t start_claimant(const std::string &folder, Race *race, int number, bool same)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    alarm(60);
    OwnBox own(folder, number);
    Board board(folder, &own.box);
    if (own.error)
        _exit(101);
    if (number % 2)
        board.wait(0); /* some know each other already, some have not looked yet */
    for (int round = 1; round <= rounds; round++) {
        pthread_barrier_wait(&race->start);
        struct ng_incident wanted = stall(same ? NG_INCIDENT_TIMEOUT : NG_INCIDENT_SUSPECT,
                                          same ? 7 : 100 + (uint64_t)number, (uint64_t)round);
        race->error[number] = board.claim(wanted, &race->got[number]);
        pthread_barrier_wait(&race->end);
    }
    _exit(0);
}

void remove_incidents(const Folder &folder)
{
    for (const std::string &name : folder.names())
        if (name.find(NG_INCIDENT_PREFIX) != std::string::npos)
            unlink((folder / name).c_str());
}

/* Run the race; `judge` looks at each round's result. */
void run_race(bool same, const std::function<void(const Folder &, const Race *)> &judge)
{
    Folder folder;
    Race *race = make_race();
    std::vector<pid_t> pids;

    alarm(100); /* a barrier that a dead claimant never reaches */
    for (int i = 0; i < claimants; i++)
        pids.push_back(start_claimant(folder.path(), race, i, same));
    for (int round = 1; round <= rounds; round++) {
        pthread_barrier_wait(&race->start);
        pthread_barrier_wait(&race->end);
        judge(folder, race);
        remove_incidents(folder);
    }
    for (pid_t pid : pids) {
        int status = -1;
        EXPECT_EQ(waitpid(pid, &status, 0), pid);
        EXPECT_EQ(status, 0);
    }
    alarm(0);
    munmap(race, sizeof(*race));
}

struct LocalIncidents : BoardTest {
};

} // namespace

TEST_F(LocalIncidents, ExactlyOneOfManyGetsTheClaimAndTheOthersLearnWho)
{
    run_race(true, [](const Folder &folder, const Race *race) {
        int winner = -1, winners = 0;
        for (int i = 0; i < claimants; i++)
            if (race->error[i] == 0) {
                winner = i;
                winners++;
            }
        ASSERT_EQ(winners, 1);
        for (int i = 0; i < claimants; i++) {
            EXPECT_EQ(race->error[i], i == winner ? 0 : -EEXIST);
            EXPECT_EQ(race->got[i].epoch, 1u);
            EXPECT_EQ(race->got[i].claimant_pid, race->got[winner].claimant_pid);
            EXPECT_EQ(race->got[i].claimant_ticks, race->got[winner].claimant_ticks);
            EXPECT_EQ(race->got[i].state, NG_INCIDENT_CLAIMED);
        }
        for (const std::string &name : folder.names())
            EXPECT_NE(name[0], '.') << "left behind: " << name;
    });
}

TEST_F(LocalIncidents, DifferentSuspicionsAtTheSameMomentGetDifferentEpochs)
{
    run_race(false, [](const Folder &, const Race *race) {
        std::set<uint64_t> epochs;
        for (int i = 0; i < claimants; i++) {
            EXPECT_EQ(race->error[i], 0);
            EXPECT_EQ(race->got[i].group_id, 100u + (uint64_t)i);
            epochs.insert(race->got[i].epoch);
        }
        EXPECT_EQ(epochs, (std::set<uint64_t>{1, 2, 3, 4}));
    });
}

TEST_F(LocalIncidents, ALivingClaimantsTimeoutCoversEverythingUntilItIsJudged)
{
    struct ng_incident got = {};
    Peer claimant(folder.path(), claims(folder.path(), stall(NG_INCIDENT_TIMEOUT, 7, 20), false));

    board.wait(0);
    EXPECT_EQ(board.claim(stall(NG_INCIDENT_TIMEOUT, 7, 20), &got), -EEXIST);
    EXPECT_EQ(got.claimant_pid, claimant.pid());
    EXPECT_EQ(board.claim(stall(NG_INCIDENT_TIMEOUT, 8, 3), &got), -EEXIST);
    EXPECT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 9, 1), &got), -EEXIST);
    EXPECT_EQ(got.epoch, 1u);
    EXPECT_EQ(got.seq, 20u);
}

TEST_F(LocalIncidents, AJudgedOneCoversOnlyWhatItWasAboutAndWhatBeganBeforeIt)
{
    struct ng_incident got = {};
    int64_t before = ng_clock_mono_ns();
    Peer claimant(folder.path(), claims(folder.path(), stall(NG_INCIDENT_TIMEOUT, 7, 0), true));
    int64_t after = ng_clock_mono_ns();

    EXPECT_EQ(board.claim(stall(NG_INCIDENT_TIMEOUT, 7, 0, before), &got), -EEXIST);
    EXPECT_STREQ(got.line, "the verdict");
    EXPECT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 7, 0, before), &got), -EEXIST)
        << "a deadline is above a suspicion";
    /* Point-to-point calls and splits have no number: the second stall of the same looks alike. */
    EXPECT_EQ(board.claim(stall(NG_INCIDENT_TIMEOUT, 7, 0, after), &got), 0);
    EXPECT_EQ(got.epoch, 2u);
    got.state = NG_INCIDENT_JUDGED;
    EXPECT_EQ(board.publish(got), 0);
    EXPECT_EQ(board.claim(stall(NG_INCIDENT_TIMEOUT, 8, 0, before), &got), 0);
    EXPECT_EQ(got.epoch, 3u);
}

/* Until a policy has acted: ranks may die of that. */
TEST_F(LocalIncidents, ThatARankIsMissingDoesNotCoverItsDeath)
{
    struct ng_incident got = {};
    int64_t before = ng_clock_mono_ns();
    for (uint8_t kind : {NG_KIND_MISSING_RANK, NG_KIND_MISMATCH}) {
        for (int policy : {0, NG_INCIDENT_POLICY_LOG, NG_INCIDENT_POLICY_LOG + 1}) {
            enum ng_incident_level level = policy ? NG_INCIDENT_TIMEOUT : NG_INCIDENT_SUSPECT;
            struct ng_incident told = stall(level, 100 + 10 * kind + (uint64_t)policy, 7, before);
            struct ng_incident death = told;
            told.policy = policy;
            ASSERT_EQ(board.claim(told, &got), 0);
            death.kind = NG_KIND_DEAD_RANK;
            EXPECT_EQ(board.claim(death, &got), -EEXIST) << "not judged yet";
            got.kind = kind;
            got.state = NG_INCIDENT_JUDGED;
            ASSERT_EQ(board.publish(got), 0);
            EXPECT_EQ(board.claim(told, &got), -EEXIST);
            bool outdone = kind == NG_KIND_MISSING_RANK && policy <= NG_INCIDENT_POLICY_LOG;
            ASSERT_EQ(board.claim(death, &got), outdone ? 0 : -EEXIST) << policy;
            if (!outdone)
                continue;
            got.state = NG_INCIDENT_JUDGED;
            ASSERT_EQ(board.publish(got), 0);
            EXPECT_EQ(board.claim(death, &got), -EEXIST) << "once";
        }
    }
}

TEST_F(LocalIncidents, ASuspicionDoesNotCoverADeadline)
{
    struct ng_incident got = {};
    Peer claimant(folder.path(), claims(folder.path(), stall(NG_INCIDENT_SUSPECT, 7, 20), true));

    EXPECT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 7, 20), &got), -EEXIST);
    EXPECT_EQ(board.claim(stall(NG_INCIDENT_TIMEOUT, 7, 20), &got), 0);
    EXPECT_EQ(got.claimant_pid, getpid());
}

/* core/incident/news.h relies on it. */
TEST_F(LocalIncidents, WhatAwaitsItsVerdictWhenWeJoinIsGivenAndReadOnceItIsJudged)
{
    Folder folder;
    OwnBox theirs(folder.path()), own(folder.path(), 1);
    Board claimant(folder.path(), &theirs.box);
    struct ng_incident claimed = {}, got = {};

    ASSERT_EQ(claimant.claim(stall(NG_INCIDENT_SUSPECT, 7, 20), &claimed), 0);
    Board board(folder.path(), &own.box);
    ASSERT_EQ(board.next(0, &got), 0);
    EXPECT_EQ(got.state, NG_INCIDENT_CLAIMED);
    claimed.state = NG_INCIDENT_JUDGED;
    ASSERT_EQ(claimant.publish(claimed), 0);
    EXPECT_EQ(board.next(0, &got), -ENOENT) << "what was judged before we joined looks the same";
    ASSERT_EQ(board.get(claimed.epoch, &got), 0);
    EXPECT_EQ(got.state, NG_INCIDENT_JUDGED);
}

TEST_F(LocalIncidents, ADeadClaimantsClaimCoversNothing)
{
    for (bool known : {false, true}) {
        Folder folder;
        OwnBox own(folder.path());
        Board board(folder.path(), &own.box);
        struct ng_incident got = {};
        Peer claimant(folder.path(),
                      claims(folder.path(), stall(NG_INCIDENT_TIMEOUT, 7, 20), false));

        if (known)
            board.wait(0);
        EXPECT_EQ(board.claim(stall(NG_INCIDENT_TIMEOUT, 7, 20), &got), -EEXIST);
        EXPECT_TRUE(board.claimant_alive(got));
        claimant.kill_unreaped();
        EXPECT_FALSE(board.claimant_alive(got)) << "a zombie lives no more";
        EXPECT_EQ(board.claim(stall(NG_INCIDENT_TIMEOUT, 7, 20), &got), 0);
        EXPECT_EQ(got.epoch, 2u) << "the first claim stays where it is";
        EXPECT_EQ(got.claimant_pid, getpid());
    }
}

TEST_F(LocalIncidents, ThatCallsDifferIsToldOnceThoughWhoToldItHasEnded)
{
    for (bool judged : {false, true}) {
        Folder folder;
        OwnBox own(folder.path());
        Board board(folder.path(), &own.box);
        struct ng_incident got = {}, wanted = stall(NG_INCIDENT_SUSPECT, 7, 20);
        wanted.differs = true;
        Peer claimant(folder.path(), claims(folder.path(), wanted, judged));

        claimant.kill_unreaped();
        EXPECT_EQ(board.claim(wanted, &got), judged ? -EEXIST : 0)
            << "what is not judged nobody is told of";
        EXPECT_EQ(got.epoch, judged ? 1u : 2u);
        if (judged) {
            EXPECT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 7, 20), &got), 0)
                << "what is stuck is another matter";
        }
        wanted.group_id = 8;
        EXPECT_EQ(board.claim(wanted, &got), 0);
    }
}

TEST_F(LocalIncidents, AFrozenClaimantIsPassedByWhoGivesItUp)
{
    struct ng_incident got = {}, wanted = stall(NG_INCIDENT_TIMEOUT, 7, 20);
    Peer claimant(folder.path(), claims(folder.path(), wanted, false));

    board.wait(0);
    claimant.stop();
    EXPECT_EQ(board.claim(wanted, &got), -EEXIST);
    wanted.supersedes = got.epoch;
    EXPECT_EQ(board.claim(wanted, &got), 0);
    EXPECT_EQ(got.epoch, 2u);
    EXPECT_EQ(got.state, NG_INCIDENT_CLAIMED);
}

TEST_F(LocalIncidents, AReusedPidIsNotTheClaimant)
{
    struct ng_incident incident = stall(NG_INCIDENT_TIMEOUT, 7, 20);
    uint64_t ticks;
    char state;

    ASSERT_EQ(ng_proc_stat(getppid(), &state, &ticks), 0);
    incident.claimant_pid = getppid();
    incident.claimant_ticks = ticks;
    EXPECT_TRUE(board.claimant_alive(incident));
    incident.claimant_ticks = ticks + 1;
    EXPECT_FALSE(board.claimant_alive(incident));
}

TEST_F(LocalIncidents, WhoJoinsLaterSeesOnlyWhatIsStillUnderWay)
{
    Folder folder;
    const std::string &path = folder.path();
    struct ng_incident got = {};
    Peer judged(path, claims(path, stall(NG_INCIDENT_TIMEOUT, 1, 1), true));
    Peer lost(path, claims(path, stall(NG_INCIDENT_SUSPECT, 2, 2), false));
    lost.kill_and_reap();
    Peer busy(path, claims(path, stall(NG_INCIDENT_TIMEOUT, 3, 3), false));

    OwnBox own(path);
    Board board(path, &own.box);
    ASSERT_EQ(board.next(0, &got), 0);
    EXPECT_EQ(got.group_id, 3u) << "the judged one and the dead claimant's are of before our time";
    EXPECT_EQ(got.epoch, 3u);
    EXPECT_EQ(board.next(3, &got), -ENOENT);
    ASSERT_EQ(board.get(1, &got), 0) << "by its number it can be read all the same";
    EXPECT_EQ(got.state, NG_INCIDENT_JUDGED);

    EXPECT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 4, 4), &got), -EEXIST)
        << "covered by the timeout that nobody has judged yet";
    EXPECT_EQ(got.epoch, 3u);
    busy.kill_and_reap();
    EXPECT_EQ(board.next(0, &got), -ENOENT);
    Peer last(path, claims(path, stall(NG_INCIDENT_SUSPECT, 4, 4), true));
    ASSERT_EQ(board.next(0, &got), 0);
    EXPECT_EQ(got.group_id, 4u);
    EXPECT_EQ(got.epoch, 4u);
}

TEST_F(LocalIncidents, AnIncidentWakesWhoWaits)
{
    struct ng_incident got = {};

    board.wait(0);
    Peer claimant(folder.path(), claims(folder.path(), stall(NG_INCIDENT_SUSPECT, 7, 1), true));
    EXPECT_TRUE(board.wait(20000) & NG_BOARD_INCIDENT);
    ASSERT_EQ(board.next(0, &got), 0);
    EXPECT_EQ(got.claimant_pid, claimant.pid());
    EXPECT_STREQ(got.line, "the verdict");
}

TEST_F(LocalIncidents, DamagedFilesAreSkippedAndNeverOverwritten)
{
    struct ng_incident got = {};

    ASSERT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 7, 1), &got), 0);
    std::string whole = read_whole_file(folder / "incident-1");
    std::string magic = whole, endless = whole;
    magic[0] ^= 1;
    for (size_t i = endless.size() - 1024; i < endless.size(); i++)
        endless[i] = 'x';
    write_whole_file(folder / "incident-2", "");
    write_whole_file(folder / "incident-3", whole.substr(0, whole.size() - 1));
    write_whole_file(folder / "incident-4", magic);
    ASSERT_EQ(mkdir((folder / "incident-5").c_str(), 0700), 0);
    ASSERT_EQ(symlink((folder / "incident-1").c_str(), (folder / "incident-6").c_str()), 0);
    write_whole_file(folder / "incident-", whole);
    write_whole_file(folder / "incident-one", whole);
    write_whole_file(folder / "incident-7", endless);

    EXPECT_EQ(board.get(2, &got), -EBADMSG);
    EXPECT_EQ(board.get(3, &got), -EBADMSG);
    EXPECT_EQ(board.get(4, &got), -EBADMSG);
    EXPECT_LT(board.get(5, &got), 0);
    EXPECT_LT(board.get(6, &got), 0);
    EXPECT_EQ(board.get(9, &got), -ENOENT);
    ASSERT_EQ(board.next(0, &got), 0);
    EXPECT_EQ(got.epoch, 1u);
    if (board.next(1, &got) == 0) {
        EXPECT_EQ(got.epoch, 7u);
        EXPECT_LT(strlen(got.line), sizeof(got.line));
    }
    ASSERT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 7, 2), &got), 0);
    EXPECT_EQ(got.epoch, 8u);
    EXPECT_EQ(read_whole_file(folder / "incident-3").size(), whole.size() - 1);
}

TEST_F(LocalIncidents, ACommandIsNoIncidentAndCoversNone)
{
    struct ng_command dump = {}, abort = {};
    struct ng_incident record, got = {};
    struct ng_news news = {};
    uint32_t living;

    board.wait(0);
    dump.kind = NG_COMMAND_DUMP;
    dump.rank = 3;
    snprintf(dump.path, sizeof(dump.path), "/a/folder");
    abort.kind = NG_COMMAND_ABORT;
    abort.group_id = 7;
    abort.rank = -1;
    snprintf(abort.line, sizeof(abort.line), "abort it");
    for (const auto *command : {&dump, &abort}) {
        ng_command_record(command, &record);
        ASSERT_EQ(ng_local_leave(folder.path().c_str(), 0, &record, &living), 0);
        ASSERT_EQ(living, 1u);
    }
    ASSERT_EQ(board.board->ops->next(board.board, NG_SOURCE_HOST, 0, &news), 0);
    ASSERT_TRUE(news.is_command);
    EXPECT_EQ(news.epoch, 1u);
    EXPECT_EQ(news.command.kind, NG_COMMAND_DUMP);
    EXPECT_EQ(news.command.source, NG_SOURCE_HOST);
    EXPECT_EQ(news.command.rank, 3);
    EXPECT_STREQ(news.command.path, "/a/folder");
    EXPECT_STREQ(news.command.line, "");
    ASSERT_EQ(board.board->ops->next(board.board, NG_SOURCE_HOST, 1, &news), 0);
    ASSERT_TRUE(news.is_command);
    EXPECT_EQ(news.command.kind, NG_COMMAND_ABORT);
    EXPECT_EQ(news.command.group_id, 7u);
    EXPECT_STREQ(news.command.line, "abort it");
    EXPECT_GT(news.command.given_mono_ns, 0);
    EXPECT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 7, 0), &got), 0);
    EXPECT_EQ(got.epoch, 3u);
    EXPECT_EQ(ng_local_read_incident((folder / "incident-1").c_str(), &got), -EBADMSG);
}

/* The file holds the incident as it is in memory, behind its magic number. */
static constexpr size_t KIND_AT = sizeof(uint64_t) + offsetof(struct ng_incident, kind);

TEST_F(LocalIncidents, AKindOfVerdictThatThereIsNotIsRefused)
{
    struct ng_incident got = {};

    ASSERT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 7, 1), &got), 0);
    std::string file = read_whole_file(folder / "incident-1");
    for (int kind : {0, NG_KIND_COUNT - 1, (int)NG_KIND_COUNT, 255}) {
        file[KIND_AT] = (char)kind;
        write_whole_file(folder / "incident-1", file);
        EXPECT_EQ(board.get(1, &got), kind < NG_KIND_COUNT ? 0 : -EBADMSG) << kind;
    }
}

TEST_F(LocalIncidents, AKindOfVerdictThatAnOlderGuardDidNotSayIsReadFromItsWords)
{
    struct ng_incident got = {};

    ASSERT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 7, 1), &got), 0);
    EXPECT_EQ(got.kind, NG_KIND_HEALTHY) << "nobody has judged it";
    got.state = NG_INCIDENT_JUDGED;
    snprintf(got.line, sizeof(got.line), "dead_rank: rank 3 died");
    for (auto kind : {NG_KIND_HEALTHY, NG_KIND_NAN}) {
        got.kind = (uint8_t)kind;
        ASSERT_EQ(board.publish(got), 0);
        ASSERT_EQ(board.get(1, &got), 0);
        EXPECT_EQ(got.kind, kind == NG_KIND_NAN ? NG_KIND_NAN : NG_KIND_DEAD_RANK);
    }
}

TEST_F(LocalIncidents, ANumberThatNobodyCountedToIsPassedOver)
{
    struct ng_incident got = {};

    ASSERT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 7, 1), &got), 0);
    for (const char *epoch : {"4294967296", "18446744073709551614", "99999999999999999999"})
        write_whole_file(folder / ("incident-" + std::string(epoch)),
                         read_whole_file(folder / "incident-1"));
    EXPECT_EQ(board.next(1, &got), -ENOENT);
    ASSERT_EQ(board.claim(stall(NG_INCIDENT_SUSPECT, 7, 2), &got), 0);
    EXPECT_EQ(got.epoch, 2u);
}

TEST_F(LocalIncidents, AFifoOfThatNameHoldsNobodyUp)
{
    Folder folder;
    ASSERT_EQ(mkfifo((folder / "incident-1").c_str(), 0600), 0);
    EXPECT_EQ(in_child([&] {
                  OwnBox own(folder.path());
                  Board board(folder.path(), &own.box);
                  struct ng_incident got = {};
                  alarm(5);
                  return board.next(0, &got) == -ENOENT ? 0 : 1;
              }),
              0);
}

TEST_F(LocalIncidents, NoPlaceForTheClaimIsAnErrorAndNothingElse)
{
    struct ng_incident got = {};

    EXPECT_EQ(in_child([&] {
                  struct rlimit limit = {100, 100};
                  signal(SIGXFSZ, SIG_IGN);
                  setrlimit(RLIMIT_FSIZE, &limit);
                  int error = board.claim(stall(NG_INCIDENT_SUSPECT, 7, 1), &got);
                  return error == -ENOSPC || error == -EFBIG ? 0 : 1;
              }),
              0);
    EXPECT_EQ(folder.names().size(), 1u) << "nothing but the box";
}
