/*
 * Scales a counter so that it follows another clock without ever jumping.
 *
 * Pure: the two clocks are read by the caller (core/util/fast_clock.c).
 */
#ifndef NCCLGUARD_CORE_UTIL_CLOCK_FOLLOWER_H
#define NCCLGUARD_CORE_UTIL_CLOCK_FOLLOWER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/util/clock.h"

/* Between two looks at the clock that is followed, at least. */
#define NG_CLOCK_KEEP_NS (100 * NG_MS)

/* One instant in both clocks. */
struct ng_clock_instant {
    uint64_t ticks;
    int64_t mono_ns;
};

/* Time = ticks * factor / 2^64 + base. */
struct ng_clock_follower {
    struct ng_clock_instant before; /* the newest instant */
    uint64_t factor;                /* 0: no scale yet */
    int64_t base;
    bool is_off; /* for good: the clocks have come apart, or the counter is too slow */
};

static inline int64_t ng_clock_convert(uint64_t factor, int64_t base, uint64_t ticks)
{
    return (int64_t)((unsigned __int128)ticks * factor >> 64) + base;
}

/* Takes a later instant. True: the scale has changed; or, if it is off, it was in use before. */
bool ng_clock_follow(struct ng_clock_follower *follower, const struct ng_clock_instant *now);

#endif
