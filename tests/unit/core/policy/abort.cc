/*
 * Communicators aborted from outside: what the program's calls return then, what reaches NCCL and
 * what does not, aborts that hang, and calls that race with them.
 */
#include "tests/gtest/in_time.h"
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"

#include <sched.h>

#include <condition_variable>
#include <fstream>
#include <mutex>

#include <nccl.h>

namespace
{

constexpr int OK = ncclSuccess, BROKEN = ncclSystemError;
constexpr char REASON[] = "an order of ncclguard abort";
constexpr int64_t LONG_MS = 20000;
enum { NONE, RETURNED, UNDER_WAY, STUCK };                        /* enum ng_abort_state */
enum { LIVES, PROGRAM_ENDS, HELD, CONDEMNED, ABORTING, ABORTED }; /* enum ng_comm_fate */
constexpr auto PATIENCE = std::chrono::seconds(20);

struct made_call call_of(unsigned op, void *comm, int *answer = nullptr, void **new_comm = nullptr)
{
    struct made_call what = {
        .op = op, .comm = comm, .stream = made_stream(0), .answer = answer, .new_comm = new_comm};
    return what;
}

/* A thread that is inside NCCL, in a call, until it is let out. */
class Inside
{
  public:
    Inside(unsigned op, void *comm, void **new_comm = nullptr, std::function<void()> on_entry = {})
        : on_entry_(on_entry), thread_([this, op, comm, new_comm] {
              int answer;
              struct made_call what = call_of(op, comm, &answer, new_comm);
              what.inside = [](void *self) { return static_cast<Inside *>(self)->stay(); };
              what.argument = this;
              returned_ = made_call(0, &what);
          })
    {
        std::unique_lock lock(mutex_);
        EXPECT_TRUE(changed_.wait_for(lock, PATIENCE, [&] { return entered_; }));
    }
    ~Inside()
    {
        if (thread_.joinable())
            leave(OK);
    }
    /* With this result of NCCL. Returns what the program gets. */
    int leave(int result)
    {
        {
            std::lock_guard lock(mutex_);
            result_ = result;
            out_ = true;
            changed_.notify_all();
        }
        thread_.join();
        return returned_;
    }

  private:
    int stay()
    {
        if (on_entry_)
            on_entry_();
        std::unique_lock lock(mutex_);
        entered_ = true;
        changed_.notify_all();
        EXPECT_TRUE(changed_.wait_for(lock, PATIENCE, [&] { return out_; }));
        return result_;
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool entered_ = false, out_ = false;
    int result_ = OK, returned_ = -1;
    std::function<void()> on_entry_;
    std::thread thread_;
};

bool has_returned()
{
    return becomes([] { return made_abort_state() == RETURNED; });
}

/* A group, or all (0): ordered, and done. */
bool is_aborted(uint64_t group, const char *reason = REASON, int64_t bound_ms = LONG_MS)
{
    EXPECT_EQ(made_abort(group, reason, bound_ms), 0);
    return has_returned();
}

bool has_fate(const void *comm, uint32_t fate)
{
    return becomes([&] { return group_of(comm).fate == fate; });
}

struct Abort : testing::Test {
    Abort()
    {
        static bool begun;
        if (!begun) {
            std::ofstream(log_path()).flush(); /* there from the first test on */
            ng_log_init(NG_LOG_DEBUG, log_path().c_str(), 0);
            made_begin(64);
        }
        begun = true;
        log_begun_ = read_whole_file(log_path()).size();
        made_set_version(0, 22809);
        made_set_version(1, 22809);
    }
    void TearDown() override
    {
        made_calls.held = false;
        made_release_recorded();
        made_calls.aborts_held = false;
        made_calls.answers_held = false;
        made_set_async_error(nullptr, OK);
        made_calls.on_abort = nullptr;
        for (auto &[comm, library] : comms_)
            call(library, NG_OP_CommDestroy, comm);
        EXPECT_TRUE(becomes([] { return made_abort_state() <= RETURNED; }));
    }

    /* One for all tests, from before the guard has threads: the log is not to change under theirs.
     */
    static std::string log_path()
    {
        static const Folder folder;
        return folder / "log";
    }
    /* What was written since the test began; perhaps with the last words of the one before. */
    std::string log() const
    {
        return read_whole_file(log_path()).substr(log_begun_);
    }

    void *init(unsigned library, void *at = nullptr)
    {
        void *comm = at ? at : made_handle();
        made_init(library, comm, 2, 0, nullptr, OK);
        comms_[comm] = library;
        return comm;
    }
    static int call(unsigned library, unsigned op, void *comm, int *answer = nullptr)
    {
        struct made_call what = call_of(op, comm, answer);
        return made_call(library, &what);
    }
    static int split(void *comm, void **child)
    {
        struct made_call what = call_of(NG_OP_CommSplit, comm, nullptr, child);
        return made_call(0, &what);
    }

    std::map<void *, unsigned> comms_;

    size_t log_begun_;
};

} // namespace

TEST_F(Abort, AfterwardsNoCallReachesNcclAndEachGetsItsAnswer)
{
    void *comm = init(0), *child = nullptr;
    ASSERT_TRUE(is_aborted(group_of(comm).id));
    EXPECT_EQ(made_aborts(comm), 1u);
    EXPECT_EQ(group_of(comm).state, (uint32_t)NG_GROUP_ABORTED);
    unsigned reached = made_calls.reached;
    int answer = -1;
    for (int round = 0; round < 2; round++) {
        for (unsigned op : {NG_OP_AllReduce, NG_OP_Send, NG_OP_Recv, NG_OP_PutSignal})
            EXPECT_EQ(call(0, op, comm), BROKEN) << ng_op_name(op);
        EXPECT_EQ(call(0, NG_OP_CommGetAsyncError, comm, &answer), OK);
        EXPECT_EQ(answer, BROKEN);
        EXPECT_EQ(call(0, NG_OP_CommGetAsyncError, comm, nullptr), (int)ncclInvalidArgument);
        EXPECT_EQ(made_passed(comm), BROKEN);
        EXPECT_STREQ(made_last_error(comm), REASON);
        EXPECT_EQ(split(comm, &child), BROKEN);
        EXPECT_EQ(child, nullptr);
        for (unsigned op :
             {NG_OP_CommFinalize, NG_OP_CommRevoke, NG_OP_CommAbort, NG_OP_CommDestroy})
            EXPECT_EQ(call(0, op, comm), OK) << ng_op_name(op);
    }
    EXPECT_EQ(made_calls.reached, reached);
    EXPECT_EQ(made_aborts(comm), 1u);
    EXPECT_EQ(group_of(comm).entered, 0u) << "no other rank counts calls that did not happen";
}

TEST_F(Abort, OnlyTheGroupThatIsNamedIsAborted)
{
    void *comm = init(0), *other = init(0);
    ASSERT_TRUE(is_aborted(group_of(comm).id));
    EXPECT_EQ(made_aborts(other), 0u);
    EXPECT_EQ(call(0, NG_OP_AllReduce, other), OK);
    EXPECT_EQ(made_passed(other), -1);
    EXPECT_EQ(made_last_error(other), nullptr);
    EXPECT_EQ(made_abort(group_of(comm).id, REASON, LONG_MS), -ENOENT);
    EXPECT_EQ(made_abort(12345, REASON, LONG_MS), -ENOENT);
}

TEST_F(Abort, APeerThatWasTheCauseIsARemoteError)
{
    void *comm = init(0), *old = init(1), *local = init(0);
    made_set_version(1, 21200);
    for (auto [aborted, library, reason, result] :
         {std::tuple{comm, 0u, "dead_rank: rank 3 died", (int)ncclRemoteError},
          {old, 1u, "dead_rank: rank 3 died", BROKEN},
          {local, 0u, "gpu_stall: AllReduce #3", BROKEN}}) {
        ASSERT_TRUE(is_aborted(group_of(aborted).id, reason));
        EXPECT_EQ(call(library, NG_OP_AllReduce, aborted), result) << reason;
    }
}

/* The words are for people. */
TEST_F(Abort, WhatCallsReturnComesFromTheKindOfTheVerdictAlone)
{
    void *first = init(0), *second = init(0);
    ASSERT_EQ(made_abort_for(group_of(first).id, NG_KIND_DEAD_RANK, "a rank died", LONG_MS), 0);
    ASSERT_TRUE(has_returned());
    EXPECT_EQ(call(0, NG_OP_AllReduce, first), (int)ncclRemoteError);
    ASSERT_EQ(made_abort_for(group_of(second).id, NG_KIND_HEALTHY, "dead_rank: a person's words",
                             LONG_MS),
              0);
    ASSERT_TRUE(has_returned());
    EXPECT_EQ(call(0, NG_OP_AllReduce, second), BROKEN);
}

TEST_F(Abort, AllOfALibraryGoIntoOneGroupWhereItsVersionAllows)
{
    void *first = init(0), *second = init(0), *old = init(1), *older = init(1);
    made_set_version(1, 22105);
    ASSERT_TRUE(is_aborted(0));
    EXPECT_NE(made_abort_group(first), 0u);
    EXPECT_EQ(made_abort_group(first), made_abort_group(second));
    EXPECT_EQ(made_abort_group(old), 0u);
    EXPECT_EQ(made_abort_group(older), 0u);
    for (void *comm : {first, second, old, older})
        EXPECT_EQ(made_aborts(comm), 1u);
}

TEST_F(Abort, AHandleThatNcclGivesAgainIsAlive)
{
    void *comm = init(0);
    for (int round = 1; round <= 3; round++) {
        ASSERT_TRUE(is_aborted(0));
        EXPECT_EQ(call(0, NG_OP_AllReduce, comm), BROKEN);
        EXPECT_EQ(made_aborts(comm), (unsigned)round);
        init(0, comm);
        EXPECT_EQ(call(0, NG_OP_AllReduce, comm), OK);
        EXPECT_EQ(made_passed(comm), -1);
    }
    unsigned reached = made_calls.reached;
    EXPECT_EQ(call(0, NG_OP_CommDestroy, comm), OK);
    EXPECT_EQ(made_calls.reached, reached + 1) << "this one is NCCL's to destroy";
    comms_.clear();
}

TEST_F(Abort, AThreadThatIsBlockedInACallDoesNotKeepItBack)
{
    for (unsigned op : {NG_OP_AllReduce, NG_OP_CommFinalize, NG_OP_CommGetAsyncError}) {
        void *comm = init(0);
        Inside inside(op, comm);
        EXPECT_TRUE(is_aborted(0));
        EXPECT_EQ(inside.leave(ncclInternalError), (int)ncclInternalError)
            << "NCCL's own error is the program's";
        EXPECT_EQ(call(0, NG_OP_AllReduce, comm), BROKEN);
    }
}

TEST_F(Abort, AThreadInsideNcclHasAQuarterOfASecondToLeave)
{
    static std::atomic<int64_t> aborted_ns;
    void *comm = init(0);
    Inside inside(NG_OP_AllReduce, comm);
    made_calls.on_abort = [](void *) { aborted_ns = ng_clock_mono_ns(); };
    int64_t begun_ns = ng_clock_mono_ns();
    EXPECT_TRUE(is_aborted(0));
    EXPECT_GE(aborted_ns - begun_ns, 250 * NG_MS);
    inside.leave(OK);
}

/* On its way out it reads what NCCL would free. */
TEST_F(Abort, ItEndsOnceAThreadInsideHasLeftWhereTheVersionAllows)
{
    for (unsigned version : {22809u, 22105u}) {
        static std::atomic<bool> aborted;
        void *comm = init(0);
        made_set_version(0, version);
        made_calls.freed_under = 0;
        aborted = false;
        made_calls.on_abort = [](void *) { aborted = true; };
        Inside inside(NG_OP_CommWindowRegister, comm);
        std::thread leaves([&] {
            while (!aborted)
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            inside.leave(ncclInternalError);
        });
        EXPECT_TRUE(is_aborted(0));
        leaves.join();
        EXPECT_EQ(made_calls.freed_under, version < 22200 ? 1u : 0u);
        EXPECT_EQ(made_aborts(comm), 1u);
    }
}

TEST_F(Abort, WorkInFlightIsFailedAndNoLongerPending)
{
    void *comm = init(0);
    made_all_reduce(0, comm, made_stream(0), OK);
    ASSERT_TRUE(made_await_completed(comm, 1));
    made_calls.held = true;
    made_all_reduce(0, comm, made_stream(0), OK);
    ASSERT_TRUE(becomes([&] { return group_of(comm).pending_record != 0; }));
    /* As on a device: the abort ends the kernel, and the event behind it is reached. */
    made_calls.on_abort = [](void *) { made_calls.held = false; };
    ASSERT_TRUE(is_aborted(0));
    EXPECT_TRUE(becomes([&] { return group_of(comm).pending_record == 0; }));
    EXPECT_EQ(group_of(comm).completed, 1u) << "there is garbage in its buffers";
    EXPECT_EQ(made_newest_record().state, (uint32_t)NG_RECORD_FAILED);
    EXPECT_EQ(made_newest_record().result, BROKEN);
}

TEST_F(Abort, WhatTheProgramEndsItselfIsLeftToIt)
{
    for (unsigned op : {NG_OP_CommDestroy, NG_OP_CommAbort}) {
        void *comm = init(0), *other = init(0);
        Inside inside(op, comm);
        EXPECT_TRUE(is_aborted(0));
        EXPECT_EQ(made_aborts(other), 1u);
        EXPECT_EQ(made_aborts(comm), 0u);
        EXPECT_EQ(inside.leave(OK), OK);
        comms_.erase(comm);
    }
}

TEST_F(Abort, AnEndThatNcclRefusesLeavesTheCommunicatorToTheGuard)
{
    void *comm = init(0);
    Inside inside(NG_OP_CommDestroy, comm);
    EXPECT_EQ(inside.leave(ncclInvalidArgument), (int)ncclInvalidArgument);
    EXPECT_TRUE(is_aborted(0));
    EXPECT_EQ(made_aborts(comm), 1u);
}

TEST_F(Abort, TheProgramsDestroyWaitsForTheGuardsAbort)
{
    void *comm = init(0);
    std::atomic<bool> destroyed{false};
    made_calls.aborts_held = true;
    ASSERT_EQ(made_abort(0, REASON, LONG_MS), 0);
    ASSERT_TRUE(has_fate(comm, ABORTING));
    std::thread ending([&] {
        EXPECT_EQ(call(0, NG_OP_CommDestroy, comm), OK);
        EXPECT_EQ(group_of(comm).fate, (uint32_t)ABORTED);
        destroyed = true;
    });
    EXPECT_EQ(call(0, NG_OP_AllReduce, comm), BROKEN) << "others do not wait";
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_FALSE(destroyed);
    made_calls.aborts_held = false;
    ending.join();
    EXPECT_TRUE(has_returned());
}

TEST_F(Abort, OneThatDoesNotReturnIsToldByNameAndHoldsNobody)
{
    std::string told;
    /* The time may be over before its thread is there: then it is longer, the next time. */
    for (int64_t bound_ms = 50; told.find("its turn") != std::string::npos || told.empty();
         bound_ms *= 4) {
        ASSERT_LT(bound_ms, LONG_MS) << told;
        void *comm = init(0);
        char id[32];
        made_calls.aborts_held = true;
        ASSERT_EQ(made_abort(0, REASON, bound_ms), 0);
        EXPECT_TRUE(becomes([] { return made_abort_state() == STUCK; }));
        EXPECT_EQ(call(0, NG_OP_CommDestroy, comm), OK) << "the bound is over";
        snprintf(id, sizeof(id), "%016llx", (unsigned long long)group_of(comm).id);
        std::string words = "abort_stuck: group " + std::string(id) + " (rank 0 of 2): ";
        ASSERT_TRUE(becomes([&] { return log().find(words) != std::string::npos; })) << log();
        told = log().substr(log().find(words) + words.size(), strlen("ncclCommAbort"));
        /* A later order is still carried out. */
        made_calls.aborts_held = false;
        EXPECT_TRUE(has_returned());
    }
    EXPECT_EQ(told, "ncclCommAbort");
    void *other = init(0);
    EXPECT_TRUE(is_aborted(0));
    EXPECT_EQ(made_aborts(other), 1u);
}

/* A thread that stays in NCCL is waited for twice: before the abort, and before it frees. */
TEST_F(Abort, AThreadThatStaysInsideUsesUpNoShortBound)
{
    void *comm = init(0);
    Inside inside(NG_OP_AllReduce, comm);
    int64_t begun_ns = ng_clock_mono_ns();
    ASSERT_EQ(made_abort(0, REASON, 320), 0);
    EXPECT_TRUE(has_fate(comm, ABORTED));
    EXPECT_IN_TIME(ng_clock_mono_ns() - begun_ns, 320 * NG_MS);
    inside.leave(ncclSystemError);
    EXPECT_TRUE(has_returned());
}

TEST_F(Abort, ThereIsRoomForSomeThatHang)
{
    made_calls.aborts_held = true;
    for (int i = 0; i < 4; i++) {
        void *comm = init(0);
        ASSERT_EQ(made_abort(0, REASON, 50), 0);
        ASSERT_TRUE(has_fate(comm, ABORTING));
    }
    init(0);
    EXPECT_EQ(made_abort(0, REASON, 50), -EBUSY);
    made_calls.aborts_held = false;
    EXPECT_TRUE(has_returned());
    EXPECT_EQ(made_abort(0, REASON, LONG_MS), 0);
    EXPECT_TRUE(has_returned());
}

TEST_F(Abort, AnOpenGroupIsWaitedFor)
{
    void *comm = init(0);
    static std::atomic<bool> open;
    static std::atomic<int64_t> ordered_ns;
    static const auto word = [] {
        return ng_clock_mono_ns() - ordered_ns < NG_S ? "" : "late: for a second";
    };
    open = true;
    made_calls.on_abort = [](void *) {
        EXPECT_FALSE(open) << word() << "\nNCCL would read the freed communicator";
    };
    /* One that cannot be closed any more is that of its thread alone. */
    std::thread([&] {
        made_group_start(0);
        made_all_reduce(0, comm, made_stream(0), OK);
        ordered_ns = ng_clock_mono_ns();
        EXPECT_EQ(made_abort(0, REASON, LONG_MS), 0);
        EXPECT_TRUE(becomes([&] { return group_of(comm).fate >= (uint32_t)CONDEMNED; }));
        EXPECT_EQ(call(0, NG_OP_AllReduce, comm), BROKEN);
        open = false;
        unsigned reached = made_calls.reached;
        made_group_end(0, OK);
        EXPECT_EQ(made_calls.reached, reached + 1) << word();
    }).join();
    EXPECT_TRUE(has_returned());
    EXPECT_EQ(made_aborts(comm), 1u);
}

TEST_F(Abort, ABatchThatStaysOpenIsWaitedForASecond)
{
    static std::atomic<int64_t> aborted_ns;
    void *comm = init(0);
    made_calls.on_abort = [](void *) { aborted_ns = ng_clock_mono_ns(); };
    std::thread([&] {
        made_group_start(0);
        made_all_reduce(0, comm, made_stream(0), OK);
        int64_t begun_ns = ng_clock_mono_ns();
        EXPECT_TRUE(is_aborted(0));
        EXPECT_GE(aborted_ns - begun_ns, NG_S);
    }).join();
    EXPECT_EQ(made_aborts(comm), 1u);
}

TEST_F(Abort, AGroupThatStaysOpenTooLongCanNeverBeClosed)
{
    void *comm = init(0);
    std::thread broken([&] {
        made_group_start(0);
        made_all_reduce(0, comm, made_stream(0), OK);
        ASSERT_TRUE(is_aborted(0, REASON, 100));
        EXPECT_EQ(made_aborts(comm), 1u);
        void *other = init(0);
        unsigned reached = made_calls.reached;
        EXPECT_EQ(call(0, NG_OP_GroupEnd, nullptr), BROKEN);
        EXPECT_EQ(call(0, NG_OP_GroupEnd, nullptr), BROKEN);
        EXPECT_EQ(call(0, NG_OP_GroupStart, nullptr), BROKEN);
        EXPECT_EQ(call(0, NG_OP_AllReduce, other), BROKEN);
        EXPECT_EQ(call(0, NG_OP_CommDestroy, other), BROKEN);
        EXPECT_EQ(made_calls.reached, reached);
        void *elsewhere = init(1);
        EXPECT_EQ(call(1, NG_OP_AllReduce, elsewhere), OK) << "another copy has its own groups";
    });
    broken.join();
    EXPECT_NE(log().find("NCCL cannot be used from this thread"), std::string::npos);
    EXPECT_EQ(call(0, NG_OP_GroupStart, nullptr), OK) << "nor is any other thread concerned";
    EXPECT_EQ(call(0, NG_OP_GroupEnd, nullptr), OK);
}

TEST_F(Abort, ABatchWithARefusedCallEndsWithItsErrorAndNcclLaunchesNoneOfIt)
{
    void *dead = init(0), *alive = init(0);
    ASSERT_TRUE(is_aborted(group_of(dead).id, "dead_rank: rank 3 died"));
    for (unsigned op : {NG_OP_AllReduce, NG_OP_Send, NG_OP_PutSignal}) {
        unsigned spoiled = made_calls.spoiled, reached = made_calls.reached;
        made_group_start(0);
        EXPECT_EQ(call(0, NG_OP_AllReduce, alive), OK);
        EXPECT_EQ(call(0, op, dead), (int)ncclRemoteError) << ng_op_name(op);
        EXPECT_EQ(call(0, NG_OP_AllReduce, alive), OK);
        EXPECT_EQ(made_calls.spoiled, spoiled) << "the group may be thrown away as a whole";
        EXPECT_EQ(call(0, NG_OP_GroupEnd, nullptr), (int)ncclRemoteError) << ng_op_name(op);
        EXPECT_EQ(made_calls.spoiled, spoiled + 1);
        EXPECT_EQ(made_calls.reached, reached + 4) << "NCCL closes its group";
        EXPECT_EQ(group_of(alive).entered, 0u) << "no other rank counts calls that did not happen";
        EXPECT_EQ(made_newest_record().state, (uint32_t)NG_RECORD_FAILED);
    }
    unsigned spoiled = made_calls.spoiled;
    made_group_start(0);
    EXPECT_EQ(call(0, NG_OP_AllReduce, alive), OK);
    EXPECT_EQ(call(0, NG_OP_GroupEnd, nullptr), OK) << "that was the other group's";
    EXPECT_EQ(made_calls.spoiled, spoiled);
    EXPECT_EQ(group_of(alive).entered, 1u);
}

TEST_F(Abort, OnlyTheOutermostEndOfARefusedBatchFails)
{
    void *dead = init(0);
    ASSERT_TRUE(is_aborted(0));
    for (unsigned end : {NG_OP_GroupEnd, NG_OP_GroupSimulateEnd}) {
        unsigned spoiled = made_calls.spoiled;
        made_group_start(0);
        made_group_start(0);
        EXPECT_EQ(call(0, NG_OP_AllReduce, dead), BROKEN);
        EXPECT_EQ(call(0, NG_OP_GroupEnd, nullptr), OK);
        EXPECT_EQ(made_calls.spoiled, spoiled);
        EXPECT_EQ(call(0, end, nullptr), BROKEN) << ng_op_name((enum ng_op)end);
        EXPECT_EQ(made_calls.spoiled, spoiled + 1);
        made_group_start(0);
        EXPECT_EQ(call(0, NG_OP_GroupEnd, nullptr), OK) << "once";
    }
}

TEST_F(Abort, ARefusedCallConcernsNoBatchOfAnotherThreadOrLibraryAndAQuestionNone)
{
    void *dead = init(0), *alive = init(0), *elsewhere = init(1), *child = nullptr;
    ASSERT_TRUE(is_aborted(group_of(dead).id));
    made_group_start(0);
    EXPECT_EQ(call(0, NG_OP_AllReduce, alive), OK);
    std::thread([&] { EXPECT_EQ(call(0, NG_OP_AllReduce, dead), BROKEN); }).join();
    EXPECT_EQ(call(0, NG_OP_CommGetAsyncError, dead, nullptr), (int)ncclInvalidArgument);
    EXPECT_EQ(call(0, NG_OP_CommDestroy, dead), OK);
    EXPECT_EQ(call(0, NG_OP_GroupEnd, nullptr), OK);
    made_group_start(0);
    made_group_start(1);
    EXPECT_EQ(call(1, NG_OP_AllReduce, elsewhere), OK);
    EXPECT_EQ(split(dead, &child), BROKEN);
    EXPECT_EQ(call(1, NG_OP_GroupEnd, nullptr), OK);
    EXPECT_EQ(call(0, NG_OP_GroupEnd, nullptr), BROKEN) << "its child is not there";
}

TEST_F(Abort, ABatchThatHoldsAnAbortedCommunicatorEndsWithItsError)
{
    void *comm = init(0);
    std::thread([&] {
        made_group_start(0);
        made_all_reduce(0, comm, made_stream(0), OK);
        ASSERT_TRUE(is_aborted(0, "dead_rank: rank 3 died", 100));
        EXPECT_EQ(call(0, NG_OP_GroupEnd, nullptr), (int)ncclRemoteError);
    }).join();
}

TEST_F(Abort, TheCulpritsOwnCallsDoNotBlameAPeer)
{
    for (const char *reason :
         {"missing_rank: rank 0 (host a, pid 1) is alive but never called AllReduce",
          "missing_rank: ranks 0,3 never called AllReduce"}) {
        void *comm = init(0);
        ASSERT_TRUE(is_aborted(0, reason));
        EXPECT_EQ(call(0, NG_OP_AllReduce, comm), BROKEN) << reason;
    }
}

TEST_F(Abort, WhatTheProgramHasEndedItselfNcclNeverSeesAgain)
{
    constexpr int INVALID = ncclInvalidArgument;
    for (unsigned end : {NG_OP_CommDestroy, NG_OP_CommAbort}) {
        void *comm = init(0), *alive = init(0), *child = nullptr;
        EXPECT_EQ(call(0, end, comm), OK);
        unsigned reached = made_calls.reached;
        int answer = -1;
        for (unsigned op : {NG_OP_AllReduce, NG_OP_Send, NG_OP_PutSignal})
            EXPECT_EQ(call(0, op, comm), INVALID) << ng_op_name((enum ng_op)op);
        EXPECT_EQ(call(0, NG_OP_CommGetAsyncError, comm, &answer), INVALID);
        EXPECT_EQ(made_passed(comm), INVALID);
        EXPECT_EQ(split(comm, &child), INVALID);
        for (unsigned op :
             {NG_OP_CommDestroy, NG_OP_CommAbort, NG_OP_CommFinalize, NG_OP_CommRevoke})
            EXPECT_EQ(call(0, op, comm), OK) << ng_op_name((enum ng_op)op);
        EXPECT_EQ(made_calls.reached, reached);
        ASSERT_NE(made_last_error(comm), nullptr);
        EXPECT_NE(std::string(made_last_error(comm)).find("destroyed or aborted"),
                  std::string::npos);
        EXPECT_NE(log().find("ncclAllReduce: the program has destroyed or aborted communicator"),
                  std::string::npos);

        made_group_start(0);
        EXPECT_EQ(call(0, NG_OP_AllReduce, alive), OK);
        EXPECT_EQ(call(0, NG_OP_AllReduce, comm), INVALID);
        EXPECT_EQ(call(0, NG_OP_GroupEnd, nullptr), INVALID);
        EXPECT_EQ(group_of(alive).entered, 0u);
    }
}

TEST_F(Abort, AHandleOfTheProgramsPastThatNcclGivesAgainIsAlive)
{
    void *comm = init(0);
    for (int round = 0; round < 3; round++) {
        EXPECT_EQ(call(0, NG_OP_CommAbort, comm), OK);
        EXPECT_EQ(call(0, NG_OP_AllReduce, comm), (int)ncclInvalidArgument);
        init(0, comm);
        EXPECT_EQ(call(0, NG_OP_AllReduce, comm), OK);
        EXPECT_EQ(made_passed(comm), -1);
        EXPECT_EQ(made_last_error(comm), nullptr);
    }
    /* Also while another thread is still inside the call that makes it. */
    EXPECT_EQ(call(0, NG_OP_CommDestroy, comm), OK);
    void *variable = nullptr;
    Inside inside(NG_OP_CommInitRank, nullptr, &variable,
                  [&] { __atomic_store_n(&variable, comm, __ATOMIC_RELEASE); });
    EXPECT_EQ(made_passed(comm), -1);
    unsigned reached = made_calls.reached;
    EXPECT_EQ(call(0, NG_OP_CommAbort, comm), OK);
    EXPECT_EQ(made_calls.reached, reached + 1) << "that is the way out";
    inside.leave(ncclInternalError);
}

TEST_F(Abort, AThreadThatEndsWithAnOpenGroupHoldsNothingBack)
{
    void *comm = init(0);
    std::thread([&] {
        made_group_start(0);
        made_all_reduce(0, comm, made_stream(0), OK);
    }).join();
    EXPECT_TRUE(is_aborted(0));
    EXPECT_EQ(made_aborts(comm), 1u);
}

/* Its place in the black box is the next thread's. */
TEST_F(Abort, AThreadThatEndsWithAnOpenGroupLeavesNoneToTheNext)
{
    void *comm = init(0);
    unsigned before = made_open_groups();
    std::thread([&] { made_group_start(0); }).join();
    std::thread([&] {
        made_all_reduce(0, comm, made_stream(0), OK);
        EXPECT_EQ(made_open_groups(), before);
    }).join();
}

TEST_F(Abort, ARefusedEndOfABatchHoldsNoOtherCommunicatorBack)
{
    static std::atomic<int64_t> aborted_ns;
    void *dead = init(0), *other = init(0);
    uint64_t dead_id = group_of(dead).id, other_id = group_of(other).id;
    made_calls.on_abort = [](void *) { aborted_ns = ng_clock_mono_ns(); };
    std::thread([&] {
        made_group_start(0);
        made_all_reduce(0, dead, made_stream(0), OK);
        made_all_reduce(0, other, made_stream(0), OK);
        EXPECT_TRUE(is_aborted(dead_id));
        EXPECT_NE(call(0, NG_OP_GroupSimulateEnd, nullptr), OK);
        int64_t begun_ns = ng_clock_mono_ns();
        EXPECT_TRUE(is_aborted(other_id));
        EXPECT_IN_TIME(aborted_ns - begun_ns, NG_S);
    }).join();
}

TEST_F(Abort, ABlockedInitIsAbortedByTheHandleThatNcclHasWritten)
{
    void *handle = made_handle(), *variable = handle; /* as left there by an earlier life */
    Inside inside(NG_OP_CommInitRank, nullptr, &variable, [&] {
        EXPECT_EQ(variable, nullptr) << "so that the new handle can be told from the old one";
        __atomic_store_n(&variable, handle, __ATOMIC_RELEASE);
    });
    EXPECT_TRUE(is_aborted(0));
    EXPECT_EQ(made_aborts(handle), 1u);
    EXPECT_EQ(inside.leave(ncclInternalError), (int)ncclInternalError);
    EXPECT_EQ(variable, handle);
    /* What a program does then. */
    unsigned reached = made_calls.reached;
    EXPECT_EQ(call(0, NG_OP_CommAbort, handle), OK);
    EXPECT_EQ(made_calls.reached, reached) << "it is freed already";
    EXPECT_EQ(made_passed(handle), BROKEN);
}

/* NCCL's abort ends the kernels of its communicator, and their events with them. */
TEST_F(Abort, WhatTheProgramsOwnAbortCutsOffHasNotFinished)
{
    void *comm = init(0);
    EXPECT_EQ(call(0, NG_OP_AllReduce, comm), OK);
    ASSERT_TRUE(made_await_completed(comm, 1));
    struct made_group group = group_of(comm);
    made_calls.held = true;
    EXPECT_EQ(call(0, NG_OP_AllReduce, comm), OK);
    struct made_call abort = call_of(NG_OP_CommAbort, comm);
    abort.inside = [](void *) {
        made_calls.held = false;
        EXPECT_TRUE(becomes([] { return made_newest_record().state >= NG_RECORD_COMPLETED; }));
        return OK;
    };
    EXPECT_EQ(made_call(0, &abort), OK);
    EXPECT_EQ(made_newest_record().state, (uint32_t)NG_RECORD_FAILED);
    EXPECT_EQ(made_newest_record().result, (int)ncclInternalError);
    made_group_at(group.slot, &group);
    EXPECT_EQ(group.completed, 1u);
    EXPECT_EQ(group.entered, 2u);
}

TEST_F(Abort, WhatHadFinishedBeforeTheProgramsOwnAbortHas)
{
    void *comm = init(0);
    for (uint64_t round = 1; round <= 20; round++)
        EXPECT_EQ(call(0, NG_OP_AllReduce, comm),
                  OK); /* done on the device, though nobody has looked */
    EXPECT_EQ(call(0, NG_OP_CommAbort, comm), OK);
    EXPECT_TRUE(becomes([] { return made_newest_record().state != NG_RECORD_SCHEDULED; }));
    for (unsigned back = 0; back < 20; back++)
        EXPECT_EQ(made_record_before(back).state, (uint32_t)NG_RECORD_COMPLETED) << back;
}

TEST_F(Abort, AnInitWhoseHandleIsNotThereYetIsAbortedOnceItIs)
{
    void *handle = made_handle(), *variable = nullptr;
    Inside inside(NG_OP_CommInitRank, nullptr, &variable);
    ASSERT_EQ(made_abort(0, REASON, LONG_MS), 0);
    EXPECT_EQ(made_abort_state(), UNDER_WAY);
    EXPECT_EQ(made_aborts(handle), 0u);
    __atomic_store_n(&variable, handle, __ATOMIC_RELEASE);
    EXPECT_TRUE(has_returned());
    EXPECT_EQ(made_aborts(handle), 1u);
    EXPECT_EQ(inside.leave(ncclInternalError), (int)ncclInternalError);
}

TEST_F(Abort, AnInitThatFailsByItselfIsNotAborted)
{
    void *before = made_handle(), *variable = before;
    Inside inside(NG_OP_CommInitRank, nullptr, &variable);
    ASSERT_EQ(made_abort(0, REASON, LONG_MS), 0);
    inside.leave(ncclInvalidUsage);
    EXPECT_TRUE(has_returned());
    EXPECT_EQ(made_aborts(before), 0u);
    EXPECT_EQ(variable, before) << "NCCL has not touched it";
}

TEST_F(Abort, AnInitThatSucceedsAllTheSameIsAbortedThen)
{
    void *handle = made_handle(), *variables[2] = {}; /* of both ranks that it makes */
    Inside inside(NG_OP_CommInitAll, nullptr, variables,
                  [] { EXPECT_EQ(made_abort(0, REASON, LONG_MS), 0); });
    variables[0] = handle; /* of ncclCommInitAll it is looked for at the end only */
    EXPECT_EQ(inside.leave(OK), OK);
    EXPECT_TRUE(has_returned());
    EXPECT_EQ(made_aborts(handle), 1u);
    EXPECT_EQ(call(0, NG_OP_AllReduce, handle), BROKEN);
}

TEST_F(Abort, ASplitThatWaitsIsEndedByItsParent)
{
    void *parent = init(0), *other = init(0), *child = nullptr;
    Inside inside(NG_OP_CommSplit, parent, &child);
    struct made_group group = {};
    ASSERT_TRUE(made_group_in_making(&group)) << "the child";
    ASSERT_EQ(made_abort(group.id, REASON, LONG_MS), 0);
    EXPECT_TRUE(becomes([&] { return made_aborts(parent) == 1; }));
    EXPECT_EQ(inside.leave(ncclInternalError), (int)ncclInternalError);
    EXPECT_TRUE(has_returned());
    EXPECT_EQ(made_aborts(other), 0u);
    EXPECT_EQ(call(0, NG_OP_AllReduce, parent), BROKEN);
}

TEST_F(Abort, TheProgramMayAbortWhatItIsMakingAtAnAddressThatTheGuardFreed)
{
    void *handle = init(0), *variable = nullptr;
    ASSERT_TRUE(is_aborted(0));
    Inside inside(NG_OP_CommInitRank, nullptr, &variable,
                  [&] { __atomic_store_n(&variable, handle, __ATOMIC_RELEASE); });
    unsigned reached = made_calls.reached;
    EXPECT_EQ(call(0, NG_OP_CommGetAsyncError, handle), OK);
    EXPECT_EQ(call(0, NG_OP_CommAbort, handle), OK);
    EXPECT_EQ(made_calls.reached, reached + 2);
    inside.leave(ncclInternalError);
}

TEST_F(Abort, CallsThatRaceWithItNeverReachAFreedCommunicator)
{
    /* What NCCL would do: whoever begins a call after the abort reads freed memory. */
    static std::atomic<bool> freed[4];
    static void *comms[4];
    static std::atomic<int> violations;
    struct At {
        static int begin(void *index)
        {
            violations += freed[(size_t)index].load();
            return OK;
        }
    };
    violations = 0;
    for (int round = 0; round < 20; round++) {
        for (size_t i = 0; i < 4; i++) {
            comms[i] = init(0);
            freed[i] = false;
        }
        made_calls.on_abort = [](void *comm) {
            for (size_t i = 0; i < 4; i++)
                freed[i] = freed[i] || comms[i] == comm;
        };
        std::atomic<bool> stop{false};
        std::atomic<int> calls{0};
        std::vector<std::thread> threads;
        for (size_t i = 0; i < 4; i++)
            threads.emplace_back([&, i] {
                int answer = 0;
                for (unsigned turn = 0; !stop; turn++, calls++) {
                    unsigned op = i % 2 && turn % 2 ? NG_OP_CommGetAsyncError : NG_OP_AllReduce;
                    struct made_call what = call_of(op, comms[i], &answer);
                    what.inside = At::begin;
                    what.argument = (void *)i;
                    bool grouped = turn % 3 == 0;
                    if (grouped)
                        made_group_start(0);
                    made_call(0, &what);
                    if (grouped)
                        made_group_end(0, OK);
                }
            });
        EXPECT_TRUE(becomes([&] { return calls > 100; }));
        EXPECT_EQ(made_abort(round % 2 ? 0 : group_of(comms[0]).id, REASON, LONG_MS), 0);
        EXPECT_TRUE(has_returned());
        EXPECT_EQ(call(0, NG_OP_CommDestroy, comms[0]), OK);
        stop = true;
        for (auto &thread : threads)
            thread.join();
        EXPECT_EQ(made_aborts(comms[0]), 1u);
    }
    EXPECT_EQ(violations, 0);
}

/* Keeps the processor that the calling thread is on at work, until destroyed. The calling thread
 * gets what is left of it, one or two percent. */
class Starved
{
  public:
    Starved()
    {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(sched_getcpu(), &one);
        EXPECT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
        busy_ = std::thread([this] { /* on the same processor, which it inherits */
                                     runs_ = true;
                                     while (!stop_)
                                         ;
        });
        struct sched_param none = {};
        EXPECT_EQ(sched_setscheduler(0, SCHED_IDLE, &none), 0); /* this thread, below any `nice` */
        while (!runs_) /* until then the calling thread has the processor for itself */
            sched_yield();
    }
    ~Starved()
    {
        stop_ = true;
        busy_.join();
    }

  private:
    std::atomic<bool> stop_{false}, runs_{false};
    std::thread busy_;
};

TEST_F(Abort, AThreadInsideThatGetsNoProcessorIsAwaited)
{
    static std::atomic<bool> freed;
    for (unsigned op : {NG_OP_AllReduce, NG_OP_CommGetAsyncError}) {
        void *comm = init(0);
        freed = false;
        made_calls.on_abort = [](void *) { freed = true; };
        std::atomic<bool> inside{false};
        bool was_freed = true;
        std::pair<std::atomic<bool> *, bool *> shared{&inside, &was_freed};
        std::thread program([&, op] {
            int answer = 0;
            struct made_call what = call_of(op, comm, &answer);
            what.inside = [](void *argument) {
                auto [entered, found] = *static_cast<decltype(shared) *>(argument);
                Starved here;
                *entered = true;
                int64_t until = ng_clock_mono_ns() + 500 * NG_MS; /* far longer than 250 ms */
                while (ng_clock_mono_ns() < until)
                    ;
                *found = freed;
                return OK;
            };
            what.argument = &shared;
            made_call(0, &what);
        });
        EXPECT_TRUE(becomes([&] { return inside.load(); }));
        EXPECT_EQ(made_abort(0, REASON, 10 * LONG_MS), 0);
        program.join();
        EXPECT_FALSE(was_freed) << ng_op_name(op);
        EXPECT_TRUE(has_returned());
        EXPECT_TRUE(freed);
    }
}

TEST_F(Abort, ProgramAndGuardNeverBothEndOne)
{
    for (int round = 0; round < 100; round++) {
        void *comm = init(0);
        static std::atomic<int> ends;
        ends = 0;
        made_calls.on_abort = [](void *) { ends++; };
        std::thread program([&] {
            struct made_call what = call_of(round % 2 ? NG_OP_CommDestroy : NG_OP_CommAbort, comm);
            what.inside = [](void *) {
                ends++;
                return OK;
            };
            EXPECT_EQ(made_call(0, &what), OK);
        });
        int error = made_abort(0, REASON, LONG_MS);
        EXPECT_TRUE(error == 0 || error == -ENOENT) << error;
        program.join();
        EXPECT_TRUE(becomes([] { return made_abort_state() <= RETURNED; }));
        EXPECT_EQ(ends, 1);
        comms_.erase(comm);
    }
}

/* ---- Orders of a policy ---- */

TEST_F(Abort, APolicyAbortsTheGroupsOfItsListAndNoOther)
{
    void *first = init(0), *second = init(0), *other = init(0);
    uint64_t ids[] = {group_of(first).id, 12345, group_of(second).id};
    ASSERT_EQ(made_policy_abort(ids, 3, REASON, LONG_MS), 0);
    ASSERT_TRUE(becomes([] { return made_policy_abort_state() == RETURNED; }));
    EXPECT_EQ(made_aborts(first), 1u);
    EXPECT_EQ(made_aborts(second), 1u);
    EXPECT_EQ(made_abort_group(first), made_abort_group(second)) << "both at once";
    EXPECT_EQ(made_aborts(other), 0u);
    EXPECT_EQ(call(0, NG_OP_AllReduce, other), OK);
    EXPECT_EQ(made_policy_abort(ids, 3, REASON, LONG_MS), -ENOENT);
}

TEST_F(Abort, OneByOneTheOneThatHoldsTheDeviceComesFirst)
{
    void *queued = init(1), *running = init(1);
    made_set_version(1, 22105);
    made_calls.held = true;
    made_all_reduce(1, running, made_stream(0), OK);
    ASSERT_TRUE(becomes([&] { return group_of(running).pending_record != 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(5)); /* so that it is the older one */
    made_all_reduce(1, queued, made_stream(0), OK);
    ASSERT_TRUE(becomes([&] { return group_of(queued).pending_record != 0; }));
    made_calls.on_abort = [](void *) { made_calls.held = false; };
    ASSERT_TRUE(is_aborted(0));
    EXPECT_LT(made_abort_place(running), made_abort_place(queued));
}

/* The device runs the younger work; the older work waits behind it. */
TEST_F(Abort, OneByOneWorkOnTheDeviceComesBeforeOlderWorkThatIsQueued)
{
    void *queued = init(1), *running = init(1);
    made_set_version(1, 22105);
    made_calls.holds_recorded = true;
    made_all_reduce(1, queued, made_stream(0), OK);
    ASSERT_TRUE(becomes([&] { return group_of(queued).pending_age_ns > 0; }));
    made_calls.holds_recorded = false;
    struct made_call what = call_of(NG_OP_AllReduce, running);
    what.inside = [](void *) { /* between its start and its end */
                               made_calls.holds_recorded = true;
                               return OK;
    };
    EXPECT_EQ(made_call(1, &what), OK);
    ASSERT_TRUE(becomes([&] {
        return group_of(running).pending_record != 0 && group_of(running).pending_started;
    }));
    ASSERT_FALSE(group_of(queued).pending_started);
    ASSERT_GT(group_of(queued).pending_age_ns, group_of(running).pending_age_ns);
    made_calls.on_abort = [](void *) { made_release_recorded(); };
    ASSERT_TRUE(is_aborted(0));
    EXPECT_LT(made_abort_place(running), made_abort_place(queued));
}

TEST_F(Abort, APolicyWaitsForNoCommunicatorThatWasMadeAfterItsOrder)
{
    void *comm = init(0);
    made_calls.aborts_held = true;
    ASSERT_EQ(made_policy_abort(nullptr, 0, REASON, LONG_MS), 0);
    ASSERT_TRUE(has_fate(comm, ABORTING));
    void *later = init(0);
    Inside inside(NG_OP_CommDestroy, later);
    ASSERT_TRUE(has_fate(later, PROGRAM_ENDS));
    made_calls.aborts_held = false;
    EXPECT_TRUE(becomes([] { return made_policy_abort_state() == RETURNED; }));
    EXPECT_EQ(made_aborts(later), 0u);
    EXPECT_EQ(inside.leave(OK), OK);
    comms_.erase(later);
}

TEST_F(Abort, OnlyAPolicysOrderConcernsAGroupAndOnlyItsOwn)
{
    void *comm = init(0), *other = init(0);
    uint64_t id = group_of(comm).id, other_id = group_of(other).id;
    made_calls.aborts_held = true;
    ASSERT_EQ(made_abort(other_id, REASON, LONG_MS), 0);
    ASSERT_TRUE(has_fate(other, ABORTING));
    EXPECT_FALSE(made_abort_concerns(other_id)) << "a person's";
    ASSERT_EQ(made_policy_abort(&id, 1, REASON, LONG_MS), 0);
    EXPECT_TRUE(made_abort_concerns(id));
    EXPECT_FALSE(made_abort_concerns(other_id));
    made_calls.aborts_held = false;
    EXPECT_TRUE(has_returned());
    EXPECT_TRUE(becomes([] { return made_policy_abort_state() == RETURNED; }));
    EXPECT_FALSE(made_abort_concerns(id)) << "it is over";
}

TEST_F(Abort, APolicyWaitsForWhatTheProgramEndsItself)
{
    for (unsigned op : {NG_OP_CommDestroy, NG_OP_CommAbort}) {
        void *comm = init(0);
        uint64_t id = group_of(comm).id;
        Inside inside(op, comm);
        ASSERT_EQ(made_policy_abort(&id, 1, REASON, LONG_MS), 0);
        EXPECT_EQ(made_policy_abort_state(), UNDER_WAY);
        EXPECT_EQ(inside.leave(OK), OK);
        EXPECT_TRUE(becomes([] { return made_policy_abort_state() == RETURNED; }));
        EXPECT_EQ(made_aborts(comm), 0u) << "followed, not fought";
        comms_.erase(comm);
    }
}

TEST_F(Abort, APolicyTellsWhatTheProgramDoesNotGetOutOf)
{
    void *comm = init(0);
    uint64_t id = group_of(comm).id;
    char why[400] = "";
    Inside inside(NG_OP_CommDestroy, comm);
    ASSERT_EQ(made_policy_abort(&id, 1, REASON, 50), 0);
    EXPECT_TRUE(becomes([] { return made_policy_abort_state() == STUCK; }));
    EXPECT_EQ(made_stuck(why, sizeof(why)), (unsigned)NG_OP_CommDestroy);
    EXPECT_NE(std::string(why).find("inside ncclCommDestroy"), std::string::npos) << why;
    EXPECT_EQ(made_abort_state() == STUCK, false) << "a person's orders are none of it";
    EXPECT_EQ(inside.leave(OK), OK);
    EXPECT_TRUE(becomes([] { return made_policy_abort_state() == RETURNED; }));
    EXPECT_EQ(made_stuck(why, sizeof(why)), 0u);
    comms_.erase(comm);
}

TEST_F(Abort, APolicyTellsWhichAbortDoesNotReturn)
{
    void *comm = init(0);
    uint64_t id = group_of(comm).id;
    char why[400] = "";
    made_calls.aborts_held = true;
    ASSERT_EQ(made_policy_abort(&id, 1, REASON, 50), 0);
    EXPECT_TRUE(becomes([] { return made_policy_abort_state() == STUCK; }));
    /* The time may be over before its thread is there. */
    EXPECT_TRUE(becomes([&] {
        return made_stuck(why, sizeof(why)) == (unsigned)NG_OP_CommAbort &&
               strstr(why, "ncclCommAbort has not returned");
    })) << why;
    made_calls.aborts_held = false;
    EXPECT_TRUE(becomes([] { return made_policy_abort_state() == RETURNED; }));
}

/* Of three that do not return, one has a thread of the program inside. */
TEST_F(Abort, APolicyTellsOfTheLikeliestObstacleWhereverItIs)
{
    for (int at = 0; at < 3; at++) {
        void *comms[] = {init(0), init(0), init(0)};
        char why[400] = "";
        Inside inside(NG_OP_AllReduce, comms[at]);
        made_calls.aborts_held = true;
        ASSERT_EQ(made_policy_abort(nullptr, 0, REASON, 50), 0);
        EXPECT_TRUE(becomes([] { return made_policy_abort_state() == STUCK; }));
        bool told = becomes([&] {
            return made_stuck(why, sizeof(why)) != 0 &&
                   strstr(why, "is still inside ncclAllReduce on it");
        });
        made_calls.aborts_held = false;
        EXPECT_TRUE(becomes([] { return made_policy_abort_state() == RETURNED; }));
        inside.leave(OK);
        ASSERT_TRUE(told) << at << ": " << why;
    }
}

/* ---- Asynchronous errors ---- */

TEST_F(Abort, AnAsynchronousErrorIsSeenAndStays)
{
    void *comm = init(0), *other = init(0);
    made_set_async_error(comm, BROKEN);
    EXPECT_TRUE(becomes([&] { return group_of(comm).async_error == BROKEN; }));
    made_set_async_error(comm, ncclRemoteError);
    made_set_async_error(nullptr, OK);
    EXPECT_EQ(group_of(comm).async_error, BROKEN) << "the first one";
    EXPECT_EQ(group_of(other).async_error, OK);
    EXPECT_TRUE(becomes([&] { return log().find("what NCCL said last") != std::string::npos; }));
    std::string log = this->log();
    for (const char *part :
         {"asynchronous error of group", "ncclSystemError", "a system call", "NCCL 2.28.9"})
        EXPECT_NE(log.find(part), std::string::npos) << part << log;
}

TEST_F(Abort, InProgressIsNoError)
{
    void *comm = init(0);
    made_set_async_error(comm, ncclInProgress);
    made_asked(comm);
    EXPECT_TRUE(becomes([&] { return made_asked(comm) > 1; }));
    made_set_async_error(nullptr, OK);
    EXPECT_EQ(group_of(comm).async_error, OK);
}

TEST_F(Abort, WhatTheProgramHearsOfAnErrorIsHeard)
{
    void *comm = init(0);
    int answer = -1;
    struct made_call what = call_of(NG_OP_CommGetAsyncError, comm, &answer);
    what.argument = &answer;
    what.inside = [](void *at) {
        *(int *)at = ncclRemoteError;
        return OK;
    };
    EXPECT_EQ(made_call(0, &what), OK);
    EXPECT_EQ(answer, (int)ncclRemoteError) << "unchanged";
    EXPECT_EQ(group_of(comm).async_error, (int)ncclRemoteError);
}

TEST_F(Abort, NcclIsNeverAskedAboutWhatTheProgramFrees)
{
    void *comm = init(0);
    made_calls.answers_held = true;
    made_asked(comm);
    EXPECT_TRUE(becomes([&] { return made_asked(comm) == 1; }));
    std::atomic<bool> freed{false};
    int64_t begun_ns = ng_clock_mono_ns();
    std::thread ending([&] {
        EXPECT_EQ(call(0, NG_OP_CommDestroy, comm), OK);
        freed = true;
    });
    EXPECT_TRUE(has_fate(comm, PROGRAM_ENDS));
    bool too_early = freed;
    EXPECT_FALSE(too_early) << (ng_clock_mono_ns() - begun_ns < 2 * NG_S
                                    ? "the question is still under way"
                                    : "late: two seconds are all that is waited");
    made_calls.answers_held = false;
    ending.join();
    comms_.erase(comm);
    EXPECT_EQ(made_asked(comm), 1u);
}

TEST_F(Abort, TheProgramWaitsForAQuestionThatHangsButNotForEver)
{
    void *comm = init(0);
    made_calls.answers_held = true;
    made_asked(comm);
    EXPECT_TRUE(becomes([&] { return made_asked(comm) == 1; }));
    EXPECT_EQ(call(0, NG_OP_CommDestroy, comm), OK);
    made_calls.answers_held = false;
    comms_.erase(comm);
}

/* ---- Calls that fail ---- */

TEST_F(Abort, AFailedCallIsToldOnceAndThenAtPowersOfTen)
{
    void *comm = init(0);
    for (int i = 0; i < 15; i++)
        made_all_reduce(0, comm, made_stream(0), ncclSystemError);
    made_send(0, comm, made_stream(0), 1, ncclInvalidUsage);
    std::string log = this->log();
    auto count = [&](const std::string &part) {
        size_t found = 0;
        for (size_t at = 0; (at = log.find(part, at)) != std::string::npos; at++)
            found++;
        return found;
    };
    EXPECT_EQ(count("\n") - count(" aborted in "), 3u) << "but the last words before: " << log;
    for (const char *part :
         {"ncclAllReduce #1 of group", "(rank 0 of 2) returned ncclSystemError (a system call",
          "NCCL 2.28.9; last error: what NCCL said last", "10 times so far", "ncclSend of group",
          "ncclInvalidUsage"})
        EXPECT_NE(log.find(part), std::string::npos) << part << log;
}

TEST_F(Abort, WhatAnAbortMakesFailIsNotTold)
{
    void *comm = init(0), *own = init(0);
    Inside inside(NG_OP_AllReduce, comm), inside_own(NG_OP_AllReduce, own);
    EXPECT_EQ(call(0, NG_OP_CommAbort, own), OK);
    comms_.erase(own);
    EXPECT_TRUE(is_aborted(0));
    inside.leave(ncclInternalError);
    inside_own.leave(ncclInternalError);
    EXPECT_EQ(log().find("returned"), std::string::npos);
}

TEST_F(Abort, AForkedChildKnowsNothingOfIt)
{
    void *comm = init(0);
    made_calls.aborts_held = true;
    ASSERT_EQ(made_abort(0, REASON, LONG_MS), 0);
    ASSERT_TRUE(has_fate(comm, ABORTING));
    EXPECT_EQ(in_child([&] {
                  made_fork_child();
                  return made_abort_state() == NONE && !made_group_of(comm, nullptr) &&
                                 made_passed(comm) == -1
                             ? 0
                             : 1;
              }),
              0);
    made_calls.aborts_held = false;
    EXPECT_TRUE(has_returned());
}
