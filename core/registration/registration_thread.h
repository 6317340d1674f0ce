/*
 * The thread that deregisters memory when the program frees it.
 *
 * Not in the path of a call. To deregister, NCCL asks the peers of the registration to release it,
 * and waits for their answer without a bound: for a stopped peer, until it continues. A free of the
 * program must not block like this, so it hands the request to this thread ("ncclguard/regs"),
 * waits for a moment, and continues without it.
 */
#ifndef NCCLGUARD_CORE_REGISTRATION_REGISTRATION_THREAD_H
#define NCCLGUARD_CORE_REGISTRATION_REGISTRATION_THREAD_H

#include <stdbool.h>
#include <stdint.h>

/* Start it. `serve` handles the requests, and returns whether some are left to be tried again. 0,
 * or -errno: there is no such thread. */
int ng_registration_thread_start(bool (*serve)(void));

/* Wake it: there is something to deregister. False: there is no such thread. Any thread. */
bool ng_registration_thread_ask(void);

/* Since when its current deregistration has been under way; 0: none is. Any thread. */
int64_t ng_registration_thread_busy_mono_ns(void);

/* Called by the thread itself: a deregistration begins; it is finished. */
void ng_registration_thread_begin(void);
void ng_registration_thread_end(void);

/* No thread is left that could free anything: end it. Any thread. */
void ng_registration_thread_quit(void);

#endif
