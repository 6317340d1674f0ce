/*
 * The groups that a verdict affects: those whose communicators a policy aborts.
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
 * The group of the verdict, and the one that it is being created from; all groups of a cycle; and
 * every group with a member that has died, or that is a culprit and has left or was lost: nothing
 * in those groups can ever finish. All groups if the verdict names none, or if there is no room for
 * that many.
 */
void ng_affected_groups_find(const struct ng_view *view, const struct ng_verdict *verdict,
                             struct ng_group_set *ret_scope);

#endif
