/*
 * Decides which calls a fault of NCCLGUARD_FAULT applies to, and counts them.
 *
 * Only if faults are armed. Any program thread, lock-free. Deterministic: the same calls of a rank
 * in the same order give the same answers.
 */
#ifndef NCCLGUARD_CORE_FAULT_FAULT_MATCH_H
#define NCCLGUARD_CORE_FAULT_FAULT_MATCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/config/fault_spec.h"

/* The properties of a call that a fault is matched against. */
struct ng_fault_call {
    enum ng_op op;
    int rank;               /* -1 not known */
    uint64_t group_id;      /* 0 not known */
    const char *group_name; /* "" none */
    /* Number of the communicator on its rank, in order of appearance, from 1: the same in each run,
     * unlike a group's id. 0 none yet */
    uint32_t group_number;
};

/* How many calls matched so far. Initialised by zeroing. */
#define NG_FAULT_COUNTS 4096u /* a power of two */
struct ng_fault_counts {
    struct {
        _Atomic uint64_t key; /* 0 free */
        _Atomic uint64_t calls;
    } slots[NG_FAULT_COUNTS];
};

/* Count one more call with this key; returns the count, from 1. If the table is full, further keys
 * share a slot. */
uint64_t ng_fault_counts_add(struct ng_fault_counts *counts, uint64_t key);

/* Does fault `index` of its specification apply to this call? Counts the call. */
bool ng_fault_match(const struct ng_fault *fault, uint32_t index, const struct ng_fault_call *call,
                    struct ng_fault_counts *counts);

/* Do its conditions match, except op=, nth=, every= and prob=? Counts nothing. */
bool ng_fault_concerns(const struct ng_fault *fault, const struct ng_fault_call *call);

#endif
