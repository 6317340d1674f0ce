/*
 * What the driver knows of devices: whom it explains, and where it is only told.
 */
#include "tests/unit/core/verdict/verdict_jobs.h"

namespace
{
std::string pci_of(int rank)
{
    return "0000:1" + std::to_string(rank) + ":00.0";
}

/* All of four ranks wait on their devices, in a call that all have made. */
Job stalled()
{
    Job job = waiting_for(4, {});
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).pci_id = pci_of(rank);
    return job;
}

void add(Job &job, int rank, uint32_t kind, uint32_t number, uint64_t count = 1)
{
    struct ng_device_error error = {kind, number, count, 100 * NG_MS, ""};
    snprintf(error.pci_id, sizeof(error.pci_id), "%s", pci_of(rank).c_str());
    Process &process = job.process(rank);
    process.device_errors[process.device_error_count++] = error;
}
} // namespace

TEST(VerdictDevices, AnXidExplainsAStallThatNothingElseExplains)
{
    Job job = stalled();
    expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN);
    add(job, 2, NG_DEVICE_ERROR_XID, 79);
    Judgement judgement =
        expect_verdict(job, NG_KIND_GPU_STALL, {2}, NG_CONFIDENCE_LIKELY, {0, 1, 3});
    judgement.because("the driver knows of an error of its device 0000:12:00.0: Xid 79");
    EXPECT_PRED2(mentions, judgement.line, "; device of rank 2: Xid 79 (the device has fallen");
    EXPECT_PRED2(mentions, judgement.text,
                 "  device      rank 2, 0000:12:00.0: Xid 79 (the device has fallen off the bus); "
                 "noticed 100 ms ago\n");
    EXPECT_PRED2(mentions, judgement.json,
                 "\"pci\": \"0000:12:00.0\", \"what\": \"xid\", \"number\": 79, \"count\": 1, "
                 "\"ago_ms\": 100}");
    add(job, 0, NG_DEVICE_ERROR_LOST, 0);
    expect_verdict(job, NG_KIND_GPU_STALL, {0, 2}, NG_CONFIDENCE_LIKELY, {1, 3});
}

/* They may be old, of another tenant, or left to the application. */
TEST(VerdictDevices, OtherXidsNameNobody)
{
    for (uint32_t xid : {13u, 48u, 64u, 74u, 94u, 140u, 9999u}) {
        Job job = stalled();
        add(job, 1, NG_DEVICE_ERROR_XID, xid);
        Judgement judgement = expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN);
        EXPECT_PRED2(mentions, judgement.line, "; device of rank 1: Xid " + std::to_string(xid));
        add(job, 2, NG_DEVICE_ERROR_XID, 95);
        add(job, 3, NG_DEVICE_ERROR_XID, 119);
        expect_verdict(job, NG_KIND_GPU_STALL, {2, 3}, NG_CONFIDENCE_LIKELY, {0, 1});
    }
}

TEST(VerdictDevices, WhatDoesNotStopADeviceIsOnlyTold)
{
    Job job = stalled();
    add(job, 0, NG_DEVICE_ERROR_XID, 31);
    add(job, 1, NG_DEVICE_ERROR_ECC, 0, 3);
    add(job, 2, NG_DEVICE_ERROR_NVLINK_REPLAY, 0, 1000);
    add(job, 3, NG_DEVICE_ERROR_PROCESS, 4711);
    Judgement judgement = expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN);
    for (const char *told :
         {"rank 0, 0000:10:00.0: Xid 31 ", "rank 1, 0000:11:00.0: uncorrected ECC",
          "rank 2, 0000:12:00.0: NVLink replays: 1000",
          "rank 3, 0000:13:00.0: also computes there: process 4711"})
        EXPECT_PRED2(mentions, judgement.text, told);
}

TEST(VerdictDevices, ARankThatIsNamedAlreadyStaysTheOnlyOne)
{
    Job job = stalled();
    job.at(WORLD, 1).pending_started = false;
    for (int rank : {0, 2, 3})
        job.at(WORLD, rank).pending_started = true;
    expect_verdict(job, NG_KIND_GPU_STALL, {1}, NG_CONFIDENCE_LIKELY);
    add(job, 3, NG_DEVICE_ERROR_XID, 79);
    expect_verdict(job, NG_KIND_GPU_STALL, {1}, NG_CONFIDENCE_LIKELY);
}

TEST(VerdictDevices, OtherKindsOfVerdictsDoNotChange)
{
    Job job = waiting_for(4, {1});
    for (int rank = 0; rank < 4; rank++)
        job.at(WORLD, rank).pci_id = pci_of(rank);
    Judgement before = expect_verdict(job, NG_KIND_MISSING_RANK, {1}, NG_CONFIDENCE_CERTAIN);
    add(job, 0, NG_DEVICE_ERROR_XID, 79);
    add(job, 2, NG_DEVICE_ERROR_PROCESS, 4711);
    Judgement judgement =
        expect_verdict(job, NG_KIND_MISSING_RANK, {1}, NG_CONFIDENCE_CERTAIN, before.waiting);
    EXPECT_EQ(judgement.whys, before.whys);
    EXPECT_PRED2(mentions, judgement.line, "device of rank 0: Xid 79");
    EXPECT_EQ(judgement.text.find("4711"), std::string::npos) << "it explains no missing rank";
    EXPECT_FALSE(mentions(before.json, "device_errors"));
    EXPECT_TRUE(mentions(judgement.json, "device_errors"));
}

TEST(VerdictDevices, OfARankAndItsDeviceAlone)
{
    Job job = stalled();
    add(job, 2, NG_DEVICE_ERROR_XID, 79);
    job.at(WORLD, 2).pci_id = pci_of(7); /* its process drives both, and this one is fine */
    EXPECT_FALSE(mentions(expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN).json,
                          "device_errors"));
    job.at(WORLD, 2).pci_id = "";
    expect_verdict(job, NG_KIND_GPU_STALL, {}, NG_CONFIDENCE_UNKNOWN);
}

/* Ranks that share a device see each other there. */
TEST(VerdictDevices, ProcessesOfTheJobAreNoStrangers)
{
    Job job = stalled();
    add(job, 0, NG_DEVICE_ERROR_PROCESS, (uint32_t)job.process(1).pid);
    EXPECT_FALSE(mentions(judge(job).json, "device_errors"));
    job.process(1).host = "elsewhere";
    EXPECT_TRUE(mentions(judge(job).json, "device_errors"));
}

TEST(VerdictDevices, AreListedUpToABoundAndThoseThatStopADeviceFirst)
{
    Job job = waiting_for(100, {});
    for (int rank = 0; rank < 100; rank++) {
        job.at(WORLD, rank).pci_id = pci_of(rank);
        add(job, rank, NG_DEVICE_ERROR_NVLINK_REPLAY, 0, 5);
    }
    add(job, 99, NG_DEVICE_ERROR_XID, 79);
    Judgement judgement = expect_verdict(job, NG_KIND_GPU_STALL, {99}, NG_CONFIDENCE_LIKELY);
    EXPECT_PRED2(mentions, judgement.line, "; device of rank 99: Xid 79 (");
    EXPECT_PRED2(mentions, judgement.text, "rank 62, 0000:162:00.0: NVLink replays: 5");
    EXPECT_FALSE(mentions(judgement.text, "rank 63, 0000:163:00.0: NVLink replays: 5"));
    EXPECT_PRED2(mentions, judgement.text, "there may be more");
}

TEST(VerdictDevices, AHealthyJobHasNone)
{
    Job job(2, WORLD, "");
    for (int rank = 0; rank < 2; rank++) {
        job.at(WORLD, rank).did(3);
        job.at(WORLD, rank).pci_id = pci_of(rank);
        add(job, rank, NG_DEVICE_ERROR_XID, 79);
    }
    EXPECT_FALSE(mentions(expect_verdict(job, NG_KIND_HEALTHY, {}).json, "device_errors"));
}
