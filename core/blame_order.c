/*
 * Who is to blame for a deadlock by order: all that are in its round.
 *
 * Step 9, pure.
 */
#include <errno.h>
#include <stdio.h>

#include "core/blame.h"
#include "core/why.h"

static int copy_cycle(struct ng_judge *judge, const struct ng_cycle *cycle)
{
    struct ng_verdict *verdict = judge->verdict;
    const struct ng_view *view = judge->view;

    verdict->cycle = ng_arena_alloc(&verdict->arena, cycle->count * sizeof(*verdict->cycle));
    if (!verdict->cycle)
        return -ENOMEM;
    verdict->cycle_count = cycle->count;
    for (uint32_t i = 0; i < cycle->count; i++) {
        const struct ng_cycle_step *from = &cycle->steps[i];
        const struct ng_wait *wait = &judge->waits.waits[from->wait];
        struct ng_verdict_step *step = &verdict->cycle[i];
        step->rank = judge->processes.ranks[from->stuck];
        step->group_rank = view->members[from->stuck].group_rank;
        step->group_id = view->groups[wait->group].id;
        snprintf(step->group_name, sizeof(step->group_name), "%s", view->groups[wait->group].name);
        step->op = from->op;
        step->seq = wait->seq;
        step->waits_for_rank = judge->processes.ranks[from->next->member - view->members];
        step->queued = from->next->queued;
    }
    return 0;
}

/* Everyone that is where a step of the cycle is, and so holds up the step before. */
int ng_blame_order(struct ng_judge *judge, const struct ng_cycle *cycle)
{
    struct ng_verdict *verdict = judge->verdict;
    const struct ng_wait *told = &judge->waits.waits[cycle->steps[0].wait];

    int error = copy_cycle(judge, cycle);
    if (error)
        return error;
    ng_judge_set_group(judge, told->group);
    verdict->kind = NG_KIND_ORDER_DEADLOCK;
    verdict->confidence = cycle->blurred ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN;
    verdict->seq = told->seq;
    verdict->op = cycle->steps[0].op;
    verdict->stalled_ns = 0;
    for (uint32_t i = 0; i < cycle->count; i++) {
        const struct ng_cycle_step *step = &cycle->steps[i];
        const struct ng_cycle_step *before = &cycle->steps[i ? i - 1 : cycle->count - 1];
        const struct ng_wait *wait = &judge->waits.waits[before->wait];
        if (wait->age_ns > verdict->stalled_ns)
            verdict->stalled_ns = wait->age_ns;
        for (uint32_t k = 0; k < wait->absentee_count; k++) {
            const struct ng_absentee *absentee = &wait->absentees[k];
            if (!ng_cycle_leads(judge->view, &judge->waits, before, absentee, step))
                continue;
            struct ng_culprit *culprit = ng_judge_add_culprit(
                judge, absentee->member, ng_judge_rank_in(judge, told->group, absentee->member));
            if (!culprit)
                return -ENOMEM;
            ng_why_order(verdict, i, culprit->why, sizeof(culprit->why));
        }
    }
    return 0;
}
