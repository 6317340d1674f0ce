/*
 * The hooks on the CUDA driver that tell core/registration/segments.h of device memory.
 */
#ifndef NCCLGUARD_SHIM_CUDA_MEMORY_H
#define NCCLGUARD_SHIM_CUDA_MEMORY_H

#pragma GCC visibility push(hidden)

/* Enables them. Once, before the program's main. */
void ng_cuda_memory_enable(void);

/* The device of this thread's current context; -1 none. Any thread. */
int ng_cuda_memory_device(void);

#pragma GCC visibility pop

#endif
