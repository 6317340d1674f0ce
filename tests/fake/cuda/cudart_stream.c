/*
 * Streams and events of the stand-in runtime.
 *
 * Entered by any thread of the program.
 */
#include "tests/fake/cuda/cudart_state.h"

CONTEXT_CALL(cudaStreamCreateWithPriority,
             (cudaStream_t * pStream, unsigned int flags, int priority),
             cuStreamCreateWithPriority(pStream, flags, priority))
FORM(cudaStreamCreateWithFlags, (cudaStream_t * pStream, unsigned int flags),
     cudaStreamCreateWithPriority(pStream, flags, 0))
FORM(cudaStreamCreate, (cudaStream_t * pStream),
     cudaStreamCreateWithPriority(pStream, cudaStreamDefault, 0))
CONTEXT_CALL(cudaStreamDestroy, (cudaStream_t stream), cuStreamDestroy(stream))
STREAM_CALL(cudaStreamQuery, (cudaStream_t stream), cuStreamQuery(stream))
STREAM_CALL(cudaStreamSynchronize, (cudaStream_t stream), cuStreamSynchronize(stream))
STREAM_CALL(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned int flags),
            cuStreamWaitEvent(stream, event, flags))

/* Error numbers are the same on both sides, so the callback is passed on as it is. */
STREAM_CALL(cudaStreamAddCallback,
            (cudaStream_t stream, cudaStreamCallback_t callback, void *userData,
             unsigned int flags),
            cuStreamAddCallback(stream, (CUstreamCallback)(void *)callback, userData, flags))
STREAM_CALL(cudaStreamGetPriority, (cudaStream_t stream, int *priority),
            cuStreamGetPriority(stream, priority))
STREAM_CALL(cudaStreamGetFlags, (cudaStream_t stream, unsigned int *flags),
            cuStreamGetFlags(stream, flags))
STREAM_CALL(cudaStreamGetId, (cudaStream_t stream, unsigned long long *streamId),
            cuStreamGetId(stream, streamId))
STREAM_CALL(cudaLaunchHostFunc, (cudaStream_t stream, cudaHostFn_t fn, void *userData),
            cuLaunchHostFunc(stream, fn, userData))

/* Events. */

CONTEXT_CALL(cudaEventCreateWithFlags, (cudaEvent_t * event, unsigned int flags),
             cuEventCreate(event, flags))
FORM(cudaEventCreate, (cudaEvent_t * event), cudaEventCreateWithFlags(event, cudaEventDefault))
CONTEXT_CALL(cudaEventDestroy, (cudaEvent_t event), cuEventDestroy(event))
STREAM_CALL(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), cuEventRecord(event, stream))
STREAM_CALL(cudaEventRecordWithFlags, (cudaEvent_t event, cudaStream_t stream, unsigned int flags),
            cuEventRecordWithFlags(event, stream, flags))
CONTEXT_CALL(cudaEventQuery, (cudaEvent_t event), cuEventQuery(event))
CONTEXT_CALL(cudaEventSynchronize, (cudaEvent_t event), cuEventSynchronize(event))
CONTEXT_CALL(cudaEventElapsedTime, (float *ms, cudaEvent_t start, cudaEvent_t end),
             cuEventElapsedTime(ms, start, end))

#if FAKE_CUDART_VERSION < 13000

/* The name that the header of CUDA 12.8 gives the function. */
cudaError_t cudaEventElapsedTime_v2(float *ms, cudaEvent_t start, cudaEvent_t end);

FORM(cudaEventElapsedTime_v2, (float *ms, cudaEvent_t start, cudaEvent_t end),
     cudaEventElapsedTime(ms, start, end))

#endif

/* Capture. */

DRIVER_CALL(cudaThreadExchangeStreamCaptureMode, (enum cudaStreamCaptureMode * mode),
            cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode))
STREAM_CALL(cudaStreamIsCapturing,
            (cudaStream_t stream, enum cudaStreamCaptureStatus *pCaptureStatus),
            cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)pCaptureStatus))
