/*
 * rank_<r>.json: against a golden file, and there and back through the reader.
 */
#include "tests/gtest/own_json.h"
#include "tests/unit/core/helpers/job.h"

#ifdef NG_TEST_HAS_READER
extern "C" {
#include "tools/ingest/read_dump.h"
}
#endif

namespace
{

struct View : JobView {
    explicit View(const Job &job) : JobView(job)
    {
        /* What no job made by hand tells. */
        for (uint32_t i = 0; i < process_count; i++) {
            processes[i].uid = 0xabcdef0123456789 + i;
            processes[i].local_rank = (int)i;
            snprintf(processes[i].program, sizeof(processes[i].program), "train \"x\"");
            if (i == 1)
                processes[i].settings = "NCCLGUARD_TIMEOUT\tenvironment\t30s\n"
                                        "NCCLGUARD_RANK\tlauncher\t1\n"
                                        "NCCL_NET\t\t\"x\"\n\t\t7\n";
            struct ng_view_thread *thread = ng_view_add_thread(this, i, 1002 + i);
            snprintf(thread->name, sizeof(thread->name), "pt_autograd_%u", i);
            struct ng_duration duration = {0xfedcba9876543210, NG_OP_AllReduce, 12,    3 + i,
                                           UINT64_MAX,         40000,           42000, {1, 2}};
            duration.histogram[NG_DURATION_BUCKETS - 1] = i;
            EXPECT_NE(ng_view_add_duration(this, i, &duration), nullptr);
        }
        for (uint32_t i = 0; i < member_count; i++) {
            struct ng_view_member *member = &members[i];
            member->color = (int)i - 1;
            member->created_by = i == 1 ? 95 : NG_OP_CommSplit;
            member->created_age_ns = 1000 + i;
            member->ended_age_ns = i;
            member->rolling_hash = 0xfeed000000000000 + i;
            member->joined_id = 0x1017ed + i;
            member->excluded = 0xe8c1 + i;
            snprintf(member->pci_id, sizeof(member->pci_id), "0000:%02x:00.0", 0x1b + i);
            member->timeout_ns = 600 * NG_S + i;
            member->error_age_ns = 3 * i;
            member->rests = i == 1;
            member->policy = (uint8_t)(i % 2 ? 0 : NG_ON_TIMEOUT_KILL + 1);
            member->coll_joined = 3 + i;
            member->p2p_joined = 5 + i;
            member->groups_closed = 2 + i;
            for (uint32_t k = 0; k < member->record_count; k++) {
                struct ng_view_record *record = &member->records[k];
                record->rolling_hash = UINT64_MAX - k;
                record->started_age_ns = k % 2 ? 77 + k : 0;
                record->completed_age_ns = k % 3 ? 7 + k : 0;
                record->stream = 0x7f0000000000 + k;
                record->work_previous = k % 2 ? record->id - 1 : 0;
                record->duration_ns = k == 1 ? 41000 : 0;
                if (k == 3) {
                    record->graph = 2;
                    record->replay = 57;
                    record->graph_position = 3;
                    record->graph_calls = 100;
                }
            }
            for (uint32_t k = 0; k < 2 - i % 2; k++) {
                struct ng_view_sample sample = {k + 2, 1 + k, 41000 + k};
                EXPECT_TRUE(ng_view_add_sample(this, member, &sample));
            }
        }
    }
};

/* Everything that a dump can hold, once. */
Job full_job()
{
    Job job(2);
    job.group(0xfedcba9876543210, "dp \"quoted\"");
    job.group(0x11, "", {1});
    Member &member = job.at(0xfedcba9876543210, 0);
    member.ordinal = 2;
    member.derived = 3;
    member.did(1).did(1, {NG_OP_Broadcast, 9, -1, 1, UINT64_MAX}).p2p(NG_OP_Send, 1, true).waits();
    member.records.back().caller = 0x7fffdeadbeef;
    member.records.back().flags = NG_RECORD_BLOCKED;
    member.records.back().result = 7;
    member.records.back().tid = 1002;
    member.cuda_error = 700;
    member.creator_tid = 1003;
    member.host_calls = {{1, 2, 3, 4, 5, 6}, NG_OP_CommSuspend, 1004, true};
    member.counted = true;
    member.counted_seq = 2;
    member.counted_left = 1;
    member.edges = {{1, NG_EDGE_SENDS | NG_EDGE_RING, 4, 3, 2, 1, 5, 6, 4000000000, 7, 8}};
    member.edges_age_ns = 16;
    member.queued({95, 99, 1000, -7, 0}); /* of a version to come */
    job.at(0xfedcba9876543210, 1).did(2).state = NG_GROUP_FINALIZED;
    job.inside(0, NG_OP_GroupEnd);
    job.inside(1, NG_OP_CommDestroy, 0xfedcba9876543210, 0, 7);
    job.process(1).life = NG_LIFE_EXITED;
    job.process(1).exit_status = 3;
    job.process(1).life_age_ns = 12;
    job.process(1).alive_age_ns = 13;
    job.suspect_ns = 14;
    job.cold_suspect_ns = 15;
    job.process(1).error_text = "remote \"process\" exited";
    job.process(1).nan = {8, 0xfedcba9876543210, 7, NG_OP_AllReduce, 9, 1000, 2, 17, 0xff81, true};
    job.process(1).devices_age_ns = 17;
    job.process(1).device_error_count = 2;
    job.process(1).device_errors[0] = {NG_DEVICE_ERROR_XID, 79, 2, 18, "0000:1b:00.0"};
    job.process(1).device_errors[1] = {NG_DEVICE_ERROR_PROCESS, 4711, 1, 19, "0000:1b:00.0"};
    job.process(1).memory_kinds = 2;
    job.process(1).memory[0] = {3, 3 << 20};
    job.process(1).memory[1] = {1, UINT64_MAX};
    job.at(0xfedcba9876543210, 1).registration = {true, true, 2, 8192, 1000, 900, 5, 3, 1, 4, 77};
    job.notes = {"box-1000-1: about rank 0", "box-1001-1: about rank 1",
                 "box-77-1: not a black box"};
    return job;
}

/* The value of a key of the first lines, which differs from run to run, made always the same. */
void fix(std::string *text, const std::string &key, const std::string &value)
{
    size_t at = text->find("\"" + key + "\": ");
    ASSERT_NE(at, std::string::npos) << key;
    at += key.size() + 4;
    size_t end = text->find(",\n", at);
    ASSERT_GT(end, at) << key << " is empty";
    text->replace(at, end - at, value);
}

std::string dump_text(const struct ng_view *view, uint32_t process)
{
    std::string text =
        text_from([&](int fd) { EXPECT_EQ(ng_dump_write_process(view, process, fd), 0); });
    fix(&text, "written_unix_ns", "0");
    fix(&text, "guard_version", "\"x\"");
    return text;
}

} // namespace

TEST(Dump, IsTheDocumentedSchema)
{
    View view(full_job());
    expect_golden(dump_text(&view, 0), "rank_0.json");
    expect_golden(dump_text(&view, 1), "rank_1.json");
}

/* The view grew: list the new fields in dump_fields.h, document them in dump.h, then this number.
 * The run_word and the watched_age_ns of a process are of live jobs alone, its ring_first of its
 * black box, and its `set` is in its settings. */
TEST(Dump, KnowsEveryFieldOfTheView)
{
    EXPECT_EQ(sizeof(struct ng_view_process), 1592u);
    EXPECT_EQ(sizeof(struct ng_view_call), 56u);
    EXPECT_EQ(sizeof(struct ng_view_thread), 24u);
    EXPECT_EQ(sizeof(struct ng_view_record), 176u);
    EXPECT_EQ(sizeof(struct ng_view_member), 448u);
    EXPECT_EQ(sizeof(struct ng_view_sample), 24u);
    EXPECT_EQ(sizeof(struct ng_view_ras), 104u);
    EXPECT_EQ(sizeof(struct ng_view_duration), 280u);
    EXPECT_EQ(sizeof(struct ng_view_group), 96u);
    EXPECT_EQ(sizeof(struct ng_view_call_stack), 24u);
    EXPECT_EQ(sizeof(struct ng_view_frame),
              48u); /* `source` comes later, from debugging information */
    EXPECT_EQ(sizeof(struct ng_view_module), 16u);
}

TEST(Dump, ComposedCollectivesAreToldWithTheirParts)
{
    Job job(3, 0x11, "");
    for (int rank = 0; rank < 3; rank++) {
        Member &member = job.at(0x11, rank).did(1);
        for (int peer = 0; peer < 3; peer++)
            member.p2p(NG_OP_Send, peer, true).p2p(NG_OP_Recv, peer, true);
        member.grouped(6);
    }
    View view(job);
    /* The fields that no job tells have numbers of their own; links are needed here. */
    for (uint32_t i = 0; i < view.member_count; i++)
        for (uint32_t k = 0; k < 7; k++)
            view.members[i].records[k].work_previous = k > 1 ? k : 0;
    OwnJson dump(dump_text(&view, 1));
    json_t *members = json_object_get(dump, "members");
    json_t *pattern = json_object_get(json_array_get(members, 0), "composed");
    char *text = json_dumps(pattern, JSON_COMPACT);
    EXPECT_STREQ(text, "[{\"op\":\"AlltoAll\",\"op_number\":6,\"root\":-1,\"sent\":192,"
                       "\"received\":192,\"records\":[2,3,4,5,6,7]}]");
    free(text);
}

TEST(Dump, ParsesWhateverNumbersADamagedBoxHeld)
{
    View view(full_job());
    struct ng_view_member *member = &view.members[0];
    member->state = (enum ng_group_state)77;
    member->entered = member->completed = UINT64_MAX;
    member->records[0].state = (enum ng_record_state)200;
    member->records[0].id = member->records[0].coll_seq = UINT64_MAX;
    member->records[0].signature = {UINT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, UINT64_MAX};
    member->pending_age_ns = INT64_MIN;
    view.processes[0].life = (enum ng_life)99;
    snprintf(view.processes[0].host, sizeof(view.processes[0].host), "\xff\"\\\n");
    for (uint32_t process = 0; process < 2; process++) {
        OwnJson parsed(dump_text(&view, process));
    }
}

TEST(Dump, IsNamedByTheLowestRankOfTheProcess)
{
    char name[64];
    View told(full_job());
    ng_dump_name(&told, 1, name, sizeof(name));
    EXPECT_STREQ(name, "rank_1.json");

    /* One process drives four devices. */
    Job several(1, false);
    several.group(5, "", {0, 0, 0, 0});
    for (int rank = 0; rank < 4; rank++)
        several.at(5, rank).device = 3 - rank;
    View devices(several);
    EXPECT_EQ(ng_dump_rank(&devices, 0), 0);

    Job unknown(1, false);
    View nobody(unknown);
    EXPECT_EQ(ng_dump_rank(&nobody, 0), -1);
    ng_dump_name(&nobody, 0, name, sizeof(name));
    EXPECT_STREQ(name, "rank_unknown_1000.json");
}

TEST(Dump, SavesOneFilePerProcess)
{
    Folder folder;
    View view(full_job());
    EXPECT_EQ(ng_dump_save_process(&view, 0, folder.path().c_str()), 0);
    EXPECT_EQ(ng_dump_save_process(&view, 1, folder.path().c_str()), 0);
    EXPECT_EQ(ng_dump_save_process(&view, 2, folder.path().c_str()), -EINVAL);
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"rank_0.json", "rank_1.json"}));
}

TEST(Dump, AFullDiskLeavesNothingPartial)
{
    Folder folder;
    View view(full_job());
    for (rlim_t room : {0, 1, 1000, 2000}) {
        EXPECT_EQ(in_child([&] {
                      struct rlimit limit = {room, room};
                      signal(SIGXFSZ, SIG_IGN);
                      setrlimit(RLIMIT_FSIZE, &limit);
                      return ng_dump_save_process(&view, 0, folder.path().c_str()) == -EFBIG ? 0
                                                                                             : 2;
                  }),
                  0);
        EXPECT_TRUE(folder.names().empty()) << room;
    }
    EXPECT_EQ(in_child([&] {
                  int full = open("/dev/full", O_WRONLY);
                  return ng_dump_write_process(&view, 0, full) == -ENOSPC ? 0 : 2;
              }),
              0);
}

/* In a process whose malloc is locked for ever: nothing on the way to the file may allocate. */
TEST(Dump, WritesAllEvidenceWithoutMalloc)
{
    Folder folder;
    View view(full_job());
    struct ng_verdict_query query = {.stalled_ns = STALLED};
    EXPECT_EQ(in_child([&] {
                  struct ng_verdict verdict;
                  forbid_malloc(true);
                  if (ng_verdict_reach(&view, &query, &verdict) != 0)
                      return 1;
                  if (ng_report_save(&verdict, folder.path().c_str()) != 0)
                      return 2;
                  for (uint32_t process = 0; process < 2; process++)
                      if (ng_dump_save_process(&view, process, folder.path().c_str()) != 0)
                          return 3;
                  ng_log(NG_LOG_ERROR, "%s", verdict.job);
                  ng_verdict_fini(&verdict);
                  forbid_malloc(false);
                  return 0;
              }),
              0);
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"rank_0.json", "rank_1.json",
                                                        "verdict.json", "verdict.txt"}));
}

#ifdef NG_TEST_HAS_READER
/* The view that is read from dumps gives the same dumps again. */
TEST(Dump, TheReaderRebuildsTheSameView)
{
    Folder folder;
    Job job = full_job();
    char why[256] = "";
    job.at(0xfedcba9876543210, 0)
        .records.pop_back(); /* an operation that this version does not know is left out */
    job.at(0xfedcba9876543210, 0).entered--;
    job.notes.clear(); /* the reader puts the file's name in front of them */
    View view(job);
    OwnView again;

    for (uint32_t process = 0; process < 2; process++) {
        char name[64];
        ng_dump_name(&view, process, name, sizeof(name));
        ASSERT_EQ(ng_dump_save_process(&view, process, folder.path().c_str()), 0);
        ASSERT_EQ(ng_read_dump(&again, (folder / name).c_str(), name, why, sizeof(why)), 0) << why;
    }
    ng_view_seal(&again);
    ASSERT_EQ(again.process_count, 2u);
    ASSERT_EQ(again.member_count, view.member_count);
    /* The source is the file that was read: it differs by nature. */
    for (uint32_t process = 0; process < 2; process++)
        memcpy(again.processes[process].source, view.processes[process].source,
               sizeof(again.processes[process].source));
    for (uint32_t process = 0; process < 2; process++)
        EXPECT_EQ(dump_text(&again, process), dump_text(&view, process));
}

/* One rank invited, the other joined by a unique id and ended before it learned better. */
TEST(Dump, TheReaderUnitesAGrownGroupAsBlackBoxesDo)
{
    Folder folder;
    struct ng_view grown, again;
    char why[256] = "", name[64];
    constexpr uint64_t ID = 0x11, JOINED = 0x22;
    ng_view_init(&again);
    for (int rank = 0; rank < 2; rank++) {
        ng_view_init(&grown);
        ng_view_add_process(&grown)->rank = rank;
        struct ng_view_group told = {.id = rank ? JOINED : ID, .nranks = 2};
        struct ng_view_member *member =
            ng_view_add_member(&grown, 0, ng_view_tell_group(&grown, &told), rank);
        member->state = NG_GROUP_READY;
        member->joined_id = JOINED;
        ng_view_seal(&grown);
        ng_dump_name(&grown, 0, name, sizeof(name));
        ASSERT_EQ(ng_dump_save_process(&grown, 0, folder.path().c_str()), 0);
        ASSERT_EQ(ng_read_dump(&again, (folder / name).c_str(), name, why, sizeof(why)), 0) << why;
        ng_view_fini(&grown);
    }
    ng_view_seal(&again);
    ASSERT_EQ(again.group_count, 1u);
    EXPECT_EQ(again.groups[0].id, ID);
    EXPECT_EQ(again.groups[0].member_count, 2u);
    ng_view_fini(&again);
}

/* Everything without these keys, as the first version wrote it. */
void remove_keys(json_t *value, const std::set<std::string> &keys)
{
    size_t index;
    json_t *element;
    const char *key;
    void *next;

    json_array_foreach(value, index, element) remove_keys(element, keys);
    json_object_foreach_safe(value, next, key, element)
    {
        if (keys.count(key))
            json_object_del(value, key);
        else
            remove_keys(element, keys);
    }
}

TEST(Dump, TheReaderTakesThoseOfTheFirstVersion)
{
    Folder folder;
    Job job = full_job();
    char why[256] = "";
    View view(job);
    OwnView again;
    OwnJson dump(dump_text(&view, 0));
    remove_keys(dump, {"uid", "local_rank", "program", "pci_id", "created_by", "created_by_number",
                       "created_age_ns", "ended_age_ns", "color", "rolling_hash", "joined_id",
                       "excluded"});
    ASSERT_EQ(json_dump_file(dump, (folder / "rank_0.json").c_str(), 0), 0);
    ASSERT_EQ(ng_read_dump(&again, (folder / "rank_0.json").c_str(), "x", why, sizeof(why)), 0)
        << why;
    ng_view_seal(&again);
    EXPECT_EQ(again.processes[0].uid, 0u);
    EXPECT_EQ(again.processes[0].local_rank, -1);
    EXPECT_STREQ(again.processes[0].program, "");
    ASSERT_EQ(again.member_count, 1u);
    EXPECT_EQ(again.members[0].color, -1);
    EXPECT_EQ(again.members[0].created_by, 0u);
    EXPECT_EQ(again.members[0].rolling_hash, 0u);
    EXPECT_EQ(again.members[0].joined_id, 0u);
    EXPECT_STREQ(again.members[0].pci_id, "");
    ASSERT_GT(again.members[0].record_count, 0u);
    EXPECT_EQ(again.members[0].records[0].rolling_hash, 0u);
    EXPECT_EQ(again.members[0].entered, view.members[0].entered);
}

TEST(Dump, TheReaderKnowsALostProcess)
{
    Folder folder;
    Job job = full_job();
    job.process(0).life = NG_LIFE_LOST;
    char why[256] = "";
    View view(job);
    OwnView again;
    EXPECT_STREQ(ng_dump_life_name(NG_LIFE_LOST), "lost");
    ASSERT_EQ(ng_dump_save_process(&view, 0, folder.path().c_str()), 0);
    ASSERT_EQ(ng_read_dump(&again, (folder / "rank_0.json").c_str(), "x", why, sizeof(why)), 0)
        << why;
    EXPECT_EQ(again.processes[0].life, NG_LIFE_LOST);
}

/* In the dump of the process that asked, and of no other. */
TEST(Dump, TheReaderKnowsWhatRasSaid)
{
    Folder folder;
    Job job = full_job();
    job.process(0).self = true;
    char why[256] = "";
    View view(job);
    const struct ng_view_ras words[] = {
        {7, NG_S, {3, 4711, "10.0.0.1", NG_RAS_MEMBER, true, UINT64_MAX}, 20, true, true},
        {7, NG_S, {5, 0, "", NG_RAS_DEAD, false, 0}, 0, false, false},
        {9, 2 * NG_S, {0, 1, "::1", NG_RAS_NO_MEMBER, false, 0}, 0, false, false},
    };
    for (int i : {2, 0, 1}) /* kept in order, whatever came first */
        ASSERT_TRUE(ng_view_add_ras(&view, &words[i]));
    EXPECT_EQ(dump_text(&view, 1).find("\"ras\""), std::string::npos);
    OwnView again;
    ASSERT_EQ(ng_dump_save_process(&view, 0, folder.path().c_str()), 0);
    ASSERT_EQ(ng_read_dump(&again, (folder / "rank_0.json").c_str(), "x", why, sizeof(why)), 0)
        << why;
    ASSERT_EQ(again.ras_count, 3u);
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT_EQ(again.ras[i].group_id, words[i].group_id);
        EXPECT_EQ(again.ras[i].age_ns, words[i].age_ns);
        EXPECT_EQ(again.ras[i].rank.rank, words[i].rank.rank);
        EXPECT_EQ(again.ras[i].rank.pid, words[i].rank.pid);
        EXPECT_STREQ(again.ras[i].rank.host, words[i].rank.host);
        EXPECT_EQ(again.ras[i].rank.state, words[i].rank.state);
        EXPECT_EQ(again.ras[i].rank.counts, words[i].rank.counts);
        EXPECT_EQ(again.ras[i].rank.launched, words[i].rank.launched);
        EXPECT_EQ(again.ras[i].others, words[i].others);
        EXPECT_EQ(again.ras[i].behind, words[i].behind);
        EXPECT_EQ(again.ras[i].waits, words[i].waits);
    }
}
#endif
