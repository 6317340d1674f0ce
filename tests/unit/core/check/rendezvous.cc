/*
 * Ranks of one host that wait for each other before a collective.
 */
#include "tests/gtest/in_time.h"
#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "tests/unit/core/helpers/meeting.h"
}

namespace
{

constexpr int64_t ms = 1000000;
constexpr int64_t minute = 60000 * ms;

struct Rendezvous : testing::Test {
    /* 0: nobody has looked for the ranks yet. */
    void begin(int nranks, char kind = 'w')
    {
        meeting_begin(folder.path().c_str(), nranks);
        if (kind)
            meeting_open(kind);
    }
    /* Ranks that the others follow. */
    void begin_behind(int lowest, int nranks)
    {
        begin(nranks, 0);
        meeting_follow(lowest);
    }
    void TearDown() override
    {
        meeting_finish();
    }
    Folder folder;
};

void all_enter(int nranks, uint64_t hash)
{
    for (int rank = 0; rank < nranks; rank++)
        meeting_enter(rank, hash);
}

TEST_F(Rendezvous, RanksThatCallTheSameMeet)
{
    for (int nranks = 1; nranks <= MEETING_RANKS; nranks++) {
        begin(nranks);
        for (uint64_t seq = 1; seq < 40; seq++) {
            all_enter(nranks, 1000 + seq);
            ASSERT_EQ(meeting_await(seq, 0), 'm') << nranks << " ranks, #" << seq;
        }
        if (nranks < MEETING_RANKS)
            meeting_finish();
    }
}

TEST_F(Rendezvous, AnyRankThatIsLateIsAwaitedForTheGivenTime)
{
    for (int late = 1; late < MEETING_RANKS; late++) {
        begin(MEETING_RANKS);
        for (int rank = 0; rank < MEETING_RANKS; rank++)
            if (rank != late)
                meeting_enter(rank, 5);
        int64_t before = ng_clock_mono_ns();
        EXPECT_EQ(meeting_await(1, 12 * ms), 'a');
        EXPECT_GE(ng_clock_mono_ns() - before, 12 * ms);
        meeting_enter(late, 5);
        EXPECT_EQ(meeting_await(1, 0), 'm');
        if (late + 1 < MEETING_RANKS)
            meeting_finish();
    }
}

TEST_F(Rendezvous, AnyRankThatDiffersIsLeftToTheIncidentThread)
{
    for (int other = 1; other < MEETING_RANKS; other++) {
        begin(MEETING_RANKS);
        for (int rank = 0; rank < MEETING_RANKS; rank++)
            meeting_enter(rank, rank == other ? 6 : 5);
        EXPECT_EQ(meeting_await(1, minute), 'u');
        if (other + 1 < MEETING_RANKS)
            meeting_finish();
    }
}

/* Its word of the collective is still there, from the first time. */
TEST_F(Rendezvous, ARankWhoseCallNcclRefusedHasNotComeUntilItCallsAgain)
{
    begin(2);
    all_enter(2, 5);
    EXPECT_EQ(meeting_await(1, 0), 'm');
    meeting_take_back(0);
    meeting_take_back(1);
    meeting_enter(0, 5);
    EXPECT_EQ(meeting_await(1, 0), 'a');
    meeting_enter(1, 5);
    EXPECT_EQ(meeting_await(1, 0), 'm');
}

TEST_F(Rendezvous, ARankThatHasGivenUpTheCallDoesNotMeet)
{
    begin(2);
    all_enter(2, 5);
    meeting_refuse(1);
    meeting_enter(1, 5);
    EXPECT_EQ(meeting_await(1, minute), 'u');
    meeting_refuse(0);
    meeting_enter(0, 5);
    EXPECT_EQ(meeting_await(1, 0), 'm');
}

TEST_F(Rendezvous, AnotherCommunicatorInTheSlotIsNotTheRank)
{
    begin(2);
    meeting_enter(0, 5);
    meeting_end(1);
    EXPECT_EQ(meeting_await(1, minute), 'u');
    meeting_replace(1);
    meeting_enter(1, 5);
    EXPECT_EQ(meeting_await(1, minute), 'u');
}

TEST_F(Rendezvous, AFileThatWasTruncatedHarmsNobody)
{
    begin(3);
    all_enter(2, 5);
    EXPECT_EQ(meeting_await(1, 0), 'a');
    meeting_truncate(2, folder.path().c_str());
    EXPECT_EQ(meeting_await(1, minute), 'u');
}

TEST_F(Rendezvous, RanksDoNotMeetBeforeTheyWereFoundNorAfterTheEnd)
{
    begin(3, 0);
    all_enter(3, 5);
    EXPECT_EQ(meeting_await(1, minute), 'u');
    EXPECT_EQ(meeting_maps(), 0);
    meeting_open('w');
    EXPECT_EQ(meeting_await(1, 0), 'm');
    EXPECT_GT(meeting_maps(), 0);
    meeting_round();
    EXPECT_EQ(meeting_await(1, 0), 'm');
    meeting_end(0);
    meeting_round();
    EXPECT_EQ(meeting_await(1, minute), 'u');
    EXPECT_EQ(meeting_maps(), 0);
}

TEST_F(Rendezvous, ManyCommunicatorsLeaveRoomForTheProgramsMappings)
{
    begin(MEETING_RANKS);
    int before = meeting_maps();
    EXPECT_EQ(before, 2 * (MEETING_RANKS - 1));
    EXPECT_EQ(meeting_maps_of(100), 101 * before);
    EXPECT_LE(meeting_maps_of(1000), 8192);
    EXPECT_EQ(meeting_maps(), before);
}

bool sleeps(pid_t thread)
{
    int pid;
    char name[64], state;
    FILE *file = fopen(("/proc/self/task/" + std::to_string(thread) + "/stat").c_str(), "re");
    bool found = file && fscanf(file, "%d %63s %c", &pid, name, &state) == 3 && state == 'S';
    if (file)
        fclose(file);
    return found;
}

/* A rank that waits sleeps each time, and does not look again by itself, which it does after five
 * milliseconds. */
void expect_woken(const std::function<void(uint64_t seq)> &let_go)
{
    constexpr uint64_t calls = 200;
    pid_t waiter = gettid();
    std::atomic<uint64_t> waits{0};
    std::thread other([&] {
        for (uint64_t seq = 1; seq <= calls; seq++) {
            while (waits < seq || !sleeps(waiter))
                std::this_thread::yield();
            let_go(seq);
        }
    });
    int64_t before = ng_clock_mono_ns();
    for (uint64_t seq = 1; seq <= calls; seq++) {
        meeting_enter(0, seq);
        waits = seq;
        EXPECT_EQ(meeting_await(seq, minute), 'm');
    }
    EXPECT_IN_TIME(ng_clock_mono_ns() - before, calls * ms);
    other.join();
}

TEST_F(Rendezvous, OneThatSleepsIsWokenByTheLastToCome)
{
    begin(2);
    expect_woken([](uint64_t seq) {
        meeting_enter(1, seq);
        meeting_announce(1);
    });
}

/* ---- Of several hosts ---- */

TEST_F(Rendezvous, TheLowestRankOfAHostMeetsTheOthersAndThenAsksTheHosts)
{
    begin(3, 'l');
    all_enter(2, 5);
    EXPECT_EQ(meeting_await(1, 0), 'a');
    meeting_enter(2, 5);
    EXPECT_EQ(meeting_await(1, minute), 'h');
    meeting_enter(0, 6);
    meeting_enter(1, 7);
    EXPECT_EQ(meeting_await(2, minute), 'u');
}

TEST_F(Rendezvous, TheOthersWaitForTheAnswerOfTheHostsThatTheLowestRankGets)
{
    begin_behind(1, 3);
    meeting_enter(0, 5);
    EXPECT_EQ(meeting_await(1, 0), 'a');
    meeting_enter(1, 5);
    EXPECT_EQ(meeting_await(1, 0), 'a');
    meeting_agree(1, 1);
    EXPECT_EQ(meeting_await(1, 0), 'm');
    meeting_enter(0, 6);
    meeting_enter(1, 7);
    meeting_agree(1, 2);
    EXPECT_EQ(meeting_await(2, minute), 'u') << "it called something else";
}

TEST_F(Rendezvous, TheOthersDoNotWaitIfTheLowestRankDoesNot)
{
    begin_behind(1, 2);
    all_enter(2, 5);
    meeting_pass(1, 1);
    EXPECT_EQ(meeting_await(1, 0), 'm');
}

TEST_F(Rendezvous, TheOthersAreWokenByTheAnswer)
{
    begin_behind(1, 2);
    expect_woken([](uint64_t seq) {
        meeting_enter(1, seq);
        meeting_agree(1, seq);
    });
}

TEST_F(Rendezvous, TheOthersAreWokenIfTheLowestRankDoesNotAsk)
{
    begin_behind(1, 2);
    expect_woken([](uint64_t seq) {
        meeting_enter(1, seq);
        meeting_pass(1, seq);
    });
}

TEST_F(Rendezvous, ALowerRankThatIsFoundLaterTakesThePlaceOfTheLowest)
{
    begin_behind(2, 3);
    all_enter(3, 5);
    meeting_agree(1, 1);
    EXPECT_EQ(meeting_await(1, 0), 'a');
    meeting_follow(1);
    EXPECT_EQ(meeting_await(1, 0), 'm');
}

/* What it read may be of the one and the other. */
TEST_F(Rendezvous, OneThatWaitsWhileTheLowestRankChangesIsLeftToTheIncidentThread)
{
    begin_behind(2, 3);
    all_enter(3, 5);
    pid_t waiter = gettid();
    std::atomic<bool> waits{false};
    std::thread incident_thread([&] {
        while (!waits || !sleeps(waiter))
            std::this_thread::yield();
        meeting_follow(1);
    });
    waits = true;
    EXPECT_EQ(meeting_await(1, minute), 'u');
    incident_thread.join();
    EXPECT_EQ(meeting_await(1, 0), 'a');
}

TEST_F(Rendezvous, RanksOfOneNumberDoNotMeet)
{
    begin(3, 0);
    meeting_renumber(2, 1);
    meeting_open('w');
    all_enter(3, 5);
    EXPECT_EQ(meeting_await(1, minute), 'u');
    meeting_renumber(2, 0);
    meeting_open('w');
    EXPECT_EQ(meeting_await(1, minute), 'u');
}

} // namespace
