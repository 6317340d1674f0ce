/*
 * A CUDA driver of which only the addresses matter, with exactly the functions that core asks for.
 */
#include "core/nccl/cuda.h"

#define STUB(field, name, prototype)                                                               \
    __attribute__((visibility("default"))) CUresult stub_##field(void) __asm__(name);              \
    CUresult stub_##field(void)                                                                    \
    {                                                                                              \
        return CUDA_ERROR_NOT_SUPPORTED;                                                           \
    }
NG_CUDA_FUNCTIONS(STUB)
