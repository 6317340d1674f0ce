/*
 * Hooks that count and go on to the real function; enabled as a feature would, before main.
 */
#include "tests/unit/shim/cuda_door/probe_hooks.h"

#include <stdlib.h>
#include <string.h>

#include "shim/cuda_door.h"

#define EXPORT __attribute__((visibility("default")))

static atomic_uint calls[NG_CUDA_HOOK_COUNT];

/* HOOK(symbol, prototype, arguments) */
#define HOOKS(HOOK)                                                                                \
    HOOK(cuGraphLaunch, (CUgraphExec a, CUstream b), (a, b))                                       \
    HOOK(cuGraphLaunch_ptsz, (CUgraphExec a, CUstream b), (a, b))                                  \
    HOOK(cuGraphInstantiate_v2, (CUgraphExec * a, CUgraph b, CUgraphNode * c, char *d, size_t e),  \
         (a, b, c, d, e))                                                                          \
    HOOK(cuGraphInstantiate_v12000, (CUgraphExec * a, CUgraph b, unsigned long long c), (a, b, c)) \
    HOOK(cuGraphInstantiateWithFlags, (CUgraphExec * a, CUgraph b, unsigned long long c),          \
         (a, b, c))                                                                                \
    HOOK(cuGraphInstantiateWithParams,                                                             \
         (CUgraphExec * a, CUgraph b, CUDA_GRAPH_INSTANTIATE_PARAMS * c), (a, b, c))               \
    HOOK(cuGraphInstantiateWithParams_ptsz,                                                        \
         (CUgraphExec * a, CUgraph b, CUDA_GRAPH_INSTANTIATE_PARAMS * c), (a, b, c))               \
    HOOK(cuGraphExecUpdate,                                                                        \
         (CUgraphExec a, CUgraph b, CUgraphNode * c, CUgraphExecUpdateResult * d), (a, b, c, d))   \
    HOOK(cuGraphExecUpdate_v2, (CUgraphExec a, CUgraph b, CUgraphExecUpdateResultInfo * c),        \
         (a, b, c))                                                                                \
    HOOK(cuGraphExecChildGraphNodeSetParams, (CUgraphExec a, CUgraphNode b, CUgraph c), (a, b, c)) \
    HOOK(cuGraphExecNodeSetParams, (CUgraphExec a, CUgraphNode b, void *c), (a, b, c))             \
    HOOK(cuGraphExecDestroy, (CUgraphExec a), (a))                                                 \
    HOOK(cuGraphConditionalHandleCreate,                                                           \
         (cuuint64_t * a, CUgraph b, CUcontext c, unsigned int d, unsigned int e),                 \
         (a, b, c, d, e))                                                                          \
    HOOK(cuMemAlloc_v2, (CUdeviceptr * a, size_t b), (a, b))                                       \
    HOOK(cuMemAllocPitch_v2, (CUdeviceptr * a, size_t * b, size_t c, size_t d, unsigned int e),    \
         (a, b, c, d, e))                                                                          \
    HOOK(cuMemFree_v2, (CUdeviceptr a), (a))                                                       \
    HOOK(cuMemAllocAsync, (CUdeviceptr * a, size_t b, CUstream c), (a, b, c))                      \
    HOOK(cuMemAllocAsync_ptsz, (CUdeviceptr * a, size_t b, CUstream c), (a, b, c))                 \
    HOOK(cuMemFreeAsync, (CUdeviceptr a, CUstream b), (a, b))                                      \
    HOOK(cuMemFreeAsync_ptsz, (CUdeviceptr a, CUstream b), (a, b))                                 \
    HOOK(cuMemAllocFromPoolAsync, (CUdeviceptr * a, size_t b, CUmemoryPool c, CUstream d),         \
         (a, b, c, d))                                                                             \
    HOOK(cuMemAllocFromPoolAsync_ptsz, (CUdeviceptr * a, size_t b, CUmemoryPool c, CUstream d),    \
         (a, b, c, d))                                                                             \
    HOOK(cuMemGetAddressRange_v2, (CUdeviceptr * a, size_t * b, CUdeviceptr c), (a, b, c))         \
    HOOK(cuMemAllocManaged, (CUdeviceptr * a, size_t b, unsigned int c), (a, b, c))                \
    HOOK(cuIpcGetMemHandle, (CUipcMemHandle * a, CUdeviceptr b), (a, b))                           \
    HOOK(cuIpcOpenMemHandle_v2, (CUdeviceptr * a, CUipcMemHandle b, unsigned int c), (a, b, c))    \
    HOOK(cuIpcCloseMemHandle, (CUdeviceptr a), (a))                                                \
    HOOK(cuDevicePrimaryCtxRelease, (CUdevice a), (a))                                             \
    HOOK(cuDevicePrimaryCtxRelease_v2, (CUdevice a), (a))                                          \
    HOOK(cuDevicePrimaryCtxReset, (CUdevice a), (a))                                               \
    HOOK(cuDevicePrimaryCtxReset_v2, (CUdevice a), (a))                                            \
    HOOK(cuCtxDestroy_v2, (CUcontext a), (a))                                                      \
    HOOK(cuMemAddressFree, (CUdeviceptr a, size_t b), (a, b))                                      \
    HOOK(cuMemAddressReserve,                                                                      \
         (CUdeviceptr * a, size_t b, size_t c, CUdeviceptr d, unsigned long long e),               \
         (a, b, c, d, e))                                                                          \
    HOOK(cuMemCreate,                                                                              \
         (CUmemGenericAllocationHandle * a, size_t b, const CUmemAllocationProp *c,                \
          unsigned long long d),                                                                   \
         (a, b, c, d))                                                                             \
    HOOK(cuMemRelease, (CUmemGenericAllocationHandle a), (a))                                      \
    HOOK(                                                                                          \
        cuMemMap,                                                                                  \
        (CUdeviceptr a, size_t b, size_t c, CUmemGenericAllocationHandle d, unsigned long long e), \
        (a, b, c, d, e))                                                                           \
    HOOK(cuMemUnmap, (CUdeviceptr a, size_t b), (a, b))                                            \
    HOOK(cuStreamBeginCapture_v2, (CUstream a, CUstreamCaptureMode b), (a, b))                     \
    HOOK(cuStreamBeginCapture_v2_ptsz, (CUstream a, CUstreamCaptureMode b), (a, b))                \
    HOOK(cuStreamBeginCaptureToGraph,                                                              \
         (CUstream a, CUgraph b, const CUgraphNode *c, const void *d, size_t e,                    \
          CUstreamCaptureMode f),                                                                  \
         (a, b, c, d, e, f))                                                                       \
    HOOK(cuStreamBeginCaptureToGraph_ptsz,                                                         \
         (CUstream a, CUgraph b, const CUgraphNode *c, const void *d, size_t e,                    \
          CUstreamCaptureMode f),                                                                  \
         (a, b, c, d, e, f))                                                                       \
    HOOK(cuStreamEndCapture, (CUstream a, CUgraph * b), (a, b))                                    \
    HOOK(cuStreamEndCapture_ptsz, (CUstream a, CUgraph * b), (a, b))                               \
    HOOK(cuStreamSynchronize, (CUstream a), (a))                                                   \
    HOOK(cuStreamSynchronize_ptsz, (CUstream a), (a))                                              \
    HOOK(cuStreamQuery, (CUstream a), (a))                                                         \
    HOOK(cuStreamQuery_ptsz, (CUstream a), (a))                                                    \
    HOOK(cuStreamWaitEvent, (CUstream a, CUevent b, unsigned int c), (a, b, c))                    \
    HOOK(cuStreamWaitEvent_ptsz, (CUstream a, CUevent b, unsigned int c), (a, b, c))               \
    HOOK(cuStreamDestroy_v2, (CUstream a), (a))                                                    \
    HOOK(cuEventSynchronize, (CUevent a), (a))                                                     \
    HOOK(cuEventQuery, (CUevent a), (a))                                                           \
    HOOK(cuEventRecord, (CUevent a, CUstream b), (a, b))                                           \
    HOOK(cuEventRecord_ptsz, (CUevent a, CUstream b), (a, b))                                      \
    HOOK(cuEventRecordWithFlags, (CUevent a, CUstream b, unsigned int c), (a, b, c))               \
    HOOK(cuEventRecordWithFlags_ptsz, (CUevent a, CUstream b, unsigned int c), (a, b, c))          \
    HOOK(cuEventDestroy_v2, (CUevent a), (a))                                                      \
    HOOK(cuCtxSynchronize, (void), ())                                                             \
    HOOK(cuCtxSynchronize_v2, (CUcontext a), (a))                                                  \
    HOOK(cuLaunchKernel,                                                                           \
         (CUfunction a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,    \
          unsigned h, CUstream i, void **j, void **k),                                             \
         (a, b, c, d, e, f, g, h, i, j, k))                                                        \
    HOOK(cuLaunchKernel_ptsz,                                                                      \
         (CUfunction a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned f, unsigned g,    \
          unsigned h, CUstream i, void **j, void **k),                                             \
         (a, b, c, d, e, f, g, h, i, j, k))                                                        \
    HOOK(cuLaunchKernelEx, (const CUlaunchConfig *a, CUfunction b, void **c, void **d),            \
         (a, b, c, d))                                                                             \
    HOOK(cuLaunchKernelEx_ptsz, (const CUlaunchConfig *a, CUfunction b, void **c, void **d),       \
         (a, b, c, d))

#define HOOK(symbol, prototype, arguments)                                                         \
    static CUresult CUDAAPI hook_##symbol prototype                                                \
    {                                                                                              \
        atomic_fetch_add(&calls[NG_CUDA_HOOK_##symbol], 1);                                        \
        return ng_cuda_real_##symbol() arguments;                                                  \
    }
HOOKS(HOOK)
#undef HOOK

static int enable_cuGetProcAddress(void)
{
    return ng_cuda_hook_enable_cuGetProcAddress(ng_cuda_get_proc_address);
}

#define HOOK(symbol, prototype, arguments)                                                         \
    static int enable_##symbol(void)                                                               \
    {                                                                                              \
        return ng_cuda_hook_enable_##symbol(hook_##symbol);                                        \
    }
HOOKS(HOOK)
#undef HOOK

static const struct {
    const char *symbol;
    enum ng_cuda_hook id;
    void *function;
    int (*enable)(void);
} hooks[] = {{"cuGetProcAddress", NG_CUDA_HOOK_cuGetProcAddress, (void *)ng_cuda_get_proc_address,
              enable_cuGetProcAddress},
             {"cuGetProcAddress_v2", NG_CUDA_HOOK_cuGetProcAddress_v2,
              (void *)ng_cuda_get_proc_address_v2, NULL},
#define HOOK(symbol, prototype, arguments)                                                         \
    {#symbol, NG_CUDA_HOOK_##symbol, (void *)hook_##symbol, enable_##symbol},
             HOOKS(HOOK)
#undef HOOK
};
#define HOOKS_LISTED (sizeof(hooks) / sizeof(hooks[0]))

/* Every row of the table has a hook here. */
_Static_assert(HOOKS_LISTED == NG_CUDA_HOOK_COUNT, "a row has no hook");

static unsigned find(const char *symbol)
{
    for (unsigned i = 0; i < HOOKS_LISTED; i++)
        if (strcmp(hooks[i].symbol, symbol) == 0)
            return i;
    abort();
}

EXPORT void *cuda_probe_hook(const char *symbol)
{
    return hooks[find(symbol)].function;
}

EXPORT int cuda_probe_enable(const char *symbol)
{
    return hooks[find(symbol)].enable();
}

EXPORT void *cuda_probe_door(bool second_form)
{
    return second_form ? (void *)ng_cuda_get_proc_address_v2 : (void *)ng_cuda_get_proc_address;
}

EXPORT unsigned cuda_probe_calls(const char *symbol)
{
    return atomic_load(&calls[hooks[find(symbol)].id]);
}

EXPORT void *cuda_probe_real(const char *symbol)
{
    return ng_cuda_hook_real(hooks[find(symbol)].id);
}

__attribute__((constructor)) static void start(void)
{
    const char *wanted = getenv("CUDA_PROBE_HOOKS");

    for (; wanted && *wanted; wanted += strcspn(wanted, ","), wanted += *wanted == ',')
        for (unsigned i = 2; i < HOOKS_LISTED; i++)
            if ((strncmp(wanted, "all", 3) == 0 && ng_cuda_hook_is_for(hooks[i].id, false)) ||
                (strncmp(wanted, hooks[i].symbol, strcspn(wanted, ",")) == 0 &&
                 strcspn(wanted, ",") == strlen(hooks[i].symbol)))
                hooks[i].enable();
}
