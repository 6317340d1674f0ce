/*
 * What core may ask of the CUDA driver: a table that the shim fills, since core never looks up
 * symbols.
 *
 * Types are the driver's own. A function that the driver lacks is NULL; `loaded` tells whether
 * there is a driver at all.
 */
#ifndef NCCLGUARD_CORE_CUDA_H
#define NCCLGUARD_CORE_CUDA_H

#include <cuda.h>
#include <stdbool.h>

/* NG_CUDA(field, exported name, prototype) */
#define NG_CUDA_FUNCTIONS(NG_CUDA)                                                                 \
    NG_CUDA(ctx_get_current, "cuCtxGetCurrent", (CUcontext *))                                     \
    NG_CUDA(ctx_set_current, "cuCtxSetCurrent", (CUcontext))                                       \
    NG_CUDA(ctx_push, "cuCtxPushCurrent_v2", (CUcontext))                                          \
    NG_CUDA(ctx_pop, "cuCtxPopCurrent_v2", (CUcontext *))                                          \
    NG_CUDA(ctx_get_device, "cuCtxGetDevice", (CUdevice *))                                        \
    NG_CUDA(primary_ctx_retain, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))               \
    NG_CUDA(primary_ctx_release, "cuDevicePrimaryCtxRelease_v2", (CUdevice))                       \
    NG_CUDA(stream_get_ctx, "cuStreamGetCtx", (CUstream, CUcontext *))                             \
    NG_CUDA(stream_is_capturing, "cuStreamIsCapturing", (CUstream, CUstreamCaptureStatus *))       \
    NG_CUDA(thread_exchange_capture_mode, "cuThreadExchangeStreamCaptureMode",                     \
            (CUstreamCaptureMode *))                                                               \
    NG_CUDA(event_create, "cuEventCreate", (CUevent *, unsigned int))                              \
    NG_CUDA(event_destroy, "cuEventDestroy_v2", (CUevent))                                         \
    NG_CUDA(event_record, "cuEventRecord", (CUevent, CUstream))                                    \
    NG_CUDA(event_query, "cuEventQuery", (CUevent))                                                \
    NG_CUDA(event_elapsed, "cuEventElapsedTime", (float *, CUevent, CUevent))

/* Those that older drivers lack, and that core does without; since: cuCtxGetId 12.0. */
#define NG_CUDA_OPTIONAL_FUNCTIONS(NG_CUDA)                                                        \
    NG_CUDA(ctx_get_id, "cuCtxGetId", (CUcontext, unsigned long long *))                           \
    NG_CUDA(stream_get_flags, "cuStreamGetFlags", (CUstream, unsigned int *))                      \
    NG_CUDA(device_get_pci_bus_id, "cuDeviceGetPCIBusId", (char *, int, CUdevice))

struct ng_cuda {
    bool loaded; /* libcuda.so.1 is in this process and has all of NG_CUDA_FUNCTIONS */
#define NG_CUDA_FIELD(field, name, prototype) CUresult(CUDAAPI *field) prototype;
    NG_CUDA_FUNCTIONS(NG_CUDA_FIELD)
    NG_CUDA_OPTIONAL_FUNCTIONS(NG_CUDA_FIELD)
#undef NG_CUDA_FIELD
};

#endif
