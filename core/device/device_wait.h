/*
 * Blocking wait (NCCLGUARD_BLOCKING_WAIT): a collective, or the end of a NCCL group, returns when
 * the device has finished it, or with an error once its deadline has passed.
 *
 * Program threads wait here, without any lock and without spinning. The watchdog reports that a
 * deadline has passed, and the incident thread provides the verdict. So each work has one clock,
 * and time in which the process did not run is credited here as everywhere.
 *
 * What a call returns at its deadline depends on the policy. `log`: ncclSystemError, or
 * ncclRemoteError if a peer is the culprit, with the verdict as ncclGetLastError's text. The call
 * waits for the verdict, but no longer than for the dumps (or, if a verdict about another group
 * leads to an abort there, no longer than for that abort). The communicator is left as it is: the
 * work may still finish, and later calls are made. A policy that aborts: the error of the aborted
 * communicator, once it is aborted. `kill` and `teardown`: the error of `log`, or of the abort,
 * from all waiting calls, once the verdict is on disk; the process is ended only if none of them
 * has returned within NCCLGUARD_ABORT_WAIT (core/policy/policy.h). A program that receives the
 * error can end or go on by itself.
 *
 * Not waited for: captured calls, work that NCCL launches later (ncclInProgress), and work for
 * which no event was available.
 */
#ifndef NCCLGUARD_CORE_DEVICE_DEVICE_WAIT_H
#define NCCLGUARD_CORE_DEVICE_DEVICE_WAIT_H

#include <stdint.h>

#include "core/comm/comm.h"
#include "core/config/config.h"
#include "core/device/gpu.h"

/*
 * Record a separate event to wait for, since the watchdog retires the work as soon as it has
 * finished. Program thread, after the work's own end was recorded on `stream`. NULL: no event
 * available.
 */
struct ng_async_op *ng_device_wait_begin(struct ng_gpu *gpu, void *stream);

/*
 * Wait for the event of ng_device_wait_begin, for a call on `comm` that was entered at
 * `entered_mono_ns`; only verdicts newer than `newest` can concern it. Returns NCCL's success, or
 * the result that the call returns instead. `waiter` NULL: success at once. Takes ownership of
 * `waiter`.
 */
int ng_device_wait_end(struct ng_comm *comm, struct ng_async_op *waiter, int64_t entered_mono_ns,
                       uint32_t newest);

/* The deadline has passed for all unfinished calls that were entered until `entered_mono_ns` on the
 * communicator of this slot. Watchdog, or the thread that acts in its place. */
void ng_device_wait_expire(uint32_t slot, int64_t entered_mono_ns);

/* Pass on the verdict on a deadline, in one line, and the policy that the job applies. Incident
 * thread. */
void ng_device_wait_tell(enum ng_verdict_kind kind, const char *line, enum ng_on_timeout policy);

/* The process is to be ended for this verdict: all waiting calls return it as their error. Incident
 * thread. */
void ng_device_wait_fail_all(enum ng_verdict_kind kind, const char *line);

/* A call on this communicator (NULL: none) returns an error to the program. If it is one of the
 * communicators that are aborted for that verdict, this counts as well. Program threads. */
void ng_device_wait_note_error(const struct ng_comm *comm);

/* Has one of these calls returned, so that the program has the error? Any thread. */
bool ng_device_wait_is_taken(void);

/* Number of the newest verdict; read before the first wait of a call, for ng_device_wait_end. */
uint32_t ng_device_wait_newest(void);

/* A verdict newer than number `before`, and the policy that the job applies; false: there is none.
 * Program threads. */
bool ng_device_wait_get_verdict(uint32_t before, struct ng_comm_reason *ret_verdict,
                                enum ng_on_timeout *ret_policy);

/* Why the newest wait on this communicator failed; NULL: none did, or NCCL itself has rejected a
 * call since. Any thread; readable until the next wait fails. */
const char *ng_device_wait_reason(const struct ng_comm *comm);

#endif
