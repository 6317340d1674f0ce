/*
 * Watchdogs that are stuck.
 */
#include "tests/unit/core/verdict/verdict_jobs.h"

/* Rank 1's watchdog hangs, and its device seems not to finish what all have called. */
static Job unwatched(int ranks)
{
    Job job(ranks, WORLD, "dp");
    for (int rank = 0; rank < ranks; rank++)
        job.at(WORLD, rank).did(rank == 1 ? 6 : 7);
    job.at(WORLD, 1).waits();
    job.process(1).watchdog_stuck_ns = 60 * NG_S;
    job.process(1).watchdog_in = "cuEventQuery (thread 7 in ioctl)";
    return job;
}

TEST(Verdict, AStuckWatchdogIsTheReasonOfADeviceThatSeemsNotToFinish)
{
    Judgement judgement =
        expect_verdict(judge(unwatched(4)), NG_KIND_WATCHDOG_STUCK, {1}, NG_CONFIDENCE_LIKELY);
    EXPECT_EQ(judgement.whys.at(0),
              "the watchdog of its guard has made no round for 60.0 s: it is in "
              "cuEventQuery (thread 7 in ioctl)");
    EXPECT_EQ(judgement.seq, 7u);
    EXPECT_EQ(judgement.op, NG_OP_AllReduce);
    EXPECT_EQ(judgement.stalled_ns, 60 * NG_S);
}

/* The pending work is what the watchdog saw in its last round. */
TEST(Verdict, OfAStuckWatchdogTheOldestPendingWorkIsTold)
{
    constexpr uint64_t OTHER = 0xe, THIRD = 0xf;
    Job job(2);
    for (uint64_t group : {WORLD, OTHER, THIRD})
        job.group(group, group == OTHER ? "oldest" : "younger");
    job.at(WORLD, 1).did(1).waits(all_reduce(), NG_S);
    job.at(OTHER, 1).did(2).waits(all_reduce(), 3 * NG_S);
    job.at(THIRD, 1).did(3).waits(all_reduce(), 2 * NG_S);
    job.process(1).watchdog_stuck_ns = 60 * NG_S;
    Judgement judgement = judge(job);

    expect_kind(judgement, NG_KIND_WATCHDOG_STUCK);
    EXPECT_EQ(judgement.group, OTHER);
    EXPECT_EQ(judgement.seq, 3u);
}

TEST(Verdict, AStuckWatchdogIsToldOfWhereNothingElseIsWrong)
{
    Job job(4, WORLD, "dp", 6);
    job.process(2).watchdog_stuck_ns = 60 * NG_S;
    Judgement judgement =
        expect_verdict(job, NG_KIND_WATCHDOG_STUCK, {2}, NG_CONFIDENCE_CERTAIN, {});
    EXPECT_EQ(judgement.group, 0u);
    EXPECT_PRED2(mentions, judgement.line, "is no longer watched (the watchdog of its guard");
}

TEST(Verdict, AStuckWatchdogDoesNotHideWhatTheCallsExplain)
{
    Job job = waiting_for(4, {2});
    job.process(1).watchdog_stuck_ns = 60 * NG_S;

    expect_verdict(job, NG_KIND_MISSING_RANK, {2});
}

TEST(Verdict, AStuckWatchdogIsToldOfFirstWhereItIsAskedAbout)
{
    Job job = waiting_for(4, {2});
    job.process(1).watchdog_stuck_ns = 60 * NG_S;
    expect_verdict(judge(job, STALLED, true), NG_KIND_WATCHDOG_STUCK, {1}, NG_CONFIDENCE_CERTAIN,
                   {0, 3});
}

TEST(Verdict, TheWatchdogOfARankThatHasEndedIsNotStuck)
{
    Job job = unwatched(4);
    job.process(1).life = NG_LIFE_EXITED;

    EXPECT_NE(judge(job).kind, NG_KIND_WATCHDOG_STUCK) << judge(job).line;
}
