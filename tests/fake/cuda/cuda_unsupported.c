/*
 * Every function that the headers of the driver know, as a driver that models none: it answers
 * that, unless another file has a body. So every program loads.
 */

#define CUDA_ERROR_NOT_SUPPORTED 801

/* cuda.h is left out: its prototypes differ, and all that matters here is the answer. */
#define DRIVER_FORM(name, version, symbol, per_thread)                                             \
    int symbol(void);                                                                              \
    __attribute__((weak)) int symbol(void)                                                         \
    {                                                                                              \
        return CUDA_ERROR_NOT_SUPPORTED;                                                           \
    }
#include "tests/fake/cuda/driver_forms.def"
