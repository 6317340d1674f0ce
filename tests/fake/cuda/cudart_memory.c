/*
 * Memory, copies and sets of the stand-in runtime.
 *
 * Entered by any thread of the program.
 */
#include "tests/fake/cuda/cudart_state.h"

#include <string.h>

cudaError_t CUDARTAPI cudaMemGetInfo(size_t *free, size_t *total)
{
    CUDART_CALL(cudart_bind, cuMemGetInfo(free, total));
}

/* An allocation of nothing is not an error here: it gives NULL. */
#define ALLOCATE(pointer, size, call)                                                              \
    do {                                                                                           \
        cudaError_t allocate_result = cudart_bind();                                               \
        if (allocate_result == cudaSuccess && !(pointer))                                          \
            allocate_result = cudaErrorInvalidValue;                                               \
        if (allocate_result == cudaSuccess && !(size)) {                                           \
            *(pointer) = NULL;                                                                     \
            return cudaSuccess;                                                                    \
        }                                                                                          \
        if (allocate_result == cudaSuccess)                                                        \
            allocate_result = (cudaError_t)(cudart_driver.call);                                   \
        return cudart_done(allocate_result);                                                       \
    } while (0)

cudaError_t CUDARTAPI cudaMalloc(void **devPtr, size_t size)
{
    ALLOCATE(devPtr, size, cuMemAlloc((CUdeviceptr *)devPtr, size));
}

cudaError_t CUDARTAPI cudaMallocManaged(void **devPtr, size_t size, unsigned int flags)
{
    ALLOCATE(devPtr, size, cuMemAllocManaged((CUdeviceptr *)devPtr, size, flags));
}

cudaError_t CUDARTAPI cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
    ALLOCATE(pHost, size, cuMemHostAlloc(pHost, size, flags));
}

cudaError_t CUDARTAPI cudaMallocHost(void **ptr, size_t size)
{
    ALLOCATE(ptr, size, cuMemHostAlloc(ptr, size, 0));
}

cudaError_t CUDARTAPI cudaMallocPitch(void **devPtr, size_t *pitch, size_t width, size_t height)
{
    ALLOCATE(devPtr, width && height,
             cuMemAllocPitch((CUdeviceptr *)devPtr, pitch, width, height, 4));
}

cudaError_t CUDARTAPI cudaMalloc3D(struct cudaPitchedPtr *pitchedDevPtr, struct cudaExtent extent)
{
    size_t pitch = 0;
    void *base = NULL;
    cudaError_t result;

    if (!pitchedDevPtr)
        return cudart_done(cudaErrorInvalidValue);
    result = cudaMallocPitch(&base, &pitch, extent.width, extent.height * extent.depth);
    if (result == cudaSuccess) {
        pitchedDevPtr->ptr = base;
        pitchedDevPtr->pitch = pitch;
        pitchedDevPtr->xsize = extent.width;
        pitchedDevPtr->ysize = extent.height;
    }
    return result;
}

cudaError_t CUDARTAPI cudaFree(void *devPtr)
{
    CUDART_CALL(cudart_bind, cuMemFree((CUdeviceptr)devPtr));
}

cudaError_t CUDARTAPI cudaFreeHost(void *ptr)
{
    if (!ptr)
        return cudart_done(cudart_bind());
    CUDART_CALL(cudart_bind, cuMemFreeHost(ptr));
}

cudaError_t CUDARTAPI cudaHostRegister(void *ptr, size_t size, unsigned int flags)
{
    CUDART_CALL(cudart_bind, cuMemHostRegister(ptr, size, flags));
}

cudaError_t CUDARTAPI cudaHostUnregister(void *ptr)
{
    CUDART_CALL(cudart_bind, cuMemHostUnregister(ptr));
}

cudaError_t CUDARTAPI cudaHostGetDevicePointer(void **pDevice, void *pHost, unsigned int flags)
{
    CUDART_CALL(cudart_bind, cuMemHostGetDevicePointer((CUdeviceptr *)pDevice, pHost, flags));
}

cudaError_t CUDARTAPI cudaHostGetFlags(unsigned int *pFlags, void *pHost)
{
    CUDART_CALL(cudart_bind, cuMemHostGetFlags(pFlags, pHost));
}

cudaError_t CUDARTAPI cudaPointerGetAttributes(struct cudaPointerAttributes *attributes,
                                               const void *ptr)
{
    CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
        CU_POINTER_ATTRIBUTE_IS_MANAGED};
    unsigned int type = 0, managed = 0;
    CUdeviceptr device_pointer = 0;
    void *host_pointer = NULL;
    int device = -1;
    void *out[] = {&type, &device, &device_pointer, &host_pointer, &managed};
    cudaError_t result = cudart_bind();

    if (result == cudaSuccess && !attributes)
        result = cudaErrorInvalidValue;
    if (result == cudaSuccess)
        result =
            (cudaError_t)cudart_driver.cuPointerGetAttributes(5, wanted, out, (CUdeviceptr)ptr);
    if (result != cudaSuccess)
        return cudart_done(result);
    memset(attributes, 0, sizeof(*attributes));
    if (!type) {
        /* Memory that CUDA does not know: the host's. */
        attributes->type = cudaMemoryTypeUnregistered;
        attributes->device = -2;
        attributes->hostPointer = (void *)(uintptr_t)ptr;
        return cudaSuccess;
    }
    attributes->type = managed                      ? cudaMemoryTypeManaged
                       : type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost
                                                    : cudaMemoryTypeDevice;
    attributes->device = device;
    attributes->devicePointer = (void *)device_pointer;
    attributes->hostPointer = host_pointer;
    return cudaSuccess;
}

/* Stream-ordered allocation. */

cudaError_t CUDARTAPI cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream)
{
    ALLOCATE(devPtr, size, cuMemAllocAsync((CUdeviceptr *)devPtr, size, hStream));
}
PER_THREAD(cudaMallocAsync, (void **devPtr, size_t size, cudaStream_t hStream),
           (devPtr, size, cudart_per_thread(hStream)))

cudaError_t CUDARTAPI cudaMallocFromPoolAsync(void **ptr, size_t size, cudaMemPool_t memPool,
                                              cudaStream_t stream)
{
    ALLOCATE(ptr, size, cuMemAllocFromPoolAsync((CUdeviceptr *)ptr, size, memPool, stream));
}
PER_THREAD(cudaMallocFromPoolAsync,
           (void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream),
           (ptr, size, memPool, cudart_per_thread(stream)))

cudaError_t CUDARTAPI cudaFreeAsync(void *devPtr, cudaStream_t hStream)
{
    if (!devPtr)
        return cudart_done(cudart_bind());
    CUDART_CALL(cudart_bind, cuMemFreeAsync((CUdeviceptr)devPtr, hStream));
}
PER_THREAD(cudaFreeAsync, (void *devPtr, cudaStream_t hStream),
           (devPtr, cudart_per_thread(hStream)))

cudaError_t CUDARTAPI cudaMemPoolCreate(cudaMemPool_t *memPool,
                                        const struct cudaMemPoolProps *poolProps)
{
    /* The runtime's structure is laid out as the driver's. */
    CUDART_CALL(cudart_ready, cuMemPoolCreate(memPool, (const CUmemPoolProps *)poolProps));
}

cudaError_t CUDARTAPI cudaMemPoolDestroy(cudaMemPool_t memPool)
{
    CUDART_CALL(cudart_ready, cuMemPoolDestroy(memPool));
}

cudaError_t CUDARTAPI cudaMemPoolTrimTo(cudaMemPool_t memPool, size_t minBytesToKeep)
{
    CUDART_CALL(cudart_ready, cuMemPoolTrimTo(memPool, minBytesToKeep));
}

cudaError_t CUDARTAPI cudaMemPoolSetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr,
                                              void *value)
{
    CUDART_CALL(cudart_ready, cuMemPoolSetAttribute(memPool, (CUmemPool_attribute)attr, value));
}

cudaError_t CUDARTAPI cudaMemPoolGetAttribute(cudaMemPool_t memPool, enum cudaMemPoolAttr attr,
                                              void *value)
{
    CUDART_CALL(cudart_ready, cuMemPoolGetAttribute(memPool, (CUmemPool_attribute)attr, value));
}

cudaError_t CUDARTAPI cudaMemPoolSetAccess(cudaMemPool_t memPool,
                                           const struct cudaMemAccessDesc *descList, size_t count)
{
    CUDART_CALL(cudart_ready,
                cuMemPoolSetAccess(memPool, (const CUmemAccessDesc *)descList, count));
}

cudaError_t CUDARTAPI cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t memPool,
                                           struct cudaMemLocation *location)
{
    CUDART_CALL(cudart_ready,
                cuMemPoolGetAccess((CUmemAccess_flags *)flags, memPool, (CUmemLocation *)location));
}

/* Copies. */

static cudaError_t copy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    cudaError_t result = cudart_bind();

    if (result != cudaSuccess)
        return result;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return (cudaError_t)cudart_driver.cuMemcpyHtoD((CUdeviceptr)dst, src, count);
    case cudaMemcpyDeviceToHost:
        return (cudaError_t)cudart_driver.cuMemcpyDtoH(dst, (CUdeviceptr)src, count);
    case cudaMemcpyDeviceToDevice:
        return (cudaError_t)cudart_driver.cuMemcpyDtoD((CUdeviceptr)dst, (CUdeviceptr)src, count);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return (cudaError_t)cudart_driver.cuMemcpy((CUdeviceptr)dst, (CUdeviceptr)src, count);
    default:
        return cudaErrorInvalidMemcpyDirection;
    }
}

static cudaError_t copy_async(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    cudaError_t result = cudart_bind();

    if (result != cudaSuccess)
        return result;
    switch (kind) {
    case cudaMemcpyHostToDevice:
        return (cudaError_t)cudart_driver.cuMemcpyHtoDAsync((CUdeviceptr)dst, src, count, stream);
    case cudaMemcpyDeviceToHost:
        return (cudaError_t)cudart_driver.cuMemcpyDtoHAsync(dst, (CUdeviceptr)src, count, stream);
    case cudaMemcpyDeviceToDevice:
        return (cudaError_t)cudart_driver.cuMemcpyDtoDAsync((CUdeviceptr)dst, (CUdeviceptr)src,
                                                            count, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
        return (cudaError_t)cudart_driver.cuMemcpyAsync((CUdeviceptr)dst, (CUdeviceptr)src, count,
                                                        stream);
    default:
        return cudaErrorInvalidMemcpyDirection;
    }
}

cudaError_t CUDARTAPI cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    return cudart_done(copy(dst, src, count, kind));
}

cudaError_t CUDARTAPI cudaMemcpyAsync(void *dst, const void *src, size_t count,
                                      enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return cudart_done(copy_async(dst, src, count, kind, stream));
}
PER_THREAD(cudaMemcpyAsync,
           (void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
            cudaStream_t stream),
           (dst, src, count, kind, cudart_per_thread(stream)))

/* A synchronous form made of the asynchronous one. */
static cudaError_t finish(cudaError_t result, cudaStream_t stream)
{
    if (result == cudaSuccess)
        result = (cudaError_t)cudart_driver.cuStreamSynchronize(stream);
    return cudart_done(result);
}

cudaError_t CUDARTAPI cudaMemcpy_ptds(void *dst, const void *src, size_t count,
                                      enum cudaMemcpyKind kind)
{
    return finish(copy_async(dst, src, count, kind, cudaStreamPerThread), cudaStreamPerThread);
}

cudaError_t CUDARTAPI cudaMemcpyPeer(void *dst, int dstDevice, const void *src, int srcDevice,
                                     size_t count)
{
    return cudart_done(copy(dst, src, count, cudaMemcpyDeviceToDevice));
}

cudaError_t CUDARTAPI cudaMemcpyPeerAsync(void *dst, int dstDevice, const void *src, int srcDevice,
                                          size_t count, cudaStream_t stream)
{
    return cudart_done(copy_async(dst, src, count, cudaMemcpyDeviceToDevice, stream));
}

static CUmemorytype side(enum cudaMemcpyKind kind, int destination)
{
    switch (kind) {
    case cudaMemcpyHostToHost:
        return CU_MEMORYTYPE_HOST;
    case cudaMemcpyHostToDevice:
        return destination ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    case cudaMemcpyDeviceToHost:
        return destination ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    case cudaMemcpyDeviceToDevice:
        return CU_MEMORYTYPE_DEVICE;
    default:
        return CU_MEMORYTYPE_UNIFIED;
    }
}

static cudaError_t copy_2d(void *dst, size_t dpitch, const void *src, size_t spitch, size_t width,
                           size_t height, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    CUDA_MEMCPY2D parameters = {.dstMemoryType = side(kind, 1),
                                .dstHost = dst,
                                .dstDevice = (CUdeviceptr)dst,
                                .dstPitch = dpitch,
                                .srcMemoryType = side(kind, 0),
                                .srcHost = src,
                                .srcDevice = (CUdeviceptr)src,
                                .srcPitch = spitch,
                                .WidthInBytes = width,
                                .Height = height};
    cudaError_t result = cudart_bind();

    if (result != cudaSuccess)
        return result;
    if ((unsigned int)kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (width > dpitch || width > spitch)
        return cudaErrorInvalidPitchValue;
    return (cudaError_t)cudart_driver.cuMemcpy2DAsync(&parameters, stream);
}

cudaError_t CUDARTAPI cudaMemcpy2DAsync(void *dst, size_t dpitch, const void *src, size_t spitch,
                                        size_t width, size_t height, enum cudaMemcpyKind kind,
                                        cudaStream_t stream)
{
    return cudart_done(copy_2d(dst, dpitch, src, spitch, width, height, kind, stream));
}
PER_THREAD(cudaMemcpy2DAsync,
           (void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,
            enum cudaMemcpyKind kind, cudaStream_t stream),
           (dst, dpitch, src, spitch, width, height, kind, cudart_per_thread(stream)))

cudaError_t CUDARTAPI cudaMemcpy2D(void *dst, size_t dpitch, const void *src, size_t spitch,
                                   size_t width, size_t height, enum cudaMemcpyKind kind)
{
    return finish(copy_2d(dst, dpitch, src, spitch, width, height, kind, cudaStreamLegacy),
                  cudaStreamLegacy);
}

cudaError_t CUDARTAPI cudaMemcpy2D_ptds(void *dst, size_t dpitch, const void *src, size_t spitch,
                                        size_t width, size_t height, enum cudaMemcpyKind kind)
{
    return finish(copy_2d(dst, dpitch, src, spitch, width, height, kind, cudaStreamPerThread),
                  cudaStreamPerThread);
}

static cudaError_t copy_3d(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
    CUDA_MEMCPY3D parameters;
    cudaError_t result = cudart_bind();

    if (result != cudaSuccess)
        return result;
    if (!p || p->srcArray || p->dstArray)
        return p ? cudaErrorNotSupported : cudaErrorInvalidValue;
    parameters = (CUDA_MEMCPY3D){.dstMemoryType = side(p->kind, 1),
                                 .dstHost = p->dstPtr.ptr,
                                 .dstDevice = (CUdeviceptr)p->dstPtr.ptr,
                                 .dstPitch = p->dstPtr.pitch,
                                 .dstHeight = p->dstPtr.ysize,
                                 .dstXInBytes = p->dstPos.x,
                                 .dstY = p->dstPos.y,
                                 .dstZ = p->dstPos.z,
                                 .srcMemoryType = side(p->kind, 0),
                                 .srcHost = p->srcPtr.ptr,
                                 .srcDevice = (CUdeviceptr)p->srcPtr.ptr,
                                 .srcPitch = p->srcPtr.pitch,
                                 .srcHeight = p->srcPtr.ysize,
                                 .srcXInBytes = p->srcPos.x,
                                 .srcY = p->srcPos.y,
                                 .srcZ = p->srcPos.z,
                                 .WidthInBytes = p->extent.width,
                                 .Height = p->extent.height,
                                 .Depth = p->extent.depth};
    return (cudaError_t)cudart_driver.cuMemcpy3DAsync(&parameters, stream);
}

cudaError_t CUDARTAPI cudaMemcpy3DAsync(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
    return cudart_done(copy_3d(p, stream));
}
PER_THREAD(cudaMemcpy3DAsync, (const struct cudaMemcpy3DParms *p, cudaStream_t stream),
           (p, cudart_per_thread(stream)))

cudaError_t CUDARTAPI cudaMemcpy3D(const struct cudaMemcpy3DParms *p)
{
    return finish(copy_3d(p, cudaStreamLegacy), cudaStreamLegacy);
}

cudaError_t CUDARTAPI cudaMemcpy3D_ptds(const struct cudaMemcpy3DParms *p)
{
    return finish(copy_3d(p, cudaStreamPerThread), cudaStreamPerThread);
}

/* Sets. */

cudaError_t CUDARTAPI cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
    CUDART_CALL(cudart_bind,
                cuMemsetD8Async((CUdeviceptr)devPtr, (unsigned char)value, count, stream));
}
PER_THREAD(cudaMemsetAsync, (void *devPtr, int value, size_t count, cudaStream_t stream),
           (devPtr, value, count, cudart_per_thread(stream)))

/* The real one does not wait either: sets of device memory run in the default stream. */
cudaError_t CUDARTAPI cudaMemset(void *devPtr, int value, size_t count)
{
    return cudaMemsetAsync(devPtr, value, count, cudaStreamLegacy);
}

cudaError_t CUDARTAPI cudaMemset_ptds(void *devPtr, int value, size_t count)
{
    return cudaMemsetAsync(devPtr, value, count, cudaStreamPerThread);
}

cudaError_t CUDARTAPI cudaMemset2DAsync(void *devPtr, size_t pitch, int value, size_t width,
                                        size_t height, cudaStream_t stream)
{
    CUDART_CALL(cudart_bind, cuMemsetD2D8Async((CUdeviceptr)devPtr, pitch, (unsigned char)value,
                                               width, height, stream));
}
PER_THREAD(cudaMemset2DAsync,
           (void *devPtr, size_t pitch, int value, size_t width, size_t height,
            cudaStream_t stream),
           (devPtr, pitch, value, width, height, cudart_per_thread(stream)))

cudaError_t CUDARTAPI cudaMemset2D(void *devPtr, size_t pitch, int value, size_t width,
                                   size_t height)
{
    return cudaMemset2DAsync(devPtr, pitch, value, width, height, cudaStreamLegacy);
}

cudaError_t CUDARTAPI cudaMemset2D_ptds(void *devPtr, size_t pitch, int value, size_t width,
                                        size_t height)
{
    return cudaMemset2DAsync(devPtr, pitch, value, width, height, cudaStreamPerThread);
}

/* Hints. */

#if FAKE_CUDART_VERSION >= 13000

cudaError_t CUDARTAPI cudaMemPrefetchAsync(const void *devPtr, size_t count,
                                           struct cudaMemLocation location, unsigned int flags,
                                           cudaStream_t stream)
{
    CUmemLocation where = {.type = (CUmemLocationType)location.type, .id = location.id};

    CUDART_CALL(cudart_bind, cuMemPrefetchAsync((CUdeviceptr)devPtr, count, where, flags, stream));
}
PER_THREAD(cudaMemPrefetchAsync,
           (const void *devPtr, size_t count, struct cudaMemLocation location, unsigned int flags,
            cudaStream_t stream),
           (devPtr, count, location, flags, cudart_per_thread(stream)))

#else

cudaError_t cudaMemPrefetchAsync_v2(const void *devPtr, size_t count,
                                    struct cudaMemLocation location, unsigned int flags,
                                    cudaStream_t stream);
cudaError_t cudaMemPrefetchAsync_12(const void *devPtr, size_t count, int device,
                                    cudaStream_t stream) __asm__("cudaMemPrefetchAsync");

cudaError_t cudaMemPrefetchAsync_v2(const void *devPtr, size_t count,
                                    struct cudaMemLocation location, unsigned int flags,
                                    cudaStream_t stream)
{
    CUmemLocation where = {.type = (CUmemLocationType)location.type, .id = location.id};

    CUDART_CALL(cudart_bind, cuMemPrefetchAsync((CUdeviceptr)devPtr, count, where, flags, stream));
}

cudaError_t cudaMemPrefetchAsync_12(const void *devPtr, size_t count, int device,
                                    cudaStream_t stream)
{
    struct cudaMemLocation where = {.type = cudaMemLocationTypeDevice, .id = device};

    return cudaMemPrefetchAsync_v2(devPtr, count, where, 0, stream);
}

#endif
