/*
 * A CUDA driver that does nothing and succeeds at once: every event is complete, no stream
 * captures.
 *
 * Has the functions that core may ask for (core/nccl/cuda.h) and the few that a program needs to
 * begin.
 */
#pragma GCC visibility push(default)
#pragma GCC diagnostic ignored "-Wunused-parameter"

#include <cuda.h>

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>

/* Handles are never looked into, only told apart. */
static char primary_context;

static _Thread_local CUcontext current;

static CUcontext the_context(void)
{
    return (CUcontext)&primary_context;
}

CUresult cuInit(unsigned int flags)
{
    return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count)
{
    *count = 1;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    snprintf(text, (size_t)length, "0000:%02x:00.0", (unsigned)device & 0xff);
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    *context = current ? current : the_context();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext context)
{
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    if (context)
        *context = the_context();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    *device = 0;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = the_context();
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    *context = the_context();
    return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    static atomic_uintptr_t ordinal;
    *event = (CUevent)((atomic_fetch_add(&ordinal, 1) + 1) * 64);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent event)
{
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event)
{
    return CUDA_SUCCESS;
}

/* The header of CUDA 13 gives this name to the second version; drivers have both. */
#undef cuEventElapsedTime

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    *ms = 0.001f;
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    *ms = 0.001f;
    return CUDA_SUCCESS;
}
