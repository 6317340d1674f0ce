/*
 * Timelines: clocks of several hosts put in step, and trace.json as viewers want it.
 */
#include "tests/gtest/own_json.h"
#include "tests/unit/core/helpers/job.h"

extern "C" {
#include "core/report/timeline.h"
#include "core/report/trace.h"
#include "core/view/clock_sync.h"
}

namespace
{

constexpr int64_t MORNING = INT64_C(1790000000) * NG_S;
constexpr uint64_t WORLD = 0xaaaa, PAIR = 0xbbbb;

/* A view of a job made by hand, whose times this test sets. */
class Timed : public JobView
{
  public:
    explicit Timed(const Job &job) : JobView(job)
    {
        for (uint32_t i = 0; i < process_count; i++) {
            processes[i].moment_mono_ns = 1000 * NG_S;
            processes[i].moment_unix_ns = MORNING;
        }
        for (uint32_t i = 0; i < member_count; i++)
            for (uint32_t k = 0; k < members[i].record_count; k++)
                place(&members[i], k);
    }
    ~Timed()
    {
        if (judged)
            ng_verdict_fini(&verdict);
    }

    /* The clock of a process shows more than it is, and so does that of all of its host. */
    void set_ahead(uint32_t process, int64_t ns)
    {
        processes[process].moment_unix_ns += ns;
    }
    const struct ng_verdict *judge()
    {
        struct ng_verdict_query query = {.stalled_ns = STALLED};
        EXPECT_EQ(ng_verdict_reach(this, &query, &verdict), 0);
        judged = true;
        return &verdict;
    }
    struct ng_clock_offsets align()
    {
        struct ng_clock_offsets alignment;
        EXPECT_EQ(ng_clock_sync(this, &arena, &alignment), 0);
        return alignment;
    }
    std::string trace(uint32_t records_max = 1000)
    {
        return text_from([&](int fd) {
            EXPECT_EQ(ng_trace_write(this, judged ? &verdict : nullptr, records_max, fd), 0);
        });
    }

    struct ng_verdict verdict = {};
    bool judged = false;

  private:
    /* One call every 10 ms, 40 s ago; the device takes 4 ms, and ends a little later on each rank.
     */
    static void place(struct ng_view_member *member, uint32_t index)
    {
        struct ng_view_record *record = &member->records[index];
        int64_t since = 40 * NG_S - (int64_t)record->coll_seq * 10 * NG_MS;
        record->entered_age_ns = since;
        record->tid = 7000;
        record->stream = 0x51;
        if (record->state == NG_RECORD_STARTED || record->state == NG_RECORD_COMPLETED)
            record->started_age_ns = since - NG_MS;
        if (record->state == NG_RECORD_COMPLETED)
            record->completed_age_ns = since - 5 * NG_MS - member->group_rank * 100 * NG_US;
    }
};

/* Rank 2 of three never came to the fourth collective; ranks 0 and 1 have sent to each other. */
Job stuck_job()
{
    Job job(3);
    job.process(0).host = job.process(1).host = "node \"a\"";
    job.process(2).host = "node-b";
    job.group(WORLD, "world");
    job.group(PAIR, "", {0, 1});
    for (int rank = 0; rank < 3; rank++)
        job.at(WORLD, rank).did(3);
    for (int rank = 0; rank < 2; rank++)
        job.at(PAIR, rank).p2p(NG_OP_Send, 1 - rank, true).p2p(NG_OP_Recv, 1 - rank, true);
    job.at(WORLD, 0).waits().queued();
    job.at(WORLD, 1).waits();
    return job;
}

/* "" when tests/unit/core/report/check_trace.py has nothing to say of any of these. */
std::string flaw_of(const std::vector<std::string> &traces)
{
    Folder folder;
    std::string told, command = "python3 " + test_folder() + "/report/check_trace.py";
    for (size_t i = 0; i < traces.size(); i++) {
        std::string path = folder / (std::to_string(i) + ".json");
        write_whole_file(path, traces[i]);
        command += " " + path;
    }
    command += " 2>&1 >/dev/null";
    FILE *pipe = popen(command.c_str(), "r");
    char text[4096];
    while (fgets(text, sizeof(text), pipe))
        told += text;
    return pclose(pipe) == 0 ? told : told + ".";
}

std::string flaw_of(const std::string &trace)
{
    return flaw_of(std::vector<std::string>{trace});
}

struct Parsed : OwnJson {
    using OwnJson::OwnJson;
    /* Events of a phase whose name begins so. */
    std::vector<json_t *> events(const char *phase, const std::string &name = "") const
    {
        std::vector<json_t *> found;
        size_t i;
        json_t *event;
        json_array_foreach(json_object_get(root, "traceEvents"), i, event)
        {
            std::string its = json_string_value(json_object_get(event, "name"));
            if (!strcmp(json_string_value(json_object_get(event, "ph")), phase) &&
                its.compare(0, name.size(), name) == 0)
                found.push_back(event);
        }
        return found;
    }
};

double number(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

} // namespace

/* ---- Clocks ---- */

TEST(ClockSync, ProcessesOfOneHostShareItsMonotonicClock)
{
    Timed job(stuck_job());
    /* Looked at half a second later; and its calendar was set in between. */
    job.processes[1].moment_mono_ns += NG_S / 2;
    job.processes[1].moment_unix_ns += NG_S;
    struct ng_clock_offsets clocks = job.align();
    EXPECT_EQ(clocks.host_count, 2u);
    EXPECT_EQ(clocks.moments_ns[1] - clocks.moments_ns[0], NG_S / 2);
}

TEST(ClockSync, OneNameForTwoMachinesIsTwoClocks)
{
    Timed job(stuck_job());
    job.processes[1].moment_mono_ns += 77 * NG_S;
    struct ng_clock_offsets clocks = job.align();
    EXPECT_EQ(clocks.host_count, 3u);
    EXPECT_EQ(clocks.moments_ns[1], MORNING);
}

TEST(ClockSync, AHostWhoseClockIsOffIsPutInStepByItsCollectives)
{
    for (int64_t ahead : {-3600 * NG_S, -20 * NG_MS, 20 * NG_MS, 5 * NG_S}) {
        Timed job(stuck_job());
        job.set_ahead(2, ahead);
        struct ng_clock_offsets clocks = job.align();
        const struct ng_clock_sync_host &host = clocks.hosts[clocks.host_of[2]];
        EXPECT_EQ(host.samples, 3u);
        EXPECT_TRUE(host.applied);
        /* Its rank ends 0.2 ms behind the first of the others. */
        EXPECT_EQ(host.offset_ns, -ahead - 200 * NG_US);
        EXPECT_NEAR((double)clocks.moments_ns[2], (double)MORNING, 1e6);
        EXPECT_EQ(clocks.moments_ns[0], MORNING);
    }
}

TEST(ClockSync, WhatIsWithinTheNoiseIsLeftAlone)
{
    Timed job(stuck_job());
    job.set_ahead(2, NG_MS / 2);
    struct ng_clock_offsets clocks = job.align();
    EXPECT_EQ(clocks.hosts[clocks.host_of[2]].samples, 3u);
    EXPECT_FALSE(clocks.hosts[clocks.host_of[2]].applied);
    EXPECT_EQ(clocks.moments_ns[2], MORNING + NG_MS / 2);
}

TEST(ClockSync, CollectivesThatScatterMoreThanTheOffsetProveNothing)
{
    Job scattered(2);
    scattered.process(0).host = "a";
    scattered.process(1).host = "b";
    scattered.group(WORLD, "");
    for (int rank = 0; rank < 2; rank++)
        scattered.at(WORLD, rank).did(20);
    Timed job(scattered);
    job.set_ahead(1, 20 * NG_MS);
    for (uint32_t k = 0; k < 20; k++)
        job.members[1].records[k].completed_age_ns += (int64_t)(k % 5) * 30 * NG_MS;
    struct ng_clock_offsets clocks = job.align();
    EXPECT_GT(clocks.hosts[1].samples, 0u);
    EXPECT_GT(clocks.hosts[1].scatter_ns, 20 * NG_MS);
    EXPECT_FALSE(clocks.hosts[1].applied);
}

TEST(ClockSync, ABroadcastMayEndEarlyAtItsRootAndIsNotCompared)
{
    Job broadcasts(2);
    broadcasts.process(0).host = "a";
    broadcasts.process(1).host = "b";
    broadcasts.group(WORLD, "");
    for (int rank = 0; rank < 2; rank++)
        broadcasts.at(WORLD, rank).did(5, {NG_OP_Broadcast, 7, -1, 0, 64});
    Timed job(broadcasts);
    job.set_ahead(1, NG_S);
    EXPECT_EQ(job.align().hosts[1].samples, 0u);
}

TEST(ClockSync, HostsThatShareNoGroupWithTheFirstAreReachedThroughOthers)
{
    Job chain(4);
    for (int rank = 0; rank < 4; rank++)
        chain.process(rank).host = std::string("host-") + (char)('a' + rank);
    for (int rank = 0; rank < 3; rank++) {
        chain.group(WORLD + (uint64_t)rank, "", {rank, rank + 1});
        chain.at(WORLD + (uint64_t)rank, 0).did(5);
        chain.at(WORLD + (uint64_t)rank, 1).did(5);
    }
    Timed job(chain);
    job.set_ahead(1, NG_S);
    job.set_ahead(3, -NG_S);
    struct ng_clock_offsets clocks = job.align();
    for (int rank = 0; rank < 4; rank++)
        EXPECT_NEAR((double)clocks.moments_ns[rank], (double)MORNING, 2e6) << rank;
    EXPECT_FALSE(clocks.hosts[2].applied);
}

TEST(ClockSync, WhoDoesNotKnowTheTimeWasLookedAtWithTheOthers)
{
    Timed job(stuck_job());
    job.processes[2].moment_unix_ns = job.processes[2].moment_mono_ns = 0;
    EXPECT_EQ(job.align().moments_ns[2], MORNING);
}

/* ---- trace.json ---- */

TEST(Trace, IsTheDocumentedFormat)
{
    Timed job(stuck_job());
    ASSERT_EQ(job.judge()->kind, NG_KIND_MISSING_RANK);
    std::string text = job.trace();
    EXPECT_EQ(flaw_of(text), "");
    size_t at = text.find("\"guard_version\": \"") + strlen("\"guard_version\": \"");
    text.replace(at, text.find('"', at) - at, "x");
    expect_golden(text, "trace.json");
}

TEST(Trace, AnArrowGoesFromTheCulpritToEveryRankThatWaits)
{
    Timed job(stuck_job());
    job.judge();
    Parsed trace(job.trace());
    std::vector<json_t *> from = trace.events("s"), to = trace.events("f");
    ASSERT_EQ(from.size(), 2u);
    ASSERT_EQ(to.size(), 2u);
    for (size_t i = 0; i < 2; i++) {
        EXPECT_EQ(number(from[i], "pid"), 3);
        EXPECT_EQ(number(to[i], "pid"), (double)i + 1);
    }
}

TEST(Trace, ARankInFlightWaitsUntilTheMomentOfTheView)
{
    Timed job(stuck_job());
    job.judge();
    Parsed trace(job.trace());
    std::vector<json_t *> waits = trace.events("X", "AllReduce #4 (on the device)");
    ASSERT_EQ(waits.size(), 2u);
    /* It was called 39.96 s ago, 40 ms after the first call, and reached the device 1 ms later. */
    EXPECT_EQ(number(waits[0], "ts"), 41000.0);
    EXPECT_EQ(number(waits[0], "dur"), 39959000.0);
    /* What is queued behind it is a point, on its stream; and one for the thread that called it. */
    EXPECT_EQ(trace.events("X", "AllReduce #5").size(), 0u);
    EXPECT_EQ(trace.events("i", "AllReduce #5 (queued)").size(), 1u);
}

/* Begin and end were seen in one look: it ran since the end of the one before, or since its call.
 */
TEST(Trace, WhatTheDeviceDidBetweenTwoLooksHasBounds)
{
    Job one(1, WORLD, "");
    one.at(WORLD, 0).did(4);
    Timed job(one);
    struct ng_view_record *records = job.members[0].records;
    for (int i = 1; i < 4; i++)
        records[i].started_age_ns = records[i].completed_age_ns = 39 * NG_S;
    records[3].entered_age_ns = 39 * NG_S + NG_MS;
    std::string text = job.trace();
    EXPECT_EQ(flaw_of(text), "");
    Parsed trace(text);
    std::vector<json_t *> slices = trace.events("X");
    ASSERT_EQ(slices.size(), 4u);
    /* Called 10 ms after each other from 39.99 s ago; the first ended after 5 ms. */
    EXPECT_EQ(number(slices[0], "dur"), 4000.0);
    EXPECT_EQ(number(slices[1], "dur"), 980000.0);
    EXPECT_EQ(number(slices[2], "dur"), 970000.0);
    EXPECT_EQ(number(slices[3], "dur"), 1000.0);
    for (int i = 0; i < 4; i++)
        EXPECT_EQ(json_is_true(json_object_get(json_object_get(slices[i], "args"), "bounds")),
                  i > 0);
}

TEST(Trace, WhatTheDeviceMeasuredIsAsLongAsThat)
{
    Job one(1, WORLD, "");
    one.at(WORLD, 0).did(4);
    Timed job(one);
    struct ng_view_record *records = job.members[0].records;
    for (int i = 1; i < 4; i++)
        records[i].started_age_ns = records[i].completed_age_ns = 39 * NG_S;
    records[2].duration_ns = 41500;
    records[3].duration_ns = 20 * NG_S; /* longer than it can have been: another clock */
    std::string text = job.trace();
    EXPECT_EQ(flaw_of(text), "");
    Parsed trace(text);
    std::vector<json_t *> slices = trace.events("X");
    ASSERT_EQ(slices.size(), 4u);
    EXPECT_EQ(number(slices[2], "dur"), 41.5);
    EXPECT_EQ(number(slices[2], "ts") + 41.5, number(slices[1], "ts") + number(slices[1], "dur"))
        << "it ends where it was seen to end";
    EXPECT_EQ(number(json_object_get(slices[2], "args"), "duration_us"), 41.5);
    EXPECT_EQ(json_object_get(json_object_get(slices[1], "args"), "duration_us"), nullptr);
    EXPECT_LT(number(slices[3], "dur"), 1e6);
}

TEST(Trace, WithoutRecordsTheWaitIsThatOfTheGroup)
{
    Timed job(stuck_job());
    for (uint32_t i = 0; i < job.member_count; i++)
        job.members[i].record_count = 0;
    job.judge();
    std::string text = job.trace();
    EXPECT_EQ(flaw_of(text), "");
    Parsed trace(text);
    EXPECT_EQ(trace.events("X", "pending #4 (on the device)").size() +
                  trace.events("X", "AllReduce #4 (on the device)").size(),
              2u);
}

TEST(Trace, ACulpritThatNobodyHasSeenHasARowOfItsOwn)
{
    Job absent = stuck_job();
    Timed job(absent);
    job.judge();
    struct ng_culprit unseen = job.verdict.culprits[0];
    unseen.rank = 77;
    unseen.pid = 0;
    job.verdict.culprits = &unseen;
    Parsed trace(job.trace());
    EXPECT_EQ(trace.events("X", "missing_rank").size(), 1u);
    EXPECT_EQ(number(trace.events("X", "missing_rank")[0], "pid"), 4);
}

TEST(Trace, RanksThatOneProcessDrivesHaveRowsOfTheirOwn)
{
    Job devices(1, false);
    devices.group(WORLD, "", {0, 0, 0});
    for (int rank = 0; rank < 3; rank++) {
        devices.at(WORLD, rank).device = rank;
        devices.at(WORLD, rank).did(2);
    }
    devices.at(WORLD, 0).waits();
    devices.at(WORLD, 1).waits();
    devices.inside(0, NG_OP_AllReduce, WORLD, 3);
    Timed job(devices);
    job.judge();
    std::string text = job.trace();
    EXPECT_EQ(flaw_of(text), "");
    Parsed trace(text);
    EXPECT_EQ(trace.events("M", "process_name").size(), 3u);
    EXPECT_EQ(trace.events("X", "AllReduce #3 (in the call)").size(), 1u);
}

TEST(Trace, OldCallsGiveWayWhereThereIsNoRoom)
{
    Job busy(2, WORLD, "");
    busy.group(PAIR, "", {0, 1});
    for (int rank = 0; rank < 2; rank++) {
        busy.at(WORLD, rank).did(500);
        busy.at(PAIR, rank).did(3);
    }
    Timed job(busy);
    Parsed trace(job.trace(26));
    EXPECT_EQ(trace.events("X").size(), 26u);
    EXPECT_EQ(trace.events("X", "AllReduce #500").size(), 2u);
    EXPECT_EQ(trace.events("X", "AllReduce #490").size(), 0u);
    EXPECT_EQ(json_integer_value(
                  json_object_get(json_object_get(trace.root, "otherData"), "records_left_out")),
              980);
}

/* Sends and receives of one NCCL group have one beginning and one end. */
TEST(Trace, WorkOfOneGroupNestsAndTooMuchOfItIsPoints)
{
    for (bool done : {true, false}) {
        Job pairs(1, WORLD, "");
        for (int i = 0; i < 200; i++)
            pairs.at(WORLD, 0).p2p(NG_OP_Send, 0, done);
        Timed job(pairs);
        std::string text = job.trace();
        EXPECT_EQ(flaw_of(text), "");
        Parsed trace(text);
        EXPECT_EQ(trace.events("X").size(), 64u);
        EXPECT_EQ(trace.events("i").size(), 200u + 136u);
    }
}

/* Polling sees the end of one and the beginning of the next in any order. */
TEST(Trace, ViewersTakeWhateverTimesThereAre)
{
    std::vector<std::string> traces;
    for (unsigned seed = 0; seed < 100; seed++) {
        std::mt19937_64 random(seed);
        Job any(4, seed % 5 != 0);
        any.group(WORLD, "w<b>\"\\\x01");
        any.group(PAIR, "", {1, 3});
        for (int rank = 0; rank < 4; rank++) {
            any.process(rank).host = rank % 2 ? "a" : "b";
            any.process(rank).life = (enum ng_life)(random() % (NG_LIFE_LOST + 1));
            any.at(WORLD, rank).did((int)(random() % 20));
            if (random() % 2)
                any.at(WORLD, rank).waits().queued().opened();
        }
        any.inside(1, NG_OP_GroupEnd, PAIR, 3);
        any.inside(1, NG_OP_AllReduce, 0, 0, INT64_MAX);
        Timed job(any);
        for (uint32_t i = 0; i < job.process_count; i++)
            job.processes[i].moment_unix_ns =
                random() % 4 ? MORNING + (int64_t)(random() % (40 * NG_S)) : (int64_t)random();
        for (uint32_t i = 0; i < job.member_count; i++)
            for (uint32_t k = 0; k < job.members[i].record_count; k++) {
                struct ng_view_record *record = &job.members[i].records[k];
                for (int64_t *age :
                     {&record->entered_age_ns, &record->started_age_ns, &record->completed_age_ns})
                    *age = random() % 16 ? (int64_t)(random() % (50 * NG_S)) : (int64_t)random();
                record->state = (enum ng_record_state)(random() % 12);
                record->stream = random() % 20;
                record->tid = (uint32_t)(random() % 30);
                if (random() % 8 == 0)
                    record->signature = {(uint32_t)random(), (int)random(), (int)random(),
                                         (int)random(), random()};
                if (random() % 8 == 0)
                    record->coll_seq = random();
            }
        job.judge();
        traces.push_back(job.trace(seed % 3 ? 1000 : 10));
    }
    EXPECT_EQ(flaw_of(traces), "");
}

TEST(Trace, OfAnEmptyViewIsATimelineWithoutAnything)
{
    Job nobody(0);
    Timed job(nobody);
    EXPECT_EQ(flaw_of(job.trace()), "");
    job.judge();
    EXPECT_EQ(flaw_of(job.trace()), "");
}

/* In a process whose malloc is locked for ever. */
TEST(Trace, IsWrittenWithoutMalloc)
{
    Folder folder;
    Timed job(stuck_job());
    job.judge();
    EXPECT_EQ(in_child([&] {
                  forbid_malloc(true);
                  return ng_trace_save(&job, &job.verdict, folder.path().c_str()) == 0 ? 0 : 2;
              }),
              0);
    EXPECT_EQ(folder.names(), std::vector<std::string>{"trace.json"});
    EXPECT_EQ(flaw_of(read_whole_file(folder / "trace.json")), "");
}
