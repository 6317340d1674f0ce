/*
 * A CUDA driver that does nothing but remember: forms of the functions that may be hooked, in the
 * way of a driver newer than any known one, and an answer to every other name.
 */
#include "tests/unit/shim/cuda_door/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT         __attribute__((visibility("default")))
#define DRIVER_VERSION 14000

/*
 * FORM(symbol, name, since, per_thread). The first and last row of cuMemAlloc and cuMemFree are
 * forms with other arguments than those between. cuMemMap comes later than in a real driver, so
 * that a question for it stays without a function.
 */
#define FORMS(FORM)                                                                                \
    FORM(cuGraphLaunch, "cuGraphLaunch", 10000, false)                                             \
    FORM(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, true)                                         \
    FORM(cuGraphInstantiate_v2, "cuGraphInstantiate", 11000, false)                                \
    FORM(cuGraphInstantiate_v12000, "cuGraphInstantiate", 12000, false)                            \
    FORM(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, false)                 \
    FORM(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, false)               \
    FORM(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, true)           \
    FORM(cuGraphExecUpdate, "cuGraphExecUpdate", 10020, false)                                     \
    FORM(cuGraphExecUpdate_v2, "cuGraphExecUpdate", 12000, false)                                  \
    FORM(cuGraphExecChildGraphNodeSetParams, "cuGraphExecChildGraphNodeSetParams", 11010, false)   \
    FORM(cuGraphExecNodeSetParams, "cuGraphExecNodeSetParams", 12020, false)                       \
    FORM(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, false)                                   \
    FORM(cuGraphConditionalHandleCreate, "cuGraphConditionalHandleCreate", 12030, false)           \
    FORM(cuMemAlloc, "cuMemAlloc", 2000, false)                                                    \
    FORM(cuMemAlloc_v2, "cuMemAlloc", 3020, false)                                                 \
    FORM(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, false)                                       \
    FORM(cuMemFree, "cuMemFree", 2000, false)                                                      \
    FORM(cuMemFree_v2, "cuMemFree", 3020, false)                                                   \
    FORM(cuMemFree_v3, "cuMemFree", 14000, false)                                                  \
    FORM(cuMemAllocAsync, "cuMemAllocAsync", 11020, false)                                         \
    FORM(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, true)                                     \
    FORM(cuMemFreeAsync, "cuMemFreeAsync", 11020, false)                                           \
    FORM(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, true)                                       \
    FORM(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, false)                         \
    FORM(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, true)                     \
    FORM(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020, false)                             \
    FORM(cuMemAllocManaged, "cuMemAllocManaged", 6000, false)                                      \
    FORM(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, false)                                      \
    FORM(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000, false)                                \
    FORM(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, false)                                  \
    FORM(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, false)                      \
    FORM(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, false)                  \
    FORM(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, false)                          \
    FORM(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, false)                      \
    FORM(cuCtxDestroy_v2, "cuCtxDestroy", 4000, false)                                             \
    FORM(cuMemAddressReserve, "cuMemAddressReserve", 10020, false)                                 \
    FORM(cuMemAddressFree, "cuMemAddressFree", 10020, false)                                       \
    FORM(cuMemCreate, "cuMemCreate", 10020, false)                                                 \
    FORM(cuMemRelease, "cuMemRelease", 10020, false)                                               \
    FORM(cuMemMap, "cuMemMap", 10030, false)                                                       \
    FORM(cuMemUnmap, "cuMemUnmap", 10020, false)                                                   \
    FORM(cuEventElapsedTime, "cuEventElapsedTime", 2000, false)                                    \
    FORM(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, false)                            \
    FORM(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 10010, true)                        \
    FORM(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030, false)                 \
    FORM(cuStreamBeginCaptureToGraph_ptsz, "cuStreamBeginCaptureToGraph", 12030, true)             \
    FORM(cuStreamEndCapture, "cuStreamEndCapture", 10000, false)                                   \
    FORM(cuStreamEndCapture_ptsz, "cuStreamEndCapture", 10000, true)                               \
    FORM(cuStreamSynchronize, "cuStreamSynchronize", 2000, false)                                  \
    FORM(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, true)                              \
    FORM(cuStreamQuery, "cuStreamQuery", 2000, false)                                              \
    FORM(cuStreamQuery_ptsz, "cuStreamQuery", 7000, true)                                          \
    FORM(cuStreamWaitEvent, "cuStreamWaitEvent", 3020, false)                                      \
    FORM(cuStreamWaitEvent_ptsz, "cuStreamWaitEvent", 7000, true)                                  \
    FORM(cuStreamDestroy_v2, "cuStreamDestroy", 4000, false)                                       \
    FORM(cuEventSynchronize, "cuEventSynchronize", 2000, false)                                    \
    FORM(cuEventQuery, "cuEventQuery", 2000, false)                                                \
    FORM(cuEventRecord, "cuEventRecord", 2000, false)                                              \
    FORM(cuEventRecord_ptsz, "cuEventRecord", 7000, true)                                          \
    FORM(cuEventRecordWithFlags, "cuEventRecordWithFlags", 11010, false)                           \
    FORM(cuEventRecordWithFlags_ptsz, "cuEventRecordWithFlags", 11010, true)                       \
    FORM(cuEventDestroy_v2, "cuEventDestroy", 4000, false)                                         \
    FORM(cuCtxSynchronize, "cuCtxSynchronize", 2000, false)                                        \
    FORM(cuCtxSynchronize_v2, "cuCtxSynchronize", 13000, false)                                    \
    FORM(cuLaunchKernel, "cuLaunchKernel", 4000, false)                                            \
    FORM(cuLaunchKernel_ptsz, "cuLaunchKernel", 7000, true)                                        \
    FORM(cuLaunchKernelEx, "cuLaunchKernelEx", 11060, false)                                       \
    FORM(cuLaunchKernelEx_ptsz, "cuLaunchKernelEx", 11060, true)                                   \
    FORM(cuInit, "cuInit", 2000, false)

enum form {
#define FORM(symbol, name, since, per_thread) FORM_##symbol,
    FORMS(FORM)
#undef FORM
        FORM_COUNT
};

/* Protects what follows; innermost. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned calls[FORM_COUNT];
static uint64_t arguments[FORM_COUNT];
static char questions[1 << 17];
static struct {
    char file_name[64];
    unsigned count;
} askers[16];

static int note_call(enum form form, uint64_t argument)
{
    pthread_mutex_lock(&lock);
    calls[form]++;
    arguments[form] = argument;
    pthread_mutex_unlock(&lock);
    errno = form + 1; /* as a driver may */
    return DRIVER_RESULT;
}

#define FORM(symbol, name, since, per_thread)                                                      \
    EXPORT int symbol(uint64_t argument);                                                          \
    int symbol(uint64_t argument)                                                                  \
    {                                                                                              \
        return note_call(FORM_##symbol, argument);                                                 \
    }
FORMS(FORM)
#undef FORM

EXPORT int cuDriverGetVersion(int *ret_version);
int cuDriverGetVersion(int *ret_version)
{
    *ret_version = DRIVER_VERSION;
    return 0;
}

/* Behind every name that is not listed. */
static int any_other(void)
{
    return DRIVER_RESULT;
}

EXPORT int cuGetProcAddress(const char *name, void **pfn, int version, uint64_t flags);
EXPORT int cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags,
                               int *status);

static const struct {
    const char *symbol, *name;
    int since;
    bool per_thread;
    void *function;
} forms[] = {
#define FORM(symbol, name, since, per_thread) {#symbol, name, since, per_thread, (void *)symbol},
    FORMS(FORM)
#undef FORM
        {"cuGetProcAddress", "cuGetProcAddress", 11030, false, (void *)cuGetProcAddress},
    {"cuGetProcAddress_v2", "cuGetProcAddress", 12000, false, (void *)cuGetProcAddress_v2},
    {"cuDriverGetVersion", "cuDriverGetVersion", 2020, false, (void *)cuDriverGetVersion},
};
#define FORMS_LISTED (sizeof(forms) / sizeof(forms[0]))

static void note_question(const char *form, const char *name, int version, uint64_t flags,
                          const void *caller)
{
    const char *file_name = "";
    Dl_info object;
    size_t used;

    if (dladdr(caller, &object) && object.dli_fname) {
        const char *slash = strrchr(object.dli_fname, '/');

        file_name = slash ? slash + 1 : object.dli_fname;
    }
    pthread_mutex_lock(&lock);
    used = strlen(questions);
    snprintf(questions + used, sizeof(questions) - used, "%s %s %d %llu\n", form, name, version,
             (unsigned long long)flags);
    for (unsigned i = 0; i < sizeof(askers) / sizeof(askers[0]); i++) {
        if (!askers[i].count)
            snprintf(askers[i].file_name, sizeof(askers[i].file_name), "%s", file_name);
        if (strcmp(askers[i].file_name, file_name) == 0) {
            askers[i].count++;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

static int answer(const char *name, void **pfn, int version, uint64_t flags, int *status)
{
    bool known = false;
    size_t best = FORMS_LISTED;

    if (!name || !*name || !pfn || version > DRIVER_VERSION || flags > 2)
        return 1; /* CUDA_ERROR_INVALID_VALUE */
    for (size_t i = 0; i < FORMS_LISTED; i++) {
        if (strcmp(forms[i].name, name) != 0)
            continue;
        known = true;
        if (forms[i].since > version || (forms[i].per_thread && flags != 2))
            continue;
        if (best == FORMS_LISTED || forms[i].per_thread > forms[best].per_thread ||
            forms[i].since > forms[best].since)
            best = i;
    }
    if (best != FORMS_LISTED)
        *pfn = forms[best].function;
    else
        *pfn = known || strcmp(name, "cuNothing") == 0 ? NULL : (void *)any_other;
    if (status)
        *status = *pfn ? 0 : known ? 2 : 1;
    errno = ENOTTY;                  /* as a driver may */
    return *pfn || status ? 0 : 500; /* CUDA_ERROR_NOT_FOUND */
}

int cuGetProcAddress(const char *name, void **pfn, int version, uint64_t flags)
{
    note_question("v1", name ? name : "", version, flags, __builtin_return_address(0));
    return answer(name, pfn, version, flags, NULL);
}

int cuGetProcAddress_v2(const char *name, void **pfn, int version, uint64_t flags, int *status)
{
    note_question("v2", name ? name : "", version, flags, __builtin_return_address(0));
    return answer(name, pfn, version, flags, status);
}

EXPORT void *driver_address(const char *symbol)
{
    for (size_t i = 0; i < FORMS_LISTED; i++)
        if (strcmp(forms[i].symbol, symbol) == 0)
            return forms[i].function;
    return NULL;
}

/* Its row among the counted ones; 0 for a symbol that is none. */
static enum form find(const char *symbol)
{
    for (unsigned i = 0; i < FORM_COUNT; i++)
        if (strcmp(forms[i].symbol, symbol) == 0)
            return (enum form)i;
    return (enum form)0;
}

EXPORT unsigned driver_calls(const char *symbol)
{
    unsigned result;

    pthread_mutex_lock(&lock);
    result = calls[find(symbol)];
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT unsigned long long driver_argument(const char *symbol)
{
    unsigned long long result;

    pthread_mutex_lock(&lock);
    result = arguments[find(symbol)];
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT unsigned driver_questions_from(const char *file_name)
{
    unsigned result = 0;

    pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < sizeof(askers) / sizeof(askers[0]) && askers[i].count; i++)
        if (strncmp(askers[i].file_name, file_name, strlen(file_name)) == 0)
            result += askers[i].count;
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORT const char *driver_questions(void)
{
    return questions;
}
