/*
 * The end of the process by policy `teardown`, as program threads see it.
 *
 * Entered by program threads and the incident thread. Must never wait without a bound.
 */
#include "core/policy/teardown.h"

#include <stdatomic.h>

#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/memory.h"

/* Added to NCCLGUARD_ABORT_WAIT: the abort is reported, and the process ends. */
#define END_MARGIN_NS (8 * NG_S)

static NG_FORGOTTEN atomic_bool begun; /* the process ends once the abort is over */

void ng_teardown_begin(void)
{
    atomic_store(&begun, true);
}

bool ng_teardown_has_begun(void)
{
    return atomic_load(&begun);
}

void ng_teardown_await_end(void)
{
    int64_t until = ng_clock_mono_ns() + ng_guard.config.abort_wait_ns + END_MARGIN_NS;

    while (atomic_load_explicit(&begun, memory_order_relaxed) && ng_clock_mono_ns() < until)
        ng_clock_sleep(NG_S);
}
