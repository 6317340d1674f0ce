/*
 * Blocking wait (NCCLGUARD_BLOCKING_WAIT): a collective, or the closing of a NCCL group, returns
 * when the device has finished it, or with an error once its deadline has passed.
 *
 * Program threads wait here, without any lock and without spinning; the watchdog says when a
 * deadline has passed, the incident thread what the verdict is. So there is one clock for a work,
 * and time in which the process did not run is credited here as everywhere.
 *
 * What a call returns at its deadline depends on the policy. `log`: ncclSystemError, or
 * ncclRemoteError where a peer is to blame, with the verdict as ncclGetLastError's text; it waits
 * for the verdict, but no longer than for the dumps (or, where a verdict about another group leads
 * to an abort there, than for that). The communicator is left as it is: the work
 * may still finish, and later calls are made. A policy that aborts: the error of the aborted
 * communicator, once that is aborted. `kill`: that of `log`, once the verdict is on disk, from all
 * calls that wait; the process ends only where none has returned within NCCLGUARD_ABORT_WAIT
 * (core/policy/policy.h). A program that has the error knows how to end, or to go on.
 *
 * Not waited for: what is captured into a graph, what NCCL launches later (ncclInProgress), and
 * work for which no event could be had.
 */
#ifndef NCCLGUARD_CORE_DEVICE_DEVICE_WAIT_H
#define NCCLGUARD_CORE_DEVICE_DEVICE_WAIT_H

#include <stdint.h>

#include "core/comm/comm.h"
#include "core/config/config.h"
#include "core/device/gpu.h"

/*
 * Program thread, after the work's own end was recorded on `stream`: an event of its own to wait
 * for, since the watchdog takes the work away as soon as it is finished. NULL: none could be had.
 */
struct ng_async_op *ng_device_wait_begin(struct ng_gpu *gpu, void *stream);

/*
 * Wait for what ng_device_wait_begin gave, of a call on `comm` that was entered at
 * `entered_mono_ns`; verdicts after `newest` may be about it. NCCL's success, or what the call
 * returns instead. `waiter` NULL: success at once. Takes `waiter`.
 */
int ng_device_wait_end(struct ng_comm *comm, struct ng_async_op *waiter, int64_t entered_mono_ns,
                       uint32_t newest);

/* What was entered until `entered_mono_ns` on the communicator of this slot, and has not finished,
 * is past its deadline. Watchdog, or who stands in for it. */
void ng_device_wait_expire(uint32_t slot, int64_t entered_mono_ns);

/* Incident thread: the verdict on a deadline, in one line, and what the job does about it. */
void ng_device_wait_tell(enum ng_verdict_kind kind, const char *line, enum ng_on_timeout policy);

/* Incident thread: the process is to end for this verdict. All calls that wait now return it as
 * their error. */
void ng_device_wait_fail_all(enum ng_verdict_kind kind, const char *line);

/* Has one of them, so that the program has it? Any thread. */
bool ng_device_wait_is_taken(void);

/* Which verdict is the newest: for ng_device_wait_end, before the first wait of a call. */
uint32_t ng_device_wait_newest(void);

/* A verdict that came after number `before`, and what the job does about it; false:
 * none has. Program threads. */
bool ng_device_wait_hear(uint32_t before, struct ng_comm_reason *ret_verdict,
                         enum ng_on_timeout *ret_policy);

/* Why the newest wait on this communicator has failed; NULL none has, or NCCL itself has refused a
 * call since. Any thread; readable until the next one fails. */
const char *ng_device_wait_reason(const struct ng_comm *comm);

/* In a forked child. */
void ng_device_wait_after_fork(void);

#endif
