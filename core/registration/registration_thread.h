/*
 * The thread that gives registrations back when the program frees memory.
 *
 * Beside the steps of a call. NCCL asks the peers of a registration to let go of it, and waits for
 * their answer without a bound: for one that is stopped, until it goes on. A free of the program
 * must not, so it asks this thread ("ncclguard/regs"), waits for a moment, and goes on without it.
 */
#ifndef NCCLGUARD_CORE_REGISTRATION_REGISTRATION_THREAD_H
#define NCCLGUARD_CORE_REGISTRATION_REGISTRATION_THREAD_H

#include <stdbool.h>
#include <stdint.h>

/* Start it; `serve` gives back what there is, and answers whether something is left that has to be
 * tried again. 0 or -errno: then nobody serves. */
int ng_registration_thread_start(bool (*serve)(void));

/* There is something to be given back. False: nobody serves. Any thread. */
bool ng_registration_thread_ask(void);

/* Since when it has been at one and the same giving back; 0: it is at none. Any thread. */
int64_t ng_registration_thread_busy_mono_ns(void);

/* The thread itself: it begins with one, or is through. */
void ng_registration_thread_begin(void);
void ng_registration_thread_end(void);

/* Nobody is left to free anything: end it. Any thread. */
void ng_registration_thread_quit(void);

/* In a forked child. */
void ng_registration_thread_after_fork(void);

#endif
