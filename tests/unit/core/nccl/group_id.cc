/*
 * Ids of groups: ranks that never speak to each other agree, whatever tree of communicators they
 * make, and no two groups meet.
 */
#include "tests/unit/core/helpers/core.h"

#include <numeric>

extern "C" {
#include "core/nccl/group_id.h"
}

namespace
{

constexpr int NO_COLOR = -1; /* NCCL_SPLIT_NOCOLOR */

using Random = std::mt19937_64;

/* What one rank knows of one of its communicators: only what NCCL told this rank. */
struct Handle {
    uint64_t id;
    uint32_t derived = 0;
};

/* One communicator as it really is. */
struct Group {
    std::vector<int> ranks;      /* global, in order of group rank */
    std::vector<Handle> handles; /* one per rank */
};

/* All ranks of a job, each of which computes for itself. */
class Tree
{
  public:
    explicit Tree(uint64_t seed, int ranks) : random_(seed), ranks_(ranks)
    {
    }

    void from_unique_ids(int count)
    {
        std::vector<unsigned char> ids((size_t)count * NG_UNIQUE_ID_BYTES);
        for (unsigned char &byte : ids)
            byte = (unsigned char)random_();
        /* They resemble each other: address and port of one host, a counter. */
        if (!last_ids_.empty() && random_() % 2) {
            std::copy_n(last_ids_.begin(), std::min(ids.size(), last_ids_.size()), ids.begin());
            ids[random_() % ids.size()] ^= (unsigned char)(1 << random_() % 8);
            if (!used_.insert(ids).second)
                return;
        }
        last_ids_ = ids;
        used_.insert(ids);
        Group group{some_ranks(), {}};
        for (size_t i = 0; i < group.ranks.size(); i++)
            group.handles.push_back({ng_group_id_unique(ids.data(), count)});
        groups_.push_back(group);
    }

    /* One process per rank; its devices are the group. */
    void init_all()
    {
        int process = (int)(random_() % (uint64_t)ranks_);
        uint32_t ordinal = ++init_alls_[process];
        std::string host = "node-" + std::to_string(process / 8);
        int pid = 1000 + process % 8; /* hosts and containers have the same pids */
        Group group{std::vector<int>(1 + random_() % 8, process), {}};
        for (size_t i = 0; i < group.ranks.size(); i++)
            group.handles.push_back(
                {ng_group_id_init_all(host.c_str(), pid, 5000 + (uint64_t)process % 3, ordinal)});
        groups_.push_back(group);
    }

    void split()
    {
        Group &parent = any_group();
        std::map<int, std::vector<std::pair<int, size_t>>> by_color;
        std::map<size_t, Handle> made;
        int colors = 1 + (int)(random_() % 4);
        for (size_t i = 0; i < parent.ranks.size(); i++) {
            int color = random_() % 5 ? (int)(random_() % (uint64_t)colors) : NO_COLOR;
            uint32_t ordinal = ++parent.handles[i].derived;
            if (color == NO_COLOR)
                continue;
            made[i] = {ng_group_id_split(parent.handles[i].id, ordinal, color)};
            by_color[color].push_back({(int)(random_() % 3), i}); /* the key */
        }
        std::vector<Group> children;
        for (auto &[color, members] : by_color) {
            std::stable_sort(members.begin(), members.end(),
                             [](auto &a, auto &b) { return a.first < b.first; });
            Group child;
            for (auto &[key, i] : members) {
                child.ranks.push_back(parent.ranks[i]);
                child.handles.push_back(made[i]);
            }
            children.push_back(child);
        }
        groups_.insert(groups_.end(), children.begin(), children.end());
    }

    /* Those who are left out do not call, and never learn of it. */
    void shrink()
    {
        Group &parent = any_group();
        std::vector<int> excluded;
        for (size_t i = 0; i < parent.ranks.size(); i++)
            if (random_() % 4 == 0)
                excluded.push_back((int)i);
        Group child;
        for (size_t i = 0; i < parent.ranks.size(); i++) {
            if (std::find(excluded.begin(), excluded.end(), (int)i) != excluded.end())
                continue;
            std::vector<int> list = excluded;
            std::shuffle(list.begin(), list.end(), random_);
            Handle &mine = parent.handles[i];
            uint32_t ordinal = ++mine.derived;
            child.ranks.push_back(parent.ranks[i]);
            child.handles.push_back({ng_group_id_shrink(
                mine.id, ordinal, ng_group_id_excluded(list.data(), (int)list.size()))});
        }
        /* The parent is of no more use to those left out: later calls on it are the others'. */
        parent.handles.erase(std::remove_if(parent.handles.begin(), parent.handles.end(),
                                            [&](const Handle &handle) {
                                                size_t at = (size_t)(&handle - &parent.handles[0]);
                                                return left_out(excluded, at);
                                            }),
                             parent.handles.end());
        parent.ranks = child.ranks;
        groups_.push_back(child);
    }

    /* All members of each group agree, and groups differ from all others. */
    void check() const
    {
        std::map<uint64_t, size_t> owner;
        for (size_t g = 0; g < groups_.size(); g++) {
            if (groups_[g].handles.empty())
                continue;
            for (const Handle &handle : groups_[g].handles)
                ASSERT_EQ(handle.id, groups_[g].handles[0].id) << "group " << g;
            ASSERT_NE(groups_[g].handles[0].id, 0u);
            auto [at, is_new] = owner.insert({groups_[g].handles[0].id, g});
            ASSERT_TRUE(is_new) << "groups " << g << " and " << at->second << " have one id";
        }
    }

    size_t count() const
    {
        return groups_.size();
    }

    Random random_;

  private:
    static bool left_out(const std::vector<int> &excluded, size_t rank)
    {
        return std::find(excluded.begin(), excluded.end(), (int)rank) != excluded.end();
    }
    std::vector<int> some_ranks()
    {
        std::vector<int> ranks((size_t)ranks_);
        std::iota(ranks.begin(), ranks.end(), 0);
        if (random_() % 2)
            std::shuffle(ranks.begin(), ranks.end(), random_);
        ranks.resize(1 + random_() % ranks.size());
        return ranks;
    }
    Group &any_group()
    {
        return groups_[random_() % groups_.size()];
    }

    int ranks_;
    std::vector<Group> groups_;
    std::map<int, uint32_t> init_alls_;
    std::vector<unsigned char> last_ids_;
    std::set<std::vector<unsigned char>> used_;
};

} // namespace

TEST(GroupId, RanksAgreeAndGroupsDifferInAnyTree)
{
    size_t made = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        Tree tree(seed, 2 + (int)(seed % 40));
        tree.from_unique_ids(1);
        for (int step = 0; step < 60; step++)
            switch (tree.random_() % 10) {
            case 0:
                tree.from_unique_ids(1);
                break;
            case 1: /* ncclCommInitRankScalable */
                tree.from_unique_ids(2 + (int)(tree.random_() % 6));
                break;
            case 2:
                tree.init_all();
                break;
            case 3:
            case 4:
                tree.shrink();
                break;
            default:
                tree.split();
            }
        tree.check();
        if (HasFatalFailure())
            FAIL() << "seed " << seed;
        made += tree.count();
    }
    EXPECT_GT(made, 10000u);
}

/* A program may make the same group twice, and the same tree below two parents. */
TEST(GroupId, EqualMembersMadeTwiceAreTwoGroups)
{
    std::set<uint64_t> ids;
    size_t made = 0;
    for (uint64_t parent : {UINT64_C(1), UINT64_C(2), UINT64_C(1) << 63})
        for (uint32_t ordinal = 1; ordinal <= 50; ordinal++) {
            for (int color = 0; color < 50; color++, made++)
                ids.insert(ng_group_id_split(parent, ordinal, color));
            for (int excluded = 0; excluded < 50; excluded++, made++)
                ids.insert(ng_group_id_shrink(parent, ordinal, ng_group_id_excluded(&excluded, 1)));
            ids.insert(ng_group_id_shrink(parent, ordinal, ng_group_id_excluded(nullptr, 0)));
            made++;
        }
    EXPECT_EQ(ids.size(), made);
}

/* One id is not the first of several, and the order of several counts: NCCL's ranks pass it alike.
 */
TEST(GroupId, EveryByteOfTheUniqueIdsCounts)
{
    unsigned char ids[3 * NG_UNIQUE_ID_BYTES] = {};
    std::set<uint64_t> seen;
    size_t made = 0;
    for (int count = 1; count <= 3; count++, made++)
        seen.insert(ng_group_id_unique(ids, count));
    for (size_t at = 0; at < sizeof(ids); at++, made++) {
        ids[at] = 1;
        seen.insert(ng_group_id_unique(ids, 3));
        ids[at] = 0;
    }
    EXPECT_EQ(seen.size(), made);
}
