/*
 * Serves large device allocations of the program with memory that NCCL can share and register
 * (NCCLGUARD_ALLOC=vmm): cuMemAlloc, implemented with cuMemCreate and cuMemMap.
 *
 * Not in the path of a call. Program threads, from the hooks on the driver; several at once. What
 * cannot be allocated this way is left to the driver's own allocator, including its errors.
 *
 * The program sees no difference except: memory is rounded up to the device's granularity (2 MiB)
 * in the driver's totals (cuMemGetInfo); all devices that can reach it may read and write it
 * without cuCtxEnablePeerAccess; legacy IPC cannot export it. So the first use of legacy IPC
 * switches it off permanently: later allocations are the driver's own.
 */
#ifndef NCCLGUARD_CORE_REGISTRATION_VMM_H
#define NCCLGUARD_CORE_REGISTRATION_VMM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Smaller allocations are left to the driver: each needs its own mapping. */
#define NG_VMM_BYTES_MIN ((size_t)2 << 20)

/* NG_VMM_CALL(field, exported name, prototype): all of them are needed. */
#define NG_VMM_CALLS(NG_VMM_CALL)                                                                  \
    NG_VMM_CALL(ctx_get_current, "cuCtxGetCurrent", (CUcontext *))                                 \
    NG_VMM_CALL(ctx_get_device, "cuCtxGetDevice", (CUdevice *))                                    \
    NG_VMM_CALL(ctx_push, "cuCtxPushCurrent_v2", (CUcontext))                                      \
    NG_VMM_CALL(ctx_pop, "cuCtxPopCurrent_v2", (CUcontext *))                                      \
    NG_VMM_CALL(ctx_synchronize, "cuCtxSynchronize", (void))                                       \
    NG_VMM_CALL(stream_is_capturing, "cuStreamIsCapturing", (CUstream, CUstreamCaptureStatus *))   \
    NG_VMM_CALL(primary_ctx_get_state, "cuDevicePrimaryCtxGetState",                               \
                (CUdevice, unsigned int *, int *))                                                 \
    NG_VMM_CALL(primary_ctx_retain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))           \
    NG_VMM_CALL(primary_ctx_release, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                   \
    NG_VMM_CALL(device_get_count, "cuDeviceGetCount", (int *))                                     \
    NG_VMM_CALL(device_get_attribute, "cuDeviceGetAttribute",                                      \
                (int *, CUdevice_attribute, CUdevice))                                             \
    NG_VMM_CALL(device_can_access_peer, "cuDeviceCanAccessPeer", (int *, CUdevice, CUdevice))      \
    NG_VMM_CALL(mem_get_granularity, "cuMemGetAllocationGranularity",                              \
                (size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags))         \
    NG_VMM_CALL(                                                                                   \
        mem_create, "cuMemCreate",                                                                 \
        (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)) \
    NG_VMM_CALL(mem_release, "cuMemRelease", (CUmemGenericAllocationHandle))                       \
    NG_VMM_CALL(mem_address_reserve, "cuMemAddressReserve",                                        \
                (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                  \
    NG_VMM_CALL(mem_address_free, "cuMemAddressFree", (CUdeviceptr, size_t))                       \
    NG_VMM_CALL(mem_map, "cuMemMap",                                                               \
                (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))   \
    NG_VMM_CALL(mem_unmap, "cuMemUnmap", (CUdeviceptr, size_t))                                    \
    NG_VMM_CALL(mem_set_access, "cuMemSetAccess",                                                  \
                (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))

struct ng_vmm_driver {
#define NG_VMM_FIELD(field, name, prototype) CUresult(CUDAAPI *field) prototype;
    NG_VMM_CALLS(NG_VMM_FIELD)
#undef NG_VMM_FIELD
};

/* One allocation. */
struct ng_vmm_block {
    CUdeviceptr base;
    size_t bytes;  /* as requested by the program */
    size_t mapped; /* as mapped */
    CUcontext context;
    int device;
};

/* Is it configured? The same for the life of the process. */
bool ng_vmm_is_on(void);

/* False: nothing was allocated, and the call goes to the driver's own allocator. */
bool ng_vmm_alloc(const struct ng_vmm_driver *driver, size_t bytes, struct ng_vmm_block *ret_block);

/* The block that holds an address. False: none does. */
bool ng_vmm_find(CUdeviceptr address, struct ng_vmm_block *ret_block);

/*
 * Free the block that begins at `base`, after the work of its context, as cuMemFree does. False:
 * there is none, and the call goes to the driver; else *ret_result is the result, and unless it is
 * success the block still exists.
 */
bool ng_vmm_free(const struct ng_vmm_driver *driver, CUdeviceptr base, CUresult *ret_result);

/* The program begins (1) or ends (-1) the capture of a stream. Meanwhile the guard must not wait
 * for the device: that would invalidate the capture, which cuMemFree does not. So memory that is
 * freed then stays until a later allocation or free. */
void ng_vmm_capturing(int more);

/* A context was destroyed, and with it its allocations. Calls `forget` for each of those blocks; it
 * may be NULL. */
void ng_vmm_context_gone(const struct ng_vmm_driver *driver, CUcontext context,
                         void (*forget)(const struct ng_vmm_block *block));

/* The primary context of a device that has blocks; NULL: the device has none, or the context is not
 * active. */
CUcontext ng_vmm_primary(const struct ng_vmm_driver *driver, CUdevice device);

/* The program uses legacy IPC: stop allocating. If the address is in a block, log what the user can
 * do. */
void ng_vmm_stop(CUdeviceptr address);

/* Number of blocks and bytes in use. Any thread. */
void ng_vmm_count(uint64_t *ret_blocks, uint64_t *ret_bytes);

/* In a forked child, where CUDA does not work. */
void ng_vmm_after_fork(void);

#endif
