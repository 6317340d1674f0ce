/*
 * Poison: which streams and events an abort makes useless, and for how long.
 */
#include "tests/unit/core/helpers/core.h"
#include "tests/unit/core/helpers/made_calls.h"

#include <nccl.h>

extern "C" {
#include "core/device/poison.h"
}

namespace
{

constexpr char REASON[] = "an order of ncclguard abort";
constexpr int RETURNED = 1; /* enum ng_abort_state */

void *event(uintptr_t number)
{
    return reinterpret_cast<void *>((uintptr_t)0x7e0000000000 + (number << 6));
}

/* As a hook does it whose driver answers success at once. */
bool stream_is_poisoned(void *stream)
{
    struct ng_poison_before before = ng_poison_stream(stream, false);
    return ng_poison_settle(&before);
}

bool event_is_poisoned(void *event)
{
    struct ng_poison_before before = ng_poison_event(event);
    return ng_poison_settle(&before);
}

struct Poison : testing::Test {
    static void SetUpTestSuite()
    {
        made_settings()->poison = NG_POISON_ON;
        made_begin(2000);
    }
    void SetUp() override
    {
        comm_ = make_comm();
        EXPECT_FALSE(made_is_usual());
        for (void *stream : {stream_, other_})
            EXPECT_FALSE(stream_is_poisoned(stream)) << "of an earlier test";
        made_calls.held = true;
    }
    void TearDown() override
    {
        made_calls.held = false;
        made_beside_default(0, false);
        ng_poison_acknowledge();
    }
    static void *make_comm()
    {
        void *comm = made_handle();
        made_init(0, comm, 2, 0, nullptr, ncclSuccess);
        return comm;
    }
    void abort(const void *comm)
    {
        ASSERT_EQ(made_abort(group_of(comm).id, REASON, 20000), 0);
        ASSERT_TRUE(becomes([] { return made_abort_state() == RETURNED; }));
    }
    void all_reduce(void *stream)
    {
        made_all_reduce(0, comm_, stream, ncclSuccess);
    }
    void *comm_;
    void *stream_ = made_stream(0), *other_ = made_stream(1);
};

} // namespace

TEST_F(Poison, ComesWithAnAbortOfWorkInFlight)
{
    all_reduce(stream_);
    struct ng_poison_before before = ng_poison_stream(stream_, false); /* blocked since then */
    abort(comm_);
    EXPECT_TRUE(ng_poison_settle(&before));
    EXPECT_TRUE(stream_is_poisoned(stream_)) << "and it stays so";
    EXPECT_FALSE(stream_is_poisoned(other_));
}

TEST_F(Poison, IsNoneWhereNothingWasCutOff)
{
    made_calls.held = false;
    all_reduce(stream_);
    ASSERT_TRUE(made_await_completed(comm_, 1));
    EXPECT_FALSE(stream_is_poisoned(stream_));
    abort(comm_);
    EXPECT_FALSE(stream_is_poisoned(stream_));
}

/* The device has finished, although no thread has synchronised since. */
TEST_F(Poison, IsNoneWhereTheWorkHadFinishedThoughNobodyAsked)
{
    made_calls.held = false;
    all_reduce(stream_);
    ASSERT_TRUE(made_await_completed(comm_, 1));
    abort(comm_);
    EXPECT_FALSE(stream_is_poisoned(stream_));
}

TEST_F(Poison, OfAnEventIsThatOfItsNewestRecord)
{
    all_reduce(stream_);
    ng_poison_recorded(event(1), stream_, false);
    ng_poison_recorded(event(1), other_, false);
    abort(comm_);
    EXPECT_FALSE(event_is_poisoned(event(1)));
}

TEST_F(Poison, GoesFromStreamToEventToStream)
{
    all_reduce(stream_);
    ng_poison_recorded(event(1), stream_, false);
    ng_poison_waits(other_, false, event(1));
    ng_poison_recorded(event(2), other_, false);
    ng_poison_recorded(event(3), event(1 << 21), false);
    abort(comm_);
    EXPECT_TRUE(event_is_poisoned(event(1)));
    EXPECT_TRUE(stream_is_poisoned(other_));
    EXPECT_TRUE(event_is_poisoned(event(2)));
    EXPECT_FALSE(event_is_poisoned(event(3)));
}

/* The default stream waits for every stream of its context that was not made otherwise. */
TEST_F(Poison, ReachesTheDefaultStreamOfItsContextAndOfNoOther)
{
    all_reduce(stream_);
    abort(comm_);
    made_enter_context(0);
    EXPECT_TRUE(stream_is_poisoned(nullptr));
    made_enter_context(1);
    EXPECT_FALSE(stream_is_poisoned(nullptr));
    made_enter_context(0);
}

TEST_F(Poison, OfAStreamThatDoesNotWaitForTheDefaultStreamDoesNotReachIt)
{
    made_beside_default(0, true);
    all_reduce(stream_);
    abort(comm_);
    made_enter_context(0);
    EXPECT_TRUE(stream_is_poisoned(stream_));
    EXPECT_FALSE(stream_is_poisoned(nullptr));
}

TEST_F(Poison, LeavesAloneWhatWasSynchronisedBefore)
{
    all_reduce(stream_);
    ng_poison_recorded(event(1), stream_, false);
    EXPECT_FALSE(event_is_poisoned(event(1))) << "it has finished, as the driver says";
    EXPECT_FALSE(stream_is_poisoned(stream_));
    ng_poison_recorded(event(2), stream_, false);
    void *first = comm_;
    comm_ = make_comm();
    all_reduce(other_);
    abort(first);
    EXPECT_FALSE(event_is_poisoned(event(1)));
    EXPECT_FALSE(event_is_poisoned(event(2)));
    EXPECT_FALSE(stream_is_poisoned(stream_));
}

TEST_F(Poison, OfOneCommunicatorIsNotThatOfAnother)
{
    all_reduce(stream_);
    void *first = comm_;
    comm_ = make_comm();
    ng_poison_recorded(event(1), stream_, false);
    abort(first);
    EXPECT_FALSE(stream_is_poisoned(other_));
    EXPECT_TRUE(event_is_poisoned(event(1)));
}

TEST_F(Poison, IsNotTakenAwayByWhoSynchronisedWithLess)
{
    all_reduce(stream_);
    struct ng_poison_before before = ng_poison_stream(stream_, false);
    all_reduce(stream_); /* another thread, while this one synchronises with the first */
    EXPECT_FALSE(ng_poison_settle(&before));
    abort(comm_);
    EXPECT_TRUE(stream_is_poisoned(stream_));
}

TEST_F(Poison, EndsWithANewCommunicator)
{
    all_reduce(stream_);
    ng_poison_recorded(event(1), stream_, false);
    abort(comm_);
    EXPECT_TRUE(stream_is_poisoned(stream_));
    comm_ = make_comm();
    EXPECT_FALSE(stream_is_poisoned(stream_));
    EXPECT_FALSE(event_is_poisoned(event(1)));
}

TEST_F(Poison, DoesNotEndWithACommunicatorWhoseMakingBeganBefore)
{
    int64_t before = ng_clock_mono_ns();
    all_reduce(stream_);
    abort(comm_);
    ng_poison_made(before);
    EXPECT_TRUE(stream_is_poisoned(stream_));
    ng_poison_made(ng_clock_mono_ns());
    EXPECT_FALSE(stream_is_poisoned(stream_));
}

TEST_F(Poison, EndsWhenTheProgramAcknowledges)
{
    all_reduce(stream_);
    abort(comm_);
    ng_poison_acknowledge();
    EXPECT_FALSE(stream_is_poisoned(stream_));
    EXPECT_FALSE(ng_poison_has_context(nullptr));
}

TEST_F(Poison, IsOfTheContextsWhoseWorkWasCutOffSinceTheLastAcknowledgement)
{
    all_reduce(stream_);
    abort(comm_);
    made_enter_context(0);
    EXPECT_TRUE(ng_poison_has_context(nullptr));
    made_enter_context(1);
    EXPECT_FALSE(ng_poison_has_context(nullptr));
    ng_poison_acknowledge();
    comm_ = make_comm();
    all_reduce(other_);
    abort(comm_);
    made_enter_context(1);
    EXPECT_TRUE(ng_poison_has_context(nullptr));
    made_enter_context(0);
    EXPECT_FALSE(ng_poison_has_context(nullptr));
}

TEST_F(Poison, OfAnEventEndsWithIt)
{
    all_reduce(stream_);
    ng_poison_recorded(event(1), stream_, false);
    ng_poison_destroyed(event(1));
    abort(comm_);
    EXPECT_FALSE(event_is_poisoned(event(1)));
}

/* More than the table has room for: rather one too many than one too few. */
TEST_F(Poison, IsNotLostForLackOfRoom)
{
    constexpr uintptr_t MANY = 40000;

    all_reduce(stream_);
    for (uintptr_t i = 1; i <= MANY; i++)
        ng_poison_recorded(event(i), stream_, false);
    abort(comm_);
    for (uintptr_t i = 1; i <= MANY; i++)
        ASSERT_TRUE(event_is_poisoned(event(i))) << i;
    for (uintptr_t i = 1; i <= MANY; i++)
        ng_poison_destroyed(event(i));
    ng_poison_acknowledge();
    EXPECT_FALSE(event_is_poisoned(event(1)));
}
