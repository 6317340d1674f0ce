/*
 * Streams and events of the stand-in runtime.
 *
 * Entered by any thread of the program.
 */
#include "tests/fake/cuda/cudart_state.h"

cudaError_t CUDARTAPI cudaStreamCreateWithPriority(cudaStream_t *pStream, unsigned int flags,
                                                   int priority)
{
    CUDART_CALL(cudart_bind, cuStreamCreateWithPriority(pStream, flags, priority));
}

cudaError_t CUDARTAPI cudaStreamCreateWithFlags(cudaStream_t *pStream, unsigned int flags)
{
    return cudaStreamCreateWithPriority(pStream, flags, 0);
}

cudaError_t CUDARTAPI cudaStreamCreate(cudaStream_t *pStream)
{
    return cudaStreamCreateWithPriority(pStream, cudaStreamDefault, 0);
}

cudaError_t CUDARTAPI cudaStreamDestroy(cudaStream_t stream)
{
    CUDART_CALL(cudart_bind, cuStreamDestroy(stream));
}

cudaError_t CUDARTAPI cudaStreamQuery(cudaStream_t stream)
{
    CUDART_CALL(cudart_bind, cuStreamQuery(stream));
}
PER_THREAD(cudaStreamQuery, (cudaStream_t stream), (cudart_per_thread(stream)))

cudaError_t CUDARTAPI cudaStreamSynchronize(cudaStream_t stream)
{
    CUDART_CALL(cudart_bind, cuStreamSynchronize(stream));
}
PER_THREAD(cudaStreamSynchronize, (cudaStream_t stream), (cudart_per_thread(stream)))

cudaError_t CUDARTAPI cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                          unsigned int flags)
{
    CUDART_CALL(cudart_bind, cuStreamWaitEvent(stream, event, flags));
}
PER_THREAD(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
           (cudart_per_thread(stream), event, flags))

cudaError_t CUDARTAPI cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback,
                                            void *userData, unsigned int flags)
{
    /* Error numbers are the same on both sides, so the callback is passed on as it is. */
    CUDART_CALL(cudart_bind,
                cuStreamAddCallback(stream, (CUstreamCallback)(void *)callback, userData, flags));
}
PER_THREAD(cudaStreamAddCallback,
           (cudaStream_t stream, cudaStreamCallback_t callback, void *userData, unsigned int flags),
           (cudart_per_thread(stream), callback, userData, flags))

cudaError_t CUDARTAPI cudaStreamAttachMemAsync(cudaStream_t stream, void *devPtr, size_t length,
                                               unsigned int flags)
{
    CUDART_CALL(cudart_bind, cuStreamAttachMemAsync(stream, (CUdeviceptr)devPtr, length, flags));
}
PER_THREAD(cudaStreamAttachMemAsync,
           (cudaStream_t stream, void *devPtr, size_t length, unsigned int flags),
           (cudart_per_thread(stream), devPtr, length, flags))

cudaError_t CUDARTAPI cudaStreamGetPriority(cudaStream_t hStream, int *priority)
{
    CUDART_CALL(cudart_bind, cuStreamGetPriority(hStream, priority));
}
PER_THREAD(cudaStreamGetPriority, (cudaStream_t hStream, int *priority),
           (cudart_per_thread(hStream), priority))

cudaError_t CUDARTAPI cudaStreamGetFlags(cudaStream_t hStream, unsigned int *flags)
{
    CUDART_CALL(cudart_bind, cuStreamGetFlags(hStream, flags));
}
PER_THREAD(cudaStreamGetFlags, (cudaStream_t hStream, unsigned int *flags),
           (cudart_per_thread(hStream), flags))

cudaError_t CUDARTAPI cudaStreamGetId(cudaStream_t hStream, unsigned long long *streamId)
{
    CUDART_CALL(cudart_bind, cuStreamGetId(hStream, streamId));
}
PER_THREAD(cudaStreamGetId, (cudaStream_t hStream, unsigned long long *streamId),
           (cudart_per_thread(hStream), streamId))

cudaError_t CUDARTAPI cudaStreamGetDevice(cudaStream_t hStream, int *device)
{
    CUDART_CALL(cudart_bind, cuStreamGetDevice(hStream, device));
}
PER_THREAD(cudaStreamGetDevice, (cudaStream_t hStream, int *device),
           (cudart_per_thread(hStream), device))

cudaError_t CUDARTAPI cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *userData)
{
    CUDART_CALL(cudart_bind, cuLaunchHostFunc(stream, fn, userData));
}
PER_THREAD(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t fn, void *userData),
           (cudart_per_thread(stream), fn, userData))

/* Events. */

cudaError_t CUDARTAPI cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    CUDART_CALL(cudart_bind, cuEventCreate(event, flags));
}

cudaError_t CUDARTAPI cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t CUDARTAPI cudaEventDestroy(cudaEvent_t event)
{
    CUDART_CALL(cudart_bind, cuEventDestroy(event));
}

cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    CUDART_CALL(cudart_bind, cuEventRecord(event, stream));
}
PER_THREAD(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream),
           (event, cudart_per_thread(stream)))

cudaError_t CUDARTAPI cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream,
                                               unsigned int flags)
{
    CUDART_CALL(cudart_bind, cuEventRecordWithFlags(event, stream, flags));
}
PER_THREAD(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
           (event, cudart_per_thread(stream), flags))

cudaError_t CUDARTAPI cudaEventQuery(cudaEvent_t event)
{
    CUDART_CALL(cudart_bind, cuEventQuery(event));
}

cudaError_t CUDARTAPI cudaEventSynchronize(cudaEvent_t event)
{
    CUDART_CALL(cudart_bind, cuEventSynchronize(event));
}

cudaError_t CUDARTAPI cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    CUDART_CALL(cudart_bind, cuEventElapsedTime(ms, start, end));
}

#if FAKE_CUDART_VERSION < 13000

/* The name that the header of CUDA 12.8 gives the function. */
cudaError_t cudaEventElapsedTime_v2(float *ms, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaEventElapsedTime_v2(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    return cudaEventElapsedTime(ms, start, end);
}

#endif

/* Capture. */

cudaError_t CUDARTAPI cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    CUDART_CALL(cudart_ready, cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode));
}

cudaError_t CUDARTAPI cudaStreamIsCapturing(cudaStream_t stream,
                                            enum cudaStreamCaptureStatus *pCaptureStatus)
{
    CUDART_CALL(cudart_bind, cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)pCaptureStatus));
}
PER_THREAD(cudaStreamIsCapturing,
           (cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus),
           (cudart_per_thread(stream), pCaptureStatus))
