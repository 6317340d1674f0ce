/*
 * A sleep in which neither a signal nor a cancellation ends a thread's call.
 */
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>

extern "C" {
#include "core/util/clock.h"
}

namespace
{

struct Sleeper {
    std::atomic<int64_t> began_ns{0}, slept_ns{0};
    static void *sleep(void *self)
    {
        auto *sleeper = static_cast<Sleeper *>(self);
        int64_t began_ns = ng_clock_mono_ns();
        sleeper->began_ns = began_ns;
        ng_clock_sleep(100 * NG_MS);
        sleeper->slept_ns = ng_clock_mono_ns() - began_ns;
        pthread_testcancel();
        return nullptr;
    }
};

TEST(Clock, ASleepIsEndedNeitherByASignalNorByACancellation)
{
    Sleeper sleeper;
    pthread_t thread;
    void *result;
    signal(SIGUSR1, [](int) {});
    ASSERT_EQ(pthread_create(&thread, nullptr, Sleeper::sleep, &sleeper), 0);
    while (!sleeper.began_ns)
        std::this_thread::yield();
    pthread_cancel(thread);
    pthread_kill(thread, SIGUSR1);
    pthread_join(thread, &result);
    EXPECT_GE(sleeper.slept_ns, 100 * NG_MS);
    EXPECT_EQ(result, PTHREAD_CANCELED) << "after it";
}

} // namespace
