/*
 * What NCCL launched together, and the collectives that programs compose from sends and receives.
 *
 * Before NCCL 2.28 there was no all-to-all, gather or scatter: programs compose them from sends and
 * receives in one NCCL group, and libraries still do. They are recognised when a view is reported,
 * not during the call, so calls cost nothing. Pure: no clock, no lock, no malloc.
 */
#ifndef NCCLGUARD_CORE_VIEW_P2P_PATTERNS_H
#define NCCLGUARD_CORE_VIEW_P2P_PATTERNS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/util/arena.h"
#include "core/view/view.h"

/*
 * One call, or all calls of an NCCL group on one communicator and stream, as far as the member
 * still has their records. Calls that NCCL refused belong to none.
 */
struct ng_p2p_pattern_work {
    uint32_t first, last; /* indices of its oldest and newest record */
    uint32_t coll_count, p2p_count;
    bool cut; /* its oldest records have been overwritten */
    /*
     * The operation that its sends and receives form: AlltoAll, AllToAllv (the counts differ),
     * Gather, Scatter; NG_OP_NONE: none, or not known.
     */
    enum ng_op op;
    int root;                /* of a gather or scatter; otherwise -1 */
    uint64_t sent, received; /* elements of its sends, of its receives */
};

struct ng_p2p_pattern {
    struct ng_p2p_pattern_work *works; /* in the order of their oldest records */
    uint32_t work_count;
    uint32_t *work_of; /* for each record of the member: index of its work; NG_P2P_PATTERN_NONE */
};

#define NG_P2P_PATTERN_NONE UINT32_MAX

/*
 * The works of `member` of a sealed view, oldest first; *ret_composed lives in `arena`. 0 or
 * -ENOMEM.
 *
 * All-to-all: one send to and one receive from every other rank, with or without itself (with two
 * ranks: with). Gather, of three ranks and more: the root receives from every other rank, and these
 * only send to it; scatter is the reverse. A pattern that another rank's evidence contradicts is
 * not named. Since one rank's part of a gather is a plain send, gathers and scatters are named only
 * if the view has all ranks of the group. So all ranks reported from one view agree.
 */
int ng_p2p_pattern_find(const struct ng_view *view, const struct ng_view_member *member,
                        struct ng_arena *arena, struct ng_p2p_pattern *ret_composed);

/* The same for the members of a group, one after another: results for one member are reused for the
 * next, so the total time is that of reading their records. Lives in `arena`. 0 or -ENOMEM. */
struct ng_p2p_pattern_search;
int ng_p2p_pattern_begin(const struct ng_view *view, uint32_t group, struct ng_arena *arena,
                         struct ng_p2p_pattern_search **ret_search);
int ng_p2p_pattern_next(struct ng_p2p_pattern_search *search, const struct ng_view_member *member,
                        struct ng_p2p_pattern *ret_composed);

/* "all-to-all", "gather", "scatter"; NULL: not a composed operation. */
const char *ng_p2p_pattern_words(enum ng_op op);

#endif
