/*
 * Who is compared with whom: ranks of one communicator, and never those of two that have one id, as
 * all have where NCCL_COMM_ID is set.
 */
#include "tests/unit/core/helpers/core.h"

extern "C" {
#include "tests/unit/core/helpers/compared.h"
}

namespace
{

constexpr uint64_t id = 0x77;

struct SignatureCompare : testing::Test {
    void SetUp() override
    {
        compared_begin();
    }
    static uint32_t made(int process, int nranks, int rank)
    {
        uint32_t slot = compared_make(process, id, nranks, rank);
        compared_ready(process, slot);
        return slot;
    }
    /* After one round an alarm was raised, or would have been, and the next one shows it. */
    static char across(uint32_t slot)
    {
        compared_round();
        compared_round();
        return compared_across(slot);
    }
};

TEST_F(SignatureCompare, RanksThatCallTheSameGoOn)
{
    uint32_t mine = made(0, 2, 0), theirs = made(1, 2, 1);
    for (uint64_t i = 1; i < 40; i++) {
        compared_call(0, mine, i);
        compared_call(1, theirs, i);
        ASSERT_EQ(across(mine), 't');
    }
}

TEST_F(SignatureCompare, RanksThatCallSomethingElseAreFound)
{
    uint32_t mine = made(0, 2, 0), theirs = made(1, 2, 1);
    compared_call(0, mine, 1);
    EXPECT_EQ(across(mine), 't');
    compared_call(1, theirs, 2);
    EXPECT_EQ(across(mine), 's');
}

/* An alarm may be dropped: with others at an abort, where too many wait, or where nobody could
 * look. */
TEST_F(SignatureCompare, RanksThatWereFoundToDifferAreFoundAgainUntilThatIsTold)
{
    uint32_t mine = made(0, 2, 0), theirs = made(1, 2, 1);
    compared_call(0, mine, 1);
    compared_call(1, theirs, 2);
    unsigned alarms = 0, rounds[3];
    for (unsigned round = 0; alarms < 3 && round < 100; round++) {
        compared_round();
        if (compared_alarms())
            rounds[alarms++] = round;
    }
    ASSERT_EQ(alarms, 3u);
    EXPECT_EQ(rounds[0], 0u);
    EXPECT_GE(rounds[1], 10u) << "a verdict takes its time";
    EXPECT_GE(rounds[2] - rounds[1], 20u) << "and it is asked for less and less often";
    compared_told(id);
    for (int i = 0; i < 2000; i++)
        compared_round();
    EXPECT_EQ(compared_alarms(), 0u);
}

/* One stands still at collective 41, in which the others have called what `theirs` says, or the
 * same. */
void runs_ahead(int ahead, uint32_t its, int behind, uint32_t still, uint64_t theirs,
                uint64_t calls)
{
    for (uint64_t i = 1; i <= 41; i++) {
        compared_call(ahead, its, i);
        compared_call(behind, still, i == 41 ? theirs : i);
    }
    for (uint64_t i = 42; i < 42 + calls; i++)
        compared_call(ahead, its, i);
}

struct SignatureCompareFarBehind : SignatureCompare {
    /* One process called `theirs` as its 41st and stands still, the other has run ahead. */
    void expect_found(uint64_t theirs, char found)
    {
        for (int ahead = 0; ahead < 2; ahead++) {
            compared_begin();
            uint32_t mine = made(0, 2, 0), other = made(1, 2, 1);
            uint32_t slots[] = {mine, other};
            runs_ahead(ahead, slots[ahead], 1 - ahead, slots[1 - ahead], theirs, 200);
            EXPECT_EQ(across(mine), found) << "process " << ahead << " is ahead";
        }
    }
};

TEST_F(SignatureCompareFarBehind, OneThatStandsStillIsComparedWithThoseThatHaveRunAhead)
{
    expect_found(1000, 's');
}

TEST_F(SignatureCompareFarBehind, OneThatStandsStillAndCalledTheSameIsNotTold)
{
    expect_found(41, 't');
}

TEST_F(SignatureCompare, ARecordThatDoesNotFollowFromTheOneBeforeIsNotBelieved)
{
    for (int ahead = 0; ahead < 2; ahead++)
        for (uint32_t back = 0; back < 20; back++) {
            compared_begin();
            uint32_t mine = made(0, 2, 0), other = made(1, 2, 1);
            uint32_t slots[] = {mine, other};
            runs_ahead(ahead, slots[ahead], 1 - ahead, slots[1 - ahead], 41, 200);
            compared_spoil(ahead, 200 + back);
            EXPECT_EQ(across(mine), 't') << "process " << ahead << " is ahead, " << back;
        }
}

TEST_F(SignatureCompare, WhatNoRecordTellsOfAnyMoreIsNotTold)
{
    uint32_t mine = made(0, 2, 0), other = made(1, 2, 1);
    runs_ahead(1, other, 0, mine, 1000, 2 * COMPARED_RECORDS);
    EXPECT_EQ(across(mine), 't');
}

TEST_F(SignatureCompare, TheNextCommunicatorOfAnIdIsNotComparedWithTheOneBefore)
{
    uint32_t first = made(0, 2, 0), theirs = made(1, 2, 1);
    compared_call(0, first, 1);
    compared_call(1, theirs, 1);
    EXPECT_EQ(across(first), 't');
    /* The other rank has entered the init of the next one, too, but not come back from it. */
    compared_destroy(0, first);
    uint32_t next = made(0, 2, 0), their_next = compared_make(1, id, 2, 1);
    compared_call(0, next, 2);
    EXPECT_EQ(across(next), 't') << "nothing is wrong";
    EXPECT_EQ(compared_across(first), 's');
    compared_ready(1, their_next);
    compared_call(1, their_next, 2);
    EXPECT_EQ(across(next), 't');
    compared_destroy(1, theirs);
    EXPECT_EQ(across(next), 't');
    compared_call(0, next, 3);
    compared_call(1, their_next, 4);
    EXPECT_EQ(across(next), 's') << "now they differ";
}

TEST_F(SignatureCompare, OfTwoThatLiveWithOneIdNeitherIsTold)
{
    uint32_t first = made(0, 2, 0), second = compared_make(0, id, 2, 0);
    compared_call(0, first, 1);
    EXPECT_EQ(across(first), 's') << "one is in the making";
    compared_ready(0, second);
    compared_call(0, second, 2);
    EXPECT_EQ(across(first), 's');
    EXPECT_EQ(across(second), 's');
    compared_destroy(0, first);
    EXPECT_EQ(across(second), 't');
    uint32_t larger = made(0, 3, 1);
    EXPECT_EQ(across(second), 's') << "of another size";
    compared_destroy(0, larger);
    EXPECT_EQ(across(second), 't');
    made(0, 2, 1);
    EXPECT_EQ(across(second), 't') << "another device of this process";
}

TEST_F(SignatureCompare, WhatWasOnTheStoreBeforeTheCommunicatorIsNoNews)
{
    uint32_t slot = made(0, 2, 1);
    EXPECT_FALSE(compared_is_news(slot, 100)) << "perhaps of an earlier one";
    EXPECT_FALSE(compared_is_news(slot, 100));
    EXPECT_TRUE(compared_is_news(slot, 101)) << "rank 0 lives and tells";
    EXPECT_TRUE(compared_is_news(slot, 102));
}

} // namespace
