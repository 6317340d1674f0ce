/*
 * Ranks that differ in what they call: in one call, by their history, and by hashes of calls that
 * nobody kept.
 */
#include "tests/unit/core/verdict/verdict_jobs.h"

extern "C" {
#include "core/verdict/divergence.h"
}

TEST(Verdict, OneDeviatingRankOfManyIsNamedForEachField)
{
    const struct ng_signature usual = {NG_OP_Reduce, 7, 0, 0, 1024};
    static const struct {
        struct ng_signature deviating;
        const char *field;
    } rows[] = {
        {{NG_OP_AllReduce, 7, 0, -1, 1024}, "operation"},
        {{NG_OP_Reduce, 7, 0, 0, 1023}, "count"},
        {{NG_OP_Reduce, 6, 0, 0, 1024}, "data type"},
        {{NG_OP_Reduce, 7, 2, 0, 1024}, "reduction"},
        {{NG_OP_Reduce, 7, 0, 1, 1024}, "root"},
    };
    for (const auto &row : rows) {
        for (auto [ranks, culprit] : sizes_and_culprits()) {
            if (ranks == 2)
                continue;
            Job job(ranks, WORLD, "dp");
            for (int rank = 0; rank < ranks; rank++)
                job.at(WORLD, rank).did(6).waits(rank == culprit ? row.deviating : usual);
            Judgement judgement =
                expect_verdict(job, NG_KIND_MISMATCH, {culprit}, NG_CONFIDENCE_CERTAIN);
            EXPECT_EQ(judgement.seq, 7u);
            EXPECT_EQ(judgement.op, NG_OP_Reduce) << "what the others called";
            judgement.because(row.field);
        }
    }
}

/* Of two ranks that were found to differ, as those of the group that have come to the call so far
 * are known. */
TEST(Verdict, OfRanksThatDifferNobodyIsSureWhileTheOthersMayTurnItRound)
{
    static const struct {
        int alike, odd; /* of six */
        enum ng_confidence confidence;
        bool others_may_tell;
        size_t culprits;
    } rows[] = {
        {1, 1, NG_CONFIDENCE_UNKNOWN, true, 2},
        {2, 1, NG_CONFIDENCE_LIKELY, true, 1},
        {3, 1, NG_CONFIDENCE_LIKELY, true, 1},
        {4, 1, NG_CONFIDENCE_CERTAIN, false, 1}, /* whatever the sixth calls */
        {3, 3, NG_CONFIDENCE_UNKNOWN, false, 6},
        {5, 1, NG_CONFIDENCE_CERTAIN, false, 1},
    };
    for (const auto &row : rows) {
        SCOPED_TRACE(std::to_string(row.alike) + " against " + std::to_string(row.odd));
        Job job(6, WORLD, "dp");
        for (int rank = 0; rank < row.alike + row.odd; rank++)
            job.at(WORLD, rank).waits(all_reduce(rank < row.odd ? 512 : 1024), NG_MS);
        struct ng_verdict_query query = {};
        query.disagreement = {WORLD, {0, 1}, {0, row.odd}};
        JudgedView view(job, query);
        const struct ng_verdict &verdict = view.verdict;
        EXPECT_EQ(verdict.kind, NG_KIND_MISMATCH);
        EXPECT_EQ(verdict.confidence, row.confidence);
        EXPECT_EQ(verdict.others_may_tell, row.others_may_tell);
        ASSERT_EQ(verdict.culprit_count, row.culprits);
        EXPECT_EQ(verdict.culprits[0].rank, 0);
    }
}

/* Fields that an operation does not have, or that NCCL lets differ, make no mismatch. */
TEST(Verdict, WhatNeedNotAgreeIsNoMismatch)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++) {
        job.at(WORLD, rank).did(1, {NG_OP_AllReduce, 7, 0, rank, 8});  /* no root */
        job.at(WORLD, rank).did(1, {NG_OP_AllGather, 7, rank, -1, 8}); /* no reduction */
        job.at(WORLD, rank)
            .did(1, {NG_OP_AllReduce, 7, 100 + rank, -1, 8}); /* reductions of their own */
        job.at(WORLD, rank).did(1, {NG_OP_AllToAllv, 7, -1, -1, (uint64_t)rank});
    }
    job.wait(WORLD, {0, 1, 3});
    expect_verdict(job, NG_KIND_MISSING_RANK, {2});
}

/* A mismatch that went through (a smaller broadcast, say) and hung the group only later. */
TEST(Verdict, TheFirstMismatchIsToBlameNotTheHangThatFollows)
{
    Job job(4, WORLD, "dp");
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).did(6).did(1, all_reduce(rank == 1 ? 512 : 1024)).did(1).waits();
    EXPECT_EQ(expect_verdict(job, NG_KIND_MISMATCH, {1}).seq, 7u);
}

TEST(Verdict, OfTwoRanksHistoryTellsWhoDeviates)
{
    const struct ng_signature forward = all_reduce(100), backward = all_reduce(200),
                              odd = all_reduce(150);
    for (int culprit : {0, 1}) {
        Job job(2, WORLD, "dp");
        for (int rank : {0, 1}) {
            Member &member = job.at(WORLD, rank);
            for (int step = 0; step < 5; step++)
                member.did(1, forward).did(1, backward);
            member.did(1, forward).waits(rank == culprit ? odd : backward);
        }
        EXPECT_EQ(expect_verdict(job, NG_KIND_MISMATCH, {culprit}, NG_CONFIDENCE_LIKELY).seq, 12u);
    }
}

/* One rank left a step out: it calls what usually comes next, only too early. */
/* The call that followed the same call last time need not follow the same row of calls. */
TEST(Verdict, OfTwoRanksTheOneThatMadeACallOnceMoreDeviates)
{
    const struct ng_signature a = all_reduce(100), b = {NG_OP_AllGather, 7, -1, -1, 200};
    for (int culprit : {0, 1}) {
        Job job(2, WORLD, "dp");
        for (int rank : {0, 1}) {
            Member &member = job.at(WORLD, rank);
            for (int step = 0; step < 5; step++)
                member.did(1, a).did(2, b);
            member.waits(rank == culprit ? b : a);
        }
        expect_verdict(job, NG_KIND_MISMATCH, {culprit}, NG_CONFIDENCE_LIKELY);
    }
}

TEST(Verdict, OfTwoRanksTheOneThatSkippedACallDeviates)
{
    const struct ng_signature a = all_reduce(100), b = {NG_OP_AllGather, 7, -1, -1, 200},
                              c = all_reduce(300);
    for (int culprit : {0, 1}) {
        Job job(2, WORLD, "dp");
        for (int rank : {0, 1}) {
            Member &member = job.at(WORLD, rank);
            for (int step = 0; step < 5; step++)
                member.did(1, a).did(1, b).did(1, c);
            member.did(1, a).waits(rank == culprit ? c : b);
        }
        expect_verdict(job, NG_KIND_MISMATCH, {culprit}, NG_CONFIDENCE_LIKELY);
    }
}

TEST(Verdict, OfTwoRanksWithoutHistoryNobodyCanTell)
{
    Job job(2, WORLD, "dp");
    job.at(WORLD, 0).waits(all_reduce(1));
    job.at(WORLD, 1).waits(all_reduce(2));
    Judgement judgement = expect_verdict(job, NG_KIND_MISMATCH, ANYBODY, NG_CONFIDENCE_UNKNOWN);
    EXPECT_EQ(judgement.culprits, (std::vector<int>{0, 1})) << "both sides are shown";
    for (const std::string &why : judgement.whys)
        EXPECT_PRED2(mentions, why, "it is not known which are wrong");
}

/* Far back rank `odd` called something else; since then all are alike, and `keeps` records are
 * left of each. */
static Job parted(int ranks, std::vector<int> odd, int since, int keeps)
{
    Job job(ranks);
    job.tells_hashes = true;
    job.group(WORLD, "dp");
    for (int rank = 0; rank < ranks; rank++) {
        bool differs = std::find(odd.begin(), odd.end(), rank) != odd.end();
        job.at(WORLD, rank)
            .did(50)
            .did(1, all_reduce(differs ? 512 : 1024))
            .did(since)
            .waits()
            .keeps(keeps);
    }
    return job;
}

TEST(Verdict, RollingHashesTellOfAMismatchBeyondTheRecords)
{
    for (int keeps : {0, 1, 16}) {
        Judgement judgement = expect_verdict(judge(parted(4, {2}, 30, keeps)), NG_KIND_MISMATCH,
                                             {2}, NG_CONFIDENCE_LIKELY);
        int first = 82 - (keeps ? keeps - 1 : 0);
        EXPECT_EQ(judgement.seq, (uint64_t)first);
        EXPECT_EQ(judgement.op, NG_OP_AllReduce);
        judgement.because("called something else than most others in some "
                          "collective before #" +
                          std::to_string(first));
    }
}

TEST(Verdict, OfTwoRanksThatPartedNobodyCanTellWhoIsWrong)
{
    expect_verdict(judge(parted(2, {1}, 30, 16)), NG_KIND_MISMATCH, {0, 1}, NG_CONFIDENCE_UNKNOWN)
        .because("it is not known which are wrong");
}

/* Records on both sides of the one that differs, which nobody has kept. */
TEST(Verdict, RecordsMayShowWhereHashesBeganToDiffer)
{
    for (int gone : {1, 5}) {
        Job job = parted(4, {0}, 30, 1000);
        for (int rank = 0; rank < 4; rank++) {
            auto &records = job.at(WORLD, rank).records;
            records.erase(records.begin() + 50, records.begin() + 50 + gone);
        }
        Judgement judgement = expect_verdict(job, NG_KIND_MISMATCH, {0}, NG_CONFIDENCE_LIKELY);
        EXPECT_EQ(judgement.seq, 51u + (uint64_t)gone);
        judgement.because(gone == 1 ? "as #51," : "in one of #51 to #55,");
    }
}

TEST(Verdict, HashesAloneAreNoReasonToJudge)
{
    Job job = parted(4, {2}, 30, 16);
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).pending_record = 0;
    expect_kind(judge(job), NG_KIND_HEALTHY);

    /* Another group is stuck, for another reason. */
    job.group(2, "tp", {0, 1});
    job.at(2, 0).did(3).waits();
    job.at(2, 1).did(3);
    expect_verdict(job, NG_KIND_MISSING_RANK, {1});
}

TEST(Verdict, WhoWentOnLongAfterPartingHangsForAnotherReason)
{
    for (int since : {50, 300}) {
        Job job = parted(4, {2}, since, 20 + since / 4);
        job.at(WORLD, 3).pending_record = 0;
        for (int rank : {0, 1, 2})
            job.at(WORLD, rank).pending_record = 0;
        for (int rank = 0; rank < 4; rank++)
            job.at(WORLD, rank).did(1);
        job.wait(WORLD, {0, 1, 2});
        Judgement judgement =
            expect_verdict(job, since == 50 ? NG_KIND_MISMATCH : NG_KIND_MISSING_RANK,
                           {since == 50 ? 2 : 3}, NG_CONFIDENCE_LIKELY);
        EXPECT_EQ(judgement.missing.size(), since == 50 ? 0u : 1u);
    }
}

TEST(Verdict, AlikeHistoriesOrUnknownOnesAreNoMismatch)
{
    for (bool tells : {false, true}) {
        Job job = parted(4, {}, 30, 16);
        job.tells_hashes = tells;
        expect_kind(judge(job), NG_KIND_GPU_STALL);
    }
    /* One that tells no hash is not taken for another side. */
    Job job = parted(4, {}, 30, 0);
    job.at(WORLD, 1).rolling_hash = 0;
    expect_kind(judge(job), NG_KIND_GPU_STALL);
}

/* What a rank has called is known by its newest hash alone, or not at all. Nor is a number added to
 * a pointer to nothing, which clang's sanitizer alone would notice. */
TEST(Divergence, OfMembersWithoutRecordsIsFoundByTheirNewestHashes)
{
    static const struct {
        uint64_t hashes[3]; /* 0 not known */
        bool found;
    } rows[] = {{{0, 0, 0}, false}, {{5, 5, 5}, false}, {{5, 6, 5}, true}};
    for (const auto &row : rows) {
        OwnView view;
        OwnArena arena;
        uint32_t group = ng_view_intern_group(&view, WORLD);
        for (int rank = 0; rank < 3; rank++) {
            ng_view_add_process(&view)->rank = rank;
            struct ng_view_member *member =
                ng_view_add_member(&view, view.process_count - 1, group, rank);
            member->state = NG_GROUP_READY;
            member->entered = member->completed = 9;
            member->rolling_hash = row.hashes[rank];
            member->last = all_reduce();
        }
        view.groups[group].nranks = 3;
        ng_view_seal(&view);
        for (uint32_t i = 0; i < view.member_count; i++)
            ASSERT_EQ(view.members[i].records, nullptr);
        struct ng_divergence divergence = {};
        EXPECT_EQ(ng_divergence_find(&view, 0, 9, &arena, &divergence), row.found);
        EXPECT_EQ(divergence.expected, row.found ? 5u : 0u);
    }
}
