/*
 * Faults on the device: work that never begins, and numbers that are none.
 *
 * On the program's thread, by the driver's functions that core was given. What is queued ends with
 * the process; no setting of a device is touched.
 */
#ifndef NCCLGUARD_CORE_FAULT_INJECT_GPU_H
#define NCCLGUARD_CORE_FAULT_INJECT_GPU_H

struct ng_call;

/* What comes next on the call's stream never begins. 0; or a CUresult: it could not be had. */
int ng_inject_gpu_stall(const struct ng_call *call);

/* What the call is to send is NaN by then. 0; -EINVAL: its data type has no NaN, or there is no
 * buffer; or a CUresult. */
int ng_inject_gpu_nan(const struct ng_call *call);

#endif
