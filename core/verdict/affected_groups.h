/*
 * Which groups a verdict is about: those whose communicators a policy aborts.
 *
 * Pure. Found once, by the rank that reaches the verdict, which sees the whole job; every rank then
 * acts on the same list.
 */
#ifndef NCCLGUARD_CORE_VERDICT_AFFECTED_GROUPS_H
#define NCCLGUARD_CORE_VERDICT_AFFECTED_GROUPS_H

#include "core/nccl/group_set.h"

struct ng_verdict;
struct ng_view;

/*
 * The group of the verdict, with the one that it is being made from; all groups of a cycle; and
 * every group with a member that has died, or that has left or was lost and is a culprit: nothing
 * in those can ever finish. All groups where the verdict names none, or there are more of them than
 * have room.
 */
void ng_affected_groups_find(const struct ng_view *view, const struct ng_verdict *verdict,
                             struct ng_group_set *ret_scope);

#endif
