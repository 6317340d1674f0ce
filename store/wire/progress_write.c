/*
 * One process of a view in a few bytes: the writer.
 *
 * Pure: no clock, no lock, no malloc. Entered by the store's thread, and by the incident thread for
 * processes that cannot tell of themselves. Must never write beyond the room that was counted
 * beforehand.
 */
#include "store/wire/progress.h"

#include <errno.h>
#include <string.h>

#include "store/wire/progress_wire.h"

/* No block of ours is longer: all texts, and all numbers at their longest. */
#define BLOCK_BYTES  1280u
#define NUMBER_BYTES 10u

/* Communicators of a process that could not be made: the newest, which are told. */
#define PROGRESS_FAILURES 64u

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

/* ---- Numbers, texts and blocks ---- */

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

/* ---- The parts of a process ---- */

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
    uint32_t count =
        member->sample_count < NG_PROGRESS_SAMPLES ? member->sample_count : NG_PROGRESS_SAMPLES;
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

    put_number(writer,
               (member->rolling_hash ? MEMBER_HASH : 0) | (last ? MEMBER_LAST : 0) |
                   (pending ? MEMBER_PENDING : 0) | (member->pending_started ? MEMBER_STARTED : 0) |
                   (member->timeout_ns ? MEMBER_TIMEOUT : 0) | (joined ? MEMBER_JOINED : 0) |
                   (grown ? MEMBER_GROWN : 0) | (member->sample_count ? MEMBER_SAMPLES : 0) |
                   (member->rests ? MEMBER_RESTS : 0) | (unlike ? MEMBER_UNLIKE : 0) |
                   (member->registration.known ? MEMBER_REGISTRATION : 0) |
                   (member->pending_vague ? MEMBER_VAGUE : 0) |
                   (member->error_age_ns ? MEMBER_ERROR : 0));
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
    if (member->error_age_ns)
        put_signed(writer, member->error_age_ns);
    close_block(writer, block);
}

static void put_record(struct writer *writer, const struct ng_view_record *record)
{
    const struct ng_view_record *before = &writer->before;
    size_t block = open_block(writer);
    unsigned bits =
        (alike(&record->signature, &before->signature) ? SAME_SIGNATURE : 0) |
        (record->caller == before->caller ? SAME_CALLER : 0) |
        (record->tid == before->tid ? SAME_TID : 0) | (record->rolling_hash ? RECORD_HASH : 0) |
        (record->started_age_ns ? RECORD_STARTED : 0) |
        (record->completed_age_ns ? RECORD_COMPLETED : 0) |
        (record->stream != before->stream ? OTHER_STREAM : 0) |
        (record->work_previous ? RECORD_JOINED : 0) | (record->duration_ns ? RECORD_DURATION : 0) |
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

/* ---- The whole blob ---- */

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

    uint64_t blocks = 5 + (uint64_t)members + writer.group_count + calls + faults +
                      PROGRESS_FAILURES + limits->records;
    struct choice all = {.first = 0, .last = UINT64_MAX};
    uint64_t records =
        (uint64_t)count_records(&writer, true, &all) + count_records(&writer, false, &all);
    if (limits->records > records)
        blocks += records - limits->records;
    writer.bytes = ng_arena_alloc(arena, blocks * (BLOCK_BYTES + NUMBER_BYTES));
    if (!writer.bytes)
        return -ENOMEM;

    memcpy(writer.bytes, progress_magic, sizeof(progress_magic));
    writer.used = sizeof(progress_magic);
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
