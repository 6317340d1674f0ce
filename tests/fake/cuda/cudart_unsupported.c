/*
 * Functions of the real runtime that the stand-in does not model, so that every program loads.
 */

#define CUDA_ERROR_NOT_SUPPORTED 801

/* The header is left out: its prototypes differ, and all that matters here is the answer. */
#define UNSUPPORTED(name)                                                                          \
    int name(void);                                                                                \
    int name(void)                                                                                 \
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
