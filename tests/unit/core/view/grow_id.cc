/*
 * Groups that grew: after any tree of splits, shrinks and grows, with every rank learning when it
 * may, all members of a group call it by one id, and no two groups meet.
 */
#include "tests/unit/core/helpers/core.h"

#define _Static_assert static_assert
extern "C" {
#include "core/nccl/group_id.h"
#include "core/view/grow_id.h"
}
#undef _Static_assert

namespace
{

using Random = std::mt19937_64;
constexpr uint32_t SLOTS = 512;

/* One process: its black box, filled as core/call/creation.c does, by one thread at a time. */
class Process
{
  public:
    Process() : groups_(SLOTS)
    {
        box.header = &header_;
        box.groups = groups_.data();
        box.group_capacity = SLOTS;
    }

    ng_box_group *make(uint32_t created_by, uint64_t id, const ng_box_group *parent)
    {
        ng_box_group *group = &groups_[header_.group_used++];
        group->id = id;
        group->created_by = created_by;
        group->color = -1;
        group->nranks = 1;
        group->device = (int)header_.group_used; /* by which a view's member is known again */
        if (parent) {
            group->parent_id = parent->id;
            group->ordinal = parent->derived;
        }
        group->state = NG_GROUP_READY;
        return group;
    }

    ng_box box = {};

  private:
    ng_box_header header_ = {};
    std::vector<ng_box_group> groups_;
};

struct Member {
    int process;
    ng_box_group *group;
};
using Group = std::vector<Member>;

/* Each rank sees all others, or, without the store, none. */
struct Board {
    ng_board board;
    std::vector<Process> *processes;
    bool away;
    int asked;
};

int grown(ng_board *board, uint64_t joined_id, uint64_t *ret_id)
{
    Board *there = (Board *)board;
    there->asked++;
    for (Process &process : *there->processes) {
        uint64_t id = there->away ? 0 : ng_grow_id_find(&process.box, joined_id);
        if (id) {
            *ret_id = id;
            return 0;
        }
    }
    return -ENOENT;
}

class Job
{
  public:
    Job(uint64_t seed, int count) : random(seed), processes(count)
    {
        ops_.grown = grown;
        board = {{&ops_}, &processes, false, 0};
    }

    /* Some processes, each once. */
    std::vector<int> some(size_t at_most, const Group &but = {})
    {
        std::vector<int> chosen;
        for (int i = 0; i < (int)processes.size(); i++)
            if (std::none_of(but.begin(), but.end(),
                             [&](const Member &m) { return m.process == i; }))
                chosen.push_back(i);
        std::shuffle(chosen.begin(), chosen.end(), random);
        chosen.resize(std::min(chosen.size(), 1 + random() % at_most));
        return chosen;
    }

    uint64_t unique_id()
    {
        unsigned char id[NG_UNIQUE_ID_BYTES];
        for (unsigned char &byte : id)
            byte = (unsigned char)random();
        return ng_group_id_unique(id, 1);
    }

    void start()
    {
        Group group;
        uint64_t id = unique_id();
        for (int process : some(processes.size()))
            group.push_back({process, processes[process].make(NG_OP_CommInitRank, id, nullptr)});
        groups.push_back(group);
    }

    void split()
    {
        Group &parent = groups[random() % groups.size()];
        std::map<int, Group> children;
        for (Member &member : parent) {
            int color = (int)(random() % 3);
            member.group->derived++;
            ng_box_group *child = processes[member.process].make(
                NG_OP_CommSplit, ng_group_id_split(member.group->id, member.group->derived, color),
                member.group);
            child->color = color;
            children[color].push_back({member.process, child});
        }
        for (auto &[color, child] : children)
            groups.push_back(child);
    }

    /* As it must be, those left out have no more part in the parent. */
    void shrink()
    {
        Group &parent = groups[random() % groups.size()];
        if (parent.size() < 2)
            return;
        int left_out = (int)(random() % parent.size());
        parent.erase(parent.begin() + left_out);
        Group child;
        for (Member &member : parent) {
            uint64_t excluded = ng_group_id_excluded(&left_out, 1);
            member.group->derived++;
            ng_box_group *made = processes[member.process].make(
                NG_OP_CommShrink,
                ng_group_id_shrink(member.group->id, member.group->derived, excluded),
                member.group);
            made->excluded = excluded;
            child.push_back({member.process, made});
        }
        groups.push_back(child);
    }

    void grow()
    {
        Group &parent = groups[random() % groups.size()];
        std::vector<int> joining = some(3, parent);
        Group child;
        if (parent.empty() || joining.empty())
            return;
        uint64_t joined_id = unique_id();
        size_t root = random() % parent.size();
        for (size_t i = 0; i < parent.size(); i++) {
            parent[i].group->derived++;
            ng_box_group *made = processes[parent[i].process].make(
                NG_OP_CommGrow, ng_group_id_split(parent[i].group->id, parent[i].group->derived, 0),
                parent[i].group);
            if (i == root)
                made->joined_id = joined_id;
            child.push_back({parent[i].process, made});
        }
        for (int process : joining) {
            ng_box_group *made = processes[process].make(NG_OP_CommGrow, joined_id, nullptr);
            made->joined_id = joined_id;
            child.push_back({process, made});
        }
        groups.push_back(child);
    }

    bool look_up(int process)
    {
        return ng_grow_id_look_up(&processes[process].box, &board.board);
    }

    /* Rounds until nobody waits; how many it took, a hundred at most. */
    int settle()
    {
        for (int round = 0; round < 100; round++) {
            bool waits = false;
            for (size_t i = 0; i < processes.size(); i++)
                waits |= look_up((int)i);
            if (!waits)
                return round;
        }
        return 100;
    }

    void check() const
    {
        std::set<uint64_t> ids;
        for (const Group &group : groups) {
            if (group.empty())
                continue;
            for (const Member &member : group)
                ASSERT_EQ(member.group->id, group[0].group->id);
            ASSERT_TRUE(ids.insert(group[0].group->id).second);
        }
    }

    /* What anybody sees who looks at all boxes as they are now. */
    void check_view() const
    {
        ng_view view;
        std::map<std::pair<int, int>, uint64_t> seen;
        std::set<uint64_t> ids;
        ng_view_init(&view);
        for (const Process &process : processes)
            ASSERT_EQ(ng_view_add_box(&view, &process.box, NG_LIFE_RUNNING, 1, ""), 0);
        ng_view_seal(&view);
        for (uint32_t i = 0; i < view.member_count; i++) {
            const auto &member = view.members[i];
            seen[{(int)member.process, member.device}] = view.groups[member.group].id;
        }
        for (const Group &group : groups) {
            for (const Member &member : group)
                EXPECT_EQ((seen[{member.process, member.group->device}]),
                          (seen[{group[0].process, group[0].group->device}]));
            if (!group.empty()) {
                EXPECT_TRUE(ids.insert(seen[{group[0].process, group[0].group->device}]).second);
            }
        }
        for (uint32_t i = 0; i < view.group_count; i++) {
            EXPECT_GT(view.groups[i].member_count, 0u);
            EXPECT_EQ(ng_view_find_group(&view, view.groups[i].id), i);
        }
        ng_view_fini(&view);
    }

    Random random;
    std::vector<Process> processes;
    std::vector<Group> groups;
    Board board;

  private:
    ng_board_ops ops_ = {};
};

} // namespace

TEST(GrowId, AllMembersAgreeInAnyTreeWheneverTheyLearn)
{
    size_t made = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        Job job(seed, 2 + (int)(seed % 12));
        job.start();
        for (int step = 0; step < 25; step++) {
            switch (job.random() % 8) {
            case 0:
                job.start();
                break;
            case 1:
            case 2:
                job.split();
                break;
            case 3:
                job.shrink();
                break;
            case 4:
            case 5:
                job.grow();
                break;
            default: /* somebody's guard comes round meanwhile, or not for long */
                job.board.away = job.random() % 2;
                for (uint64_t i = job.random() % 8; i > 0; i--)
                    job.look_up((int)(job.random() % job.processes.size()));
            }
            if (std::any_of(job.processes.begin(), job.processes.end(), [](Process &process) {
                    return process.box.header->group_used > SLOTS - 64;
                }))
                break;
        }
        job.check_view();
        job.board.away = false;
        ASSERT_LT(job.settle(), 100) << "seed " << seed;
        job.check();
        job.check_view();
        if (HasFatalFailure())
            FAIL() << "seed " << seed;
        made += job.groups.size();
    }
    EXPECT_GT(made, 3000u);
}

/* A process that died before it learned the id is still one of the group, and so are its
 * children's. */
TEST(GrowId, WhoEndedTooEarlyToLearnIsSeenInTheRightGroup)
{
    Job job(1, 2);
    job.groups.push_back({{0, job.processes[0].make(NG_OP_CommInitRank, 5, nullptr)}});
    job.grow();
    Group child;
    for (Member &member : job.groups[1]) {
        member.group->derived++;
        ng_box_group *made = job.processes[member.process].make(
            NG_OP_CommSplit, ng_group_id_split(member.group->id, 1, 3), member.group);
        made->color = 3;
        child.push_back({member.process, made});
    }
    EXPECT_NE(child[0].group->id, child[1].group->id);
    job.groups.push_back(child);
    job.check_view();
}

/* Its only id is the one that it was invited with, and no process looks for another any more. */
TEST(GrowId, WhoCouldNotJoinIsToldOfInTheGroupOfThoseWhoWaitForIt)
{
    Job job(1, 2);
    ng_box_group *inviting = job.processes[0].make(NG_OP_CommGrow, 10, nullptr);
    ng_box_group *refused = job.processes[1].make(NG_OP_CommGrow, 11, nullptr);
    inviting->joined_id = refused->joined_id = 11;
    inviting->nranks = refused->nranks = 2;
    inviting->group_rank = 0;
    refused->group_rank = 1;
    inviting->state = NG_GROUP_CREATING;
    refused->state = NG_GROUP_FAILED;
    ng_view view;
    ng_view_init(&view);
    for (const Process &process : job.processes)
        EXPECT_EQ(ng_view_add_box(&view, &process.box, NG_LIFE_RUNNING, 1, ""), 0);
    ng_view_seal(&view);
    EXPECT_EQ(view.group_count, 1u);
    uint32_t group = ng_view_find_group(&view, 10);
    ASSERT_NE(group, UINT32_MAX);
    const struct ng_view_member *member = ng_view_member(&view, group, 1);
    ASSERT_NE(member, nullptr);
    EXPECT_EQ(member->state, (uint32_t)NG_GROUP_FAILED);
    EXPECT_EQ(member->process, 1u);
    ng_view_fini(&view);
}

/* Parents in a circle, and a group that says it is its own parent: no loop without end. */
TEST(GrowId, ADamagedBoxIsNoEndlessLoop)
{
    Job job(1, 2);
    ng_box_group *root = job.processes[0].make(NG_OP_CommGrow, 10, nullptr);
    root->joined_id = 11;
    for (uint64_t id = 11; id < 20; id++) {
        ng_box_group *group = job.processes[1].make(NG_OP_CommSplit, id, nullptr);
        group->parent_id = id < 19 ? id + 1 : 11;
        group->ordinal = 1;
    }
    ng_box_group *self = job.processes[1].make(NG_OP_CommSplit, 12, nullptr);
    self->parent_id = 12;
    self->ordinal = 1;
    ng_view view;
    ng_view_init(&view);
    for (const Process &process : job.processes)
        EXPECT_EQ(ng_view_add_box(&view, &process.box, NG_LIFE_RUNNING, 1, ""), 0);
    ng_view_seal(&view);
    EXPECT_EQ(view.member_count, 11u);
    ng_view_fini(&view);
}

/* Whoever invited is gone: the others are seen as they see themselves, and nothing else changes. */
TEST(GrowId, WithoutTheOneThatInvitedAnIdStaysUnknown)
{
    Job job(1, 3);
    uint64_t joined_id = job.unique_id();
    ng_box_group *group = job.processes[2].make(NG_OP_CommGrow, joined_id, nullptr);
    group->joined_id = joined_id;
    EXPECT_TRUE(job.look_up(2));
    EXPECT_TRUE(job.look_up(2));
    EXPECT_EQ(group->id, joined_id);
    EXPECT_EQ(group->former_id, 0u);
    EXPECT_EQ(job.board.asked, 2);
}

/* Records carry the id of their time; readers must still find them. */
TEST(GrowId, TheFormerIdIsKept)
{
    Job job(1, 2);
    job.groups.push_back({{0, job.processes[0].make(NG_OP_CommInitRank, 5, nullptr)}});
    job.grow();
    ng_box_group *joined = job.groups[1][1].group;
    uint64_t former = joined->id;
    EXPECT_EQ(job.settle(), 0);
    EXPECT_NE(joined->id, former);
    EXPECT_EQ(joined->former_id, former);
    EXPECT_EQ(joined->id, job.groups[1][0].group->id);
}

/* Nobody is told an id that the one who tells it has yet to learn himself. */
TEST(GrowId, AnIdThatMayStillChangeIsNotTold)
{
    Job job(1, 3);
    uint64_t first = job.unique_id(), second = job.unique_id();
    ng_box_group *joined = job.processes[1].make(NG_OP_CommGrow, first, nullptr);
    joined->joined_id = first;
    joined->derived = 1;
    ng_box_group *again =
        job.processes[1].make(NG_OP_CommGrow, ng_group_id_split(first, 1, 0), joined);
    again->joined_id = second;
    EXPECT_EQ(ng_grow_id_find(&job.processes[1].box, second), 0u);
    EXPECT_EQ(ng_grow_id_find(&job.processes[1].box, first), 0u);

    ng_box_group *root = job.processes[0].make(NG_OP_CommInitRank, 7, nullptr);
    root->derived = 1;
    root = job.processes[0].make(NG_OP_CommGrow, ng_group_id_split(7, 1, 0), root);
    root->joined_id = first;
    EXPECT_FALSE(job.look_up(1));
    EXPECT_EQ(joined->id, root->id);
    EXPECT_EQ(again->id, ng_group_id_split(root->id, 1, 0));
    EXPECT_EQ(ng_grow_id_find(&job.processes[1].box, second), again->id);
}
