/*
 * Which groups a policy aborts for a verdict.
 */
#include "tests/unit/core/helpers/job.h"

extern "C" {
#include "core/verdict/affected_groups.h"
}

namespace
{

constexpr uint64_t WORLD = 0xd, LEFT = 0xa, RIGHT = 0xb, CROSS = 0xc;

struct AffectedGroups {
    bool all;
    std::set<uint64_t> groups;
};

/* Of the verdict on this job, as the engine reaches it. */
AffectedGroups scope_of(const Job &job)
{
    JudgedView view(job);
    struct ng_group_set scope;

    ng_affected_groups_find(&view, &view.verdict, &scope);
    AffectedGroups found = {scope.all, {scope.groups, scope.groups + scope.count}};
    EXPECT_EQ(found.groups.size(), scope.count) << "none twice";
    return found;
}

/* Four ranks: all, two halves, and one pair across them. Rank 2 is missed by all. */
Job four()
{
    Job job(4, WORLD, "world");
    job.group(LEFT, "left", {0, 1});
    job.group(RIGHT, "right", {2, 3});
    job.group(CROSS, "cross", {1, 2});
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).did(3);
    job.wait(WORLD, {0, 1, 3});
    return job;
}

} // namespace

TEST(AffectedGroups, OfARankThatIsMissingItIsTheGroupAlone)
{
    AffectedGroups scope = scope_of(four());
    EXPECT_FALSE(scope.all);
    EXPECT_EQ(scope.groups, std::set<uint64_t>{WORLD});
}

TEST(AffectedGroups, OfADeadRankItIsEveryGroupThatItIsIn)
{
    Job job = four();
    job.process(2).life = NG_LIFE_DEAD;
    EXPECT_EQ(scope_of(job).groups, (std::set<uint64_t>{WORLD, RIGHT, CROSS}));
    /* But what it had ended before. */
    job.at(CROSS, 1).state = NG_GROUP_DESTROYED;
    EXPECT_EQ(scope_of(job).groups, (std::set<uint64_t>{WORLD, RIGHT}));
}

TEST(AffectedGroups, WhoDiedWithoutBeingTheCauseDoomsItsGroupsToo)
{
    Job job = four();
    job.process(2).is(NG_LIFE_DEAD, 20 * NG_S);
    job.process(0).is(NG_LIFE_DEAD, NG_S);
    EXPECT_EQ(scope_of(job).groups, (std::set<uint64_t>{WORLD, LEFT, RIGHT, CROSS}));
}

TEST(AffectedGroups, WhoLeftOrIsLostCountsOnlyAsACulprit)
{
    for (enum ng_life life : {NG_LIFE_EXITED, NG_LIFE_LOST}) {
        Job job = four();
        job.process(2).life = life;
        EXPECT_EQ(scope_of(job).groups, (std::set<uint64_t>{WORLD, RIGHT, CROSS})) << life;
        job = four();
        job.at(WORLD, 3).completed = 4;
        job.process(3).life = life;
        EXPECT_EQ(scope_of(job).groups, (std::set<uint64_t>{WORLD})) << life;
    }
}

/* Rank 1 left for the end of rank 2, and rank 0 waits for rank 1 where rank 2 has no part. */
TEST(AffectedGroups, WhoLeftSinceNcclToldItOfAnEndTakesItsGroupsAlong)
{
    Job job(4);
    job.group(WORLD, "unconcerned", {0, 3});
    job.group(LEFT, "pair", {0, 1});
    job.group(RIGHT, "row", {1, 2});
    job.at(WORLD, 0).did(2);
    job.at(WORLD, 1).did(2);
    job.at(LEFT, 0).did(2).waits();
    job.at(LEFT, 1).did(2);
    job.at(RIGHT, 0).did(2).waits().async_error = 6;
    job.at(RIGHT, 1).did(2);
    job.process(1).life = NG_LIFE_EXITED;
    job.process(2).life = NG_LIFE_DEAD;
    job.process(1).life_age_ns = NG_S;
    job.process(2).life_age_ns = job.process(2).alive_age_ns = 2 * NG_S;
    EXPECT_EQ(scope_of(job).groups, (std::set<uint64_t>{LEFT, RIGHT}));
}

TEST(AffectedGroups, OfACycleItIsEveryGroupInIt)
{
    Job job(2, LEFT, "a");
    job.group(RIGHT, "b");
    job.group(CROSS, "c");
    job.at(LEFT, 0).waits();
    job.at(RIGHT, 1).waits();
    EXPECT_EQ(scope_of(job).groups, (std::set<uint64_t>{LEFT, RIGHT}));
}

TEST(AffectedGroups, WhatIsMadeFromAnotherOneTakesThatAlong)
{
    Job job(2, WORLD, "world");
    job.group(LEFT, "child", {0, 1});
    job.derive(LEFT, WORLD);
    job.at(LEFT, 0).state = NG_GROUP_CREATING;
    job.forget(LEFT, 1);
    job.inside(0, NG_OP_CommSplit, LEFT);
    EXPECT_EQ(scope_of(job).groups, (std::set<uint64_t>{WORLD, LEFT}));
}

TEST(AffectedGroups, WhereNothingIsNamedItIsAll)
{
    AffectedGroups scope = scope_of(Job(2));
    EXPECT_TRUE(scope.all);
    EXPECT_TRUE(scope.groups.empty());
}

TEST(AffectedGroups, MoreGroupsThanThereIsRoomForAreAll)
{
    Job job = four();
    job.process(2).life = NG_LIFE_DEAD;
    for (uint64_t id = 0x100; id < 0x100 + NG_GROUP_SET_MAX; id++)
        job.group(id, "pair", {2, 3});
    EXPECT_TRUE(scope_of(job).all);
}

TEST(AffectedGroups, HoldsWhatItLists)
{
    struct ng_group_set some = {};
    some.count = 2;
    some.groups[0] = LEFT;
    some.groups[1] = RIGHT;
    EXPECT_TRUE(ng_group_set_holds(&some, LEFT));
    EXPECT_TRUE(ng_group_set_holds(&some, RIGHT));
    EXPECT_FALSE(ng_group_set_holds(&some, CROSS));
    EXPECT_FALSE(ng_group_set_holds(&some, 0));
    struct ng_group_set all = {.all = true};
    EXPECT_TRUE(ng_group_set_holds(&all, 0));
}
