/*
 * Where the ranks that a verdict concerns called NCCL.
 *
 * Pure. Only if the evidence has frames (NCCLGUARD_STACKS=call): the newest call of each culprit,
 * after which it went wrong, and the call of one waiting rank.
 */
#include <errno.h>
#include <string.h>

#include "core/util/macros.h"
#include "core/verdict/verdict.h"

#define CULPRITS_MAX 4

static bool has_frames(const struct ng_view_record *record)
{
    return record->call_stack != 0;
}

/* The newest call with frames of a member; NULL none. */
static const struct ng_view_record *newest_of(const struct ng_view_member *member)
{
    for (uint32_t i = member->record_count; i > 0; i--)
        if (has_frames(&member->records[i - 1]))
            return &member->records[i - 1];
    return NULL;
}

/* The record of collective `seq` or, if that is 0, of the oldest operation in flight. */
static const struct ng_view_record *waiting_of(const struct ng_view_member *member, uint64_t seq)
{
    for (uint32_t i = member->record_count; i > 0; i--) {
        const struct ng_view_record *record = &member->records[i - 1];
        bool wanted = seq ? !ng_view_record_is_p2p(record) && record->coll_seq == seq
                          : member->pending_record && record->id == member->pending_record;
        if (wanted && has_frames(record))
            return record;
    }
    return NULL;
}

static int add(const struct ng_view *view, const struct ng_view_member *member,
               const struct ng_view_record *record, int rank, bool waits,
               struct ng_verdict *verdict)
{
    const struct ng_view_call_stack *stack = ng_view_call_stack(view, record);
    struct ng_verdict_call *call = &verdict->calls[verdict->call_count];
    struct ng_view_frame *frames = ng_arena_alloc(&verdict->arena, stack->count * sizeof(*frames));

    if (!frames)
        return -ENOMEM;
    for (uint32_t i = 0; i < stack->count; i++) {
        const struct ng_view_frame *from = &stack->frames[i];
        struct ng_view_module *module = NULL;
        frames[i] = *from;
        if (from->name && !(frames[i].name = ng_arena_strdup(&verdict->arena, from->name)))
            return -ENOMEM;
        if (!from->module)
            continue;
        module = ng_arena_alloc(&verdict->arena, sizeof(*module));
        if (!module)
            return -ENOMEM;
        module->path = ng_arena_strdup(&verdict->arena, from->module->path);
        module->build_id = ng_arena_strdup(&verdict->arena, from->module->build_id);
        if (!module->path || !module->build_id)
            return -ENOMEM;
        frames[i].module = module;
    }
    *call = (struct ng_verdict_call){
        .rank = rank,
        .waits = waits,
        .group_id = view->groups[member->group].id,
        .op = record->signature.op < NG_OP_LIMIT ? (enum ng_op)record->signature.op : NG_OP_NONE,
        .seq = ng_view_record_is_p2p(record) ? 0 : record->coll_seq,
        .frames = frames,
        .count = stack->count};
    verdict->call_count++;
    return 0;
}

/* Does the member belong to the culprit? If its process drives several ranks, only that rank's
 * does. Dumps of PyTorch tell no process. */
static bool is_of(const struct ng_view *view, const struct ng_view_member *member,
                  const struct ng_culprit *culprit)
{
    const struct ng_view_process *process = &view->processes[member->process];

    return process->pid == culprit->pid && strcmp(process->host, culprit->host) == 0 &&
           ((process->pid && !process->drives_several) ||
            ng_view_rank(view, member) == culprit->rank);
}

static int add_culprit(const struct ng_view *view, const struct ng_culprit *culprit,
                       struct ng_verdict *verdict)
{
    const struct ng_view_record *newest = NULL;
    const struct ng_view_member *where = NULL;

    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct ng_view_record *record =
            is_of(view, &view->members[i], culprit) ? newest_of(&view->members[i]) : NULL;
        if (record && (!newest || record->id > newest->id)) {
            newest = record;
            where = &view->members[i];
        }
    }
    return newest ? add(view, where, newest, culprit->rank, false, verdict) : 0;
}

/* Waiting ranks are nearly always in the same place, so one of them is enough. */
static int add_waiting(const struct ng_view *view, struct ng_verdict *verdict)
{
    uint32_t group = verdict->group_id ? ng_view_find_group(view, verdict->group_id) : UINT32_MAX;
    uint32_t count = 0;
    const struct ng_view_member *members =
        group != UINT32_MAX ? ng_view_members(view, group, &count) : NULL;

    for (uint32_t i = 0; i < count; i++) {
        int rank = ng_view_rank(view, &members[i]);
        bool waits = NG_ANY(waiting, verdict->waiting, verdict->waiting_count, *waiting == rank);
        const struct ng_view_record *record = waits ? waiting_of(&members[i], verdict->seq) : NULL;
        if (record)
            return add(view, &members[i], record, rank, true, verdict);
    }
    return 0;
}

int ng_verdict_add_calls(const struct ng_view *view, struct ng_verdict *verdict)
{
    int error = 0;

    if (!view->call_stack_count || verdict->kind == NG_KIND_HEALTHY)
        return 0;
    verdict->calls = ng_arena_alloc(&verdict->arena, (CULPRITS_MAX + 1) * sizeof(*verdict->calls));
    if (!verdict->calls)
        return -ENOMEM;
    for (uint32_t i = 0; !error && i < verdict->culprit_count && i < CULPRITS_MAX; i++)
        error = add_culprit(view, &verdict->culprits[i], verdict);
    return error ? error : add_waiting(view, verdict);
}
