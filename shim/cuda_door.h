/*
 * The door to the CUDA driver: what a program gets that fetches driver functions by name.
 *
 * Beside the steps of a call. The CUDA runtime, linked dynamically or statically, looks
 * cuGetProcAddress up in its handle of libcuda.so.1 and takes every other function from that; JAX
 * and CuPy look up functions themselves. Both get our hooks where cuda_hooks.h has enabled one.
 * NCCL gets the driver's own answers, and so does a library that NCCL is a part of: what it
 * allocates is no business of ours.
 *
 * Out of reach: a program that is linked with libcuda, or that asks with RTLD_DEFAULT or RTLD_NEXT.
 */
#ifndef NCCLGUARD_SHIM_CUDA_DOOR_H
#define NCCLGUARD_SHIM_CUDA_DOOR_H

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/cuda_hooks.h"

#pragma GCC visibility push(hidden)

/* Whether any name of the driver needs a second look. */
static inline bool ng_cuda_door_is_open(void)
{
    return __builtin_expect(atomic_load_explicit(&ng_cuda_hooks_enabled, memory_order_relaxed), 0);
}

/*
 * What the program gets for a name that begins with "cu" and that it has just looked up in a handle
 * with the result `real`; `caller` is its return address. `real` unless a hook is enabled for it,
 * it lies in the CUDA driver and the caller is not NCCL. Keeps errno; leaves nothing for dlerror.
 */
void *ng_cuda_door(const char *name, void *real, const void *caller);

/*
 * Whether an address lies in a NCCL library, or in a library that NCCL is a part of and that
 * exports it. For hooks too: NCCL reaches them through a dynamic CUDA runtime. Cheap; keeps errno
 * and dlerror.
 */
bool ng_cuda_door_is_nccl(const void *address);

/* Answer in place of the driver's two forms of cuGetProcAddress (CUDA 11.3 and 12.0). */
ng_cuda_function_cuGetProcAddress ng_cuda_get_proc_address;
ng_cuda_function_cuGetProcAddress_v2 ng_cuda_get_proc_address_v2;

#pragma GCC visibility pop

#endif
