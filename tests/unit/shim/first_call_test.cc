/*
 * Threads that make the first NCCL call of a process together all reach the library, which becomes
 * one instance.
 */
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/unit/shim/probe.h"
#include "tests/unit/shim/recording_nccl.h"

TEST(FirstCall, OfManyThreadsAtOnce)
{
    const unsigned count = 16;
    std::mutex lock; /* protects go */
    std::condition_variable changed;
    bool go = false;
    std::atomic<unsigned> successes{0};
    std::vector<std::thread> threads;

    probe_set_active(true);
    for (unsigned i = 0; i < count; i++)
        threads.emplace_back([&] {
            std::unique_lock<std::mutex> guard(lock);
            changed.wait(guard, [&] { return go; });
            guard.unlock();
            if (ncclAllReduce(nullptr, nullptr, 1, ncclInt8, ncclSum, nullptr, nullptr) ==
                ncclSuccess)
                successes++;
        });
    {
        std::lock_guard<std::mutex> guard(lock);
        go = true;
    }
    changed.notify_all();
    for (std::thread &thread : threads)
        thread.join();

    EXPECT_EQ(successes, count);
    EXPECT_EQ(recording_of(RECORDING_AllReduce).calls, count);
    EXPECT_EQ(probe_call_count(), count);
    EXPECT_EQ(probe_nccl_count(), 1u);
    EXPECT_STREQ(probe_log(), "");
}
