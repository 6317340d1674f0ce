/*
 * Verdicts on calls in which the ranks of a group wait for each other on the host.
 */
#include "tests/unit/core/helpers/job.h"

namespace
{

constexpr uint64_t WORLD = 0x1;

int index_of(enum ng_op op)
{
    return ng_op_joint_call(op);
}

/* Ranks in their second such call. */
Job waiting_job(enum ng_op op, const std::vector<int> &inside, int ranks = 4)
{
    Job job(ranks, WORLD, "dp", 3);
    for (int rank = 0; rank < ranks; rank++)
        job.at(WORLD, rank).host_calls.entered[index_of(op)] = 1;
    for (int rank : inside) {
        job.at(WORLD, rank).host_calls.entered[index_of(op)] = 2;
        job.inside(rank, op, WORLD);
    }
    return job;
}

const enum ng_op JOINT[] = {NG_OP_CommWindowRegister, NG_OP_CommWindowDeregister,
                            NG_OP_DevCommCreate,      NG_OP_DevCommDestroy,
                            NG_OP_CommSuspend,        NG_OP_CommResume};

} // namespace

TEST(HostCalls, ARankThatDidNotComeIsNamed)
{
    for (enum ng_op op : JOINT) {
        Job job = waiting_job(op, {0, 1, 3});
        bool meets = ng_op_table[op].fields & NG_F_MEETS;
        Judgement judgement =
            expect_verdict(job, NG_KIND_MISSING_RANK, {2},
                           meets ? NG_CONFIDENCE_CERTAIN : NG_CONFIDENCE_LIKELY, {0, 1, 3});
        EXPECT_EQ(judgement.op, op);
        judgement.because(std::string("is alive but never called ") + ng_op_name(op));
    }
}

TEST(HostCalls, ARankThatHasLeftTheCallIsNotNeededWhateverBecameOfIt)
{
    for (enum ng_life life : {NG_LIFE_DEAD, NG_LIFE_EXITED, NG_LIFE_STOPPED}) {
        Job job = waiting_job(NG_OP_CommWindowRegister, {0, 1});
        job.at(WORLD, 3).host_calls.entered[0] = 2; /* through */
        job.process(3).life = life;
        expect_verdict(job, NG_KIND_MISSING_RANK, {2});
    }
}

TEST(HostCalls, ARankThatDiedBeforeOrInsideIsTheReason)
{
    for (bool inside : {false, true}) {
        Job job = inside ? waiting_job(NG_OP_DevCommCreate, {0, 1, 2, 3})
                         : waiting_job(NG_OP_DevCommCreate, {0, 1, 3});
        job.process(2).life = NG_LIFE_DEAD;
        expect_verdict(job, NG_KIND_DEAD_RANK, {2})
            .because(inside ? "inside DevCommCreate" : "before DevCommCreate");
    }
}

TEST(HostCalls, AFrozenRankIsTheReason)
{
    Job job = waiting_job(NG_OP_CommSuspend, {0, 1, 3});
    job.process(2).life = NG_LIFE_STOPPED;
    expect_verdict(job, NG_KIND_STOPPED_RANK, {2});
}

/* Counted one by one: a rank may give a window back before or after it registers another. */
TEST(HostCalls, TheOrderOfDifferentCallsDoesNotMatter)
{
    Job job = waiting_job(NG_OP_CommWindowRegister, {0, 1, 3});
    for (int rank : {0, 2})
        job.at(WORLD, rank).host_calls.entered[index_of(NG_OP_CommWindowDeregister)] = 5;
    expect_verdict(job, NG_KIND_MISSING_RANK, {2});
}

TEST(HostCalls, InAnNcclGroupARankWaitsWhereItCloses)
{
    Job job = waiting_job(NG_OP_CommWindowRegister, {});
    for (int rank : {0, 1, 3}) {
        Member &member = job.at(WORLD, rank);
        member.host_calls.entered[0] = 2;
        member.host_calls.op = NG_OP_CommWindowRegister;
        member.host_calls.tid = 1;
        job.inside(rank, NG_OP_GroupEnd, WORLD, 0, LONG_AGO, 1);
    }
    Judgement judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2}, {}, {0, 1, 3});
    EXPECT_EQ(judgement.op, NG_OP_CommWindowRegister);

    /* It made the call, but has not closed the group. */
    Member &open = job.at(WORLD, 2);
    open.host_calls = job.at(WORLD, 0).host_calls;
    open.host_calls.open = true;
    judgement = expect_verdict(job, NG_KIND_MISSING_RANK, {2});
    judgement.because("has not reached ncclGroupEnd");
}

TEST(HostCalls, WhereAllHaveComeNobodyIsNamed)
{
    Job job = waiting_job(NG_OP_CommResume, {0, 1, 2, 3});
    Judgement judgement = judge(job);
    expect_kind(judgement, NG_KIND_UNKNOWN);
    EXPECT_EQ(judgement.culprits, std::vector<int>{});
}

TEST(HostCalls, OfTwoCallsOfOneCommunicatorTheRarerIsWrong)
{
    Job job = waiting_job(NG_OP_CommWindowRegister, {0, 1, 3});
    job.at(WORLD, 2).waits();
    Judgement judgement = judge(job);
    expect_kind(judgement, NG_KIND_MISMATCH);
    EXPECT_EQ(judgement.culprits, std::vector<int>{2});
    EXPECT_EQ(judgement.whys.at(0),
              "called AllReduce #4 where the others called CommWindowRegister");

    Job other = waiting_job(NG_OP_CommWindowRegister, {0, 1, 3});
    other.at(WORLD, 2).host_calls.entered[index_of(NG_OP_DevCommCreate)] = 1;
    other.inside(2, NG_OP_DevCommCreate, WORLD);
    judgement = judge(other);
    expect_kind(judgement, NG_KIND_MISMATCH);
    EXPECT_EQ(judgement.culprits, std::vector<int>{2});
}

/* Ranks do not make it equally often: what it waits for is that their processes answer. */
TEST(HostCalls, ADeregistrationWaitsForProcessesAlone)
{
    Job job(3, WORLD, "dp", 3);
    job.inside(0, NG_OP_CommDeregister, WORLD);
    expect_kind(judge(job), NG_KIND_UNKNOWN);
    job.process(2).life = NG_LIFE_STOPPED;
    expect_verdict(job, NG_KIND_STOPPED_RANK, {2}, {}, {0});
}

/* Without a deadline of its own: the one that aborted never comes. */
TEST(HostCalls, FromNccl2312OnADestroyWaitsForARankThatHasAborted)
{
    for (int version : {23004, 23102}) {
        Job job(3, WORLD, "dp", 3);
        for (int rank : {0, 1}) {
            job.at(WORLD, rank).nccl_version = version;
            job.inside(rank, NG_OP_CommDestroy, WORLD);
        }
        job.at(WORLD, 2).nccl_version = version;
        job.at(WORLD, 2).state = NG_GROUP_ABORTED;
        Judgement judgement = judge(job);
        if (version < 23102) {
            expect_kind(judgement, NG_KIND_UNKNOWN);
            continue;
        }
        expect_verdict(job, NG_KIND_MISSING_RANK, {2}, {}, {0, 1});
        judgement.because("aborted its communicator");
    }
}
