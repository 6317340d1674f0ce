/*
 * Blocking wait: when calls return, and with what.
 */
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"

#include <fstream>

#include <nccl.h>

namespace
{

constexpr char REASON[] = "an order of ncclguard abort";
constexpr int64_t LONG_MS = 20000;

/* A program thread that makes one call. */
class Caller
{
  public:
    explicit Caller(std::function<int()> call)
        : thread_([this, call] {
              result_ = call();
              struct rusage usage;
              getrusage(RUSAGE_THREAD, &usage);
              sleeps_ = usage.ru_nvcsw;
              returned_ = true;
          })
    {
    }
    ~Caller()
    {
        if (thread_.joinable())
            thread_.join();
    }
    bool returned() const
    {
        return returned_;
    }
    int result()
    {
        thread_.join();
        return result_;
    }
    long sleeps() const
    {
        return sleeps_;
    }

  private:
    std::atomic<int> result_{-1};
    std::atomic<bool> returned_{false};
    std::atomic<long> sleeps_{0};
    std::thread thread_;
};

int all_reduce(void *comm, void *stream)
{
    struct made_call call = {};

    call.op = NG_OP_AllReduce;
    call.comm = comm;
    call.stream = stream;
    return made_call(0, &call);
}

/* The device holds everything; the watchdog has seen that something waits on `comm`. */
void await_pending(void *comm)
{
    ASSERT_TRUE(becomes([&] { return group_of(comm).pending_record != 0; }));
}

struct DeviceWait : testing::Test {
    static void SetUpTestSuite()
    {
        made_settings()->blocking_wait = true;
        made_begin(2000);
    }
    void SetUp() override
    {
        comm_ = made_handle();
        made_init(0, comm_, 2, 0, nullptr, ncclSuccess);
        EXPECT_FALSE(made_is_usual());
    }
    void TearDown() override
    {
        made_calls.held = false;
    }
    void *comm_;
    void *stream_ = made_stream(0);
};

/* A process of its own under a policy, with a communicator of two ranks. */
int under(void (*policy)(int64_t, int64_t), int64_t timeout_ms, int64_t abort_wait_ms,
          const std::function<int(void *)> &body)
{
    return in_child([&] {
        made_settings()->blocking_wait = true;
        policy(timeout_ms, abort_wait_ms);
        made_begin(64);
        void *comm = made_handle();
        made_init(0, comm, 2, 0, nullptr, ncclSuccess);
        return body(comm);
    });
}

int under_kill(int64_t timeout_ms, int64_t abort_wait_ms, const std::function<int(void *)> &body)
{
    return under(made_kill, timeout_ms, abort_wait_ms, body);
}

/* A call of which NCCL itself does not return. */
int never_returns(void *comm)
{
    struct made_call call = {};

    call.op = NG_OP_AllReduce;
    call.comm = comm;
    call.stream = made_stream(0);
    call.inside = [](void *) { return pause(); };
    return made_call(0, &call);
}

} // namespace

/* Before the others: this process has no guard yet. */
TEST(DeviceWaitUnderKill, TheCallReturnsItsErrorAndAProgramThatHasItIsLeftAlone)
{
    EXPECT_EQ(under_kill(4000, 3500,
                         [](void *comm) {
                             void *other = made_handle();
                             made_init(0, other, 2, 0, nullptr, ncclSuccess);
                             made_calls.held = true;
                             if (all_reduce(comm, made_stream(0)) != ncclSystemError ||
                                 !strstr(made_last_error(comm), "unknown: AllReduce #1"))
                                 return 1;
                             /* A deadline more: the time in which the program should have the first
                              * error is over then. */
                             return all_reduce(other, made_stream(0)) == ncclSystemError ? 0 : 2;
                         }),
              0);
}

TEST(DeviceWaitUnderKill, WhatElseWaitedThenIsNotToldOfAgain)
{
    static const Folder folder;
    const std::string log = folder / "log";
    std::ofstream(log).flush();
    ng_log_init(NG_LOG_DEBUG, log.c_str(), 0);
    EXPECT_EQ(under_kill(4000, 3500,
                         [](void *comm) {
                             void *other = made_handle(), *later = made_handle();
                             made_init(0, other, 2, 0, nullptr, ncclSuccess);
                             made_init(0, later, 2, 0, nullptr, ncclSuccess);
                             made_calls.held = true;
                             Caller beside([&] { return all_reduce(other, made_stream(0)); });
                             await_pending(other);
                             if (all_reduce(comm, made_stream(0)) != ncclSystemError ||
                                 beside.result() != ncclSystemError)
                                 return 1;
                             /* By its deadline the others would have been told of. */
                             return all_reduce(later, made_stream(0)) == ncclSystemError ? 0 : 2;
                         }),
              0);
    const std::string told = read_whole_file(log);
    size_t lines = 0;
    for (size_t at = 0; (at = told.find("deadline passed", at)) != std::string::npos; at++)
        lines++;
    EXPECT_EQ(lines, 2u) << told;
}

TEST(DeviceWaitUnderKill, AProcessOfWhichNoCallReturnsTheErrorIsEndedAfterTheWait)
{
    int64_t begun_ns = ng_clock_mono_ns();
    EXPECT_EQ(under_kill(200, 400, never_returns), -SIGABRT);
    EXPECT_GE(ng_clock_mono_ns() - begun_ns, 600 * NG_MS);
}

/* By the verdict or by the abort, whichever it sees first. */
TEST(DeviceWaitUnderTeardown, TheCallReturnsItsErrorAndAProgramThatHasItIsLeftAlone)
{
    EXPECT_EQ(under(made_teardown, 4000, 3500,
                    [](void *comm) {
                        void *later = made_handle();
                        made_calls.held = true;
                        if (all_reduce(comm, made_stream(0)) != ncclSystemError ||
                            !strstr(made_last_error(comm), "unknown: AllReduce #1"))
                            return 1;
                        /* All communicators that there are are aborted. */
                        while (!made_aborts(comm))
                            std::this_thread::yield();
                        /* A deadline more, which is longer than the time to take the error. */
                        made_init(0, later, 2, 0, nullptr, ncclSuccess);
                        return all_reduce(later, made_stream(0)) == ncclSystemError ? 0 : 2;
                    }),
              0);
}

TEST(DeviceWaitUnderTeardown, AProcessOfWhichNoCallReturnsTheErrorIsEndedAfterTheWait)
{
    int64_t begun_ns = ng_clock_mono_ns();
    EXPECT_EQ(under(made_teardown, 200, 400, never_returns), -SIGABRT);
    EXPECT_GE(ng_clock_mono_ns() - begun_ns, 600 * NG_MS);
}

/* A call that is still inside NCCL, where the abort ends it, or one that is made afterwards. */
TEST(DeviceWaitUnderTeardown, AProgramWhoseHostCallTheAbortEndsIsLeftAlone)
{
    for (bool inside : {true, false})
        EXPECT_EQ(under(made_teardown, 2000, 1500,
                        [&](void *comm) -> int {
                            static void *blocked;
                            blocked = comm;
                            struct made_call call = {};
                            call.op = NG_OP_AllReduce;
                            call.comm = comm;
                            call.stream = made_stream(0);
                            call.inside = [](void *) {
                                while (!made_aborts(blocked))
                                    std::this_thread::yield();
                                return (int)ncclInternalError;
                            };
                            std::thread never;
                            if (!inside)
                                never = std::thread([&] { never_returns(comm); });
                            while (!inside && !made_aborts(comm))
                                std::this_thread::yield();
                            if (made_call(0, &call) == ncclSuccess)
                                _exit(1);
                            /* As above. */
                            void *later = made_handle();
                            made_init(0, later, 2, 0, nullptr, ncclSuccess);
                            made_calls.held = true;
                            _exit(all_reduce(later, made_stream(0)) != ncclSuccess ? 0 : 2);
                        }),
                  0)
            << inside;
}

/* A communicator is being made, in a release that lets no other thread abort that. */
TEST(DeviceWaitUnderTeardown, WhereNcclRefusesTheAbortTheCallReturnsItsErrorAllTheSame)
{
    EXPECT_EQ(under(made_teardown, 2000, 1500,
                    [](void *comm) -> int {
                        made_set_version(0, 21304);
                        static void *made;
                        std::thread making([] {
                            struct made_call call = {};
                            call.op = NG_OP_CommInitRank;
                            call.new_comm = &made;
                            call.inside = [](void *) { return pause(); };
                            made_call(0, &call);
                        });
                        struct made_group group;
                        while (!made_group_in_making(&group))
                            std::this_thread::yield();
                        made_calls.held = true;
                        if (all_reduce(comm, made_stream(0)) == ncclSuccess)
                            _exit(1);
                        void *later = made_handle();
                        made_init(0, later, 2, 0, nullptr, ncclSuccess);
                        _exit(all_reduce(later, made_stream(0)) != ncclSuccess ? 0 : 2);
                    }),
              0);
}

/* Whatever sees first that the time is over: of an abort that hangs it is the same. */
TEST(DeviceWaitUnderTeardown, TheEndAfterTheWaitIsOfItsPolicy)
{
    for (auto policy : {made_teardown, made_kill})
        for (bool abort_hangs : {false, true})
            EXPECT_EQ(under(policy, 200, 400,
                            [&](void *comm) {
                                made_calls.aborts_held = abort_hangs;
                                signal(SIGABRT, [](int) { _exit(10 + made_ending_policy()); });
                                return never_returns(comm);
                            }),
                      10 + (policy == made_kill ? NG_ON_TIMEOUT_KILL : NG_ON_TIMEOUT_TEARDOWN));
}

TEST_F(DeviceWait, ACollectiveReturnsWhenTheDeviceHasFinishedIt)
{
    made_calls.held = true;
    Caller caller([&] { return all_reduce(comm_, stream_); });
    await_pending(comm_);
    EXPECT_FALSE(caller.returned());
    made_calls.held = false;
    EXPECT_EQ(caller.result(), ncclSuccess);
    EXPECT_GT(caller.sleeps(), 0) << "it does not spin";
    EXPECT_EQ(made_last_error(comm_), nullptr);
}

TEST_F(DeviceWait, InsideAGroupOnlyTheEndWaits)
{
    made_calls.held = true;
    std::atomic<bool> ending{false};
    Caller caller([&] {
        struct made_call call = {};
        made_group_start(0);
        EXPECT_EQ(all_reduce(comm_, stream_), ncclSuccess);
        ending = true;
        call.op = NG_OP_GroupEnd;
        return made_call(0, &call);
    });
    await_pending(comm_);
    EXPECT_TRUE(ending);
    EXPECT_FALSE(caller.returned());
    made_calls.held = false;
    EXPECT_EQ(caller.result(), ncclSuccess);
}

TEST_F(DeviceWait, WhatIsCapturedIsNotWaitedFor)
{
    made_calls.held = true;
    made_calls.captures = true;
    EXPECT_EQ(all_reduce(comm_, stream_), ncclSuccess);
    made_calls.captures = false;
}

TEST_F(DeviceWait, AnAbortEndsItWithTheAbortsError)
{
    made_calls.held = true;
    Caller caller([&] { return all_reduce(comm_, stream_); });
    await_pending(comm_);
    ASSERT_EQ(made_abort(0, REASON, LONG_MS), 0);
    EXPECT_EQ(caller.result(), ncclSystemError);
    EXPECT_STREQ(made_last_error(comm_), REASON);
}

TEST_F(DeviceWait, AnAbortEndsItLongBeforeItsBound)
{
    made_calls.held = true;
    Caller caller([&] { return all_reduce(comm_, stream_); });
    await_pending(comm_);
    int64_t begun_ns = ng_clock_mono_ns();
    ASSERT_EQ(made_abort(0, REASON, LONG_MS), 0);
    EXPECT_EQ(caller.result(), ncclSystemError);
    EXPECT_LT(ng_clock_mono_ns() - begun_ns, LONG_MS * NG_MS);
}

TEST_F(DeviceWait, WhereThePolicyOnlyTellsTheCallFailsAtItsDeadlineAndTheCommunicatorLives)
{
    made_set_timeout(comm_, 200);
    made_calls.held = true;
    Caller caller([&] { return all_reduce(comm_, stream_); });
    EXPECT_EQ(caller.result(), ncclSystemError)
        << "nobody of the other rank is known to be to blame";
    ASSERT_NE(made_last_error(comm_), nullptr);
    EXPECT_NE(std::string(made_last_error(comm_)).find("unknown: AllReduce #1"), std::string::npos)
        << made_last_error(comm_);
    Caller behind([&] { return all_reduce(comm_, stream_); });
    EXPECT_EQ(behind.result(), ncclSystemError) << "what waits behind it has a deadline, too";
    made_calls.held = false;
    EXPECT_EQ(all_reduce(comm_, stream_), ncclSuccess);
    EXPECT_EQ(made_last_error(comm_), nullptr) << "that is over";
    EXPECT_EQ(group_of(comm_).entered, 3u);
    EXPECT_TRUE(made_await_completed(comm_, 3));
}
