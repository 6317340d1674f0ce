/*
 * Evidence for the tests of `ncclguard analyze`: black boxes of real processes, made through core.
 */
#include "tests/unit/tools/evidence.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/recorder/box.h"
#include "core/recorder/durations.h"
#include "core/recorder/fault_log.h"
#include "core/recorder/python_code.h"
#include "core/report/dump.h"
#include "core/report/flight.h"
#include "core/unwind/frame_table.h"
#include "core/util/clock.h"
#include "core/verdict/verdict.h"
#include "core/view/view.h"
#include "store/board/local.h"
#include "tools/ingest/read_box.h"
#include "tools/ingest/read_dump.h"

#define GROUP_ID UINT64_C(0x0123456789abcdef)

static struct ng_signature all_reduce(void)
{
    return (struct ng_signature){
        .op = NG_OP_AllReduce, .dtype = 7, .redop = 0, .root = -1, .count = 1024};
}

static int add_rank(struct ng_view *view, uint64_t group_id, const struct evidence_rank *rank,
                    int nranks)
{
    static const enum ng_life lives[] = {NG_LIFE_RUNNING, NG_LIFE_DEAD, NG_LIFE_ENDED_BY_GUARD,
                                         NG_LIFE_EXITED};
    struct ng_view_process *process = ng_view_add_process(view);
    uint32_t group = ng_view_intern_group(view, group_id);

    process->rank = rank->rank;
    process->world_size = nranks;
    process->pid = 1000 + rank->rank;
    snprintf(process->host, sizeof(process->host), "node1");
    process->life = lives[rank->life];
    process->life_age_ns = rank->dead_ms * NG_MS;
    view->groups[group].nranks = nranks;
    struct ng_view_member *member =
        ng_view_add_member(view, view->process_count - 1, group, rank->rank);
    member->state = NG_GROUP_READY;
    member->device = rank->rank;
    member->entered = member->scheduled = rank->entered;
    member->started = member->completed = rank->completed;
    member->last = all_reduce();
    member->records = ng_arena_alloc(&view->arena, (rank->entered + 1) * sizeof(*member->records));
    for (uint64_t seq = 1; seq <= rank->entered; seq++)
        member->records[member->record_count++] = (struct ng_view_record){
            .id = seq,
            .state = seq <= rank->completed ? NG_RECORD_COMPLETED : NG_RECORD_STARTED,
            .signature = all_reduce(),
            .coll_seq = seq,
            .entered_age_ns = rank->pending_ms * NG_MS,
        };
    if (rank->differs)
        member->last.redop = member->records[member->record_count - 1].signature.redop = 2;
    if (rank->pending_ms) {
        member->pending_seq = member->pending_record = rank->completed + 1;
        member->pending_age_ns = rank->pending_ms * NG_MS;
        member->pending_started = true;
        member->started = rank->completed + 1;
    }
    return 0;
}

int evidence_write_dumps(const char *folder, const struct evidence_rank *ranks, int count,
                         int nranks)
{
    return evidence_write_dumps_of("test-job", GROUP_ID, 0, folder, ranks, count, nranks);
}

/* A view of these ranks, sealed. */
static void make_view(struct ng_view *view, const char *job, uint64_t group_id,
                      int64_t moment_unix_ns, const struct evidence_rank *ranks, int count,
                      int nranks)
{
    ng_view_init(view);
    snprintf(view->job, sizeof(view->job), "%s", job);
    for (int i = 0; i < count; i++) {
        add_rank(view, group_id, &ranks[i], nranks);
        view->processes[i].moment_unix_ns = moment_unix_ns;
    }
    ng_view_seal(view);
}

int evidence_write_dumps_of(const char *job, uint64_t group_id, int64_t moment_unix_ns,
                            const char *folder, const struct evidence_rank *ranks, int count,
                            int nranks)
{
    struct ng_view view;
    int error = 0;

    make_view(&view, job, group_id, moment_unix_ns, ranks, count, nranks);
    for (uint32_t i = 0; i < view.process_count && !error; i++)
        error = ng_dump_save_process(&view, i, folder);
    ng_view_fini(&view);
    return error;
}

int evidence_write_flights(int64_t moment_unix_ns, const char *folder,
                           const struct evidence_rank *ranks, int count, int nranks)
{
    struct ng_view view;
    int error = 0;

    make_view(&view, "test-job", GROUP_ID, moment_unix_ns, ranks, count, nranks);
    for (uint32_t i = 0; i < view.process_count && !error; i++)
        error = ng_flight_save_process(&view, i, folder);
    ng_view_fini(&view);
    return error;
}

int evidence_make_box(const char *folder, const struct evidence_rank *rank, int nranks)
{
    return evidence_make_box_of("test-job", "", folder, rank, nranks);
}

static bool with_frames;

/* All from one place, and of the second there is but a part. */
static void add_records(struct ng_box *box, uint64_t count)
{
    struct ng_image image = {.start = 0x1000, .end = 0x9000, .path = "/opt/train/train"};
    uint32_t module = ng_frame_table_add_module(box, &image);

    memset(image.build_id, 0xab, image.build_id_bytes = 20);
    ng_frame_table_name(box, ng_frame_table_add(box, 0x1234, module), "train_step", 0x34);
    ng_frame_table_name(
        box, ng_frame_table_add(box, 0x2345, ng_frame_table_add_module(box, &image)), "main", 5);
    ng_frame_table_retire(box, ng_frame_table_add(box, 0x3456, NG_FRAME_NO_MODULE), 1);
    static const uint8_t lines[] = {0x80, 0, 0xd8, 22, 23, 0xe8, 10};
    struct ng_python_code code = {.first_line = 7,
                                  .file = "/opt/train/train.py",
                                  .file_bytes = 19,
                                  .name = "Model.step",
                                  .name_bytes = 10,
                                  .lines = lines,
                                  .lines_bytes = sizeof(lines)};
    struct ng_python_frame python[] = {{ng_python_code_add(box, &code, 1), 2},
                                       {NG_PYTHON_CODE_UNKNOWN, 4}};
    for (uint64_t id = 1; id <= count && id < box->record_capacity; id++) {
        struct ng_box_record *record = &box->records[id];
        ng_python_code_write_frames(box, id, python, 2, id == 2);
        struct ng_signature signature = all_reduce();
        record->group_id = GROUP_ID;
        record->op = signature.op;
        record->dtype = signature.dtype;
        record->redop = signature.redop;
        record->root = signature.root;
        record->count = signature.count;
        record->coll_seq = id;
        record->entered_mono_ns = ng_clock_mono_ns() - (int64_t)(count - id) * NG_MS;
        record->id_state = id << 8 | NG_RECORD_SCHEDULED;
        box->frames[id].address[0] = 0x1234;
        box->frames[id].address[1] = id == 2 ? 0 : 0x2345;
        box->frames[id].address[2] = id == 2 ? 0 : 0x3456;
        box->frames[id].id_state = id << 8 | (id == 2 ? NG_FRAMES_PART : NG_FRAMES_WHOLE);
    }
    box->header->record_next = count + 1;
}

/* What the header tells when something is wrong. */
static void add_troubles(struct ng_box *box)
{
    struct ng_box_header *header = box->header;
    const char *text = "unhandled system error: Connection reset by peer";
    char place[NG_BOX_FRAME_BYTES] = "cuEventQuery on device 1";

    snprintf(header->error_text, sizeof(header->error_text), "%s", text);
    header->error_text_bytes = (uint32_t)strlen(text);
    for (size_t i = 0; i < sizeof(place) / 8; i++) {
        uint64_t word;
        memcpy(&word, place + 8 * i, sizeof(word));
        NG_STORE(header->watchdog_in[i], word);
    }
    header->watchdog_stuck_mono_ns = ng_clock_mono_ns() - 70 * NG_S;
    snprintf(header->nccl_variables, sizeof(header->nccl_variables),
             "NCCL_ALGO=Ring NCCL_PROTO=Simple");
    header->records_lost = 3;
    header->groups_lost = 1;
}

/* A thread inside a call, and one that is in none. */
static void add_threads(struct ng_box *box, int pid, uint64_t seq)
{
    for (uint32_t i = 0; i < 2; i++) {
        struct ng_box_thread *thread = &box->threads[i];
        uint64_t name[2] = {0};
        memcpy(name, i ? "loader" : "trainer", i ? 6 : 7);
        NG_STORE(thread->name[0], name[0]);
        thread->op = i ? NG_OP_NONE : NG_OP_AllReduce;
        thread->group_slot = 0;
        thread->since_mono_ns = ng_clock_mono_ns() - 9 * NG_S;
        thread->record_id = thread->seq = seq;
        thread->tid = (uint32_t)pid + i;
    }
    box->header->thread_used = 2;
}

/* The group's sends and receives, as one NCCL group: together they are an exchange of all with all.
 */
static void add_exchange(struct ng_box *box, int rank, int nranks)
{
    uint64_t id = box->header->record_next, previous = 0;

    for (int i = 0; i < 2 * nranks && id < box->record_capacity; i++, previous = id++) {
        struct ng_box_record *record = &box->records[id];
        record->group_id = GROUP_ID;
        record->op = i % 2 ? NG_OP_Recv : NG_OP_Send;
        record->dtype = 7;
        record->redop = -1;
        record->root = i / 2;
        record->count = 4096;
        record->p2p_seq = (uint64_t)i + 1;
        record->peer_ordinal = 1;
        record->flags = NG_RECORD_IN_GROUP | NG_RECORD_P2P;
        record->work_previous = previous;
        record->tid = (uint32_t)rank + 1;
        record->stream = 0x7000;
        record->entered_mono_ns = ng_clock_mono_ns() - NG_S;
        record->started_mono_ns = ng_clock_mono_ns() - NG_S / 2;
        record->duration_ns = i + 1 == 2 * nranks ? 350000 : 0;
        record->id_state = id << 8 | NG_RECORD_COMPLETED;
    }
    box->header->record_next = id;
    box->groups[0].p2p_entered = box->groups[0].p2p_completed = (uint64_t)nranks * 2;
    box->groups[0].p2p_joined = (uint64_t)nranks * 2 - 1;
    box->groups[0].groups_closed = 1;
}

static void add_durations(struct ng_box *box, uint64_t count)
{
    struct ng_duration_sample sample = {.group_id = GROUP_ID, .calls = 1};

    for (sample.seq = 1; sample.seq <= count; sample.seq++) {
        sample.duration_ns = 40000 + (int64_t)sample.seq * 900;
        ng_durations_add(box, GROUP_ID, NG_OP_AllReduce, 4096 << sample.seq, sample.duration_ns);
        ng_duration_sample_add(box, &sample);
    }
    ng_durations_add(box, GROUP_ID, NG_OP_GroupEnd, 1 << 20, 350000);
}

/* Others: one that could not be made, and one that the process has joined, split from the first. */
static int add_groups(struct ng_box *box, int rank, int nranks)
{
    int error = 0;

    for (uint32_t i = 1; i <= 2 && !error; i++) {
        struct ng_box_group *group = &box->groups[i];
        error = ng_box_reserve_group(box, i);
        if (error)
            break;
        group->id = GROUP_ID + i;
        group->parent_id = i == 2 ? GROUP_ID : 0;
        group->nranks = nranks;
        group->group_rank = rank;
        group->device = rank;
        group->nccl_version = 22809;
        group->color = i == 2 ? 1 : -1;
        group->ordinal = i == 2;
        group->created_by = i == 2 ? NG_OP_CommGrow : NG_OP_CommInitRank;
        group->creator_tid = 1000;
        group->created_mono_ns = ng_clock_mono_ns() - 20 * NG_S;
        group->ended_mono_ns = i == 1 ? ng_clock_mono_ns() - 10 * NG_S : 0;
        group->async_error = i == 1 ? 2 : 0;
        group->cuda_error = i == 2 ? 700 : 0;
        group->joined_id = i == 2 ? GROUP_ID + 9 : 0;
        group->excluded = i == 2 ? 0x77 : 0;
        group->timeout_ns = 30 * NG_S;
        group->rests = i == 2 ? NG_REST_OWN : NG_REST_NONE;
        ng_box_write_name(group, i == 2 ? "grown" : "refused");
        group->state = i == 1 ? NG_GROUP_FAILED : NG_GROUP_CREATING;
    }
    box->header->group_used = 3;
    return error;
}

static int add_all(struct ng_box *box, const struct evidence_rank *rank, int nranks)
{
    int error = add_groups(box, rank->rank, nranks);

    add_troubles(box);
    add_threads(box, box->header->pid, rank->entered);
    add_exchange(box, rank->rank, nranks);
    add_durations(box, rank->completed);
    return error;
}

int evidence_make_full_box(const char *folder, const struct evidence_rank *rank, int nranks)
{
    with_frames = true;
    int error = evidence_make_box(folder, rank, nranks);
    with_frames = false;
    return error;
}

static struct ng_box *made;
static int64_t held_mono_ns; /* 0: the clock runs */

void evidence_hold_clock(bool hold)
{
    /* Some milliseconds ago: no rank's moment is still to come. */
    held_mono_ns = hold ? ng_clock_mono_ns() - 100 * NG_MS : 0;
}

void evidence_beat(void)
{
    made->header->heartbeat_mono_ns = ng_clock_mono_ns();
}

void evidence_set_policies(uint32_t mildest, uint32_t ending)
{
    struct ng_box_header *header = made->header;

    header->mildest_policy = mildest;
    if (!ending)
        return;
    header->ending_mono_ns = ng_clock_mono_ns();
    header->ending_policy = ending;
    header->life = NG_BOX_ENDED_BY_GUARD;
}

struct evidence_end evidence_read_end(const char *path)
{
    struct evidence_end end = {0};
    struct ng_box box;

    if (ng_box_open(path, &box) != 0)
        return end;
    end.how = box.header->seen_end;
    end.when_mono_ns = box.header->seen_end_mono_ns;
    ng_box_close(&box, NULL);
    return end;
}

int evidence_finish(const char *path, uint64_t seq)
{
    struct ng_box box;

    int error = ng_box_open(path, &box);
    if (error)
        return error;
    off_t group = (off_t)box.header->groups_offset;
    ng_box_close(&box, NULL);
    int64_t now = ng_clock_mono_ns();
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done =
        fd >= 0 &&
        pwrite(fd, &seq, sizeof(seq), group + (off_t)offsetof(struct ng_box_group, completed)) ==
            sizeof(seq) &&
        pwrite(fd, &now, sizeof(now),
               group + (off_t)offsetof(struct ng_box_group, completed_mono_ns)) == sizeof(now);
    if (fd >= 0)
        close(fd);
    return done ? 0 : -EIO;
}

int evidence_exit_well(const char *path)
{
    uint32_t life = NG_BOX_EXITED;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && pwrite(fd, &life, sizeof(life), offsetof(struct ng_box_header, life)) ==
                               sizeof(life);
    if (fd >= 0)
        close(fd);
    return done ? 0 : -EIO;
}

int evidence_set(uint8_t timing)
{
    made->header->set[NG_SETTABLE_TIMING] = timing;
    return 0;
}

void evidence_set_run(uint64_t run)
{
    made->header->launch_run = run;
    made->groups[0].id += run;
}

int evidence_add_part(int rank)
{
    struct ng_box_group *group = &made->groups[1];

    made->header->rank = -1;
    if (rank < 0)
        return 0;
    int error = ng_box_reserve_group(made, 1);
    if (error)
        return error;
    group->id = GROUP_ID + 1;
    group->parent_id = GROUP_ID;
    group->nranks = 2;
    group->group_rank = rank;
    group->device = made->groups[0].device;
    ng_box_write_name(group, "part");
    group->state = NG_GROUP_READY;
    made->header->group_used = 2;
    return 0;
}

int evidence_make_box_of(const char *job, const char *group_name, const char *folder,
                         const struct evidence_rank *rank, int nranks)
{
    static struct ng_box box;
    struct ng_box_identity identity = {.rank = rank->rank,
                                       .world_size = nranks,
                                       .local_rank = rank->rank,
                                       .job = job,
                                       .run_id = getenv("NCCLGUARD_RUN_ID"),
                                       .timeout_ns = 600 * NG_S,
                                       .suspect_ns =
                                           rank->suspect_ms ? rank->suspect_ms * NG_MS : 5 * NG_S,
                                       .init_timeout_ns = 600 * NG_S,
                                       .faults = rank->rehearsed ? 2 : 0};

    identity.with_frames = identity.with_python = with_frames;
    int error = ng_box_create(folder, &identity, 64, &box);
    if (error)
        return error;
    made = &box;
    error = ng_box_reserve_group(&box, 0);
    if (error)
        return error;
    if (rank->rehearsed) {
        struct ng_logged_fault now = {
            .rank = rank->rank, .op = NG_OP_AllReduce, .group_id = GROUP_ID, .seq = rank->entered};
        ng_fault_log_arm(&box, 0, "rank=9:hang");
        ng_fault_log_arm(&box, 1, "op=AllReduce:delay=1s");
        ng_fault_log_add(&box, 1, &now, ng_clock_mono_ns());
    }
    struct ng_signature signature = all_reduce();
    struct ng_box_group *group = &box.groups[0];
    group->id = GROUP_ID;
    group->nranks = nranks;
    group->group_rank = rank->rank;
    ng_box_write_name(group, group_name);
    group->device = rank->rank;
    group->entered = group->scheduled = rank->entered;
    group->started = group->completed = rank->completed;
    group->last_call = ng_box_pack_call(signature.op, signature.dtype, signature.root);
    group->last_redop = signature.redop;
    group->last_count = signature.count;
    if (rank->pending_ms) {
        group->pending_record = group->pending_seq = rank->completed + 1;
        group->pending_age_ns = rank->pending_ms * NG_MS;
        group->pending_started = 1;
    }
    group->state = NG_GROUP_READY;
    box.header->group_used = 1;
    if (with_frames) {
        add_records(&box, rank->entered);
        error = add_all(&box, rank, nranks);
        if (error)
            return error;
    }
    /* The clock of a dead process is its last heartbeat. */
    int64_t now = held_mono_ns ? held_mono_ns + rank->rank * NG_MS : ng_clock_mono_ns();
    box.header->heartbeat_mono_ns = now - rank->dead_ms * NG_MS;
    if (rank->life == EVIDENCE_ENDED_BY_GUARD || rank->life == EVIDENCE_EXITED) {
        box.header->life_mono_ns = now - rank->dead_ms * NG_MS;
        box.header->exit_status = rank->life == EVIDENCE_EXITED;
        box.header->life = rank->life == EVIDENCE_EXITED ? NG_BOX_EXITED : NG_BOX_ENDED_BY_GUARD;
    }
    return 0;
}

int evidence_tell_incident(const char *folder, uint64_t seq, const char *line)
{
    struct ng_incident incident = {.level = NG_INCIDENT_SUSPECT,
                                   .group_id = GROUP_ID,
                                   .seq = seq,
                                   .op = NG_OP_AllReduce,
                                   .kind = (uint8_t)ng_verdict_kind_of_line(line)};
    uint32_t living;

    snprintf(incident.line, sizeof(incident.line), "%s", line);
    /* As a command is left there, which is complete as it is written. */
    return ng_local_leave(folder, 0, &incident, &living);
}

static uint64_t any(unsigned *seed, uint64_t limit)
{
    uint64_t number =
        ((uint64_t)rand_r(seed) << 40) ^ ((uint64_t)rand_r(seed) << 20) ^ (uint64_t)rand_r(seed);
    return limit ? number % limit : number;
}

/* Small, in the middle, or at the end of what 64 bits hold. */
static uint64_t any_count(unsigned *seed)
{
    switch (any(seed, 4)) {
    case 0:
        return any(seed, 10);
    case 1:
        return UINT64_MAX - any(seed, 3);
    default:
        return any(seed, 0);
    }
}

/* Of up to four frames; 0 none. */
static uint32_t any_call_stack(struct ng_view *view, unsigned *seed)
{
    static const char *const names[] = {NULL, "step", "main", "a \"b\" \xc3\xa9"};
    struct ng_view_frame frames[4];
    struct ng_view_call_stack stack = {.count = (uint32_t)any(seed, 5),
                                       .whole = any(seed, 2),
                                       .python_cut = any(seed, 2),
                                       .frames = frames};

    for (uint32_t i = 0; i < stack.count; i++) {
        bool is_python = any(seed, 2);
        frames[i] = (struct ng_view_frame){
            .module =
                any(seed, 2) ? ng_view_add_module(view, any(seed, 2) ? "/a" : "/b", "0a") : NULL,
            .offset = any_count(seed),
            .name = names[any(seed, 4)],
            .name_offset = any_count(seed),
            .is_python = is_python,
            .line = is_python ? (int32_t)any(seed, INT32_MAX) : 0};
    }
    return stack.count ? ng_view_copy_call_stack(view, &stack, 0) : 0;
}

static struct ng_signature any_signature(unsigned *seed)
{
    return (struct ng_signature){.op = (uint32_t)any(seed, NG_OP_LIMIT),
                                 .dtype = (int32_t)any(seed, 14) - 1,
                                 .redop = (int32_t)any(seed, 8) - 1,
                                 .root = (int32_t)any(seed, 9) - 1,
                                 .count = any_count(seed)};
}

/* What hangs together in no way: a reader has to bear any of it. */
static struct ng_view_record any_record(struct ng_view *view, unsigned *seed)
{
    struct ng_view_record record = {
        .id = 1 + any(seed, UINT32_MAX),
        .state = (enum ng_record_state)(1 + any(seed, NG_RECORD_UNWATCHED)),
        .signature = any_signature(seed),
        .coll_seq = any_count(seed),
        .p2p_seq = any_count(seed),
        .peer_ordinal = any(seed, 3),
        .entered_age_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS),
        .started_age_ns = any(seed, 2) ? (int64_t)any(seed, NG_VIEW_AGE_MAX_NS) : 0,
        .completed_age_ns = any(seed, 2) ? (int64_t)any(seed, NG_VIEW_AGE_MAX_NS) : 0,
        .stream = any(seed, 3),
        .work_previous = any(seed, 2) ? any(seed, UINT32_MAX) : 0,
        .caller = any(seed, 0),
        .flags = (uint32_t)any(seed, 16),
        .tid = (uint32_t)any(seed, 1 << 22),
        .result = (int)any(seed, 9),
        .rolling_hash = any(seed, 0),
        .duration_ns = any(seed, 2) ? (int64_t)any(seed, NG_S) : 0,
        .call_stack = any_call_stack(view, seed),
    };
    if (any(seed, 3) == 0) {
        record.graph = 1 + any(seed, 5);
        record.replay = any(seed, UINT32_MAX);
        record.graph_position = (uint32_t)any(seed, 200);
        record.graph_calls = (uint32_t)any(seed, 200);
    }
    return record;
}

/* Two sends and two receives of one NCCL group, between ranks 0 and 1. */
static void add_random_exchange(struct ng_view *view, struct ng_view_member *member, unsigned *seed)
{
    static const uint32_t ops[] = {NG_OP_Send, NG_OP_Recv, NG_OP_Send, NG_OP_Recv};
    uint64_t id = UINT64_C(1) << 40;

    for (uint32_t i = 0; i < 4; i++, id++) {
        struct ng_view_record *record = &member->records[member->record_count++];
        *record = any_record(view, seed);
        record->id = id;
        record->signature = (struct ng_signature){
            .op = ops[i], .dtype = 7, .redop = -1, .root = (int32_t)i / 2, .count = 512};
        record->p2p_seq = i + 1;
        record->flags = NG_RECORD_IN_GROUP | NG_RECORD_P2P;
        record->work_previous = i ? id - 1 : 0;
    }
}

static void add_random_member(struct ng_view *view, uint32_t index, unsigned *seed)
{
    const struct ng_view_group *group = &view->groups[index];
    struct ng_view_member *member =
        ng_view_add_member(view, 0, index, (int)any(seed, (unsigned)group->nranks));

    member->device = (int)any(seed, 9) - 1;
    member->nranks = group->nranks;
    member->nccl_version = group->nccl_version;
    member->state = (enum ng_group_state)any(seed, NG_GROUP_FAILED + 1);
    member->async_error = (int)any(seed, 8);
    member->cuda_error = (int)any(seed, 2) * 700;
    member->creator_tid = (uint32_t)any(seed, 1 << 22);
    member->ordinal = (uint32_t)any(seed, 5);
    member->derived = (uint32_t)any(seed, 5);
    for (unsigned i = 0; i < NG_OP_JOINT_CALLS; i++)
        member->host_calls.entered[i] = 1 + (uint32_t)any(seed, 5);
    member->host_calls.op = (uint32_t)any(seed, NG_OP_LIMIT);
    member->host_calls.tid = (uint32_t)any(seed, 1 << 22);
    member->host_calls.open = any(seed, 2);
    member->color = (int)any(seed, 4) - 1;
    member->created_by = (uint32_t)any(seed, NG_OP_LIMIT);
    member->created_age_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
    member->ended_age_ns = any(seed, 2) ? (int64_t)any(seed, NG_VIEW_AGE_MAX_NS) : 0;
    snprintf(member->pci_id, sizeof(member->pci_id), "0000:%02x:00.0", (unsigned)any(seed, 256));
    member->joined_id = any(seed, 2) ? any(seed, 0) : 0;
    member->excluded = any(seed, 2) ? any(seed, 0) : 0;
    member->rolling_hash = any(seed, 0);
    member->entered = any_count(seed);
    member->scheduled = any_count(seed);
    member->started = any_count(seed);
    member->completed = any_count(seed);
    member->p2p_entered = any_count(seed);
    member->p2p_completed = any_count(seed);
    member->last = any_signature(seed);
    member->timeout_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
    member->rests = any(seed, 2);
    member->coll_joined = any_count(seed);
    member->p2p_joined = any_count(seed);
    member->groups_closed = any_count(seed);
    member->pending_seq = any_count(seed);
    member->pending_record = any_count(seed);
    member->pending_age_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
    member->pending_started = any(seed, 2);
    member->pending_vague = any(seed, 2);
    member->pending_inferred = any(seed, 2);
    member->pending_unwatched = any(seed, 2);
    member->counted = any(seed, 2);
    member->counted_seq = member->counted ? any_count(seed) : 0;
    member->counted_left = member->counted ? (uint32_t)any(seed, 9) : 0;
    member->kernel = member->counted ? (uint8_t)any(seed, 3) : NG_KERNEL_UNKNOWN;
    uint32_t count = (uint32_t)any(seed, 20);
    member->records = ng_arena_alloc(&view->arena, (count + 5) * sizeof(*member->records));
    while (member->record_count < count)
        member->records[member->record_count++] = any_record(view, seed);
    if (any(seed, 2))
        add_random_exchange(view, member, seed);
    for (uint64_t i = any(seed, 6); i > 0; i--) {
        struct ng_view_sample sample = {any_count(seed) | 1, 1 + (uint32_t)any(seed, 3),
                                        1 + (int64_t)any(seed, NG_S)};
        ng_view_add_sample(view, member, &sample);
    }
}

static void add_random_process(struct ng_view *view, unsigned *seed)
{
    struct ng_view_process *process = ng_view_add_process(view);

    process->rank = (int)any(seed, 4) - 1;
    process->world_size = 4;
    process->local_rank = (int)any(seed, 4) - 1;
    process->pid = (int)any(seed, 1 << 22) + 1;
    process->uid = any(seed, 0);
    snprintf(process->host, sizeof(process->host), "node-%u", (unsigned)any(seed, 100));
    snprintf(process->program, sizeof(process->program), "train \"%u\"", (unsigned)any(seed, 9));
    process->life = (enum ng_life)any(seed, NG_LIFE_ENDED_BY_GUARD + 1);
    process->exit_status = (int)any(seed, 256);
    process->life_age_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
    process->alive_age_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
    process->moment_mono_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
    process->moment_unix_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
    process->quiet_ns = any(seed, 2) ? (int64_t)any(seed, NG_VIEW_AGE_MAX_NS) : 0;
    process->suspect_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
    process->cold_suspect_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
    if (any(seed, 2)) {
        process->watchdog_stuck_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
        snprintf(process->watchdog_in, sizeof(process->watchdog_in), "cuEventQuery");
    }
    if (any(seed, 2))
        snprintf(process->error_text, sizeof(process->error_text), "remote \t error");
    if (any(seed, 2))
        process->nan =
            (struct ng_view_nan){.age_ns = 1 + (int64_t)any(seed, NG_VIEW_AGE_MAX_NS - 1),
                                 .group_id = any(seed, UINT64_MAX),
                                 .seq = any(seed, 1 << 20),
                                 .op = NG_OP_AllReduce,
                                 .dtype = (int)any(seed, 12),
                                 .elements = any(seed, UINT64_MAX),
                                 .bad = any(seed, UINT64_MAX),
                                 .element = any(seed, UINT64_MAX),
                                 .bits = any(seed, UINT64_MAX),
                                 .held = any(seed, 2)};
    process->devices_age_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
    process->device_error_count = (uint32_t)any(seed, NG_DEVICE_ERRORS_MAX + 1);
    for (uint32_t i = 0; i < process->device_error_count; i++)
        process->device_errors[i] =
            (struct ng_device_error){.kind = 1 + (uint32_t)any(seed, NG_DEVICE_ERROR_KINDS - 1),
                                     .number = (uint32_t)any(seed, UINT32_MAX),
                                     .count = 1 + any(seed, UINT64_MAX - 1),
                                     .age_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS),
                                     .pci_id = "0000:1b:00.0"};
    if (any(seed, 2))
        snprintf(process->nccl_variables, sizeof(process->nccl_variables), "NCCL_ALGO=%s",
                 any(seed, 2) ? "Ring" : "Tree");
    for (uint64_t i = any(seed, 4); i > 0; i--) {
        struct ng_view_thread *thread = ng_view_add_thread(view, 0, (uint32_t)any(seed, 1 << 22));
        snprintf(thread->name, sizeof(thread->name), "thread %u", (unsigned)i);
    }
    for (uint64_t i = any(seed, 4); i > 0; i--) {
        struct ng_view_call *call = ng_view_add_call(view, 0);
        call->tid = (uint32_t)any(seed, UINT32_MAX);
        call->op = (enum ng_op)(1 + any(seed, NG_OP_LIMIT - 1));
        call->group_id = any(seed, 0);
        call->group_rank = (int)any(seed, 5) - 1;
        call->seq = any_count(seed);
        call->record_id = any_count(seed);
        call->age_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
    }
    for (uint64_t i = any(seed, 3); i > 0; i--) {
        struct ng_logged_fault fault = {.text = "rank=1,group=\"a:b\":hang",
                                        .times = 1 + any_count(seed) / 2,
                                        .rank = (int)any(seed, 5) - 1,
                                        .op = (enum ng_op)(1 + any(seed, NG_OP_LIMIT - 1)),
                                        .group_id = any(seed, 0),
                                        .seq = any_count(seed)};
        struct ng_view_fault *told = ng_view_add_fault(view, 0, &fault);
        told->first_age_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
        told->last_age_ns = (int64_t)any(seed, NG_VIEW_AGE_MAX_NS);
    }
}

static void add_random_duration(struct ng_view *view, uint64_t group_id, unsigned *seed)
{
    struct ng_duration duration = {.group_id = group_id,
                                   .op = (enum ng_op)(1 + any(seed, NG_OP_LIMIT - 1)),
                                   .size_class = (uint32_t)any(seed, 40),
                                   .min_ns = 1000,
                                   .max_ns = 1000 + any(seed, NG_S)};

    for (unsigned i = 0; i < NG_DURATION_BUCKETS; i++)
        duration.count += duration.histogram[i] = any(seed, 3);
    duration.count++;
    duration.sum_ns = duration.count * duration.min_ns;
    ng_view_add_duration(view, 0, &duration);
}

void evidence_add_random(struct ng_view *view, unsigned seed)
{
    add_random_process(view, &seed);
    for (uint64_t i = any(&seed, 5); i > 0; i--) {
        uint32_t index = ng_view_intern_group(view, 1 + any(&seed, 0));
        struct ng_view_group *group = &view->groups[index];
        group->nranks = 1 + (int)any(&seed, 8);
        group->parent_id = any(&seed, 2) ? any(&seed, 0) : 0;
        group->nccl_version = 22809;
        snprintf(group->name, sizeof(group->name), "tensor\tparallel %u", (unsigned)i);
        add_random_member(view, index, &seed);
        add_random_duration(view, view->groups[index].id, &seed);
    }
    for (uint64_t i = any(&seed, 3); i > 0; i--) {
        int nranks = 1 + (int)any(&seed, 8);
        struct ng_view_failure *failure =
            ng_view_add_failure(view, 0, 1 + any(&seed, 0), (int)any(&seed, (unsigned)nranks));
        failure->member.nranks = nranks;
        failure->member.nccl_version = 22809;
        failure->member.device = (int)any(&seed, 9) - 1;
        failure->member.created_by = NG_OP_CommInitRank;
        failure->member.created_age_ns = (int64_t)any(&seed, NG_VIEW_AGE_MAX_NS);
    }
}

int evidence_write_random(const char *folder, unsigned seed, char *ret_name, size_t bytes)
{
    struct ng_view view;

    ng_view_init(&view);
    snprintf(view.job, sizeof(view.job), "job \"%u\" \xc3\xa9 \n", seed);
    evidence_add_random(&view, seed);
    ng_view_seal(&view);
    ng_dump_name(&view, 0, ret_name, bytes);
    int error = ng_dump_save_process(&view, 0, folder);
    ng_view_fini(&view);
    return error;
}

int evidence_write_random_flight(const char *folder, unsigned seed)
{
    struct ng_view view;

    ng_view_init(&view);
    evidence_add_random(&view, seed);
    ng_view_seal(&view);
    int error = ng_flight_save_process(&view, 0, folder);
    ng_view_fini(&view);
    return error;
}

int evidence_copy_dump(const char *path, const char *folder, char *why, size_t why_bytes)
{
    struct ng_view view;

    ng_view_init(&view);
    int error = ng_read_dump(&view, path, "copied", why, why_bytes);
    if (!error) {
        ng_view_seal(&view);
        error = ng_dump_save_process(&view, 0, folder);
    }
    ng_view_fini(&view);
    return error;
}

int evidence_judge(const char *path, int64_t stalled_ns)
{
    struct ng_view view;
    struct ng_verdict verdict;
    struct ng_box_header header;
    struct ng_verdict_query query = {.stalled_ns = stalled_ns};
    char why[256];

    ng_view_init(&view);
    int error = ng_read_dump(&view, path, "file", why, sizeof(why));
    if (error)
        error = ng_read_box(&view, path, "file", ng_clock_mono_ns(), &header, why, sizeof(why));
    ng_view_seal(&view);
    if (!error && ng_verdict_reach(&view, &query, &verdict) == 0)
        ng_verdict_fini(&verdict);
    ng_view_fini(&view);
    return error;
}
