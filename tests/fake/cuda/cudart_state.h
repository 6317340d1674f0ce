/*
 * What the files of the stand-in for libcudart share: the driver's functions and the thread's
 * state.
 *
 * The runtime is a layer over the driver API and holds no streams, events or memory of its own.
 */
#ifndef FAKE_CUDART_STATE_H
#define FAKE_CUDART_STATE_H

#include <cuda.h>

/* Declares the per-thread default stream names beside the ordinary ones. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda_runtime_api.h>

/* The names under which the runtime asks cuGetProcAddress. */
#define DRIVER_FUNCTIONS(F)                                                                        \
    F(cuInit)                                                                                      \
    F(cuDriverGetVersion)                                                                          \
    F(cuDeviceGetCount)                                                                            \
    F(cuDeviceGetName)                                                                             \
    F(cuDeviceGetUuid)                                                                             \
    F(cuDeviceTotalMem)                                                                            \
    F(cuDeviceGetAttribute)                                                                        \
    F(cuDeviceGetPCIBusId)                                                                         \
    F(cuDeviceGetByPCIBusId)                                                                       \
    F(cuDeviceCanAccessPeer)                                                                       \
    F(cuDevicePrimaryCtxRetain)                                                                    \
    F(cuDevicePrimaryCtxReset)                                                                     \
    F(cuDevicePrimaryCtxSetFlags)                                                                  \
    F(cuDevicePrimaryCtxGetState)                                                                  \
    F(cuCtxGetCurrent)                                                                             \
    F(cuCtxSetCurrent)                                                                             \
    F(cuCtxGetDevice)                                                                              \
    F(cuCtxSynchronize)                                                                            \
    F(cuCtxGetStreamPriorityRange)                                                                 \
    F(cuCtxEnablePeerAccess)                                                                       \
    F(cuCtxDisablePeerAccess)                                                                      \
    F(cuMemGetInfo)                                                                                \
    F(cuMemAlloc)                                                                                  \
    F(cuMemAllocPitch)                                                                             \
    F(cuMemAllocManaged)                                                                           \
    F(cuMemFree)                                                                                   \
    F(cuMemHostAlloc)                                                                              \
    F(cuMemFreeHost)                                                                               \
    F(cuMemHostRegister)                                                                           \
    F(cuMemHostUnregister)                                                                         \
    F(cuMemHostGetDevicePointer)                                                                   \
    F(cuPointerGetAttributes)                                                                      \
    F(cuMemAllocAsync)                                                                             \
    F(cuMemFreeAsync)                                                                              \
    F(cuMemcpy)                                                                                    \
    F(cuMemcpyHtoD)                                                                                \
    F(cuMemcpyDtoH)                                                                                \
    F(cuMemcpyDtoD)                                                                                \
    F(cuMemcpyAsync)                                                                               \
    F(cuMemcpyHtoDAsync)                                                                           \
    F(cuMemcpyDtoHAsync)                                                                           \
    F(cuMemcpyDtoDAsync)                                                                           \
    F(cuMemsetD8Async)                                                                             \
    F(cuStreamCreateWithPriority)                                                                  \
    F(cuStreamDestroy)                                                                             \
    F(cuStreamQuery)                                                                               \
    F(cuStreamSynchronize)                                                                         \
    F(cuStreamWaitEvent)                                                                           \
    F(cuStreamAddCallback)                                                                         \
    F(cuStreamGetPriority)                                                                         \
    F(cuStreamGetFlags)                                                                            \
    F(cuStreamGetId)                                                                               \
    F(cuLaunchHostFunc)                                                                            \
    F(cuEventCreate)                                                                               \
    F(cuEventDestroy)                                                                              \
    F(cuEventRecord)                                                                               \
    F(cuEventRecordWithFlags)                                                                      \
    F(cuEventQuery)                                                                                \
    F(cuEventSynchronize)                                                                          \
    F(cuEventElapsedTime)                                                                          \
    F(cuThreadExchangeStreamCaptureMode)                                                           \
    F(cuStreamIsCapturing)                                                                         \
    F(cuStreamBeginCapture)                                                                        \
    F(cuStreamEndCapture)                                                                          \
    F(cuStreamGetCaptureInfo)                                                                      \
    F(cuGraphCreate)                                                                               \
    F(cuGraphDestroy)                                                                              \
    F(cuGraphClone)                                                                                \
    F(cuGraphGetNodes)                                                                             \
    F(cuGraphAddEmptyNode)                                                                         \
    F(cuGraphAddChildGraphNode)                                                                    \
    F(cuGraphInstantiateWithFlags)                                                                 \
    F(cuGraphInstantiateWithParams)                                                                \
    F(cuGraphExecUpdate)                                                                           \
    F(cuGraphLaunch)                                                                               \
    F(cuGraphExecDestroy)

struct driver {
    __typeof__(&cuGetProcAddress) cuGetProcAddress;
#define FIELD(name) __typeof__(&name) name;
    DRIVER_FUNCTIONS(FIELD)
#undef FIELD
};

extern struct driver cudart_driver;

cudaError_t cudart_ready(void); /* the driver is found and initialised */
cudaError_t cudart_bind(void);  /* and the thread has a context */
cudaError_t cudart_context(int device, CUcontext *ret_ctx); /* a device's primary context */
cudaError_t cudart_done(cudaError_t result); /* keeps the thread's last error; returns it */

static inline cudaStream_t cudart_per_thread(cudaStream_t stream)
{
    return stream ? stream : cudaStreamPerThread;
}

/* Ends the function with this error, which the thread keeps, unless it is success. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        cudaError_t try_result = (cudaError_t)(call);                                              \
        if (try_result != cudaSuccess)                                                             \
            return cudart_done(try_result);                                                        \
    } while (0)

#define INVALID_IF(condition) TRY((condition) ? cudaErrorInvalidValue : cudaSuccess)

/* A call that needs the driver, or the driver and a context. */
#define CUDART_CALL(before, call)                                                                  \
    TRY(before());                                                                                 \
    return cudart_done((cudaError_t)(cudart_driver.call))

/* A function that is a call of the driver, which needs no context, or one. */
#define DRIVER_CALL(name, parameters, call)                                                        \
    cudaError_t CUDARTAPI name parameters                                                          \
    {                                                                                              \
        CUDART_CALL(cudart_ready, call);                                                           \
    }
#define CONTEXT_CALL(name, parameters, call)                                                       \
    cudaError_t CUDARTAPI name parameters                                                          \
    {                                                                                              \
        CUDART_CALL(cudart_bind, call);                                                            \
    }

/* A function that is another call of the runtime. */
#define FORM(name, parameters, call)                                                               \
    cudaError_t CUDARTAPI name parameters                                                          \
    {                                                                                              \
        return call;                                                                               \
    }

/* Both forms of a function that takes `stream`: its default stream is the legacy one or the
 * thread's. */
#define STREAM_FORMS(name, parameters, call)                                                       \
    FORM(name, parameters, call)                                                                   \
    cudaError_t CUDARTAPI name##_ptsz parameters                                                   \
    {                                                                                              \
        stream = cudart_per_thread(stream);                                                        \
        return call;                                                                               \
    }

#define STREAM_CALL(name, parameters, call)                                                        \
    CONTEXT_CALL(name, parameters, call)                                                           \
    cudaError_t CUDARTAPI name##_ptsz parameters                                                   \
    {                                                                                              \
        stream = cudart_per_thread(stream);                                                        \
        CUDART_CALL(cudart_bind, call);                                                            \
    }

#endif
