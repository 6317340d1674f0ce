/*
 * Who is to blame for ranks that wait for each other in a round: the fewer, where it is two calls,
 * be they of one communicator or of two; else the one that departs from its own earlier rounds;
 * where nothing tells, all.
 *
 * Pure.
 */
#include <errno.h>
#include <stdio.h>

#include "core/verdict/culprits.h"
#include "core/verdict/explain.h"
#include "core/verdict/usual.h"

/* The history of more is not looked at. */
#define SUSPECTS_MAX 64u

/* Where a rank departed: mostly in the call that does not finish, or right before it; else some
 * calls before that. */
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
    }
    return 0;
}

/* The step of the cycle that holds up step `at`. */
static const struct ng_cycle_step *step_before(const struct ng_cycle *cycle, uint32_t at)
{
    return &cycle->steps[at ? at - 1 : cycle->count - 1];
}

/* How many ranks are where step `at` is, and so hold up the step before. */
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
 * Are the two steps a collective, and sends and receives, of one communicator? All calls on it come
 * in one order, so it is no cycle across communicators; but what others call says nothing of what
 * two ranks send each other.
 */
static bool is_of_one(const struct ng_wait_graph *waits, const struct ng_cycle *cycle)
{
    const struct ng_wait *a = &waits->waits[cycle->steps[0].wait],
                         *b = &waits->waits[cycle->steps[1].wait];

    return a->group == b->group && a->type != b->type;
}

/*
 * Of two communicators that ranks took in different orders: which step the fewer are in. They are
 * wrong, as in any call that most make alike. cycle->count: neither, or the cycle is longer.
 */
static uint32_t find_fewer(const struct ng_verdict_builder *builder, const struct ng_cycle *cycle)
{
    if (cycle->count != 2 || is_of_one(&builder->waits, cycle))
        return cycle->count;
    uint32_t first = count_at(builder, cycle, 0), second = count_at(builder, cycle, 1);
    return first == second ? cycle->count : first < second ? 0 : 1;
}

/* The member with which the rank that `absentee` is of is stuck in a step of the cycle; UINT32_MAX
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

/* Who of a cycle is to blame: of step `step`, cycle->count: of each; of that the rank of this
 * member, ALL: each. */
struct choice {
    uint32_t step, member;
};
#define ALL UINT32_MAX

/*
 * Who departs from what it called in earlier rounds, where that is one alone: all others are known,
 * and departed as often as each other, as all ranks do where a program comes to another phase.
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

/* All ranks that are where step `at` is, and chosen; of which the group that is told of is `group`.
 */
static int blame_step(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      const struct choice *choice, uint32_t at, uint32_t group)
{
    const struct ng_cycle_step *before = step_before(cycle, at);
    const struct ng_wait *wait = &builder->waits.waits[before->wait];

    for (uint32_t k = 0; k < wait->absentee_count; k++) {
        const struct ng_absentee *absentee = &wait->absentees[k];
        if (!ng_cycle_leads(builder->view, &builder->waits, before, absentee, &cycle->steps[at]) ||
            (choice->member != ALL &&
             stuck_at(builder, &cycle->steps[at], absentee) != choice->member))
            continue;
        struct ng_culprit *culprit = ng_verdict_builder_add_culprit(
            builder, absentee->member,
            ng_verdict_builder_rank_in(builder, group, absentee->member));
        if (!culprit)
            return -ENOMEM;
        ng_explain_order(builder->verdict, at, culprit->why, sizeof(culprit->why));
        if (choice->member != ALL)
            ng_explain_departs(culprit->why, sizeof(culprit->why));
    }
    return 0;
}

int ng_culprits_order(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      uint32_t *ret_wait)
{
    struct ng_verdict *verdict = builder->verdict;
    bool of_one = cycle->count == 2 && is_of_one(&builder->waits, cycle);
    struct choice choice = {.step = find_fewer(builder, cycle), .member = ALL};

    int error = copy_cycle(builder, cycle);
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
        if (wait->age_ns > verdict->stalled_ns)
            verdict->stalled_ns = wait->age_ns;
        if (choice.step == cycle->count || i == choice.step)
            error = blame_step(builder, cycle, &choice, i, told->group);
    }
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

    return a->group == b->group && (a->type == NG_WAIT_CREATE) != (b->type == NG_WAIT_CREATE);
}

/* Each rank that is in wait `wait`, which called that where the others called `other`. */
static int blame_all_in(struct ng_verdict_builder *builder, uint32_t wait,
                        const struct ng_wait *other, bool undecided)
{
    uint32_t count;
    const struct ng_view_member *members =
        ng_view_members(builder->view, builder->waits.waits[wait].group, &count);

    for (uint32_t i = 0; i < count; i++) {
        if (builder->waits.wait_of_member[&members[i] - builder->view->members] != (int32_t)wait)
            continue;
        struct ng_culprit *culprit =
            ng_verdict_builder_add_culprit(builder, &members[i], members[i].group_rank);
        if (!culprit)
            return -ENOMEM;
        ng_explain_stray(&builder->waits.waits[wait], other, undecided, culprit->why,
                         sizeof(culprit->why));
    }
    return 0;
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
    /* Ranks that are in neither call may come to either. */
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
