/*
 * The monotonic clock for the path of a call: the processor's counter, scaled.
 *
 * Reading it takes a third of the time of clock_gettime. It is used only where the kernel's own
 * monotonic clock is that counter (x86-64, clock source tsc), and then follows that clock: it is
 * about 20 us behind, so that nothing seems to begin before its cause, and does not go back.
 * Everywhere else, in the first tenth of a second of a guard, and for good once the two have come
 * apart by a millisecond (a virtual machine that migrated), it is clock_gettime. Any thread may
 * read it; one thread keeps it.
 */
#ifndef NCCLGUARD_CORE_UTIL_FAST_CLOCK_H
#define NCCLGUARD_CORE_UTIL_FAST_CLOCK_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/util/clock.h"
#include "core/util/clock_follower.h"

/* As in struct ng_clock_follower. */
struct ng_fast_clock_scale {
    _Atomic uint64_t factor;
    _Atomic int64_t base;
};

/* NULL: not in use. A scale that was in use is not changed for a long time. */
extern struct ng_fast_clock_scale *_Atomic ng_fast_clock_scale
    __attribute__((visibility("hidden")));

/* As ng_clock_mono_ns. */
static inline int64_t ng_fast_clock_mono_ns(void)
{
#ifdef __x86_64__
    const struct ng_fast_clock_scale *scale =
        atomic_load_explicit(&ng_fast_clock_scale, memory_order_acquire);

    if (__builtin_expect(scale != NULL, 1))
        return ng_clock_convert(atomic_load_explicit(&scale->factor, memory_order_relaxed),
                                atomic_load_explicit(&scale->base, memory_order_relaxed),
                                __builtin_ia32_rdtsc());
#endif
    return ng_clock_mono_ns();
}

/* Follow the kernel's clock: at least every second, by one thread. Cheap if it was called within
 * the last tenth of a second; `now_mono_ns` is the time of the kernel's clock. */
void ng_fast_clock_keep(int64_t now_mono_ns);

/* In a forked child. */
void ng_fast_clock_after_fork(void);

#endif
