/*
 * Allocations from mapped memory, behind the program's driver calls.
 *
 * Beside the steps of a call. Entered by the program's threads in place of the driver. NCCL's own
 * queries go to the driver, which reports that these are mappings, and their size.
 */
#include "shim/cuda_vmm.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>

#include "core/registration/segments.h"
#include "core/registration/vmm.h"
#include "core/util/log.h"
#include "shim/cuda_door.h"
#include "shim/cuda_hooks.h"
#include "shim/dlsym.h"

static bool find(struct ng_vmm_driver *ret_driver)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    const char *missing = NULL;

    if (!handle) {
        dlerror();
        return false;
    }
#define FIND(field, name, prototype)                                                               \
    ret_driver->field = (__typeof__(ret_driver->field))ng_real_dlsym(handle, name);                \
    if (!ret_driver->field)                                                                        \
        missing = name;
    NG_VMM_CALLS(FIND)
#undef FIND
    dlerror();
    if (missing)
        ng_log(NG_LOG_WARN, "NCCLGUARD_ALLOC: the CUDA driver lacks %s: memory stays as it is",
               missing);
    return !missing; /* the handle is kept, and with it the addresses found */
}

/* The driver's functions; NULL: not all of them exist. Several first callers each look them up, and
 * one writes the result: as in cuda_memory.c. */
static const struct ng_vmm_driver *driver(void)
{
    enum { UNKNOWN, WRITING, FOUND, MISSING };
    static _Atomic int state = UNKNOWN;
    static struct ng_vmm_driver table;
    int expected = UNKNOWN, now = atomic_load_explicit(&state, memory_order_acquire);
    struct ng_vmm_driver fresh;

    if (now == UNKNOWN || now == WRITING) {
        bool found = find(&fresh);
        if (atomic_compare_exchange_strong(&state, &expected, WRITING)) {
            table = fresh;
            atomic_store_explicit(&state, found ? FOUND : MISSING, memory_order_release);
        }
        while ((now = atomic_load_explicit(&state, memory_order_acquire)) == WRITING)
            sched_yield(); /* for some stores */
    }
    return now == FOUND ? &table : NULL;
}

bool ng_cuda_vmm_alloc(CUdeviceptr *pointer, size_t bytes)
{
    struct ng_vmm_block block;
    int saved = errno;

    const struct ng_vmm_driver *known = ng_vmm_is_on() && pointer ? driver() : NULL;
    bool done = known && ng_vmm_alloc(known, bytes, &block);
    if (done) {
        ng_segments_reserved((uintptr_t)block.base, block.mapped);
        ng_segments_mapped((uintptr_t)block.base, block.mapped, block.device, true);
        *pointer = block.base;
    }
    errno = saved;
    return done;
}

bool ng_cuda_vmm_free(CUdeviceptr pointer, CUresult *ret_result)
{
    struct ng_vmm_block block;
    int saved = errno;

    bool ours = ng_vmm_is_on() && driver() && ng_vmm_find(pointer, &block) && block.base == pointer;
    if (ours) {
        /* Before another thread can receive the addresses. */
        ng_segments_unreserved((uintptr_t)pointer);
        ours = ng_vmm_free(driver(), pointer, ret_result);
        if (ours && *ret_result != CUDA_SUCCESS)
            ng_segments_reserved((uintptr_t)pointer, block.mapped);
    }
    errno = saved;
    return ours;
}

static void forget(const struct ng_vmm_block *block)
{
    struct ng_segment segment;

    ng_segments_freeing((uintptr_t)block->base, &segment);
    ng_segments_unreserved((uintptr_t)block->base);
}

void ng_cuda_vmm_context_gone(CUcontext context)
{
    int saved = errno;

    if (ng_vmm_is_on() && context && driver())
        ng_vmm_context_gone(driver(), context, forget);
    errno = saved;
}

CUcontext ng_cuda_vmm_primary(CUdevice device)
{
    const struct ng_vmm_driver *known = ng_vmm_is_on() ? driver() : NULL;

    return known ? ng_vmm_primary(known, device) : NULL;
}

/* The requested size. NCCL, which registers mappings, is not hooked. */
static CUresult CUDAAPI hook_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes,
                                                     CUdeviceptr pointer)
{
    struct ng_vmm_block block;

    CUresult result = ng_cuda_real_cuMemGetAddressRange_v2()(base, bytes, pointer);
    if (result == CUDA_SUCCESS && !ng_cuda_door_is_own(CALLER) && ng_vmm_find(pointer, &block)) {
        if (base)
            *base = block.base;
        if (bytes)
            *bytes = block.bytes;
    }
    return result;
}

static CUresult CUDAAPI hook_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    int saved = errno;

    if (!ng_cuda_door_is_own(CALLER))
        ng_vmm_stop(pointer);
    errno = saved;
    return ng_cuda_real_cuIpcGetMemHandle()(handle, pointer);
}

/* The last release ends it, as a reset does. */
static CUresult release(ng_cuda_function_cuDevicePrimaryCtxRelease *real, CUdevice device)
{
    CUcontext primary = ng_cuda_vmm_primary(device);
    unsigned int flags;
    int active = 1;

    CUresult result = real(device);
    if (result == CUDA_SUCCESS && primary &&
        driver()->primary_ctx_get_state(device, &flags, &active) == CUDA_SUCCESS && !active)
        ng_cuda_vmm_context_gone(primary);
    return result;
}

static CUresult CUDAAPI hook_cuDevicePrimaryCtxRelease(CUdevice device)
{
    return release(ng_cuda_real_cuDevicePrimaryCtxRelease(), device);
}

static CUresult CUDAAPI hook_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    return release(ng_cuda_real_cuDevicePrimaryCtxRelease_v2(), device);
}

#define BEGIN_CAPTURE_HOOK(symbol, parameters, arguments)                                          \
    static CUresult CUDAAPI hook_##symbol parameters                                               \
    {                                                                                              \
        CUresult result = ng_cuda_real_##symbol() arguments;                                       \
        if (result == CUDA_SUCCESS)                                                                \
            ng_vmm_capturing(1);                                                                   \
        return result;                                                                             \
    }
BEGIN_CAPTURE_HOOK(cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode),
                   (stream, mode))
BEGIN_CAPTURE_HOOK(cuStreamBeginCapture_v2_ptsz, (CUstream stream, CUstreamCaptureMode mode),
                   (stream, mode))
#define TO_GRAPH                                                                                   \
    (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const void *data,            \
     size_t count, CUstreamCaptureMode mode)
BEGIN_CAPTURE_HOOK(cuStreamBeginCaptureToGraph, TO_GRAPH,
                   (stream, graph, dependencies, data, count, mode))
BEGIN_CAPTURE_HOOK(cuStreamBeginCaptureToGraph_ptsz, TO_GRAPH,
                   (stream, graph, dependencies, data, count, mode))

/* An error ends it, too, unless there was none, or it belongs to another thread. */
#define END_CAPTURE_HOOK(symbol)                                                                   \
    static CUresult CUDAAPI hook_##symbol(CUstream stream, CUgraph *graph)                         \
    {                                                                                              \
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;                              \
        const struct ng_vmm_driver *known = driver();                                              \
        bool captured = known && known->stream_is_capturing(stream, &status) == CUDA_SUCCESS &&    \
                        status != CU_STREAM_CAPTURE_STATUS_NONE;                                   \
        CUresult result = ng_cuda_real_##symbol()(stream, graph);                                  \
        if (captured && result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)                          \
            ng_vmm_capturing(-1);                                                                  \
        return result;                                                                             \
    }
END_CAPTURE_HOOK(cuStreamEndCapture)
END_CAPTURE_HOOK(cuStreamEndCapture_ptsz)

void ng_cuda_vmm_enable(void)
{
    ng_cuda_hook_enable_cuStreamBeginCapture_v2(hook_cuStreamBeginCapture_v2);
    ng_cuda_hook_enable_cuStreamBeginCapture_v2_ptsz(hook_cuStreamBeginCapture_v2_ptsz);
    ng_cuda_hook_enable_cuStreamBeginCaptureToGraph(hook_cuStreamBeginCaptureToGraph);
    ng_cuda_hook_enable_cuStreamBeginCaptureToGraph_ptsz(hook_cuStreamBeginCaptureToGraph_ptsz);
    ng_cuda_hook_enable_cuStreamEndCapture(hook_cuStreamEndCapture);
    ng_cuda_hook_enable_cuStreamEndCapture_ptsz(hook_cuStreamEndCapture_ptsz);
    ng_cuda_hook_enable_cuDevicePrimaryCtxRelease(hook_cuDevicePrimaryCtxRelease);
    ng_cuda_hook_enable_cuDevicePrimaryCtxRelease_v2(hook_cuDevicePrimaryCtxRelease_v2);
    ng_cuda_hook_enable_cuMemGetAddressRange_v2(hook_cuMemGetAddressRange_v2);
    ng_cuda_hook_enable_cuIpcGetMemHandle(hook_cuIpcGetMemHandle);
}
