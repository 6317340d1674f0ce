/*
 * Deadlines: who has the last word on one, what an extension is for, and when a clock rests.
 */
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"

#define _Atomic
extern "C" {
#include "core/comm/deadline.h"
}
#undef _Atomic

namespace
{

constexpr int64_t S = NG_S, CONFIGURED = 600 * S, INIT = 300 * S, SUSPECT = 5 * S, COLD = 30 * S;

struct Deadline : testing::Test {
    Deadline()
    {
        [[maybe_unused]] static const bool begun = (made_begin(64), true);
        made_configure_deadlines(CONFIGURED, INIT, SUSPECT, COLD);
        group_ = make(0), other_ = make(1);
    }
    ~Deadline() override
    {
        ng_deadline_resume(0);
        ng_deadline_after_fork();
        for (int i = 0; i < 2; i++)
            made_destroy(0, handles_[i], 0);
    }

    int64_t timeout(ng_op op = NG_OP_AllReduce) const
    {
        return ng_deadline_timeout(comm(), op);
    }
    struct ng_comm *comm(int i = 0) const
    {
        return made_comm(handles_[i]);
    }
    static uint64_t make(int i)
    {
        made_init(0, handles_[i], 2, 0, nullptr, 0);
        return group_of(handles_[i]).id;
    }

    uint64_t group_, other_;
    static char handles_[3][64];
};
char Deadline::handles_[3][64];

std::unique_ptr<ng_deadline_limits> limits()
{
    return std::make_unique<ng_deadline_limits>();
}

} // namespace

TEST_F(Deadline, WithoutARuleTheConfigurationHolds)
{
    EXPECT_EQ(timeout(), CONFIGURED);
    EXPECT_EQ(timeout(NG_OP_NONE), CONFIGURED);
    EXPECT_EQ(timeout(NG_OP_CommSplit), INIT);
    EXPECT_EQ(timeout(NG_OP_CommDestroy), INIT);
    EXPECT_EQ(ng_deadline_timeout(nullptr, NG_OP_GroupEnd), CONFIGURED);
    EXPECT_EQ(ng_deadline_timeout(nullptr, (ng_op)NG_OP_LIMIT), CONFIGURED);
    EXPECT_EQ(ng_deadline_suspect(comm(), NG_OP_AllReduce, false), SUSPECT);
    EXPECT_FALSE(ng_deadline_rests(comm()));
    EXPECT_EQ(ng_deadline_policy(group_, NG_OP_AllReduce), ng_deadline_policy(0, NG_OP_NONE));
}

TEST_F(Deadline, ARuleHoldsForItsCommunicatorAndOperationAlone)
{
    auto said = limits();
    said->timeout_ns[NG_OP_AllReduce] = 2 * S;
    said->suspect_ns[NG_OP_Broadcast] = NG_DEADLINE_NONE;
    said->policy[NG_OP_AllReduce] = 1;
    ng_deadline_limit(comm(), said.get());
    EXPECT_EQ(timeout(), 2 * S);
    EXPECT_EQ(timeout(NG_OP_Broadcast), CONFIGURED);
    EXPECT_EQ(ng_deadline_suspect(comm(), NG_OP_Broadcast, false), 0);
    EXPECT_EQ(ng_deadline_policy(group_, NG_OP_AllReduce), 0);
    for (ng_op op : {NG_OP_NONE, NG_OP_Broadcast, (ng_op)NG_OP_LIMIT})
        EXPECT_EQ(ng_deadline_policy(group_, op), ng_deadline_policy(0, op)) << op;
    EXPECT_EQ(ng_deadline_timeout(comm(1), NG_OP_AllReduce), CONFIGURED);
    EXPECT_NE(ng_deadline_policy(other_, NG_OP_AllReduce), 0);
    ng_deadline_limit(comm(), limits().get());
    EXPECT_EQ(timeout(), CONFIGURED);
}

TEST_F(Deadline, CallsInWhichRanksAreConnectedAreSuspectLater)
{
    EXPECT_EQ(ng_deadline_suspect(comm(), NG_OP_AllReduce, true), COLD);
    for (ng_op op : {NG_OP_CommInitRank, NG_OP_CommSplit})
        EXPECT_EQ(ng_deadline_suspect(nullptr, op, false), COLD);
    EXPECT_EQ(ng_deadline_suspect(comm(), NG_OP_CommDestroy, false), SUSPECT);
    auto said = limits();
    said->suspect_ns[NG_OP_AllReduce] = 2 * S;
    ng_deadline_limit(comm(), said.get());
    EXPECT_EQ(ng_deadline_suspect(comm(), NG_OP_AllReduce, true), 2 * S) << "as a rule says";
    ng_deadline_limit(comm(), limits().get());
    made_configure_deadlines(CONFIGURED, INIT, 0, COLD);
    EXPECT_EQ(ng_deadline_suspect(comm(), NG_OP_AllReduce, true), 0)
        << "no suspicions, no cold ones";
    made_configure_deadlines(CONFIGURED, INIT, SUSPECT, 0);
    EXPECT_EQ(ng_deadline_suspect(comm(), NG_OP_AllReduce, true), 0);
    EXPECT_EQ(ng_deadline_suspect(comm(), NG_OP_AllReduce, false), SUSPECT);
}

TEST_F(Deadline, WhatTheProgramSetsStandsAboveRulesButNotForInit)
{
    auto said = limits();
    said->timeout_ns[NG_OP_AllReduce] = 2 * S;
    ng_deadline_limit(comm(), said.get());
    EXPECT_EQ(ng_deadline_set_timeout(group_, 7 * S), 0);
    EXPECT_EQ(timeout(), 7 * S);
    EXPECT_EQ(timeout(NG_OP_CommSplit), INIT);
    EXPECT_EQ(ng_deadline_timeout(comm(1), NG_OP_AllReduce), CONFIGURED);
    EXPECT_EQ(ng_deadline_set_timeout(group_, 0), 0);
    EXPECT_EQ(timeout(), 0) << "no deadline at all";
}

TEST_F(Deadline, SetForAllItHoldsForThoseToComeAndEndsWhatWasSetForOne)
{
    ng_deadline_set_timeout(group_, 7 * S);
    EXPECT_EQ(ng_deadline_set_timeout(0, 9 * S), 0);
    EXPECT_EQ(timeout(), 9 * S);
    make(2);
    EXPECT_EQ(ng_deadline_timeout(comm(2), NG_OP_AllReduce), 9 * S);
    made_destroy(0, handles_[2], 0);
}

/* Deadline of call `number` on the communicator, and of `count` calls that end with it. */
#define OF_CALL(number, count) ng_deadline_of_work(comm(), NG_OP_AllReduce, number, count)

TEST_F(Deadline, TheNextCallAloneHasTheDeadlineThatTheProgramGaveIt)
{
    made_all_reduce(0, handles_[0], nullptr, 0);
    EXPECT_EQ(ng_deadline_set_timeout(group_, 7 * S), 0);
    EXPECT_EQ(ng_deadline_set_next(comm(), 2 * S), 0);
    EXPECT_EQ(OF_CALL(1, 1), 7 * S) << "the one before";
    EXPECT_EQ(OF_CALL(2, 1), 2 * S);
    EXPECT_EQ(OF_CALL(3, 1), 7 * S) << "the one after";
    EXPECT_EQ(OF_CALL(2 + NG_DEADLINE_NEXT, 1), 7 * S) << "one with the same place";
    EXPECT_EQ(OF_CALL(4, 3), 2 * S) << "an NCCL group that includes it";
    EXPECT_EQ(OF_CALL(4, 2), 7 * S);
    EXPECT_EQ(OF_CALL(101, 100), 2 * S) << "of any size";
    EXPECT_EQ(OF_CALL(102, 100), 7 * S);
    EXPECT_EQ(OF_CALL(0, 1), 7 * S) << "a call that is not known";
    EXPECT_EQ(ng_deadline_of_work(comm(1), NG_OP_AllReduce, 2, 1), CONFIGURED);
    EXPECT_EQ(ng_deadline_of_work(comm(), NG_OP_CommSplit, 2, 1), INIT);
    EXPECT_EQ(ng_deadline_set_next(comm(), 0), 0);
    EXPECT_EQ(OF_CALL(2, 1), 0) << "set again: none";
    EXPECT_EQ(ng_deadline_set_next(comm(), -1), -EINVAL);
}

TEST_F(Deadline, ACommunicatorInAReusedRecordHasNoneOfTheFormersCalls)
{
    EXPECT_EQ(ng_deadline_set_next(comm(), 2 * S), 0);
    EXPECT_EQ(OF_CALL(1, 1), 2 * S);
    ng_deadline_begin(comm());
    EXPECT_EQ(OF_CALL(1, 1), CONFIGURED);
}

TEST_F(Deadline, MoreCallsInFlightThanHaveRoomAreRefusedADeadlineOfTheirOwn)
{
    made_calls.held = true;
    for (unsigned i = 0; i < NG_DEADLINE_NEXT; i++) {
        EXPECT_EQ(ng_deadline_set_next(comm(), (i + 1) * S), 0) << i;
        made_all_reduce(0, handles_[0], nullptr, 0);
    }
    EXPECT_EQ(ng_deadline_set_next(comm(), S), -ENOSPC);
    for (unsigned i = 0; i < NG_DEADLINE_NEXT; i++)
        EXPECT_EQ(OF_CALL(i + 1, 1), (i + 1) * S);
    made_calls.held = false;
    EXPECT_TRUE(made_await_completed(handles_[0], NG_DEADLINE_NEXT));
}

/* The sends on a stream are one work, whose numbers are not in a row. */
TEST_F(Deadline, InAGroupThatTakesTurnsBetweenStreamsACallHasTheDeadlineOfItsOwn)
{
    void *const streams[] = {made_stream(0), nullptr};
    const auto &shown = made_box()->groups[group_of(handles_[0]).slot].timeout_ns;

    made_calls.held = true;
    made_group_start(0);
    EXPECT_EQ(ng_deadline_set_next(comm(), 100 * S), 0);
    for (unsigned i : {0, 1, 1, 0})
        made_send(0, handles_[0], streams[i], 1, 0);
    made_group_end(0, 0);
    /* A round that begins now sees the first work, and the next one is over with it. */
    int64_t age = 0, until = ng_clock_mono_ns() + 10 * S;
    for (int rounds = 0; rounds < 2; age = group_of(handles_[0]).pending_age_ns) {
        rounds += group_of(handles_[0]).pending_age_ns > age;
        ASSERT_LT(ng_clock_mono_ns(), until) << "late";
    }
    EXPECT_EQ(__atomic_load_n(&shown, __ATOMIC_RELAXED), 100 * S);
    made_calls.held = false;
    while (group_of(handles_[0]).pending_record)
        ASSERT_LT(ng_clock_mono_ns(), until) << "late";
}

TEST_F(Deadline, WhatCannotBeMeantIsRefused)
{
    EXPECT_EQ(ng_deadline_set_timeout(~group_, S), -ENOENT);
    EXPECT_EQ(ng_deadline_set_timeout(group_, -1), -EINVAL);
    EXPECT_EQ(ng_deadline_extend(~group_, S), -ENOENT);
    EXPECT_EQ(ng_deadline_extend(group_, -1), -EINVAL);
    EXPECT_EQ(ng_deadline_rest_begin(~group_), -ENOENT);
    EXPECT_EQ(ng_deadline_rest_end(group_), -EPERM);
    EXPECT_EQ(ng_deadline_rest_end(0), -EPERM);
}

TEST_F(Deadline, AnExtensionIsForWhatIsPendingWhenItIsAskedFor)
{
    int64_t entered = ng_clock_mono_ns(), mark = ng_deadline_mark(comm(), entered);
    EXPECT_EQ(ng_deadline_extend(group_, 10 * S), 0);
    EXPECT_EQ(ng_deadline_extension(comm(), mark), 10 * S);
    EXPECT_EQ(ng_deadline_extend(0, 5 * S), 0);
    EXPECT_EQ(ng_deadline_extension(comm(), mark), 15 * S);
    /* Entered before the newest, but seen by the watchdog only now. */
    EXPECT_EQ(ng_deadline_extension(comm(), ng_deadline_mark(comm(), entered)), 5 * S);
    int64_t later = ng_deadline_mark(comm(), ng_clock_mono_ns() + 1);
    EXPECT_EQ(ng_deadline_extension(comm(), later), 0);
    EXPECT_EQ(ng_deadline_extension(nullptr, ng_deadline_mark(nullptr, entered)), 5 * S);
}

TEST_F(Deadline, PhasesNestAndAreOfOneGroupOrOfAll)
{
    EXPECT_EQ(ng_deadline_rest_begin(group_), 0);
    EXPECT_EQ(ng_deadline_rest_begin(0), 0);
    EXPECT_TRUE(ng_deadline_rests(comm(1)));
    EXPECT_TRUE(ng_deadline_rests(nullptr));
    EXPECT_EQ(ng_deadline_rest_end(0), 0);
    EXPECT_TRUE(ng_deadline_rests(comm()));
    EXPECT_TRUE(group_of(handles_[0]).rests);
    EXPECT_FALSE(ng_deadline_rests(comm(1)));
    EXPECT_FALSE(group_of(handles_[1]).rests);
    EXPECT_EQ(ng_deadline_rest_end(group_), 0);
    EXPECT_FALSE(ng_deadline_rests(comm()));
}

TEST_F(Deadline, ASuspensionHoldsUntilItIsLiftedOrItsTimeIsOver)
{
    EXPECT_EQ(ng_deadline_suspend(0, INT64_MAX), 0);
    make(2);
    EXPECT_TRUE(group_of(handles_[2]).rests) << "one that was made later";
    ng_deadline_expire_suspensions(INT64_MAX - 1);
    EXPECT_TRUE(ng_deadline_rests(comm()));
    ng_deadline_resume(0);
    EXPECT_FALSE(group_of(handles_[2]).rests);
    int64_t until = ng_clock_mono_ns() + 1000 * S;
    EXPECT_EQ(ng_deadline_suspend(group_, until), 0);
    EXPECT_TRUE(ng_deadline_rests(comm()));
    EXPECT_FALSE(ng_deadline_rests(comm(1)));
    ng_deadline_expire_suspensions(until - 1);
    EXPECT_TRUE(ng_deadline_rests(comm()));
    ng_deadline_expire_suspensions(until);
    EXPECT_FALSE(group_of(handles_[0]).rests);
    made_destroy(0, handles_[2], 0);
}

TEST_F(Deadline, ARestWithOthersIsNoReasonForOthersAndShortensNoOrder)
{
    EXPECT_EQ(ng_deadline_rest_with_others(group_), 0);
    EXPECT_TRUE(ng_deadline_rests(comm()));
    EXPECT_EQ(group_of(handles_[0]).rests, (uint32_t)NG_REST_WITH_OTHERS);
    EXPECT_EQ(ng_deadline_suspend(group_, INT64_MAX), 0);
    EXPECT_EQ(group_of(handles_[0]).rests, (uint32_t)NG_REST_OWN);
    EXPECT_EQ(ng_deadline_rest_with_others(group_), 0);
    ng_deadline_expire_suspensions(ng_clock_mono_ns() + 1000 * S);
    EXPECT_EQ(group_of(handles_[0]).rests, (uint32_t)NG_REST_OWN);
    ng_deadline_resume(0);
    EXPECT_FALSE(ng_deadline_rests(comm()));
}

TEST_F(Deadline, ARestWithOthersReplacesNoOrderHoweverShort)
{
    int64_t until = ng_clock_mono_ns() + S;
    EXPECT_EQ(ng_deadline_suspend(group_, until), 0);
    EXPECT_EQ(ng_deadline_rest_with_others(group_), 0);
    EXPECT_EQ(group_of(handles_[0]).rests, (uint32_t)NG_REST_OWN);
    ng_deadline_expire_suspensions(until);
    EXPECT_FALSE(ng_deadline_rests(comm()));
}

TEST_F(Deadline, ARestWithOthersIsProlongedAndNeverShortened)
{
    constexpr int64_t REST = 10 * S;
    EXPECT_EQ(ng_deadline_rest_with_others(group_), 0);
    int64_t begun = ng_clock_mono_ns();
    while (ng_clock_mono_ns() == begun)
        ;
    EXPECT_EQ(ng_deadline_rest_with_others(group_), 0);
    ng_deadline_expire_suspensions(begun + REST);
    EXPECT_TRUE(ng_deadline_rests(comm())) << "the second began later";
    ng_deadline_expire_suspensions(ng_clock_mono_ns() + REST);
    EXPECT_FALSE(ng_deadline_rests(comm()));
}

/* A child of a process with threads that starts its own: not under the sanitizers, whose allocators
 * keep for ever a lock that another thread had at the fork. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST_F(Deadline, AForkedChildHasNothingOfItsParents)
{
    EXPECT_EQ(ng_deadline_suspend(0, INT64_MAX), 0);
    EXPECT_EQ(ng_deadline_suspend(group_, INT64_MAX), 0);
    EXPECT_EQ(ng_deadline_set_timeout(0, 9 * S), 0);
    EXPECT_EQ(ng_deadline_rest_begin(0), 0);
    EXPECT_EQ(in_child([&] {
                  made_fork_child();
                  made_init(0, handles_[2], 2, 0, nullptr, 0);
                  if (ng_deadline_rests(nullptr) || group_of(handles_[2]).rests)
                      return 1;
                  return ng_deadline_timeout(comm(2), NG_OP_AllReduce) == CONFIGURED ? 0 : 2;
              }),
              0);
    EXPECT_TRUE(ng_deadline_rests(comm())) << "the parent's are as they were";
    EXPECT_EQ(timeout(), 9 * S);
}
#endif

TEST_F(Deadline, SuspensionsOfSingleGroupsAreBoundedAndReused)
{
    for (uint64_t id = 1; id <= 64; id++)
        ASSERT_EQ(ng_deadline_suspend(id, INT64_MAX), 0);
    EXPECT_EQ(ng_deadline_suspend(65, INT64_MAX), -ENOSPC);
    EXPECT_EQ(ng_deadline_suspend(64, INT64_MAX), 0) << "again";
    ng_deadline_resume(1);
    EXPECT_EQ(ng_deadline_suspend(group_, INT64_MAX), 0);
    EXPECT_TRUE(ng_deadline_rests(comm()));
    ng_deadline_resume(0);
    EXPECT_FALSE(ng_deadline_rests(comm()));
}
