/*
 * The list of `ncclguard groups`: both numberings, deadlines that differ, and what became of each
 * group.
 */
#include "tests/gtest/own_json.h"
#include "tests/unit/core/helpers/job.h"

extern "C" {
#include "core/config/config.h"
#include "tools/render/group_list.h"
}

namespace
{

struct Listed : JobView {
    using JobView::JobView;
    std::string text() const
    {
        char *written = nullptr;
        size_t bytes = 0;
        FILE *file = open_memstream(&written, &bytes);
        EXPECT_EQ(ng_group_list_print(this, "train", file), 0);
        fclose(file);
        std::string result = written;
        free(written);
        return result;
    }
    std::string json() const
    {
        char name[] = "/tmp/ncclguard-groups.XXXXXX";
        int fd = mkstemp(name);
        EXPECT_EQ(ng_group_list_write_json(this, "train", fd), 0);
        std::string text(static_cast<size_t>(lseek(fd, 0, SEEK_END)), '\0');
        EXPECT_EQ(pread(fd, &text[0], text.size(), 0), static_cast<ssize_t>(text.size()));
        close(fd);
        unlink(name);
        return text;
    }
};

bool has(const std::string &text, const std::string &wanted)
{
    return text.find(wanted) != std::string::npos;
}

/* A world of four, and a group of two of them in an order of its own. */
Job two_groups()
{
    Job job(4, 0x1111, "world", 3);
    job.group(0x2222, "tp", {3, 1});
    job.derive(0x2222, 0x1111);
    for (int rank = 0; rank < 2; rank++)
        job.at(0x2222, rank).created_by = NG_OP_CommSplit;
    return job;
}

TEST(GroupList, HasBothNumberingsAndWhatMadeAGroup)
{
    Listed listed(two_groups());
    std::string text = listed.text();
    EXPECT_TRUE(has(text, "job train: 2 groups, 2 in use\n")) << text;
    EXPECT_TRUE(has(text, "group 0000000000001111 \"world\" (4 ranks), in use\n")) << text;
    EXPECT_TRUE(has(text, "global ranks, in the group's order: 0-3\n")) << text;
    EXPECT_TRUE(has(text, "group 0000000000002222 \"tp\" (2 ranks), in use\n"
                          "  made by CommSplit from group 0000000000001111"))
        << text;
    EXPECT_TRUE(has(text, "global ranks, in the group's order: 3,1\n")) << text;

    OwnJson root(listed.json());
    EXPECT_STREQ(json_string_value(json_object_get(root, "schema")), "ncclguard.groups/1");
    json_t *groups = json_object_get(root, "groups"), *members;
    ASSERT_EQ(json_array_size(groups), 2u);
    for (size_t i = 0; i < 2; i++) {
        json_t *group = json_array_get(groups, i);
        if (strcmp(json_string_value(json_object_get(group, "name")), "tp") != 0)
            continue;
        EXPECT_STREQ(json_string_value(json_object_get(group, "parent")), "0000000000001111");
        members = json_object_get(group, "members");
        ASSERT_EQ(json_array_size(members), 2u);
        json_t *first = json_array_get(members, 0);
        EXPECT_EQ(json_integer_value(json_object_get(first, "group_rank")), 0);
        EXPECT_EQ(json_integer_value(json_object_get(first, "rank")), 3);
    }
}

TEST(GroupList, OneDeadlineIsShownAndDifferentOnesAreNamedByRank)
{
    Job job(4, 0x1111, "world", 3);
    for (int rank = 0; rank < 4; rank++)
        job.at(0x1111, rank).timeout_ns = 30 * NG_S;
    EXPECT_TRUE(has(Listed(job).text(), "  deadline: 30.0 s\n")) << Listed(job).text();
    job.at(0x1111, 2).timeout_ns = 60 * NG_S;
    EXPECT_TRUE(
        has(Listed(job).text(), "  deadlines differ: 30.0 s (ranks 0,1,3), 60.0 s (rank 2)\n"))
        << Listed(job).text();
    OwnJson root(Listed(job).json());
    json_t *group = json_array_get(json_object_get(root, "groups"), 0);
    EXPECT_TRUE(json_is_true(json_object_get(group, "deadlines_differ")));
    EXPECT_TRUE(json_is_null(json_object_get(group, "timeout_ms")));
    job.at(0x1111, 2).timeout_ns = 0;
    EXPECT_TRUE(has(Listed(job).text(), "none (rank 2)")) << Listed(job).text();
}

TEST(GroupList, ThePolicyIsShownAndDifferentOnesAreNamedByRank)
{
    Job job(4, 0x1111, "world", 3);
    EXPECT_FALSE(has(Listed(job).text(), "polic")) << "not known";
    for (int rank = 0; rank < 4; rank++)
        job.at(0x1111, rank).policy = NG_ON_TIMEOUT_KILL + 1;
    EXPECT_TRUE(has(Listed(job).text(), "  policy: kill\n")) << Listed(job).text();
    job.at(0x1111, 3).policy = NG_ON_TIMEOUT_LOG + 1;
    EXPECT_TRUE(has(Listed(job).text(), "  policies differ: kill (ranks 0-2), log (rank 3)\n"))
        << Listed(job).text();
    OwnJson root(Listed(job).json());
    json_t *group = json_array_get(json_object_get(root, "groups"), 0);
    EXPECT_TRUE(json_is_true(json_object_get(group, "policies_differ")));
    EXPECT_TRUE(json_is_null(json_object_get(group, "policy")));
    json_t *last = json_array_get(json_object_get(group, "members"), 3);
    EXPECT_STREQ(json_string_value(json_object_get(last, "policy")), "log");
    job.at(0x1111, 3).policy = 99; /* of a later version */
    EXPECT_TRUE(has(Listed(job).text(), "not known (rank 3)")) << Listed(job).text();
}

TEST(GroupList, WhatCommandsHaveSetIsShownByRank)
{
    Job job(4, 0x1111, "world", 3);
    Listed listed(job);
    EXPECT_FALSE(has(listed.text(), "set by a command"));
    for (uint32_t i = 0; i < 3; i++)
        listed.processes[i].set.of[NG_SETTABLE_TIMING] = NG_TIMING_ALL + 1;
    listed.processes[2].set.of[NG_SETTABLE_LOG] = 4;
    EXPECT_TRUE(has(listed.text(), "set by a command: timing=all (ranks 0,1)\n"
                                   "set by a command: log=info, timing=all (rank 2)\n"))
        << listed.text();
    listed.processes[1].life = NG_LIFE_DEAD;
    EXPECT_TRUE(has(listed.text(), "timing=all (rank 0)\n")) << listed.text();
    OwnJson root(listed.json());
    json_t *group = json_array_get(json_object_get(root, "groups"), 0);
    json_t *members = json_object_get(group, "members");
    json_t *set = json_object_get(json_array_get(members, 2), "set");
    EXPECT_STREQ(json_string_value(json_object_get(set, "log")), "info");
    EXPECT_STREQ(json_string_value(json_object_get(set, "timing")), "all");
    EXPECT_EQ(json_object_size(json_object_get(json_array_get(members, 3), "set")), 0u);
}

TEST(GroupList, ADeadlineOfARankThatIsGoneDiffersFromNone)
{
    Job job(2, 0x1111, "world", 3);
    job.at(0x1111, 0).timeout_ns = 30 * NG_S;
    job.at(0x1111, 1).timeout_ns = 60 * NG_S;
    job.process(1).is(NG_LIFE_DEAD, NG_S);
    EXPECT_TRUE(has(Listed(job).text(), "  deadline: 30.0 s\n")) << Listed(job).text();
}

TEST(GroupList, GroupsOfTheSameMembersAreNamed)
{
    Job job = two_groups();
    job.group(0x3333, "again", {3, 1});
    EXPECT_TRUE(has(Listed(job).text(), "  same members as group 0000000000002222\n"))
        << Listed(job).text();
}

TEST(GroupList, WhatBecameOfAGroup)
{
    Job job = two_groups();
    uint32_t tp = 1;
    auto use = [&] {
        Listed listed(job);
        return ng_group_list_use(&listed, ng_view_find_group(&listed, 0x2222));
    };
    EXPECT_EQ(use(), NG_GROUP_USE_NOW);
    job.at(0x2222, 0).state = NG_GROUP_CREATING;
    EXPECT_EQ(use(), NG_GROUP_USE_NOW);
    job.at(0x2222, 1).state = NG_GROUP_CREATING;
    EXPECT_EQ(use(), NG_GROUP_USE_CREATING);
    job.at(0x2222, 0).state = NG_GROUP_DESTROYED;
    job.at(0x2222, 1).state = NG_GROUP_READY;
    EXPECT_EQ(use(), NG_GROUP_USE_PARTLY);
    job.at(0x2222, tp).state = NG_GROUP_ABORTED;
    EXPECT_EQ(use(), NG_GROUP_USE_ENDED);
    job.at(0x2222, tp).state = NG_GROUP_READY;
    job.process(1).is(NG_LIFE_EXITED, NG_S);
    EXPECT_EQ(use(), NG_GROUP_USE_LEFT);
    EXPECT_TRUE(has(Listed(job).text(), "never destroyed")) << Listed(job).text();
}

TEST(GroupList, OfProcessesThatAreLostItIsNotKnownThatTheyEnded)
{
    Job job = two_groups();
    const char *not_known = "not known whether it is in use on ";
    for (int rank : {1, 3})
        job.process(rank).is(NG_LIFE_LOST, NG_S);
    std::string both = Listed(job).text();
    EXPECT_TRUE(has(both, "\"tp\" (2 ranks), left\n")) << both;
    EXPECT_TRUE(has(both, not_known + std::string("2 ranks: no message"))) << both;
    EXPECT_FALSE(has(both, "ended with it")) << both;

    job.process(1).is(NG_LIFE_EXITED, NG_S);
    std::string one = Listed(job).text();
    EXPECT_TRUE(has(one, "never destroyed on 1 rank: the process ended with it\n")) << one;
    EXPECT_TRUE(has(one, not_known + std::string("1 rank: no message"))) << one;
}

} // namespace
