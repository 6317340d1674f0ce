/*
 * Numbers that are none.
 */
#include "tests/unit/core/verdict/verdict_jobs.h"

/* In call `seq` of the world, `age_ns` ago: element 17 of a thousand of bfloat16. */
static struct ng_view_nan nan_in(uint64_t seq, int64_t age_ns, bool held)
{
    return {age_ns, WORLD, seq, NG_OP_AllReduce, 9, 1000, 2, 17, 0x7fc0, held};
}

static Job all_did(int ranks, uint64_t calls)
{
    Job job(ranks, WORLD, "dp", calls);
    return job;
}

TEST(Verdict, ANanIsToldOfWhenAskedThoughNobodyWaits)
{
    Job job = all_did(4, 9);
    job.process(2).nan = nan_in(7, NG_S, false);
    Judgement judgement = expect_verdict(judge(job, STALLED, false, true), NG_KIND_NAN, {2},
                                         NG_CONFIDENCE_CERTAIN, {});
    EXPECT_EQ(judgement.whys.at(0),
              "of 1000 elements of bfloat16 that it sends, 2 are no numbers, the first is "
              "element 17: NaN (0x7fc0)");
    EXPECT_EQ(judgement.seq, 7u);
    EXPECT_EQ(judgement.op, NG_OP_AllReduce);
    expect_kind(judge(job), NG_KIND_HEALTHY);
}

TEST(Verdict, TheFirstOfNansThatHaveSpreadIsNamed)
{
    Job job = all_did(4, 12);
    /* Its watchdog has found it last. */
    job.process(0).nan = nan_in(8, 3 * NG_S, false);
    job.process(1).nan = nan_in(7, NG_S, false);
    job.process(2).nan = nan_in(8, 3 * NG_S, false);
    job.process(3).nan = nan_in(8, 2 * NG_S, false);
    expect_verdict(judge(job, STALLED, false, true), NG_KIND_NAN, {1}, NG_CONFIDENCE_CERTAIN);
}

TEST(Verdict, WhereAllRanksHaveNanTheyMayHaveItFromEachOther)
{
    Job job = all_did(3, 12);
    for (int rank = 0; rank < 3; rank++)
        job.process(rank).nan = nan_in(8, NG_S, false);
    Judgement judgement = judge(job, STALLED, false, true);

    EXPECT_EQ(judgement.culprits, (std::vector<int>{0, 1, 2}));
    EXPECT_EQ(judgement.confidence, NG_CONFIDENCE_LIKELY);
}

TEST(Verdict, ACallThatIsHeldForItsNanIsWhyTheOthersWait)
{
    for (bool stuck : {false, true}) {
        Job job = all_did(4, 6);
        for (int rank = 0; rank < 4; rank++)
            job.at(WORLD, rank).waits(all_reduce(), stuck ? LONG_AGO : NG_MS);
        job.process(1).nan = nan_in(7, stuck ? LONG_AGO : NG_MS, true);
        expect_verdict(job, NG_KIND_NAN, {1}, {}, {0, 2, 3}).because("; nothing of it was sent");
    }
}

TEST(Verdict, ADeathIsNotExplainedByANanThatIsHeld)
{
    Job job = waiting_for(4, {3});
    job.process(3).life = NG_LIFE_DEAD;
    job.process(1).nan = nan_in(7, LONG_AGO, true);
    expect_kind(judge(job), NG_KIND_DEAD_RANK);
}

TEST(Verdict, ANanThatWasLetGoIsNotTheReasonOfALaterStall)
{
    Job job = waiting_for(4, {3});
    job.process(1).nan = nan_in(2, 10 * LONG_AGO, false);
    expect_kind(judge(job), NG_KIND_MISSING_RANK);
}

TEST(Verdict, ANanOfAGroupThatNobodyKnowsIsNotToldOf)
{
    Job job = all_did(2, 6);
    job.process(1).nan = nan_in(7, NG_S, true);
    job.process(1).nan.group_id = 0xabc;
    expect_kind(judge(job, STALLED, false, true), NG_KIND_HEALTHY);
}
