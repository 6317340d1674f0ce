/*
 * Which works are measured: NCCLGUARD_TIMING.
 *
 * A pair of events with timing costs about 5 us, nearly as much as a small collective, so `sampled`
 * measures few: one work of each 128 of its kind, and some early ones, so that short programs have
 * any. Which ones follows from their number alone: the same on all ranks of a group, so that the
 * ranks' durations of one collective can be compared, and at changing places, so that a program
 * whose iterations have 128 collectives does not always show the same of them.
 */
#ifndef NCCLGUARD_CORE_CONFIG_TIMING_H
#define NCCLGUARD_CORE_CONFIG_TIMING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* The first work from number `number` on (they count from 1) that is measured under `mode`, one of
 * NG_TIMING_*; UINT64_MAX: none. Pure. */
uint64_t ng_timing_next(int mode, uint64_t number);

/* Is the work of this number measured? *next is what ng_timing_next says as of the last one that
 * was; afterwards, as of this one. 0 as *next is always right. */
bool ng_timing_take(int mode, _Atomic uint64_t *next, uint64_t number);

/* The only question of nearly all calls: may it be? */
static inline bool ng_timing_may(const _Atomic uint64_t *next, uint64_t number)
{
    return __builtin_expect(number >= atomic_load_explicit(next, memory_order_relaxed), 0);
}

#endif
