/*
 * The arena: zeroed, aligned, large objects, formatted text, reuse after reset.
 */
#include "tests/unit/core/helpers/core.h"

TEST(Arena, GivesZeroedAlignedMemoryThatDoesNotOverlap)
{
    OwnArena arena;
    std::vector<std::pair<unsigned char *, size_t>> given;

    for (size_t bytes = 0; bytes < 3000; bytes += 7) {
        auto *memory = (unsigned char *)ng_arena_alloc(&arena, bytes);
        ASSERT_NE(memory, nullptr);
        EXPECT_EQ((uintptr_t)memory % 16, 0u);
        for (size_t i = 0; i < bytes; i++)
            ASSERT_EQ(memory[i], 0);
        memset(memory, (int)(given.size() & 0xff), bytes);
        given.push_back({memory, bytes});
    }
    for (size_t n = 0; n < given.size(); n++)
        for (size_t i = 0; i < given[n].second; i++)
            ASSERT_EQ(given[n].first[i], n & 0xff) << "object " << n << " was overwritten";
}

TEST(Arena, GivesObjectsLargerThanAChunkAndGoesOnWithTheOldChunk)
{
    OwnArena arena;
    char *before = (char *)ng_arena_alloc(&arena, 16);
    char *large = (char *)ng_arena_alloc(&arena, 8u << 20);
    char *after = (char *)ng_arena_alloc(&arena, 16);

    ASSERT_TRUE(before && large && after);
    large[0] = large[(8u << 20) - 1] = 1;
    EXPECT_EQ(after - before, 16) << "the room behind the first object is wasted";
}

TEST(Arena, RefusesWhatNoMachineHasAndStaysUsable)
{
    OwnArena arena;

    EXPECT_EQ(ng_arena_alloc(&arena, SIZE_MAX), nullptr);
    EXPECT_EQ(ng_arena_alloc(&arena, SIZE_MAX - 8), nullptr);
    EXPECT_EQ(ng_arena_alloc(&arena, (size_t)1 << 50), nullptr);
    EXPECT_NE(ng_arena_alloc(&arena, 1), nullptr);
}

TEST(Arena, CopiesAndFormatsText)
{
    OwnArena arena;

    EXPECT_STREQ(ng_arena_strdup(&arena, "a rank"), "a rank");
    EXPECT_STREQ(ng_arena_strdup(&arena, nullptr), "");
    EXPECT_STREQ(ng_arena_printf(&arena, "%s %d", "rank", 7), "rank 7");
    EXPECT_LT(strlen(ng_arena_printf(&arena, "%5000d", 1)), 5000u) << "cut, not overflown";
}

TEST(Arena, GivesZeroedMemoryAgainAndAgainWhenRecycled)
{
    struct ng_arena arena = {};

    ng_arena_recycle(&arena); /* of one never used */
    for (int round = 0; round < 4; round++) {
        /* Small and large ones, and more of them each time. */
        for (size_t bytes :
             {size_t(100), size_t(700000), size_t(5000 * (round + 1)), size_t(300000)}) {
            auto *memory = (unsigned char *)ng_arena_alloc(&arena, bytes);
            ASSERT_NE(memory, nullptr);
            for (size_t i = 0; i < bytes; i++)
                ASSERT_EQ(memory[i], 0) << "round " << round << ", byte " << i << " of " << bytes;
            memset(memory, 0xff, bytes);
        }
        ng_arena_recycle(&arena);
    }
    ng_arena_reset(&arena);
    EXPECT_EQ(arena.chunks, nullptr);
}

TEST(Arena, IsEmptyAndUsableAfterReset)
{
    struct ng_arena arena = {};

    ng_arena_reset(&arena); /* of one never used */
    for (int round = 0; round < 3; round++) {
        auto *memory = (unsigned char *)ng_arena_alloc(&arena, 1000);
        ASSERT_NE(memory, nullptr);
        EXPECT_EQ(memory[999], 0);
        memset(memory, 0xff, 1000);
        ng_arena_reset(&arena);
        EXPECT_EQ(arena.chunks, nullptr);
    }
}

TEST(Arena, AppendsToAnArrayThatMovesWhenItIsFullAndStaysWholeWithoutMemory)
{
    OwnArena arena;
    uint64_t *numbers = nullptr;
    uint32_t count = 0, room = 0;

    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t *added = NG_ARENA_APPEND(&arena, numbers, count, room);
        ASSERT_NE(added, nullptr);
        ASSERT_EQ(added, &numbers[i]);
        ASSERT_EQ(*added, 0u) << "a new element is not zeroed";
        *added = i + 1;
    }
    ASSERT_EQ(count, 1000u);
    for (uint64_t i = 0; i < 1000; i++)
        ASSERT_EQ(numbers[i], i + 1) << "lost when the array moved";
    room = count;
    EXPECT_EQ(ng_arena_grow(&arena, numbers, count, &room, SIZE_MAX / 4096), nullptr);
    EXPECT_EQ(room, 1000u);
}
