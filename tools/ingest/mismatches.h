/*
 * Every collective to which ranks passed something different, with the deviating ranks: not only
 * the one that a verdict reports.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_MISMATCHES_H
#define NCCLGUARD_TOOLS_INGEST_MISMATCHES_H

#include <stdint.h>

#include "core/util/arena.h"
#include "core/verdict/verdict.h"
#include "core/view/signature.h"
#include "tools/ingest/histories.h"

/* A rank outside the majority; if there is no majority, every rank. */
struct ng_mismatch_culprit {
    int rank, group_rank; /* global, -1 not known; in the group */
    uint32_t process;     /* index in the view */
    char why[256];        /* one sentence */
};

/* One difference, and those of the same ranks that follow from it. */
struct ng_mismatch_report {
    uint32_t group;                /* index in the view */
    uint64_t seq, last_seq, count; /* the first collective, the last one, how many */
    enum ng_op op;
    enum ng_confidence confidence;
    struct ng_mismatch_culprit *culprits; /* in order of group rank */
    uint32_t culprit_count;
};

struct ng_mismatches {
    struct ng_arena arena;              /* owns what follows */
    struct ng_mismatch_report *reports; /* by group, then seq */
    uint32_t count;
    uint64_t left_out; /* there are more than a reader needs */
};

/*
 * From a sealed view, and the differences that ng_view_merge_finish found in it. 0 or -ENOMEM; free
 * it with ng_mismatches_fini.
 */
int ng_mismatches_find(const struct ng_view *view, const struct ng_histories *histories,
                       struct ng_mismatches *ret_mismatches);
void ng_mismatches_fini(struct ng_mismatches *mismatches);

/*
 * If nothing is stuck, `verdict` is healthy although ranks did not call alike: turn it into the
 * verdict of the first report. 0 or -ENOMEM, and then it is unchanged.
 */
int ng_mismatches_blame(const struct ng_mismatches *mismatches, const struct ng_view *view,
                        struct ng_verdict *verdict);

#endif
