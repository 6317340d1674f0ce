/*
 * What injected faults leave behind on communicators: answers to ncclCommGetAsyncError, and calls
 * that were put off.
 *
 * Only where faults are armed. Lock-free; any thread.
 */
#ifndef NCCLGUARD_CORE_FAULT_INJECT_STATE_H
#define NCCLGUARD_CORE_FAULT_INJECT_STATE_H

#include <stdbool.h>
#include <stdint.h>

struct ng_call;
struct ng_comm;

/* From now on its asynchronous error is `error`. */
void ng_inject_state_fail(const struct ng_comm *comm, int error);

/* What is made, or was called, with this handle is in progress until then. False: no room. */
bool ng_inject_state_delay(const void *handle, int64_t until_mono_ns);

/* What ncclCommGetAsyncError answers; `error` is NCCL's own answer. */
int ng_inject_state_answer(const void *handle, int error);

/* Put a call off. False: no room, or one on its communicator is put off already. */
bool ng_inject_state_put_off(const struct ng_call *call);

/* The call on this communicator that was put off: its number, for take; 0 none. */
uint32_t ng_inject_state_waiting(const void *handle);
void ng_inject_state_take(uint32_t number, struct ng_call *ret_call);

/* Which of its rank's communicators it is, from 1, as they come here; 0: not to be counted. */
uint32_t ng_inject_state_number(const struct ng_comm *comm, int rank);

/* In a forked child. */
void ng_inject_state_after_fork(void);

/* ---- inject_gpu.c: faults on the device, by the driver's functions that core was given. What is
 * queued ends with the process; no setting of a device is touched. ---- */

/* What comes next on the call's stream never begins. 0; or a CUresult: it could not be had. */
int ng_inject_gpu_stall(const struct ng_call *call);

/* What the call is to send is NaN by then. 0; -EINVAL: its data type has no NaN, or there is no
 * buffer; or a CUresult. */
int ng_inject_gpu_nan(const struct ng_call *call);

#endif
