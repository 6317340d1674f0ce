/*
 * Culprit selection for ranks that wait for each other in a cycle. If two calls are involved, on
 * one communicator or on two: the ranks in the call that has fewer. Otherwise the rank that
 * deviates from its own earlier rounds; if that decides nothing, all.
 *
 * Pure.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/util/macros.h"
#include "core/verdict/culprits.h"
#include "core/verdict/explain.h"
#include "core/verdict/usual.h"

/* The history of more ranks is not examined. */
#define SUSPECTS_MAX 64u

/* A rank usually deviated in the call that does not finish, or right before it; otherwise some
 * calls earlier. */
#define SHORTLY_BEFORE 2u
#define LONG_BEFORE    16u

static int copy_cycle(struct ng_verdict_builder *builder, const struct ng_cycle *cycle)
{
    struct ng_verdict *verdict = builder->verdict;
    const struct ng_view *view = builder->view;

    verdict->cycle = ng_arena_alloc(&verdict->arena, cycle->count * sizeof(*verdict->cycle));
    if (!verdict->cycle)
        return -ENOMEM;
    verdict->cycle_count = cycle->count;
    for (uint32_t i = 0; i < cycle->count; i++) {
        const struct ng_cycle_step *from = &cycle->steps[i];
        const struct ng_wait *wait = &builder->waits.waits[from->wait];
        struct ng_verdict_step *step = &verdict->cycle[i];
        step->rank = builder->processes.ranks[from->stuck];
        step->group_rank = view->members[from->stuck].group_rank;
        step->group_id = view->groups[wait->group].id;
        snprintf(step->group_name, sizeof(step->group_name), "%s", view->groups[wait->group].name);
        step->op = from->op;
        step->seq = wait->seq;
        step->waits_for_rank = builder->processes.ranks[from->next->member - view->members];
        step->queued = from->next->queued;
        step->closing = from->next->closing_tid != 0;
    }
    return 0;
}

/* The step before step `at` of the cycle, which `at` blocks. */
static const struct ng_cycle_step *step_before(const struct ng_cycle *cycle, uint32_t at)
{
    return &cycle->steps[at ? at - 1 : cycle->count - 1];
}

/* The number of ranks that are in step `at`, and so block the step before. */
static uint32_t count_at(const struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                         uint32_t at)
{
    const struct ng_cycle_step *before = step_before(cycle, at);
    const struct ng_wait *wait = &builder->waits.waits[before->wait];
    uint32_t count = 0;

    for (uint32_t k = 0; k < wait->absentee_count; k++)
        count += ng_cycle_leads(builder->view, &builder->waits, before, &wait->absentees[k],
                                &cycle->steps[at]);
    return count;
}

/*
 * Are the two steps a collective, and sends and receives, of one communicator? All ranks make the
 * calls on it in one order, so this is not a cycle across communicators. But the calls of the other
 * ranks say nothing about what two ranks send each other.
 */
static bool is_of_one(const struct ng_wait_graph *waits, const struct ng_cycle *cycle)
{
    const struct ng_wait *a = &waits->waits[cycle->steps[0].wait],
                         *b = &waits->waits[cycle->steps[1].wait];

    return a->group == b->group && a->type != b->type;
}

/* Which of the two collectives of a cycle did a thread of this rank make first? -1: not both, or
 * not known. */
static int made_first(const struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      const struct ng_view_member *member, const bool *absent)
{
    const struct ng_view *view = builder->view;
    const struct ng_view_index *index = &builder->processes;
    const struct ng_wait *one = &builder->waits.waits[cycle->steps[0].wait],
                         *other = &builder->waits.waits[cycle->steps[1].wait];
    const struct ng_view_record *first = ng_view_collective(member, one->seq), *second = NULL;

    for (uint32_t k = index->first[member->process];
         k < index->first[member->process + 1] && first && !second; k++) {
        const struct ng_view_member *its = &view->members[index->members[k]];
        if (its->group == other->group && !absent[index->members[k]] &&
            ng_same_actor(view, its, member))
            second = ng_view_collective(its, other->seq);
    }
    /* In an NCCL group the order of calls is not that of the work. */
    if (!second || first->tid != second->tid || (first->flags & second->flags & NG_RECORD_IN_GROUP))
        return -1;
    return first->id < second->id ? 0 : 1;
}

/*
 * Adds the ranks that have made both collectives, in the order in which those in the one or the
 * other step were to make them: the others do not wait for a rank that has sent its part to the
 * root of a reduction. ret_counts[i]: those in step i.
 */
static int count_both(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      uint32_t ret_counts[2])
{
    const struct ng_view *view = builder->view;
    bool *absent = ng_arena_alloc(&builder->scratch, view->member_count + 1);
    uint32_t count;

    if (!absent)
        return -ENOMEM;
    for (uint32_t at = 0; at < 2; at++) {
        const struct ng_wait *wait = &builder->waits.waits[cycle->steps[at].wait];
        if (wait->type != NG_WAIT_COLLECTIVE)
            return 0;
        for (uint32_t i = 0; i < wait->absentee_count; i++)
            if (wait->absentees[i].member)
                absent[wait->absentees[i].member - view->members] = true;
    }
    const struct ng_view_member *members =
        ng_view_members(view, builder->waits.waits[cycle->steps[0].wait].group, &count);
    for (uint32_t i = 0; i < count; i++) {
        int first = absent[&members[i] - view->members]
                        ? -1
                        : made_first(builder, cycle, &members[i], absent);
        if (first >= 0)
            ret_counts[first]++;
    }
    return 0;
}

/*
 * If ranks used two communicators in different orders: the step that has fewer ranks. These are
 * wrong, as in any call that most ranks make alike. cycle->count: neither, or the cycle is longer.
 */
static int find_fewer(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      uint32_t *ret_step)
{
    *ret_step = cycle->count;
    if (cycle->count != 2 || is_of_one(&builder->waits, cycle))
        return 0;
    uint32_t counts[2] = {count_at(builder, cycle, 0), count_at(builder, cycle, 1)};
    int error = count_both(builder, cycle, counts);
    if (!error && counts[0] != counts[1])
        *ret_step = counts[0] < counts[1] ? 0 : 1;
    return error;
}

/* The member through which the absentee's rank is stuck in this step of the cycle; UINT32_MAX
 * none. */
static uint32_t stuck_at(const struct ng_verdict_builder *builder, const struct ng_cycle_step *step,
                         const struct ng_absentee *absentee)
{
    const struct ng_wait_graph *waits = &builder->waits;
    uint32_t process = absentee->member->process;

    if (builder->view->members[step->stuck].process == process)
        return step->stuck;
    for (uint32_t k = waits->stuck_first[process]; k < waits->stuck_first[process + 1]; k++)
        if (waits->wait_of_member[waits->stuck[k]] == (int32_t)step->wait &&
            ng_same_actor(builder->view, &builder->view->members[waits->stuck[k]],
                          absentee->member))
            return waits->stuck[k];
    return UINT32_MAX;
}

/* The culprits of a cycle. `step`: the step that they are in; cycle->count: every step. `member`:
 * the member of the one culprit in it; ALL: every rank. */
struct choice {
    uint32_t step, member;
};
#define ALL UINT32_MAX

/*
 * Chooses the rank that deviates from its earlier rounds, if there is exactly one: the history of
 * all others is known, and they deviated equally often, as all ranks do when a program enters
 * another phase.
 */
static int choose_by_history(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                             uint32_t calls_before, struct choice *ret_choice)
{
    struct choice found = {.step = cycle->count, .member = ALL};
    int most = -1, least = -1;
    uint32_t suspects = 0, have_most = 0, have_least = 0;

    for (uint32_t i = 0; i < cycle->count; i++) {
        const struct ng_cycle_step *before = step_before(cycle, i);
        const struct ng_wait *wait = &builder->waits.waits[before->wait];
        for (uint32_t k = 0; k < wait->absentee_count; k++) {
            int departures = -1;
            if (!ng_cycle_leads(builder->view, &builder->waits, before, &wait->absentees[k],
                                &cycle->steps[i]))
                continue;
            uint32_t member = stuck_at(builder, &cycle->steps[i], &wait->absentees[k]);
            if (++suspects > SUSPECTS_MAX || member == UINT32_MAX)
                return 0;
            int error = ng_usual_look(&builder->processes, member, calls_before, &builder->scratch,
                                      &departures);
            if (error)
                return error;
            if (departures < 0)
                return 0;
            if (departures > most) {
                most = departures;
                have_most = 0;
                found = (struct choice){.step = i, .member = member};
            }
            if (least < 0 || departures < least) {
                least = departures;
                have_least = 0;
            }
            have_most += departures == most;
            have_least += departures == least;
        }
    }
    if (have_most == 1 && have_least + 1 == suspects)
        *ret_choice = found;
    return 0;
}

/* The first absentee of step `from` that is stuck in step `to`, and of process `process`
 * (UINT32_MAX: any); NULL none. */
static const struct ng_absentee *find_led(const struct ng_verdict_builder *builder,
                                          const struct ng_cycle_step *from,
                                          const struct ng_cycle_step *to, uint32_t process)
{
    const struct ng_wait *wait = &builder->waits.waits[from->wait];

    return NG_FIND(absentee, wait->absentees, wait->absentee_count,
                   ng_cycle_leads(builder->view, &builder->waits, from, absentee, to) &&
                       (process == UINT32_MAX || absentee->member->process == process));
}

/* The pair of step `at` and the collective of wait `third`, if they wait for each other, too, and
 * the rank of the step is one of the fewer there. False: not so. */
static bool pair_with(const struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      uint32_t at, uint32_t third, struct ng_cycle_step ret_steps[2])
{
    const struct ng_wait *waits = builder->waits.waits;
    struct ng_cycle pair = {.steps = ret_steps, .count = 2};

    ret_steps[0] = cycle->steps[at];
    ret_steps[0].next = NULL;
    ret_steps[1] =
        (struct ng_cycle_step){.wait = third, .stuck = ret_steps[0].stuck, .op = waits[third].op};
    const struct ng_absentee *needed = find_led(builder, &ret_steps[0], &ret_steps[1], UINT32_MAX);
    if (!needed)
        return false;
    ret_steps[1].stuck = stuck_at(builder, &ret_steps[1], needed);
    ret_steps[1].next = find_led(builder, &ret_steps[1], &ret_steps[0],
                                 builder->view->members[ret_steps[0].stuck].process);
    ret_steps[0].next = needed;
    return ret_steps[1].next && ret_steps[1].stuck != UINT32_MAX &&
           count_at(builder, &pair, 0) < count_at(builder, &pair, 1);
}

/*
 * Where two steps have equally many ranks: does a rank of one of them, and none of the other, wait
 * for more ranks in a third collective, which wait for it? Then that rank is wrong in both.
 * *ret_pair is its step and that collective, of those the one with the lowest group id.
 */
static int find_third(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      struct ng_cycle *ret_pair)
{
    const struct ng_wait_graph *waits = &builder->waits;
    struct ng_cycle_step steps[2], *best = ng_arena_alloc(&builder->scratch, sizeof(steps));
    uint32_t found = 2;

    *ret_pair = (struct ng_cycle){0};
    if (!best)
        return -ENOMEM;
    for (uint32_t at = 0; at < 2; at++)
        for (uint32_t w = 0; w < waits->count; w++) {
            if (w == cycle->steps[0].wait || w == cycle->steps[1].wait ||
                waits->waits[w].type != NG_WAIT_COLLECTIVE ||
                waits->waits[cycle->steps[at].wait].type != NG_WAIT_COLLECTIVE ||
                !pair_with(builder, cycle, at, w, steps))
                continue;
            if (found == 1 - at)
                return 0;
            if (found == at && builder->view->groups[waits->waits[w].group].id >
                                   builder->view->groups[waits->waits[best[1].wait].group].id)
                continue;
            found = at;
            memcpy(best, steps, sizeof(steps));
        }
    if (found < 2)
        *ret_pair = (struct ng_cycle){
            .steps = best,
            .count = 2,
            .blurred = cycle->blurred ||
                       ng_cycle_is_blurred(builder->view, waits, &best[0], best[1].stuck) ||
                       ng_cycle_is_blurred(builder->view, waits, &best[1], best[0].stuck)};
    return 0;
}

/* Adds all chosen ranks that are in step `at`; `group` is the group of the verdict. */
static int blame_step(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      const struct choice *choice, uint32_t at, uint32_t group)
{
    const struct ng_cycle_step *before = step_before(cycle, at);
    const struct ng_wait *wait = &builder->waits.waits[before->wait];

    NG_EACH (absentee, wait->absentees, wait->absentee_count) {
        if (!ng_cycle_leads(builder->view, &builder->waits, before, absentee, &cycle->steps[at]) ||
            (choice->member != ALL &&
             stuck_at(builder, &cycle->steps[at], absentee) != choice->member))
            continue;
        struct ng_culprit *culprit = ng_verdict_builder_add_culprit(
            builder, absentee->member,
            ng_verdict_builder_rank_in(builder, group, absentee->member));
        ng_explain_order(builder->verdict, at, culprit);
        if (choice->member != ALL)
            ng_explain_departs(culprit);
    }
    return builder->error;
}

/* A rank of the cycle that only its hanging watchdog's last look shows to wait may wait no more:
 * then nothing tells why it does not come to the call in which another one waits for it. */
static void doubt_remembered(struct ng_verdict_builder *builder, const struct ng_cycle *cycle)
{
    struct ng_verdict *verdict = builder->verdict;

    for (uint32_t i = 0; i < cycle->count; i++) {
        uint32_t stuck = cycle->steps[i].stuck;
        if (!ng_wait_is_remembered(builder->view, &builder->waits, stuck))
            continue;
        if (verdict->confidence == NG_CONFIDENCE_CERTAIN)
            verdict->confidence = NG_CONFIDENCE_LIKELY;
        NG_EACH (culprit, verdict->culprits, verdict->culprit_count)
            ng_explain_unwatched(builder->processes.ranks[stuck], true, culprit);
    }
}

int ng_culprits_order(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      uint32_t *ret_wait)
{
    struct ng_verdict *verdict = builder->verdict;
    bool of_one = cycle->count == 2 && is_of_one(&builder->waits, cycle);
    struct choice choice = {.member = ALL};
    struct ng_cycle pair = {0};

    int error = find_fewer(builder, cycle, &choice.step);
    if (!error && cycle->count == 2 && choice.step == 2 && !of_one)
        error = find_third(builder, cycle, &pair);
    if (pair.count) {
        cycle = &pair;
        choice.step = 0;
    }
    error = error ?: copy_cycle(builder, cycle);
    if (!error && choice.step == cycle->count)
        error = choose_by_history(builder, cycle, SHORTLY_BEFORE, &choice);
    if (!error && choice.step == cycle->count)
        error = choose_by_history(builder, cycle, LONG_BEFORE, &choice);
    if (error)
        return error;
    uint32_t from = choice.step == cycle->count ? 0
                    : choice.step               ? choice.step - 1
                                                : cycle->count - 1;
    *ret_wait = cycle->steps[from].wait;
    const struct ng_wait *told = &builder->waits.waits[*ret_wait];
    ng_verdict_builder_set_group(builder, told->group);
    verdict->kind = of_one ? NG_KIND_MISMATCH : NG_KIND_ORDER_DEADLOCK;
    verdict->confidence =
        choice.member != ALL || cycle->blurred ? NG_CONFIDENCE_LIKELY : NG_CONFIDENCE_CERTAIN;
    if (of_one && choice.member == ALL)
        verdict->confidence = NG_CONFIDENCE_UNKNOWN;
    verdict->seq = told->seq;
    verdict->op = cycle->steps[from].op;
    verdict->stalled_ns = 0;
    for (uint32_t i = 0; i < cycle->count && !error; i++) {
        const struct ng_wait *wait = &builder->waits.waits[cycle->steps[i].wait];
        verdict->stalled_ns = NG_MAX(verdict->stalled_ns, wait->age_ns);
        if (choice.step == cycle->count || i == choice.step)
            error = blame_step(builder, cycle, &choice, i, told->group);
    }
    doubt_remembered(builder, cycle);
    if (of_one)
        verdict->cycle_count = 0;
    return error;
}

bool ng_culprits_is_stray(const struct ng_wait_graph *waits, const struct ng_cycle *cycle)
{
    if (cycle->count != 2)
        return false;
    const struct ng_wait *a = &waits->waits[cycle->steps[0].wait],
                         *b = &waits->waits[cycle->steps[1].wait];

    if (a->group != b->group)
        return false;
    return a->type == NG_WAIT_HOST || b->type == NG_WAIT_HOST ||
           (a->type == NG_WAIT_CREATE) != (b->type == NG_WAIT_CREATE);
}

/* Adds each rank in wait `wait`, which made this call while the others made `other`. */
static int blame_all_in(struct ng_verdict_builder *builder, uint32_t wait,
                        const struct ng_wait *other, bool undecided)
{
    NG_EACH_MEMBER (member, builder->view, builder->waits.waits[wait].group) {
        if (builder->waits.wait_of_member[member - builder->view->members] != (int32_t)wait)
            continue;
        struct ng_culprit *culprit = ng_verdict_builder_blame(builder, member);
        ng_explain_stray(&builder->waits.waits[wait], other, undecided, culprit);
    }
    return builder->error;
}

int ng_culprits_stray(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      uint32_t *ret_wait)
{
    struct ng_verdict *verdict = builder->verdict;
    uint32_t a = cycle->steps[0].wait, b = cycle->steps[1].wait;
    const struct ng_wait *waits = builder->waits.waits;
    bool undecided = waits[a].waiter_count == waits[b].waiter_count;
    uint32_t most = waits[b].waiter_count > waits[a].waiter_count ? b : a,
             least = most == a ? b : a;
    const struct ng_wait *told = &waits[most];

    ng_verdict_builder_set_group(builder, told->group);
    verdict->kind = NG_KIND_MISMATCH;
    /* Ranks that are in neither call may still join either. */
    verdict->confidence =
        undecided ? NG_CONFIDENCE_UNKNOWN
        : 2 * (int64_t)told->waiter_count > builder->view->groups[told->group].nranks
            ? NG_CONFIDENCE_CERTAIN
            : NG_CONFIDENCE_LIKELY;
    verdict->seq = told->seq;
    verdict->op = told->op;
    verdict->pattern = told->pattern;
    verdict->stalled_ns = waits[a].age_ns > waits[b].age_ns ? waits[a].age_ns : waits[b].age_ns;
    *ret_wait = most;
    int error = blame_all_in(builder, least, told, undecided);
    return error || !undecided ? error : blame_all_in(builder, most, &waits[least], undecided);
}
