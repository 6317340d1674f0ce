/*
 * Ranks that came to the making of a communicator, and do not mean the same one.
 *
 * Pure. What NCCL's bootstrap does not forgive: one rank number twice, another number of ranks,
 * another unique id; and what it refuses once all have come: another version, one device twice.
 * Sources: NCCL 2.28.9, bootstrap.cc (bootstrapRoot gives up without a word to those who have come)
 * and init.cc (initTransportsRank); for variables core/config/variables.def.
 */
#ifndef NCCLGUARD_CORE_VERDICT_INIT_MISMATCH_H
#define NCCLGUARD_CORE_VERDICT_INIT_MISMATCH_H

#include "core/verdict/wait_graph.h"
#include "core/view/view_index.h"

enum ng_init_differ {
    NG_INIT_RANK,     /* one rank number twice */
    NG_INIT_NRANKS,   /* different numbers of ranks */
    NG_INIT_ID,       /* different unique ids for what is one group */
    NG_INIT_VERSION,  /* of NCCL */
    NG_INIT_DEVICE,   /* one device twice */
    NG_INIT_VARIABLE, /* of NCCL, by which each rank decides for itself */
};

struct ng_init_odd {
    const struct ng_view_member *member;
    const char *why; /* begins with a verb */
};

struct ng_init_mismatch {
    enum ng_init_differ differ;
    uint32_t group; /* what the others mean */
    int nranks; /* and how many ranks it has; 0: that is what they disagree on, and nobody knows */
    /* Those who do not mean what most do; both sides where nothing tells who is wrong. */
    struct ng_init_odd *odds;
    uint32_t odd_count;
    bool undecided;
    bool likely; /* it is told by what is usual, or by which rank its launcher made it */
    /* What the others call the group, where ids differ. */
    uint64_t *other_ids;
    uint32_t other_id_count;
};

/*
 * Is that why the making in wait `wait` does not end? What explains that ranks are missing is
 * looked for first; the rest only where none is, for with a rank missing it has not come to it yet.
 * 1: yes, 0: no, or -ENOMEM; memory from `arena`. A wait of a first collective likewise: of
 * variables alone, and not where some devices have not reached it that have it to do.
 */
int ng_init_mismatch_find(const struct ng_view_index *processes, const struct ng_wait_graph *waits,
                          uint32_t wait, struct ng_arena *arena,
                          struct ng_init_mismatch *ret_mismatch);

/* What differs, in a word or two: "unique id". */
const char *ng_init_differ_text(enum ng_init_differ differ);

#endif
