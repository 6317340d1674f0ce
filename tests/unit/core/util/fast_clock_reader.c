/*
 * core/util/fast_clock.h as C++ tests can call it.
 */
#include "tests/unit/core/util/fast_clock_reader.h"

#include "core/util/fast_clock.h"

void fast_clock_keep(void)
{
    ng_fast_clock_keep(ng_clock_mono_ns());
}

void fast_clock_forget(void)
{
    ng_fast_clock_after_fork();
}

bool fast_clock_is_used(void)
{
    return atomic_load(&ng_fast_clock_scale) != NULL;
}

int64_t fast_clock_read(unsigned times, int64_t *ret_ahead_ns)
{
    int64_t behind = 0, ahead = 0, last = 0;

    for (unsigned i = 0; i < times; i++) {
        int64_t from = ng_clock_mono_ns(), shown = ng_fast_clock_mono_ns();
        int64_t until = ng_clock_mono_ns();
        if (shown < last)
            return -1;
        last = shown;
        if (from - shown > behind)
            behind = from - shown;
        if (shown - until > ahead)
            ahead = shown - until;
    }
    *ret_ahead_ns = ahead;
    return behind;
}
