/*
 * Scales a counter so that it follows another clock. Pure.
 */
#include "core/util/clock_follower.h"

#define LAG_NS    (20 * NG_US) /* it stays behind that clock, so that it is not ahead */
#define SLIP_NS   (5 * NG_US)  /* beyond this it is corrected */
#define APART_NS  NG_MS        /* beyond this it is not trusted any more */
#define SETTLE_NS NG_S         /* a correction takes effect within this time */

/* The factor by which ticks since `from` become nanoseconds; 0 out of range. */
static uint64_t rate(const struct ng_clock_instant *from, const struct ng_clock_instant *to)
{
    uint64_t ticks = to->ticks - from->ticks;
    int64_t ns = to->mono_ns - from->mono_ns;

    /* A factor is below 1: counters of less than 1 GHz are not used. */
    if (ns <= 0 || ticks <= (uint64_t)ns || ticks >> 63)
        return 0;
    return (uint64_t)(((unsigned __int128)(uint64_t)ns << 64) / ticks);
}

bool ng_clock_follow(struct ng_clock_follower *by, const struct ng_clock_instant *now)
{
    if (by->is_off)
        return false;
    if (!by->before.ticks) {
        by->before = *now;
        return false;
    }
    int64_t passed_ns = now->mono_ns - by->before.mono_ns;
    if (passed_ns < NG_CLOCK_KEEP_NS)
        return false;
    uint64_t measured = rate(&by->before, now);
    int64_t shown = by->factor ? ng_clock_convert(by->factor, by->base, now->ticks) : now->mono_ns;
    int64_t slip = shown - (now->mono_ns - LAG_NS);
    if (!measured || slip < -APART_NS || slip > APART_NS) {
        by->is_off = true;
        return by->factor != 0;
    }
    by->before = *now;
    if (by->factor && slip >= -SLIP_NS && slip <= SLIP_NS)
        return false;
    /* From here on the time that it shows runs on without a jump, a little slower or faster than
     * the kernel's, until both agree. */
    by->factor = measured - (uint64_t)((__int128)measured * slip / SETTLE_NS);
    by->base = 0;
    by->base = shown - ng_clock_convert(by->factor, by->base, now->ticks);
    return true;
}
