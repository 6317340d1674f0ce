/*
 * Hooks on the functions that allocate, map and free device memory.
 *
 * Beside the steps of a call. Entered by the program's threads in place of the driver. Each returns
 * the driver's own result; a successful allocation is reported afterwards, a free beforehand.
 * Allocations of NCCL and of the guard pass through untouched. errno stays as the driver leaves it:
 * the reporting functions preserve it.
 */
#include "shim/parts.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>

#include "core/registration/registration_check.h"
#include "core/registration/segment_map.h"
#include "core/registration/segments.h"
#include "core/registration/vmm.h"
#include "shim/cuda_door.h"
#include "shim/cuda_hooks.h"
#include "shim/cuda_vmm.h"

/*
 * The driver's other functions; NULL: not all of them exist. Several first callers each look them
 * up, and one writes the result. None waits for another: a look-up takes the dynamic linker's lock,
 * which the waiting caller might hold.
 */
static const struct ng_cuda *driver(void)
{
    static _Atomic(const struct ng_cuda *) known;
    static struct ng_cuda table;
    static atomic_flag writing = ATOMIC_FLAG_INIT;
    const struct ng_cuda *found = atomic_load_explicit(&known, memory_order_acquire);
    struct ng_cuda fresh;

    if (found)
        return found;
    if (!ng_driver_find(&fresh))
        return NULL;
    if (!atomic_flag_test_and_set(&writing)) {
        table = fresh;
        atomic_store_explicit(&known, &table, memory_order_release);
    }
    while (!(found = atomic_load_explicit(&known, memory_order_acquire)))
        sched_yield(); /* for some stores */
    return found;
}

int ng_cuda_memory_device(void)
{
    const struct ng_cuda *cuda = driver();
    CUdevice device;

    return cuda && cuda->ctx_get_device(&device) == CUDA_SUCCESS ? device : -1;
}

/* Report a successful allocation; returns `result`. */
static CUresult report(CUresult result, const void *caller, enum ng_segment_kind kind,
                       const CUdeviceptr *pointer, size_t bytes)
{
    int saved = errno;

    if (result == CUDA_SUCCESS && pointer && *pointer && !ng_cuda_door_is_own(caller)) {
        ng_segments_allocated(kind, (uintptr_t)*pointer, bytes, ng_cuda_memory_device());
        errno = saved;
    }
    return result;
}

static CUresult CUDAAPI hook_cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    if (!ng_cuda_door_is_own(CALLER) && ng_cuda_vmm_alloc(pointer, bytes))
        return CUDA_SUCCESS;
    return report(ng_cuda_real_cuMemAlloc_v2()(pointer, bytes), CALLER, NG_SEGMENT_PLAIN, pointer,
                  bytes);
}

static CUresult CUDAAPI hook_cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch,
                                                size_t width_bytes, size_t height,
                                                unsigned int element_bytes)
{
    CUresult result =
        ng_cuda_real_cuMemAllocPitch_v2()(pointer, pitch, width_bytes, height, element_bytes);

    return report(result, CALLER, NG_SEGMENT_PLAIN, pointer,
                  result == CUDA_SUCCESS ? *pitch * height : 0);
}

#define ALLOC_HOOK(symbol, kind, parameters, arguments)                                            \
    static CUresult CUDAAPI hook_##symbol parameters                                               \
    {                                                                                              \
        return report(ng_cuda_real_##symbol() arguments, CALLER, kind, pointer, bytes);            \
    }
ALLOC_HOOK(cuMemAllocManaged, NG_SEGMENT_MANAGED,
           (CUdeviceptr * pointer, size_t bytes, unsigned int flags), (pointer, bytes, flags))
ALLOC_HOOK(cuMemAllocAsync, NG_SEGMENT_POOL, (CUdeviceptr * pointer, size_t bytes, CUstream stream),
           (pointer, bytes, stream))
ALLOC_HOOK(cuMemAllocAsync_ptsz, NG_SEGMENT_POOL,
           (CUdeviceptr * pointer, size_t bytes, CUstream stream), (pointer, bytes, stream))
ALLOC_HOOK(cuMemAllocFromPoolAsync, NG_SEGMENT_POOL,
           (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
           (pointer, bytes, pool, stream))
ALLOC_HOOK(cuMemAllocFromPoolAsync_ptsz, NG_SEGMENT_POOL,
           (CUdeviceptr * pointer, size_t bytes, CUmemoryPool pool, CUstream stream),
           (pointer, bytes, pool, stream))

static CUresult CUDAAPI hook_cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle,
                                                   unsigned int flags)
{
    if (ng_vmm_is_on() && !ng_cuda_door_is_own(CALLER))
        ng_vmm_stop(0);
    CUresult result = ng_cuda_real_cuIpcOpenMemHandle_v2()(pointer, handle, flags);

    /* The driver does not report the size here; it only matters that the memory is a peer's. */
    return report(result, CALLER, NG_SEGMENT_PEER, pointer, 1);
}

/* A free that waits for the device, or is stream-ordered. */
static void check_freeing(CUdeviceptr pointer, const void *caller)
{
    struct ng_segment segment;

    if (ng_registration_check_on() && pointer && !ng_cuda_door_is_own(caller) &&
        ng_segment_map_find((void *)(uintptr_t)pointer, &segment))
        ng_registration_check_freeing(segment.base, segment.bytes, false, caller);
}

static CUresult free_plain(CUdeviceptr pointer)
{
    CUresult result;

    return ng_cuda_vmm_free(pointer, &result) ? result : ng_cuda_real_cuMemFree_v2()(pointer);
}

/*
 * Plain memory may be freed in stream order, too. Its mapping is removed at once, and work of the
 * stream that still uses it would fault, so it is freed with cuMemFree; in a capture the driver
 * gives its usual answer for memory that is not the graph's.
 */
static CUresult free_ordered(CUdeviceptr pointer, CUstream stream,
                             CUresult(CUDAAPI *real)(CUdeviceptr, CUstream))
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const struct ng_cuda *cuda = ng_vmm_is_on() ? driver() : NULL;
    CUresult result;

    if (!cuda || cuda->stream_is_capturing(stream, &status) != CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_NONE)
        return real(pointer, stream);
    return ng_cuda_vmm_free(pointer, &result) ? result : real(pointer, stream);
}

/* Before the driver's call: `restore` if it fails. */
#define FREE_HOOK(symbol, parameters, call)                                                        \
    static CUresult CUDAAPI hook_##symbol parameters                                               \
    {                                                                                              \
        struct ng_segment segment;                                                                 \
        int saved = errno;                                                                         \
        check_freeing(pointer, CALLER);                                                            \
        bool known = pointer && !ng_cuda_door_is_own(CALLER) &&                                    \
                     ng_segments_freeing((uintptr_t)pointer, &segment);                            \
        errno = saved;                                                                             \
        CUresult result = call;                                                                    \
        if (result != CUDA_SUCCESS && known)                                                       \
            ng_segments_restore(&segment);                                                         \
        return result;                                                                             \
    }
FREE_HOOK(cuMemFree_v2, (CUdeviceptr pointer), free_plain(pointer))
FREE_HOOK(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream),
          free_ordered(pointer, stream, ng_cuda_real_cuMemFreeAsync()))
FREE_HOOK(cuMemFreeAsync_ptsz, (CUdeviceptr pointer, CUstream stream),
          free_ordered(pointer, stream, ng_cuda_real_cuMemFreeAsync_ptsz()))
FREE_HOOK(cuIpcCloseMemHandle, (CUdeviceptr pointer), ng_cuda_real_cuIpcCloseMemHandle()(pointer))

static CUresult CUDAAPI hook_cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes,
                                                 size_t alignment, CUdeviceptr address,
                                                 unsigned long long flags)
{
    CUresult result = ng_cuda_real_cuMemAddressReserve()(pointer, bytes, alignment, address, flags);

    if (result == CUDA_SUCCESS && !ng_cuda_door_is_own(CALLER))
        ng_segments_reserved((uintptr_t)*pointer, bytes);
    return result;
}

static CUresult CUDAAPI hook_cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    if (!ng_cuda_door_is_own(CALLER))
        ng_segments_unreserved((uintptr_t)pointer);
    return ng_cuda_real_cuMemAddressFree()(pointer, bytes);
}

static void report_mapping(CUdeviceptr pointer, size_t bytes, CUmemGenericAllocationHandle handle)
{
    const struct ng_cuda *cuda = driver();
    CUmemAllocationProp properties;
    int device = -1;
    bool shareable = false;

    if (cuda && cuda->mem_get_properties &&
        cuda->mem_get_properties(&properties, handle) == CUDA_SUCCESS) {
        if (properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
            device = properties.location.id;
        shareable = properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
    }
    ng_segments_mapped((uintptr_t)pointer, bytes, device, shareable);
}

static CUresult CUDAAPI hook_cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                                      CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = ng_cuda_real_cuMemMap()(pointer, bytes, offset, handle, flags);
    int saved = errno;

    if (result == CUDA_SUCCESS && !ng_cuda_door_is_own(CALLER))
        report_mapping(pointer, bytes, handle);
    errno = saved;
    return result;
}

/* The program keeps the addresses until it releases the reservation, so this is early enough. */
static CUresult CUDAAPI hook_cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    bool own = ng_cuda_door_is_own(CALLER);

    if (!own && ng_registration_check_on())
        ng_registration_check_freeing((uintptr_t)pointer, bytes, true, CALLER);
    if (!own)
        ng_segments_unmapping((uintptr_t)pointer, bytes);
    CUresult result = ng_cuda_real_cuMemUnmap()(pointer, bytes);
    if (result == CUDA_SUCCESS && !own)
        ng_segments_unmapped((uintptr_t)pointer, bytes);
    return result;
}

static CUresult reset(ng_cuda_function_cuDevicePrimaryCtxReset *real, CUdevice device)
{
    CUcontext primary = ng_cuda_vmm_primary(device);
    int saved = errno;

    /* While its communicators can still be queried. */
    ng_segments_device_resetting(device);
    errno = saved;
    CUresult result = real(device);

    if (result == CUDA_SUCCESS) {
        ng_segments_device_reset(device);
        ng_cuda_vmm_context_gone(primary);
    }
    return result;
}

static CUresult CUDAAPI hook_cuDevicePrimaryCtxReset(CUdevice device)
{
    return reset(ng_cuda_real_cuDevicePrimaryCtxReset(), device);
}

static CUresult CUDAAPI hook_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    return reset(ng_cuda_real_cuDevicePrimaryCtxReset_v2(), device);
}

/* Only of a program's own contexts: a library's or a second one of the same device may remain, and
 * forgetting memory too early only leaves it untracked. NCCL's own contexts hold none of the
 * program's memory. */
static CUresult CUDAAPI hook_cuCtxDestroy_v2(CUcontext context)
{
    const struct ng_cuda *cuda = driver();
    CUcontext before;
    CUdevice device = -1;
    int saved = errno;

    if (ng_cuda_door_is_own(CALLER))
        return ng_cuda_real_cuCtxDestroy_v2()(context);
    if (cuda && cuda->ctx_push(context) == CUDA_SUCCESS) {
        if (cuda->ctx_get_device(&device) != CUDA_SUCCESS)
            device = -1;
        cuda->ctx_pop(&before);
    }
    if (device >= 0)
        ng_segments_device_resetting(device);
    errno = saved;
    CUresult result = ng_cuda_real_cuCtxDestroy_v2()(context);
    if (result == CUDA_SUCCESS && device >= 0)
        ng_segments_device_reset(device);
    if (result == CUDA_SUCCESS)
        ng_cuda_vmm_context_gone(context);
    return result;
}

void ng_cuda_memory_enable(void)
{
    ng_cuda_hook_enable_cuMemAlloc_v2(hook_cuMemAlloc_v2);
    ng_cuda_hook_enable_cuMemAllocPitch_v2(hook_cuMemAllocPitch_v2);
    ng_cuda_hook_enable_cuMemAllocManaged(hook_cuMemAllocManaged);
    ng_cuda_hook_enable_cuMemFree_v2(hook_cuMemFree_v2);
    ng_cuda_hook_enable_cuMemAllocAsync(hook_cuMemAllocAsync);
    ng_cuda_hook_enable_cuMemAllocAsync_ptsz(hook_cuMemAllocAsync_ptsz);
    ng_cuda_hook_enable_cuMemAllocFromPoolAsync(hook_cuMemAllocFromPoolAsync);
    ng_cuda_hook_enable_cuMemAllocFromPoolAsync_ptsz(hook_cuMemAllocFromPoolAsync_ptsz);
    ng_cuda_hook_enable_cuMemFreeAsync(hook_cuMemFreeAsync);
    ng_cuda_hook_enable_cuMemFreeAsync_ptsz(hook_cuMemFreeAsync_ptsz);
    ng_cuda_hook_enable_cuIpcOpenMemHandle_v2(hook_cuIpcOpenMemHandle_v2);
    ng_cuda_hook_enable_cuIpcCloseMemHandle(hook_cuIpcCloseMemHandle);
    ng_cuda_hook_enable_cuMemAddressReserve(hook_cuMemAddressReserve);
    ng_cuda_hook_enable_cuMemAddressFree(hook_cuMemAddressFree);
    ng_cuda_hook_enable_cuMemMap(hook_cuMemMap);
    ng_cuda_hook_enable_cuMemUnmap(hook_cuMemUnmap);
    ng_cuda_hook_enable_cuDevicePrimaryCtxReset(hook_cuDevicePrimaryCtxReset);
    ng_cuda_hook_enable_cuDevicePrimaryCtxReset_v2(hook_cuDevicePrimaryCtxReset_v2);
    ng_cuda_hook_enable_cuCtxDestroy_v2(hook_cuCtxDestroy_v2);
}
