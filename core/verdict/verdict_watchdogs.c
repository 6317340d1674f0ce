/*
 * A watchdog that is stuck.
 *
 * Pure.
 */
#include <errno.h>
#include <stdio.h>

#include "core/util/macros.h"
#include "core/verdict/explain.h"
#include "core/verdict/verdict_parts.h"
#include "core/view/signature.h"

static bool is_unwatched(const struct ng_view_process *process)
{
    return process->watchdog_stuck_ns > 0 && process->member_count > 0 &&
           (process->life == NG_LIFE_RUNNING || process->life == NG_LIFE_ENDED_BY_GUARD);
}

/* The operation that the device was in when the watchdog last checked it; NULL nothing. */
static const struct ng_view_member *oldest_pending(const struct ng_view *view, uint32_t process)
{
    const struct ng_view_member *oldest = NULL;

    NG_EACH (member, view->members, view->member_count)
        if (member->process == process && member->pending_record &&
            (!oldest || member->pending_age_ns > oldest->pending_age_ns))
            oldest = member;
    return oldest;
}

static void tell_of_member(struct ng_verdict_builder *builder, const struct ng_view_member *member)
{
    struct ng_verdict *verdict = builder->verdict;
    const struct ng_view_group *group = &builder->view->groups[member->group];
    struct ng_signature signature;

    verdict->group_id = group->id;
    snprintf(verdict->group_name, sizeof(verdict->group_name), "%s", group->name);
    verdict->group_nranks = group->nranks;
    verdict->seq = member->pending_seq;
    if (member->pending_seq && ng_signature_at(member, member->pending_seq, &signature))
        verdict->op = (enum ng_op)signature.op;
}

static int blame_watchdog(struct ng_verdict_builder *builder, uint32_t index)
{
    const struct ng_view_process *process = &builder->view->processes[index];
    const struct ng_view_member *member = oldest_pending(builder->view, index);
    struct ng_verdict *verdict = builder->verdict;
    struct ng_culprit *culprit;

    if (!member)
        member = &builder->view->members[builder->view->by_process[process->first_member]];
    else if (!verdict->group_id)
        tell_of_member(builder, member);
    bool in_group = builder->view->groups[member->group].id == verdict->group_id;
    culprit = ng_verdict_builder_add_culprit(builder, member, in_group ? member->group_rank : -1);
    verdict->stalled_ns = NG_MAX(verdict->stalled_ns, process->watchdog_stuck_ns);
    snprintf(culprit->why, sizeof(culprit->why),
             "the watchdog of its guard has made no round for %.1f s%s%s",
             (double)process->watchdog_stuck_ns / 1e9, process->watchdog_in[0] ? ": it is in " : "",
             process->watchdog_in);
    return builder->error;
}

/* Is a rank whose device is watched named? */
static bool names_watched(const struct ng_verdict_builder *builder)
{
    const struct ng_view *view = builder->view;

    return NG_ANY(culprit, builder->verdict->culprits, builder->verdict->culprit_count,
                  !NG_ANY(process, view->processes, view->process_count,
                          is_unwatched(process) && ng_culprit_is_of(culprit, process)));
}

void ng_verdict_builder_tell_unwatched(struct ng_verdict_builder *builder,
                                       const struct ng_wait *wait)
{
    struct ng_verdict *verdict = builder->verdict;
    uint32_t unwatched = wait->from_memory      ? ng_wait_cause_waiter(builder, wait)
                         : wait->unwatched >= 0 ? (uint32_t)wait->unwatched
                                                : UINT32_MAX;

    if (unwatched == UINT32_MAX)
        return;
    int rank = builder->processes.ranks[unwatched];
    NG_EACH (culprit, verdict->culprits, verdict->culprit_count)
        ng_explain_unwatched(rank, wait->from_memory, culprit);
    if (wait->from_memory && verdict->confidence == NG_CONFIDENCE_CERTAIN)
        verdict->confidence = NG_CONFIDENCE_LIKELY;
}

/*
 * If a watchdog is stuck, it is not known what the devices of its process have finished. So it is
 * the reason if a device appears not to finish, or nothing appears wrong; it is not the reason if
 * the ranks' calls, or what a watched device shows, explain the stall without it.
 */
int ng_verdict_builder_watchdogs(struct ng_verdict_builder *builder, bool asked)
{
    struct ng_verdict *verdict = builder->verdict;
    const struct ng_view *view = builder->view;
    bool healthy = verdict->kind == NG_KIND_HEALTHY;
    bool explained =
        !healthy && ((verdict->kind != NG_KIND_GPU_STALL && verdict->kind != NG_KIND_UNKNOWN) ||
                     names_watched(builder));
    uint32_t stuck = 0;
    int error = 0;

    for (uint32_t i = 0; i < view->process_count; i++)
        stuck += is_unwatched(&view->processes[i]);
    if (!stuck || (explained && !asked))
        return 0;
    if (healthy)
        error = ng_view_index_find(view, &builder->scratch, &builder->processes);
    verdict->kind = NG_KIND_WATCHDOG_STUCK;
    verdict->confidence = healthy || asked ? NG_CONFIDENCE_CERTAIN : NG_CONFIDENCE_LIKELY;
    verdict->group_id = 0;
    verdict->group_name[0] = '\0';
    verdict->group_nranks = 0;
    verdict->seq = 0;
    verdict->op = NG_OP_NONE;
    verdict->stalled_ns = 0;
    verdict->culprit_count = verdict->waiting_count = verdict->cycle_count = 0;
    for (uint32_t i = 0; i < view->process_count && !error; i++)
        if (is_unwatched(&view->processes[i]))
            error = blame_watchdog(builder, i);
    ng_verdict_builder_sort_culprits(verdict->culprits, verdict->culprit_count);
    return error ? error : ng_verdict_builder_list_waiting(builder);
}
