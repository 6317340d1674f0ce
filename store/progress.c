/*
 * One process of a view in a few bytes, and back.
 *
 * Step 8. Pure: no clock, no lock, no malloc, entered by the thread that publishes and by those who
 * reach a verdict or show a job. Must take any bytes for what they are: the store is not ours
 * alone.
 */
#include "store/progress.h"

#include <errno.h>
#include <string.h>

static const char magic[4] = {'N', 'G', 'P', 'R'};

/* Bits of the head, of a member, and of a record. */
enum { HEAD_WATCHDOG = 1, HEAD_ERROR = 2, HEAD_VARIABLES = 4, HEAD_FAILURES = 8, HEAD_MEMORY = 16, HEAD_NAN = 32,
       HEAD_ALIVE = 64 };
enum {
    MEMBER_HASH = 1,
    MEMBER_LAST = 2,
    MEMBER_PENDING = 4,
    MEMBER_STARTED = 8,
    MEMBER_TIMEOUT = 16,
    MEMBER_JOINED = 32,
    MEMBER_GROWN = 64,
    MEMBER_SAMPLES = 128,
    MEMBER_RESTS = 256,
    MEMBER_UNLIKE = 512,
    MEMBER_REGISTRATION = 1024,
    MEMBER_VAGUE = 2048
};
enum {
    SAME_SIGNATURE = 1,
    SAME_CALLER = 2,
    SAME_TID = 4,
    RECORD_HASH = 8,
    RECORD_STARTED = 16,
    RECORD_COMPLETED = 32,
    OTHER_STREAM = 64,
    RECORD_JOINED = 128,
    RECORD_DURATION = 256,
    RECORD_REPLAY = 512
};

/* Parents and groups of calls: an index in the blob's groups follows from here. */
enum { ID_NONE = 0, ID_FIXED = 1, ID_INDEX = 2 };

/* No block of ours is longer: all texts, and all numbers at their longest. */
#define BLOCK_BYTES  1280u
#define NUMBER_BYTES 10u

/* Injected faults of a process that are told; a specification has no more. */
#define PROGRESS_FAULTS   16u
#define PROGRESS_FAILURES 64u

/* ---- Writing ---- */

/* Room is counted beforehand: writing cannot fail. */
struct writer {
    unsigned char *bytes;
    size_t used;
    const char *texts[NG_PROGRESS_TEXTS];
    uint32_t text_count;
    const struct ng_view *view;
    uint32_t process;
    uint32_t *groups; /* of the blob: index in the view */
    uint32_t group_count;
    uint32_t *group_places; /* of the view: place in the blob + 1 */
    uint32_t failures;      /* of the process */
    struct ng_view_record before;
};

static void put_number(struct writer *writer, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        writer->bytes[writer->used++] = (unsigned char)(value | 0x80);
    writer->bytes[writer->used++] = (unsigned char)value;
}

static void put_signed(struct writer *writer, int64_t value)
{
    put_number(writer, (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0));
}

/* How much further `value` is than `before`; any two numbers have such a difference. */
static void put_difference(struct writer *writer, uint64_t value, uint64_t before)
{
    put_signed(writer, (int64_t)(value - before));
}

static void put_fixed(struct writer *writer, uint64_t value)
{
    for (int i = 0; i < 8; i++, value >>= 8)
        writer->bytes[writer->used++] = (unsigned char)value;
}

/* For fields that a block has grown by: whoever does not know them counts no text of theirs. */
static void put_plain_text(struct writer *writer, const char *text, size_t room)
{
    size_t length = strnlen(text, room - 1);

    put_number(writer, (uint64_t)length << 1);
    memcpy(writer->bytes + writer->used, text, length);
    writer->used += length;
}

static void put_text(struct writer *writer, const char *text, size_t room)
{
    size_t length = strnlen(text, room - 1);

    for (uint32_t i = 0; length && i < writer->text_count; i++)
        if (strnlen(writer->texts[i], length + 1) == length &&
            memcmp(writer->texts[i], text, length) == 0) {
            put_number(writer, (uint64_t)i << 1 | 1);
            return;
        }
    put_plain_text(writer, text, room);
    if (length && writer->text_count < NG_PROGRESS_TEXTS)
        writer->texts[writer->text_count++] = text;
}

/* A block begins: returns where. */
static size_t open_block(struct writer *writer)
{
    return writer->used++;
}

/* Most lengths need one byte; otherwise the block moves along by one. */
static void close_block(struct writer *writer, size_t start)
{
    size_t length = writer->used - start - 1;

    if (length >= 0x80) {
        memmove(writer->bytes + start + 2, writer->bytes + start + 1, length);
        writer->bytes[start + 1] = (unsigned char)(length >> 7);
        writer->used++;
    }
    writer->bytes[start] = (unsigned char)(length >= 0x80 ? (length & 0x7f) | 0x80 : length);
}

static void put_signature(struct writer *writer, const struct ng_signature *signature)
{
    put_number(writer, signature->op);
    put_signed(writer, signature->dtype);
    put_signed(writer, signature->redop);
    put_signed(writer, signature->root);
    put_number(writer, signature->count);
}

static void put_id(struct writer *writer, uint64_t id)
{
    if (!id) {
        put_number(writer, ID_NONE);
        return;
    }
    for (uint32_t i = 0; i < writer->group_count; i++)
        if (writer->view->groups[writer->groups[i]].id == id) {
            put_number(writer, (uint64_t)ID_INDEX + i);
            return;
        }
    put_number(writer, ID_FIXED);
    put_fixed(writer, id);
}

static void put_faults(struct writer *writer)
{
    const struct ng_view *view = writer->view;
    uint32_t left = PROGRESS_FAULTS, count = 0;

    for (uint32_t i = 0; i < view->fault_count; i++)
        count += view->faults[i].process == writer->process;
    put_number(writer, count < left ? count : left);
    for (uint32_t i = 0; i < view->fault_count && left; i++) {
        const struct ng_view_fault *told = &view->faults[i];
        if (told->process != writer->process)
            continue;
        left--;
        put_plain_text(writer, told->fault.text, sizeof(told->fault.text));
        put_number(writer, told->fault.times);
        put_signed(writer, told->fault.rank);
        put_number(writer, told->fault.op);
        put_fixed(writer, told->fault.group_id);
        put_number(writer, told->fault.seq);
        put_signed(writer, told->first_age_ns);
        put_signed(writer, told->last_age_ns);
    }
}

static void put_memory(struct writer *writer, const struct ng_view_process *process)
{
    put_number(writer, process->memory_kinds);
    for (uint32_t i = 0; i < process->memory_kinds; i++) {
        put_number(writer, process->memory[i].segments);
        put_number(writer, process->memory[i].bytes);
    }
}

static void put_nan(struct writer *writer, const struct ng_view_nan *nan)
{
    put_signed(writer, nan->age_ns);
    put_fixed(writer, nan->group_id);
    put_number(writer, nan->seq);
    put_number(writer, nan->op);
    put_signed(writer, nan->dtype);
    put_number(writer, nan->elements);
    put_number(writer, nan->bad);
    put_number(writer, nan->element);
    put_fixed(writer, nan->bits);
    put_number(writer, nan->held);
}

static void put_head(struct writer *writer, const struct ng_progress_limits *limits)
{
    const struct ng_view_process *process = &writer->view->processes[writer->process];
    size_t block = open_block(writer);

    put_fixed(writer, process->uid);
    put_fixed(writer, limits->label);
    put_signed(writer, limits->written_unix_ns);
    put_number(writer, limits->reason);
    put_number(writer, process->life);
    put_signed(writer, process->exit_status);
    put_signed(writer, process->life_age_ns);
    put_signed(writer, process->rank);
    put_signed(writer, process->world_size);
    put_signed(writer, process->local_rank);
    put_signed(writer, process->pid);
    put_text(writer, process->host, sizeof(process->host));
    put_text(writer, process->program, sizeof(process->program));
    put_number(writer, (process->watchdog_stuck_ns ? HEAD_WATCHDOG : 0) |
                           (process->error_text[0] ? HEAD_ERROR : 0) |
                           (process->nccl_variables[0] ? HEAD_VARIABLES : 0) |
                           (writer->failures ? HEAD_FAILURES : 0) |
                           (process->memory_kinds ? HEAD_MEMORY : 0) |
                           (process->nan.age_ns ? HEAD_NAN : 0) |
                           (process->alive_age_ns ? HEAD_ALIVE : 0));
    if (process->watchdog_stuck_ns) {
        put_signed(writer, process->watchdog_stuck_ns);
        put_text(writer, process->watchdog_in, sizeof(process->watchdog_in));
    }
    if (process->error_text[0])
        put_text(writer, process->error_text, sizeof(process->error_text));
    if (process->nccl_variables[0])
        put_plain_text(writer, process->nccl_variables, sizeof(process->nccl_variables));
    put_faults(writer);
    if (process->memory_kinds)
        put_memory(writer, process);
    if (process->nan.age_ns)
        put_nan(writer, &process->nan);
    if (process->alive_age_ns)
        put_signed(writer, process->alive_age_ns);
    close_block(writer, block);
}

static void put_groups(struct writer *writer)
{
    put_number(writer, writer->group_count);
    for (uint32_t i = 0; i < writer->group_count; i++)
        put_fixed(writer, writer->view->groups[writer->groups[i]].id);
    for (uint32_t i = 0; i < writer->group_count; i++) {
        const struct ng_view_group *group = &writer->view->groups[writer->groups[i]];
        size_t block = open_block(writer);
        put_id(writer, group->parent_id);
        put_signed(writer, group->nranks);
        put_signed(writer, group->nccl_version);
        put_text(writer, group->name, sizeof(group->name));
        close_block(writer, block);
    }
}

static bool alike(const struct ng_signature *a, const struct ng_signature *b)
{
    return a->op == b->op && a->dtype == b->dtype && a->redop == b->redop && a->root == b->root &&
           a->count == b->count;
}

static void put_samples(struct writer *writer, const struct ng_view_member *member)
{
    uint32_t count = member->sample_count < NG_PROGRESS_SAMPLES ? member->sample_count
                                                                : NG_PROGRESS_SAMPLES;
    uint64_t before = 0;

    put_number(writer, count);
    for (uint32_t i = member->sample_count - count; i < member->sample_count; i++) {
        put_difference(writer, member->samples[i].seq, before);
        put_number(writer, member->samples[i].calls);
        put_number(writer, (uint64_t)member->samples[i].duration_ns);
        before = member->samples[i].seq;
    }
}

static void put_registration(struct writer *writer, const struct ng_view_registration *told)
{
    put_number(writer, told->closed);
    put_number(writer, told->segments);
    put_number(writer, told->segment_bytes);
    put_number(writer, told->bytes);
    put_number(writer, told->registered_bytes);
    put_number(writer, told->made);
    put_number(writer, told->ended);
    put_number(writer, told->failed);
    put_number(writer, told->deferred);
    put_number(writer, told->spent_ns);
}

static void put_member(struct writer *writer, const struct ng_view_member *member)
{
    size_t block = open_block(writer);
    static const struct ng_signature none;
    bool pending = member->pending_record || member->pending_seq || member->pending_age_ns;
    bool last = !alike(&member->last, &none);
    bool joined = member->coll_joined || member->p2p_joined || member->groups_closed;
    bool grown = member->joined_id || member->excluded;
    const struct ng_view_group *group = &writer->view->groups[member->group];
    bool unlike = (member->nranks && member->nranks != group->nranks) ||
                  (member->nccl_version && member->nccl_version != group->nccl_version);

    put_number(writer, (member->rolling_hash ? MEMBER_HASH : 0) | (last ? MEMBER_LAST : 0) |
                           (pending ? MEMBER_PENDING : 0) |
                           (member->pending_started ? MEMBER_STARTED : 0) |
                           (member->timeout_ns ? MEMBER_TIMEOUT : 0) |
                           (joined ? MEMBER_JOINED : 0) | (grown ? MEMBER_GROWN : 0) |
                           (member->sample_count ? MEMBER_SAMPLES : 0) |
                           (member->rests ? MEMBER_RESTS : 0) | (unlike ? MEMBER_UNLIKE : 0) |
                           (member->registration.known ? MEMBER_REGISTRATION : 0) |
                           (member->pending_vague ? MEMBER_VAGUE : 0));
    put_number(writer, writer->group_places[member->group] - 1);
    put_signed(writer, member->group_rank);
    put_signed(writer, member->device);
    put_number(writer, member->state);
    put_signed(writer, member->async_error);
    put_signed(writer, member->cuda_error);
    put_number(writer, member->creator_tid);
    put_number(writer, member->ordinal);
    put_number(writer, member->derived);
    put_number(writer, member->entered);
    put_difference(writer, member->entered, member->scheduled);
    put_difference(writer, member->scheduled, member->started);
    put_difference(writer, member->started, member->completed);
    put_number(writer, member->p2p_entered);
    put_difference(writer, member->p2p_entered, member->p2p_completed);
    put_signed(writer, member->color);
    put_number(writer, member->created_by);
    put_signed(writer, member->created_age_ns);
    put_signed(writer, member->ended_age_ns);
    put_text(writer, member->pci_id, sizeof(member->pci_id));
    if (member->rolling_hash)
        put_fixed(writer, member->rolling_hash);
    if (last)
        put_signature(writer, &member->last);
    if (pending) {
        put_number(writer, member->pending_seq);
        put_number(writer, member->pending_record);
        put_signed(writer, member->pending_age_ns);
    }
    if (member->timeout_ns)
        put_signed(writer, member->timeout_ns);
    if (joined) {
        put_number(writer, member->coll_joined);
        put_number(writer, member->p2p_joined);
        put_number(writer, member->groups_closed);
    }
    if (grown) {
        put_id(writer, member->joined_id);
        put_id(writer, member->excluded);
    }
    if (member->sample_count)
        put_samples(writer, member);
    if (unlike) {
        put_signed(writer, member->nranks);
        put_signed(writer, member->nccl_version);
    }
    if (member->registration.known)
        put_registration(writer, &member->registration);
    close_block(writer, block);
}

static void put_record(struct writer *writer, const struct ng_view_record *record)
{
    const struct ng_view_record *before = &writer->before;
    size_t block = open_block(writer);
    unsigned bits = (alike(&record->signature, &before->signature) ? SAME_SIGNATURE : 0) |
                    (record->caller == before->caller ? SAME_CALLER : 0) |
                    (record->tid == before->tid ? SAME_TID : 0) |
                    (record->rolling_hash ? RECORD_HASH : 0) |
                    (record->started_age_ns ? RECORD_STARTED : 0) |
                    (record->completed_age_ns ? RECORD_COMPLETED : 0) |
                    (record->stream != before->stream ? OTHER_STREAM : 0) |
                    (record->work_previous ? RECORD_JOINED : 0) |
                    (record->duration_ns ? RECORD_DURATION : 0) |
                    (record->graph ? RECORD_REPLAY : 0);

    put_number(writer, bits);
    put_difference(writer, record->id, before->id);
    put_difference(writer, record->coll_seq, before->coll_seq);
    put_difference(writer, record->p2p_seq, before->p2p_seq);
    put_difference(writer, (uint64_t)record->entered_age_ns, (uint64_t)before->entered_age_ns);
    put_number(writer, record->state);
    put_number(writer, record->peer_ordinal);
    put_number(writer, record->flags);
    put_signed(writer, record->result);
    if (!(bits & SAME_SIGNATURE))
        put_signature(writer, &record->signature);
    if (!(bits & SAME_CALLER))
        put_number(writer, record->caller);
    if (!(bits & SAME_TID))
        put_number(writer, record->tid);
    if (bits & RECORD_HASH)
        put_fixed(writer, record->rolling_hash);
    if (bits & RECORD_STARTED)
        put_difference(writer, (uint64_t)record->entered_age_ns, (uint64_t)record->started_age_ns);
    if (bits & RECORD_COMPLETED)
        put_difference(writer, (uint64_t)record->entered_age_ns,
                       (uint64_t)record->completed_age_ns);
    if (bits & OTHER_STREAM)
        put_number(writer, record->stream);
    if (bits & RECORD_JOINED)
        put_difference(writer, record->id, record->work_previous);
    if (bits & RECORD_DURATION)
        put_number(writer, (uint64_t)record->duration_ns);
    if (bits & RECORD_REPLAY) {
        put_difference(writer, record->graph, before->graph);
        put_difference(writer, record->replay, before->replay);
        put_number(writer, record->graph_position);
        put_number(writer, record->graph_calls);
    }
    close_block(writer, block);
    writer->before = *record;
}

static void put_call(struct writer *writer, const struct ng_view_call *call)
{
    size_t block = open_block(writer);

    put_number(writer, call->tid);
    put_number(writer, call->op);
    put_id(writer, call->group_id);
    put_signed(writer, call->group_rank);
    put_number(writer, call->seq);
    put_number(writer, call->record_id);
    put_signed(writer, call->age_ns);
    close_block(writer, block);
}

static void put_failure(struct writer *writer, const struct ng_view_failure *failure)
{
    const struct ng_view_member *member = &failure->member;
    size_t block = open_block(writer);

    put_fixed(writer, failure->group_id);
    put_signed(writer, member->group_rank);
    put_signed(writer, member->nranks);
    put_signed(writer, member->nccl_version);
    put_signed(writer, member->device);
    put_text(writer, member->pci_id, sizeof(member->pci_id));
    put_number(writer, member->created_by);
    put_signed(writer, member->created_age_ns);
    put_signed(writer, member->ended_age_ns);
    close_block(writer, block);
}

/* The newest of the process: all of them, unless it fails again and again. */
static void put_failures(struct writer *writer)
{
    const struct ng_view *view = writer->view;
    uint32_t count = writer->failures, passed = 0;
    uint32_t told = count < PROGRESS_FAILURES ? count : PROGRESS_FAILURES;

    put_number(writer, told);
    for (uint32_t i = 0; i < view->failure_count; i++)
        if (view->failures[i].member.process == writer->process && ++passed > count - told)
            put_failure(writer, &view->failures[i]);
}

/* ---- Which records ---- */

static bool unfinished(const struct ng_view_record *record)
{
    return record->state == NG_RECORD_ENTERED || record->state == NG_RECORD_SCHEDULED ||
           record->state == NG_RECORD_STARTED;
}

/* Records of one kind that are told: those with ids of `first` to `last`, `room` of them. */
struct choice {
    uint64_t first, last;
    uint32_t room;
};

static uint32_t count_records(const struct writer *writer, bool of_unfinished,
                              const struct choice *choice)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < writer->view->member_count; i++) {
        const struct ng_view_member *member = &writer->view->members[i];
        if (member->process != writer->process)
            continue;
        for (uint32_t k = 0; k < member->record_count; k++)
            if (unfinished(&member->records[k]) == of_unfinished &&
                member->records[k].id >= choice->first && member->records[k].id <= choice->last)
                count++;
    }
    return count;
}

/* The oldest that are not finished, for in those things are stuck; of the others the newest. */
static void choose(const struct writer *writer, bool of_unfinished, uint32_t room,
                   struct choice *ret_choice)
{
    struct choice all = {.first = 0, .last = UINT64_MAX};
    uint64_t low = 0, high = UINT64_MAX;

    *ret_choice = (struct choice){.first = 0, .last = UINT64_MAX, .room = room};
    if (count_records(writer, of_unfinished, &all) <= room)
        return;
    /* The id from which on, or up to which, there are just as many. */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        struct choice part = {.first = of_unfinished ? 0 : middle + 1,
                              .last = of_unfinished ? middle : UINT64_MAX};
        uint32_t count = count_records(writer, of_unfinished, &part);
        if (of_unfinished ? count < room : count > room)
            low = middle + 1;
        else
            high = middle;
    }
    if (of_unfinished)
        ret_choice->last = low;
    else
        ret_choice->first = low + 1;
}

static bool is_chosen(const struct choice *choice, const struct ng_view_record *record)
{
    return choice->room && record->id >= choice->first && record->id <= choice->last;
}

static void put_records(struct writer *writer, const struct ng_view_member *member,
                        struct choice choices[2])
{
    struct choice counting[2] = {choices[0], choices[1]};
    uint32_t count = 0;

    for (uint32_t k = 0; k < member->record_count; k++) {
        struct choice *choice = &counting[unfinished(&member->records[k])];
        if (is_chosen(choice, &member->records[k])) {
            choice->room--;
            count++;
        }
    }
    put_number(writer, count);
    for (uint32_t k = 0; k < member->record_count; k++) {
        struct choice *choice = &choices[unfinished(&member->records[k])];
        if (is_chosen(choice, &member->records[k])) {
            choice->room--;
            put_record(writer, &member->records[k]);
        }
    }
}

int ng_progress_encode(const struct ng_view *view, uint32_t process,
                       const struct ng_progress_limits *limits, struct ng_arena *arena,
                       const void **ret_data, size_t *ret_bytes)
{
    struct writer writer = {.view = view, .process = process};
    struct choice choices[2]; /* finished, unfinished */
    uint32_t members = 0, calls = 0, faults = 0;

    if (process >= view->process_count)
        return -EINVAL;
    writer.groups = ng_arena_alloc(arena, (view->group_count + 1) * sizeof(*writer.groups));
    writer.group_places =
        ng_arena_alloc(arena, (view->group_count + 1) * sizeof(*writer.group_places));
    if (!writer.groups || !writer.group_places)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->member_count; i++) {
        uint32_t group = view->members[i].group;
        if (view->members[i].process != process)
            continue;
        members++;
        if (!writer.group_places[group]) {
            writer.groups[writer.group_count++] = group;
            writer.group_places[group] = writer.group_count;
        }
    }
    for (uint32_t i = 0; i < view->call_count; i++)
        calls += view->calls[i].process == process;
    for (uint32_t i = 0; i < view->fault_count; i++)
        faults += view->faults[i].process == process;
    for (uint32_t i = 0; i < view->failure_count; i++)
        writer.failures += view->failures[i].member.process == process;
    choose(&writer, true, limits->records, &choices[1]);
    uint32_t told = count_records(&writer, true, &choices[1]);
    choose(&writer, false, told < limits->records ? limits->records - told : 0, &choices[0]);

    uint64_t blocks =
        5 + (uint64_t)members + writer.group_count + calls + faults + PROGRESS_FAILURES +
        limits->records;
    struct choice all = {.first = 0, .last = UINT64_MAX};
    uint64_t records =
        (uint64_t)count_records(&writer, true, &all) + count_records(&writer, false, &all);
    if (limits->records > records)
        blocks += records - limits->records;
    writer.bytes = ng_arena_alloc(arena, blocks * (BLOCK_BYTES + NUMBER_BYTES));
    if (!writer.bytes)
        return -ENOMEM;

    memcpy(writer.bytes, magic, sizeof(magic));
    writer.used = sizeof(magic);
    put_number(&writer, NG_PROGRESS_VERSION);
    put_head(&writer, limits);
    put_text(&writer, view->processes[process].source, sizeof(view->processes[process].source));
    put_groups(&writer);
    put_number(&writer, members);
    for (uint32_t i = 0; i < view->member_count; i++)
        if (view->members[i].process == process) {
            put_member(&writer, &view->members[i]);
            put_records(&writer, &view->members[i], choices);
        }
    put_number(&writer, calls);
    for (uint32_t i = 0; i < view->call_count; i++)
        if (view->calls[i].process == process)
            put_call(&writer, &view->calls[i]);
    if (writer.failures)
        put_failures(&writer);
    if (writer.used > NG_PROGRESS_BYTES_MAX)
        return -EMSGSIZE;
    *ret_data = writer.bytes;
    *ret_bytes = writer.used;
    return 0;
}

/* ---- Reading ---- */

/*
 * Everything is read twice, at first with `append` false, to find out whether it is whole. A
 * failure is noted and zeros are read from there on.
 */
struct reader {
    const unsigned char *at, *end;
    bool bad;
    struct {
        const unsigned char *start;
        size_t length;
    } texts[NG_PROGRESS_TEXTS];
    uint32_t text_count;
    struct ng_view *view;
    bool append;
    bool short_of_memory;
    uint32_t process;
    const unsigned char *group_ids;
    struct group *groups;
    uint32_t group_count;
    struct ng_view_fault faults[PROGRESS_FAULTS];
    uint32_t fault_count;
    bool tells_failures; /* behind the calls */
    struct ng_view_record before;
};

/* A group of the blob. */
struct group {
    uint32_t index; /* in the view */
    int nranks, nccl_version;
};

static uint64_t get_number(struct reader *reader)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        if (reader->at == reader->end)
            break;
        unsigned byte = *reader->at++;
        if (shift == 63 && byte > 1)
            break;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    reader->bad = true;
    return 0;
}

static uint64_t get_number_below(struct reader *reader, uint64_t limit)
{
    uint64_t value = get_number(reader);

    if (value < limit)
        return value;
    reader->bad = true;
    return 0;
}

static uint32_t get_uint32(struct reader *reader)
{
    return (uint32_t)get_number_below(reader, (uint64_t)UINT32_MAX + 1);
}

static int64_t get_signed(struct reader *reader)
{
    uint64_t folded = get_number(reader);

    return (int64_t)(folded >> 1 ^ (folded & 1 ? UINT64_MAX : 0));
}

static int get_int(struct reader *reader)
{
    int64_t value = get_signed(reader);

    if (value >= INT32_MIN && value <= INT32_MAX)
        return (int)value;
    reader->bad = true;
    return 0;
}

static int64_t get_age(struct reader *reader)
{
    return ng_view_age(get_signed(reader));
}

static uint64_t get_difference(struct reader *reader)
{
    return (uint64_t)get_signed(reader);
}

static uint64_t fixed_at(const unsigned char *bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < 8; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

static uint64_t get_fixed(struct reader *reader)
{
    if (reader->end - reader->at < 8) {
        reader->bad = true;
        return 0;
    }
    reader->at += 8;
    return fixed_at(reader->at - 8);
}

/* A longer text than there is room for, or one with a 0 in it, is cut. */
static void get_any_text(struct reader *reader, bool plain, char *ret_text, size_t room)
{
    uint64_t number = get_number(reader), length = number >> 1;
    const unsigned char *start = reader->at;

    ret_text[0] = '\0';
    if (plain && (number & 1)) {
        reader->bad = true;
        return;
    }
    if (number & 1) {
        if (length >= reader->text_count) {
            reader->bad = true;
            return;
        }
        start = reader->texts[length].start;
        length = reader->texts[length].length;
    } else {
        if (length > (uint64_t)(reader->end - reader->at)) {
            reader->bad = true;
            return;
        }
        reader->at += length;
        if (!plain && length && reader->text_count < NG_PROGRESS_TEXTS) {
            reader->texts[reader->text_count].start = start;
            reader->texts[reader->text_count++].length = (size_t)length;
        }
    }
    if (length > room - 1)
        length = room - 1;
    memcpy(ret_text, start, (size_t)length);
    ret_text[length] = '\0';
}

static void get_text(struct reader *reader, char *ret_text, size_t room)
{
    get_any_text(reader, false, ret_text, room);
}

static void get_plain_text(struct reader *reader, char *ret_text, size_t room)
{
    get_any_text(reader, true, ret_text, room);
}

/* A block begins: the reader ends with it. Returns the end of all. */
static const unsigned char *open_reading(struct reader *reader)
{
    const unsigned char *end = reader->end;
    uint64_t length = get_number(reader);

    if (length > (uint64_t)(reader->end - reader->at)) {
        reader->bad = true;
        length = 0;
    }
    reader->end = reader->at + length;
    return end;
}

/* What a later writer added is skipped. */
static void close_reading(struct reader *reader, const unsigned char *end)
{
    reader->at = reader->end;
    reader->end = end;
}

/* How many blocks follow: no more than there are bytes. */
static uint32_t get_count(struct reader *reader)
{
    return (uint32_t)get_number_below(reader, (uint64_t)(reader->end - reader->at) + 1);
}

static void get_signature(struct reader *reader, struct ng_signature *ret_signature)
{
    ret_signature->op = get_uint32(reader);
    ret_signature->dtype = get_int(reader);
    ret_signature->redop = get_int(reader);
    ret_signature->root = get_int(reader);
    ret_signature->count = get_number(reader);
}

static uint64_t get_id(struct reader *reader)
{
    uint64_t number = get_number(reader);

    if (number == ID_NONE)
        return 0;
    if (number == ID_FIXED)
        return get_fixed(reader);
    if (number - ID_INDEX < reader->group_count)
        return fixed_at(reader->group_ids + 8 * (number - ID_INDEX));
    reader->bad = true;
    return 0;
}

/* Writers before them end here. */
static void get_faults(struct reader *reader)
{
    uint32_t count = reader->at < reader->end
                         ? (uint32_t)get_number_below(reader, PROGRESS_FAULTS + 1)
                         : 0;

    reader->fault_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct ng_view_fault *told = &reader->faults[reader->fault_count];
        *told = (struct ng_view_fault){0};
        get_plain_text(reader, told->fault.text, sizeof(told->fault.text));
        told->fault.times = get_number(reader);
        told->fault.rank = get_int(reader);
        uint32_t op = get_uint32(reader);
        told->fault.op = (enum ng_op)op;
        told->fault.group_id = get_fixed(reader);
        told->fault.seq = get_number(reader);
        told->first_age_ns = get_age(reader);
        told->last_age_ns = get_age(reader);
        reader->fault_count += op < NG_OP_LIMIT; /* else only a later version knows it */
    }
}

/* Kinds beyond those that there is room for only a later version knows. */
static void get_memory(struct reader *reader, bool told, struct ng_progress_head *ret_head)
{
    uint64_t kinds = told ? get_number_below(reader, 256) : 0;

    ret_head->memory_kinds = kinds < NG_BOX_MEMORY_KINDS ? (uint32_t)kinds : NG_BOX_MEMORY_KINDS;
    for (uint64_t i = 0; i < kinds; i++) {
        struct ng_memory_sum sum = {.segments = get_number(reader)};
        sum.bytes = get_number(reader);
        if (i < NG_BOX_MEMORY_KINDS)
            ret_head->memory[i] = sum;
    }
}

static void get_nan(struct reader *reader, bool told, struct ng_view_nan *ret_nan)
{
    *ret_nan = (struct ng_view_nan){0};
    if (!told)
        return;
    struct ng_view_nan nan = {.age_ns = get_age(reader)};
    nan.group_id = get_fixed(reader);
    nan.seq = get_number(reader);
    uint32_t op = get_uint32(reader);
    nan.op = (enum ng_op)op;
    nan.dtype = get_int(reader);
    nan.elements = get_number(reader);
    nan.bad = get_number(reader);
    nan.element = get_number(reader);
    nan.bits = get_fixed(reader);
    nan.held = get_number(reader);
    if (op < NG_OP_LIMIT) /* else only a later version knows it */
        *ret_nan = nan;
}

static void get_head(struct reader *reader, struct ng_progress_head *ret_head)
{
    const unsigned char *end = open_reading(reader);

    ret_head->watchdog_stuck_ns = 0;
    ret_head->watchdog_in[0] = ret_head->error_text[0] = '\0';
    ret_head->uid = get_fixed(reader);
    ret_head->label = get_fixed(reader);
    ret_head->written_unix_ns = get_signed(reader);
    ret_head->reason = (enum ng_progress_reason)get_number_below(reader, 256);
    ret_head->life = (enum ng_life)get_number_below(reader, NG_LIFE_LOST + 1);
    ret_head->exit_status = get_int(reader);
    ret_head->life_age_ns = get_age(reader);
    ret_head->rank = get_int(reader);
    ret_head->world_size = get_int(reader);
    ret_head->local_rank = get_int(reader);
    ret_head->pid = get_int(reader);
    get_text(reader, ret_head->host, sizeof(ret_head->host));
    get_text(reader, ret_head->program, sizeof(ret_head->program));
    /* An earlier writer's head ends here. */
    uint64_t bits = reader->at == reader->end ? 0 : get_number(reader);
    if (bits & HEAD_WATCHDOG) {
        ret_head->watchdog_stuck_ns = get_age(reader);
        get_text(reader, ret_head->watchdog_in, sizeof(ret_head->watchdog_in));
    }
    if (bits & HEAD_ERROR)
        get_text(reader, ret_head->error_text, sizeof(ret_head->error_text));
    ret_head->nccl_variables[0] = '\0';
    reader->tells_failures = bits & HEAD_FAILURES;
    if (bits & HEAD_VARIABLES)
        get_plain_text(reader, ret_head->nccl_variables, sizeof(ret_head->nccl_variables));
    get_faults(reader);
    get_memory(reader, bits & HEAD_MEMORY, ret_head);
    get_nan(reader, bits & HEAD_NAN, &ret_head->nan);
    ret_head->alive_age_ns = bits & HEAD_ALIVE ? get_age(reader) : 0;
    close_reading(reader, end);
}

static void get_groups(struct reader *reader)
{
    uint32_t count = get_count(reader);

    if (count > (size_t)(reader->end - reader->at) / 8) {
        reader->bad = true;
        return;
    }
    reader->group_ids = reader->at;
    reader->group_count = count;
    reader->at += 8 * (size_t)count;
    if (!reader->groups)
        reader->groups =
            ng_arena_alloc(&reader->view->arena, (count + 1) * sizeof(*reader->groups));
    if (!reader->groups) {
        reader->short_of_memory = true;
        return;
    }
    for (uint32_t i = 0; i < count && !reader->bad; i++) {
        const unsigned char *end = open_reading(reader);
        struct ng_view_group told = {.id = fixed_at(reader->group_ids + 8 * (size_t)i)};
        told.parent_id = get_id(reader);
        told.nranks = get_int(reader);
        told.nccl_version = get_int(reader);
        get_text(reader, told.name, sizeof(told.name));
        close_reading(reader, end);
        if (!told.id || told.nranks < 0 || told.nranks > NG_VIEW_NRANKS_MAX)
            reader->bad = true;
        reader->groups[i].nranks = told.nranks;
        reader->groups[i].nccl_version = told.nccl_version;
        if (!reader->append)
            continue;
        reader->groups[i].index = ng_view_tell_group(reader->view, &told);
        if (reader->groups[i].index == UINT32_MAX) {
            reader->short_of_memory = true;
            return;
        }
    }
}

/* False: of an operation that only a later version knows. */
static bool get_record(struct reader *reader, struct ng_view_record *ret_record)
{
    const unsigned char *end = open_reading(reader);
    struct ng_view_record record = reader->before;
    uint64_t bits = get_number(reader);

    record.id += get_difference(reader);
    record.coll_seq += get_difference(reader);
    record.p2p_seq += get_difference(reader);
    record.entered_age_ns = (int64_t)((uint64_t)record.entered_age_ns + get_difference(reader));
    record.state = (enum ng_record_state)get_number_below(reader, NG_RECORD_UNWATCHED + 1);
    record.peer_ordinal = get_number(reader);
    record.flags = get_uint32(reader);
    record.result = get_int(reader);
    if (!(bits & SAME_SIGNATURE))
        get_signature(reader, &record.signature);
    if (!(bits & SAME_CALLER))
        record.caller = get_number(reader);
    if (!(bits & SAME_TID))
        record.tid = get_uint32(reader);
    record.rolling_hash = bits & RECORD_HASH ? get_fixed(reader) : 0;
    record.started_age_ns =
        bits & RECORD_STARTED ? (int64_t)((uint64_t)record.entered_age_ns - get_difference(reader))
                              : 0;
    record.completed_age_ns =
        bits & RECORD_COMPLETED
            ? (int64_t)((uint64_t)record.entered_age_ns - get_difference(reader))
            : 0;
    if (bits & OTHER_STREAM)
        record.stream = get_number(reader);
    record.work_previous = bits & RECORD_JOINED ? record.id - get_difference(reader) : 0;
    record.duration_ns =
        bits & RECORD_DURATION ? (int64_t)get_number_below(reader, INT64_MAX) : 0;
    if (bits & RECORD_REPLAY) {
        record.graph += get_difference(reader);
        record.replay += get_difference(reader);
        record.graph_position = get_uint32(reader);
        record.graph_calls = get_uint32(reader);
    } else {
        record.graph = record.replay = 0;
        record.graph_position = record.graph_calls = 0;
    }
    close_reading(reader, end);
    reader->before = record;
    record.entered_age_ns = ng_view_age(record.entered_age_ns);
    record.started_age_ns = ng_view_age(record.started_age_ns);
    record.completed_age_ns = ng_view_age(record.completed_age_ns);
    *ret_record = record;
    return record.signature.op < NG_OP_LIMIT;
}

static void get_records(struct reader *reader, struct ng_view_member *member)
{
    uint32_t count = get_count(reader);
    struct ng_view_record record;

    if (reader->append && count) {
        member->records = ng_arena_alloc(&reader->view->arena, count * sizeof(*member->records));
        if (!member->records) {
            reader->short_of_memory = true;
            return;
        }
    }
    for (uint32_t i = 0; i < count && !reader->bad; i++)
        if (get_record(reader, &record) && reader->append)
            member->records[member->record_count++] = record;
}

/* Into `samples`, of which there are NG_PROGRESS_SAMPLES; how many. */
static uint32_t get_samples(struct reader *reader, struct ng_view_sample *samples)
{
    uint32_t count = (uint32_t)get_number_below(reader, NG_PROGRESS_SAMPLES + 1);
    uint64_t seq = 0;

    for (uint32_t i = 0; i < count; i++) {
        seq += get_difference(reader);
        samples[i].seq = seq;
        samples[i].calls = get_uint32(reader);
        samples[i].duration_ns = (int64_t)get_number_below(reader, INT64_MAX);
    }
    return reader->bad ? 0 : count;
}

static void get_registration(struct reader *reader, struct ng_view_registration *ret_told)
{
    *ret_told = (struct ng_view_registration){.known = true, .closed = get_number(reader) != 0};
    ret_told->segments = get_number(reader);
    ret_told->segment_bytes = get_number(reader);
    ret_told->bytes = get_number(reader);
    ret_told->registered_bytes = get_number(reader);
    ret_told->made = get_number(reader);
    ret_told->ended = get_number(reader);
    ret_told->failed = get_number(reader);
    ret_told->deferred = get_number(reader);
    ret_told->spent_ns = get_number(reader);
}

static void get_member(struct reader *reader)
{
    const unsigned char *end = open_reading(reader);
    struct ng_view_member told = {.process = reader->process};
    struct ng_view_sample samples[NG_PROGRESS_SAMPLES];
    uint64_t bits = get_number(reader);
    uint64_t place = get_number_below(reader, reader->group_count);

    told.group_rank = get_int(reader);
    told.device = get_int(reader);
    told.state = (enum ng_group_state)get_number_below(reader, NG_GROUP_FAILED + 1);
    told.async_error = get_int(reader);
    told.cuda_error = get_int(reader);
    told.creator_tid = get_uint32(reader);
    told.ordinal = get_uint32(reader);
    told.derived = get_uint32(reader);
    told.entered = get_number(reader);
    told.scheduled = told.entered - get_difference(reader);
    told.started = told.scheduled - get_difference(reader);
    told.completed = told.started - get_difference(reader);
    told.p2p_entered = get_number(reader);
    told.p2p_completed = told.p2p_entered - get_difference(reader);
    told.color = get_int(reader);
    told.created_by = get_uint32(reader);
    told.created_age_ns = get_age(reader);
    told.ended_age_ns = get_age(reader);
    get_text(reader, told.pci_id, sizeof(told.pci_id));
    if (bits & MEMBER_HASH)
        told.rolling_hash = get_fixed(reader);
    if (bits & MEMBER_LAST)
        get_signature(reader, &told.last);
    if (bits & MEMBER_PENDING) {
        told.pending_seq = get_number(reader);
        told.pending_record = get_number(reader);
        told.pending_age_ns = get_age(reader);
    }
    told.pending_started = bits & MEMBER_STARTED;
    told.pending_vague = bits & MEMBER_VAGUE;
    told.rests = bits & MEMBER_RESTS;
    if (bits & MEMBER_TIMEOUT)
        told.timeout_ns = get_age(reader);
    if (bits & MEMBER_JOINED) {
        told.coll_joined = get_number(reader);
        told.p2p_joined = get_number(reader);
        told.groups_closed = get_number(reader);
    }
    if (bits & MEMBER_GROWN) {
        told.joined_id = get_id(reader);
        told.excluded = get_id(reader);
    }
    uint32_t sample_count = bits & MEMBER_SAMPLES ? get_samples(reader, samples) : 0;
    if (!reader->bad && place < reader->group_count) {
        told.nranks = reader->groups[place].nranks;
        told.nccl_version = reader->groups[place].nccl_version;
    }
    if (bits & MEMBER_UNLIKE) {
        told.nranks = get_int(reader);
        told.nccl_version = get_int(reader);
        reader->bad |= told.nranks < 0 || told.nranks > NG_VIEW_NRANKS_MAX;
    }
    if (bits & MEMBER_REGISTRATION)
        get_registration(reader, &told.registration);
    close_reading(reader, end);
    if (reader->bad)
        return;
    if (told.group_rank < -1 || told.group_rank >= NG_VIEW_NRANKS_MAX ||
        (told.group_rank >= 0 && told.group_rank >= reader->groups[place].nranks)) {
        reader->bad = true;
        return;
    }
    if (reader->append) {
        told.group = reader->groups[place].index;
        struct ng_view_member *member =
            ng_view_add_member(reader->view, reader->process, told.group, told.group_rank);
        if (!member) {
            reader->short_of_memory = true;
            return;
        }
        *member = told;
        for (uint32_t i = 0; i < sample_count; i++)
            if (!ng_view_add_sample(reader->view, member, &samples[i]))
                reader->short_of_memory = true;
        get_records(reader, member);
    } else {
        get_records(reader, NULL);
    }
}

static void get_call(struct reader *reader)
{
    const unsigned char *end = open_reading(reader);
    struct ng_view_call told = {.process = reader->process};

    told.tid = get_uint32(reader);
    told.op = (enum ng_op)get_uint32(reader);
    told.group_id = get_id(reader);
    told.group_rank = get_int(reader);
    told.seq = get_number(reader);
    told.record_id = get_number(reader);
    told.age_ns = get_age(reader);
    close_reading(reader, end);
    if (!reader->append || told.op >= NG_OP_LIMIT)
        return;
    struct ng_view_call *call = ng_view_add_call(reader->view, reader->process);
    if (call)
        *call = told;
    else
        reader->short_of_memory = true;
}

static void get_failure(struct reader *reader)
{
    const unsigned char *end = open_reading(reader);
    struct ng_view_member told = {.process = reader->process};

    uint64_t group_id = get_fixed(reader);
    told.group_rank = get_int(reader);
    told.nranks = get_int(reader);
    told.nccl_version = get_int(reader);
    told.device = get_int(reader);
    get_text(reader, told.pci_id, sizeof(told.pci_id));
    told.created_by = (enum ng_op)get_uint32(reader);
    told.created_age_ns = get_age(reader);
    told.ended_age_ns = get_age(reader);
    close_reading(reader, end);
    if (!reader->append || told.group_rank < 0 || told.group_rank >= told.nranks ||
        told.nranks > NG_VIEW_NRANKS_MAX || told.nccl_version < 0 || told.created_by >= NG_OP_LIMIT)
        return;
    struct ng_view_failure *failure =
        ng_view_add_failure(reader->view, reader->process, group_id, told.group_rank);
    if (!failure) {
        reader->short_of_memory = true;
        return;
    }
    told.color = failure->member.color;
    told.state = failure->member.state;
    failure->member = told;
}

static bool goes_on(const struct reader *reader)
{
    return !reader->bad && !reader->short_of_memory;
}

static int result_of(const struct reader *reader)
{
    return reader->short_of_memory ? -ENOMEM : reader->bad ? -EBADMSG : 0;
}

/* Up to where the head begins. */
static int begin(struct reader *reader, const void *data, size_t bytes)
{
    reader->at = data;
    reader->end = reader->at + bytes;
    reader->text_count = 0;
    reader->before = (struct ng_view_record){0};
    if (bytes < sizeof(magic) || bytes > NG_PROGRESS_BYTES_MAX ||
        memcmp(data, magic, sizeof(magic)) != 0)
        return -EBADMSG;
    reader->at += sizeof(magic);
    uint64_t version = get_number(reader);
    return reader->bad || version == 0 ? -EBADMSG : version > NG_PROGRESS_VERSION ? -EPROTO : 0;
}

/* When the ages of a process are 0: as it wrote, or at its end. 0 not known. */
static int64_t moment_of(const struct ng_progress_head *head)
{
    bool lives = head->life == NG_LIFE_RUNNING || head->life == NG_LIFE_STOPPED;
    int64_t moment;

    if (__builtin_sub_overflow(head->written_unix_ns, lives ? 0 : head->life_age_ns, &moment))
        return 0;
    return moment > 0 ? moment : 0;
}

static void add_process(struct reader *reader, const struct ng_progress_head *head,
                        const char *source)
{
    struct ng_view_process *process = ng_view_add_process(reader->view);

    if (!process) {
        reader->short_of_memory = true;
        return;
    }
    reader->process = reader->view->process_count - 1;
    process->rank = head->rank;
    process->world_size = head->world_size;
    process->local_rank = head->local_rank;
    process->pid = head->pid;
    process->uid = head->uid;
    process->life = head->life;
    process->exit_status = head->exit_status;
    process->life_age_ns = head->life_age_ns;
    process->alive_age_ns = head->alive_age_ns;
    process->moment_unix_ns = moment_of(head);
    memcpy(process->host, head->host, sizeof(process->host));
    memcpy(process->program, head->program, sizeof(process->program));
    memcpy(process->nccl_variables, head->nccl_variables, sizeof(process->nccl_variables));
    memcpy(process->source, source, sizeof(process->source));
    process->watchdog_stuck_ns = head->watchdog_stuck_ns;
    memcpy(process->watchdog_in, head->watchdog_in, sizeof(process->watchdog_in));
    memcpy(process->error_text, head->error_text, sizeof(process->error_text));
    process->nan = head->nan;
    process->memory_kinds = head->memory_kinds;
    for (uint32_t i = 0; i < head->memory_kinds; i++)
        process->memory[i] = head->memory[i];
    for (uint32_t i = 0; i < reader->fault_count; i++) {
        const struct ng_view_fault *told = &reader->faults[i];
        struct ng_view_fault *added =
            ng_view_add_fault(reader->view, reader->process, &told->fault);
        if (!added) {
            reader->short_of_memory = true;
            return;
        }
        added->first_age_ns = told->first_age_ns;
        added->last_age_ns = told->last_age_ns;
    }
}

/* The whole blob, once. */
static int get_process(struct reader *reader, const void *data, size_t bytes)
{
    struct ng_progress_head head;
    char source[sizeof(reader->view->processes->source)];
    int error = begin(reader, data, bytes);

    if (error)
        return error;
    get_head(reader, &head);
    get_text(reader, source, sizeof(source));
    if (reader->append)
        add_process(reader, &head, source);
    if (goes_on(reader))
        get_groups(reader);
    uint32_t members = goes_on(reader) ? get_count(reader) : 0;
    for (uint32_t i = 0; i < members && goes_on(reader); i++)
        get_member(reader);
    uint32_t calls = goes_on(reader) ? get_count(reader) : 0;
    for (uint32_t i = 0; i < calls && goes_on(reader); i++)
        get_call(reader);
    uint32_t failures = goes_on(reader) && reader->tells_failures ? get_count(reader) : 0;
    for (uint32_t i = 0; i < failures && goes_on(reader); i++)
        get_failure(reader);
    return result_of(reader);
}

int ng_progress_decode(struct ng_view *view, const void *data, size_t bytes, uint32_t *ret_process)
{
    struct reader reader = {.view = view};
    int error = get_process(&reader, data, bytes);

    if (error)
        return error;
    reader.append = true;
    error = get_process(&reader, data, bytes);
    if (!error)
        *ret_process = reader.process;
    return error;
}

int ng_progress_peek(const void *data, size_t bytes, struct ng_progress_head *ret_head)
{
    struct reader reader = {0};
    struct ng_progress_head head;
    int error = begin(&reader, data, bytes);

    if (error)
        return error;
    get_head(&reader, &head);
    if (reader.bad)
        return -EBADMSG;
    *ret_head = head;
    return 0;
}

/* ---- Time ---- */

static void make_older(int64_t *age_ns, int64_t by_ns)
{
    *age_ns = ng_view_age(ng_view_age(*age_ns) + ng_view_age(by_ns));
}

void ng_progress_age(struct ng_view *view, uint32_t process, int64_t by_ns)
{
    struct ng_view_process *told = &view->processes[process];

    if (by_ns <= 0)
        return;
    if (told->life != NG_LIFE_RUNNING && told->life != NG_LIFE_STOPPED) {
        if (told->life_age_ns > 0)
            make_older(&told->life_age_ns, by_ns);
        if (told->alive_age_ns > 0)
            make_older(&told->alive_age_ns, by_ns);
        return;
    }
    if (told->moment_unix_ns)
        make_older(&told->moment_unix_ns, by_ns);
    if (told->watchdog_stuck_ns)
        make_older(&told->watchdog_stuck_ns, by_ns);
    if (told->nan.age_ns)
        make_older(&told->nan.age_ns, by_ns);
    for (uint32_t i = 0; i < view->member_count; i++) {
        struct ng_view_member *member = &view->members[i];
        if (member->process != process)
            continue;
        if (member->created_age_ns)
            make_older(&member->created_age_ns, by_ns);
        if (member->ended_age_ns)
            make_older(&member->ended_age_ns, by_ns);
        if (member->pending_record)
            make_older(&member->pending_age_ns, by_ns);
        for (uint32_t k = 0; k < member->record_count; k++) {
            struct ng_view_record *record = &member->records[k];
            make_older(&record->entered_age_ns, by_ns);
            if (record->started_age_ns)
                make_older(&record->started_age_ns, by_ns);
            if (record->completed_age_ns)
                make_older(&record->completed_age_ns, by_ns);
        }
    }
    for (uint32_t i = 0; i < view->call_count; i++)
        if (view->calls[i].process == process)
            make_older(&view->calls[i].age_ns, by_ns);
    for (uint32_t i = 0; i < view->failure_count; i++) {
        struct ng_view_member *member = &view->failures[i].member;
        if (member->process == process && member->created_age_ns)
            make_older(&member->created_age_ns, by_ns);
        if (member->process == process && member->ended_age_ns)
            make_older(&member->ended_age_ns, by_ns);
    }
    for (uint32_t i = 0; i < view->fault_count; i++)
        if (view->faults[i].process == process) {
            make_older(&view->faults[i].first_age_ns, by_ns);
            make_older(&view->faults[i].last_age_ns, by_ns);
        }
}
