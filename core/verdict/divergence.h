/*
 * Ranks whose calls parted longer ago than anybody has records of: told by rolling hashes.
 *
 * A rolling hash is that of the signatures of all collectives of a group up to one of them, so two
 * ranks that have different ones there have called something different before. Pure.
 */
#ifndef NCCLGUARD_CORE_VERDICT_DIVERGENCE_H
#define NCCLGUARD_CORE_VERDICT_DIVERGENCE_H

#include "core/view/view.h"

struct ng_divergence {
    uint64_t seq;      /* the first collective known to come after the one that differed */
    uint64_t after;    /* the last one up to which all were alike; 0 none is known */
    uint64_t matched;  /* collectives since then that both sides are known to have called alike */
    uint64_t compared; /* where sides were taken */
    uint64_t expected; /* rolling hash of the majority there; meaningless where `undecided` */
    bool undecided;    /* there is no majority */
};

/*
 * Where the calls of a group parted, as of collective `last` or before. False: nowhere, or nobody
 * can tell. Linear in the records of the group, but for ordering its members.
 */
bool ng_divergence_find(const struct ng_view *view, uint32_t group, uint64_t last,
                        struct ng_arena *arena, struct ng_divergence *ret_parting);

/* The rolling hash of a member after its collective `seq`; 0 not known. */
uint64_t ng_rolling_hash_at(const struct ng_view_member *member, uint64_t seq);

#endif
