/*
 * Stalls on the device in which NCCL's connections show which rank does not take part, or which
 * path does not deliver.
 */

#include "tests/unit/core/verdict/verdict_jobs.h"

enum {
    SENDS = NG_EDGE_SENDS,
    RING = NG_EDGE_RING,
    UP = NG_EDGE_TREE_UP,
    DOWN = NG_EDGE_TREE_DOWN,
    PROXY = NG_EDGE_PROXY,
    MOVES = NG_EDGE_MOVES
};
constexpr int CHANNELS = 4;

/* So many steps were put there, and so many were taken. */
static struct ng_edge edge(int peer, int flags, int posted = 0, int consumed = 0)
{
    struct ng_edge made = {};

    made.peer = peer;
    made.flags = (uint8_t)flags;
    made.channels = CHANNELS;
    made.begun = posted ? CHANNELS : 0;
    made.taken = consumed ? CHANNELS : 0;
    made.held = posted > consumed ? CHANNELS : 0;
    made.base = 4000;
    made.posted = (uint16_t)posted;
    made.consumed = (uint16_t)consumed;
    return made;
}

/* All wait in a ring in which this rank's kernel does not run: each rank behind it has passed on
 * what came, and sent its own. */
static Job ring_without(int ranks, int idle, int flags = RING)
{
    Job job = waiting_for(ranks, {});

    for (int rank = 0; rank < ranks; rank++) {
        int behind = (rank - idle + ranks) % ranks, before = behind ? behind - 1 : ranks - 1;
        int next = (rank + 1) % ranks;
        job.at(WORLD, rank).edges = {
            edge(next, SENDS | flags, behind, next == idle ? 0 : behind),
            edge((rank + ranks - 1) % ranks, flags, before, behind ? before : 0)};
    }
    return job;
}

static struct ng_edge &sends(Job &job, int rank)
{
    return job.at(WORLD, rank).edges[0];
}

static struct ng_edge &receives(Job &job, int rank)
{
    return job.at(WORLD, rank).edges[1];
}

static void expect_nobody(const Job &job)
{
    expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN);
}

TEST(Edges, TheRankThatNeitherTakesNorSendsIsNamed)
{
    for (auto [ranks, idle] : sizes_and_culprits()) {
        expect_verdict(ring_without(ranks, idle), NG_KIND_GPU_STALL, {idle}, NG_CONFIDENCE_LIKELY,
                       all_but(ranks, {idle}))
            .because("neither taken what rank " + std::to_string((idle + ranks - 1) % ranks) +
                     " has sent nor sent anything");
    }
}

/* One of them has a slow device: core/device/connections.c. */
TEST(Edges, EndsThatHaveLookedAtDifferentChannelsAreCompared)
{
    for (int fewer = 0; fewer < 2; fewer++) {
        Job job = ring_without(2, 1);
        for (struct ng_edge &edge : job.at(WORLD, fewer).edges) {
            edge.channels = 1;
            edge.begun = edge.begun != 0;
            edge.held = edge.held != 0;
        }
        expect_verdict(job, NG_KIND_GPU_STALL, {1}, NG_CONFIDENCE_LIKELY, {0});
    }
    Job took = ring_without(2, 1);
    sends(took, 0).channels = 2;
    sends(took, 0).held = 1;
    expect_nobody(took);
}

TEST(Edges, AStuckWatchdogDoesNotHideARankThatIsWatched)
{
    Job job = ring_without(4, 3);
    job.process(1).watchdog_stuck_ns = 60 * NG_S;
    expect_verdict(job, NG_KIND_GPU_STALL, {3}, NG_CONFIDENCE_LIKELY);
    job.process(3).watchdog_stuck_ns = 60 * NG_S;
    expect_verdict(job, NG_KIND_WATCHDOG_STUCK, ANYBODY);
}

TEST(Edges, TheReportHasWhatWaitsWhere)
{
    Judgement two = judge(ring_without(2, 1));
    Judgement four = judge(ring_without(4, 3));

    EXPECT_PRED2(mentions, two.text,
                 "connections rank 0's data for rank 1 wait on 4 of 4 channels: 1 step sent, 0 "
                 "taken; nothing came from rank 1\n");
    EXPECT_PRED2(mentions, four.text,
                 "connections rank 2's data for rank 3 wait on 4 of 4 channels: 3 steps sent, 0 "
                 "taken\n");
}

TEST(Edges, NobodyIsNamedWhileDataMove)
{
    for (int rank = 0; rank < 4; rank++) {
        Job job = ring_without(4, 3);
        sends(job, rank).flags |= MOVES;
        expect_nobody(job);
    }
}

TEST(Edges, NobodyIsNamedBeforeAllHaveLooked)
{
    for (int rank = 0; rank < 4; rank++) {
        Job job = ring_without(4, 3);
        job.at(WORLD, rank).edges.clear();
        expect_nobody(job);
    }
}

/* Between looks that are far apart, the rank that did not take part may have come. */
TEST(Edges, NobodyIsNamedByLooksOfDifferentMoments)
{
    Job job = ring_without(4, 3);

    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).edges_age_ns = 500 * NG_S;
    job.at(WORLD, 0).edges_age_ns -= NG_EDGES_TOGETHER_NS - 1;
    expect_verdict(job, NG_KIND_GPU_STALL, {3}, NG_CONFIDENCE_LIKELY);
    job.at(WORLD, 0).edges_age_ns--;
    expect_nobody(job);
}

TEST(Edges, ARankThatTakesPartIsNotNamed)
{
    Job sent = ring_without(4, 3), took = ring_without(4, 3), heard = ring_without(4, 3);

    sends(sent, 3) = edge(0, SENDS | RING, 1);
    expect_nobody(sent);
    receives(took, 3) = edge(2, RING, 3, 1);
    expect_nobody(took);
    receives(heard, 0) = edge(3, RING, 1); /* its own look is of an earlier moment */
    expect_nobody(heard);
}

TEST(Edges, WhereNothingWasSentNobodyIsNamed)
{
    Job job = waiting_for(4, {});

    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).edges = {edge((rank + 1) % 4, SENDS | RING),
                                     edge((rank + 3) % 4, RING)};
    expect_nobody(job);
}

TEST(Edges, TwoThatDoNotTakePartAreNamedIfDataWaitForBoth)
{
    Job job = ring_without(4, 3);

    sends(job, 0) = edge(1, SENDS | RING, 1);
    receives(job, 1) = edge(0, RING, 1);
    sends(job, 1) = edge(2, SENDS | RING);
    receives(job, 2) = edge(1, RING);
    sends(job, 2) = edge(3, SENDS | RING, 1);
    receives(job, 3) = edge(2, RING, 1);
    expect_verdict(job, NG_KIND_GPU_STALL, {1, 3}, NG_CONFIDENCE_LIKELY, {0, 2});
}

/* What the host's records show comes first. */
TEST(Edges, ARankThatDidNotComeIsNamedWhateverTheConnectionsShow)
{
    Job missing = ring_without(4, 3), queued = ring_without(4, 3);

    missing.at(WORLD, 1) = Job(4, WORLD, "dp", 6).at(WORLD, 1);
    expect_verdict(missing, NG_KIND_MISSING_RANK, {1}, NG_CONFIDENCE_CERTAIN);
    queued.at(WORLD, 0).pending_started = false;
    expect_verdict(queued, NG_KIND_GPU_STALL, {0}, NG_CONFIDENCE_LIKELY);
}

/* Rank 0 is the parent of 1 and 2, and its kernel does not run. */
static Job tree_of_three(bool one_came, bool two_came, int one_flags = DOWN)
{
    Job job = waiting_for(3, {});

    job.at(WORLD, 0).edges = {edge(1, SENDS | DOWN), edge(1, one_flags, one_came),
                              edge(2, SENDS | DOWN), edge(2, DOWN, two_came)};
    job.at(WORLD, 1).edges = {edge(0, SENDS | UP, one_came), edge(0, UP)};
    job.at(WORLD, 2).edges = {edge(0, SENDS | UP, two_came), edge(0, UP)};
    return job;
}

TEST(Edges, AParentIsNamedOnceTheDataOfAllItsChildrenAreThere)
{
    expect_verdict(tree_of_three(true, true), NG_KIND_GPU_STALL, {0}, NG_CONFIDENCE_LIKELY, {1, 2});
    expect_nobody(tree_of_three(true, false));
    /* Rank 1 may also be the one before it in a ring: but what was sent is of the tree. */
    expect_nobody(tree_of_three(true, false, RING | DOWN));
}

/* Over a network, of two ranks: rank 0 has given its steps to the network, and so many came. */
static Job over_a_network(int sent, int came, int taken, int answered)
{
    Job job = waiting_for(2, {});

    job.at(WORLD, 0).edges = {edge(1, SENDS | RING | PROXY, sent, sent),
                              edge(1, RING | PROXY, answered, answered)};
    job.at(WORLD, 1).edges = {edge(0, SENDS | RING | PROXY, answered, answered),
                              edge(0, RING | PROXY, came, taken)};
    return job;
}

TEST(Edges, ThePathThatDoesNotDeliverIsNamedByItsEnds)
{
    Judgement judgement =
        expect_verdict(over_a_network(4, 1, 1, 2), NG_KIND_GPU_STALL, {0, 1}, NG_CONFIDENCE_LIKELY);
    judgement.because("the network has taken 3 steps that did not");
    EXPECT_PRED2(mentions, judgement.whys.at(1), "waits for data of rank 0");
}

TEST(Edges, APathIsNotNamedOnDoubt)
{
    expect_nobody(over_a_network(4, 4, 4, 2)); /* all came */
    expect_nobody(over_a_network(4, 2, 1, 2)); /* the receiver has not taken what came */
    Job early = over_a_network(4, 1, 1, 2), other = over_a_network(4, 1, 1, 2);
    early.at(WORLD, 1).edges_age_ns = 2 * NG_S; /* they may have come since */
    expect_nobody(early);
    sends(other, 0).channel = 1;
    expect_nobody(other);
}

TEST(Edges, OverANetworkARankThatDoesNotTakeWhatCameIsNamed)
{
    expect_verdict(over_a_network(4, 4, 0, 0), NG_KIND_GPU_STALL, {1}, NG_CONFIDENCE_LIKELY, {0});
    expect_nobody(over_a_network(4, 0, 0, 0)); /* neither rank nor path: nothing of it came */
}

TEST(Edges, PeersThatDoNotExistAreSurvived)
{
    Job job = ring_without(4, 3);

    job.at(WORLD, 0).edges.push_back(edge(77, SENDS | RING, 1));
    job.at(WORLD, 3).edges.push_back(edge(-5, RING, 1));
    judge(job);
}

/* Of the two calls of an NCCL group both are judged. */
TEST(Edges, WhatIsShownOfAnotherCallOfTheNcclGroupIsNotRepeated)
{
    Job job(2, 1, "a");
    job.group(2, "b");
    job.number_by_process();
    for (int rank : {0, 1})
        for (uint64_t group : {1, 2}) {
            Member &member = job.at(group, rank).did(3).waits();
            member.records.back().flags |= NG_RECORD_IN_GROUP;
            member.edges = {edge(1 - rank, SENDS | RING, 1), edge(1 - rank, RING, 1)};
        }
    std::string text = expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN).text;
    const char *line = "rank 0's data for rank 1 wait";
    size_t first = text.find(line);
    ASSERT_NE(first, std::string::npos) << text;
    EXPECT_EQ(text.find(line, first + 1), std::string::npos) << text;
}
