/*
 * Is it this call's turn? Which calls a fault of NCCLGUARD_FAULT means, and how they are counted.
 *
 * Only where faults are armed. Any program thread, lock-free; for the same calls of each rank in
 * the same order always the same answers.
 */
#ifndef NCCLGUARD_CORE_FAULT_FAULT_MATCH_H
#define NCCLGUARD_CORE_FAULT_FAULT_MATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/config/fault_spec.h"

/* What a fault is compared with. */
struct ng_fault_call {
    enum ng_op op;
    int rank;               /* -1 not known */
    uint64_t group_id;      /* 0 not known */
    const char *group_name; /* "" none */
    /* Which of the rank's communicators it is, as they come, from 1: the same in each run, which a
     * group's id is not. 0 none yet */
    uint32_t group_number;
};

/* How many calls matched so far. Zeroed memory is a beginning. */
#define NG_FAULT_COUNTS 4096u /* a power of two */
struct ng_fault_counts {
    struct {
        _Atomic uint64_t key; /* 0 free */
        _Atomic uint64_t calls;
    } places[NG_FAULT_COUNTS];
};

/* One more with this key; how many there are, from 1. Keys beyond the room share a place. */
uint64_t ng_fault_counts_add(struct ng_fault_counts *counts, uint64_t key);

/* Does fault `index`, of its specification, happen to this call? Counts the call. */
bool ng_fault_match(const struct ng_fault *fault, uint32_t index, const struct ng_fault_call *call,
                    struct ng_fault_counts *counts);

/* Its conditions alone, but for op=, nth=, every= and prob=: nothing is counted. */
bool ng_fault_concerns(const struct ng_fault *fault, const struct ng_fault_call *call);

#endif
