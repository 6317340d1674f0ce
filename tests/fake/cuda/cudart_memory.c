/*
 * Memory, copies and sets of the stand-in runtime.
 *
 * Entered by any thread of the program.
 */
#include "tests/fake/cuda/cudart_state.h"

#include <string.h>

CONTEXT_CALL(cudaMemGetInfo, (size_t * free, size_t *total), cuMemGetInfo(free, total))

/* An allocation of nothing is not an error here: it gives NULL. */
#define ALLOCATE(name, parameters, pointer, size, call)                                            \
    cudaError_t CUDARTAPI name parameters                                                          \
    {                                                                                              \
        TRY(cudart_bind());                                                                        \
        if (!(pointer))                                                                            \
            return cudart_done(cudaErrorInvalidValue);                                             \
        if (size)                                                                                  \
            return cudart_done((cudaError_t)(cudart_driver.call));                                 \
        *(pointer) = NULL;                                                                         \
        return cudaSuccess;                                                                        \
    }

ALLOCATE(cudaMalloc, (void **devPtr, size_t size), devPtr, size,
         cuMemAlloc((CUdeviceptr *)devPtr, size))
ALLOCATE(cudaMallocManaged, (void **devPtr, size_t size, unsigned int flags), devPtr, size,
         cuMemAllocManaged((CUdeviceptr *)devPtr, size, flags))
ALLOCATE(cudaHostAlloc, (void **pHost, size_t size, unsigned int flags), pHost, size,
         cuMemHostAlloc(pHost, size, flags))
ALLOCATE(cudaMallocHost, (void **ptr, size_t size), ptr, size, cuMemHostAlloc(ptr, size, 0))
ALLOCATE(cudaMallocPitch, (void **devPtr, size_t *pitch, size_t width, size_t height), devPtr,
         (width && height), cuMemAllocPitch((CUdeviceptr *)devPtr, pitch, width, height, 4))

cudaError_t CUDARTAPI cudaMalloc3D(struct cudaPitchedPtr *pitchedDevPtr, struct cudaExtent extent)
{
    size_t pitch = 0;
    void *base = NULL;

    if (!pitchedDevPtr)
        return cudart_done(cudaErrorInvalidValue);
    TRY(cudaMallocPitch(&base, &pitch, extent.width, extent.height * extent.depth));
    *pitchedDevPtr = (struct cudaPitchedPtr){base, pitch, extent.width, extent.height};
    return cudaSuccess;
}

CONTEXT_CALL(cudaFree, (void *devPtr), cuMemFree((CUdeviceptr)devPtr))

cudaError_t CUDARTAPI cudaFreeHost(void *ptr)
{
    TRY(cudart_bind());
    return ptr ? cudart_done((cudaError_t)cudart_driver.cuMemFreeHost(ptr)) : cudaSuccess;
}

CONTEXT_CALL(cudaHostRegister, (void *ptr, size_t size, unsigned int flags),
             cuMemHostRegister(ptr, size, flags))
CONTEXT_CALL(cudaHostUnregister, (void *ptr), cuMemHostUnregister(ptr))
CONTEXT_CALL(cudaHostGetDevicePointer, (void **pDevice, void *pHost, unsigned int flags),
             cuMemHostGetDevicePointer((CUdeviceptr *)pDevice, pHost, flags))
CONTEXT_CALL(cudaHostGetFlags, (unsigned int *pFlags, void *pHost),
             cuMemHostGetFlags(pFlags, pHost))

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

    TRY(cudart_bind());
    if (!attributes)
        return cudart_done(cudaErrorInvalidValue);
    TRY(cudart_driver.cuPointerGetAttributes(5, wanted, out, (CUdeviceptr)ptr));
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

ALLOCATE(cudaMallocAsync, (void **devPtr, size_t size, cudaStream_t stream), devPtr, size,
         cuMemAllocAsync((CUdeviceptr *)devPtr, size, stream))
FORM(cudaMallocAsync_ptsz, (void **devPtr, size_t size, cudaStream_t stream),
     cudaMallocAsync(devPtr, size, cudart_per_thread(stream)))
ALLOCATE(cudaMallocFromPoolAsync,
         (void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream), ptr, size,
         cuMemAllocFromPoolAsync((CUdeviceptr *)ptr, size, memPool, stream))
FORM(cudaMallocFromPoolAsync_ptsz,
     (void **ptr, size_t size, cudaMemPool_t memPool, cudaStream_t stream),
     cudaMallocFromPoolAsync(ptr, size, memPool, cudart_per_thread(stream)))

cudaError_t CUDARTAPI cudaFreeAsync(void *devPtr, cudaStream_t stream)
{
    if (!devPtr)
        return cudart_done(cudart_bind());
    CUDART_CALL(cudart_bind, cuMemFreeAsync((CUdeviceptr)devPtr, stream));
}
FORM(cudaFreeAsync_ptsz, (void *devPtr, cudaStream_t stream),
     cudaFreeAsync(devPtr, cudart_per_thread(stream)))

/* The runtime's structure is laid out as the driver's. */
DRIVER_CALL(cudaMemPoolCreate, (cudaMemPool_t * memPool, const struct cudaMemPoolProps *poolProps),
            cuMemPoolCreate(memPool, (const CUmemPoolProps *)poolProps))
DRIVER_CALL(cudaMemPoolDestroy, (cudaMemPool_t memPool), cuMemPoolDestroy(memPool))
DRIVER_CALL(cudaMemPoolTrimTo, (cudaMemPool_t memPool, size_t minBytesToKeep),
            cuMemPoolTrimTo(memPool, minBytesToKeep))
DRIVER_CALL(cudaMemPoolSetAttribute,
            (cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value),
            cuMemPoolSetAttribute(memPool, (CUmemPool_attribute)attr, value))
DRIVER_CALL(cudaMemPoolGetAttribute,
            (cudaMemPool_t memPool, enum cudaMemPoolAttr attr, void *value),
            cuMemPoolGetAttribute(memPool, (CUmemPool_attribute)attr, value))
DRIVER_CALL(cudaMemPoolSetAccess,
            (cudaMemPool_t memPool, const struct cudaMemAccessDesc *descList, size_t count),
            cuMemPoolSetAccess(memPool, (const CUmemAccessDesc *)descList, count))
DRIVER_CALL(cudaMemPoolGetAccess,
            (enum cudaMemAccessFlags * flags, cudaMemPool_t memPool,
             struct cudaMemLocation *location),
            cuMemPoolGetAccess((CUmemAccess_flags *)flags, memPool, (CUmemLocation *)location))

/* Copies. */

#define COPY_BY_KIND(form, ...)                                                                    \
    TRY(cudart_bind());                                                                            \
    switch (kind) {                                                                                \
    case cudaMemcpyHostToDevice:                                                                   \
        return (cudaError_t)cudart_driver.cuMemcpyHtoD##form((CUdeviceptr)dst, src, __VA_ARGS__);  \
    case cudaMemcpyDeviceToHost:                                                                   \
        return (cudaError_t)cudart_driver.cuMemcpyDtoH##form(dst, (CUdeviceptr)src, __VA_ARGS__);  \
    case cudaMemcpyDeviceToDevice:                                                                 \
        return (cudaError_t)cudart_driver.cuMemcpyDtoD##form((CUdeviceptr)dst, (CUdeviceptr)src,   \
                                                             __VA_ARGS__);                         \
    case cudaMemcpyHostToHost:                                                                     \
    case cudaMemcpyDefault:                                                                        \
        return (cudaError_t)cudart_driver.cuMemcpy##form((CUdeviceptr)dst, (CUdeviceptr)src,       \
                                                         __VA_ARGS__);                             \
    default:                                                                                       \
        return cudaErrorInvalidMemcpyDirection;                                                    \
    }

static cudaError_t copy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
    COPY_BY_KIND(, count)
}

static cudaError_t copy_async(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    COPY_BY_KIND(Async, count, stream)
}

/* A synchronous form made of the asynchronous one. */
static cudaError_t finish(cudaError_t result, cudaStream_t stream)
{
    if (result == cudaSuccess)
        result = (cudaError_t)cudart_driver.cuStreamSynchronize(stream);
    return cudart_done(result);
}

#define COPY_PARAMETERS void *dst, const void *src, size_t count, enum cudaMemcpyKind kind

FORM(cudaMemcpy, (COPY_PARAMETERS), cudart_done(copy(dst, src, count, kind)))
FORM(cudaMemcpy_ptds, (COPY_PARAMETERS),
     finish(copy_async(dst, src, count, kind, cudaStreamPerThread), cudaStreamPerThread))
STREAM_FORMS(cudaMemcpyAsync, (COPY_PARAMETERS, cudaStream_t stream),
             cudart_done(copy_async(dst, src, count, kind, stream)))
FORM(cudaMemcpyPeer, (void *dst, int dstDevice, const void *src, int srcDevice, size_t count),
     cudart_done(copy(dst, src, count, cudaMemcpyDeviceToDevice)))
FORM(cudaMemcpyPeerAsync,
     (void *dst, int dstDevice, const void *src, int srcDevice, size_t count, cudaStream_t stream),
     cudart_done(copy_async(dst, src, count, cudaMemcpyDeviceToDevice, stream)))

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

    TRY(cudart_bind());
    if ((unsigned int)kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (width > dpitch || width > spitch)
        return cudaErrorInvalidPitchValue;
    return (cudaError_t)cudart_driver.cuMemcpy2DAsync(&parameters, stream);
}

#define COPY_2D_PARAMETERS                                                                         \
    void *dst, size_t dpitch, const void *src, size_t spitch, size_t width, size_t height,         \
        enum cudaMemcpyKind kind
#define COPY_2D(stream) copy_2d(dst, dpitch, src, spitch, width, height, kind, stream)

STREAM_FORMS(cudaMemcpy2DAsync, (COPY_2D_PARAMETERS, cudaStream_t stream),
             cudart_done(COPY_2D(stream)))
FORM(cudaMemcpy2D, (COPY_2D_PARAMETERS), finish(COPY_2D(cudaStreamLegacy), cudaStreamLegacy))
FORM(cudaMemcpy2D_ptds, (COPY_2D_PARAMETERS),
     finish(COPY_2D(cudaStreamPerThread), cudaStreamPerThread))

static cudaError_t copy_3d(const struct cudaMemcpy3DParms *p, cudaStream_t stream)
{
    CUDA_MEMCPY3D parameters;

    TRY(cudart_bind());
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

STREAM_FORMS(cudaMemcpy3DAsync, (const struct cudaMemcpy3DParms *p, cudaStream_t stream),
             cudart_done(copy_3d(p, stream)))
FORM(cudaMemcpy3D, (const struct cudaMemcpy3DParms *p),
     finish(copy_3d(p, cudaStreamLegacy), cudaStreamLegacy))
FORM(cudaMemcpy3D_ptds, (const struct cudaMemcpy3DParms *p),
     finish(copy_3d(p, cudaStreamPerThread), cudaStreamPerThread))

/* Sets. */

STREAM_CALL(cudaMemsetAsync, (void *devPtr, int value, size_t count, cudaStream_t stream),
            cuMemsetD8Async((CUdeviceptr)devPtr, (unsigned char)value, count, stream))

/* The real one does not wait either: sets of device memory run in the default stream. */
FORM(cudaMemset, (void *devPtr, int value, size_t count),
     cudaMemsetAsync(devPtr, value, count, cudaStreamLegacy))
FORM(cudaMemset_ptds, (void *devPtr, int value, size_t count),
     cudaMemsetAsync(devPtr, value, count, cudaStreamPerThread))
STREAM_CALL(cudaMemset2DAsync,
            (void *devPtr, size_t pitch, int value, size_t width, size_t height,
             cudaStream_t stream),
            cuMemsetD2D8Async((CUdeviceptr)devPtr, pitch, (unsigned char)value, width, height,
                              stream))
FORM(cudaMemset2D, (void *devPtr, size_t pitch, int value, size_t width, size_t height),
     cudaMemset2DAsync(devPtr, pitch, value, width, height, cudaStreamLegacy))
FORM(cudaMemset2D_ptds, (void *devPtr, size_t pitch, int value, size_t width, size_t height),
     cudaMemset2DAsync(devPtr, pitch, value, width, height, cudaStreamPerThread))

/* Hints. */

static cudaError_t prefetch(const void *devPtr, size_t count, struct cudaMemLocation location,
                            unsigned int flags, cudaStream_t stream)
{
    CUmemLocation where = {.type = (CUmemLocationType)location.type, .id = location.id};

    CUDART_CALL(cudart_bind, cuMemPrefetchAsync((CUdeviceptr)devPtr, count, where, flags, stream));
}

#define PREFETCH_PARAMETERS                                                                        \
    const void *devPtr, size_t count, struct cudaMemLocation location, unsigned int flags,         \
        cudaStream_t stream

#if FAKE_CUDART_VERSION >= 13000

STREAM_FORMS(cudaMemPrefetchAsync, (PREFETCH_PARAMETERS),
             prefetch(devPtr, count, location, flags, stream))

#else

cudaError_t cudaMemPrefetchAsync_v2(PREFETCH_PARAMETERS);
cudaError_t cudaMemPrefetchAsync_12(const void *devPtr, size_t count, int device,
                                    cudaStream_t stream) __asm__("cudaMemPrefetchAsync");

FORM(cudaMemPrefetchAsync_v2, (PREFETCH_PARAMETERS),
     prefetch(devPtr, count, location, flags, stream))
FORM(cudaMemPrefetchAsync_12, (const void *devPtr, size_t count, int device, cudaStream_t stream),
     prefetch(devPtr, count,
              (struct cudaMemLocation){.type = cudaMemLocationTypeDevice, .id = device}, 0, stream))

#endif
