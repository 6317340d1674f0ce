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

/* Rank 0's watchdog hangs since it saw its 3rd call in flight, which all ranks but it have
 * finished. The others, but `absent`, wait in the 7th; rank 0 has made `called` calls. */
static Job with_stale_call(int ranks, const std::vector<int> &absent, int called, bool published)
{
    Job job(ranks, WORLD, "dp");
    job.at(WORLD, 0).did(2).waits(all_reduce(), 2 * LONG_AGO);
    while (job.at(WORLD, 0).entered < (uint64_t)called)
        job.at(WORLD, 0).queued();
    for (int rank = 1; rank < ranks; rank++) {
        job.at(WORLD, rank).did(6);
        if (std::find(absent.begin(), absent.end(), rank) == absent.end())
            job.at(WORLD, rank).waits();
    }
    job.at(WORLD, 0).pending_unwatched = !published;
    if (published) {
        job.process(0).watchdog_stuck_ns = 60 * NG_S;
        job.process(0).watchdog_in = "cuEventQuery (thread 7 in ioctl)";
    }
    return job;
}

TEST(Verdict, AStaleCallOfAStuckWatchdogDoesNotHideAMissingRank)
{
    for (bool published : {true, false}) {
        Judgement judgement =
            expect_verdict(with_stale_call(4, {2}, 7, published), NG_KIND_MISSING_RANK, {2},
                           NG_CONFIDENCE_CERTAIN, {0, 1, 3});
        EXPECT_EQ(judgement.seq, 7u);
        EXPECT_EQ(judgement.stalled_ns, LONG_AGO);
        EXPECT_PRED2(mentions, judgement.whys.at(0),
                     "; the watchdog of rank 0 hangs: what its device is in is not known, but this "
                     "call cannot end without this rank");
    }
}

TEST(Verdict, ARankWithAStuckWatchdogThatDoesNotComeIsNamedAsWell)
{
    Judgement judgement = expect_verdict(with_stale_call(4, {2}, 6, true), NG_KIND_MISSING_RANK,
                                         {0, 2}, NG_CONFIDENCE_CERTAIN, {1, 3});
    EXPECT_PRED2(mentions, judgement.whys.at(0), "; the watchdog of its guard hangs, too");
}

TEST(Verdict, WhereNoRankIsMissingTheStuckWatchdogWithAStaleCallIsTheReason)
{
    expect_verdict(judge(with_stale_call(4, {}, 7, true)), NG_KIND_WATCHDOG_STUCK, {0},
                   NG_CONFIDENCE_LIKELY);
    expect_verdict(judge(with_stale_call(4, {1, 2, 3}, 6, true)), NG_KIND_WATCHDOG_STUCK, {0},
                   NG_CONFIDENCE_LIKELY);
}

/* It is certain of the call itself: another rank has not made it. */
TEST(Verdict, ARankWithAStuckWatchdogMayReallyBeInItsCall)
{
    for (bool published : {true, false}) {
        Job job = waiting_for(4, {2});
        job.at(WORLD, 0).pending_unwatched = true;
        job.process(0).watchdog_stuck_ns = published ? 60 * NG_S : 0;
        expect_verdict(job, NG_KIND_MISSING_RANK, {2}, NG_CONFIDENCE_CERTAIN, {0, 1, 3});
    }
}

/* Rooted calls have their root at rank 3 or 0. */
static struct ng_signature call_of(enum ng_op op)
{
    struct ng_signature call = all_reduce();
    call.op = (uint16_t)op;
    call.root = op == NG_OP_Reduce ? 3 : op == NG_OP_Broadcast ? 0 : -1;
    return call;
}

/* With two ranks nobody else waits: the call is one that needs both, or one that does not. */
TEST(Verdict, AWaitThatOnlyAStuckWatchdogRemembersIsCertainOnlyIfTheCallNeedsAllRanks)
{
    for (enum ng_op op : {NG_OP_AllReduce, NG_OP_Broadcast}) {
        Job job(2, WORLD, "dp", 6);
        job.at(WORLD, 0).waits(call_of(op)).pending_unwatched = true;
        Judgement judgement = judge(job);
        expect_kind(judgement, NG_KIND_MISSING_RANK);
        EXPECT_EQ(judgement.confidence,
                  op == NG_OP_AllReduce ? NG_CONFIDENCE_CERTAIN : NG_CONFIDENCE_LIKELY);
        EXPECT_EQ(mentions(judgement.whys.at(0), "that may be over"), op == NG_OP_Broadcast);
    }
}

/* An older send whose receive is missing may have left the device; a rank that is watched waits for
 * another one. */
TEST(Verdict, AMissingRankForWhichAWatchedRankWaitsComesFirst)
{
    constexpr uint64_t PAIR = 0xe;
    Job job(4, WORLD, "dp", 6);
    job.group(PAIR, "pp");
    job.at(PAIR, 0).p2p(NG_OP_Send, 3, false, 2 * LONG_AGO).pending_unwatched = true;
    expect_verdict(judge(job), NG_KIND_MISSING_RANK, {3}, NG_CONFIDENCE_LIKELY);
    job.at(WORLD, 0).did(1);
    for (int rank : {1, 3})
        job.at(WORLD, rank).waits();
    expect_verdict(judge(job), NG_KIND_MISSING_RANK, {2}, NG_CONFIDENCE_CERTAIN);
}

/* Rank 0 waits in a call that rank 2 has not made, which waits for it in another group. The root of
 * a broadcast may be through with it, and stay away from the other call for a reason of its own. */
TEST(Verdict, ACycleThroughARankThatOnlyAStuckWatchdogRemembersIsLikelyUnlessTheCallNeedsAllRanks)
{
    for (enum ng_op op : {NG_OP_AllReduce, NG_OP_Broadcast})
        for (bool hangs : {true, false}) {
            Job job(3, 1, "a", 2);
            job.group(2, "b");
            job.at(1, 0).waits(call_of(op)).pending_unwatched = hangs;
            job.at(1, 1).did(1, call_of(op));
            job.wait(2, {1, 2});
            Judgement judgement = judge(job);
            bool doubtful = hangs && op == NG_OP_Broadcast;
            expect_kind(judgement, NG_KIND_ORDER_DEADLOCK);
            EXPECT_EQ(judgement.confidence, doubtful ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN)
                << judgement.line;
            EXPECT_EQ(mentions(judgement.whys.at(0),
                               "hangs, and only its last look shows that the rank waits: that may "
                               "be over"),
                      doubtful);
        }
}

/* Others wait in the call, too, and are watched; the cycle is through the one that is not. */
TEST(Verdict, AWatchedRankInTheSameCallDoesNotMakeSuchACycleCertain)
{
    Job job(4, 1, "a", 2);
    job.group(2, "b", {0, 1, 2});
    struct ng_signature reduce = call_of(NG_OP_Reduce);
    job.at(1, 3).waits(reduce);
    job.at(1, 1).did(1, reduce);
    job.at(1, 0).waits(reduce).pending_unwatched = true;
    job.wait(2, {1, 2});
    expect_verdict(job, NG_KIND_ORDER_DEADLOCK, ANYBODY, NG_CONFIDENCE_LIKELY)
        .because("hangs, and only its last look shows that the rank waits");
}

TEST(Verdict, ACallTooManyThatOnlyAStuckWatchdogRemembersIsLikelyUnlessTheCallNeedsAllRanks)
{
    for (enum ng_op op : {NG_OP_AllReduce, NG_OP_Broadcast})
        for (bool hangs : {true, false}) {
            Job job(4, WORLD, "dp", 9);
            job.at(WORLD, 0).waits(call_of(op)).pending_unwatched = hangs;
            for (int rank : {1, 2, 3})
                job.process(rank).life = NG_LIFE_EXITED;
            bool doubtful = hangs && op == NG_OP_Broadcast;
            Judgement judgement =
                expect_verdict(job, NG_KIND_MISMATCH, {0},
                               doubtful ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN);
            EXPECT_EQ(mentions(judgement.whys.at(0), "; the watchdog of its guard hangs, and only "
                                                     "its last look shows that the rank waits"),
                      doubtful);
        }
}

TEST(Verdict, TheWatchdogOfARankThatHasEndedIsNotStuck)
{
    Job job = unwatched(4);
    job.process(1).life = NG_LIFE_EXITED;

    EXPECT_NE(judge(job).kind, NG_KIND_WATCHDOG_STUCK) << judge(job).line;
}
