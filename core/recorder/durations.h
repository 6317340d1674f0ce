/*
 * Measured durations: what is kept of them in the black box, and reading it.
 *
 * Two tables (core/recorder/box.h): figures of each group, operation and size since the process
 * began, and the newest samples of collectives in which every rank waits for every other, which
 * ranks compare (core/verdict/straggler.h). Written by the watchdog alone; read by anybody, any
 * thread, without a lock, while it is written.
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
    uint32_t calls;      /* in the work */
    int64_t duration_ns;
};

/* The class of a message of so many bytes: ceil(log2(bytes)); 0 of 0 and 1. */
uint32_t ng_duration_size_class(uint64_t bytes);

/* The bucket of a duration, and its upper end; INT64_MAX for the last. */
unsigned ng_duration_bucket(int64_t duration_ns);
int64_t ng_duration_bucket_end_ns(unsigned bucket);

/* Count a measured work. Watchdog. Where the table is full, the oldest row of a group that has
 * ended is given to another one; where there is none, durations_lost of the header grows. */
void ng_durations_add(struct ng_box *box, uint64_t group_id, enum ng_op op, uint64_t bytes,
                      int64_t duration_ns);

/* Keep a sample in the place of the oldest one. Watchdog. */
void ng_duration_sample_add(struct ng_box *box, const struct ng_duration_sample *sample);

/*
 * Row `index` (below box->duration_capacity) of any mapped box. False: free, or damaged. Counts
 * of a group never shrink while it lives; a reader that comes between two stores may see a count
 * that is one ahead of its sum.
 */
bool ng_durations_read(const struct ng_box *box, uint32_t index, struct ng_duration *ret_duration);

/*
 * The samples that a box holds have numbers from *ret_first up to, not including, *ret_end, the
 * newest last. Some of them may be overwritten by the time that they are read.
 */
void ng_duration_samples(const struct ng_box *box, uint64_t *ret_first, uint64_t *ret_end);
bool ng_duration_sample_read(const struct ng_box *box, uint64_t number,
                             struct ng_duration_sample *ret_sample);

#endif
