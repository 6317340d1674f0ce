/* CUDA for the test programs, over the runtime API. */
#include "tests/programs/common.h"

#include <cuda_runtime_api.h>

int device_count(void)
{
    int count;
    CUDA(cudaGetDeviceCount(&count));
    return count;
}

/* A function that makes one call, and one that returns what its call makes. */
#define CALLS(name, parameters, call)                                                              \
    void name parameters                                                                           \
    {                                                                                              \
        CUDA(call);                                                                                \
    }
#define MAKES(type, name, parameters, call)                                                        \
    type name parameters                                                                           \
    {                                                                                              \
        type made;                                                                                 \
        CUDA(call);                                                                                \
        return made;                                                                               \
    }

CALLS(device_use, (int device), cudaSetDevice(device_shared(device, device_count())))
MAKES(void *, device_alloc, (size_t size), cudaMalloc(&made, size))
CALLS(device_free, (void *memory), cudaFree(memory))
MAKES(void *, device_host_alloc, (size_t size), cudaMallocHost(&made, size))
CALLS(device_host_free, (void *memory), cudaFreeHost(memory))
MAKES(cudaStream_t, device_stream_create, (void),
      cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking))
CALLS(device_stream_sync, (cudaStream_t stream), cudaStreamSynchronize(stream))
CALLS(device_stream_destroy, (cudaStream_t stream), cudaStreamDestroy(stream))
CALLS(device_copy_in, (void *device, const void *host, size_t size, cudaStream_t stream),
      cudaMemcpyAsync(device, host, size, cudaMemcpyHostToDevice, stream))
CALLS(device_copy_out, (void *host, const void *device, size_t size, cudaStream_t stream),
      cudaMemcpyAsync(host, device, size, cudaMemcpyDeviceToHost, stream))
CALLS(device_host_function, (cudaStream_t stream, void (*function)(void *), void *argument),
      cudaLaunchHostFunc(stream, function, argument))
