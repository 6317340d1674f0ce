/*
 * Names: error texts, and cuGetProcAddress, through which runtimes and preloaded libraries find
 * every other function.
 */
#include "tests/fake/cuda/cuda_state.h"

#include <string.h>

static const struct {
    CUresult error;
    const char *name, *text;
} errors[] = {
#define ERROR(error, of_runtime, text) {error, #error, text},
#define RUNTIME_ERROR(error, text)
#include "tests/fake/cuda/errors.def"
#undef ERROR
#undef RUNTIME_ERROR
};

#define DEFINE_ERROR_GETTER(name, field)                                                           \
    CUresult CUDAAPI name(CUresult error, const char **pStr)                                       \
    {                                                                                              \
        if (!pStr)                                                                                 \
            return CUDA_ERROR_INVALID_VALUE;                                                       \
        *pStr = NULL;                                                                              \
        for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)                              \
            if (errors[i].error == error)                                                          \
                *pStr = errors[i].field;                                                           \
        return *pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;                                    \
    }

DEFINE_ERROR_GETTER(cuGetErrorName, name)
DEFINE_ERROR_GETTER(cuGetErrorString, text)

/* Their prototypes do not matter, see cuda_unsupported.c. */
#define DRIVER_FORM(name, version, symbol, per_thread)                                             \
    extern int fake_form_of_##symbol(void) __asm__(#symbol);
#include "tests/fake/cuda/driver_forms.def"
#undef DRIVER_FORM

static const struct {
    const char *name, *symbol;
    int version;
    bool per_thread;
    void *function;
} functions[] = {
#define DRIVER_FORM(name, version, symbol, per_thread)                                             \
    {#name, #symbol, version, per_thread, (void *)fake_form_of_##symbol},
#include "tests/fake/cuda/driver_forms.def"
    /* cuda.h makes the name an alias of the other, and so does the driver. */
    DRIVER_FORM(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags, false)
#undef DRIVER_FORM
};

CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion,
                                     cuuint64_t flags, CUdriverProcAddressQueryResult *symbolStatus)
{
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    size_t best = SIZE_MAX;
    bool known = false;

    INVALID_IF(!symbol || !*symbol || !pfn || (flags & ~(cuuint64_t)3) || flags == 3);
    *pfn = NULL;
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
        if (strcmp(functions[i].name, symbol))
            continue;
        known = true;
        if (functions[i].version > cudaVersion || (functions[i].per_thread && !per_thread))
            continue;
        /* The newest form that the caller knows; of two, the one for its kind of default stream. */
        if (best == SIZE_MAX || functions[i].per_thread > functions[best].per_thread ||
            (functions[i].per_thread == functions[best].per_thread &&
             functions[i].version > functions[best].version))
            best = i;
    }
    /* A full name is answered too. */
    for (size_t i = 0; i < sizeof(functions) / sizeof(*functions) && !known; i++)
        if (!strcmp(functions[i].symbol, symbol)) {
            known = true;
            if (functions[i].version <= cudaVersion)
                best = i;
        }
    if (best != SIZE_MAX)
        *pfn = functions[best].function;
    if (symbolStatus)
        *symbolStatus = *pfn    ? CU_GET_PROC_ADDRESS_SUCCESS
                        : known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    /* Who asks for the status is told there, who does not gets an error. */
    return *pfn || symbolStatus ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

FORM(cuGetProcAddress, (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags),
     cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, NULL))
