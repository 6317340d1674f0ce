/*
 * Black boxes: made, locked, read by others, damaged in every way, left behind by a killed writer.
 */
#include "tests/unit/core/helpers/box.h"

extern "C" {
#include "core/config/settings.h"
}

#include <sched.h>
#include <sys/mount.h>
#include <tuple>

namespace
{

struct ng_box_identity identity()
{
    struct ng_box_identity identity = {.rank = 3,
                                       .world_size = 8,
                                       .local_rank = 1,
                                       .job = "by-hand",
                                       .timeout_ns = 600 * NG_S,
                                       .suspect_ns = 5 * NG_S,
                                       .cold_suspect_ns = 30 * NG_S,
                                       .init_timeout_ns = 60 * NG_S};
    return identity;
}

bool locked_by_another(const std::string &path)
{
    struct flock lock = {};
    int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    EXPECT_EQ(fcntl(fd, F_OFD_GETLK, &lock), 0);
    close(fd);
    return lock.l_type != F_UNLCK;
}

/* The only file of the folder. */
std::string only_file(const Folder &folder)
{
    std::vector<std::string> names = folder.names();
    EXPECT_EQ(names.size(), 1u);
    return names.empty() ? "" : folder / names[0];
}

int open_result(const std::string &path)
{
    struct ng_box box;
    int result = ng_box_open(path.c_str(), &box);
    if (result == 0)
        ng_box_close(&box, nullptr);
    return result;
}

/* Open whatever this is and read all of it. */
int read_all(const std::string &path)
{
    struct ng_box box;
    OwnView view;
    struct ng_verdict verdict;
    struct ng_verdict_query query = {.stalled_ns = 1};
    int result = ng_box_open(path.c_str(), &box);
    if (result != 0)
        return result;
    EXPECT_EQ(ng_view_add_box(&view, &box, NG_LIFE_RUNNING, ng_clock_mono_ns(), "box"), 0);
    ng_view_seal(&view);
    EXPECT_EQ(ng_verdict_reach(&view, &query, &verdict), 0);
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(ng_dump_write_process(&view, 0, null), 0);
    EXPECT_EQ(ng_report_write_json(&verdict, null), 0);
    close(null);
    ng_verdict_fini(&verdict);
    ng_box_close(&box, nullptr);
    return 0;
}

struct Box : testing::Test {
    void TearDown() override
    {
        if (box.header)
            ng_box_close(&box, nullptr);
    }
    Folder folder;
    struct ng_box box = {};
    struct ng_box_identity who = identity();
};

} // namespace

TEST_F(Box, AppearsWholeForTheOwnerAloneAndLocked)
{
    char name[64];
    uint64_t start_ticks;
    char state;

    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 100, &box), 0);
    ASSERT_EQ(ng_proc_stat(0, &state, &start_ticks), 0);
    ng_box_name(getpid(), start_ticks, name, sizeof(name));
    EXPECT_EQ(folder.names(), std::vector<std::string>{name}) << "nothing beside it";
    EXPECT_EQ(std::string(name).rfind(NG_BOX_PREFIX, 0), 0u);
    struct stat status;
    ASSERT_EQ(stat((folder / name).c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u);
    EXPECT_EQ((uint64_t)status.st_size, box.header->total_bytes);
    EXPECT_LT((uint64_t)status.st_blocks * 512, 256u << 10)
        << "the group table is not filled in advance";
    EXPECT_TRUE(locked_by_another(folder / name));
    EXPECT_GE(box.file.fd, 100) << "out of the numbers that programs use";
    EXPECT_EQ(fcntl(box.file.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);

    EXPECT_EQ(box.header->rank, 3);
    EXPECT_EQ(box.header->world_size, 8);
    EXPECT_EQ(box.header->local_rank, 1);
    EXPECT_EQ(box.header->pid, getpid());
    EXPECT_EQ(box.header->start_ticks, start_ticks);
    EXPECT_STREQ(box.header->job, "by-hand");
    EXPECT_EQ(box.header->life, (uint32_t)NG_BOX_RUNNING);
    EXPECT_EQ(box.header->timeout_ns, 600 * NG_S);
    EXPECT_EQ(box.record_capacity, 100u);
    EXPECT_GT(box.header->heartbeat_mono_ns, 0);

    ng_box_close(&box, (folder / name).c_str());
    EXPECT_TRUE(folder.names().empty());
    EXPECT_EQ(box.header, nullptr);
}

TEST_F(Box, ReadersSeeWhatTheWriterWrites)
{
    struct ng_box reader;

    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 16, &box), 0);
    ASSERT_EQ(ng_box_open(only_file(folder).c_str(), &reader), 0);
    EXPECT_EQ(reader.record_capacity, 16u);
    EXPECT_EQ(reader.group_capacity, box.group_capacity);
    EXPECT_EQ(reader.thread_capacity, box.thread_capacity);
    Writer writer(&box);
    writer.group(0, 0x77, 8, 3, "dp");
    writer.collective(0, NG_RECORD_COMPLETED);
    EXPECT_EQ(ng_box_read(&reader, NG_BOX_ALL), 0);
    EXPECT_EQ(reader.groups[0].id, 0x77u);
    EXPECT_EQ(reader.records[1].coll_seq, 1u);
    EXPECT_EQ(ng_record_id(reader.records[1].id_state), 1u);
    ng_box_close(&reader, nullptr);
}

TEST_F(Box, SettingsAreWholeBeforeItHasItsNameAndOutliveItsProcess)
{
    char algorithm[] = "NCCL_ALGO=Ring", timeout[] = "NCCLGUARD_TIMEOUT=7s";
    char *environment[] = {algorithm, timeout, nullptr};
    struct ng_config config;
    struct ng_launch launch = {"none", -1, -1, -1, "by-hand", false, 0, ""};
    ng_config_parse(
        &config, environment, [](void *, char, const char *) {}, nullptr);
    struct ng_settings_source source = {&config, &launch, "local:", "/d", "/e", environment};
    struct ng_box reader;

    who.settings = &source;
    for (const char *made : {folder.path().c_str(), (const char *)nullptr}) {
        ng_box_close(&box, nullptr);
        ASSERT_EQ(ng_box_create(made, &who, 16, &box), 0);
        EXPECT_NE(std::string(box.settings).find("NCCLGUARD_TIMEOUT\tenvironment\t7s\n"),
                  std::string::npos);
    }
    ASSERT_EQ(ng_box_open(only_file(folder).c_str(), &reader), 0);
    OwnView view;
    ASSERT_EQ(ng_view_add_box(&view, &reader, NG_LIFE_DEAD, ng_clock_mono_ns(), "box"), 0);
    ASSERT_NE(view.processes[0].settings, nullptr);
    EXPECT_EQ(view.processes[0].settings, std::string(box.settings));

    /* A command has changed them since; a value that there is not is none. */
    box.header->set[NG_SETTABLE_TIMING] = NG_TIMING_ALL + 1;
    box.header->set[NG_SETTABLE_LOG] = 99;
    ASSERT_EQ(ng_view_add_box(&view, &box, NG_LIFE_DEAD, ng_clock_mono_ns(), "box"), 0);
    EXPECT_EQ(view.processes[1].set.of[NG_SETTABLE_TIMING], NG_TIMING_ALL + 1);
    EXPECT_EQ(view.processes[1].set.of[NG_SETTABLE_LOG], 0);
    EXPECT_NE(std::string(view.processes[1].settings).find("NCCLGUARD_TIMING\tcommand\tall\n"),
              std::string::npos);
    EXPECT_NE(std::string(view.processes[1].settings).find("NCCLGUARD_LOG\tdefault\twarn\n"),
              std::string::npos);
    box.header->set[NG_SETTABLE_TIMING] = 0;
    ng_box_close(&reader, nullptr);

    /* A damaged text, without an end. */
    memset(box.settings, '\x1b', box.settings_bytes);
    ASSERT_EQ(ng_view_add_box(&view, &box, NG_LIFE_DEAD, ng_clock_mono_ns(), "box"), 0);
    EXPECT_EQ(view.processes[2].settings, std::string(box.settings_bytes, '?'));
}

/* Its guard says that it holds the threads, then holds them: a reader may have read it before. */
TEST_F(Box, OneThatIsHeldSinceTheHeaderWasReadIsNotTakenForStopped)
{
    struct ng_box reader;

    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 16, &box), 0);
    ASSERT_EQ(ng_box_open(only_file(folder).c_str(), &reader), 0);
    EXPECT_TRUE(ng_box_shows_stopped(&reader, 't', ng_clock_mono_ns()));
    box.header->held_until_mono_ns = ng_clock_mono_ns() + 600 * NG_S;
    EXPECT_FALSE(ng_box_shows_stopped(&reader, 't', ng_clock_mono_ns()));
    ng_box_close(&reader, nullptr);
}

TEST_F(Box, AViewHasAllThatTheRecordsOfACallTell)
{
    OwnView view;

    who.timeout_ns = 7 * NG_S;
    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 16, &box), 0);
    Writer writer(&box);
    writer.group(0, 0x77, 8, 3, "dp");
    int64_t now = ng_clock_mono_ns();
    writer.collective(0, NG_RECORD_COMPLETED, now - 30);
    writer.collective(0, NG_RECORD_STARTED, now - 20);
    box.records[1].started_mono_ns = now - 15;
    box.records[1].completed_mono_ns = now - 5;
    box.records[2].started_mono_ns = now - 4;
    box.records[2].stream = 0x7f00;
    box.records[2].work_previous = 1;
    box.groups[0].coll_joined = 1;
    box.groups[0].p2p_joined = 2;
    box.groups[0].groups_closed = 3;
    writer.inside(NG_OP_AllReduce, 0);
    memcpy((void *)box.threads[0].name, "pt_autograd_0", 14);
    ASSERT_EQ(ng_view_add_box(&view, &box, NG_LIFE_RUNNING, now, "box"), 0);
    ng_view_seal(&view);
    ASSERT_EQ(view.member_count, 1u);
    const struct ng_view_member *member = &view.members[0];
    EXPECT_EQ(member->timeout_ns, 7 * NG_S);
    EXPECT_EQ(member->coll_joined, 1u);
    EXPECT_EQ(member->p2p_joined, 2u);
    EXPECT_EQ(member->groups_closed, 3u);
    ASSERT_EQ(member->record_count, 2u);
    EXPECT_EQ(member->records[0].entered_age_ns, 30);
    EXPECT_EQ(member->records[0].started_age_ns, 15);
    EXPECT_EQ(member->records[0].completed_age_ns, 5);
    EXPECT_EQ(member->records[1].started_age_ns, 4);
    EXPECT_EQ(member->records[1].completed_age_ns, 0) << "not yet";
    EXPECT_EQ(member->records[1].stream, 0x7f00u);
    EXPECT_EQ(member->records[1].work_previous, 1u);
    ASSERT_EQ(view.thread_count, 1u);
    EXPECT_EQ(view.threads[0].tid, (uint32_t)getpid());
    EXPECT_STREQ(view.threads[0].name, "pt_autograd_0");
}

/* Names come from programs, and go into logs and to terminals. */
TEST_F(Box, TheNameOfAGroupIsCleanText)
{
    static ng_box_group group;
    char name[NG_BOX_NAME_BYTES];

    ng_box_write_name(&group, "data \u00fc\n\x1b[31mparallel");
    ng_box_read_name(&group, name);
    EXPECT_STREQ(name, "data \u00fc??[31mparallel");
    ng_box_write_name(&group, (std::string(62, 'x') + "\u00fc").c_str());
    ng_box_read_name(&group, name);
    EXPECT_EQ(name, std::string(62, 'x')) << "a character that was cut off";
}

TEST_F(Box, WithoutAFolderItLivesInPrivateMemory)
{
    EXPECT_EQ(ng_box_create(nullptr, &who, 10, &box), 0);
    EXPECT_EQ(box.file.fd, -1);
    EXPECT_EQ(ng_box_reserve_group(&box, 0), 0);
    Writer writer(&box);
    writer.group(4095, 1, 2, 0, "last slot");
    EXPECT_EQ(box.groups[4095].nranks, 2);
}

TEST_F(Box, AFolderThatCannotTakeItIsToldAndTheBoxWorksAllTheSame)
{
    EXPECT_EQ(ng_box_create("/nonexistent/folder", &who, 10, &box), -ENOENT);
    EXPECT_EQ(box.file.fd, -1);
    Writer(&box).group(0, 1, 2, 0, "");
    EXPECT_EQ(box.groups[0].nranks, 2);
    ng_box_close(&box, nullptr);
    EXPECT_EQ(ng_box_create(("/" + std::string(5000, 'x')).c_str(), &who, 10, &box), -ENAMETOOLONG);
}

TEST_F(Box, NoRoomInSharedMemoryIsAnErrorNotASignalAndLeavesNothing)
{
    EXPECT_EQ(in_child([&] {
                  struct ng_box box;
                  struct ng_box_identity who = identity();
                  struct rlimit limit = {100000, 100000};
                  signal(SIGXFSZ, SIG_IGN);
                  setrlimit(RLIMIT_FSIZE, &limit);
                  if (ng_box_create(folder.path().c_str(), &who, 2000, &box) != -EFBIG)
                      return 1;
                  memset(box.records, 0xff, 2000 * sizeof(*box.records));
                  return box.file.fd == -1 ? 0 : 2;
              }),
              0);
    EXPECT_TRUE(folder.names().empty());
}

/* The same where the file may be as long as it likes, but the blocks are not there. */
TEST_F(Box, AFullTmpfsIsAnErrorNotASignal)
{
    constexpr int may_not = 77;
    int status = in_child([&] {
        struct ng_box box;
        struct ng_box_identity who = identity();
        /* A mount of this child's own: it goes with the child. */
        if (unshare(CLONE_NEWNS) != 0 ||
            mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            mount("none", folder.path().c_str(), "tmpfs", 0, "size=160k,mode=0700") != 0)
            return may_not;
        if (ng_box_create(folder.path().c_str(), &who, 2000, &box) != -ENOSPC)
            return 1;
        memset(box.records, 0xff, 2000 * sizeof(*box.records));
        if (!folder.names().empty())
            return 2;
        /* One that fits, whose group table then does not. */
        if (ng_box_create(folder.path().c_str(), &who, 10, &box) != 0)
            return 3;
        for (uint32_t slot = 0; slot < box.group_capacity; slot++) {
            int reserved = ng_box_reserve_group(&box, slot);
            if (reserved != 0)
                return reserved == -ENOSPC && slot > 0 ? 0 : 4;
            memset(&box.groups[slot], 0xff, sizeof(box.groups[slot]));
        }
        return 5;
    });
    if (status == may_not)
        GTEST_SKIP() << "may not mount a small tmpfs here";
    EXPECT_EQ(status, 0);
}

TEST_F(Box, WithoutRecordsItHasNone)
{
    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 0, &box), 0);
    EXPECT_EQ(box.record_capacity, 0u);
    EXPECT_EQ(read_all(only_file(folder)), 0);
}

TEST_F(Box, WhatIsNoBoxIsRefused)
{
    EXPECT_EQ(open_result(folder / "none"), -ENOENT);
    write_whole_file(folder / "empty", "");
    EXPECT_EQ(open_result(folder / "empty"), -EBADMSG);
    write_whole_file(folder / "short", "NCCGBOX1");
    EXPECT_EQ(open_result(folder / "short"), -EBADMSG);
    write_whole_file(folder / "text", std::string(100000, 'x'));
    EXPECT_EQ(open_result(folder / "text"), -EBADMSG);
    EXPECT_EQ(open_result(folder.path()), -EBADMSG);
    ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
    EXPECT_EQ(open_result(folder / "fifo"), -EBADMSG) << "and does not wait for a writer";
    EXPECT_EQ(open_result("/dev/zero"), -EBADMSG);
}

TEST_F(Box, OtherVersionsAndDamagedHeadersAreRefused)
{
    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 64, &box), 0);
    std::string good = read_whole_file(only_file(folder)), path = folder / "copy";
    ng_box_close(&box, nullptr);
    write_whole_file(path, good);
    ASSERT_EQ(open_result(path), 0) << "a saved copy is a box";

    auto with = [&](const std::function<void(struct ng_box_header *)> &change) {
        std::string copy = good;
        change((struct ng_box_header *)&copy[0]);
        write_whole_file(path, copy);
        return open_result(path);
    };
    EXPECT_EQ(with([](struct ng_box_header *h) { h->magic ^= 1; }), -EBADMSG);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->version = 2; }), -EPROTO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->version = 0; }), -EPROTO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->group_bytes = 0; }), -EPROTO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->thread_bytes++; }), -EPROTO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->record_bytes = UINT32_MAX; }), -EPROTO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->settings_bytes = UINT32_MAX; }), 0);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->total_bytes++; }), -EIO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->total_bytes = 0; }), -EIO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->total_bytes = UINT64_MAX; }), -EIO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->groups_offset = UINT64_MAX - 8; }), -EIO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->groups_offset = 0; }), -EIO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->records_offset++; }), -EIO) << "not aligned";
    EXPECT_EQ(with([](struct ng_box_header *h) { h->records_offset = h->total_bytes; }), -EIO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->threads_offset = h->total_bytes - 8; }), -EIO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->record_capacity = UINT32_MAX; }), -EIO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->group_capacity = 1u << 24; }), -EIO);
    EXPECT_EQ(with([](struct ng_box_header *h) { h->hash_logs_offset = h->total_bytes; }), 0)
        << "done without";
    EXPECT_EQ(with([](struct ng_box_header *h) { h->thread_capacity = 1u << 24; }), -EIO);
    for (size_t bytes : {good.size() - 1, good.size() / 2, (size_t)NG_BOX_HEADER_BYTES,
                         sizeof(struct ng_box_header)}) {
        write_whole_file(path, good.substr(0, bytes));
        EXPECT_EQ(open_result(path), -EIO) << bytes;
    }
}

TEST_F(Box, HashLogsOfGroupsThatAreNotThereAreNotRead)
{
    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 64, &box), 0);
    EXPECT_EQ(box.hash_log_capacity, box.group_capacity);
    std::string copy = read_whole_file(only_file(folder)), path = folder / "copy";
    ng_box_close(&box, nullptr);
    ((struct ng_box_header *)&copy[0])->group_capacity = 16;
    write_whole_file(path, copy);
    ASSERT_EQ(ng_box_open(path.c_str(), &box), 0);
    EXPECT_EQ(box.group_capacity, 16u);
    EXPECT_EQ(box.hash_log_capacity, 0u);
}

/* As long as the same work of the same communicator is the oldest. */
TEST_F(Box, EdgesAreReadWithTheWorkThatWasTheOldest)
{
    const struct ng_edge all[NG_EDGES_MAX + 1] = {
        {7, NG_EDGE_SENDS | NG_EDGE_TREE_UP, 8, 7, 6, 5, 4, 3, 0xfffffff0, 65535, 2}, {-1}};
    struct ng_edge edges[NG_EDGES_MAX];
    int64_t looked = 0;
    struct ng_box reader;

    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 16, &box), 0);
    Writer writer(&box);
    for (uint32_t slot : {0u, 3u, 3 + box.edges_capacity})
        writer.group(slot, 0x77, 8, 3, "dp");
    EXPECT_EQ(ng_edges_read(&box, 3, 41, edges, &looked), 0u) << "never looked";
    ng_edges_write(&box, 3, 41, all, 2);
    ASSERT_EQ(ng_box_open(only_file(folder).c_str(), &reader), 0);
    ASSERT_EQ(ng_box_read(&reader, NG_BOX_ALL), 0);
    ASSERT_EQ(ng_edges_read(&reader, 3, 41, edges, &looked), 2u);
    auto fields = [](const struct ng_edge &edge) {
        return std::tuple(edge.peer, edge.flags, edge.channels, edge.begun, edge.taken, edge.held,
                          edge.channel, edge.queued, edge.base, edge.posted, edge.consumed);
    };
    EXPECT_EQ(fields(edges[0]), fields(all[0]));
    EXPECT_EQ(edges[1].peer, -1);
    EXPECT_GT(looked, 0);
    ng_box_close(&reader, nullptr);

    EXPECT_EQ(ng_edges_read(&box, 3, 42, edges, &looked), 0u) << "another work";
    EXPECT_EQ(ng_edges_read(&box, 3 + box.edges_capacity, 41, edges, &looked), 0u);
    EXPECT_EQ(ng_edges_read(&box, box.group_capacity, 41, edges, &looked), 0u);
    box.groups[3].generation = box.groups[3].generation + 1;
    EXPECT_EQ(ng_edges_read(&box, 3, 41, edges, &looked), 0u) << "another communicator";
    ng_edges_write(&box, 3, 41, all, NG_EDGES_MAX + 1);
    EXPECT_EQ(ng_edges_read(&box, 3, 41, edges, &looked), NG_EDGES_MAX);
    ng_edges_write(&box, 3 + box.edges_capacity, 41, all, 1);
    EXPECT_EQ(ng_edges_read(&box, 3, 41, edges, &looked), 0u) << "the newest look is kept";
}

/* Whatever stands in the file, reading it neither crashes nor loops. */
TEST_F(Box, DamageAnywhereIsSurvived)
{
    std::mt19937_64 random(20261120);

    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 64, &box), 0);
    Writer writer(&box);
    for (uint32_t slot = 0; slot < 8; slot++)
        writer.group(slot, 0x100 + slot, 4, (int)slot % 4, "group");
    for (int i = 0; i < 200; i++)
        writer.collective((uint32_t)i % 8, NG_RECORD_STARTED);
    writer.inside(NG_OP_AllReduce, 0);
    const struct ng_box_header *header = box.header;
    /* The places that are in use; the rest of the file is empty. */
    std::vector<std::pair<size_t, size_t>> places = {
        {0, sizeof(struct ng_box_header)},
        {header->groups_offset, 8 * NG_BOX_GROUP_BYTES},
        {header->threads_offset, 2 * NG_BOX_THREAD_BYTES},
        {header->records_offset, 64 * NG_BOX_RECORD_BYTES},
    };
    std::string good = read_whole_file(only_file(folder)), path = folder / "copy";
    ng_box_close(&box, nullptr);
    write_whole_file(path, good);
    int fd = open(path.c_str(), O_RDWR | O_CLOEXEC), opened = 0;
    ASSERT_GE(fd, 0);
    for (int round = 0; round < 120; round++) {
        std::vector<std::pair<size_t, std::string>> undo;
        for (unsigned damage = 0; damage < 1 + random() % 40; damage++) {
            const auto &place = places[round % 4 == 0 ? 0 : random() % places.size()];
            size_t bytes = 1u << (random() % 4),
                   at = place.first + random() % (place.second - bytes);
            uint64_t values[] = {random(), 0, UINT64_MAX, random() % 256, INT64_MAX};
            uint64_t value = values[random() % 5];
            undo.push_back({at, good.substr(at, bytes)});
            ASSERT_EQ(pwrite(fd, &value, bytes, (off_t)at), (ssize_t)bytes);
        }
        opened += read_all(path) == 0;
        for (const auto &piece : undo)
            ASSERT_EQ(pwrite(fd, piece.second.data(), piece.second.size(), (off_t)piece.first),
                      (ssize_t)piece.second.size());
    }
    close(fd);
    EXPECT_GT(opened, 40) << "the damage was not refused at the door each time";
}

/* To any length: what was read before remains valid, and no signal ends the reader. */
TEST_F(Box, AFileThatIsCutOffIsKeptAsItWasReadBefore)
{
    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 64, &box), 0);
    Writer writer(&box);
    writer.group(0, 0x77, 8, 3, "dp");
    for (int i = 0; i < 10; i++)
        writer.collective(0, NG_RECORD_COMPLETED);
    writer.inside(NG_OP_AllReduce, 0);
    std::string good = read_whole_file(only_file(folder)), path = folder / "copy";
    ng_box_close(&box, nullptr);
    for (size_t bytes :
         {(size_t)0, (size_t)1, sizeof(struct ng_box_header), (size_t)NG_BOX_HEADER_BYTES,
          (size_t)NG_BOX_HEADER_BYTES + 100, good.size() / 2, good.size() - 1}) {
        struct ng_box reader;
        OwnView view;
        write_whole_file(path, good);
        ASSERT_EQ(ng_box_open(path.c_str(), &reader), 0);
        ASSERT_EQ(ng_box_read(&reader, NG_BOX_ALL), 0);
        ASSERT_EQ(truncate(path.c_str(), (off_t)bytes), 0);
        ASSERT_EQ(ng_view_add_box(&view, &reader, NG_LIFE_RUNNING, ng_clock_mono_ns(), "box"), 0);
        ng_view_seal(&view);
        EXPECT_EQ(view.processes[0].rank, 3);
        ASSERT_EQ(view.member_count, 1u) << bytes;
        EXPECT_EQ(view.members[0].entered, 10u) << bytes;
        EXPECT_EQ(view.call_count, 1u) << bytes;
        if (bytes < NG_BOX_HEADER_BYTES) {
            EXPECT_EQ(ng_box_read(&reader, NG_BOX_GROUPS), -EIO) << bytes;
        }
        /* As long as it was, and empty: not what it was. */
        ASSERT_EQ(truncate(path.c_str(), 0), 0);
        ASSERT_EQ(truncate(path.c_str(), (off_t)good.size()), 0);
        EXPECT_EQ(ng_box_read(&reader, NG_BOX_ALL), -EIO);
        EXPECT_EQ(reader.header->pid, getpid());
        EXPECT_EQ(reader.groups[0].id, 0x77u);
        ng_box_close(&reader, nullptr);
    }
}

TEST_F(Box, AReaderSurvivesAFileThatIsCutOffWhileItReads)
{
    struct ng_box reader;
    bool stop = false;
    unsigned cuts = 0;

    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 2000, &box), 0);
    Writer writer(&box);
    writer.group(0, 0x77, 2, 0, "dp");
    for (int i = 0; i < 3000; i++)
        writer.collective(0, NG_RECORD_COMPLETED);
    std::string good = read_whole_file(only_file(folder)), path = folder / "copy";
    ng_box_close(&box, nullptr);
    write_whole_file(path, good);
    ASSERT_EQ(ng_box_open(path.c_str(), &reader), 0);
    ASSERT_EQ(ng_box_read(&reader, NG_BOX_GROUPS), 0);
    std::thread cutting([&] {
        std::mt19937_64 random(7);
        int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
        for (; !__atomic_load_n(&stop, __ATOMIC_RELAXED);
             __atomic_fetch_add(&cuts, 1, __ATOMIC_RELAXED)) {
            EXPECT_EQ(ftruncate(fd, (off_t)(random() % good.size())), 0);
            EXPECT_EQ(pwrite(fd, good.data(), good.size(), 0), (ssize_t)good.size());
        }
        close(fd);
    });
    for (unsigned rounds = 0; rounds < 200 || __atomic_load_n(&cuts, __ATOMIC_RELAXED) < 50;
         rounds++) {
        OwnView view;
        ASSERT_EQ(ng_view_add_box(&view, &reader, NG_LIFE_RUNNING, ng_clock_mono_ns(), "box"), 0);
        ng_view_seal(&view);
        EXPECT_EQ(view.member_count, 1u);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    cutting.join();
    ng_box_close(&reader, nullptr);
}

/* A file may say that it has millions of records, and be almost empty. */
TEST_F(Box, HolesOfALargeFileTakeNoMemory)
{
    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 64, &box), 0);
    Writer(&box).group(0, 0x77, 8, 3, "dp");
    std::string good = read_whole_file(only_file(folder)), path = folder / "copy";
    auto *header = (struct ng_box_header *)&good[0];
    ng_box_close(&box, nullptr);
    header->record_capacity = 1u << 24;
    header->records_offset = (header->total_bytes + 4095) & ~4095ul;
    header->total_bytes =
        header->records_offset + (uint64_t)header->record_capacity * NG_BOX_RECORD_BYTES;
    header->record_next = UINT64_MAX;
    write_whole_file(path, good);
    ASSERT_EQ(truncate(path.c_str(), (off_t)header->total_bytes), 0);
    int status = in_child([&] {
        struct rusage before, after;
        getrusage(RUSAGE_SELF, &before);
        if (ng_box_open(path.c_str(), &box) != 0 || ng_box_read(&box, NG_BOX_ALL) != 0)
            return 1;
        if (box.record_capacity != 1u << 24 || box.groups[0].id != 0x77)
            return 2;
        getrusage(RUSAGE_SELF, &after);
        return after.ru_maxrss - before.ru_maxrss < 64 << 10 ? 0 : 3;
    });
    EXPECT_EQ(status, 0);
    header->total_bytes = UINT64_C(1) << 40;
    write_whole_file(path, good);
    ASSERT_EQ(truncate(path.c_str(), (off_t)1 << 40), 0);
    EXPECT_EQ(open_result(path), -EIO) << "larger than any writer makes it";
}

TEST_F(Box, OutlivesAKilledWriterAndItsLockDoesNot)
{
    int ready[2];
    char byte;

    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    pid_t writer = fork();
    if (writer == 0) {
        struct ng_box box;
        struct ng_box_identity who = identity();
        alarm(30);
        if (ng_box_create(folder.path().c_str(), &who, 16, &box) != 0)
            _exit(1);
        Writer hand(&box);
        hand.group(0, 0x77, 4, 3, "dp");
        hand.collective(0, NG_RECORD_COMPLETED);
        hand.collective(0, NG_RECORD_STARTED);
        hand.inside(NG_OP_AllReduce, 0);
        /* Killed in the middle of writing the third record. */
        __atomic_store_n(&box.header->record_next, (uint64_t)4, __ATOMIC_RELAXED);
        __atomic_store_n(&box.records[3].id_state, (uint64_t)3 << 8 | NG_RECORD_WRITING,
                         __ATOMIC_RELAXED);
        if (write(ready[1], "x", 1) != 1)
            _exit(2);
        for (;;)
            pause();
    }
    close(ready[1]);
    ASSERT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    std::string path = only_file(folder);
    EXPECT_TRUE(locked_by_another(path));
    kill(writer, SIGKILL);
    ASSERT_EQ(waitpid(writer, nullptr, 0), writer);
    EXPECT_FALSE(locked_by_another(path));

    OwnView view;
    ASSERT_EQ(ng_box_open(path.c_str(), &box), 0);
    EXPECT_EQ(box.header->pid, writer);
    ASSERT_EQ(ng_view_add_box(&view, &box, NG_LIFE_DEAD, ng_clock_mono_ns(), "box"), 0);
    ng_view_seal(&view);
    EXPECT_EQ(view.processes[0].life, NG_LIFE_DEAD);
    ASSERT_EQ(view.member_count, 1u);
    EXPECT_EQ(view.members[0].entered, 2u);
    EXPECT_EQ(view.members[0].record_count, 2u) << "the half-written record is not read";
}

/* One writer at full speed round and round the ring; every copy that the reader gets is of one
 * record. */
TEST_F(Box, ReadersNeverSeeHalfARecord)
{
    struct ng_box reader;
    bool stop = false;

    ASSERT_EQ(ng_box_create(folder.path().c_str(), &who, 8, &box), 0);
    ASSERT_EQ(ng_box_open(only_file(folder).c_str(), &reader), 0);
    Writer writer(&box);
    writer.group(0, 0x77, 2, 0, "dp");
    std::thread writing([&] {
        while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
            writer.collective(0, NG_RECORD_COMPLETED);
    });
    uint64_t seen = 0, rounds = 0;
    for (int64_t until = ng_clock_mono_ns() + 10 * NG_S;
         (seen < 2000 || rounds < 500) && ng_clock_mono_ns() < until; rounds++) {
        OwnView view;
        ASSERT_EQ(ng_view_add_box(&view, &reader, NG_LIFE_RUNNING, ng_clock_mono_ns(), "box"), 0);
        ng_view_seal(&view);
        ASSERT_EQ(view.member_count, 1u);
        const struct ng_view_member *member = &view.members[0];
        for (uint32_t i = 0; i < member->record_count; i++, seen++) {
            const struct ng_view_record *record = &member->records[i];
            /* The writer derives every field from the id. */
            ASSERT_EQ(record->coll_seq, record->id);
            ASSERT_EQ(record->signature.count, record->id * 3);
            ASSERT_EQ(record->caller, record->id * 7);
        }
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    writing.join();
    EXPECT_GE(seen, 2000u) << "late: ";
    ng_box_close(&reader, nullptr);
}
