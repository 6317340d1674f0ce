/*
 * The CUDA driver functions that core uses: a table that the shim fills, since core never looks up
 * symbols.
 *
 * Types are the driver's own. A function that the driver lacks is NULL; `loaded` says whether there
 * is a driver at all.
 */
#ifndef NCCLGUARD_CORE_NCCL_CUDA_H
#define NCCLGUARD_CORE_NCCL_CUDA_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

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

/* Functions that older drivers lack, and that core can do without. Available since: cuCtxGetId
 * 12.0, graph functions 11.3, cuFuncLoad 12.4. */
#define NG_CUDA_OPTIONAL_FUNCTIONS(NG_CUDA)                                                        \
    NG_CUDA(ctx_get_id, "cuCtxGetId", (CUcontext, unsigned long long *))                           \
    NG_CUDA(stream_create, "cuStreamCreate", (CUstream *, unsigned int))                           \
    NG_CUDA(memcpy_dtoh_async, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream))    \
    NG_CUDA(memcpy_2d_async, "cuMemcpy2DAsync_v2", (const CUDA_MEMCPY2D *, CUstream))              \
    NG_CUDA(stream_get_flags, "cuStreamGetFlags", (CUstream, unsigned int *))                      \
    NG_CUDA(ctx_synchronize, "cuCtxSynchronize", (void))                                           \
    NG_CUDA(mem_get_properties, "cuMemGetAllocationPropertiesFromHandle",                          \
            (CUmemAllocationProp *, CUmemGenericAllocationHandle))                                 \
    NG_CUDA(device_get_pci_bus_id, "cuDeviceGetPCIBusId", (char *, int, CUdevice))                 \
    NG_CUDA(stream_get_capture_info, "cuStreamGetCaptureInfo_v2",                                  \
            (CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **,     \
             size_t *))                                                                            \
    NG_CUDA(event_record_with_flags, "cuEventRecordWithFlags", (CUevent, CUstream, unsigned int))  \
    NG_CUDA(user_object_create, "cuUserObjectCreate",                                              \
            (CUuserObject *, void *, CUhostFn, unsigned int, unsigned int))                        \
    NG_CUDA(user_object_release, "cuUserObjectRelease", (CUuserObject, unsigned int))              \
    NG_CUDA(graph_retain_user_object, "cuGraphRetainUserObject",                                   \
            (CUgraph, CUuserObject, unsigned int, unsigned int))                                   \
    NG_CUDA(graph_get_nodes, "cuGraphGetNodes", (CUgraph, CUgraphNode *, size_t *))                \
    NG_CUDA(graph_node_get_type, "cuGraphNodeGetType", (CUgraphNode, CUgraphNodeType *))           \
    NG_CUDA(graph_event_node_get_event, "cuGraphEventRecordNodeGetEvent",                          \
            (CUgraphNode, CUevent *))                                                              \
    NG_CUDA(graph_child_node_get_graph, "cuGraphChildGraphNodeGetGraph", (CUgraphNode, CUgraph *)) \
    NG_CUDA(stream_wait_value32, "cuStreamWaitValue32_v2",                                         \
            (CUstream, CUdeviceptr, uint32_t, unsigned int))                                       \
    NG_CUDA(mem_host_alloc, "cuMemHostAlloc", (void **, size_t, unsigned int))                     \
    NG_CUDA(mem_host_get_device_pointer, "cuMemHostGetDevicePointer_v2",                           \
            (CUdeviceptr *, void *, unsigned int))                                                 \
    NG_CUDA(launch_host_func, "cuLaunchHostFunc", (CUstream, CUhostFn, void *))                    \
    NG_CUDA(memset_d8_async, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))    \
    NG_CUDA(device_get_attribute, "cuDeviceGetAttribute", (int *, CUdevice_attribute, CUdevice))   \
    NG_CUDA(mem_get_address_range, "cuMemGetAddressRange_v2",                                      \
            (CUdeviceptr *, size_t *, CUdeviceptr))                                                \
    NG_CUDA(pointer_get_attribute, "cuPointerGetAttribute",                                        \
            (void *, CUpointer_attribute, CUdeviceptr))                                            \
    NG_CUDA(mem_host_register, "cuMemHostRegister_v2", (void *, size_t, unsigned int))             \
    NG_CUDA(module_load_data, "cuModuleLoadData", (CUmodule *, const void *))                      \
    NG_CUDA(module_get_function, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *))    \
    NG_CUDA(function_load, "cuFuncLoad", (CUfunction))                                             \
    NG_CUDA(launch_kernel, "cuLaunchKernel",                                                       \
            (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int,     \
             unsigned int, unsigned int, CUstream, void **, void **))

struct ng_cuda {
    bool loaded; /* libcuda.so.1 is in this process and has all of NG_CUDA_FUNCTIONS */
#define NG_CUDA_FIELD(field, name, prototype) CUresult(CUDAAPI *field) prototype;
    NG_CUDA_FUNCTIONS(NG_CUDA_FIELD)
    NG_CUDA_OPTIONAL_FUNCTIONS(NG_CUDA_FIELD)
#undef NG_CUDA_FIELD
};

#endif
