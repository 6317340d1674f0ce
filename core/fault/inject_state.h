/*
 * State that injected faults leave on communicators: answers to ncclCommGetAsyncError, and
 * postponed calls.
 *
 * Only if faults are armed. Lock-free; any thread.
 */
#ifndef NCCLGUARD_CORE_FAULT_INJECT_STATE_H
#define NCCLGUARD_CORE_FAULT_INJECT_STATE_H

#include <stdbool.h>
#include <stdint.h>

struct ng_call;
struct ng_comm;

/* From now on its asynchronous error is `error`. */
void ng_inject_state_fail(const struct ng_comm *comm, int error);

/* The creation of, or the call on, this handle stays in progress until then. False: no room. */
bool ng_inject_state_delay(const void *handle, int64_t until_mono_ns);

/* What ncclCommGetAsyncError returns; `error` is NCCL's own answer. */
int ng_inject_state_answer(const void *handle, int error);

/* Postpone a call. False: no room, or a call on its communicator is postponed already. */
bool ng_inject_state_put_off(const struct ng_call *call);

/* The postponed call on this communicator: its number, for ng_inject_state_take; 0 none. */
uint32_t ng_inject_state_waiting(const void *handle);
void ng_inject_state_take(uint32_t number, struct ng_call *ret_call);

/* Number of the communicator on its rank, from 1, in order of the first call here; 0: cannot be
 * counted. */
uint32_t ng_inject_state_number(const struct ng_comm *comm, int rank);

/* In a forked child. */
void ng_inject_state_after_fork(void);

/* ---- inject_gpu.c: faults on the device, through the driver functions that core has. Queued work
 * ends with the process; no device setting is changed. ---- */

/* Block the call's stream: later work on it never begins. 0, or the CUresult of the failure. */
int ng_inject_gpu_stall(const struct ng_call *call);

/* Put NaN into the data that the call is to send. 0; -EINVAL: its data type has no NaN, or there is
 * no buffer; or a CUresult. */
int ng_inject_gpu_nan(const struct ng_call *call);

#endif
