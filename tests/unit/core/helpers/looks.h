/* Looks at connections (core/device/connections.h) with communicators, a driver and a clock of the
 * test's. C, for core's headers with atomics. */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_LOOKS_H
#define NCCLGUARD_TESTS_UNIT_CORE_LOOKS_H

#include <stdbool.h>
#include <stdint.h>

#define LOOKS_COMMS 12

extern struct looks {
    int64_t now_ms;
    long reading_ms;    /* what reading the connections of a communicator takes */
    long copying_ms;    /* what a wait for copies takes */
    uint64_t channels;  /* that were read, of the first */
    bool hangs;         /* copies do not come back */
    bool unread;        /* the second of two items has an address that is not known */
    unsigned waits;     /* for copies */
    unsigned seen[100]; /* the communicators whose connections were read */
    unsigned count;
} looks;

/* All communicators have work in flight. */
void looks_begin(void);
void looks_look(void);
void looks_look_again(void);
/* Another work is the oldest of each. */
void looks_go_on(void);
bool looks_copies(unsigned comm);
/* NCCL's counters are read, and is something copied for them? */
void looks_count(void);
bool looks_counts(unsigned comm);
bool looks_are_late(void);

#endif
