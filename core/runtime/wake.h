/*
 * Waking the watchdog and the incident thread, from whatever finds something for them.
 *
 * What is found, others carry; here is only that a thread is to look soon.
 */
#ifndef NCCLGUARD_CORE_RUNTIME_WAKE_H
#define NCCLGUARD_CORE_RUNTIME_WAKE_H

#include <stdint.h>

#include "core/util/descriptor.h"

/* The watchdog is to look soon: works are getting short, or somebody waits for what it sees. Any
 * thread; at most one system call. */
void ng_wake_watchdog(void);

/* Two more of its rounds, one of which begins after this; not beyond the deadline. Program threads.
 */
void ng_wake_await_rounds(int64_t deadline_mono_ns);

/* The incident thread has something to look at. Any guard thread; async-signal-safe. */
void ng_wake_incident(void);

/* ---- The two threads themselves ---- */

/* Watchdog: what ng_wake_watchdog has been called by now, and to sleep until it is called once
 * more, or for so long. */
uint32_t ng_wake_watchdog_calls(void);
void ng_wake_watchdog_await(uint32_t calls, int64_t pause_ns);

/* Watchdog: a round is over. */
void ng_wake_end_round(void);

/* Before the incident thread starts, which comes round by itself where no event is to be had. */
void ng_wake_open_incident(void);

/* The incident thread: an eventfd that is readable once it is woken. */
const struct ng_descriptor *ng_wake_incident_event(void);

/* In a forked child. */
void ng_wake_after_fork(void);

#endif
