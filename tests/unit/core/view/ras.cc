/*
 * NCCL's RAS as a witness: whose communicators its answer is about, and what the engine makes of
 * it.
 */
#include "tests/unit/core/verdict/verdict_jobs.h"

extern "C" {
#include "core/nccl/group_id.h"
#include "core/view/ras.h"
}

namespace
{
constexpr uint64_t HASH = 0x1234;

/* An answer about one communicator, or several. */
struct Witness {
    std::vector<std::vector<struct ng_ras_rank>> ranks;
    std::vector<struct ng_ras_communicator> communicators;

    void add(int size, uint64_t hash = HASH)
    {
        ranks.emplace_back();
        for (int i = 0; i < size; i++)
            ranks.back().push_back({i, 1000 + i, "10.0.0.1", NG_RAS_MEMBER, true, 7});
        communicators.push_back({hash, size, false, false, 0, nullptr, 0});
    }
    struct ng_ras_rank &at(int rank, int communicator = 0)
    {
        return ranks[(size_t)communicator][(size_t)rank];
    }
};

/* Rank 0 asks; ranks `unseen` have no guard. All that have one wait in the seventh round. */
struct Case {
    Job job;
    Witness witness;
    int64_t age_ns = NG_S;
    uint64_t known_hash = HASH;
    bool notes = true;
    struct ng_view view = {};
    struct ng_verdict verdict = {};

    Case(int ranks, const std::vector<int> &unseen) : job(waiting_for(ranks, {}))
    {
        for (int rank = 0; rank < ranks; rank++)
            job.process(rank).pid = 1000 + rank;
        for (int rank : unseen) {
            job.forget(WORLD, rank);
            job.process(rank).life = NG_LIFE_UNKNOWN;
        }
        job.process(0).self = true;
        witness.add(ranks);
    }
    Case(const Case &) = delete;
    ~Case()
    {
        ng_verdict_fini(&verdict);
        ng_view_fini(&view);
    }
    const struct ng_verdict &judge()
    {
        struct ng_ras_known known = {WORLD, known_hash};
        struct ng_verdict_query query = {};

        ng_view_init(&view);
        job.fill(&view);
        ng_view_seal(&view);
        for (size_t i = 0; i < witness.ranks.size(); i++) {
            witness.communicators[i].ranks = witness.ranks[i].data();
            witness.communicators[i].rank_count = (uint32_t)witness.ranks[i].size();
        }
        struct ng_ras_answer answer = {{},
                                       witness.communicators.data(),
                                       (uint32_t)witness.communicators.size(),
                                       (uint32_t)witness.communicators.size()};
        EXPECT_EQ(ng_ras_match(&answer, &known, 1, age_ns, &view), 0);
        if (!notes)
            view.note_count = 0;
        query.stalled_ns = STALLED;
        EXPECT_EQ(ng_verdict_reach(&view, &query, &verdict), 0);
        return verdict;
    }
    bool misses(const std::string &part) const
    {
        for (uint32_t i = 0; i < verdict.missing_evidence_count; i++)
            if (mentions(verdict.missing_evidence[i], part))
                return true;
        return false;
    }
};
} // namespace

TEST(Ras, WhoHasLaunchedLessIsMissing)
{
    for (auto [ranks, culprit] : sizes_and_culprits()) {
        if (culprit == 0)
            continue;
        Case the(ranks, {culprit});
        the.witness.at(culprit).launched = 6;
        const struct ng_verdict &verdict = the.judge();
        EXPECT_EQ(verdict.kind, NG_KIND_MISSING_RANK);
        EXPECT_EQ(verdict.confidence, NG_CONFIDENCE_LIKELY);
        ASSERT_EQ(verdict.culprit_count, 1u);
        EXPECT_EQ(verdict.culprits[0].group_rank, culprit);
        EXPECT_EQ(verdict.culprits[0].pid, 1000 + culprit);
        EXPECT_STREQ(verdict.culprits[0].host, "10.0.0.1");
        EXPECT_PRED2(mentions, verdict.culprits[0].why,
                     "only 6 of 7 collectives, as NCCL's RAS said");
        EXPECT_TRUE(the.misses("but the word of NCCL's RAS"));
        EXPECT_EQ(verdict.seq, 7u);
    }
}

TEST(Ras, WhoIsOutOfReachOrDeadIsDead)
{
    for (enum ng_ras_state state : {NG_RAS_UNREACHABLE, NG_RAS_DEAD}) {
        Case the(4, {2, 3});
        the.witness.at(2).state = state;
        the.witness.at(3).launched = 6; /* it may wait for that one */
        const struct ng_verdict &verdict = the.judge();
        EXPECT_EQ(verdict.kind, NG_KIND_DEAD_RANK);
        EXPECT_EQ(verdict.confidence, NG_CONFIDENCE_LIKELY);
        ASSERT_EQ(verdict.culprit_count, 1u);
        EXPECT_EQ(verdict.culprits[0].group_rank, 2);
    }
}

TEST(Ras, WhoHasLeftTheCommunicatorLeftEarly)
{
    for (enum ng_ras_state state : {NG_RAS_ENDING, NG_RAS_NO_MEMBER}) {
        Case the(4, {2});
        the.witness.at(2).state = state;
        EXPECT_EQ(the.judge().kind, NG_KIND_LEFT_EARLY);
        EXPECT_EQ(the.verdict.confidence, NG_CONFIDENCE_LIKELY);
    }
}

/* It has launched as many: what it waits for, if it does, nobody knows. */
TEST(Ras, WhoIsNotBehindIsNotNamed)
{
    Case the(4, {2});
    EXPECT_EQ(the.judge().kind, NG_KIND_UNKNOWN);
    EXPECT_EQ(the.verdict.culprit_count, 0u);
    EXPECT_TRUE(the.verdict.lacks_ranks);
    EXPECT_TRUE(the.misses("does not show that it is late"));
}

/* Calls behind the one that hangs may be launched on some ranks and not yet on others. */
TEST(Ras, WhoHasLaunchedTheCallThatHangsIsNotBehind)
{
    for (uint64_t launched : {7, 6}) {
        Case the(4, {2});
        the.job.at(WORLD, 0).queued().queued();
        the.witness.at(0).launched = 9;
        the.witness.at(2).launched = launched;
        EXPECT_EQ(the.judge().kind, launched == 7 ? NG_KIND_UNKNOWN : NG_KIND_MISSING_RANK);
    }
}

TEST(Ras, WhoWaitsInAnotherCommunicatorIsNotNamed)
{
    Case the(4, {2});
    the.witness.at(2).launched = 6;
    the.witness.add(2, 0x77);
    the.witness.at(0, 1) = {0, 1002, "10.0.0.1", NG_RAS_MEMBER, true, 5};
    the.witness.at(1, 1) = {1, 4711, "10.0.0.9", NG_RAS_MEMBER, true, 4};
    EXPECT_EQ(the.judge().kind, NG_KIND_UNKNOWN);
    EXPECT_TRUE(the.misses("waits in another communicator"));
}

/* The guard's own evidence: rank 1 reports that it has not come. */
TEST(Ras, ItsWordIsNeverAboveTheGuards)
{
    Case the(4, {3});
    the.job = waiting_for(4, {1});
    for (int rank = 0; rank < 4; rank++)
        the.job.process(rank).pid = 1000 + rank;
    the.job.forget(WORLD, 3);
    the.job.process(3).life = NG_LIFE_UNKNOWN;
    the.job.process(0).self = true;
    the.witness.at(3).state = NG_RAS_DEAD;
    the.witness.at(1).state = NG_RAS_DEAD;
    const struct ng_verdict &verdict = the.judge();
    EXPECT_EQ(verdict.kind, NG_KIND_MISSING_RANK);
    ASSERT_EQ(verdict.culprit_count, 1u);
    EXPECT_EQ(verdict.culprits[0].group_rank, 1);
    EXPECT_PRED2(mentions, verdict.culprits[0].why, "is alive but never called");
    EXPECT_TRUE(the.misses("says that group rank 1 is out of its reach"));
}

/* Its process is there, and reports, though not this group: it is not dead. */
TEST(Ras, WhoseProcessReportsIsNotDead)
{
    Case the(4, {2});
    the.witness.at(2).state = NG_RAS_UNREACHABLE;
    the.job.process(2).life = NG_LIFE_RUNNING;
    EXPECT_EQ(the.judge().kind, NG_KIND_UNKNOWN);
}

TEST(Ras, WhatIsOlderThanTheWaitSaysNothing)
{
    Case the(4, {2});
    the.witness.at(2).state = NG_RAS_DEAD;
    the.age_ns = LONG_AGO + NG_S;
    EXPECT_EQ(the.judge().kind, NG_KIND_UNKNOWN);
}

TEST(Ras, ACommunicatorOfOthersIsNotOurs)
{
    for (int what = 0; what < 3; what++) {
        Case the(4, {2});
        the.witness.at(2).state = NG_RAS_DEAD;
        if (what == 0)
            the.witness.communicators[0].size = 5;
        else if (what == 1)
            the.witness.at(0).pid = 9; /* our own */
        else
            the.witness.at(3).pid = 9; /* that of another with evidence */
        EXPECT_EQ(the.judge().kind, NG_KIND_UNKNOWN) << what;
    }
}

/* Two communicators of the same processes: counts are of one of them, states of both. */
TEST(Ras, OfTwoThatFitOnlyWhatBothSayCounts)
{
    for (enum ng_ras_state state : {NG_RAS_MEMBER, NG_RAS_UNREACHABLE}) {
        Case the(4, {2});
        the.known_hash = 0;
        the.witness.add(4, 0x77);
        for (int i = 0; i < 2; i++) {
            the.witness.at(2, i).launched = 6;
            the.witness.at(2, i).state = state;
        }
        EXPECT_EQ(the.judge().kind, state == NG_RAS_MEMBER ? NG_KIND_UNKNOWN : NG_KIND_DEAD_RANK);
    }
}

TEST(Ras, ATextAloneNeedsTheHash)
{
    for (uint64_t hash : {HASH, uint64_t(0)}) {
        Case the(4, {2});
        struct ng_ras_rank late = the.witness.at(2);
        late.launched = 6;
        the.known_hash = hash;
        the.witness.ranks[0] = {late};
        the.witness.communicators[0].partial = the.witness.communicators[0].counts = true;
        the.witness.communicators[0].launched = 7;
        EXPECT_EQ(the.judge().kind, hash ? NG_KIND_MISSING_RANK : NG_KIND_UNKNOWN);
    }
}

/* Its text does not list ranks that agree with most: one of them may be the late one's process. */
TEST(Ras, ATextMayHideWhoWaitsInAnotherCommunicator)
{
    for (uint64_t most : {4, 5}) {
        Case the(4, {2});
        struct ng_ras_rank late = the.witness.at(2);
        late.launched = 6;
        the.witness.ranks[0] = {late};
        the.witness.communicators[0].partial = the.witness.communicators[0].counts = true;
        the.witness.communicators[0].launched = 7;
        the.witness.add(4, 0x77);
        the.witness.ranks[1] = {{1, 4711, "10.0.0.9", NG_RAS_MEMBER, true, 4}};
        the.witness.communicators[1].partial = the.witness.communicators[1].counts = true;
        the.witness.communicators[1].launched = most;
        EXPECT_EQ(the.judge().kind, most == 5 ? NG_KIND_UNKNOWN : NG_KIND_MISSING_RANK);
    }
}

TEST(Ras, WhoseProcessIsNotKnownMayWaitInAnotherCommunicator)
{
    Case the(4, {2});
    the.witness.at(2).launched = 6;
    the.witness.at(2).pid = 0;
    the.witness.add(2, 0x77);
    the.witness.at(0, 1) = {0, 1002, "10.0.0.1", NG_RAS_MEMBER, true, 5};
    the.witness.at(1, 1) = {1, 4711, "10.0.0.9", NG_RAS_MEMBER, true, 4};
    EXPECT_EQ(the.judge().kind, NG_KIND_UNKNOWN);
}

/* Process ids repeat from job to job, where each has a namespace of its own. */
TEST(Ras, AnAnswerWithoutOurHashIsAnotherJobs)
{
    Case the(4, {2});
    the.witness.communicators[0].hash = HASH + 1;
    the.witness.at(2).launched = 6;
    EXPECT_EQ(the.judge().kind, NG_KIND_UNKNOWN);
}

TEST(Ras, AHashThatIsNotKnownChoosesNothing)
{
    Case the(4, {2});
    the.known_hash = 0;
    the.witness.add(4, 0);
    the.witness.at(2, 1).launched = 6;
    EXPECT_EQ(the.judge().kind, NG_KIND_UNKNOWN);
}

/* A contradiction is a note, one for all its ranks; files of evidence have none. */
TEST(Ras, WithoutNotesTheGuardsVerdictStaysCertain)
{
    for (bool notes : {false, true}) {
        Case the(8, {});
        the.job = waiting_for(8, {1});
        for (int rank = 0; rank < 8; rank++)
            the.job.process(rank).pid = 1000 + rank;
        the.job.process(0).self = true;
        the.notes = notes;
        for (int rank : {2, 3, 4, 6})
            the.witness.at(rank).state = NG_RAS_DEAD;
        EXPECT_EQ(the.judge().kind, NG_KIND_MISSING_RANK);
        EXPECT_EQ(the.verdict.confidence, notes ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN);
        EXPECT_EQ(the.view.note_count, notes ? 1u : 0u);
        EXPECT_EQ(the.misses("says that group ranks 2-4,6 are out of its reach"), notes);
    }
}

/* In a group of a part of the job its rank is another. */
TEST(Ras, WhoseProcessReportsWithoutItsSubgroupIsNotNamed)
{
    for (enum ng_ras_state state : {NG_RAS_UNREACHABLE, NG_RAS_NO_MEMBER}) {
        Case the(4, {2});
        the.witness.at(2).state = state;
        for (int rank = 0; rank < 4; rank++)
            the.job.process(rank).world_size = 8;
        the.job.process(2).life = NG_LIFE_RUNNING;
        EXPECT_EQ(the.judge().kind, NG_KIND_UNKNOWN);
    }
}

TEST(Ras, OfTwoThatFitTheHashTells)
{
    Case the(4, {2});
    the.witness.communicators[0].hash = HASH + 1;
    the.witness.at(2).state = NG_RAS_DEAD;
    the.witness.add(4, HASH);
    the.witness.at(2, 1).launched = 6;
    EXPECT_EQ(the.judge().kind, NG_KIND_MISSING_RANK);
}

/* Worked out with NCCL's own getHash (src/include/bitops.h of 2.28.9). */
TEST(Ras, HashOfAUniqueId)
{
    unsigned char id[NG_UNIQUE_ID_BYTES] = {};
    uint64_t old_hash = 5381;

    EXPECT_EQ(ng_group_id_nccl(id, 22809), 0xcc976ec6c24bb53c);
    for (int i = 0; i < NG_UNIQUE_ID_BYTES; i++) {
        id[i] = (unsigned char)(37 * i + 200);
        old_hash = old_hash * 33 ^ (uint64_t)(int64_t)(char)id[i];
    }
    EXPECT_EQ(ng_group_id_nccl(id, 22809), 0x130bf80bb2fc3c2b);
    EXPECT_EQ(ng_group_id_nccl(id, 22501), old_hash);
}
