/*
 * fr/rank_<r>, as Python reads it: against a golden file, and rule by rule of core/report/flight.h.
 */
#include "tests/unit/core/helpers/job.h"
#include "tests/unit/core/helpers/python.h"

extern "C" {
#include "core/report/flight.h"
}

namespace
{

constexpr uint64_t WORLD = 0xfedcba9876543210;
const std::string ID = "fedcba9876543210";
constexpr int64_t MOMENT = 1795000000 * NG_S;

struct View : JobView {
    explicit View(const Job &job) : JobView(job)
    {
        for (uint32_t i = 0; i < process_count; i++)
            processes[i].moment_unix_ns = MOMENT;
        for (uint32_t i = 0; i < member_count; i++)
            members[i].timeout_ns = 600 * NG_S;
    }
};

/* What `expression` is of the dictionary `d` that a rank's file holds; `e` are its entries. */
std::string ask(const struct ng_view *view, uint32_t process, int rank,
                const std::string &expression)
{
    Folder folder;
    std::string path = folder / "rank";
    int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    EXPECT_EQ(ng_flight_write(view, process, rank, fd), 0);
    close(fd);
    return python("import pickle, pprint, sys\n"
                  "d = pickle.load(open(sys.argv[1], 'rb'))\n"
                  "e = d['entries']\n"
                  "def column(key): return [x[key] for x in e]\n"
                  "print(" +
                      expression + ", end='')\n",
                  {path});
}

std::string ask(const Job &job, int rank, const std::string &expression)
{
    View view(job);
    return ask(&view, (uint32_t)rank, rank, expression);
}

/* Everything that a file can hold, once. */
Job full_job()
{
    Job job(2);
    job.group(WORLD, "dp \"quoted\"");
    job.group(0x11, "", {1});
    Member &member = job.at(WORLD, 0);
    member.tid = 1002;
    member.did(1).did(1, {NG_OP_Broadcast, 9, -1, 1, 5});
    member.p2p(NG_OP_Send, 1, true).p2p(NG_OP_Recv, 1, true).grouped(2);
    member.did(3).grouped(3).waits();
    member.records[0].completed_age_ns = 3 * NG_S;
    member.records[0].started_age_ns = 4 * NG_S;
    job.at(WORLD, 1).did(2).state = NG_GROUP_FINALIZED;
    return job;
}

} // namespace

TEST(Flight, IsTheDocumentedFormat)
{
    View view(full_job());
    struct ng_view_thread *thread = ng_view_add_thread(&view, 0, 1002);
    snprintf(thread->name, sizeof(thread->name), "pt_main_thread");
    expect_golden(ask(&view, 0, 0, "pprint.pformat(d, width=110, sort_dicts=False) + '\\n'"),
                  "flight_rank_0.txt");
}

TEST(Flight, EveryCollectiveAndMessageHasANameThatTheAnalyzerKnows)
{
    const std::set<std::string> known = {
        "nccl:broadcast", "nccl:reduce",  "nccl:all_gather", "nccl:all_reduce",
        "nccl:gather",    "nccl:scatter", "nccl:all_to_all", "nccl:reduce_scatter",
        "nccl:send",      "nccl:recv",
    };
    for (unsigned op = 0; op < NG_OP_LIMIT; op++) {
        enum ng_op_class op_class = ng_op_table[op].op_class;
        bool recorded = op_class == NG_CLASS_COLLECTIVE || op_class == NG_CLASS_P2P;
        ASSERT_EQ(ng_flight_ops[op].name != nullptr, recorded) << ng_op_name(op);
        if (recorded) {
            EXPECT_TRUE(known.count(ng_flight_ops[op].name)) << ng_op_name(op);
        }
    }
}

TEST(Flight, SizesAreThoseOfTheBuffersOfThisRank)
{
    const struct {
        enum ng_op op;
        int root;
        const char *at_root, *elsewhere;
    } rows[] = {
        {NG_OP_AllReduce, -1, "[[10]] [[10]]", "[[10]] [[10]]"},
        {NG_OP_Broadcast, 0, "[[10]] [[10]]", "[[10]] [[10]]"},
        {NG_OP_Reduce, 0, "[[10]] [[10]]", "[[10]] [[10]]"},
        {NG_OP_AllGather, -1, "[[10]] [[40]]", "[[10]] [[40]]"},
        {NG_OP_ReduceScatter, -1, "[[40]] [[10]]", "[[40]] [[10]]"},
        {NG_OP_AlltoAll, -1, "[[40]] [[40]]", "[[40]] [[40]]"},
        {NG_OP_Gather, 0, "[[10]] [[40]]", "[[10]] [[]]"},
        {NG_OP_Scatter, 0, "[[40]] [[10]]", "[[]] [[10]]"},
    };
    Job job(4, WORLD, "");
    for (const auto &row : rows)
        for (int rank : {0, 1})
            job.at(WORLD, rank).did(1, {(uint32_t)row.op, 7, -1, row.root, 10});
    std::string expected[2];
    for (const auto &row : rows) {
        expected[0] += std::string(row.at_root) + "\n";
        expected[1] += std::string(row.elsewhere) + "\n";
    }
    for (int rank : {0, 1})
        EXPECT_EQ(
            ask(job, rank, "''.join(f\"{x['input_sizes']} {x['output_sizes']}\\n\" for x in e)"),
            expected[rank]);
    EXPECT_EQ(ask(job, 1, "e[-1]['input_dtypes'], e[-1]['output_dtypes']"), "[] ['Float']");
}

TEST(Flight, DataTypesHavePyTorchsNames)
{
    Job job(2, WORLD, "");
    for (int dtype = -1; dtype < 13; dtype++)
        job.at(WORLD, 0).did(1, {NG_OP_Broadcast, dtype, -1, 0, 10});
    EXPECT_EQ(ask(job, 0, "*[x['input_dtypes'][0] for x in e]"),
              "Undefined Char Byte Int UInt32 Long UInt64 Half Float Double BFloat16 "
              "Float8_e4m3fn Float8_e5m2 Undefined");
}

TEST(Flight, StatesAreThoseThatPyTorchHas)
{
    Job job(2, WORLD, "");
    Member &member = job.at(WORLD, 0);
    member.did(1).waits().queued().opened();
    /* Not observed, but what came after it was. */
    member.records[0].state = NG_RECORD_UNWATCHED;
    EXPECT_EQ(ask(job, 0, "*column('state')"), "completed started scheduled scheduled");
    EXPECT_EQ(ask(job, 0, "*column('retired')"), "True False False False");
    EXPECT_EQ(ask(job, 0, "d['pg_status']"),
              "{'0': {'last_enqueued_collective': 4, 'last_started_collective': 2, "
              "'last_completed_collective': 1}}");
    EXPECT_EQ(ask(job, 1, "d['pg_status']"),
              "{'0': {'last_enqueued_collective': -1, 'last_started_collective': -1, "
              "'last_completed_collective': -1}}");
}

/* A process that was killed did not see its last calls finish; the others did. */
TEST(Flight, WhatAllOthersFinishedADeadRankFinishedToo)
{
    Job job(3, WORLD, "");
    job.at(WORLD, 0).did(3).waits();
    job.at(WORLD, 1).did(2).waits();
    job.at(WORLD, 2).did(1).waits().queued();
    job.process(2).life = NG_LIFE_DEAD;
    EXPECT_EQ(ask(job, 2, "*column('state')"), "completed completed scheduled");
    job.process(2).life = NG_LIFE_RUNNING;
    EXPECT_EQ(ask(job, 2, "*column('state')"), "completed started scheduled");
}

TEST(Flight, CallsOfOneNcclGroupShareTheirNumberAndAreClosed)
{
    Job job(2, WORLD, "");
    job.at(WORLD, 0).did(1).did(3).grouped(3).did(1).grouped(1).did(2).grouped(2);
    EXPECT_EQ(ask(job, 0, "*column('collective_seq_id')"), "1 2 2 2 2 3 4 4 4");
    EXPECT_EQ(ask(job, 0, "*column('op_id')"), "1 2 3 4 4 5 6 7 7");
    EXPECT_EQ(ask(job, 0, "*column('record_id')"), "0 1 2 3 4 5 6 7 8");
    EXPECT_EQ(
        ask(job, 0, "[i for i, x in enumerate(e) if x['profiling_name'] == 'nccl:coalesced']"),
        "[4, 8]");
    /* Each where the analyzer pairs it by its number. */
    EXPECT_EQ(ask(job, 0, "*[x['process_group'][0][16:] or '-' for x in e]"),
              "- - /2 /3 /end - - /2 /end");
    EXPECT_EQ(ask(job, 0, "{k[16:]: v['ranks'] for k, v in d['pg_config'].items()}"),
              "{'': '[0, 1]', '/2': '[0, 1]', '/3': '[0, 1]', '/end': '[0]'}");
}

TEST(Flight, WhatWasMeasuredHasItsDurationAndNothingElseHas)
{
    Job job(2, WORLD, "");
    Member &member = job.at(WORLD, 0);
    member.did(2).did(3).grouped(3);
    member.p2p(NG_OP_Send, 1, true).p2p(NG_OP_Recv, 1, true).p2p(NG_OP_Send, 0, true);
    member.p2p(NG_OP_Recv, 0, true).grouped(4); /* an all-to-all */
    member.records[1].duration_ns = 41500;
    member.records[4].duration_ns = 2 * NG_MS;
    member.records[8].duration_ns = 3 * NG_MS;
    EXPECT_EQ(ask(job, 0, "*[(x['profiling_name'][5:], x.get('duration_ms')) for x in e]"),
              "('all_reduce', None) ('all_reduce', 0.0415) ('all_reduce', None) "
              "('all_reduce', None) ('all_reduce', None) ('coalesced', 2.0) ('all_to_all', 3.0)");
}

TEST(Flight, AnOpenNcclGroupHasNoEnd)
{
    Job job(2, WORLD, "");
    job.at(WORLD, 0).did(1).opened().opened();
    job.at(WORLD, 0).records[2].work_previous = job.at(WORLD, 0).records[1].id;
    EXPECT_EQ(ask(job, 0, "*column('collective_seq_id')"), "1 2 2");
    EXPECT_EQ(ask(job, 0, "*column('profiling_name')"),
              "nccl:all_reduce nccl:all_reduce nccl:all_reduce");
}

TEST(Flight, MessagesStandInAGroupOfTheirTwoRanks)
{
    Job job(3, WORLD, "pp");
    Member &member = job.at(WORLD, 1);
    member.did(1);
    member.p2p(NG_OP_Send, 2, true).p2p(NG_OP_Recv, 0, true).p2p(NG_OP_Send, 2, true).grouped(3);
    member.p2p(NG_OP_Send, 0, true).p2p(NG_OP_Send, 1, true).p2p(NG_OP_Recv, 1, true).grouped(2);
    member.did(1);
    EXPECT_EQ(ask(job, 1, "*[x['profiling_name'][5:] for x in e], sep='|'"),
              "all_reduce|send 0->1|recv 1<-0|send 0->1|coalesced|send 1->0|send 0->0|recv "
              "0<-0|coalesced|all_reduce");
    EXPECT_EQ(ask(job, 1, "*[x['process_group'][0][16:] or '-' for x in e]"),
              "- /1>2 /0>1 /1>2/2 /end /1>0 /1>1 /1<1 /end -");
    EXPECT_EQ(ask(job, 1, "*column('p2p_seq_id')"), "0 1 1 1 1 2 3 3 3 3");
    EXPECT_EQ(ask(job, 1, "*column('collective_seq_id')"), "1 0 0 0 0 0 0 0 0 2");
    EXPECT_EQ(ask(job, 1, "*map(int, column('is_p2p'))"), "0 1 1 1 1 1 1 1 1 0");
    EXPECT_EQ(ask(job, 1,
                  "e[1]['input_sizes'], e[1]['output_sizes'], e[2]['input_sizes'], "
                  "e[2]['output_sizes']"),
              "[[64]] [[]] [[]] [[64]]");
    EXPECT_EQ(ask(job, 1, "{k[16:]: v['ranks'] for k, v in d['pg_config'].items()}"),
              "{'': '[0, 1, 2]', '/1>0': '[0, 1]', '/0>1': '[0, 1]', '/1>1': '[1]', "
              "'/1<1': '[1]', '/1>2': '[1, 2]', '/1>2/2': '[1, 2]', '/end': '[1]'}");
}

/* Whatever their order in the communicator: the analyzer sorts them. */
TEST(Flight, RanksOfAPairAreCountedInTheOrderOfTheJob)
{
    Job job(2);
    job.group(WORLD, "", {1, 0});
    job.at(WORLD, 0).p2p(NG_OP_Send, 1, true);
    EXPECT_EQ(ask(job, 1,
                  "e[0]['profiling_name'], d['pg_config'][e[0]['process_group'][0]]"
                  "['ranks'], d['pg_config']['" +
                      ID + "']['ranks']"),
              "nccl:send 1->0 [0, 1] [1, 0]");
}

TEST(Flight, ComposedCollectivesAreOneEntry)
{
    Job job(3, WORLD, "");
    for (int rank = 0; rank < 3; rank++) {
        Member &member = job.at(WORLD, rank);
        for (int round = 0; round < 2; round++) {
            for (int peer = 0; peer < 3; peer++)
                member.p2p(NG_OP_Send, peer, true).p2p(NG_OP_Recv, peer, true);
            member.grouped(6);
        }
        if (rank != 1)
            member.p2p(NG_OP_Send, 1, true).did(1);
        else
            member.p2p(NG_OP_Recv, 0, true).p2p(NG_OP_Recv, 2, true).grouped(2).did(1);
    }
    for (int rank = 0; rank < 3; rank++) {
        EXPECT_EQ(ask(job, rank, "*[x['profiling_name'][5:] for x in e]"),
                  "all_to_all all_to_all gather all_reduce");
        EXPECT_EQ(ask(job, rank, "*column('collective_seq_id')"), "1 2 3 1");
        EXPECT_EQ(ask(job, rank,
                      "e[0]['input_sizes'], e[0]['output_sizes'], e[0]['is_p2p'], "
                      "e[0]['process_group'][0][16:]"),
                  "[[192]] [[192]] False /p2p");
        EXPECT_EQ(ask(job, rank, "e[2]['input_sizes'], e[2]['output_sizes']"),
                  rank == 1 ? "[[64]] [[192]]" : "[[64]] [[]]");
    }
}

/* Where a ring begins differs from rank to rank; the same call has the same numbers everywhere. */
TEST(Flight, NumbersGoOnFromWhatTheRingHasForgotten)
{
    Job whole(2, WORLD, "");
    whole.group(0x11, "", {0});
    Member &member = whole.at(WORLD, 0);
    Member &other = whole.at(0x11, 0);
    other.did(2).did(4).grouped(4);
    for (int round = 0; round < 4; round++) {
        member.did(1).did(3).grouped(3);
        member.p2p(NG_OP_Send, 1, true).p2p(NG_OP_Recv, 1, true).grouped(2);
        member.p2p(NG_OP_Send, 1, true);
    }
    member.waits();
    /* Ids count over all communicators of a process. */
    for (struct ng_view_record &record : member.records) {
        record.id += 100;
        record.work_previous += record.work_previous ? 100 : 0;
    }
    Folder folder;
    std::vector<std::string> paths;
    for (int gone = 0; gone < 20; gone++) {
        Job cut(whole);
        cut.at(0x11, 0).keeps(gone < 5 ? 5 - gone : 0);
        cut.at(WORLD, 0).overwritten(gone);
        View view(cut);
        paths.push_back(folder / std::to_string(gone));
        int fd = open(paths.back().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        EXPECT_EQ(ng_flight_write(&view, 0, 0, fd), 0);
        close(fd);
    }
    EXPECT_EQ(python("import pickle, sys\n"
                     "def newest(path):\n"
                     "    entries = pickle.load(open(path, 'rb'))['entries'][-9:]\n"
                     "    return [(x['record_id'], x['collective_seq_id'], x['p2p_seq_id'],\n"
                     "             x['op_id'], x['profiling_name']) for x in entries]\n"
                     "whole = newest(sys.argv[1])\n"
                     "for path in sys.argv[2:]:\n"
                     "    if newest(path) != whole: print(path, newest(path), whole)\n"
                     "print(whole[0][0], whole[-1][0])",
                     paths),
              "35 43\n");
}

TEST(Flight, ThereIsOneFileForEachRankAndNothingElse)
{
    Folder folder;
    Job job(1, false);
    job.group(WORLD, "", {0, 0, 0});
    for (int rank = 0; rank < 3; rank++)
        job.at(WORLD, rank).device = 2 - rank;
    for (int rank = 0; rank < 3; rank++)
        job.at(WORLD, rank).did(rank + 1);
    View view(job);
    ASSERT_EQ(ng_flight_save_process(&view, 0, folder.path().c_str()), 0);
    ASSERT_EQ(ng_flight_save_process(&view, 0, folder.path().c_str()), 0) << "again";
    EXPECT_EQ(folder.names(), std::vector<std::string>{"fr"});
    EXPECT_EQ(python("import os, pickle, sys\n"
                     "for name in sorted(os.listdir(sys.argv[1])):\n"
                     "    d = pickle.load(open(os.path.join(sys.argv[1], name), 'rb'))\n"
                     "    print(name, len(d['entries']), d['pg_config']['" +
                         ID + "']['ranks'], *[x['record_id'] for x in d['entries']])\n",
                     {folder / "fr"}),
              "rank_0 1 [0, 1, 2] 0\nrank_1 2 [0, 1, 2] 0 1\nrank_2 3 [0, 1, 2] 0 1 2\n");
}

TEST(Flight, ARankWithoutCommunicatorHasAnEmptyFile)
{
    Folder folder;
    Job job(2);
    View view(job);
    ASSERT_EQ(ng_flight_save_process(&view, 1, folder.path().c_str()), 0);
    EXPECT_EQ(python("import pickle, sys\nprint(pickle.load(open(sys.argv[1], 'rb')), end='')\n",
                     {folder / "fr/rank_1"}),
              "{'version': '2.10', 'comm_lib_version': '', 'time_dumped_ns': 1795000000000000000, "
              "'pg_config': {}, "
              "'entries': [], 'pg_status': {}, 'nccl_comm_state': {}}");
    EXPECT_EQ(ng_flight_save_process(&view, 2, folder.path().c_str()), -EINVAL);
    Job unknown(1, false);
    View nobody(unknown);
    Folder empty;
    ASSERT_EQ(ng_flight_save_process(&nobody, 0, empty.path().c_str()), 0);
    EXPECT_EQ(python("import os, sys\nprint(os.listdir(sys.argv[1]), end='')\n", {empty / "fr"}),
              "[]");
}

/* Members on hosts that nobody here can see. */
TEST(Flight, RanksOfOtherHostsAreToldWhereTheyAreSure)
{
    Job job(4, WORLD, "");
    job.group(0x11, "tp", {1, 3});
    job.at(WORLD, 1).did(1, {NG_OP_AllGather, 7, -1, -1, 10});
    job.at(0x11, 0).did(1, {NG_OP_AllGather, 7, -1, -1, 10}).p2p(NG_OP_Send, 1, true);
    job.forget(WORLD, 2);
    job.forget(WORLD, 3);
    job.forget(0x11, 1);
    EXPECT_EQ(ask(job, 1, "*[v['ranks'] for v in d['pg_config'].values()]"), "[0, 1, 2, 3] [1]");
    /* The analyzer holds sizes against the ranks that it sees. */
    EXPECT_EQ(ask(job, 1, "*[x['output_sizes'] for x in e]"), "[[40]] [[10]]");
}

TEST(Flight, TimesAreOfTheClockOfTheHost)
{
    Job job(1, WORLD, "");
    job.at(WORLD, 0).did(1).waits();
    job.at(WORLD, 0).records[0].started_age_ns = 20 * NG_S;
    job.at(WORLD, 0).records[0].completed_age_ns = 10 * NG_S;
    EXPECT_EQ(ask(job, 0,
                  "*[f\"{x['time_created_ns']} {x['time_discovered_started_ns']} "
                  "{x['time_discovered_completed_ns']}\" for x in e]"),
              "1794999970000000000 1794999980000000000 1794999990000000000 "
              "1794999970000000000 None None");
}

TEST(Flight, ParsesWhateverNumbersADamagedBoxHeld)
{
    std::mt19937_64 random(7);
    std::vector<std::string> paths;
    Folder folder;
    for (int round = 0; round < 60; round++) {
        View view(full_job());
        for (uint32_t i = 0; i < view.member_count; i++) {
            struct ng_view_member *member = &view.members[i];
            for (uint64_t *field : {&member->entered, &member->completed, &member->p2p_entered,
                                    &member->coll_joined, &member->groups_closed})
                *field = random() % 3 ? *field : random();
            member->group_rank = random() % 3 ? member->group_rank : (int)(random() % 7) - 3;
            for (uint32_t k = 0; k < member->record_count; k++) {
                struct ng_view_record *record = &member->records[k];
                if (random() % 2)
                    continue;
                record->signature = {(uint32_t)(random() % NG_OP_LIMIT), (int32_t)random(),
                                     (int32_t)random(), (int32_t)(random() % 9) - 4, random()};
                record->entered_age_ns = (int64_t)random();
                record->work_previous = random() % 9;
                record->coll_seq = random();
                record->state = (enum ng_record_state)(random() % 12);
            }
        }
        snprintf(view.groups[0].name, sizeof(view.groups[0].name), "\xff\"\\\n");
        view.groups[0].nranks = random() % 2 ? 2 : (int)(random() % INT32_MAX);
        for (int rank : {0, 1}) {
            paths.push_back(folder / ("rank_" + std::to_string(paths.size())));
            int fd = open(paths.back().c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
            EXPECT_EQ(ng_flight_write(&view, (uint32_t)rank, rank, fd), 0);
            close(fd);
        }
    }
    EXPECT_EQ(python("import pickle, sys\n"
                     "for path in sys.argv[1:]:\n"
                     "    d = pickle.load(open(path, 'rb'))\n"
                     "    for x in d['entries']:\n"
                     "        assert x['process_group'][0] in d['pg_config'], x\n",
                     paths),
              "");
}

TEST(Flight, AFullDiskLeavesNothingPartial)
{
    Folder folder;
    View view(full_job());
    EXPECT_EQ(in_child([&] {
                  struct rlimit limit = {100, 100};
                  signal(SIGXFSZ, SIG_IGN);
                  setrlimit(RLIMIT_FSIZE, &limit);
                  return ng_flight_save_process(&view, 0, folder.path().c_str()) == -EFBIG ? 0 : 2;
              }),
              0);
    EXPECT_EQ(folder.names(), std::vector<std::string>{"fr"});
    EXPECT_EQ(python("import os, sys\nprint(os.listdir(sys.argv[1]), end='')\n", {folder / "fr"}),
              "[]");
}

TEST(Flight, WritesWithoutMalloc)
{
    Folder folder;
    View view(full_job());
    EXPECT_EQ(in_child([&] {
                  forbid_malloc(true);
                  int error = ng_flight_save_process(&view, 0, folder.path().c_str());
                  forbid_malloc(false);
                  return error == 0 ? 0 : 2;
              }),
              0);
}
