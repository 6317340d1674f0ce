/*
 * Collectives that programs compose of sends and receives.
 */
#include "tests/unit/core/helpers/job.h"

extern "C" {
#include "core/view/p2p_patterns.h"
}

namespace
{

constexpr uint64_t WORLD = 0x11;

struct World : Job {
    explicit World(int ranks) : Job(ranks)
    {
        group(WORLD, "");
    }
    Member &rank(int rank)
    {
        return at(WORLD, rank);
    }
    /* One NCCL group of this rank: a send to each of `to`, a receive from each of `from`. */
    void calls(int rank, const std::vector<int> &to, const std::vector<int> &from)
    {
        for (int peer : to)
            this->rank(rank).p2p(NG_OP_Send, peer, true);
        for (int peer : from)
            this->rank(rank).p2p(NG_OP_Recv, peer, true);
        this->rank(rank).grouped((int)(to.size() + from.size()));
    }
    std::vector<int> all_but(int rank) const
    {
        std::vector<int> others;
        for (int i = 0; i < ranks_of(WORLD); i++)
            if (i != rank)
                others.push_back(i);
        return others;
    }
    std::vector<int> everybody() const
    {
        return all_but(-1);
    }
};

/* What each work of a rank is called: "AlltoAll", "Gather 2", "-" none. */
std::vector<std::string> names(const Job &job, int rank, uint64_t group = WORLD)
{
    OwnArena arena;
    struct ng_p2p_pattern pattern = {};
    std::vector<std::string> names;
    JobView view(job);
    const struct ng_view_member *member = ng_view_member(&view, 0, rank);
    EXPECT_EQ(view.groups[member->group].id, group);
    EXPECT_EQ(ng_p2p_pattern_find(&view, member, &arena, &pattern), 0);
    for (uint32_t i = 0; i < pattern.work_count; i++) {
        const struct ng_p2p_pattern_work &work = pattern.works[i];
        names.push_back(work.op == NG_OP_NONE ? "-" : ng_op_name(work.op));
        if (work.root >= 0)
            names.back() += " " + std::to_string(work.root);
    }
    return names;
}

using Names = std::vector<std::string>;

void exchange(World &world, bool with_self)
{
    for (int rank = 0; rank < world.ranks_of(WORLD); rank++) {
        std::vector<int> peers = with_self ? world.everybody() : world.all_but(rank);
        world.calls(rank, peers, peers);
    }
}

} // namespace

TEST(P2pPatterns, AnExchangeOfAllWithAllIsAllToAll)
{
    for (int ranks : {2, 3, 8})
        for (bool with_self : {true, false}) {
            World world(ranks);
            exchange(world, with_self);
            for (int rank = 0; rank < ranks; rank++)
                EXPECT_EQ(names(world, rank), Names{ranks > 2 || with_self ? "AlltoAll" : "-"})
                    << ranks << " ranks, rank " << rank << (with_self ? ", with itself" : "");
        }
}

/* One NCCL group of this rank that does not finish: sends to `to`, receives from `from`. */
static void stuck(World &world, int rank, const std::vector<int> &to, const std::vector<int> &from)
{
    for (int peer : to)
        world.rank(rank).p2p(NG_OP_Send, peer, false);
    for (int peer : from)
        world.rank(rank).p2p(NG_OP_Recv, peer, false);
    world.rank(rank).grouped((int)(to.size() + from.size()));
    world.rank(rank).pending_record = world.rank(rank).records.back().id;
}

TEST(P2pPatterns, AVerdictNamesTheAllToAllThatAllWaitIn)
{
    World world(4);
    for (int rank : {0, 1, 3})
        stuck(world, rank, world.everybody(), world.everybody());
    Judgement judgement = expect_verdict(judge(world), NG_KIND_MISSING_RANK, {2});
    EXPECT_NE(judgement.line.find("never called all-to-all (send/recv) of group"),
              std::string::npos)
        << judgement.line;
    EXPECT_NE(judgement.whys.at(0).find("waits for in the all-to-all"), std::string::npos)
        << judgement.whys.at(0);
}

TEST(P2pPatterns, AVerdictNamesTheGatherThatAllWaitIn)
{
    World world(4);
    stuck(world, 0, {}, {1, 2, 3});
    for (int rank : {1, 2})
        stuck(world, rank, {0}, {});
    Judgement judgement = judge(world);
    EXPECT_NE(judgement.line.find("gather (send/recv)"), std::string::npos) << judgement.line;
}

TEST(P2pPatterns, AVerdictNamesNothingWhereOneRankWaitsInSomethingElse)
{
    World world(4);
    for (int rank : {0, 1})
        stuck(world, rank, world.everybody(), world.everybody());
    stuck(world, 3, {2}, {});
    Judgement judgement = judge(world);
    EXPECT_EQ(judgement.line.find("all-to-all"), std::string::npos) << judgement.line;
    EXPECT_NE(judgement.line.find("Send"), std::string::npos) << judgement.line;
}

TEST(P2pPatterns, AVerdictNamesNothingOfAPlainSend)
{
    World world(3);
    stuck(world, 0, {1}, {});
    Judgement judgement = judge(world);
    EXPECT_NE(judgement.line.find("never called Send"), std::string::npos) << judgement.line;
}

TEST(P2pPatterns, AllToAllOfDifferentCountsIsNamedSo)
{
    World world(4);
    exchange(world, true);
    for (int rank = 0; rank < 4; rank++)
        for (size_t i = 0; i < 4; i++)
            world.rank(rank).records[i].signature.count = 10 + i;
    EXPECT_EQ(names(world, 2), Names{"AllToAllv"});
}

TEST(P2pPatterns, CountsWhatIsSentAndReceived)
{
    World world(3);
    OwnArena arena;
    struct ng_p2p_pattern pattern;
    exchange(world, true);
    for (size_t i = 0; i < 6; i++)
        world.rank(1).records[i].signature.count = i + 1;
    JobView view(world);
    ASSERT_EQ(ng_p2p_pattern_find(&view, ng_view_member(&view, 0, 1), &arena, &pattern), 0);
    ASSERT_EQ(pattern.work_count, 1u);
    EXPECT_EQ(pattern.works[0].sent, 1u + 2 + 3);
    EXPECT_EQ(pattern.works[0].received, 4u + 5 + 6);
    EXPECT_EQ(pattern.works[0].p2p_count, 6u);
}

TEST(P2pPatterns, SendsToOneRankThatTakesThemTogetherAreAGather)
{
    for (bool with_self : {true, false}) {
        World world(4);
        for (int rank : {0, 1, 3})
            world.calls(rank, {2}, {});
        world.calls(2, with_self ? std::vector<int>{2} : std::vector<int>{},
                    with_self ? world.everybody() : world.all_but(2));
        for (int rank = 0; rank < 4; rank++)
            EXPECT_EQ(names(world, rank), Names{"Gather 2"}) << rank;
    }
}

TEST(P2pPatterns, SendsOfOneRankToAllAreAScatter)
{
    World world(4);
    for (int rank : {1, 2, 3})
        world.calls(rank, {}, {0});
    world.calls(0, world.all_but(0), {});
    for (int rank = 0; rank < 4; rank++)
        EXPECT_EQ(names(world, rank), Names{"Scatter 0"}) << rank;
}

TEST(P2pPatterns, TheKthIsPairedWithTheKth)
{
    World world(3);
    /* A plain message first, then a gather: only the second send of rank 1 belongs to it. */
    world.calls(1, {0}, {});
    world.calls(0, {}, {1});
    for (int rank : {1, 2})
        world.calls(rank, {0}, {});
    world.calls(0, {}, {1, 2});
    EXPECT_EQ(names(world, 0), (Names{"-", "Gather 0"}));
    EXPECT_EQ(names(world, 1), (Names{"-", "Gather 0"}));
    EXPECT_EQ(names(world, 2), Names{"Gather 0"});
}

/* The one that hangs says nothing against it. */
TEST(P2pPatterns, AMissingRankDoesNotHideWhatTheOthersDo)
{
    World world(4);
    for (int rank : {0, 1, 3})
        world.calls(rank, world.everybody(), world.everybody());
    for (int rank : {0, 1, 3})
        EXPECT_EQ(names(world, rank), Names{"AlltoAll"});
    EXPECT_EQ(names(world, 2), Names{});

    World fan(4);
    fan.calls(0, {}, fan.all_but(0));
    for (int rank : {1, 2})
        fan.calls(rank, {0}, {});
    for (int rank : {0, 1, 2})
        EXPECT_EQ(names(fan, rank), Names{"Gather 0"});
}

TEST(P2pPatterns, ARingIsNone)
{
    for (int ranks : {2, 3, 4}) {
        World world(ranks);
        for (int rank = 0; rank < ranks; rank++)
            world.calls(rank, {(rank + 1) % ranks}, {(rank + ranks - 1) % ranks});
        for (int rank = 0; rank < ranks; rank++)
            EXPECT_EQ(names(world, rank), Names{"-"}) << ranks << " ranks";
    }
}

/* Libraries leave empty messages out: then nobody's part may have the name, or ranks would seem to
 * have called different things. */
TEST(P2pPatterns, WhatAnotherRankContradictsHasNoName)
{
    World world(4);
    std::vector<int> all = world.everybody();
    world.calls(0, all, all);
    world.calls(1, {0, 1, 3}, all);
    world.calls(2, all, {0, 2, 3});
    world.calls(3, all, all);
    for (int rank = 0; rank < 4; rank++)
        EXPECT_EQ(names(world, rank), Names{"-"}) << rank;
}

TEST(P2pPatterns, AFanOfWhichOneSendIsPartOfSomethingElseHasNoName)
{
    World world(4);
    world.calls(1, {0, 2}, {});
    world.calls(2, {0}, {1});
    world.calls(3, {0}, {});
    world.calls(0, {}, {1, 2, 3});
    for (int rank = 0; rank < 4; rank++)
        EXPECT_EQ(names(world, rank), Names{"-"}) << rank;
}

/* Ranks judge alone, so a pattern that only some of them can see must have no name. */
TEST(P2pPatterns, AFanIsNamedOnlyWhereAllRanksAreKnown)
{
    World world(4);
    for (int rank : {1, 2, 3})
        world.calls(rank, {0}, {});
    world.calls(0, {}, {1, 2, 3});
    world.forget(WORLD, 3);
    EXPECT_EQ(names(world, 0), Names{"-"});
    EXPECT_EQ(names(world, 1), Names{"-"});
}

TEST(P2pPatterns, DifferentDataTypesAreNoCollective)
{
    World world(3);
    exchange(world, true);
    for (int rank = 0; rank < 3; rank++)
        world.rank(rank).records[1].signature.dtype = 0;
    EXPECT_EQ(names(world, 0), Names{"-"});
}

TEST(P2pPatterns, TwoMessagesToOneRankAreNoCollective)
{
    World world(3);
    for (int rank = 0; rank < 3; rank++)
        world.calls(rank, {0, 1, 2, 2}, {0, 1, 2});
    EXPECT_EQ(names(world, 1), Names{"-"});
}

TEST(P2pPatterns, APartThatIsOverwrittenLeavesTheRestWithoutName)
{
    World world(3);
    exchange(world, true);
    exchange(world, true);
    world.rank(1).overwritten(2);
    EXPECT_EQ(names(world, 1), (Names{"-", "AlltoAll"}));
}

TEST(P2pPatterns, CallsThatNcclRefusedAreInNoWork)
{
    World world(3);
    OwnArena arena;
    struct ng_p2p_pattern pattern;
    Member &member = world.rank(0);
    member.did(2);
    /* Refused: the next call gets the same number. */
    member.did(1);
    member.records.back().state = NG_RECORD_FAILED;
    member.completed = --member.entered;
    member.did(1);
    /* Taken, and then cut off by an abort. */
    member.waits();
    member.records.back().state = NG_RECORD_FAILED;
    JobView view(world);
    ASSERT_EQ(ng_p2p_pattern_find(&view, ng_view_member(&view, 0, 0), &arena, &pattern), 0);
    std::vector<uint32_t> works(pattern.work_of, pattern.work_of + 5);
    EXPECT_EQ(works, (std::vector<uint32_t>{0, 1, NG_P2P_PATTERN_NONE, 2, 3}));
}

TEST(P2pPatterns, TakesWhateverNumbersADamagedBoxHeld)
{
    std::mt19937_64 random(1);
    for (int round = 0; round < 300; round++) {
        World world(4);
        OwnArena arena;
        struct ng_p2p_pattern pattern;
        exchange(world, true);
        world.calls(0, {}, {1, 2, 3});
        JobView view(world);
        for (uint32_t i = 0; i < view.member_count; i++)
            for (uint32_t k = 0; k < view.members[i].record_count; k++) {
                struct ng_view_record *record = &view.members[i].records[k];
                switch (random() % 8) {
                case 0:
                    record->signature.root = (int32_t)random();
                    break;
                case 1:
                    record->work_previous = random() % 2 ? random() : random() % 12;
                    break;
                case 2:
                    record->peer_ordinal = random() % 3;
                    break;
                case 3:
                    record->coll_seq = random();
                    break;
                case 4:
                    record->state = NG_RECORD_FAILED;
                    break;
                case 5:
                    record->signature.op = NG_OP_AllReduce;
                    break;
                }
            }
        view.members[0].group_rank = random() % 2 ? 0 : (int)(random() % 9) - 4;
        view.groups[0].nranks = random() % 3 ? 4 : (int)(random() % 9);
        for (uint32_t i = 0; i < view.member_count; i++) {
            ASSERT_EQ(ng_p2p_pattern_find(&view, &view.members[i], &arena, &pattern), 0);
            for (uint32_t k = 0; k < view.members[i].record_count; k++)
                ASSERT_TRUE(pattern.work_of[k] == NG_P2P_PATTERN_NONE ||
                            pattern.work_of[k] < pattern.work_count);
        }
    }
}
