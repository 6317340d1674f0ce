/* CUDA for the test programs, over the driver API. */
#include "tests/programs/device.h"

#include <cuda.h>
#include <pthread.h>
#include <stdint.h>

static void check(CUresult result, const char *file, int line, const char *call)
{
    if (result == CUDA_SUCCESS)
        return;
    const char *text = NULL;
    if (cuGetErrorString(result, &text) != CUDA_SUCCESS || !text)
        text = "unknown error";
    fail(file, line, call, text);
}

#define CHECK(call) check((call), __FILE__, __LINE__, #call)

static void initialise(void)
{
    CHECK(cuInit(0));
}

int device_count(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, initialise);
    int count;
    CHECK(cuDeviceGetCount(&count));
    return count;
}

void device_use(int device)
{
    CUdevice handle;
    CUcontext context;
    CHECK(cuDeviceGet(&handle, device_shared(device, device_count())));
    CHECK(cuDevicePrimaryCtxRetain(&context, handle));
    CHECK(cuCtxSetCurrent(context));
}

/* A function that makes one call. */
#define CALLS(name, parameters, call)                                                              \
    void name parameters                                                                           \
    {                                                                                              \
        CHECK(call);                                                                               \
    }

static CUdeviceptr address_of(const void *memory)
{
    return (CUdeviceptr)(uintptr_t)memory;
}

void *device_alloc(size_t size)
{
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, size));
    return (void *)(uintptr_t)memory;
}

void *device_host_alloc(size_t size)
{
    void *memory;
    CHECK(cuMemAllocHost(&memory, size));
    return memory;
}

cudaStream_t device_stream_create(void)
{
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

CALLS(device_free, (void *memory), cuMemFree(address_of(memory)))
CALLS(device_host_free, (void *memory), cuMemFreeHost(memory))
CALLS(device_stream_sync, (cudaStream_t stream), cuStreamSynchronize(stream))
CALLS(device_stream_destroy, (cudaStream_t stream), cuStreamDestroy(stream))
CALLS(device_copy_in, (void *device, const void *host, size_t size, cudaStream_t stream),
      cuMemcpyHtoDAsync(address_of(device), host, size, stream))
CALLS(device_copy_out, (void *host, const void *device, size_t size, cudaStream_t stream),
      cuMemcpyDtoHAsync(host, address_of(device), size, stream))
CALLS(device_host_function, (cudaStream_t stream, void (*function)(void *), void *argument),
      cuLaunchHostFunc(stream, function, argument))
