/*
 * Asynchronous errors: what NCCL finds out about a communicator while no call of it is under way.
 *
 * The watchdog asks for them; what the program's own questions tell is heard as well, and its
 * answers are never changed.
 */
#ifndef NCCLGUARD_CORE_DEVICE_ASYNC_H
#define NCCLGUARD_CORE_DEVICE_ASYNC_H

#include <stdbool.h>
#include <stdint.h>

struct ng_alarm;
struct ng_comm;

/*
 * Ask where it is time, and raise an alarm for what has been wrong for NG_ASYNC_GRACE_NS: a program
 * that deals with the error itself has ended the communicator by then. Nothing is asked of
 * communicators that the program is ending, that are being made, or that are nonblocking: there the
 * question is a step of the program's own call. The watchdog's round.
 */
void ng_async_look(int64_t now_mono_ns, uint32_t restarts);

/* The program has asked, and this is the answer. Program threads. */
void ng_async_heard(struct ng_comm *comm, int error);

/* Who is about to free this communicator, and has said so in its fate, waits until nobody asks for
 * its error any more: some nanoseconds, and no more than two seconds whatever happens. */
void ng_async_await(const struct ng_comm *comm);

/* Is the error that an alarm was raised for still there, and the communicator alive? */
bool ng_async_still(const struct ng_alarm *alarm);

/* In a forked child. */
void ng_async_after_fork(void);

#endif
