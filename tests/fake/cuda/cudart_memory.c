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
    INVALID_IF(!attributes);
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

cudaError_t CUDARTAPI cudaFreeAsync(void *devPtr, cudaStream_t stream)
{
    if (!devPtr)
        return cudart_done(cudart_bind());
    CUDART_CALL(cudart_bind, cuMemFreeAsync((CUdeviceptr)devPtr, stream));
}
FORM(cudaFreeAsync_ptsz, (void *devPtr, cudaStream_t stream),
     cudaFreeAsync(devPtr, cudart_per_thread(stream)))

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

/* Sets. */

STREAM_CALL(cudaMemsetAsync, (void *devPtr, int value, size_t count, cudaStream_t stream),
            cuMemsetD8Async((CUdeviceptr)devPtr, (unsigned char)value, count, stream))

/* The real one does not wait either: sets of device memory run in the default stream. */
FORM(cudaMemset, (void *devPtr, int value, size_t count),
     cudaMemsetAsync(devPtr, value, count, cudaStreamLegacy))
FORM(cudaMemset_ptds, (void *devPtr, int value, size_t count),
     cudaMemsetAsync(devPtr, value, count, cudaStreamPerThread))
