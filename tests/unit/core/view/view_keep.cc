/*
 * A view that is reduced: what is left of it, and that the rest is whole.
 */
#include "tests/unit/core/helpers/job.h"

extern "C" {
#include "core/view/view_keep.h"
}

namespace
{

/* A world of three that has done five and waits in the sixth, and a group of ranks 2 and 0. */
Job two_groups()
{
    Job job(3, 0x1111, "world", 5);
    job.group(0x2222, "tp", {2, 0});
    for (int rank = 0; rank < 3; rank++)
        job.at(0x1111, rank).waits();
    for (int rank = 0; rank < 2; rank++)
        job.at(0x2222, rank).did(2);
    return job;
}

TEST(ViewKeep, ActiveCallsAreKeptWithEverythingElse)
{
    JobView kept(two_groups());
    ng_view_keep_active(&kept);
    ASSERT_EQ(kept.member_count, 5u);
    for (uint32_t i = 0; i < kept.member_count; i++) {
        const struct ng_view_member &member = kept.members[i];
        bool world = kept.groups[member.group].id == 0x1111;
        ASSERT_EQ(member.record_count, world ? 1u : 0u);
        EXPECT_EQ(member.entered, world ? 6u : 2u) << "counters stay";
        if (world) {
            EXPECT_EQ(member.records[0].coll_seq, 6u);
        }
    }
    for (uint32_t i = 0; i < kept.process_count; i++)
        EXPECT_EQ(kept.processes[i].ring_first, 0u);
}

TEST(ViewKeep, OfOneGroupItsMembersAreKeptAndFoundAsBefore)
{
    JobView kept(two_groups());
    ng_view_keep_group(&kept, 0x2222);
    ASSERT_EQ(kept.member_count, 2u);
    uint32_t group = ng_view_find_group(&kept, 0x2222), count;
    ASSERT_NE(group, UINT32_MAX);
    const struct ng_view_member *members = ng_view_members(&kept, group, &count);
    ASSERT_EQ(count, 2u);
    EXPECT_EQ(ng_view_rank(&kept, &members[0]), 2);
    EXPECT_EQ(ng_view_rank(&kept, &members[1]), 0);
    EXPECT_EQ(kept.processes[1].member_count, 0u);
    EXPECT_EQ(kept.processes[2].member_count, 1u);
    EXPECT_EQ(ng_view_members(&kept, ng_view_find_group(&kept, 0x1111), &count), nullptr);
}

TEST(ViewKeep, NoRecordHasACallStackThen)
{
    JobView kept(two_groups());
    kept.members[0].records[0].call_stack = 1;
    ng_view_forget_frames(&kept);
    EXPECT_EQ(kept.members[0].records[0].call_stack, 0u);
    EXPECT_EQ(kept.call_stack_count, 0u);
}

} // namespace
