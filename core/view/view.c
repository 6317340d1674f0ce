/*
 * Building and querying a view: growth, groups by id, members of a group. view_seal.c completes it.
 *
 * Called by every thread that needs a verdict. No clock, no files: works only on its arguments.
 */
#include "core/view/view.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/config/settings.h"
#include "core/util/clock.h"
#include "core/util/macros.h"

/* A program that ends because of what made it abort does so within this time. */
#define LEAVING_NS (5 * NG_S)

void ng_view_init(struct ng_view *view)
{
    memset(view, 0, sizeof(*view));
}

void ng_view_fini(struct ng_view *view)
{
    ng_arena_reset(&view->arena);
    memset(view, 0, sizeof(*view));
}

#define APPEND(view, array, count, room)                                                           \
    NG_ARENA_APPEND(&(view)->arena, (view)->array, (view)->count, (view)->room)

struct ng_view_process *ng_view_add_process(struct ng_view *view)
{
    struct ng_view_process *process = APPEND(view, processes, process_count, process_room);
    if (process)
        process->rank = process->world_size = process->local_rank = -1;
    return process;
}

int ng_view_apply_set(struct ng_view *view, uint32_t process)
{
    struct ng_view_process *of = &view->processes[process];
    const char *before = of->settings ? of->settings : "";
    size_t bytes = strlen(before) + 1 + NG_SETTINGS_MORE_BYTES;
    bool any = false;

    for (unsigned i = 0; i < NG_SETTABLES; i++)
        any |= of->set.of[i] != 0;
    if (!any)
        return 0;
    char *text = ng_arena_alloc(&view->arena, bytes);
    if (!text)
        return -ENOMEM;
    ng_settings_update(before, &of->set, text, bytes);
    of->settings = text;
    return 0;
}

const struct ng_view_module *ng_view_add_module(struct ng_view *view, const char *path,
                                                const char *build_id)
{
    struct ng_view_module *module = ng_arena_alloc(&view->arena, sizeof(*module));

    if (!module)
        return NULL;
    module->path = ng_arena_strdup(&view->arena, path);
    module->build_id = ng_arena_strdup(&view->arena, build_id);
    return module->path && module->build_id ? module : NULL;
}

/* The table entry of the id, used or free. Ids are hashes; the search ends even if they are
 * damaged. */
static uint32_t *slot_of(const struct ng_view *view, uint64_t id)
{
    uint32_t mask = view->group_slot_count - 1;
    uint32_t at = (uint32_t)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & mask;

    while (view->group_slots[at] && view->groups[view->group_slots[at] - 1].id != id)
        at = (at + 1) & mask;
    return &view->group_slots[at];
}

static void fill_slots(struct ng_view *view)
{
    memset(view->group_slots, 0, view->group_slot_count * sizeof(*view->group_slots));
    for (uint32_t i = 0; i < view->group_count; i++)
        *slot_of(view, view->groups[i].id) = i + 1;
}

/* Keeps at least half of the entries free. */
static bool make_slots(struct ng_view *view)
{
    if (view->group_count < view->group_slot_count / 2)
        return true;
    uint32_t count = view->group_slot_count ? view->group_slot_count * 2 : 64;
    uint32_t *slots = ng_arena_alloc(&view->arena, count * sizeof(*slots));
    if (!slots)
        return false;
    view->group_slots = slots;
    view->group_slot_count = count;
    fill_slots(view);
    return true;
}

uint32_t ng_view_intern_group(struct ng_view *view, uint64_t id)
{
    if (!make_slots(view))
        return UINT32_MAX;
    uint32_t *slot = slot_of(view, id);
    if (*slot)
        return *slot - 1;
    struct ng_view_group *group = APPEND(view, groups, group_count, group_room);
    if (!group)
        return UINT32_MAX;
    group->id = id;
    *slot = view->group_count;
    return view->group_count - 1;
}

/* Adds to `group` what `told` knows and it does not. */
static void merge_group(struct ng_view_group *group, const struct ng_view_group *told)
{
    group->nranks = NG_MAX(group->nranks, told->nranks);
    if (told->parent_id)
        group->parent_id = told->parent_id;
    if (told->nccl_version)
        group->nccl_version = told->nccl_version;
    if (told->name[0])
        memcpy(group->name, told->name, sizeof(group->name));
}

uint32_t ng_view_tell_group(struct ng_view *view, const struct ng_view_group *told)
{
    uint32_t index = ng_view_intern_group(view, told->id);

    if (index == UINT32_MAX)
        return UINT32_MAX;
    merge_group(&view->groups[index], told);
    return index;
}

uint32_t ng_view_find_group(const struct ng_view *view, uint64_t id)
{
    return view->group_slot_count ? *slot_of(view, id) - 1 : UINT32_MAX;
}

static void move_members(struct ng_view *view, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < view->member_count; i++)
        if (view->members[i].group == from)
            view->members[i].group = to;
}

void ng_view_rename_group(struct ng_view *view, uint32_t from, uint64_t id)
{
    uint64_t former = view->groups[from].id;
    uint32_t known = ng_view_find_group(view, id);

    for (uint32_t i = 0; i < view->call_count; i++)
        if (view->calls[i].group_id == former)
            view->calls[i].group_id = id;
    view->groups[from].id = id;
    if (known != UINT32_MAX) {
        merge_group(&view->groups[known], &view->groups[from]);
        move_members(view, from, known);
        view->groups[from] = view->groups[--view->group_count];
        move_members(view, view->group_count, from);
    }
    fill_slots(view);
}

struct ng_view_member *ng_view_add_member(struct ng_view *view, uint32_t process, uint32_t group,
                                          int group_rank)
{
    struct ng_view_member *member = APPEND(view, members, member_count, member_room);
    if (!member)
        return NULL;
    member->process = process;
    member->group = group;
    member->group_rank = group_rank;
    member->device = -1;
    member->color = -1;
    return member;
}

struct ng_view_failure *ng_view_add_failure(struct ng_view *view, uint32_t process,
                                            uint64_t group_id, int group_rank)
{
    struct ng_view_failure *failure = APPEND(view, failures, failure_count, failure_room);
    if (failure)
        *failure = (struct ng_view_failure){.group_id = group_id,
                                            .member = {.process = process,
                                                       .group_rank = group_rank,
                                                       .device = -1,
                                                       .color = -1,
                                                       .state = NG_GROUP_FAILED}};
    return failure;
}

struct ng_view_call *ng_view_add_call(struct ng_view *view, uint32_t process)
{
    struct ng_view_call *call = APPEND(view, calls, call_count, call_room);
    if (call)
        call->process = process;
    return call;
}

struct ng_view_thread *ng_view_add_thread(struct ng_view *view, uint32_t process, uint32_t tid)
{
    struct ng_view_thread *thread = APPEND(view, threads, thread_count, thread_room);
    if (thread)
        *thread = (struct ng_view_thread){.process = process, .tid = tid};
    return thread;
}

struct ng_view_duration *ng_view_add_duration(struct ng_view *view, uint32_t process,
                                              const struct ng_duration *duration)
{
    struct ng_view_duration *added = APPEND(view, durations, duration_count, duration_room);
    if (added)
        *added = (struct ng_view_duration){.process = process, .duration = *duration};
    return added;
}

struct ng_view_fault *ng_view_add_fault(struct ng_view *view, uint32_t process,
                                        const struct ng_logged_fault *fault)
{
    struct ng_view_fault *added = APPEND(view, faults, fault_count, fault_room);
    if (added) {
        *added = (struct ng_view_fault){.process = process, .fault = *fault};
        added->fault.first_mono_ns = added->fault.last_mono_ns = 0;
    }
    return added;
}

bool ng_view_add_sample(struct ng_view *view, struct ng_view_member *member,
                        const struct ng_view_sample *sample)
{
    uint32_t count = member->sample_count, step = NG_VIEW_SAMPLES / 4;

    if (count == NG_VIEW_SAMPLES) {
        memmove(member->samples, member->samples + 1, (count - 1) * sizeof(*member->samples));
        member->samples[count - 1] = *sample;
        return true;
    }
    if (count % step == 0) {
        struct ng_view_sample *bigger =
            ng_arena_alloc(&view->arena, (count + step) * sizeof(*bigger));
        if (!bigger)
            return false;
        if (count)
            memcpy(bigger, member->samples, count * sizeof(*bigger));
        member->samples = bigger;
    }
    member->samples[member->sample_count++] = *sample;
    return true;
}

void ng_view_note(struct ng_view *view, const char *format, ...)
{
    char line[512];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    char **note = APPEND(view, notes, note_count, note_room);
    if (note)
        *note = ng_arena_strdup(&view->arena, line);
}

bool ng_view_set_edges(struct ng_view *view, struct ng_view_member *member,
                       const struct ng_edge *edges, uint32_t count, int64_t age_ns)
{
    member->edges = NULL;
    member->edge_count = 0;
    member->edges_age_ns = 0;
    if (!count)
        return true;
    struct ng_edge *copy = ng_arena_alloc(&view->arena, count * sizeof(*copy));
    if (!copy)
        return false;
    memcpy(copy, edges, count * sizeof(*copy));
    member->edges = copy;
    member->edge_count = count;
    member->edges_age_ns = age_ns;
    return true;
}

/* The first member of a group, or its insertion point. */
static uint32_t first_of(const struct ng_view *view, uint32_t group)
{
    return NG_FIRST_INDEX(view->member_count, i, view->members[i].group < group);
}

const struct ng_view_member *ng_view_members(const struct ng_view *view, uint32_t group,
                                             uint32_t *ret_count)
{
    uint32_t first = first_of(view, group), end = first;

    while (end < view->member_count && view->members[end].group == group)
        end++;
    *ret_count = end - first;
    return end > first ? &view->members[first] : NULL;
}

const struct ng_view_member *ng_view_member_among(const struct ng_view_member *members,
                                                  uint32_t count, int group_rank)
{
    uint32_t low = NG_FIRST_INDEX(count, i, members[i].group_rank < group_rank);

    return low < count && members[low].group_rank == group_rank ? &members[low] : NULL;
}

const struct ng_view_member *ng_view_member(const struct ng_view *view, uint32_t group,
                                            int group_rank)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    return ng_view_member_among(members, count, group_rank);
}

/* The member with the next rank of the same group; if a rank has several handles, the first counts.
 * NULL: there is none. */
static const struct ng_view_member *next_rank(const struct ng_view *view,
                                              const struct ng_view_member *member)
{
    const struct ng_view_member *next = member, *end = view->members + view->member_count;

    while (next < end && next->group == member->group && next->group_rank == member->group_rank)
        next++;
    return next < end && next->group == member->group ? next : NULL;
}

/* Do both have the same number of members, and at least one? */
static bool have_same_members(const struct ng_view *view, uint32_t group, uint32_t other)
{
    const struct ng_view_member *member = &view->members[first_of(view, group)];
    const struct ng_view_member *others = &view->members[first_of(view, other)];

    while (member && others) {
        if (member->group_rank != others->group_rank || member->process != others->process ||
            member->device != others->device)
            return false;
        member = next_rank(view, member);
        others = next_rank(view, others);
    }
    return true;
}

uint32_t ng_view_same_members(const struct ng_view *view, uint32_t group)
{
    const struct ng_view_group *it = &view->groups[group];

    if (it->nranks <= 0 || it->member_count != (uint32_t)it->nranks)
        return group;
    for (uint32_t other = 0; other < group; other++)
        if (view->groups[other].nranks == it->nranks &&
            view->groups[other].member_count == it->member_count &&
            have_same_members(view, group, other))
            return other;
    return group;
}

int ng_view_rank(const struct ng_view *view, const struct ng_view_member *member)
{
    const struct ng_view_process *process = &view->processes[member->process];
    const struct ng_view_member *largest = member;

    if (process->rank >= 0 && !process->drives_several)
        return process->rank;
    uint32_t count = view->by_process ? process->member_count : view->member_count;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = view->by_process ? view->by_process[process->first_member + i] : i;
        const struct ng_view_member *other = &view->members[index];
        if (other->process != member->process || other->device != member->device)
            continue;
        if (view->groups[other->group].nranks > view->groups[largest->group].nranks)
            largest = other;
    }
    return largest->group_rank;
}

/* No counting record before this index has coll_seq >= seq; point-to-point records carry the number
 * of the collective before them. Records that do not count have numbers that are used again; they
 * are skipped. */
static uint32_t first_at(const struct ng_view_member *member, uint64_t seq)
{
    uint32_t low = 0, high = member->record_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2, at = middle;
        while (at < high && !ng_view_record_counts(&member->records[at]))
            at++;
        if (at == high || member->records[at].coll_seq >= seq)
            high = middle;
        else
            low = at + 1;
    }
    return low;
}

const struct ng_view_record *ng_view_collective(const struct ng_view_member *member, uint64_t seq)
{
    /* Threads may have written a few records out of order, so search nearby. Captured calls do not
     * count, and there may be any number of them. */
    uint32_t from = first_at(member, seq), looked = 0;

    from = from > 8 ? from - 8 : 0;
    for (uint32_t i = from; i < member->record_count && looked < 24; i++) {
        const struct ng_view_record *record = &member->records[i];
        if (!ng_view_record_is_p2p(record) && record->coll_seq == seq &&
            ng_view_record_counts(record))
            return record;
        looked += ng_view_record_counts(record);
    }
    /* Records that a watchdog has recalled come after all others: core/device/graph.h. */
    for (uint32_t i = member->record_count; i > 0 && i + 4 > member->record_count; i--) {
        const struct ng_view_record *record = &member->records[i - 1];
        if (record->graph && !ng_view_record_is_p2p(record) && record->coll_seq == seq)
            return record;
    }
    return NULL;
}

const struct ng_view_record *ng_view_pending_record(const struct ng_view_member *member)
{
    for (uint32_t i = member->record_count; i > 0 && member->pending_record; i--)
        if (member->records[i - 1].id == member->pending_record)
            return &member->records[i - 1];
    return NULL;
}

const struct ng_view_record *ng_view_aborted_wait(const struct ng_view_member *member,
                                                  int64_t *ret_waited_ns)
{
    if (member->state != NG_GROUP_ABORTED || !member->ended_age_ns ||
        member->ended_age_ns >= LEAVING_NS || member->entered <= member->completed)
        return NULL;
    for (uint32_t i = member->record_count; i > 0; i--) {
        const struct ng_view_record *record = &member->records[i - 1];
        if (ng_view_record_is_p2p(record) || record->coll_seq != member->completed + 1)
            continue;
        /* The watchdog of a process that ends right after the abort has not seen it yet. */
        bool finished = ng_view_record_is_retired(record) && record->state != NG_RECORD_FAILED;
        if (finished || record->entered_age_ns <= member->ended_age_ns)
            return NULL;
        *ret_waited_ns = record->entered_age_ns - member->ended_age_ns;
        return record;
    }
    return NULL;
}

bool ng_told_to_end(int exit_status)
{
    int number =
        exit_status - (exit_status < NG_EXIT_STATUS_SIGNAL   ? 128
                       : exit_status < NG_EXIT_STATUS_SILENT ? NG_EXIT_STATUS_SIGNAL
                                                             : NG_EXIT_STATUS_SILENT + 128);

    return number == SIGTERM || number == SIGINT || number == SIGHUP;
}
