/*
 * Which injected faults have happened: recorded in the black box, so that a rehearsal is not
 * mistaken for a real failure.
 *
 * Only if NCCLGUARD_FAULT is set; otherwise a box has no such table. Written by the program's
 * threads; any process and thread may read it without a lock.
 */
#ifndef NCCLGUARD_CORE_RECORDER_FAULT_LOG_H
#define NCCLGUARD_CORE_RECORDER_FAULT_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/recorder/box.h"

/* One fault, as it was read. */
struct ng_logged_fault {
    char text[NG_BOX_FAULT_TEXT]; /* as in NCCLGUARD_FAULT */
    uint64_t times;               /* how often it has happened so far */
    /* The newest occurrence. */
    int rank;          /* -1 not known */
    enum ng_op op;     /* the call that it happened to */
    uint64_t group_id; /* 0 none, or not made yet */
    uint64_t seq;      /* the collective that the call would be, or is; 0 none */
    int64_t first_mono_ns, last_mono_ns;
};

/* Set the text of row `index`. Before a thread of the program can meet the fault. */
void ng_fault_log_arm(struct ng_box *box, uint32_t index, const char *text);

/* Record an occurrence: uses rank, op, group_id and seq of `now`. Any program thread. */
void ng_fault_log_add(struct ng_box *box, uint32_t index, const struct ng_logged_fault *now,
                      int64_t now_mono_ns);

/* Row `index` (below box->fault_capacity) of any mapped box. False: it has not happened, or is
 * damaged. */
bool ng_fault_log_read(const struct ng_box *box, uint32_t index, struct ng_logged_fault *ret_fault);

#endif
