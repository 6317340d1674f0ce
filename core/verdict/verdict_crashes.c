/*
 * Ranks that crashed, whoever waited for them.
 *
 * Pure.
 */
#include <errno.h>

#include "core/util/macros.h"
#include "core/verdict/culprits.h"
#include "core/verdict/explain.h"
#include "core/verdict/verdict_parts.h"
#include "core/verdict/victims.h"

static bool has_crashed(const struct ng_view_process *process)
{
    int status = process->exit_status;

    return process->member_count && ng_life_has_ended(process->life) &&
           (ng_victims_is_crash(status) || ng_victims_is_abort(status));
}

/* Its group with work in flight, or else the one in which it has made the most collectives. */
static const struct ng_view_member *find_busiest(const struct ng_view *view,
                                                 const struct ng_view_process *process)
{
    const struct ng_view_member *busiest = NULL;

    for (uint32_t i = 0; i < process->member_count; i++) {
        const struct ng_view_member *member =
            &view->members[view->by_process[process->first_member + i]];
        if (member->pending_record)
            return member;
        if (!busiest || member->entered > busiest->entered)
            busiest = member;
    }
    return busiest;
}

int ng_verdict_builder_crashes(struct ng_verdict_builder *builder)
{
    const struct ng_view *view = builder->view;
    struct ng_verdict *verdict = builder->verdict;

    /* Programs may end by abort() on purpose: then all ranks do. */
    if (!NG_ANY(process, view->processes, view->process_count,
                !ng_victims_is_abort(process->exit_status)))
        return 0;
    int error = ng_view_index_find(view, &builder->scratch, &builder->processes);
    bool in_order = NG_ANY(process, view->processes, view->process_count,
                           process->life == NG_LIFE_DEAD && has_crashed(process));
    for (uint32_t i = 0; i < view->process_count && !error; i++) {
        const struct ng_view_process *process = &view->processes[i];
        if (!has_crashed(process) || (in_order && process->life != NG_LIFE_DEAD))
            continue;
        const struct ng_view_member *member = find_busiest(view, process);
        struct ng_culprit *culprit = ng_verdict_builder_add_culprit(builder, member, -1);
        ng_explain_crash(process, member, culprit);
        bool abort_in_wait = member->pending_record && ng_victims_is_abort(process->exit_status);
        verdict->kind = NG_KIND_DEAD_RANK;
        verdict->confidence = in_order && !abort_in_wait && verdict->culprit_count == 1
                                  ? NG_CONFIDENCE_CERTAIN
                                  : NG_CONFIDENCE_LIKELY;
    }
    error = error ?: ng_culprits_of_processes(builder);
    ng_verdict_builder_sort_culprits(verdict->culprits, verdict->culprit_count);
    return error;
}
