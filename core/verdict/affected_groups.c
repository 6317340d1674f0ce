/*
 * Finds the groups that a verdict affects.
 *
 * Pure. Linear in members.
 */
#include "core/verdict/affected_groups.h"

#include "core/util/macros.h"
#include "core/verdict/verdict.h"
#include "core/verdict/wait_graph.h"
#include "core/view/view.h"

static void add(struct ng_group_set *scope, uint64_t group_id)
{
    if (!group_id || ng_group_set_holds(scope, group_id))
        return;
    if (scope->count == NG_GROUP_SET_MAX)
        *scope = NG_GROUP_SET_ALL;
    else
        scope->groups[scope->count++] = group_id;
}

/* A call that derives a communicator from another one ends only with that one; and the ranks that
 * have not joined the call know only that one. */
static void add_parent(struct ng_group_set *scope, const struct ng_view *view,
                       const struct ng_verdict *verdict)
{
    uint32_t group = ng_view_find_group(view, verdict->group_id);

    if (group != UINT32_MAX && ng_op_table[verdict->op].op_class == NG_CLASS_CREATE)
        add(scope, view->groups[group].parent_id);
}

/* Has it left because NCCL reported the end of another process? Then it had unfinished work
 * everywhere. */
static bool was_told(const struct ng_view *view, const struct ng_view_process *process)
{
    for (uint32_t i = 0; i < process->member_count; i++)
        if (ng_wait_left_after_report(view,
                                      &view->members[view->by_process[process->first_member + i]]))
            return true;
    return false;
}

/* A process that left for another reason, or that only sends no messages, may have done its part in
 * all other groups. */
static bool is_gone(const struct ng_verdict *verdict, const struct ng_view_process *process)
{
    return process->life == NG_LIFE_DEAD ||
           ((process->life == NG_LIFE_EXITED || process->life == NG_LIFE_LOST) &&
            NG_ANY(culprit, verdict->culprits, verdict->culprit_count,
                   ng_culprit_is_of(culprit, process)));
}

void ng_affected_groups_find(const struct ng_view *view, const struct ng_verdict *verdict,
                             struct ng_group_set *ret_scope)
{
    *ret_scope = (struct ng_group_set){0};
    add(ret_scope, verdict->group_id);
    add_parent(ret_scope, view, verdict);
    for (uint32_t i = 0; i < verdict->cycle_count; i++)
        add(ret_scope, verdict->cycle[i].group_id);
    for (uint32_t i = 0; i < verdict->other_id_count; i++)
        add(ret_scope, verdict->other_ids[i]);
    NG_EACH (member, view->members, view->member_count) {
        const struct ng_view_process *process = &view->processes[member->process];
        if (ng_group_state_is_alive(member->state) &&
            (is_gone(verdict, process) || was_told(view, process)))
            add(ret_scope, view->groups[member->group].id);
    }
    if (!ret_scope->count)
        *ret_scope = NG_GROUP_SET_ALL;
}
