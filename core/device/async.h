/*
 * Errors that come while no call of a communicator is under way: those that NCCL reports
 * asynchronously, and those after which CUDA has failed for good on its device.
 *
 * The watchdog polls for NCCL's. The results of the program's own queries are used as well, and are
 * never changed. CUDA's are recorded where an event is queried (core/device/gpu.h).
 */
#ifndef NCCLGUARD_CORE_DEVICE_ASYNC_H
#define NCCLGUARD_CORE_DEVICE_ASYNC_H

#include <stdbool.h>
#include <stdint.h>

struct ng_alarm;
struct ng_comm;

/*
 * Query the communicators that are due, and raise an alarm for an error that has lasted for
 * NG_ASYNC_GRACE_NS: a program that handles the error itself has ended the communicator by then.
 * Communicators that the program is ending, that are being created, or that are nonblocking are not
 * queried: for a nonblocking one, the query is a step of the program's own call. Watchdog, each
 * round.
 */
void ng_async_look(int64_t now_mono_ns, uint32_t restarts);

/* Record the answer to a query of the program itself. Program threads. */
void ng_async_record_answer(struct ng_comm *comm, int error);

/* Does a thread query its error at this moment? For core/device/release.h. */
bool ng_async_asks(const struct ng_comm *comm);

/* Is the error that an alarm was raised for still there, and the communicator alive? */
bool ng_async_still(const struct ng_alarm *alarm);

#endif
