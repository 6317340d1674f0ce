/*
 * What the parts of the verdict engine write in the same way: culprits, group, and waiting ranks.
 *
 * Pure.
 */
#include "core/verdict/verdict_builder.h"
#include "core/util/macros.h"

#include <errno.h>
#include <stdio.h>

bool ng_verdict_builder_is_gone(const struct ng_verdict_builder *builder,
                                const struct ng_view_member *member)
{
    return ng_life_is_gone(ng_verdict_builder_process_of(builder, member)->life);
}

struct ng_culprit *ng_verdict_builder_add_culprit(struct ng_verdict_builder *builder,
                                                  const struct ng_view_member *member,
                                                  int group_rank)
{
    struct ng_verdict *verdict = builder->verdict;
    struct ng_culprit *culprit = NG_ARENA_APPEND(&verdict->arena, verdict->culprits,
                                                 verdict->culprit_count, builder->culprit_room);

    if (!culprit) {
        builder->error = -ENOMEM;
        culprit = &builder->no_room;
    }
    culprit->rank = -1;
    culprit->group_rank = group_rank;
    if (member) {
        culprit->rank = builder->processes.ranks[member - builder->view->members];
        culprit->pid = ng_verdict_builder_process_of(builder, member)->pid;
        culprit->life = ng_verdict_builder_process_of(builder, member)->life;
        culprit->quiet_ns = ng_verdict_builder_process_of(builder, member)->quiet_ns;
        culprit->gone_ns = ng_verdict_builder_process_of(builder, member)->life_age_ns;
        snprintf(culprit->host, sizeof(culprit->host), "%s",
                 ng_verdict_builder_process_of(builder, member)->host);
    }
    return culprit;
}

/* The rank that the process of `member` has in another group; -1: none, or more than one. */
int ng_verdict_builder_rank_in(const struct ng_verdict_builder *builder, uint32_t group,
                               const struct ng_view_member *member)
{
    const struct ng_view_index *processes = &builder->processes;

    for (uint32_t k = processes->first[member->process];
         k < processes->first[member->process + 1] &&
         !ng_verdict_builder_process_of(builder, member)->drives_several;
         k++) {
        const struct ng_view_member *other = &builder->view->members[processes->members[k]];
        if (other->group == group)
            return other->group_rank;
    }
    return -1;
}

void ng_verdict_builder_set_group(struct ng_verdict_builder *builder, uint32_t group)
{
    struct ng_verdict *verdict = builder->verdict;
    const struct ng_view_group *in_view = &builder->view->groups[group];

    verdict->group_id = in_view->id;
    verdict->group_nranks = in_view->nranks;
    snprintf(verdict->group_name, sizeof(verdict->group_name), "%s", in_view->name);
}

/* Orders by rank; culprits without a rank come last. */
static bool culprit_comes_before(const struct ng_culprit *a, const struct ng_culprit *b)
{
    if (a->rank != b->rank)
        return (unsigned)a->rank < (unsigned)b->rank;
    return a->group_rank < b->group_rank;
}

void ng_verdict_builder_sort_culprits(struct ng_culprit *culprits, uint32_t count)
{
    NG_SORT(culprits, count, culprit_comes_before(a, b));
}

/* Lists each waiting rank once, excluding culprits (already sorted). */
int ng_verdict_builder_list_waiting(struct ng_verdict_builder *builder)
{
    struct ng_verdict *verdict = builder->verdict;
    const struct ng_view *view = builder->view;
    uint32_t count = 0, culprit = 0;

    verdict->waiting = ng_arena_alloc(&verdict->arena, (view->member_count + 1) * sizeof(int));
    if (!verdict->waiting)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->member_count; i++)
        if (builder->waits.wait_of_member[i] >= 0 || builder->waits.held[i])
            verdict->waiting[count++] = builder->processes.ranks[i];
    NG_SORT(verdict->waiting, count, *a < *b);
    for (uint32_t i = 0; i < count; i++) {
        int rank = verdict->waiting[i];
        while (culprit < verdict->culprit_count && verdict->culprits[culprit].rank >= 0 &&
               verdict->culprits[culprit].rank < rank)
            culprit++;
        if (culprit < verdict->culprit_count && verdict->culprits[culprit].rank == rank)
            continue;
        if (verdict->waiting_count == 0 || verdict->waiting[verdict->waiting_count - 1] != rank)
            verdict->waiting[verdict->waiting_count++] = rank;
    }
    return 0;
}

/* Lists the other ranks of the group whose work does not finish. */
int ng_verdict_builder_list_waiting_in(struct ng_verdict_builder *builder, uint32_t group)
{
    struct ng_verdict *verdict = builder->verdict;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(builder->view, group, &count);

    verdict->waiting = ng_arena_alloc(&verdict->arena, (count + 1) * sizeof(int));
    verdict->waiting_count = 0;
    if (!verdict->waiting)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        int rank = builder->processes.ranks[&members[i] - builder->view->members];
        bool blamed =
            ng_verdict_builder_is_gone(builder, &members[i]) ||
            NG_ANY(culprit, verdict->culprits, verdict->culprit_count, culprit->rank == rank);
        if (members[i].pending_record)
            verdict->stalled_ns = NG_MAX(verdict->stalled_ns, members[i].pending_age_ns);
        if (!blamed && (members[i].pending_record || members[i].entered > members[i].scheduled))
            verdict->waiting[verdict->waiting_count++] = rank;
    }
    NG_SORT(verdict->waiting, verdict->waiting_count, *a < *b);
    return 0;
}
