/*
 * The hooks on the CUDA driver that serve allocations from core/registration/vmm.h.
 *
 * Beside the steps of a call. Enabled beside those of cuda_memory.h, which calls the first
 * functions in place of the driver's own.
 */
#ifndef NCCLGUARD_SHIM_CUDA_VMM_H
#define NCCLGUARD_SHIM_CUDA_VMM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

/* Enables the hooks that nobody else needs. Once, before the program's main. */
void ng_cuda_vmm_enable(void);

/* An allocation, and its report to core/registration/segments.h. False: the driver has to answer.
 */
bool ng_cuda_vmm_alloc(CUdeviceptr *pointer, size_t bytes);

/* What cuMemFree answers. False: it is none of these. */
bool ng_cuda_vmm_free(CUdeviceptr pointer, CUresult *ret_result);

/* A context was destroyed. NULL none of our concern. */
void ng_cuda_vmm_context_gone(CUcontext context);

/* The primary context of a device, before it is reset; NULL none of our concern. */
CUcontext ng_cuda_vmm_primary(CUdevice device);

#pragma GCC visibility pop

#endif
