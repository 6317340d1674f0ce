/*
 * Durations on the device, merged from the measurements of all ranks.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_TIMINGS_H
#define NCCLGUARD_TOOLS_INGEST_TIMINGS_H

#include <stdint.h>

#include "core/view/view.h"

/* Of one group, operation and size class (core/recorder/durations.h). */
struct ng_timing {
    uint32_t group; /* index in the view */
    enum ng_op op;  /* NG_OP_GroupEnd: several calls of one NCCL group */
    uint32_t size_class;
    uint32_t processes; /* processes that have measured it */
    uint64_t count, sum_ns, min_ns, max_ns;
    uint64_t histogram[NG_DURATION_BUCKETS];
};

/* In order of group, operation and size. */
struct ng_timings {
    struct ng_timing *list;
    uint32_t count;
};

/* From a sealed view. Rows of groups that it does not have are left out. 0 or -ENOMEM. */
int ng_timings_find(const struct ng_view *view, struct ng_timings *ret_timings);
void ng_timings_fini(struct ng_timings *timings);

/* A percentile: the duration below which so many of a hundred are; at most the longest. */
uint64_t ng_timing_within_ns(const struct ng_timing *timing, unsigned percent);

/* The largest message in this size class. */
uint64_t ng_timing_size_bytes(const struct ng_timing *timing);

/* The average. */
uint64_t ng_timing_mean_ns(const struct ng_timing *timing);

#endif
