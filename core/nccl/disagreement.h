/*
 * Two ranks of a group whose calls were found to differ. Plain data.
 */
#ifndef NCCLGUARD_CORE_NCCL_DISAGREEMENT_H
#define NCCLGUARD_CORE_NCCL_DISAGREEMENT_H

#include <stdint.h>

/* Where their calls differ, as far as two hash logs (core/view/hash_log.h) show. */
struct ng_hash_log_difference {
    uint64_t
        after;    /* the newest common collective up to which both are known to be alike; 0 none */
    uint64_t seq; /* the oldest one up to which they are known to differ */
};

struct ng_disagreement {
    uint64_t group_id; /* 0 none */
    struct ng_hash_log_difference difference;
    int ranks[2]; /* in the group */
};

#endif
