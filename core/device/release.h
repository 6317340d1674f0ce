/*
 * Before a communicator is freed: other threads that use it outside of its calls must be done.
 */
#ifndef NCCLGUARD_CORE_DEVICE_RELEASE_H
#define NCCLGUARD_CORE_DEVICE_RELEASE_H

struct ng_comm;

/* For a thread that is about to free this communicator and has set its fate: wait until no thread
 * queries its error (core/device/async.h) or copies from its memory
 * (core/device/launch_counters.h, connections.h). Takes some nanoseconds, and never more than two
 * seconds. */
void ng_release_await(const struct ng_comm *comm);

#endif
