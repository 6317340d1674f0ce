/*
 * The pace of the watchdog: it rests while nothing is under way, and no longer.
 */
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"

#include <nccl.h>

namespace
{

/* One that rests looks once a second, one that does not ten times. */
constexpr int64_t LONG_PAUSE_NS = 700'000'000;

struct Watchdog : testing::Test {
    static void SetUpTestSuite()
    {
        made_begin(64);
        made_init(0, comm_, 2, 0, nullptr, ncclSuccess);
        relaxed_before_use_ = made_calls.relaxed_threads > 1;
    }
    static void reduce()
    {
        made_all_reduce(0, comm_, made_stream(0), ncclSuccess);
    }
    static uint64_t completed()
    {
        return group_of(comm_).completed;
    }
    /* When its last round began. */
    static int64_t round_mono_ns()
    {
        return __atomic_load_n(&made_box()->header->watchdog_mono_ns, __ATOMIC_RELAXED);
    }
    /* Its next round, and whether that comes after the pause of a watchdog that rests. */
    static bool next_round_is_late()
    {
        int64_t before = round_mono_ns();
        EXPECT_TRUE(becomes([&] { return round_mono_ns() != before; }));
        return round_mono_ns() - before > LONG_PAUSE_NS;
    }

    static inline void *const comm_ = made_handle();
    static inline bool relaxed_before_use_; /* its thread, by then */
};

} // namespace

/* The program's first call may find no memory left for a thread that has not called CUDA yet. */
TEST_F(Watchdog, HasCalledTheDriverBeforeTheFirstCommunicatorIsUsed)
{
    EXPECT_TRUE(relaxed_before_use_);
}

TEST_F(Watchdog, RestsWhileNothingIsUnderWayAndMakesNoCudaCall)
{
    reduce();
    ASSERT_TRUE(made_await_completed(comm_, completed() + 1));
    bool rests = false;
    /* More than once: before it rests a round may be late as well, since this process was held up.
     */
    for (int i = 0; i < 5 && !rests; i++) {
        ASSERT_TRUE(becomes(next_round_is_late));
        unsigned queries = made_calls.event_queries;
        rests = next_round_is_late();
        if (rests) {
            EXPECT_EQ(made_calls.event_queries, queries);
        }
    }
    EXPECT_TRUE(rests);
}

TEST_F(Watchdog, IsWokenByACall)
{
    int woken = 0;
    /* More than once, since this process may be held up. */
    for (int i = 0; i < 5 && !woken; i++) {
        ASSERT_TRUE(becomes(next_round_is_late)); /* and it has just begun to rest again */
        int64_t rested = round_mono_ns();
        uint64_t before = completed();
        reduce();
        ASSERT_TRUE(becomes([&] { return completed() > before; }));
        woken = round_mono_ns() - rested < LONG_PAUSE_NS;
    }
    EXPECT_TRUE(woken);
}

/* It does not rest while a work is in flight, or a thread inside a call. */
TEST_F(Watchdog, DoesNotRestWhileSomethingIsUnderWay)
{
    made_calls.held = true;
    reduce();
    int64_t begun = round_mono_ns();
    EXPECT_TRUE(becomes([&] { return round_mono_ns() - begun > 2'500'000'000; }));
    int late = 0;
    for (int i = 0; i < 5; i++)
        late += next_round_is_late();
    EXPECT_LT(late, 3);
    made_calls.held = false;
    ASSERT_TRUE(made_await_completed(comm_, completed() + 1));
    struct made_call call = {};
    call.op = NG_OP_AllReduce;
    call.comm = comm_;
    call.stream = made_stream(0);
    call.argument = &late;
    call.inside = [](void *argument) {
        int64_t entered = round_mono_ns();
        becomes([&] { return round_mono_ns() - entered > 2'500'000'000; });
        *(int *)argument = 0;
        for (int i = 0; i < 5; i++)
            *(int *)argument += next_round_is_late();
        return (int)ncclSuccess;
    };
    EXPECT_EQ(made_call(0, &call), ncclSuccess);
    EXPECT_LT(late, 3);
}
