/*
 * Who is to blame for ranks that wait for each other in a round: the fewer, where it is two calls, be they of one
 * communicator or of two; all that are in it, where they are as many, or the round is longer.
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

/* The step of the cycle that holds up step `at`. */
static const struct ng_cycle_step *step_before(const struct ng_cycle *cycle, uint32_t at)
{
    return &cycle->steps[at ? at - 1 : cycle->count - 1];
}

/* How many ranks are where step `at` is, and so hold up the step before. */
static uint32_t count_at(const struct ng_judge *judge, const struct ng_cycle *cycle, uint32_t at)
{
    const struct ng_cycle_step *before = step_before(cycle, at);
    const struct ng_wait *wait = &judge->waits.waits[before->wait];
    uint32_t count = 0;

    for (uint32_t k = 0; k < wait->absentee_count; k++)
        count += ng_cycle_leads(judge->view, &judge->waits, before, &wait->absentees[k], &cycle->steps[at]);
    return count;
}

/*
 * Of two communicators that ranks took in different orders: which step the fewer are in. They are wrong, as in any call
 * that most make alike. cycle->count: neither, or the cycle is longer.
 */
static uint32_t find_fewer(const struct ng_judge *judge, const struct ng_cycle *cycle)
{
    if (cycle->count != 2)
        return cycle->count;
    uint32_t first = count_at(judge, cycle, 0), second = count_at(judge, cycle, 1);
    return first == second ? cycle->count : first < second ? 0 : 1;
}

/* All ranks that are where step `at` is, of which the group that is told of is `group`. */
static int blame_step(struct ng_judge *judge, const struct ng_cycle *cycle, uint32_t at, uint32_t group)
{
    const struct ng_cycle_step *before = step_before(cycle, at);
    const struct ng_wait *wait = &judge->waits.waits[before->wait];

    for (uint32_t k = 0; k < wait->absentee_count; k++) {
        const struct ng_absentee *absentee = &wait->absentees[k];
        if (!ng_cycle_leads(judge->view, &judge->waits, before, absentee, &cycle->steps[at]))
            continue;
        struct ng_culprit *culprit =
            ng_judge_add_culprit(judge, absentee->member, ng_judge_rank_in(judge, group, absentee->member));
        if (!culprit)
            return -ENOMEM;
        ng_why_order(judge->verdict, at, culprit->why, sizeof(culprit->why));
    }
    return 0;
}

int ng_blame_order(struct ng_judge *judge, const struct ng_cycle *cycle, uint32_t *ret_wait)
{
    struct ng_verdict *verdict = judge->verdict;
    uint32_t fewer = find_fewer(judge, cycle), from = fewer == 0 ? 1 : 0;
    const struct ng_wait *told = &judge->waits.waits[cycle->steps[from].wait];

    int error = copy_cycle(judge, cycle);
    if (error)
        return error;
    *ret_wait = cycle->steps[from].wait;
    ng_judge_set_group(judge, told->group);
    verdict->kind = NG_KIND_ORDER_DEADLOCK;
    verdict->confidence = cycle->blurred ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN;
    verdict->seq = told->seq;
    verdict->op = cycle->steps[from].op;
    verdict->stalled_ns = 0;
    for (uint32_t i = 0; i < cycle->count && !error; i++) {
        const struct ng_wait *wait = &judge->waits.waits[cycle->steps[i].wait];
        if (wait->age_ns > verdict->stalled_ns)
            verdict->stalled_ns = wait->age_ns;
        if (fewer == cycle->count || i == fewer)
            error = blame_step(judge, cycle, i, told->group);
    }
    return error;
}

bool ng_blame_is_stray(const struct ng_waits *waits, const struct ng_cycle *cycle)
{
    if (cycle->count != 2)
        return false;
    const struct ng_wait *a = &waits->waits[cycle->steps[0].wait], *b = &waits->waits[cycle->steps[1].wait];

    return a->group == b->group && (a->type == NG_WAIT_CREATE) != (b->type == NG_WAIT_CREATE);
}

/* Each rank that is in wait `wait`, which called that where the others called `other`. */
static int blame_all_in(struct ng_judge *judge, uint32_t wait, const struct ng_wait *other, bool undecided)
{
    uint32_t count;
    const struct ng_view_member *members =
        ng_view_members(judge->view, judge->waits.waits[wait].group, &count);

    for (uint32_t i = 0; i < count; i++) {
        if (judge->waits.wait_of_member[&members[i] - judge->view->members] != (int32_t)wait)
            continue;
        struct ng_culprit *culprit = ng_judge_add_culprit(judge, &members[i], members[i].group_rank);
        if (!culprit)
            return -ENOMEM;
        ng_why_stray(&judge->waits.waits[wait], other, undecided, culprit->why, sizeof(culprit->why));
    }
    return 0;
}

int ng_blame_stray(struct ng_judge *judge, const struct ng_cycle *cycle, uint32_t *ret_wait)
{
    struct ng_verdict *verdict = judge->verdict;
    uint32_t a = cycle->steps[0].wait, b = cycle->steps[1].wait;
    const struct ng_wait *waits = judge->waits.waits;
    bool undecided = waits[a].waiter_count == waits[b].waiter_count;
    uint32_t most = waits[b].waiter_count > waits[a].waiter_count ? b : a, least = most == a ? b : a;
    const struct ng_wait *told = &waits[most];

    ng_judge_set_group(judge, told->group);
    verdict->kind = NG_KIND_MISMATCH;
    /* Ranks that are in neither call may come to either. */
    verdict->confidence = undecided ? NG_CONFIDENCE_UNKNOWN
                          : 2 * (int64_t)told->waiter_count > judge->view->groups[told->group].nranks
                              ? NG_CONFIDENCE_CERTAIN
                              : NG_CONFIDENCE_LIKELY;
    verdict->seq = told->seq;
    verdict->op = told->op;
    verdict->composed = told->composed;
    verdict->stalled_ns = waits[a].age_ns > waits[b].age_ns ? waits[a].age_ns : waits[b].age_ns;
    *ret_wait = most;
    int error = blame_all_in(judge, least, told, undecided);
    return error || !undecided ? error : blame_all_in(judge, most, &waits[least], undecided);
}
