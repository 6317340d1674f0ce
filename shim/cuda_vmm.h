/*
 * The hooks on the CUDA driver that serve allocations from core/registration/vmm.h.
 *
 * Beside the steps of a call. Enabled together with those of cuda_memory.h, which calls the first
 * functions in place of the driver's own.
 */
#ifndef NCCLGUARD_SHIM_CUDA_VMM_H
#define NCCLGUARD_SHIM_CUDA_VMM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

/* Enables the hooks that no other feature needs. Once, before the program's main. */
void ng_cuda_vmm_enable(void);

/* Allocate, and report it to core/registration/segments.h. False: the driver must handle the
 * call. */
bool ng_cuda_vmm_alloc(CUdeviceptr *pointer, size_t bytes);

/* The result of cuMemFree. False: the address is not one of these allocations. */
bool ng_cuda_vmm_free(CUdeviceptr pointer, CUresult *ret_result);

/* A context was destroyed; NULL: one that is not tracked. */
void ng_cuda_vmm_context_gone(CUcontext context);

/* The primary context of a device, before it is reset; NULL: one that is not tracked. */
CUcontext ng_cuda_vmm_primary(CUdevice device);

#pragma GCC visibility pop

#endif
