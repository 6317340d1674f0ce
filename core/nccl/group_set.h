/*
 * A set of groups, by their ids. Plain data.
 */
#ifndef NCCLGUARD_CORE_NCCL_GROUP_SET_H
#define NCCLGUARD_CORE_NCCL_GROUP_SET_H

#include <stdbool.h>
#include <stdint.h>

#define NG_GROUP_SET_MAX 64

struct ng_group_set {
    bool all; /* every group, including those not known yet; then none is listed */
    uint32_t count;
    uint64_t groups[NG_GROUP_SET_MAX]; /* ids */
};

#define NG_GROUP_SET_ALL ((struct ng_group_set){.all = true})

/* Is the group with this id in the set? */
static inline bool ng_group_set_holds(const struct ng_group_set *set, uint64_t group_id)
{
    for (uint32_t i = 0; i < set->count && !set->all; i++)
        if (set->groups[i] == group_id)
            return true;
    return set->all;
}

#endif
