/*
 * Intercepts programs that fetch functions of the CUDA driver by name.
 *
 * Beside the steps of a call. The CUDA runtime, linked dynamically or statically, looks up
 * cuGetProcAddress in its handle of libcuda.so.1 and fetches every other function from it; JAX and
 * CuPy look up the functions themselves. Both get our hooks for the functions that cuda_hooks.h has
 * enabled. NCCL, and a library that contains NCCL, get the driver's own answers, since their
 * allocations are not the guard's concern; but for the hooks on launches, which they alone get.
 *
 * Not intercepted: a program that is linked with libcuda, or that uses RTLD_DEFAULT or RTLD_NEXT.
 */
#ifndef NCCLGUARD_SHIM_CUDA_DOOR_H
#define NCCLGUARD_SHIM_CUDA_DOOR_H

#include <stdatomic.h>
#include <stdbool.h>

#include "shim/cuda_hooks.h"
#include "shim/state.h"

#pragma GCC visibility push(hidden)

/* Whether look-ups of the driver's names have to be examined at all. */
static inline bool ng_cuda_door_is_open(void)
{
    return __builtin_expect(atomic_load_explicit(&ng_cuda_hooks_enabled, memory_order_relaxed), 0);
}

/*
 * The address to return for a name beginning with "cu" that the program has just looked up in a
 * handle, with the result `real`; `caller` is its return address. This is `real` unless a hook is
 * enabled for the name and for this caller (NCCL or not), and `real` lies in the CUDA driver. Keeps
 * errno; leaves nothing for dlerror.
 */
void *ng_cuda_door(const char *name, void *real, const void *caller);

/*
 * Whether an address lies in a NCCL library, or in a library that contains NCCL and exports it.
 * Hooks use it too: NCCL reaches them through a dynamic CUDA runtime. Cheap; keeps errno and
 * dlerror.
 */
bool ng_cuda_door_is_nccl(const void *address);

/* The caller of a hook: NCCL, or the guard itself, through a CUDA runtime that it shares with the
 * program? */
static inline bool ng_cuda_door_is_own(const void *caller)
{
    return ng_shim_state.depth > 0 || ng_cuda_door_is_nccl(caller);
}
#define CALLER __builtin_return_address(0)

/* Replacements for the driver's two forms of cuGetProcAddress (CUDA 11.3 and 12.0). */
ng_cuda_function_cuGetProcAddress ng_cuda_get_proc_address;
ng_cuda_function_cuGetProcAddress_v2 ng_cuda_get_proc_address_v2;

#pragma GCC visibility pop

#endif
