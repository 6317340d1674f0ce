/*
 * When NCCL's RAS is asked, and for how long its answer is awaited.
 */
#include "tests/unit/core/verdict/verdict_jobs.h"

extern "C" {
#include "core/incident/ras_witness.h"
#include "tests/unit/core/helpers/witness.h"
}

namespace
{
constexpr int64_t STEP_NS = 100 * NG_MS;

class RasWitness : public testing::Test
{
  protected:
    struct ng_view view = {};
    struct ng_verdict verdict = {};
    bool deadline = false;

    void SetUp() override
    {
        witness_begin();
    }
    void TearDown() override
    {
        ng_view_fini(&view);
    }
    /* Of four ranks of a host, rank 3 is not known. Rank `self` has the pid 1000 + `self`. */
    void see(int self)
    {
        Job job = waiting_for(4, {});
        for (int rank = 0; rank < 4; rank++)
            job.process(rank).pid = 1000 + rank;
        job.process(self).self = true;
        job.forget(WORLD, 3);
        ng_view_init(&view);
        job.fill(&view);
        ng_view_seal(&view);
        view.groups[ng_view_find_group(&view, WORLD)].nccl_version = 22809;
        verdict.kind = NG_KIND_UNKNOWN;
        verdict.group_id = WORLD;
        verdict.seq = 7;
        verdict.lacks_ranks = true;
        verdict.stalled_ns = STALLED;
    }
    bool is_awaited()
    {
        return ng_ras_witness_is_awaited(&view, &verdict, deadline);
    }
    /* For how long the answer is awaited; at most 20 s. */
    int64_t wait(bool alternating = false)
    {
        int64_t began_ns = witness.now_ns;
        while (witness.now_ns - began_ns < 20 * NG_S && is_awaited()) {
            witness.now_ns += STEP_NS;
            if (alternating)
                verdict.seq ^= 1;
        }
        return witness.now_ns - began_ns;
    }
};
} // namespace

TEST_F(RasWitness, TheFirstOfAHostAsksAtOnce)
{
    see(0);
    EXPECT_LE(wait(), STEP_NS);
    EXPECT_EQ(witness.questions, 1u);
}

/* That one's alarm may come much later. */
TEST_F(RasWitness, OthersAskIfTheFirstHasNotDoneSoInTime)
{
    for (bool alternating : {false, true}) {
        witness_begin();
        see(1);
        int64_t waited_ns = wait(alternating);
        EXPECT_GT(waited_ns, NG_RAS_WITNESS_NS);
        EXPECT_LE(waited_ns, 2 * NG_RAS_WITNESS_NS);
        EXPECT_EQ(witness.questions, 1u);
    }
}

/* The answer is older than the wait each time. */
TEST_F(RasWitness, NoAlarmIsPutOffForLonger)
{
    for (int self : {0, 1}) {
        witness_begin();
        see(self);
        verdict.stalled_ns = 1;
        EXPECT_LE(wait(true), 2 * NG_RAS_WITNESS_NS + STEP_NS);
    }
}

/* RAS notices a frozen process after seconds: at the suspicion it could not answer. */
TEST_F(RasWitness, ADeadlineIsWaitedForOnceMore)
{
    for (int self : {0, 1}) {
        witness_begin();
        witness.error = -ETIMEDOUT;
        see(self);
        deadline = false;
        wait();
        EXPECT_EQ(witness.questions, 1u) << self;
        EXPECT_FALSE(is_awaited()) << self;
        deadline = true;
        int64_t waited_ns = wait();
        EXPECT_GT(waited_ns, 0) << self;
        EXPECT_LE(waited_ns, 2 * NG_RAS_WITNESS_NS) << self;
        EXPECT_EQ(witness.questions, 2u) << self;
        witness.now_ns += 4 * NG_S;
        EXPECT_FALSE(is_awaited()) << self;
        deadline = false;
        EXPECT_FALSE(is_awaited()) << self;
        EXPECT_EQ(witness.questions, 2u) << self;
    }
}

/* What it has just said is good for the deadline, too. */
TEST_F(RasWitness, ADeadlineDoesNotAskWhatIsKnown)
{
    see(0);
    wait();
    deadline = true;
    EXPECT_FALSE(is_awaited());
    EXPECT_EQ(witness.questions, 1u);
}

TEST_F(RasWitness, IsAskedOnlyWhereItMayHelp)
{
    see(0);
    verdict.kind = NG_KIND_MISSING_RANK;
    EXPECT_FALSE(is_awaited());
    verdict.kind = NG_KIND_UNKNOWN;
    verdict.lacks_ranks = false;
    EXPECT_FALSE(is_awaited());
    verdict.lacks_ranks = true;
    for (int version : {0, 22304}) {
        view.groups[ng_view_find_group(&view, WORLD)].nccl_version = version;
        EXPECT_FALSE(is_awaited()) << version;
    }
    EXPECT_EQ(witness.questions, 0u);
    view.groups[ng_view_find_group(&view, WORLD)].nccl_version = 22403;
    EXPECT_TRUE(is_awaited());
    EXPECT_EQ(witness.questions, 1u);
}

TEST_F(RasWitness, AnotherJobIsAskedAFewTimes)
{
    see(0);
    witness.pid = -1;
    wait();
    EXPECT_EQ(witness.questions, 9u);
}
