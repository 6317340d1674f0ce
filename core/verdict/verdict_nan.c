/*
 * NaN in what ranks send.
 *
 * Pure. NaN spreads: a rank that receives it sends it on. So among the calls of one group in which
 * NaN was found, the first shows where it came from.
 */
#include <errno.h>

#include "core/verdict/explain.h"
#include "core/verdict/verdict_parts.h"

/* A held call is the reason why others wait; otherwise the oldest, which need not be the first
 * call, since watchdogs check periodically. NULL: there is none. */
static const struct ng_view_nan *find_nan(const struct ng_view *view)
{
    const struct ng_view_nan *first = NULL;

    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_nan *nan = &view->processes[i].nan;
        if (nan->age_ns && (!first || nan->held > first->held ||
                            (nan->held == first->held && nan->age_ns > first->age_ns)))
            first = nan;
    }
    for (uint32_t i = 0; first && first->seq && i < view->process_count; i++) {
        const struct ng_view_nan *nan = &view->processes[i].nan;
        if (nan->age_ns && nan->group_id == first->group_id && nan->seq && nan->seq < first->seq)
            first = nan;
    }
    return first;
}

static int blame_nan(struct ng_verdict_builder *builder, uint32_t group,
                     const struct ng_view_nan *first)
{
    NG_EACH_MEMBER (member, builder->view, group) {
        const struct ng_view_nan *nan = &ng_verdict_builder_process_of(builder, member)->nan;
        if (nan != first && !(first->seq && nan->age_ns && nan->group_id == first->group_id &&
                              nan->seq == first->seq))
            continue;
        struct ng_culprit *culprit = ng_verdict_builder_blame(builder, member);
        ng_explain_nan(nan, culprit);
    }
    ng_verdict_builder_sort_culprits(builder->verdict->culprits, builder->verdict->culprit_count);
    return builder->error;
}

int ng_verdict_builder_nan(struct ng_verdict_builder *builder, bool asked)
{
    const struct ng_view_nan *first = find_nan(builder->view);
    struct ng_verdict *verdict = builder->verdict;
    uint32_t group = first ? ng_view_find_group(builder->view, first->group_id) : UINT32_MAX;
    bool explained = verdict->kind != NG_KIND_HEALTHY && verdict->kind != NG_KIND_GPU_STALL &&
                     verdict->kind != NG_KIND_MISSING_RANK && verdict->kind != NG_KIND_UNKNOWN;

    if (group == UINT32_MAX || (!asked && (explained || !first->held)))
        return 0;
    int error = ng_view_index_find(builder->view, &builder->scratch, &builder->processes);
    if (error)
        return error;
    ng_verdict_builder_set_group(builder, group);
    verdict->kind = NG_KIND_NAN;
    verdict->seq = first->seq;
    verdict->op = first->op;
    verdict->pattern = NG_OP_NONE;
    verdict->graph = 0;
    verdict->cold = false;
    verdict->stalled_ns = 0;
    verdict->culprit_count = verdict->cycle_count = verdict->waiting_count = 0;
    error = blame_nan(builder, group, first);
    /* If all ranks have NaN, they may have received it from each other in a call that was not
     * checked. */
    verdict->confidence =
        verdict->culprit_count > 1 && (int)verdict->culprit_count == verdict->group_nranks
            ? NG_CONFIDENCE_LIKELY
            : NG_CONFIDENCE_CERTAIN;
    return error || !first->held ? error : ng_verdict_builder_list_waiting_in(builder, group);
}
