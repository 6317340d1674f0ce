/*
 * Completes a view: once all boxes are in, brings its members into order, and finds out which
 * numbers can be trusted.
 *
 * Any guard thread, and the command. Must never call malloc: see core/util/arena.h.
 */
#include "core/view/view.h"

#include "core/util/macros.h"
#include "core/view/grow_id.h"

static int compare_members(const void *left, const void *right)
{
    const struct ng_view_member *a = left, *b = right;

    /* Two handles of one rank in one group are a retried creation. The one in use comes first. */
    return NG_ORDER(a->group, b->group)
               ?: NG_ORDER(a->group_rank, b->group_rank)
               ?: NG_ORDER(b->state == NG_GROUP_READY, a->state == NG_GROUP_READY)
               ?: NG_ORDER(a->state, b->state)
               ?: NG_ORDER(b->entered, a->entered);
}

/* Heapsort: qsort may call malloc, which the guard's threads must not. */
static void sort_members(struct ng_view_member *members, uint32_t count)
{
    struct ng_view_member moving;

    for (uint32_t start = count / 2, end = count; end > 1;) {
        if (start > 0) {
            moving = members[--start];
        } else {
            moving = members[--end];
            members[end] = members[0];
        }
        uint32_t hole = start, child;
        while ((child = 2 * hole + 1) < end) {
            if (child + 1 < end && compare_members(&members[child], &members[child + 1]) < 0)
                child++;
            if (compare_members(&moving, &members[child]) >= 0)
                break;
            members[hole] = members[child];
            hole = child;
        }
        members[hole] = moving;
    }
}

/* Finds processes that have more than one rank of a group: remembers the last member seen per
 * process, one group at a time. */
static void find_several(struct ng_view *view)
{
    uint32_t *last = ng_arena_alloc(&view->arena, view->process_count * sizeof(*last));

    for (uint32_t i = 0; last && i < view->member_count; i++) {
        const struct ng_view_member *member = &view->members[i];
        uint32_t before = last[member->process];
        if (before && view->members[before - 1].group == member->group &&
            view->members[before - 1].group_rank != member->group_rank)
            view->processes[member->process].drives_several = true;
        last[member->process] = i + 1;
    }
}

/* Lists the members of each process; if memory is short, ng_view_rank searches all members
 * instead. */
static void sort_by_process(struct ng_view *view)
{
    uint32_t *places = ng_arena_alloc(&view->arena, (view->member_count + 1) * sizeof(*places));
    uint32_t first = 0;

    if (!places)
        return;
    for (uint32_t i = 0; i < view->process_count; i++) {
        view->processes[i].first_member = first;
        first += view->processes[i].member_count;
        view->processes[i].member_count = 0;
    }
    for (uint32_t i = 0; i < view->member_count; i++) {
        struct ng_view_process *process = &view->processes[view->members[i].process];
        places[process->first_member + process->member_count++] = i;
    }
    view->by_process = places;
}

/* Do two ranks of the group that begins with member `start` have the same number? `places` has mask
 * + 1 entries; entries left from earlier groups count as free. */
static bool share_a_number(const struct ng_view *view, uint32_t start, uint32_t *places,
                           uint32_t mask)
{
    const struct ng_view_member *members = view->members;

    for (uint32_t i = start; i < view->member_count && members[i].group == members[start].group;
         i++) {
        int rank = view->processes[members[i].process].rank;
        if (rank < 0)
            continue;
        uint32_t at = (uint32_t)rank & mask;
        while (places[at] && members[places[at] - 1].group == members[start].group &&
               view->processes[members[places[at] - 1].process].rank != rank)
            at = (at + 1) & mask;
        const struct ng_view_member *before = places[at] ? &members[places[at] - 1] : NULL;
        if (!before || before->group != members[start].group)
            places[at] = i + 1;
        else if (before->process != members[i].process &&
                 before->group_rank != members[i].group_rank)
            return true;
    }
    return false;
}

/* If ranks of one group share a global number, alive or not, the numbers of its other ranks are not
 * reliable either. */
static void distrust_groups(struct ng_view *view, uint32_t mask)
{
    uint32_t *places = ng_arena_alloc(&view->arena, (mask + 1) * sizeof(*places));
    bool shared = false;

    for (uint32_t i = 0; places && i < view->member_count; i++) {
        if (i == 0 || view->members[i - 1].group != view->members[i].group)
            shared = share_a_number(view, i, places, mask);
        view->processes[view->members[i].process].rank_collides |= shared;
    }
}

/*
 * A launcher's variables identify the task; child processes of a task (one task per node, one
 * process per device) all inherit the same values. So a rank that collides with another, or whose
 * world is smaller than one of its groups, identifies no process.
 */
static void distrust_launcher(struct ng_view *view)
{
    uint32_t mask = 15;

    while (mask < 2 * view->process_count)
        mask = mask * 2 + 1;
    uint32_t *first = ng_arena_alloc(&view->arena, (mask + 1) * sizeof(*first));
    for (uint32_t i = 0; first && i < view->process_count; i++) {
        struct ng_view_process *process = &view->processes[i];
        if (process->rank < 0 ||
            (process->life != NG_LIFE_RUNNING && process->life != NG_LIFE_STOPPED))
            continue;
        /* The first live process of this rank: index + 1. */
        uint32_t at = (uint32_t)process->rank & mask;
        while (first[at] && view->processes[first[at] - 1].rank != process->rank)
            at = (at + 1) & mask;
        if (first[at])
            process->rank_collides = view->processes[first[at] - 1].rank_collides = true;
        else
            first[at] = i + 1;
    }
    for (uint32_t i = 0; i < view->member_count; i++) {
        struct ng_view_process *process = &view->processes[view->members[i].process];
        /* A group size that only one rank reports is that rank's mistake. */
        int nranks = view->members[i].nranks ? view->members[i].nranks
                                             : view->groups[view->members[i].group].nranks;
        if (process->world_size > 0 && nranks > process->world_size)
            process->rank_collides = true;
    }
    distrust_groups(view, mask);
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].rank_collides)
            view->processes[i].rank = view->processes[i].world_size = -1;
}

static bool is_in_the_making(const struct ng_view *view, uint32_t group)
{
    return NG_ANY(member, view->members, view->member_count,
                  member->group == group && member->state == NG_GROUP_CREATING);
}

/* Finds the group also under the id that a rank was invited with, if it failed before it learned
 * another: core/view/grow_id.h. */
static uint32_t find_failed(const struct ng_view *view, uint64_t id)
{
    uint32_t group = ng_view_find_group(view, id);

    for (uint32_t i = 0; group == UINT32_MAX && i < view->member_count; i++)
        if (view->members[i].joined_id == id)
            group = view->members[i].group;
    return group;
}

/* Adds no failure of a rank that tried again, or of a group that no rank waits for any more. */
static void add_failures(struct ng_view *view)
{
    NG_EACH (failure, view->failures, view->failure_count) {
        uint32_t group = find_failed(view, failure->group_id);
        if (group == UINT32_MAX || !is_in_the_making(view, group))
            continue;
        bool again = NG_ANY(one, view->members, view->member_count,
                            one->group == group && one->process == failure->member.process &&
                                one->group_rank == failure->member.group_rank);
        struct ng_view_member *member = again
                                            ? NULL
                                            : ng_view_add_member(view, failure->member.process,
                                                                 group, failure->member.group_rank);
        if (!member)
            continue;
        *member = failure->member;
        member->group = group;
    }
    view->failure_count = 0;
}

void ng_view_seal(struct ng_view *view)
{
    ng_grow_id_unite(view);
    add_failures(view);
    sort_members(view->members, view->member_count);
    for (uint32_t i = 0; i < view->group_count; i++)
        view->groups[i].member_count = 0;
    for (uint32_t i = 0; i < view->process_count; i++)
        view->processes[i].member_count = 0;
    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct ng_view_member *member = &view->members[i];
        view->processes[member->process].member_count++;
        if (i == 0 || member[-1].group != member->group ||
            member[-1].group_rank != member->group_rank)
            view->groups[member->group].member_count++;
    }
    sort_by_process(view);
    find_several(view);
    distrust_launcher(view);
}
