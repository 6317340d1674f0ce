/*
 * The guard's kernel that scans for NaN, on the driver at hand: for benchmarks that need a kernel
 * whose length they choose.
 *
 * The driver is loaded by its name, so that a program runs with the machine's, or with the stand-in
 * (whose figures say nothing). Whatever fails ends the program with a line on stderr. One thread.
 */
#ifndef NCCLGUARD_TESTS_BENCH_KERNEL_H
#define NCCLGUARD_TESTS_BENCH_KERNEL_H

#include <cuda.h>
#include <stddef.h>

#include "core/check/nan_kernel.h"

/* What the programs call, by the names that the driver exports. */
#define BENCH_FUNCTIONS(F)                                                                         \
    F(cuInit, (unsigned int))                                                                      \
    F(cuDeviceGet, (CUdevice *, int))                                                              \
    F(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                                 \
    F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                           \
    F(cuCtxSetCurrent, (CUcontext))                                                                \
    F(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                      \
    F(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                             \
    F(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                          \
    F(cuMemHostAlloc, (void **, size_t, unsigned int))                                             \
    F(cuMemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned int))                         \
    F(cuModuleLoadData, (CUmodule *, const void *))                                                \
    F(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                 \
    F(cuLaunchKernel, (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,         \
                       unsigned int, unsigned int, unsigned int, CUstream, void **, void **))      \
    F(cuStreamCreate, (CUstream *, unsigned int))                                                  \
    F(cuStreamSynchronize, (CUstream))                                                             \
    F(cuStreamWaitEvent, (CUstream, CUevent, unsigned int))                                        \
    F(cuEventCreate, (CUevent *, unsigned int))                                                    \
    F(cuEventRecord, (CUevent, CUstream))                                                          \
    F(cuEventRecordWithFlags, (CUevent, CUstream, unsigned int))                                   \
    F(cuStreamBeginCapture_v2, (CUstream, CUstreamCaptureMode))                                    \
    F(cuStreamEndCapture, (CUstream, CUgraph *))                                                   \
    F(cuStreamGetCaptureInfo_v2, (CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *,      \
                                  const CUgraphNode **, size_t *))                                 \
    F(cuStreamUpdateCaptureDependencies, (CUstream, CUgraphNode *, size_t, unsigned int))          \
    F(cuGraphGetNodes, (CUgraph, CUgraphNode *, size_t *))                                         \
    F(cuGraphGetEdges, (CUgraph, CUgraphNode *, CUgraphNode *, size_t *))                          \
    F(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))                   \
    F(cuGraphLaunch, (CUgraphExec, CUstream))

#define BENCH_DECLARE(name, prototype) extern CUresult(*real_##name) prototype;
BENCH_FUNCTIONS(BENCH_DECLARE)
#undef BENCH_DECLARE

void bench_check(CUresult result, const char *what);
#define CUDA(name, ...) bench_check(real_##name(__VA_ARGS__), #name)

/* How the kernel is started. */
struct bench_kernel {
    CUfunction function;
    unsigned blocks;
    struct ng_nan_scan scan;      /* its argument: `bytes` of bfloat16, none of which is NaN */
    struct ng_nan_answer *answer; /* the host's view of scan.answer */
};

/* Device 0, its primary context. `program` is named in messages. */
void bench_begin(const char *program);

/* A buffer that `stream` fills, and the kernel of the file of PTX for it: `blocks` of a processor,
 * or 1 in all for 0. */
struct bench_kernel bench_kernel_load(const char *ptx_path, size_t bytes, unsigned blocks,
                                      CUstream stream);

void bench_kernel_launch(struct bench_kernel *kernel, CUstream stream);

#endif
