/* CUDA for the test programs, over the runtime API. */
#include "tests/programs/device.h"

#include <cuda_runtime_api.h>

#define CHECK(call)                                                                                \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess)                                                                 \
            fail(__FILE__, __LINE__, #call, cudaGetErrorString(error_));                           \
    } while (0)

int device_count(void)
{
    int count;
    CHECK(cudaGetDeviceCount(&count));
    return count;
}

void device_use(int device)
{
    CHECK(cudaSetDevice(device_shared(device, device_count())));
}

void *device_alloc(size_t size)
{
    void *memory;
    CHECK(cudaMalloc(&memory, size));
    return memory;
}

void device_free(void *memory)
{
    CHECK(cudaFree(memory));
}

void *device_host_alloc(size_t size)
{
    void *memory;
    CHECK(cudaMallocHost(&memory, size));
    return memory;
}

void device_host_free(void *memory)
{
    CHECK(cudaFreeHost(memory));
}

cudaStream_t device_stream_create(void)
{
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

void device_stream_sync(cudaStream_t stream)
{
    CHECK(cudaStreamSynchronize(stream));
}

void device_stream_destroy(cudaStream_t stream)
{
    CHECK(cudaStreamDestroy(stream));
}

void device_copy_in(void *device, const void *host, size_t size, cudaStream_t stream)
{
    CHECK(cudaMemcpyAsync(device, host, size, cudaMemcpyHostToDevice, stream));
}

void device_copy_out(void *host, const void *device, size_t size, cudaStream_t stream)
{
    CHECK(cudaMemcpyAsync(host, device, size, cudaMemcpyDeviceToHost, stream));
}

void device_host_function(cudaStream_t stream, void (*function)(void *), void *argument)
{
    CHECK(cudaLaunchHostFunc(stream, function, argument));
}
