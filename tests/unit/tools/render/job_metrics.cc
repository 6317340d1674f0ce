/*
 * Jobs as metrics, of jobs made by hand: what is told of whom, and that it comes once.
 */
#include "tests/unit/core/helpers/job.h"

#include <sys/mman.h>

#include "tests/unit/tools/evidence.h"
#include "tests/unit/tools/samples.h"

extern "C" {
#include "core/verdict/straggler.h"
#include "tools/render/job_metrics.h"
}

namespace
{

constexpr uint64_t GROUP = 0x1111;

/* What is written of a view, judged as the exporter does. */
std::string metrics_of(struct ng_job_metrics &job, int64_t stalled_ns = STALLED)
{
    struct ng_scrape scrape = {};
    struct ng_verdict_query query = {};
    scrape.jobs = &job;
    query.stalled_ns = stalled_ns;
    snprintf(job.job, sizeof(job.job), "job");
    snprintf(job.run, sizeof(job.run), "0000000000000001");
    EXPECT_EQ(ng_verdict_reach(&job.view, &query, &job.verdict), 0);
    EXPECT_EQ(ng_straggler_blame(&job.view, &job.verdict), 0);
    int fd = memfd_create("metrics", MFD_CLOEXEC);
    EXPECT_EQ(ng_job_metrics_write(&scrape, fd), 0);
    std::string text((size_t)lseek(fd, 0, SEEK_END), '\0');
    EXPECT_EQ(pread(fd, &text[0], text.size(), 0), (ssize_t)text.size());
    close(fd);
    ng_verdict_fini(&job.verdict);
    ng_view_fini(&job.view);
    return text;
}

Samples samples_of(const Job &job)
{
    struct ng_job_metrics metrics = {};
    ng_view_init(&metrics.view);
    job.fill(&metrics.view);
    return Samples(metrics_of(metrics));
}

TEST(JobMetrics, OfARankThatHasHadTheGroupBeforeItsNewestCommunicatorIsTold)
{
    struct ng_job_metrics job = {};
    ng_view_init(&job.view);
    struct ng_view_process *process = ng_view_add_process(&job.view);
    process->rank = 0;
    process->world_size = 2;
    process->pid = 7;
    process->life = NG_LIFE_RUNNING;
    uint32_t group = ng_view_intern_group(&job.view, GROUP);
    job.view.groups[group].nranks = 2;
    for (uint64_t entered : {9, 3}) {
        struct ng_view_member *member = ng_view_add_member(&job.view, 0, group, 0);
        member->entered = member->completed = entered;
        member->state = entered == 9 ? NG_GROUP_DESTROYED : NG_GROUP_READY;
    }
    ng_view_seal(&job.view);
    Samples samples(metrics_of(job));
    EXPECT_EQ(samples.only("last_collective", {R"(state="entered")"}), "3");
}

TEST(JobMetrics, CallsAndRegistrationsAreTold)
{
    Job job(2, GROUP, "odd \"name\" \\ here\n", 3);
    job.inside(1, NG_OP_CommSplit, GROUP, 0, 7 * NG_S);
    job.inside(1, NG_OP_CommInitRank, 0, 0, 3 * NG_S, 99);
    job.at(GROUP, 0).registration = {true, false, 2, 1 << 20, 4000, 3000, 5, 2, 1, 0, 5000000};
    job.at(GROUP, 1).registration = job.at(GROUP, 0).registration;
    job.at(GROUP, 1).state = NG_GROUP_DESTROYED;
    Samples samples = samples_of(job);
    EXPECT_EQ(samples.of("call_seconds").size(), 1u);
    EXPECT_EQ(samples.only("call_seconds",
                           {R"(rank="1")", R"(op="CommSplit")", R"(group="0000000000001111")"}),
              "7.000000000");
    EXPECT_EQ(samples.only("group", {R"(rank="0")", R"(name="odd \"name\" \\ here\n")"}), "1");
    EXPECT_EQ(samples.only("registered_segments", {R"(rank="0")"}), "3");
    EXPECT_EQ(samples.only("registered_segments", {R"(rank="1")"}), "0");
    for (const char *rank : {R"(rank="0")", R"(rank="1")"}) {
        bool over = strstr(rank, "1");
        EXPECT_EQ(samples.only("registrations_total", {rank, R"(what="ended_with_group")"}),
                  over ? "3" : "0");
        EXPECT_EQ(samples.only("registrations_total", {rank, R"(what="made")"}), "5");
        EXPECT_EQ(samples.only("send_recv_bytes_total", {rank, R"(registered="no")"}), "1000");
        EXPECT_EQ(samples.only("registration_seconds_total", {rank}), "0.005000000");
    }
}

/* What came from a store has the time of its receipt alone. */
TEST(JobMetrics, TheAgeOfAVerdictIsToldWhereItsClockIsThatOfThisHost)
{
    for (bool of_this_host : {true, false}) {
        struct ng_job_metrics job = {};
        ng_view_init(&job.view);
        Job(2, GROUP, "world", 3).fill(&job.view);
        job.last.level = NG_INCIDENT_TIMEOUT;
        job.last.kind = NG_KIND_MISSING_RANK;
        job.has_incidents = of_this_host;
        job.last_age_ns = 7 * NG_S;
        Samples samples(metrics_of(job));
        EXPECT_EQ(samples.only("verdict_info", {R"(level="timeout")"}), "1");
        EXPECT_EQ(samples.only("verdict_age_seconds", {R"(nccl_job="job")"}),
                  of_this_host ? "7.000000000" : "");
    }
}

/* A process that ended inside a call waits no longer. */
TEST(JobMetrics, OfAProcessThatHasEndedNoCallIsTold)
{
    Job job(2, GROUP, "world", 3);
    job.inside(1, NG_OP_CommSplit, GROUP, 0, 7 * NG_S);
    job.process(1).is(NG_LIFE_DEAD, NG_S);
    EXPECT_EQ(samples_of(job).of("call_seconds").size(), 0u);
}

TEST(JobMetrics, AStragglerIsNamedAndNothingIsStuck)
{
    Job job(4, GROUP, "world", 3);
    for (int rank = 0; rank < 4; rank++)
        for (uint64_t seq = 1; seq <= 30; seq++)
            job.at(GROUP, rank).samples.push_back({seq, 1, rank == 2 ? NG_MS : 3 * NG_MS});
    Samples samples = samples_of(job);
    EXPECT_EQ(
        samples.only("straggler_wait_seconds", {R"(group="0000000000001111")", R"(straggler="2")"}),
        "0.002000000");
    EXPECT_EQ(samples.only("live_verdict_info", {R"(kind="straggler")", R"(culprits="2")"}), "1");
    EXPECT_EQ(samples.only("culprit", {R"(rank="2")", R"(kind="straggler")"}), "1");
    EXPECT_EQ(samples.only("stuck_seconds"), "0.000000000");
    EXPECT_EQ(samples.only("waiting_ranks"), "3");
}

TEST(JobMetrics, WhateverAProcessHasCanBeRead)
{
    for (unsigned seed = 1; seed <= 50; seed++) {
        struct ng_job_metrics job = {};
        ng_view_init(&job.view);
        evidence_add_random(&job.view, seed);
        ng_view_seal(&job.view);
        std::string text = metrics_of(job);
        Samples samples(text);
        EXPECT_EQ(samples.of("process").size(), 1u) << text;
        if (HasFailure())
            FAIL() << "seed " << seed;
    }
}

} /* namespace */
