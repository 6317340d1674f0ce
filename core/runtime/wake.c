/*
 * The two wake-ups: a futex word for the watchdog, an eventfd for the incident thread.
 *
 * Entered by any thread. Must never wait, except in functions whose header says so.
 */
#include "core/runtime/wake.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/log.h"

static _Atomic uint32_t hurry; /* futex word: grows with each request for an early round */
static _Atomic uint32_t rounds;
atomic_bool ng_wake_watchdog_rests;
static struct ng_descriptor kick_event; /* written before the thread starts */
static bool (*_Atomic look_here)(int64_t wait_ns);

void ng_wake_watchdog(void)
{
    atomic_fetch_add_explicit(&hurry, 1, memory_order_relaxed);
    ng_futex_wake(&hurry, 1);
}

uint32_t ng_wake_watchdog_calls(void)
{
    return atomic_load_explicit(&hurry, memory_order_relaxed);
}

void ng_wake_watchdog_await(uint32_t calls, int64_t pause_ns)
{
    ng_futex_wait(&hurry, calls, pause_ns);
}

void ng_wake_rest(bool rests)
{
    /* Every call reads it: written only when it changes. */
    if (atomic_load_explicit(&ng_wake_watchdog_rests, memory_order_relaxed) != rests)
        atomic_store(&ng_wake_watchdog_rests, rests);
}

void ng_wake_end_round(void)
{
    atomic_fetch_add(&rounds, 1);
}

void ng_wake_await_rounds(int64_t deadline_mono_ns)
{
    uint32_t first = atomic_load(&rounds);

    while (atomic_load(&ng_guard.running) && atomic_load(&rounds) - first < 2 &&
           ng_clock_mono_ns() < deadline_mono_ns) {
        ng_wake_watchdog();
        ng_clock_sleep(NG_MS / 5);
    }
}

void ng_wake_set_look(bool (*look)(int64_t wait_ns))
{
    atomic_store(&look_here, look);
}

bool ng_wake_look_here(int64_t wait_ns)
{
    bool (*look)(int64_t) = atomic_load(&look_here);

    return look && look(wait_ns);
}

void ng_wake_open_incident(void)
{
    kick_event = ng_descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

const struct ng_descriptor *ng_wake_incident_event(void)
{
    return &kick_event;
}

void ng_wake_incident(void)
{
    uint64_t one = 1;

    /* Without the event, the thread starts its next round within a second anyway. */
    if (ng_descriptor_ours(&kick_event) && write(kick_event.fd, &one, sizeof(one)) < 0 &&
        errno != EAGAIN)
        ng_log(NG_LOG_DEBUG, "cannot wake the incident thread: %m");
}

void ng_wake_after_fork(void)
{
    atomic_store(&ng_wake_watchdog_rests, false);
    ng_descriptor_close(&kick_event);
}
