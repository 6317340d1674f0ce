/*
 * Ranks whose calls diverged earlier than any record that is left: detected by rolling hashes.
 *
 * A rolling hash covers the signatures of all collectives of a group up to one of them. So two
 * ranks with different hashes at a collective made a different call at or before it. Pure.
 */
#ifndef NCCLGUARD_CORE_VERDICT_DIVERGENCE_H
#define NCCLGUARD_CORE_VERDICT_DIVERGENCE_H

#include "core/view/view.h"

struct ng_divergence {
    uint64_t seq;      /* the first collective at which the hashes are known to differ */
    uint64_t after;    /* the last collective up to which all were alike; 0 none is known */
    uint64_t matched;  /* collectives since then that both sides are known to have called alike */
    uint64_t compared; /* the collective at which the hashes were compared */
    uint64_t expected; /* rolling hash of the majority there; meaningless if `undecided` */
    bool undecided;    /* there is no majority */
};

/*
 * Finds where the calls of a group diverged, at collective `last` or before. False: nowhere, or not
 * known. Linear in the records of the group, except for sorting its members.
 */
bool ng_divergence_find(const struct ng_view *view, uint32_t group, uint64_t last,
                        struct ng_arena *arena, struct ng_divergence *ret_parting);

/* The rolling hash of a member after its collective `seq`; 0 not known. */
uint64_t ng_rolling_hash_at(const struct ng_view_member *member, uint64_t seq);

#endif
