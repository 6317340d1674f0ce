/*
 * Reads NCCL's own counters on the device, to learn which launch of a communicator it is in.
 *
 * A copy of them on a stream of the guard's own comes back even while NCCL's kernels hang; should
 * one not come back, nothing more is copied in this process. Their layout is checked with each
 * copy: the structure must have the rank, the size and the address that it has to have in that
 * release of NCCL; otherwise this communicator's counters are not used.
 */
#ifndef NCCLGUARD_CORE_DEVICE_LAUNCH_COUNTERS_H
#define NCCLGUARD_CORE_DEVICE_LAUNCH_COUNTERS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/device/launch_log.h"
#include "core/util/clock.h"

#define NG_LAUNCH_COUNTERS_NS (150 * NG_MS) /* no thread waits longer for a reading */

/*
 * Read the counters of every communicator of this process that has work in flight, and write into
 * its group of the black box what they say (ng_box_counted). Waits for a worker thread, which calls
 * the driver, no longer than about a tenth of a second. Incident thread.
 */
void ng_launch_counters_read(void);

/* Make the stream and the memory for that, if a communicator has become known: while its kernels
 * hang, the driver may not. Never waits. True: one has. Incident thread, each round. */
bool ng_launch_counters_prepare(void);

/* Is anything copied from its memory at this moment? For core/device/release.h. */
bool ng_launch_counters_copies(const struct ng_comm *comm);

/* The process ends: read no more, and wait for a call of the driver that is under way, as long as
 * for a reading. */
void ng_launch_counters_finish(void);

/* For tests: do they say anything that the watchdog's events do not contradict? By those,
 * collective `completed` is finished, and `pending_seq` (0 none) is the oldest in flight. */
bool ng_launch_counters_agree(const struct ng_launch_progress *progress, uint64_t completed,
                              uint64_t pending_seq);

/* For tests: the counters in a copy of a communicator's structure of this release; false: its
 * layout is not the known one. */
#define NG_LAUNCH_COMM_BYTES (96u + NG_LAUNCH_CHANNELS * 368u)
bool ng_launch_counters_parse(const void *copy, uint64_t device_comm, int nccl_version, int rank,
                              int nranks, uint64_t ret_counters[NG_LAUNCH_CHANNELS]);

/* For tests: what a copy of NCCL's progress counters says of the kernel. */
enum ng_kernel ng_launch_counters_kernel(const void *copy);

void ng_launch_counters_after_fork(void);

#endif
