/*
 * The map of memory: every answer is that of a plain ordered map.
 */
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>
#include <vector>

extern "C" {
#include "core/util/memory_map.h"
}

namespace
{

struct ng_segment segment(uintptr_t base, size_t bytes, int kind = NG_SEGMENT_PLAIN, int device = 0)
{
    struct ng_segment made = {
        .base = base, .bytes = bytes, .device = (int16_t)device, .kind = (uint8_t)kind};
    return made;
}

struct MemoryMap : testing::Test {
    void TearDown() override
    {
        ng_memory_map_reset(&map_);
    }
    struct ng_memory_map map_ = NG_MEMORY_MAP_EMPTY;
};

bool is_of_device(const struct ng_segment *one, int device)
{
    return one->device == device;
}

TEST_F(MemoryMap, AnAddressBelongsToTheRangeThatHoldsIt)
{
    struct ng_segment found;
    EXPECT_FALSE(ng_memory_map_find(&map_, 0x1000, &found));
    struct ng_segment one = segment(0x1000, 0x100);
    ASSERT_EQ(ng_memory_map_add(&map_, &one), 0);
    EXPECT_FALSE(ng_memory_map_find(&map_, 0xfff, &found));
    EXPECT_TRUE(ng_memory_map_find(&map_, 0x1000, &found));
    EXPECT_TRUE(ng_memory_map_find(&map_, 0x10ff, &found));
    EXPECT_FALSE(ng_memory_map_find(&map_, 0x1100, &found));
    EXPECT_FALSE(ng_memory_map_remove(&map_, 0x1001, &found));
    EXPECT_TRUE(ng_memory_map_remove(&map_, 0x1000, &found));
    EXPECT_EQ(found.bytes, 0x100u);
    EXPECT_FALSE(ng_memory_map_find(&map_, 0x1000, &found));
}

TEST_F(MemoryMap, WhatGoesAroundTheEndOfTheAddressSpaceIsRefused)
{
    struct ng_segment one = segment(UINTPTR_MAX - 10, 100), none = segment(5, 0),
                      last = segment(UINTPTR_MAX - 10, 11);
    EXPECT_EQ(ng_memory_map_add(&map_, &one), -EINVAL);
    EXPECT_EQ(ng_memory_map_add(&map_, &none), -EINVAL);
    EXPECT_EQ(ng_memory_map_add(&map_, &last), 0);
    EXPECT_TRUE(ng_memory_map_find(&map_, UINTPTR_MAX, &one));
}

TEST_F(MemoryMap, ARangeReplacesThoseThatWereFreedUnseen)
{
    struct ng_segment found;
    for (uintptr_t base : {0x1000, 0x2000, 0x3000, 0x4000}) {
        struct ng_segment one = segment(base, 0x800);
        ng_memory_map_add(&map_, &one);
    }
    struct ng_segment large = segment(0x1700, 0x2000, NG_SEGMENT_MAPPED);
    ASSERT_EQ(ng_memory_map_add(&map_, &large), 0);
    EXPECT_EQ(map_.replaced, 3u);
    EXPECT_FALSE(ng_memory_map_find(&map_, 0x1000, &found));
    EXPECT_TRUE(ng_memory_map_find(&map_, 0x3000, &found));
    EXPECT_EQ(found.kind, NG_SEGMENT_MAPPED);
    EXPECT_TRUE(ng_memory_map_find(&map_, 0x4000, &found));
    struct ng_memory_sum sums[NG_SEGMENT_KINDS];
    ng_memory_map_sum(&map_, sums);
    EXPECT_EQ(sums[NG_SEGMENT_PLAIN].segments, 1u);
    EXPECT_EQ(sums[NG_SEGMENT_PLAIN].bytes, 0x800u);
    EXPECT_EQ(sums[NG_SEGMENT_MAPPED].bytes, 0x2000u);
}

TEST_F(MemoryMap, AnyOrderOfAMillionOperationsAgreesWithAPlainMap)
{
    std::map<uintptr_t, struct ng_segment> plain;
    std::mt19937_64 random(20261122);
    struct ng_segment found;

    for (unsigned i = 0; i < 1000000; i++) {
        uintptr_t base = (random() % 20000) * 0x1000 + 0x10000;
        size_t bytes = (random() % 6 + 1) * 0x800;
        unsigned what = (unsigned)(random() % 100);
        /* It grows and shrinks in turns, so that leaves split and join. */
        unsigned adds = i / 100000 % 2 ? 20 : 45;
        if (what < adds) {
            struct ng_segment one =
                segment(base, bytes, (int)(random() % NG_SEGMENT_KINDS), (int)(random() % 4));
            auto at = plain.upper_bound(base + bytes - 1);
            while (at != plain.begin() && std::prev(at)->first + std::prev(at)->second.bytes > base)
                plain.erase(std::prev(at));
            plain[base] = one;
            ASSERT_EQ(ng_memory_map_add(&map_, &one), 0);
        } else if (what < 65) {
            ASSERT_EQ(ng_memory_map_remove(&map_, base, &found), plain.erase(base) == 1) << i;
        } else if (what < 99) {
            uintptr_t address = base + random() % 0x1000;
            auto at = plain.upper_bound(address);
            bool holds =
                at != plain.begin() && address - std::prev(at)->first < std::prev(at)->second.bytes;
            ASSERT_EQ(ng_memory_map_find(&map_, address, &found), holds) << i;
            if (holds) {
                ASSERT_EQ(found.base, std::prev(at)->first);
                ASSERT_EQ(found.bytes, std::prev(at)->second.bytes);
                ASSERT_EQ(found.device, std::prev(at)->second.device);
            }
            auto next = plain.lower_bound(address);
            ASSERT_EQ(ng_memory_map_next(&map_, address, &found), next != plain.end());
            if (next != plain.end()) {
                ASSERT_EQ(found.base, next->first);
            }
        } else if (random() % 2000 == 0) {
            uint64_t gone = 0;
            for (auto at = plain.begin(); at != plain.end();) {
                bool goes = at->second.device == 1;
                gone += goes;
                at = goes ? plain.erase(at) : std::next(at);
            }
            ASSERT_EQ(ng_memory_map_remove_all(&map_, is_of_device, 1), gone);
        }
    }
    struct ng_memory_sum sums[NG_SEGMENT_KINDS], wanted[NG_SEGMENT_KINDS] = {};
    for (auto &one : plain) {
        wanted[one.second.kind].segments++;
        wanted[one.second.kind].bytes += one.second.bytes;
    }
    ng_memory_map_sum(&map_, sums);
    for (unsigned kind = 0; kind < NG_SEGMENT_KINDS; kind++) {
        EXPECT_EQ(sums[kind].segments, wanted[kind].segments);
        EXPECT_EQ(sums[kind].bytes, wanted[kind].bytes);
    }
    EXPECT_EQ(map_.lost, 0u);
}

TEST_F(MemoryMap, ThreadsThatAllocateAndFreeKeepTheirOwn)
{
    std::vector<std::thread> threads;
    std::atomic<unsigned> wrong{0};

    for (uintptr_t t = 0; t < 4; t++)
        threads.emplace_back([this, t, &wrong] {
            std::mt19937_64 random(t);
            std::map<uintptr_t, size_t> own;
            for (unsigned i = 0; i < 50000; i++) {
                uintptr_t base = ((random() % 1000) * 4 + t) * 0x1000 + 0x100000;
                struct ng_segment found;
                if (own.erase(base)) {
                    wrong += !ng_memory_map_remove(&map_, base, &found);
                } else {
                    struct ng_segment one = segment(base, 0x1000, NG_SEGMENT_PLAIN, (int)t);
                    wrong += ng_memory_map_add(&map_, &one) != 0;
                    own[base] = 1;
                    wrong +=
                        !ng_memory_map_find(&map_, base + 0xfff, &found) || found.device != (int)t;
                }
            }
        });
    for (auto &thread : threads)
        thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(map_.replaced, 0u);
}

} // namespace
