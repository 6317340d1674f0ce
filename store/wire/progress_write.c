/*
 * One process of a view in a few bytes: the writer.
 *
 * Pure: no clock, no lock, no malloc. Entered by the store's thread, and by the incident thread for
 * processes that cannot report themselves. Must never write beyond the room that was counted
 * beforehand.
 */
#include "core/recorder/signature.h"
#include "store/wire/progress.h"

#include <errno.h>
#include <string.h>

#include "core/util/macros.h"
#include "store/wire/progress_wire.h"

/* An upper bound for our blocks: all texts, and all numbers at their longest. */
#define BLOCK_BYTES  1280u
#define MEMBER_BYTES 1792u /* of a member: samples, and the edges of all its connections */
#define NUMBER_BYTES 10u

/* Failed communicators of a process that are reported: the newest. */
#define PROGRESS_FAILURES 64u

struct writer {
    struct ng_coder coder;
    const struct ng_view *view;
    uint32_t process;
    uint32_t *groups;       /* of the blob: index in the view */
    uint32_t *group_places; /* by group of the view: index in the blob + 1 */
    uint32_t failures;      /* of the process */
};

/* ---- The parts of a process ---- */

static void put_head(struct writer *writer, const struct ng_progress_limits *limits)
{
    const struct ng_view *view = writer->view;
    struct ng_coder *coder = &writer->coder;
    struct ng_progress_head head = {.label = limits->label,
                                    .written_unix_ns = limits->written_unix_ns,
                                    .reason = limits->reason,
                                    .launch_run = limits->launch_run,
                                    .process = view->processes[writer->process]};

    for (uint32_t i = 0; i < view->fault_count && coder->fault_count < PROGRESS_FAULTS; i++)
        if (view->faults[i].process == writer->process)
            coder->faults[coder->fault_count++] = view->faults[i];
    coder->tells_failures = writer->failures;
    ng_code_head(coder, &head);
}

static void put_groups(struct writer *writer)
{
    struct ng_coder *coder = &writer->coder;

    ng_code_count(coder, coder->group_count);
    coder->group_ids = coder->bytes + coder->used;
    for (uint32_t i = 0; i < coder->group_count; i++)
        ng_code_fixed(coder, writer->view->groups[writer->groups[i]].id);
    for (uint32_t i = 0; i < coder->group_count; i++) {
        struct ng_view_group told = writer->view->groups[writer->groups[i]];
        ng_code_group(coder, &told);
    }
}

static void put_member(struct writer *writer, const struct ng_view_member *member)
{
    static const struct ng_signature none;
    const struct ng_view_group *group = &writer->view->groups[member->group];
    struct ng_view_sample samples[NG_PROGRESS_SAMPLES];
    struct ng_edge edges[NG_EDGES_MAX];
    struct ng_view_member told = *member;
    uint64_t place = writer->group_places[member->group] - 1;
    bool pending = member->pending_record || member->pending_seq || member->pending_age_ns;
    bool last = !ng_signature_is_equal(&member->last, &none);
    bool joined = member->coll_joined || member->p2p_joined || member->groups_closed;
    bool grown = member->joined_id || member->excluded;
    bool unlike = (member->nranks && member->nranks != group->nranks) ||
                  (member->nccl_version && member->nccl_version != group->nccl_version);
    uint64_t bits =
        (member->rolling_hash ? MEMBER_HASH : 0) | (last ? MEMBER_LAST : 0) |
        (pending ? MEMBER_PENDING : 0) | (member->pending_started ? MEMBER_STARTED : 0) |
        (member->timeout_ns ? MEMBER_TIMEOUT : 0) | (joined ? MEMBER_JOINED : 0) |
        (grown ? MEMBER_GROWN : 0) | (member->sample_count ? MEMBER_SAMPLES : 0) |
        (member->rests ? MEMBER_RESTS : 0) | (unlike ? MEMBER_UNLIKE : 0) |
        (member->registration.known ? MEMBER_REGISTRATION : 0) |
        (member->pending_vague ? MEMBER_VAGUE : 0) | (member->error_age_ns ? MEMBER_ERROR : 0) |
        (member->pending_inferred ? MEMBER_INFERRED : 0) | (member->counted ? MEMBER_COUNTED : 0) |
        (member->edge_count ? MEMBER_EDGES : 0) |
        (ng_code_has_host_calls(member) ? MEMBER_HOST_CALLS : 0) |
        (member->policy ? MEMBER_POLICY : 0) | (member->pending_unwatched ? MEMBER_UNWATCHED : 0) |
        (member->kernel == NG_KERNEL_RUNS ? MEMBER_KERNEL_RUNS : 0) |
        (member->kernel == NG_KERNEL_NOT_BEGUN ? MEMBER_KERNEL_NOT_BEGUN : 0);

    told.edge_count = NG_MIN(told.edge_count, NG_EDGES_MAX);
    if (told.edge_count)
        memcpy(edges, member->edges, told.edge_count * sizeof(edges[0]));
    told.edges = edges;
    told.sample_count = NG_MIN(told.sample_count, NG_PROGRESS_SAMPLES);
    if (told.sample_count)
        memcpy(samples, member->samples + (member->sample_count - told.sample_count),
               told.sample_count * sizeof(samples[0]));
    told.samples = samples;
    ng_code_member(&writer->coder, &told, &bits, &place);
}

/* The newest of the process: all of them, unless creation fails repeatedly. */
static void put_failures(struct writer *writer)
{
    const struct ng_view *view = writer->view;
    uint32_t count = writer->failures, passed = 0;
    uint32_t told = count < PROGRESS_FAILURES ? count : PROGRESS_FAILURES;

    ng_code_count(&writer->coder, told);
    for (uint32_t i = 0; i < view->failure_count; i++)
        if (view->failures[i].member.process == writer->process && ++passed > count - told) {
            struct ng_view_failure failure = view->failures[i];
            ng_code_failure(&writer->coder, &failure);
        }
}

/* ---- Which records ---- */

/* The records of one kind to write: those with ids from `first` to `last`, at most `room`. */
struct choice {
    uint64_t first, last;
    uint32_t room;
};

static uint32_t count_records(const struct writer *writer, bool of_unfinished,
                              const struct choice *choice)
{
    uint32_t count = 0;

    NG_EACH (member, writer->view->members, writer->view->member_count) {
        if (member->process != writer->process)
            continue;
        for (uint32_t k = 0; k < member->record_count; k++)
            if (!ng_view_record_is_retired(&member->records[k]) == of_unfinished &&
                member->records[k].id >= choice->first && member->records[k].id <= choice->last)
                count++;
    }
    return count;
}

/* The oldest unfinished ones, since those are the stuck ones; of the others the newest. */
static void choose(const struct writer *writer, bool of_unfinished, uint32_t room,
                   struct choice *ret_choice)
{
    struct choice all = {.first = 0, .last = UINT64_MAX};
    uint64_t low = 0, high = UINT64_MAX;

    *ret_choice = (struct choice){.first = 0, .last = UINT64_MAX, .room = room};
    if (count_records(writer, of_unfinished, &all) <= room)
        return;
    /* The id from which on, or up to which, there are exactly that many. */
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
        struct choice *choice = &counting[!ng_view_record_is_retired(&member->records[k])];
        if (is_chosen(choice, &member->records[k])) {
            choice->room--;
            count++;
        }
    }
    ng_code_count(&writer->coder, count);
    for (uint32_t k = 0; k < member->record_count; k++) {
        struct choice *choice = &choices[!ng_view_record_is_retired(&member->records[k])];
        if (is_chosen(choice, &member->records[k])) {
            choice->room--;
            struct ng_view_record told = member->records[k];
            ng_code_record(&writer->coder, &told);
        }
    }
}

/* ---- The whole blob ---- */

int ng_progress_encode(const struct ng_view *view, uint32_t process,
                       const struct ng_progress_limits *limits, struct ng_arena *arena,
                       const void **ret_data, size_t *ret_bytes)
{
    struct writer writer = {.coder.writes = true, .view = view, .process = process};
    struct choice choices[2]; /* finished, unfinished */
    struct ng_coder *coder = &writer.coder;
    uint32_t members = 0, calls = 0;
    uint64_t records = 0;

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
        records += view->members[i].record_count;
        if (!writer.group_places[group]) {
            writer.groups[coder->group_count++] = group;
            writer.group_places[group] = coder->group_count;
        }
    }
    for (uint32_t i = 0; i < view->call_count; i++)
        calls += view->calls[i].process == process;
    for (uint32_t i = 0; i < view->failure_count; i++)
        writer.failures += view->failures[i].member.process == process;
    choose(&writer, true, limits->records, &choices[1]);
    uint32_t told = count_records(&writer, true, &choices[1]);
    choose(&writer, false, told < limits->records ? limits->records - told : 0, &choices[0]);

    uint64_t blocks = 6 + /* the head is worth two */ (uint64_t)members + coder->group_count +
                      calls + PROGRESS_FAULTS + PROGRESS_FAILURES +
                      NG_MIN(limits->records, records);
    coder->bytes = ng_arena_alloc(arena, blocks * (BLOCK_BYTES + NUMBER_BYTES) +
                                             (uint64_t)members * (MEMBER_BYTES - BLOCK_BYTES));
    if (!coder->bytes)
        return -ENOMEM;

    char source[sizeof(view->processes->source)];
    memcpy(source, view->processes[process].source, sizeof(source));
    ng_code_begin(coder);
    put_head(&writer, limits);
    ng_code_text(coder, source, sizeof(source));
    put_groups(&writer);
    ng_code_count(coder, members);
    for (uint32_t i = 0; i < view->member_count; i++)
        if (view->members[i].process == process) {
            put_member(&writer, &view->members[i]);
            put_records(&writer, &view->members[i], choices);
        }
    ng_code_count(coder, calls);
    for (uint32_t i = 0; i < view->call_count; i++)
        if (view->calls[i].process == process) {
            struct ng_view_call told = view->calls[i];
            ng_code_call(coder, &told);
        }
    if (writer.failures)
        put_failures(&writer);
    if (coder->used > NG_PROGRESS_BYTES_MAX)
        return -EMSGSIZE;
    *ret_data = coder->bytes;
    *ret_bytes = coder->used;
    return 0;
}
