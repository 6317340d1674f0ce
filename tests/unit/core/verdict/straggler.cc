/*
 * Stragglers: found where there is one, and nowhere else.
 */
#include "tests/unit/core/helpers/job.h"

extern "C" {
#include "core/verdict/straggler.h"
}

namespace
{

constexpr uint64_t GROUP = 0xabc;

/* Ranks that arrive at their collectives at random times; all leave together. */
struct Arrivals {
    int ranks = 8;
    int samples = 30;
    double duration_us = 1000; /* of who comes in time */
    double noise = 0.02;       /* standard deviation of arrivals, of the duration */
    int late = -1;             /* this rank, */
    double lag = 0;            /* by so much of the duration, */
    double share = 1;          /* so often */
};

Job job_of(const Arrivals &what, uint64_t seed)
{
    std::mt19937_64 random(seed);
    std::normal_distribution<double> noise(0, what.noise);
    std::uniform_real_distribution<double> even(0, 1);
    Job job(what.ranks);
    job.group(GROUP, "dp");
    for (int s = 0; s < what.samples; s++) {
        std::vector<double> arrivals;
        for (int rank = 0; rank < what.ranks; rank++)
            arrivals.push_back(noise(random) +
                               (rank == what.late && even(random) < what.share ? what.lag : 0));
        double size = 0.5 + even(random); /* messages are not all of one size */
        for (int rank = 0; rank < what.ranks; rank++)
            job.at(GROUP, rank)
                .samples.push_back(
                    {(uint64_t)(s * 128 + 5), 1,
                     (int64_t)(what.duration_us * size * (1 - arrivals[(size_t)rank]) * NG_US)});
    }
    for (int rank = 0; rank < what.ranks; rank++)
        job.at(GROUP, rank).did(3);
    return job;
}

struct Found {
    bool any = false;
    int rank = -1;
    uint32_t last = 0, samples = 0;
    int64_t wait_ns = 0, total_wait_ns = 0;
    enum ng_confidence confidence = NG_CONFIDENCE_UNKNOWN;
    std::string why;
};

Found find(const Job &job)
{
    OwnArena arena;
    struct ng_straggler straggler;
    Found found;
    char why[512];
    JobView view(job);
    uint32_t group = ng_view_find_group(&view, GROUP);
    found.any = group != UINT32_MAX && ng_straggler_find(&view, group, &arena, &straggler);
    if (found.any) {
        found.rank = ng_view_rank(&view, straggler.member);
        found.last = straggler.last;
        found.samples = straggler.samples;
        found.wait_ns = straggler.wait_ns;
        found.total_wait_ns = straggler.total_wait_ns;
        found.confidence = straggler.confidence;
        ng_straggler_why(&straggler, why, sizeof(why));
        found.why = why;
    }
    return found;
}

/* The verdict where nothing is stuck, as the tools reach it. */
struct Blame {
    enum ng_verdict_kind kind;
    enum ng_confidence confidence;
    std::vector<int> culprits, waiting;
    std::string why, line;
};

Blame blame(const Job &job)
{
    Blame blame = {};
    char line[NG_REPORT_LINE_BYTES];
    JudgedView view(job);
    struct ng_verdict &verdict = view.verdict;
    EXPECT_EQ(ng_straggler_blame(&view, &verdict), 0);
    blame.kind = verdict.kind;
    blame.confidence = verdict.confidence;
    for (uint32_t i = 0; i < verdict.culprit_count; i++) {
        blame.culprits.push_back(verdict.culprits[i].rank);
        blame.why = verdict.culprits[i].why;
    }
    blame.waiting.assign(verdict.waiting, verdict.waiting + verdict.waiting_count);
    ng_report_line(&verdict, line, sizeof(line));
    blame.line = line;
    return blame;
}

} // namespace

TEST(Straggler, OfNoiseAloneThereIsNone)
{
    int found = 0, jobs = 0;
    for (int ranks : {2, 3, 4, 8, 16, 64})
        for (int samples : {8, 16, 30, 64})
            for (double noise : {0.01, 0.05, 0.2, 0.5})
                for (uint64_t seed = 0; seed < 20; seed++, jobs++) {
                    Arrivals what;
                    what.ranks = ranks;
                    what.samples = samples;
                    what.noise = noise;
                    found += find(job_of(what, seed)).any;
                }
    EXPECT_EQ(found, 0) << "of " << jobs;
}

TEST(Straggler, OneThatLagsByAFifthIsFound)
{
    for (int ranks : {2, 3, 8, 64})
        for (double noise : {0.01, 0.03, 0.06})
            for (uint64_t seed = 0; seed < 20; seed++) {
                Arrivals what;
                what.ranks = ranks;
                what.noise = noise;
                what.late = (int)seed % ranks;
                what.lag = 0.2;
                Found found = find(job_of(what, seed));
                ASSERT_TRUE(found.any) << ranks << " ranks, noise " << noise << ", " << seed;
                EXPECT_EQ(found.rank, what.late);
                EXPECT_EQ(found.samples, 30u);
                EXPECT_NEAR((double)found.wait_ns, 200e3, 120e3);
            }
}

TEST(Straggler, ItNeedNotBeLateEachTime)
{
    Arrivals what;
    what.late = 3;
    what.lag = 0.5;
    what.samples = 60;
    what.share = 0.7;
    Found found = find(job_of(what, 1));
    ASSERT_TRUE(found.any);
    EXPECT_EQ(found.rank, 3);
    EXPECT_EQ(found.confidence, NG_CONFIDENCE_LIKELY);
    what.share = 0.3;
    EXPECT_FALSE(find(job_of(what, 1)).any) << "mostly it is not the last";
    what.share = 1;
    EXPECT_EQ(find(job_of(what, 1)).confidence, NG_CONFIDENCE_CERTAIN);
}

TEST(Straggler, OfTwoThatComeLastTogetherNoneIsNamed)
{
    Arrivals what;
    what.late = 2;
    what.lag = 0.5;
    Job job = job_of(what, 7);
    EXPECT_EQ(find(job).rank, 2);
    job.at(GROUP, 5).samples = job.at(GROUP, 2).samples;
    EXPECT_FALSE(find(job).any);
}

TEST(Straggler, TooFewSamplesSayNothing)
{
    Arrivals what;
    what.late = 3;
    what.lag = 0.5;
    what.samples = NG_STRAGGLER_SAMPLES - 1;
    EXPECT_FALSE(find(job_of(what, 1)).any);
    what.samples = NG_STRAGGLER_SAMPLES;
    EXPECT_EQ(find(job_of(what, 1)).confidence, NG_CONFIDENCE_LIKELY);
    /* Of two ranks, one comes last anyhow: that takes longer to be no chance. */
    what.ranks = 2;
    what.late = 1;
    EXPECT_FALSE(find(job_of(what, 1)).any);
    what.samples = 16;
    EXPECT_EQ(find(job_of(what, 1)).confidence, NG_CONFIDENCE_CERTAIN);
}

TEST(Straggler, WhatDoesNotMatterIsNotTold)
{
    Arrivals what;
    what.late = 3;
    what.lag = 0.2;
    what.duration_us = 100;
    EXPECT_FALSE(find(job_of(what, 1)).any) << "20 us";
    what.duration_us = 1000;
    what.lag = 0.07;
    what.noise = 0.001;
    EXPECT_FALSE(find(job_of(what, 1)).any) << "7 % of the time";
}

/* Whoever is not known may have come later than all others. */
TEST(Straggler, EveryRankMustHaveMeasured)
{
    Arrivals what;
    what.late = 3;
    what.lag = 0.5;
    Job job = job_of(what, 1);
    job.at(GROUP, 5).samples.clear();
    EXPECT_FALSE(find(job).any);
    job = job_of(what, 1);
    job.forget(GROUP, 5);
    EXPECT_FALSE(find(job).any);
    job = job_of(what, 1);
    for (struct ng_view_sample &sample : job.at(GROUP, 5).samples)
        sample.calls = 2;
    EXPECT_FALSE(find(job).any) << "another NCCL group than that of the others";
    job = job_of(what, 1);
    job.at(GROUP, 5).samples.resize(12);
    job.at(GROUP, 6).samples.erase(job.at(GROUP, 6).samples.begin());
    ASSERT_TRUE(find(job).any);
    EXPECT_EQ(find(job).samples, 11u) << "those that all have";
}

TEST(Straggler, ItsSentenceHasTheFigures)
{
    Job job(4, GROUP, "dp");
    for (int rank = 0; rank < 4; rank++)
        for (uint64_t seq = 1; seq <= 16; seq++)
            job.at(GROUP, rank)
                .samples.push_back({seq, 1, rank == 2 ? 100 * NG_US : (1 + rank) * 3 * NG_MS});
    Found found = find(job);
    ASSERT_TRUE(found.any);
    EXPECT_EQ(found.last, 16u);
    EXPECT_EQ(found.wait_ns, 6 * NG_MS - 100 * NG_US);
    EXPECT_EQ(found.total_wait_ns, 16 * found.wait_ns);
    EXPECT_EQ(found.why,
              "came last in 16 of 16 measured collectives (#1 to #16): the others waited "
              "5.9 ms for it (median, of 6.0 ms in the collective), 94.4 ms altogether");
}

TEST(Straggler, IsTheVerdictWhereNothingIsStuck)
{
    Arrivals what;
    what.late = 3;
    what.lag = 0.5;
    Job job = job_of(what, 1);
    Blame judged = blame(job);
    EXPECT_EQ(judged.kind, NG_KIND_STRAGGLER);
    EXPECT_EQ(judged.confidence, NG_CONFIDENCE_CERTAIN);
    EXPECT_EQ(judged.culprits, (std::vector<int>{3}));
    EXPECT_EQ(judged.waiting, (std::vector<int>{0, 1, 2, 4, 5, 6, 7}));
    EXPECT_NE(judged.line.find("straggler: rank 3"), std::string::npos) << judged.line;
    EXPECT_EQ(judge(job).kind, NG_KIND_HEALTHY) << "the engine itself names none: no incident";
    /* A hang is one, whoever was late before. */
    for (int rank = 0; rank < 7; rank++)
        job.at(GROUP, rank).waits();
    judged = blame(job);
    EXPECT_EQ(judged.kind, NG_KIND_MISSING_RANK);
    EXPECT_EQ(judged.culprits, (std::vector<int>{7}));
    what.late = -1;
    EXPECT_EQ(blame(job_of(what, 1)).kind, NG_KIND_HEALTHY);
}

/* Of several groups, the one whose waits cost most. */
TEST(Straggler, TheOneThatCostsMostIsBlamed)
{
    Job job(4);
    for (uint64_t id : {1, 2})
        job.group(id, "");
    for (uint64_t id : {1, 2})
        for (int rank = 0; rank < 4; rank++)
            for (uint64_t seq = 1; seq <= 16; seq++)
                job.at(id, rank).samples.push_back(
                    {seq, 1, rank == (int)id ? NG_MS : (int64_t)(1 + id) * NG_MS});
    EXPECT_EQ(blame(job).culprits, (std::vector<int>{2}));
}

/* Numbers of a damaged box are any. */
TEST(Straggler, SurvivesAnyNumbers)
{
    std::mt19937_64 random(3);
    for (int round = 0; round < 200; round++) {
        Job job(3, GROUP, "");
        for (int rank = 0; rank < 3; rank++)
            for (int i = 0; i < 20; i++)
                job.at(GROUP, rank)
                    .samples.push_back({random() % 8, (uint32_t)(random() % 2),
                                        (int64_t)(random() >> (1 + random() % 60))});
        blame(job);
    }
}
