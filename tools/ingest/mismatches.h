/*
 * Every collective in which ranks passed something different, with who deviates: not only the one
 * that a verdict is about.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_MISMATCHES_H
#define NCCLGUARD_TOOLS_INGEST_MISMATCHES_H

#include <stdint.h>

#include "core/util/arena.h"
#include "core/verdict/verdict.h"
#include "core/view/signature.h"
#include "tools/ingest/histories.h"

/* A rank that is not with the majority; where there is none, every rank. */
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
    uint64_t left_out; /* more of them than anybody reads */
};

/*
 * From a sealed view, and the differences that ng_view_merge_finish found in it. 0 or -ENOMEM;
 * freed with ng_mismatches_fini.
 */
int ng_mismatches_find(const struct ng_view *view, const struct ng_histories *histories,
                       struct ng_mismatches *ret_mismatches);
void ng_mismatches_fini(struct ng_mismatches *mismatches);

/*
 * Nothing is stuck, so `verdict` is healthy, but ranks did not call alike: make it the verdict of
 * the first report. 0 or -ENOMEM, and then it is as it was.
 */
int ng_mismatches_blame(const struct ng_mismatches *mismatches, const struct ng_view *view,
                        struct ng_verdict *verdict);

#endif
