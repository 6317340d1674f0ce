/*
 * Functions of the real driver that the stand-in does not model, so that every program loads.
 */

#define CUDA_ERROR_NOT_SUPPORTED 801

/* cuda.h is left out: its prototypes differ, and all that matters here is the answer. */
#define UNSUPPORTED(name)                                                                          \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return CUDA_ERROR_NOT_SUPPORTED;                                                           \
    }
#define UNSUPPORTED_FORMS(name, ending) UNSUPPORTED(name) UNSUPPORTED(name##_##ending)
#include "tests/fake/cuda/cuda_unsupported.def"
