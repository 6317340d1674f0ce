/*
 * A counter that follows a clock: never far from it, never ahead of it, never back; and given up
 * once the two have come apart.
 */
#include <gtest/gtest.h>

#include <algorithm>

extern "C" {
#include "core/util/clock_follower.h"
}

namespace
{

/* A counter of `hz`, and a clock that runs faster than it should by `ppm`. */
struct Machine {
    double hz = 2.45e9, ppm = 0;
    double seconds = 1000; /* true time */
    double clock = 5000;

    void pass(double more)
    {
        seconds += more;
        clock += more * (1 + ppm / 1e6);
    }
    struct ng_clock_instant now() const
    {
        return {(uint64_t)(seconds * hz), (int64_t)(clock * 1e9)};
    }
};

struct ClockFollower : testing::Test {
    int64_t shown() const
    {
        return ng_clock_convert(follower_.factor, follower_.base, machine_.now().ticks);
    }
    /* Runs for a while and looks every tenth of a second: the largest distance from the clock, and
     * whether what is shown ever went back. */
    void run(double seconds, double noise_ns = 0)
    {
        for (int tenth = 0; tenth < seconds * 10; tenth++) {
            for (int step = 0; step < 50; step++) {
                machine_.pass(0.002005);
                if (!follower_.factor || follower_.is_off)
                    continue;
                int64_t ahead = shown() - machine_.now().mono_ns;
                behind_ = std::max(behind_, -ahead);
                ahead_ = std::max(ahead_, ahead);
                went_back_ = went_back_ || shown() < last_;
                last_ = shown();
            }
            struct ng_clock_instant now = machine_.now();
            now.mono_ns += (int64_t)(noise_ns * std::sin(tenth));
            bool shows = follower_.factor && !follower_.is_off;
            int64_t before = shows ? shown() : 0;
            changes_ += ng_clock_follow(&follower_, &now);
            /* One nanosecond is lost where the new scale is rounded. */
            went_back_ = went_back_ || (shows && !follower_.is_off && shown() < before - 1);
        }
    }

    Machine machine_;
    struct ng_clock_follower follower_ = {};
    int64_t behind_ = 0, ahead_ = 0, last_ = 0;
    int changes_ = 0;
    bool went_back_ = false;
};

} // namespace

TEST_F(ClockFollower, StaysWithinFiftyMicrosecondsOfTheClockAndNeverGoesBack)
{
    run(20, 300);
    EXPECT_FALSE(follower_.is_off);
    EXPECT_GT(changes_, 0);
    EXPECT_LE(behind_, 50000);
    EXPECT_LE(ahead_, 1000) << "in the first second, by the noise of the clocks";
    EXPECT_FALSE(went_back_);
    ahead_ = 0;
    run(20, 300);
    EXPECT_EQ(ahead_, 0) << "it has settled behind the clock";
}

TEST_F(ClockFollower, ChangesSeldomWhereTheClockIsSteady)
{
    run(5);
    int settled = changes_;
    run(60);
    EXPECT_LE(changes_ - settled, 60) << "once a second";
}

TEST_F(ClockFollower, FollowsAClockThatIsSlewed)
{
    run(3);
    for (double ppm : {500.0, -500.0, 100.0}) {
        machine_.ppm = ppm;
        run(5);
    }
    EXPECT_FALSE(follower_.is_off);
    EXPECT_LE(behind_, 150000);
    EXPECT_FALSE(went_back_);
    machine_.ppm = 0;
    run(3);
    behind_ = ahead_ = 0;
    run(3);
    EXPECT_LE(behind_, 50000);
    EXPECT_EQ(ahead_, 0);
}

TEST_F(ClockFollower, IsGivenUpForGoodOnceTheClocksAreApart)
{
    run(3);
    machine_.clock += 0.002; /* as after a migration */
    struct ng_clock_instant now = machine_.now();
    EXPECT_FALSE(ng_clock_follow(&follower_, &now)) << "too early to look";
    machine_.pass(0.1);
    now = machine_.now();
    EXPECT_TRUE(ng_clock_follow(&follower_, &now));
    EXPECT_TRUE(follower_.is_off);
    changes_ = 0;
    run(3);
    EXPECT_TRUE(follower_.is_off);
    EXPECT_EQ(changes_, 0);
}

TEST_F(ClockFollower, ACounterThatGoesBackOrIsTooSlowIsNotUsed)
{
    run(3);
    machine_.seconds -= 100;
    machine_.clock += 0.2;
    struct ng_clock_instant now = machine_.now();
    EXPECT_TRUE(ng_clock_follow(&follower_, &now));
    EXPECT_TRUE(follower_.is_off);

    follower_ = {};
    machine_.hz = 25e6;
    run(1);
    EXPECT_TRUE(follower_.is_off);
    EXPECT_EQ(follower_.factor, 0u);
}
