/*
 * Injected faults: in the black box, in a view, in dumps, and in what a verdict says.
 */
#include "tests/unit/core/helpers/job.h"

#include <jansson.h>

extern "C" {
#include "core/recorder/fault_log.h"
#ifdef NG_TEST_HAS_READER
#include "tools/ingest/read_dump.h"
#endif
}

namespace
{

constexpr const char *HANG = "rank=1,op=AllReduce,nth=10:hang";

struct ng_logged_fault at(int rank, uint64_t seq)
{
    struct ng_logged_fault now = {
        .rank = rank, .op = NG_OP_AllReduce, .group_id = 0xaa, .seq = seq};
    return now;
}

struct ng_box_identity identity(uint32_t faults)
{
    struct ng_box_identity who = {.rank = 1, .job = "by-hand", .faults = faults};
    return who;
}

struct Box {
    explicit Box(const Folder &folder, uint32_t faults)
    {
        struct ng_box_identity who = identity(faults);
        EXPECT_EQ(ng_box_create(folder.path().c_str(), &who, 8, &box), 0);
        path = folder / box.name;
    }
    ~Box()
    {
        ng_box_close(&box, nullptr);
    }
    struct ng_box box = {};
    std::string path;
};

TEST(FaultLog, ABoxHasNoRoomForFaultsWhereNoneIsArmed)
{
    Folder folder;
    Box plain(folder, 0), armed(folder, 2);

    EXPECT_EQ(plain.box.fault_capacity, 0u);
    EXPECT_EQ(plain.box.header->faults_offset, 0u);
    EXPECT_EQ(armed.box.map_bytes, plain.box.map_bytes + 4096);
}

TEST(FaultLog, WhatHappenedIsReadFromOutside)
{
    Folder folder;
    Box written(folder, 2);
    struct ng_box box = NG_BOX_NONE;
    struct ng_logged_fault fault, first = at(1, 10), second = at(1, 20);

    ng_fault_log_arm(&written.box, 0, "rank=1:stop");
    ng_fault_log_arm(&written.box, 1, HANG);
    ASSERT_EQ(ng_box_open(written.path.c_str(), &box), 0);
    EXPECT_EQ(box.fault_capacity, 2u);
    EXPECT_EQ(ng_box_read(&box, NG_BOX_REST), 0);
    EXPECT_FALSE(ng_fault_log_read(&box, 0, &fault));
    EXPECT_FALSE(ng_fault_log_read(&box, 1, &fault)) << "armed, but not happened";
    ng_fault_log_add(&written.box, 1, &first, 1000);
    ng_fault_log_add(&written.box, 1, &second, 2000);
    EXPECT_EQ(ng_box_read(&box, NG_BOX_REST), 0);
    ASSERT_TRUE(ng_fault_log_read(&box, 1, &fault));
    EXPECT_STREQ(fault.text, HANG);
    EXPECT_EQ(fault.times, 2u);
    EXPECT_EQ(fault.rank, 1);
    EXPECT_EQ(fault.op, NG_OP_AllReduce);
    EXPECT_EQ(fault.seq, 20u);
    EXPECT_EQ(fault.group_id, 0xaau);
    EXPECT_EQ(fault.first_mono_ns, 1000);
    EXPECT_EQ(fault.last_mono_ns, 2000);
    EXPECT_FALSE(ng_fault_log_read(&box, 2, &fault)) << "beyond its end";
    ng_box_close(&box, nullptr);
}

TEST(FaultLog, DamagedTablesAreDoneWithout)
{
    Folder folder;
    Box written(folder, 1);
    struct ng_logged_fault fault, now = at(1, 10);
    struct ng_box box = NG_BOX_NONE;

    ng_fault_log_arm(&written.box, 0, HANG);
    ng_fault_log_add(&written.box, 0, &now, 1000);
    written.box.faults[0].op = 5000;
    EXPECT_FALSE(ng_fault_log_read(&written.box, 0, &fault));
    written.box.faults[0].op = NG_OP_AllReduce;
    memset(written.box.faults[0].text, 'x', sizeof(written.box.faults[0].text));
    written.box.faults[0].text[3] = '\n';
    ASSERT_TRUE(ng_fault_log_read(&written.box, 0, &fault));
    EXPECT_EQ(fault.text[3], '?');
    EXPECT_EQ(strlen(fault.text), sizeof(fault.text) - 1);
    written.box.header->faults_offset = written.box.header->total_bytes - 8;
    ASSERT_EQ(ng_box_open(written.path.c_str(), &box), 0);
    EXPECT_EQ(box.fault_capacity, 0u);
    ng_box_close(&box, nullptr);
    written.box.header->fault_bytes = 64; /* of a version that is not ours */
    ASSERT_EQ(ng_box_open(written.path.c_str(), &box), 0);
    EXPECT_EQ(box.fault_capacity, 0u);
    ng_box_close(&box, nullptr);
}

/* A job in which rank 1 never came, and whose box says why. */
struct FaultLogInAVerdict : testing::Test {
    FaultLogInAVerdict()
    {
        Job job(3, 0xaa, "world");
        job.at(0xaa, 0).did(9).waits();
        job.at(0xaa, 1).did(9);
        job.at(0xaa, 2).did(9).waits();
        ng_view_init(&view_);
        job.fill(&view_);
    }
    ~FaultLogInAVerdict() override
    {
        ng_view_fini(&view_);
    }
    void add(uint32_t process, const char *text, uint64_t times, uint64_t seq)
    {
        struct ng_logged_fault fault = at((int)process, seq);
        snprintf(fault.text, sizeof(fault.text), "%s", text);
        fault.times = times;
        struct ng_view_fault *added = ng_view_add_fault(&view_, process, &fault);
        ASSERT_NE(added, nullptr);
        added->first_age_ns = 40 * NG_S;
        added->last_age_ns = 30 * NG_S;
    }
    /* Line, text and JSON. */
    std::string line, text;
    json_t *judge()
    {
        struct ng_verdict_query query = {STALLED, false};
        struct ng_verdict verdict;
        EXPECT_EQ(ng_verdict_reach(&view_, &query, &verdict), 0);
        char buffer[NG_REPORT_LINE_BYTES];
        ng_report_line(&verdict, buffer, sizeof(buffer));
        line = buffer;
        text = text_from([&](int fd) { ng_report_write_text(&verdict, nullptr, fd); });
        std::string json = text_from([&](int fd) { ng_report_write_json(&verdict, fd); });
        kind = verdict.kind;
        ng_verdict_fini(&verdict);
        return json_loads(json.c_str(), 0, nullptr);
    }
    enum ng_verdict_kind kind = NG_KIND_HEALTHY;
    struct ng_view view_;
};

TEST_F(FaultLogInAVerdict, AVerdictWithoutFaultsDoesNotSpeakOfThem)
{
    json_t *json = judge();

    EXPECT_EQ(json_object_get(json, "rehearsal"), nullptr);
    EXPECT_EQ(line.find("rehearsal"), std::string::npos);
    EXPECT_EQ(text.find("rehearsal"), std::string::npos);
    json_decref(json);
}

TEST_F(FaultLogInAVerdict, AVerdictSaysWhatWasInjected)
{
    add(1, HANG, 1, 10);
    json_t *json = judge(), *list = json_object_get(json, "rehearsal");
    const json_t *first = json_array_get(list, 0);

    EXPECT_EQ(kind, NG_KIND_MISSING_RANK);
    ASSERT_EQ(json_array_size(list), 1u);
    EXPECT_EQ(json_integer_value(json_object_get(first, "rank")), 1);
    EXPECT_STREQ(json_string_value(json_object_get(first, "fault")), HANG);
    EXPECT_EQ(json_integer_value(json_object_get(first, "times")), 1);
    EXPECT_STREQ(json_string_value(json_object_get(first, "op")), "AllReduce");
    EXPECT_STREQ(json_string_value(json_object_get(first, "group")), "00000000000000aa");
    EXPECT_EQ(json_integer_value(json_object_get(first, "seq")), 10);
    EXPECT_EQ(json_integer_value(json_object_get(first, "age_ms")), 30000);
    EXPECT_NE(line.find("; certain; rehearsal: hang of rank 1 injected by NCCLGUARD_FAULT"),
              std::string::npos)
        << line;
    EXPECT_NE(text.find("  rehearsal   rank 1: " + std::string(HANG) +
                        ", injected by NCCLGUARD_FAULT at AllReduce #10, 30.0 s ago\n"),
              std::string::npos)
        << text;
    json_decref(json);
}

TEST_F(FaultLogInAVerdict, SeveralStandInOrderOfTheirRanks)
{
    add(2, "rank=2:delay=1s", 7, 3);
    add(0, "rank=0:stop", 1, 4);
    json_t *json = judge(), *list = json_object_get(json, "rehearsal");

    ASSERT_EQ(json_array_size(list), 2u);
    EXPECT_EQ(json_integer_value(json_object_get(json_array_get(list, 0), "rank")), 0);
    EXPECT_NE(line.find("rehearsal: stop of rank 0 and 1 more injected"), std::string::npos)
        << line;
    EXPECT_NE(text.find("(7 times so far)"), std::string::npos) << text;
    json_decref(json);
}

TEST_F(FaultLogInAVerdict, ALineIsBoundedWhateverAFaultIsCalled)
{
    add(1, std::string(126, ':').c_str(), 1, 10);
    add(1, (std::string("x:") + std::string(120, 'y')).c_str(), 1, 10);
    json_decref(judge());
    EXPECT_LT(line.size(), (size_t)NG_REPORT_LINE_BYTES);
    EXPECT_NE(line.find("injected by NCCLGUARD_FAULT"), std::string::npos) << line;
}

#ifdef NG_TEST_HAS_READER
TEST_F(FaultLogInAVerdict, ADumpKeepsThem)
{
    Folder folder;
    char why[256];
    OwnView read;

    add(1, HANG, 3, 10);
    for (uint32_t process = 0; process < 3; process++)
        ASSERT_EQ(ng_dump_save_process(&view_, process, folder.path().c_str()), 0);
    EXPECT_EQ(read_whole_file(folder / "rank_0.json").find("\"faults\""), std::string::npos);
    for (int rank = 0; rank < 3; rank++) {
        std::string name = "rank_" + std::to_string(rank) + ".json";
        ASSERT_EQ(ng_read_dump(&read, (folder / name).c_str(), name.c_str(), why, sizeof(why)), 0)
            << why;
    }
    ASSERT_EQ(read.fault_count, 1u);
    EXPECT_EQ(read.faults[0].process, 1u);
    EXPECT_STREQ(read.faults[0].fault.text, HANG);
    EXPECT_EQ(read.faults[0].fault.times, 3u);
    EXPECT_EQ(read.faults[0].fault.seq, 10u);
    EXPECT_EQ(read.faults[0].fault.op, NG_OP_AllReduce);
    EXPECT_EQ(read.faults[0].last_age_ns, 30 * NG_S);
}
#endif

} // namespace
