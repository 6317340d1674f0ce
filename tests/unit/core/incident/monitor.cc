/*
 * The monitor's arithmetic: when a silence is a silence.
 */
#include <gtest/gtest.h>

extern "C" {
#include "core/incident/monitor.h"
#include "core/util/clock.h"
}

TEST(Monitor, LooksOftenEnoughAndNeverMoreOftenThanItMust)
{
    EXPECT_EQ(ng_monitor_pause_ns(60 * NG_S), NG_S) << "one wakeup a second at most";
    EXPECT_EQ(ng_monitor_pause_ns(2 * NG_S), 250 * NG_MS);
    EXPECT_EQ(ng_monitor_pause_ns(1), 10 * NG_MS);
}

TEST(Monitor, AnIdleWatchdogIsNeverSilentForTooLong)
{
    EXPECT_EQ(ng_monitor_bound_ns(60 * NG_S, NG_S), 60 * NG_S);
    EXPECT_EQ(ng_monitor_bound_ns(0, 30 * NG_S), 30 * NG_S) << "switched off: only logged";
    EXPECT_EQ(ng_monitor_bound_ns(0, NG_S), 5 * NG_S);
    EXPECT_EQ(ng_monitor_bound_ns(0, 0), 0) << "nothing is suspect";
}

TEST(Monitor, TimeInWhichItDidNotRunCountsForLittle)
{
    EXPECT_EQ(ng_monitor_credit_ns(NG_S, NG_S), NG_S);
    EXPECT_EQ(ng_monitor_credit_ns(600 * NG_S, NG_S), 1500 * NG_MS);
    EXPECT_EQ(ng_monitor_credit_ns(-1, NG_S), 0);
}

TEST(Monitor, AClockThatMovesIsNeverSilent)
{
    struct ng_silence silence = {};

    for (int64_t at = 1; at < 100; at++)
        EXPECT_EQ(ng_silence_look(&silence, at, NG_S), 0);
}

TEST(Monitor, AClockThatStandsStillIsSilentForAsLongAsItWasLookedAt)
{
    struct ng_silence silence = {};

    ng_silence_look(&silence, 5, NG_S);
    EXPECT_EQ(ng_silence_look(&silence, 5, NG_S), NG_S);
    EXPECT_EQ(ng_silence_look(&silence, 5, 2 * NG_S), 3 * NG_S);
    EXPECT_EQ(ng_silence_look(&silence, 6, 2 * NG_S), 0);
}

/* Stopped for ten minutes after every look, as under a debugger: both threads run between. */
TEST(Monitor, AProcessThatIsStoppedAgainAndAgainIsNotSilent)
{
    struct ng_silence silence = {};
    int64_t timeout_ns = 60 * NG_S, pause_ns = ng_monitor_pause_ns(timeout_ns);

    for (int64_t round = 1; round < 1000; round++)
        EXPECT_LT(
            ng_silence_look(&silence, round, ng_monitor_credit_ns(600 * NG_S + pause_ns, pause_ns)),
            timeout_ns);
}
