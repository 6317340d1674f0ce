/*
 * A CUDA driver that does nothing and succeeds at once: every event is complete, no stream
 * captures.
 *
 * Has the functions that core may ask for (core/nccl/cuda.h), the few that a program needs to
 * begin, and what tests/bench/null_nccl.c launches with.
 */
#pragma GCC visibility push(default)
#pragma GCC diagnostic ignored "-Wunused-parameter"

#include <cuda.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

/* Handles are never looked into, only told apart. */
static char primary_context;

static _Thread_local CUcontext current;

static CUcontext the_context(void)
{
    return (CUcontext)&primary_context;
}

/* A function that answers with one assignment, or with none. */
#define ANSWER(name, parameters, assignment)                                                       \
    CUresult name parameters                                                                       \
    {                                                                                              \
        assignment;                                                                                \
        return CUDA_SUCCESS;                                                                       \
    }

ANSWER(cuInit, (unsigned int flags), )
ANSWER(cuDriverGetVersion, (int *version), *version = CUDA_VERSION)
ANSWER(cuDeviceGetCount, (int *count), *count = 1)
ANSWER(cuDeviceGet, (CUdevice * device, int ordinal), *device = ordinal)
ANSWER(cuCtxGetCurrent, (CUcontext * context), *context = current ? current : the_context())
ANSWER(cuCtxSetCurrent, (CUcontext context), current = context)
ANSWER(cuCtxPushCurrent, (CUcontext context), )
ANSWER(cuCtxGetDevice, (CUdevice * device), *device = 0)
ANSWER(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), *context = the_context())
ANSWER(cuDevicePrimaryCtxRelease, (CUdevice device), )
ANSWER(cuStreamGetCtx, (CUstream stream, CUcontext *context), *context = the_context())
ANSWER(cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus *status),
       *status = CU_STREAM_CAPTURE_STATUS_NONE)
ANSWER(cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode), )
ANSWER(cuEventDestroy, (CUevent event), )
ANSWER(cuEventRecord, (CUevent event, CUstream stream), )
ANSWER(cuEventQuery, (CUevent event), )
ANSWER(cuLaunchKernelEx,
       (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra), )

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device)
{
    snprintf(text, (size_t)length, "0000:%02x:00.0", (unsigned)device & 0xff);
    return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *context)
{
    if (context)
        *context = the_context();
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    static atomic_uintptr_t ordinal;
    *event = (CUevent)((atomic_fetch_add(&ordinal, 1) + 1) * 64);
    return CUDA_SUCCESS;
}

/* The header of CUDA 13 gives this name to the second version; drivers have both. */
#undef cuEventElapsedTime
ANSWER(cuEventElapsedTime, (float *ms, CUevent start, CUevent end), *ms = 0.001f)
ANSWER(cuEventElapsedTime_v2, (float *ms, CUevent start, CUevent end), *ms = 0.001f)

/* For what NCCL asks. */
CUresult cuGetProcAddress_v2(const char *name, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status)
{
    *function = !strcmp(name, "cuLaunchKernelEx") ? (void *)cuLaunchKernelEx
                : !strcmp(name, "cuEventRecord")  ? (void *)cuEventRecord
                                                  : NULL;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
