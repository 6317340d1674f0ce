/*
 * Every function that cuda.h declares, as the driver that models none: it answers that, unless
 * another file has a body. So every program loads.
 */

#define CUDA_ERROR_NOT_SUPPORTED 801

/* cuda.h is left out: its prototypes differ, and all that matters here is the answer. */
#define UNSUPPORTED(name)                                                                          \
    int name(void);                                                                                \
    __attribute__((weak)) int name(void)                                                           \
    {                                                                                              \
        return CUDA_ERROR_NOT_SUPPORTED;                                                           \
    }
#include "tests/fake/cuda/cuda_declared.def"

/* Of a header of its own. */
UNSUPPORTED(cuProfilerInitialize)
UNSUPPORTED(cuProfilerStart)
UNSUPPORTED(cuProfilerStop)
