/*
 * Measured durations: the tables in the black box, their writers and readers.
 *
 * Two tables (core/recorder/box.h): statistics for each group, operation and size since the process
 * began; and the newest samples of collectives in which every rank waits for all others, which are
 * compared across ranks (core/verdict/straggler.h). Written only by the watchdog; any process and
 * thread may read them meanwhile, without a lock.
 */
#ifndef NCCLGUARD_CORE_RECORDER_DURATIONS_H
#define NCCLGUARD_CORE_RECORDER_DURATIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/recorder/box.h"

/* One row of the table, as it was read. */
struct ng_duration {
    uint64_t group_id;
    enum ng_op op;       /* NG_OP_GroupEnd: several calls of one NCCL group, launched together */
    uint32_t size_class; /* up to 2^size_class bytes */
    uint64_t count, sum_ns, min_ns, max_ns;
    /* Sums up to at most `count`. Bucket k: shorter than ng_duration_bucket_end_ns(k). */
    uint64_t histogram[NG_DURATION_BUCKETS];
};

/* One measured collective, or several of one NCCL group. */
struct ng_duration_sample {
    uint64_t group_id;
    uint32_t group_slot; /* of the communicator in the box */
    uint64_t seq;        /* of its last collective, from 1 */
    uint32_t calls;      /* calls in the work */
    int64_t duration_ns;
};

/* The class of a message size: ceil(log2(bytes)); 0 for 0 and 1 bytes. */
uint32_t ng_duration_size_class(uint64_t bytes);

/* The bucket of a duration, and its upper end; INT64_MAX for the last. */
unsigned ng_duration_bucket(int64_t duration_ns);
int64_t ng_duration_bucket_end_ns(unsigned bucket);

/* Count a measured work. Watchdog. If the table is full, the oldest row of an ended group is
 * reused; if there is none, durations_lost in the header grows. */
void ng_durations_add(struct ng_box *box, uint64_t group_id, enum ng_op op, uint64_t bytes,
                      int64_t duration_ns);

/* Store a sample in place of the oldest one. Watchdog. */
void ng_duration_sample_add(struct ng_box *box, const struct ng_duration_sample *sample);

/*
 * Row `index` (below box->duration_capacity) of any mapped box. False: free, or damaged. Counts of
 * a group never shrink while it lives; a reader between two stores may see a count one ahead of its
 * sum.
 */
bool ng_durations_read(const struct ng_box *box, uint32_t index, struct ng_duration *ret_duration);

/*
 * The numbers of the samples in a box, from *ret_first up to, but not including, *ret_end, the
 * newest last. Some may be overwritten before they are read.
 */
void ng_duration_samples(const struct ng_box *box, uint64_t *ret_first, uint64_t *ret_end);
bool ng_duration_sample_read(const struct ng_box *box, uint64_t number,
                             struct ng_duration_sample *ret_sample);

#endif
