/*
 * Captured calls and replays: what counts, and how far a replay is.
 */
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"
#include "tests/unit/core/helpers/made_graphs.h"

namespace
{

constexpr uint32_t REPLAYED = 32; /* NG_RECORD_REPLAYED */
constexpr uint32_t COMPLETED = 4; /* NG_RECORD_COMPLETED */
constexpr uint32_t CAPTURED = 6;  /* NG_RECORD_CAPTURED */

void *exec(uintptr_t number)
{
    return reinterpret_cast<void *>((uintptr_t)0x7d0000000000 + (number << 8));
}

struct Graph : testing::Test {
    static void SetUpTestSuite()
    {
        made_begin(2000);
        void *comm = made_handle();
        made_init(0, comm, 2, 0, nullptr, 0);
        made_all_reduce(0, comm, made_stream(0), 0);
        made_graphs_begin();
    }
    void SetUp() override
    {
        static uintptr_t next = 2;
        exec_ = exec(next++);
        comm_ = made_handle();
        made_init(0, comm_, 2, 0, nullptr, 0);
        made_reach(-1);
    }
    void TearDown() override
    {
        made_calls.held = false;
        made_reach(-1);
        made_exec_destroy(exec_);
        made_graph_end();
        made_set_timing(0);
    }
    void all_reduce(int result = 0)
    {
        made_all_reduce(0, comm_, made_stream(0), result);
    }
    /* A capture of so many all-reduces. */
    static void capture(const std::function<void()> &calls)
    {
        made_capture_begin();
        calls();
        made_capture_end();
    }
    void capture(unsigned calls)
    {
        capture([&] {
            for (unsigned i = 0; i < calls; i++)
                all_reduce();
        });
    }
    /* The executable graph of it. */
    void make(unsigned calls)
    {
        capture(calls);
        made_instantiate(exec_);
    }
    bool launch()
    {
        return made_launch(exec_, made_stream(0));
    }
    struct made_group group()
    {
        return group_of(comm_);
    }
    void measure(int mode)
    {
        made_set_timing(mode);
        comm_ = made_handle();
        made_init(0, comm_, 2, 0, nullptr, 0);
    }
    uint64_t measured()
    {
        uint64_t bytes;
        return made_measured(comm_, NG_OP_AllReduce, &bytes);
    }
    void *comm_, *exec_;
};

TEST_F(Graph, ACapturedCallDoesNotCount)
{
    all_reduce();
    uint64_t hash = group().rolling_hash;
    capture(3);
    EXPECT_EQ(group().entered, 1u);
    EXPECT_EQ(group().scheduled, 1u);
    EXPECT_EQ(group().rolling_hash, hash);
    EXPECT_EQ(made_newest_record().state, CAPTURED);
}

TEST_F(Graph, EachLaunchCountsForAllOfItsCalls)
{
    make(3);
    for (uint64_t replay = 1; replay <= 5; replay++) {
        ASSERT_TRUE(launch());
        EXPECT_EQ(group().entered, 3 * replay);
        EXPECT_EQ(group().scheduled, 3 * replay);
        EXPECT_EQ(made_newest_replay().replay, replay);
        EXPECT_EQ(made_newest_replay().position, 3u);
        EXPECT_EQ(made_newest_replay().calls, 3u);
        EXPECT_TRUE(made_newest_replay().flags & REPLAYED);
    }
    made_pending(comm_);
    EXPECT_EQ(group().completed, 15u);
    made_exec_destroy(exec_);
    EXPECT_FALSE(launch());
}

TEST_F(Graph, AnNcclGroupOfSendsIsCapturedWhole)
{
    /* After others of which nothing is left, though there is no room for all of their calls. */
    for (int i = 0; i < 100; i++) {
        made_group_start(0);
        made_send(0, comm_, made_stream(0), 1, 0);
        made_group_end(0, 0);
    }
    made_capture_begin();
    made_group_start(0);
    for (int i = 0; i < 3; i++)
        made_send(0, comm_, made_stream(0), 1, 0);
    made_group_end(0, 0);
    made_capture_end();
    EXPECT_EQ(group().p2p_entered, 100u);
    made_instantiate(exec(40));
    ASSERT_TRUE(made_launch(exec(40), made_stream(0)));
    EXPECT_EQ(group().p2p_entered, 103u);
    EXPECT_EQ(made_newest_replay().position, 3u);
    EXPECT_EQ(made_newest_replay().calls, 3u);
    made_exec_destroy(exec(40));
    made_graph_end();
}

/* Where calls are kept, since graphs are followed. */
TEST_F(Graph, SendsOfAnNcclGroupBelongToTheWorkOfTheirCommunicatorAndStream)
{
    void *other = made_handle();
    made_init(0, other, 2, 0, nullptr, 0);
    made_group_start(0);
    for (int i = 0; i < 3; i++)
        made_send(0, comm_, made_stream(0), 1, 0);
    for (int i = 0; i < 2; i++)
        made_send(0, other, made_stream(0), 1, 0);
    for (int i = 0; i < 2; i++)
        made_send(0, other, made_stream(1), 1, 0);
    made_group_end(0, 0);
    EXPECT_EQ(group().p2p_joined, 2u);
    struct made_group beside = group_of(other);
    EXPECT_EQ(beside.p2p_joined, 2u) << "one of each stream";
    EXPECT_EQ(beside.groups_closed, 2u);
    made_pending(comm_);
    made_pending(other);
    for (unsigned back = 0; back < 7; back++)
        EXPECT_EQ(made_record_before(back).state, COMPLETED) << back;
}

TEST_F(Graph, ReplaysHaveTheRollingHashOfTheSameCalls)
{
    make(2);
    ASSERT_TRUE(launch());
    void *other = made_handle();
    made_init(0, other, 2, 0, nullptr, 0);
    made_all_reduce(0, other, made_stream(0), 0);
    made_all_reduce(0, other, made_stream(0), 0);
    EXPECT_EQ(group().rolling_hash, group_of(other).rolling_hash);
}

/* The driver refuses it. */
TEST_F(Graph, ALaunchIntoACaptureCountsForNothing)
{
    make(2);
    made_calls.captures = true;
    launch();
    made_calls.captures = false;
    EXPECT_EQ(group().entered, 0u);
}

TEST_F(Graph, AnUpdateKeepsNumberAndReplays)
{
    make(2);
    ASSERT_TRUE(launch());
    struct made_replay before = made_newest_replay();
    make(3);
    ASSERT_TRUE(launch());
    EXPECT_EQ(made_newest_replay().graph, before.graph);
    EXPECT_EQ(made_newest_replay().replay, 2u);
    EXPECT_EQ(made_newest_replay().calls, 3u);
    EXPECT_EQ(group().entered, 5u);
}

TEST_F(Graph, EventsOfAGraphThatIsGoneServeTheNext)
{
    capture(4);
    made_graph_end();
    capture(4);
    EXPECT_EQ(made_graph_events(), 0u);
}

TEST_F(Graph, EventsTellHowFarAReplayIs)
{
    make(5);
    made_reach(0);
    made_calls.held = true;
    ASSERT_TRUE(launch());
    EXPECT_EQ(made_pending(comm_).seq, 1u);
    made_reach(3);
    EXPECT_EQ(made_pending(comm_).seq, 4u);
    EXPECT_FALSE(made_pending(comm_).vague);
    EXPECT_EQ(group().completed, 3u);
    made_calls.held = false;
    made_reach(-1);
    made_pending(comm_);
    EXPECT_EQ(group().completed, 5u);
}

TEST_F(Graph, ALaterLaunchHidesHowFarItIs)
{
    make(5);
    made_reach(3);
    made_calls.held = true;
    ASSERT_TRUE(launch());
    ASSERT_TRUE(launch());
    struct made_pending pending = made_pending(comm_);
    EXPECT_EQ(pending.seq, 1u);
    EXPECT_TRUE(pending.vague);
    made_calls.held = false;
    made_pending(comm_);
    EXPECT_EQ(group().completed, 10u);
}

TEST_F(Graph, AllCallsOfAReplayAreMeasured)
{
    measure(2);
    make(4);
    EXPECT_EQ(made_graph_nodes(), 8u);
    for (uint64_t replay = 1; replay <= 3; replay++) {
        ASSERT_TRUE(launch());
        made_pending(comm_);
        EXPECT_EQ(measured(), 4 * replay);
        EXPECT_EQ(made_newest_record().duration_ns, 1000000);
    }
}

TEST_F(Graph, NoneIsMeasuredWhereFewAreWanted)
{
    measure(1);
    make(9);
    EXPECT_EQ(made_graph_nodes(), 9u);
    ASSERT_TRUE(launch());
    made_pending(comm_);
    EXPECT_EQ(measured(), 0u);
}

TEST_F(Graph, WhatALaterLaunchHidesIsNotMeasured)
{
    measure(2);
    make(4);
    made_calls.held = true;
    ASSERT_TRUE(launch());
    ASSERT_TRUE(launch());
    made_calls.held = false;
    made_pending(comm_);
    EXPECT_EQ(group().completed, 8u);
    EXPECT_EQ(measured(), 4u);
}

TEST_F(Graph, ACallThatFailedInACaptureLeavesNothingBehind)
{
    measure(2);
    capture([&] {
        all_reduce(3);
        all_reduce();
    });
    made_instantiate(exec_);
    ASSERT_TRUE(launch());
    made_pending(comm_);
    EXPECT_EQ(group().completed, 1u);
    EXPECT_EQ(measured(), 1u);
    made_exec_destroy(exec_);
    made_graph_end();
    /* Their events serve others. */
    capture(2);
    EXPECT_EQ(made_graph_events(), 0u);
    made_graph_end();
}

} // namespace
