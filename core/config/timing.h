/*
 * Selects the works that are measured: NCCLGUARD_TIMING.
 *
 * A pair of events with timing costs about 5 us, nearly as much as a small collective, so `sampled`
 * measures few: one of every 128 works of its kind, and some early ones, so that short programs get
 * some. The choice depends only on the work's number: it is the same on all ranks of a group, so
 * that the ranks' durations of one collective can be compared. Its position varies, so that a
 * program whose iterations have 128 collectives does not always measure the same one.
 */
#ifndef NCCLGUARD_CORE_CONFIG_TIMING_H
#define NCCLGUARD_CORE_CONFIG_TIMING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Number of the first work, from `number` on (numbers start at 1), that is measured under `mode`,
 * one of NG_TIMING_*; UINT64_MAX: none. Pure. */
uint64_t ng_timing_next(int mode, uint64_t number);

/*
 * Is the work of this number measured? *next holds the number of the next measured work
 * (ng_timing_next), and is updated. 0 is always a valid initial value. Another thread may change
 * the mode at any time, if it sets *next to 0 afterwards.
 */
bool ng_timing_take(const _Atomic int *mode, _Atomic uint64_t *next, uint64_t number);

/* May it be measured? The only check that nearly all calls make. */
static inline bool ng_timing_may(const _Atomic uint64_t *next, uint64_t number)
{
    return __builtin_expect(number >= atomic_load_explicit(next, memory_order_relaxed), 0);
}

#endif
