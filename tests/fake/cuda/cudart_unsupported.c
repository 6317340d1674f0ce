/*
 * Every function that cuda_runtime_api.h declares, as the runtime that models none: it answers
 * that, unless another file has a body. So every program loads.
 */

#define CUDA_ERROR_NOT_SUPPORTED 801

/* The header is left out: its prototypes differ, and all that matters here is the answer. */
#define UNSUPPORTED(name)                                                                          \
    int name(void);                                                                                \
    __attribute__((weak)) int name(void)                                                           \
    {                                                                                              \
        return cudart_unsupported();                                                               \
    }
#define UNSUPPORTED_FORMS(name, ending) UNSUPPORTED(name) UNSUPPORTED(name##_##ending)

int cudart_done(int result);

static int cudart_unsupported(void)
{
    return cudart_done(CUDA_ERROR_NOT_SUPPORTED);
}

#include "tests/fake/cuda/cudart_unsupported.def"
#include "tests/fake/cuda/runtime_declared.def"
