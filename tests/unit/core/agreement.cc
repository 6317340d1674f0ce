/*
 * Who is compared with whom: ranks of one communicator, and never those of two that have one id, as
 * all have where NCCL_COMM_ID is set.
 */
#include "tests/unit/core/core.h"

extern "C" {
#include "tests/unit/core/compared.h"
}

namespace
{

constexpr uint64_t id = 0x77;

class Agreement : public testing::Test
{
  protected:
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

TEST_F(Agreement, RanksThatCallTheSameGoOn)
{
    uint32_t mine = made(0, 2, 0), theirs = made(1, 2, 1);
    for (uint64_t i = 1; i < 40; i++) {
        compared_call(0, mine, i);
        compared_call(1, theirs, i);
        ASSERT_EQ(across(mine), 't');
    }
}

TEST_F(Agreement, RanksThatCallSomethingElseAreFound)
{
    uint32_t mine = made(0, 2, 0), theirs = made(1, 2, 1);
    compared_call(0, mine, 1);
    EXPECT_EQ(across(mine), 't');
    compared_call(1, theirs, 2);
    EXPECT_EQ(across(mine), 's');
}

TEST_F(Agreement, TheNextCommunicatorOfAnIdIsNotComparedWithTheOneBefore)
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

TEST_F(Agreement, OfTwoThatLiveWithOneIdNeitherIsTold)
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

TEST_F(Agreement, WhatWasOnTheStoreBeforeTheCommunicatorIsNoNews)
{
    uint32_t slot = made(0, 2, 1);
    EXPECT_FALSE(compared_is_news(slot, 100)) << "perhaps of an earlier one";
    EXPECT_FALSE(compared_is_news(slot, 100));
    EXPECT_TRUE(compared_is_news(slot, 101)) << "rank 0 lives and tells";
    EXPECT_TRUE(compared_is_news(slot, 102));
}

} // namespace
