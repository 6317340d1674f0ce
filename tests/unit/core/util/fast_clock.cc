/*
 * The fast clock of this machine, whatever it is made of, read by threads while it is kept.
 */
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "tests/gtest/in_time.h"

extern "C" {
#include "tests/unit/core/util/fast_clock_reader.h"
}

TEST(FastClock, IsTheKernelsClockWhereverItIsRead)
{
    std::atomic<bool> stop{false};
    std::vector<std::thread> readers;
    std::atomic<int64_t> behind{0}, ahead{0};
    std::atomic<bool> went_back{false};

    for (int i = 0; i < 2; i++)
        readers.emplace_back([&] {
            while (!stop) {
                int64_t ahead_ns = 0, behind_ns = fast_clock_read(1000, &ahead_ns);
                went_back = went_back || behind_ns < 0;
                if (behind_ns > behind)
                    behind = behind_ns;
                if (ahead_ns > ahead)
                    ahead = ahead_ns;
            }
        });
    auto kept = std::chrono::steady_clock::now(), until = kept + std::chrono::milliseconds(1500);
    std::chrono::steady_clock::duration longest{0};
    for (auto now = kept; now < until; now = std::chrono::steady_clock::now()) {
        longest = std::max(longest, now - kept);
        kept = now;
        fast_clock_keep();
    }
    bool used = fast_clock_is_used();
    stop = true;
    longest = std::max(longest, std::chrono::steady_clock::now() - kept);
    for (auto &reader : readers)
        reader.join();
    fast_clock_forget();
    RecordProperty("used", used);
    EXPECT_FALSE(went_back);
    /* Between the two reads a thread may be interrupted, which only makes them less sharp. Who
     * keeps the clock must not be interrupted for longer than a second. */
    if (longest < std::chrono::seconds(1)) {
        EXPECT_LE(behind, 100000);
        EXPECT_LE(ahead, 20000);
    } else {
        EXPECT_IN_TIME(behind, 100000);
        EXPECT_IN_TIME(ahead, 20000);
    }
    EXPECT_FALSE(fast_clock_is_used());
}
