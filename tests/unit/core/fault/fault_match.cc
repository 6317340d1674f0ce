/*
 * Which calls a fault happens to: ranks, groups, counts and chance.
 */
#include "tests/unit/core/helpers/core.h"

#define _Atomic
extern "C" {
#include "core/fault/fault_match.h"
}
#undef _Atomic

namespace
{

/* One fault and the calls that it is compared with. */
class Match
{
  public:
    explicit Match(const std::string &text) : counts_(std::make_unique<ng_fault_counts>())
    {
        memset((void *)counts_.get(), 0, sizeof(ng_fault_counts));
        ng_fault_mistake mistake;
        EXPECT_EQ(ng_fault_spec_parse(text.c_str(), &spec_, &mistake), 0) << mistake.what;
    }
    bool happens(int rank, ng_op op = NG_OP_AllReduce, uint32_t group = 1, uint64_t id = 0xab,
                 const char *name = "")
    {
        ng_fault_call call = {op, rank, id, name, group};
        return ng_fault_match(&spec_.faults[0], 0, &call, counts_.get());
    }
    /* Of the next `n` calls of this rank, those that it happens to, from 1. */
    std::vector<int> of(int n, int rank = 0, uint32_t group = 1)
    {
        std::vector<int> found;
        for (int i = 1; i <= n; i++)
            if (happens(rank, NG_OP_AllReduce, group))
                found.push_back(i);
        return found;
    }

  private:
    ng_fault_spec spec_ = {};
    std::unique_ptr<ng_fault_counts> counts_;
};

TEST(FaultMatch, EachCallThatMatchesWhereNothingCounts)
{
    EXPECT_EQ(Match("*:skip").of(3), (std::vector<int>{1, 2, 3}));
}

TEST(FaultMatch, TheNthOfEachRank)
{
    Match match("op=AllReduce,nth=3:hang");

    EXPECT_FALSE(match.happens(0, NG_OP_Broadcast));
    EXPECT_EQ(match.of(5, 0), std::vector<int>{3});
    EXPECT_EQ(match.of(5, 1), std::vector<int>{3});
    EXPECT_EQ(match.of(5, 0), std::vector<int>{});
}

TEST(FaultMatch, TheNthOverAllGroups)
{
    Match match("rank=0,nth=4:hang");

    EXPECT_EQ(match.of(2, 0, 1), std::vector<int>{});
    EXPECT_EQ(match.of(5, 0, 2), std::vector<int>{2});
}

TEST(FaultMatch, EveryNth)
{
    EXPECT_EQ(Match("every=3:skip").of(10), (std::vector<int>{3, 6, 9}));
    EXPECT_EQ(Match("nth=2,every=3:skip").of(10), (std::vector<int>{2, 5, 8}));
}

TEST(FaultMatch, ByRank)
{
    Match match("rank=2:hang");

    EXPECT_FALSE(match.happens(1));
    EXPECT_FALSE(match.happens(-1));
    EXPECT_TRUE(match.happens(2));
}

TEST(FaultMatch, ByGroupsNameOrId)
{
    Match name("group=tp_*:hang"), id("group=00000000000000AB:hang");

    EXPECT_TRUE(name.happens(0, NG_OP_AllReduce, 1, 0xab, "tp_3"));
    EXPECT_FALSE(name.happens(0, NG_OP_AllReduce, 1, 0xab, "pp_3"));
    EXPECT_FALSE(name.happens(0));
    EXPECT_TRUE(id.happens(0));
    EXPECT_FALSE(id.happens(0, NG_OP_AllReduce, 1, 0xac));
}

/* What does not match is not counted. */
TEST(FaultMatch, CountsOnlyWhatMatches)
{
    Match match("group=tp,nth=2:hang");

    EXPECT_FALSE(match.happens(0, NG_OP_AllReduce, 1, 1, "tp"));
    EXPECT_FALSE(match.happens(0, NG_OP_AllReduce, 2, 2, "pp"));
    EXPECT_TRUE(match.happens(0, NG_OP_AllReduce, 1, 1, "tp"));
}

TEST(FaultMatch, TheSameSeedHappensAtTheSamePlaces)
{
    std::vector<int> first = Match("prob=0.1,seed=7:skip").of(1000, 3, 2);

    EXPECT_GT(first.size(), 60u);
    EXPECT_LT(first.size(), 140u);
    EXPECT_EQ(Match("prob=0.1,seed=7:skip").of(1000, 3, 2), first);
    EXPECT_NE(Match("prob=0.1,seed=8:skip").of(1000, 3, 2), first);
    EXPECT_NE(Match("prob=0.1,seed=7:skip").of(1000, 4, 2), first);
    EXPECT_NE(Match("prob=0.1,seed=7:skip").of(1000, 3, 1), first);
    /* Groups do not disturb each other's numbers. */
    Match both("prob=0.1,seed=7:skip");
    std::vector<int> found;
    for (int i = 1; i <= 1000; i++) {
        both.happens(3, NG_OP_AllReduce, 1);
        if (both.happens(3, NG_OP_AllReduce, 2))
            found.push_back(i);
    }
    EXPECT_EQ(found, first);
    /* The id, which differs from run to run, says nothing. */
    Match other("prob=0.1,seed=7:skip");
    found.clear();
    for (int i = 1; i <= 1000; i++)
        if (other.happens(3, NG_OP_AllReduce, 2, (uint64_t)i))
            found.push_back(i);
    EXPECT_EQ(found, first);
}

TEST(FaultMatch, ACertainChanceIsEachCall)
{
    EXPECT_EQ(Match("prob=1:skip").of(50).size(), 50u);
}

TEST(FaultMatch, CountsOnWhereThereIsNoRoom)
{
    auto counts = std::make_unique<ng_fault_counts>();
    memset((void *)counts.get(), 0, sizeof(*counts));

    for (uint64_t key = 1; key <= NG_FAULT_COUNTS; key++)
        ASSERT_EQ(ng_fault_counts_add(counts.get(), key), 1u);
    EXPECT_GT(ng_fault_counts_add(counts.get(), NG_FAULT_COUNTS + 1), 0u);
    EXPECT_EQ(ng_fault_counts_add(counts.get(), 5) >= 2, true);
}

} // namespace
