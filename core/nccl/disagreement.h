/*
 * Two ranks of a group that were found to call different things. Plain data.
 */
#ifndef NCCLGUARD_CORE_NCCL_DISAGREEMENT_H
#define NCCLGUARD_CORE_NCCL_DISAGREEMENT_H

#include <stdint.h>

/* Where, as far as two hash logs (core/view/hash_log.h) tell. */
struct ng_hash_log_difference {
    uint64_t after; /* the newest common collective known up to which both are alike; 0 none */
    uint64_t seq;   /* the oldest one known up to which they are not */
};

struct ng_disagreement {
    uint64_t group_id; /* 0 none */
    struct ng_hash_log_difference difference;
    int ranks[2]; /* in the group */
};

#endif
