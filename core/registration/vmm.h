/*
 * Large device allocations of the program, made so that NCCL can share and register them
 * (NCCLGUARD_ALLOC=vmm): what cuMemAlloc would give, out of cuMemCreate and cuMemMap.
 *
 * Beside the steps of a call. Program threads, from the hooks on the driver; several at once. What
 * cannot be had so is left to the driver's own allocator, errors included.
 *
 * What the program sees is as before, but for this: memory is rounded up to the device's
 * granularity (2 MiB) where the driver counts it (cuMemGetInfo); all devices that can reach it may
 * read and write it without cuCtxEnablePeerAccess; legacy IPC cannot hand it out. So the first sign
 * of legacy IPC ends it for good: what is allocated from then on is the driver's own.
 */
#ifndef NCCLGUARD_CORE_REGISTRATION_VMM_H
#define NCCLGUARD_CORE_REGISTRATION_VMM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Smaller ones stay the driver's: each needs a mapping of its own. */
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
    size_t bytes;  /* as the program asked */
    size_t mapped; /* as there are */
    CUcontext context;
    int device;
};

/* Is it configured? The same for the life of the process. */
bool ng_vmm_is_on(void);

/* False: nothing was allocated, and the driver's own allocator has to answer. */
bool ng_vmm_alloc(const struct ng_vmm_driver *driver, size_t bytes, struct ng_vmm_block *ret_block);

/* The block that holds an address. False: none does. */
bool ng_vmm_find(CUdeviceptr address, struct ng_vmm_block *ret_block);

/*
 * Free the block that begins at `base`, after the work of its context, as cuMemFree does. False:
 * there is none, the driver has to answer; else *ret_result is the answer, and where it is no
 * success the block is still there.
 */
bool ng_vmm_free(const struct ng_vmm_driver *driver, CUdeviceptr base, CUresult *ret_result);

/* The program begins to capture a stream (1), or ends that (-1). Meanwhile nobody may wait for the
 * device, or the capture is void, where cuMemFree would not harm it: what is freed then stays until
 * a later allocation or free. */
void ng_vmm_capturing(int more);

/* A context is gone, and with it what was allocated in it. `forget`, with each block that goes, may
 * be NULL. */
void ng_vmm_context_gone(const struct ng_vmm_driver *driver, CUcontext context,
                         void (*forget)(const struct ng_vmm_block *block));

/* The primary context of a device that has blocks; NULL: it has none, or is not active. */
CUcontext ng_vmm_primary(const struct ng_vmm_driver *driver, CUdevice device);

/* The program uses legacy IPC: nothing more is allocated. With an address of a block: a line that
 * says what to do. */
void ng_vmm_stop(CUdeviceptr address);

/* Blocks and bytes that there are. Any thread. */
void ng_vmm_count(uint64_t *ret_blocks, uint64_t *ret_bytes);

/* In a forked child: CUDA has nothing for it. */
void ng_vmm_after_fork(void);

#endif
