/*
 * Looks at NCCL's connections on the device, to learn which rank a collective waits for that all
 * ranks have called.
 *
 * Only when something is suspected, and only of communicators whose counters are used
 * (core/device/launch_counters.h): copies on a stream of the guard's own come back while NCCL's
 * kernels hang (seen over NVLink, shared memory and sockets, NCCL 2.28.9); words in host memory are
 * read by the kernel for us, so a wrong address is an error. Each address must be one that the
 * driver knows. No look is begun while copies of another are under way, and after two that took
 * longer than 100 ms there are no more.
 */
#ifndef NCCLGUARD_CORE_DEVICE_CONNECTIONS_H
#define NCCLGUARD_CORE_DEVICE_CONNECTIONS_H

#include <stdbool.h>

#include "core/util/clock.h"

struct ng_comm;

#define NG_CONNECTIONS_NS (150 * NG_MS) /* no thread waits longer for a look */

/*
 * Look at the connections of every communicator of this process that has work in flight, and write
 * what they show into the black box (core/recorder/edges.h). Waits for a worker thread no longer
 * than about a tenth of a second; some milliseconds usually. Incident thread.
 */
void ng_connections_look(void);

/* The last look took too long, and another may be made once its copies are over. Any thread. */
bool ng_connections_are_late(void);

/* While work that was looked at is still the oldest of its communicator, look again now and then:
 * what the ranks show side by side must be of one moment. Incident thread, each round. */
void ng_connections_look_again(void);

/* Make the stream and the memory for that, while nothing hangs: a communicator has become
 * known (ng_launch_counters_prepare). Never waits. Incident thread. */
void ng_connections_prepare(void);

/* Is anything copied from its memory at this moment? After a look that took too long, until its
 * copies are over. For core/device/release.h. */
bool ng_connections_copies(const struct ng_comm *comm);

/* The process ends: look no more, and wait for a look that is under way. */
void ng_connections_finish(void);

void ng_connections_after_fork(void);

#endif
