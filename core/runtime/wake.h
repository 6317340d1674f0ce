/*
 * Wakes the watchdog and the incident thread when another part has work for them.
 *
 * Carries no data: it only makes a thread start its next round soon, or has the watchdog's round
 * run by the thread that needs its result.
 */
#ifndef NCCLGUARD_CORE_RUNTIME_WAKE_H
#define NCCLGUARD_CORE_RUNTIME_WAKE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/util/descriptor.h"

/* Start a watchdog round soon: free work records are running low, or a thread waits for its result.
 * Any thread; at most one system call. */
void ng_wake_watchdog(void);

/* The watchdog rests: nothing was under way when it last looked. */
extern atomic_bool ng_wake_watchdog_rests __attribute__((visibility("hidden")));

/* Something begins that the watchdog must see: it rests no longer. Any thread; a system call only
 * if it rests. */
static inline void ng_wake_resting_watchdog(void)
{
    if (__builtin_expect(atomic_load_explicit(&ng_wake_watchdog_rests, memory_order_relaxed), 0) &&
        atomic_exchange(&ng_wake_watchdog_rests, false))
        ng_wake_watchdog();
}

/* Wait for two more watchdog rounds, at least one of which begins after this call; not beyond the
 * deadline. Program threads. */
void ng_wake_await_rounds(int64_t deadline_mono_ns);

/* Look on the calling program thread at what the watchdog has taken over, and return what has
 * finished: the watchdog may get no processor for long. Waits at most `wait_ns` for a round that is
 * under way. False: it did not end by then, or there is no watchdog. The caller holds no lock, and
 * has a current CUDA context. */
bool ng_wake_look_here(int64_t wait_ns);

/* Wake the incident thread. Any guard thread; async-signal-safe. */
void ng_wake_incident(void);

/* ---- The two threads themselves ---- */

/* Watchdog: the number of ng_wake_watchdog calls so far; and sleep until that number differs from
 * `calls`, or for `pause_ns`. */
uint32_t ng_wake_watchdog_calls(void);
void ng_wake_watchdog_await(uint32_t calls, int64_t pause_ns);

/* Watchdog: it rests from its next pause on, or no longer. */
void ng_wake_rest(bool rests);

/* Watchdog, before its thread starts: what ng_wake_look_here calls. */
void ng_wake_set_look(bool (*look)(int64_t wait_ns));

/* Watchdog: a round is over. */
void ng_wake_end_round(void);

/* Create the event, before the incident thread starts; without one that thread polls
 * periodically. */
void ng_wake_open_incident(void);

/* Incident thread: an eventfd that is readable once the thread is woken. */
const struct ng_descriptor *ng_wake_incident_event(void);

/* In a forked child. */
void ng_wake_after_fork(void);

#endif
