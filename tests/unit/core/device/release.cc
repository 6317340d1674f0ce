/* Waiting until a communicator can be freed, by a clock that moves on with each look at it. */
#include <gtest/gtest.h>
#include <time.h>

extern "C" {
#include "core/device/release.h"
bool __wrap_ng_async_asks(const struct ng_comm *comm);
bool __wrap_ng_launch_counters_copies(const struct ng_comm *comm);
bool __wrap_ng_connections_copies(const struct ng_comm *comm);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);
}

const int FOR_EVER = -1;
static int asks, copies, looks; /* so many more times it is found in use */
long now_ms;

static bool take(int *left)
{
    return *left == FOR_EVER || (*left > 0 && (*left)--);
}

static long waited_ms(int asks_for, int copies_for, int looks_for = 0)
{
    long begun = now_ms;

    asks = asks_for;
    copies = copies_for;
    looks = looks_for;
    ng_release_await(nullptr);
    return now_ms - begun;
}

bool __wrap_ng_async_asks(const struct ng_comm *)
{
    return take(&asks);
}

bool __wrap_ng_launch_counters_copies(const struct ng_comm *)
{
    return take(&copies);
}

bool __wrap_ng_connections_copies(const struct ng_comm *)
{
    return take(&looks);
}

int __wrap_clock_gettime(clockid_t, struct timespec *ret_time)
{
    now_ms++;
    *ret_time = {now_ms / 1000, now_ms % 1000 * 1000000};
    return 0;
}

TEST(Release, ACommunicatorThatNobodyUsesIsFreedAtOnce)
{
    EXPECT_EQ(waited_ms(0, 0), 0);
}

TEST(Release, AQueryAndACopyComeToTheirEndFirst)
{
    EXPECT_GE(waited_ms(10, 0), 10);
    EXPECT_EQ(asks, 0);
    EXPECT_GE(waited_ms(0, 10), 10);
    EXPECT_EQ(copies, 0);
    EXPECT_GE(waited_ms(10, 10), 20);
    EXPECT_GE(waited_ms(0, 0, 10), 10);
    EXPECT_EQ(looks, 0);
    EXPECT_EQ(asks + copies, 0);
}

TEST(Release, OneThatHangsIsNotWaitedForLong)
{
    EXPECT_NEAR((double)waited_ms(FOR_EVER, 0), 2000, 5);
    EXPECT_NEAR((double)waited_ms(0, FOR_EVER), 150, 5);
    EXPECT_NEAR((double)waited_ms(0, 0, FOR_EVER), 150, 5);
    EXPECT_NEAR((double)waited_ms(FOR_EVER, FOR_EVER), 2000, 5);
}
