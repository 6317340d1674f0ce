/*
 * The stand-in runtime's link to the driver, its error state, and devices.
 *
 * Entered by any thread of the program. Finds the driver as the real runtime does: dlopen, dlsym
 * for cuGetProcAddress_v2, and everything else through that.
 */
#include "tests/fake/cuda/cudart_state.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

/*
 * The newest version for which every name in the table still has the form that cuda.h declares
 * under that name: from 13.0 on, cuCtxGetDevice and cuCtxSynchronize take a context.
 */
#define FORMS_OF_VERSION 12080

struct driver cudart_driver;

static pthread_once_t load_once = PTHREAD_ONCE_INIT;
static cudaError_t load_result;

/* Guards the contexts below; no driver call but retain and reset is made with it held. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    CUcontext ctx; /* once retained, the handle stays the same for ever */
    bool retained;
} primaries[64];
static _Atomic unsigned int resets; /* a thread whose count differs looks at its context again */

static __thread int thread_device;
static __thread cudaError_t last_error;
static __thread CUcontext bound;
static __thread unsigned int bound_resets;

static void load(void)
{
    CUdriverProcAddressQueryResult status;
    __typeof__(&cuGetProcAddress) ask;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int version = 0;

    load_result = cudaErrorInsufficientDriver;
    if (!library)
        return;
    ask = (__typeof__(ask))dlsym(library, "cuGetProcAddress_v2");
    if (!ask)
        return;
    if (ask("cuGetProcAddress", (void **)&cudart_driver.cuGetProcAddress, 12000,
            CU_GET_PROC_ADDRESS_DEFAULT, &status) != CUDA_SUCCESS ||
        !cudart_driver.cuGetProcAddress)
        return;
#define FIND(name)                                                                                 \
    if (cudart_driver.cuGetProcAddress(#name, (void **)&cudart_driver.name, FORMS_OF_VERSION,      \
                                       CU_GET_PROC_ADDRESS_DEFAULT, &status) != CUDA_SUCCESS ||    \
        !cudart_driver.name)                                                                       \
        return;
    DRIVER_FUNCTIONS(FIND)
#undef FIND
    /* Of this one the real runtime asks for the first form, in release 13 as well. */
    if (cudart_driver.cuGetProcAddress("cuDevicePrimaryCtxReset",
                                       (void **)&cudart_driver.cuDevicePrimaryCtxReset, 7000,
                                       CU_GET_PROC_ADDRESS_DEFAULT, &status) != CUDA_SUCCESS)
        return;
    if (cudart_driver.cuDriverGetVersion(&version) != CUDA_SUCCESS ||
        version / 1000 < FAKE_CUDART_VERSION / 1000)
        return;
    load_result = cudaSuccess;
}

cudaError_t cudart_ready(void)
{
    pthread_once(&load_once, load);
    return load_result != cudaSuccess ? load_result : (cudaError_t)cudart_driver.cuInit(0);
}

cudaError_t cudart_context(int device, CUcontext *ret_ctx)
{
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&mutex);
    if (!primaries[device].retained) {
        result = cudart_driver.cuDevicePrimaryCtxRetain(&primaries[device].ctx, device);
        primaries[device].retained = result == CUDA_SUCCESS;
    }
    if (result == CUDA_SUCCESS)
        *ret_ctx = primaries[device].ctx;
    pthread_mutex_unlock(&mutex);
    return (cudaError_t)result;
}

/*
 * The driver's current context counts, whoever set it; a thread without one gets the primary
 * context of its device.
 */
cudaError_t cudart_bind(void)
{
    unsigned int now = atomic_load_explicit(&resets, memory_order_acquire);
    CUcontext current = NULL, primary;
    cudaError_t result = cudart_ready();
    int device = thread_device;

    if (result == cudaSuccess)
        result = (cudaError_t)cudart_driver.cuCtxGetCurrent(&current);
    if (result != cudaSuccess)
        return result;
    if (current && current == bound && bound_resets == now)
        return cudaSuccess;
    if (current) {
        /* A primary context that was reset comes back with the next call. */
        bool dead = false;

        pthread_mutex_lock(&mutex);
        for (int i = 0; i < 64; i++)
            if (primaries[i].ctx == current && !primaries[i].retained) {
                dead = true;
                device = i;
            }
        pthread_mutex_unlock(&mutex);
        if (dead)
            result = cudart_context(device, &primary);
    } else {
        result = cudart_context(device, &primary);
        if (result == cudaSuccess)
            result = (cudaError_t)cudart_driver.cuCtxSetCurrent(primary);
        current = primary;
    }
    if (result == cudaSuccess) {
        bound = current;
        bound_resets = now;
    }
    return result;
}

/* Errors. */

cudaError_t cudart_done(cudaError_t result)
{
    if (result != cudaSuccess)
        last_error = result;
    return result;
}

/* After these the context is lost: the error stays. */
static bool is_sticky(cudaError_t error)
{
    return error == cudaErrorIllegalAddress || error == cudaErrorLaunchTimeout ||
           error == cudaErrorAssert || error == cudaErrorLaunchFailure ||
           error == cudaErrorMisalignedAddress || error == cudaErrorECCUncorrectable;
}

cudaError_t CUDARTAPI cudaGetLastError(void)
{
    cudaError_t error = last_error;

    if (!is_sticky(error))
        last_error = cudaSuccess;
    return error;
}

cudaError_t CUDARTAPI cudaPeekAtLastError(void)
{
    return last_error;
}

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
#define RUNTIME_ERROR(error, text)    {error, #error, text},
#define ERROR(of_driver, error, text) RUNTIME_ERROR(error, text)
#include "tests/fake/cuda/errors.def"
#undef ERROR
#undef RUNTIME_ERROR
};

#define DEFINE_ERROR_GETTER(name, field)                                                           \
    const char *CUDARTAPI name(cudaError_t error)                                                  \
    {                                                                                              \
        for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)                              \
            if (errors[i].error == error)                                                          \
                return errors[i].field;                                                            \
        return "unrecognized error code";                                                          \
    }

DEFINE_ERROR_GETTER(cudaGetErrorName, name)
DEFINE_ERROR_GETTER(cudaGetErrorString, text)

/* Versions and entry points. */

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int *runtimeVersion)
{
    INVALID_IF(!runtimeVersion);
    *runtimeVersion = FAKE_CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDriverGetVersion(int *driverVersion)
{
    INVALID_IF(!driverVersion);
    pthread_once(&load_once, load);
    if (!cudart_driver.cuDriverGetVersion) {
        *driverVersion = 0; /* no driver is not an error here */
        return cudaSuccess;
    }
    return cudart_done((cudaError_t)cudart_driver.cuDriverGetVersion(driverVersion));
}

static cudaError_t entry_point(const char *symbol, void **funcPtr, unsigned int version,
                               unsigned long long flags,
                               enum cudaDriverEntryPointQueryResult *driverStatus)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;

    TRY(cudart_ready());
    INVALID_IF(!funcPtr);
    TRY(cudart_driver.cuGetProcAddress(symbol, funcPtr, (int)version, flags, &status));
    if (driverStatus)
        *driverStatus = (enum cudaDriverEntryPointQueryResult)status;
    else if (status != CU_GET_PROC_ADDRESS_SUCCESS)
        return cudart_done(cudaErrorSymbolNotFound);
    return cudaSuccess;
}

#define ENTRY_POINT_FORMS(name, parameters, version)                                               \
    FORM(name, parameters, entry_point(symbol, funcPtr, version, flags, driverStatus))             \
    FORM(name##_ptsz, parameters,                                                                  \
         entry_point(symbol, funcPtr, version, flags ? flags : cudaEnablePerThreadDefaultStream,   \
                     driverStatus))

ENTRY_POINT_FORMS(cudaGetDriverEntryPoint,
                  (const char *symbol, void **funcPtr, unsigned long long flags,
                   enum cudaDriverEntryPointQueryResult *driverStatus),
                  FAKE_CUDART_VERSION)
ENTRY_POINT_FORMS(cudaGetDriverEntryPointByVersion,
                  (const char *symbol, void **funcPtr, unsigned int cudaVersion,
                   unsigned long long flags, enum cudaDriverEntryPointQueryResult *driverStatus),
                  cudaVersion)

/* Devices. */

cudaError_t CUDARTAPI cudaGetDeviceCount(int *count)
{
    INVALID_IF(!count);
    *count = 0;
    CUDART_CALL(cudart_ready, cuDeviceGetCount(count));
}

static cudaError_t device_check(int device)
{
    int count = 0;

    TRY(cudart_ready());
    TRY(cudart_driver.cuDeviceGetCount(&count));
    return device >= 0 && device < count ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t CUDARTAPI cudaSetDevice(int device)
{
    CUcontext primary;

    TRY(device_check(device));
    TRY(cudart_context(device, &primary));
    TRY(cudart_driver.cuCtxSetCurrent(primary));
    thread_device = device;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags)
{
    CUcontext primary;

    TRY(device_check(device));
    INVALID_IF(flags & ~(unsigned int)cudaInitDeviceFlagsAreValid);
    if (flags & cudaInitDeviceFlagsAreValid)
        TRY(cudart_driver.cuDevicePrimaryCtxSetFlags(device, deviceFlags));
    return cudart_done(cudart_context(device, &primary));
}

cudaError_t CUDARTAPI cudaGetDevice(int *device)
{
    CUcontext current = NULL;

    INVALID_IF(!device);
    TRY(cudart_ready());
    TRY(cudart_driver.cuCtxGetCurrent(&current));
    if (current)
        return cudart_done((cudaError_t)cudart_driver.cuCtxGetDevice(device));
    *device = thread_device;
    return cudaSuccess;
}

FORM(cudaSetValidDevices, (int *device_arr, int len),
     cudart_done(len ? cudaErrorNotSupported : cudaSuccess))

cudaError_t CUDARTAPI cudaSetDeviceFlags(unsigned int flags)
{
    int device;

    TRY(cudaGetDevice(&device));
    return cudart_done((cudaError_t)cudart_driver.cuDevicePrimaryCtxSetFlags(device, flags));
}

cudaError_t CUDARTAPI cudaGetDeviceFlags(unsigned int *flags)
{
    int device, active;

    TRY(cudaGetDevice(&device));
    INVALID_IF(!flags);
    return cudart_done(
        (cudaError_t)cudart_driver.cuDevicePrimaryCtxGetState(device, flags, &active));
}

CONTEXT_CALL(cudaDeviceSynchronize, (void), cuCtxSynchronize())

cudaError_t CUDARTAPI cudaDeviceReset(void)
{
    cudaError_t result;
    int device;

    TRY(cudaGetDevice(&device));
    pthread_mutex_lock(&mutex);
    result = (cudaError_t)cudart_driver.cuDevicePrimaryCtxReset(device);
    primaries[device].retained = false;
    atomic_fetch_add_explicit(&resets, 1, memory_order_release);
    pthread_mutex_unlock(&mutex);
    TRY(result);
    last_error = cudaSuccess;
    return cudaSuccess;
}

/* The runtime's numbers are the driver's. */
DRIVER_CALL(cudaDeviceGetAttribute, (int *value, enum cudaDeviceAttr attr, int device),
            cuDeviceGetAttribute(value, (CUdevice_attribute)attr, device))
DRIVER_CALL(cudaDeviceGetPCIBusId, (char *pciBusId, int len, int device),
            cuDeviceGetPCIBusId(pciBusId, len, device))
DRIVER_CALL(cudaDeviceGetByPCIBusId, (int *device, const char *pciBusId),
            cuDeviceGetByPCIBusId(device, pciBusId))
DRIVER_CALL(cudaDeviceCanAccessPeer, (int *canAccessPeer, int device, int peerDevice),
            cuDeviceCanAccessPeer(canAccessPeer, device, peerDevice))

static cudaError_t peer_context(int peerDevice, CUcontext *ret_peer)
{
    TRY(cudart_bind());
    TRY(device_check(peerDevice));
    return cudart_context(peerDevice, ret_peer);
}

cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags)
{
    CUcontext peer;
    cudaError_t result = peer_context(peerDevice, &peer);

    if (result == cudaSuccess)
        result = (cudaError_t)cudart_driver.cuCtxEnablePeerAccess(peer, flags);
    if (result == cudaErrorDeviceUninitialized)
        result = cudaErrorInvalidDevice; /* the device itself */
    return cudart_done(result);
}

cudaError_t CUDARTAPI cudaDeviceDisablePeerAccess(int peerDevice)
{
    CUcontext peer;

    TRY(peer_context(peerDevice, &peer));
    return cudart_done((cudaError_t)cudart_driver.cuCtxDisablePeerAccess(peer));
}

CONTEXT_CALL(cudaDeviceGetStreamPriorityRange, (int *leastPriority, int *greatestPriority),
             cuCtxGetStreamPriorityRange(leastPriority, greatestPriority))

/* Fields that both layouts of cudaDeviceProp have, and the attributes that say what they hold. */
#define PROPERTIES(P)                                                                              \
    P(sharedMemPerBlock, MaxSharedMemoryPerBlock)                                                  \
    P(regsPerBlock, MaxRegistersPerBlock)                                                          \
    P(warpSize, WarpSize)                                                                          \
    P(memPitch, MaxPitch)                                                                          \
    P(maxThreadsPerBlock, MaxThreadsPerBlock)                                                      \
    P(maxThreadsDim[0], MaxBlockDimX)                                                              \
    P(maxThreadsDim[1], MaxBlockDimY)                                                              \
    P(maxThreadsDim[2], MaxBlockDimZ)                                                              \
    P(maxGridSize[0], MaxGridDimX)                                                                 \
    P(maxGridSize[1], MaxGridDimY)                                                                 \
    P(maxGridSize[2], MaxGridDimZ)                                                                 \
    P(totalConstMem, TotalConstantMemory)                                                          \
    P(major, ComputeCapabilityMajor)                                                               \
    P(minor, ComputeCapabilityMinor)                                                               \
    P(textureAlignment, TextureAlignment)                                                          \
    P(texturePitchAlignment, TexturePitchAlignment)                                                \
    P(multiProcessorCount, MultiProcessorCount)                                                    \
    P(canMapHostMemory, CanMapHostMemory)                                                          \
    P(surfaceAlignment, SurfaceAlignment)                                                          \
    P(concurrentKernels, ConcurrentKernels)                                                        \
    P(ECCEnabled, EccEnabled)                                                                      \
    P(pciBusID, PciBusId)                                                                          \
    P(asyncEngineCount, AsyncEngineCount)                                                          \
    P(unifiedAddressing, UnifiedAddressing)                                                        \
    P(memoryBusWidth, GlobalMemoryBusWidth)                                                        \
    P(l2CacheSize, L2CacheSize)                                                                    \
    P(persistingL2CacheMaxSize, MaxPersistingL2CacheSize)                                          \
    P(maxThreadsPerMultiProcessor, MaxThreadsPerMultiProcessor)                                    \
    P(streamPrioritiesSupported, StreamPrioritiesSupported)                                        \
    P(globalL1CacheSupported, GlobalL1CacheSupported)                                              \
    P(localL1CacheSupported, LocalL1CacheSupported)                                                \
    P(sharedMemPerMultiprocessor, MaxSharedMemoryPerMultiprocessor)                                \
    P(regsPerMultiprocessor, MaxRegistersPerMultiprocessor)                                        \
    P(managedMemory, ManagedMemory)                                                                \
    P(concurrentManagedAccess, ConcurrentManagedAccess)                                            \
    P(computePreemptionSupported, ComputePreemptionSupported)                                      \
    P(canUseHostPointerForRegisteredMem, CanUseHostPointerForRegisteredMem)                        \
    P(cooperativeLaunch, CooperativeLaunch)                                                        \
    P(sharedMemPerBlockOptin, MaxSharedMemoryPerBlockOptin)                                        \
    P(maxBlocksPerMultiProcessor, MaxBlocksPerMultiprocessor)                                      \
    P(accessPolicyMaxWindowSize, MaxAccessPolicyWindowSize)                                        \
    P(reservedSharedMemPerBlock, ReservedSharedMemoryPerBlock)                                     \
    P(hostRegisterSupported, HostRegisterSupported)                                                \
    P(memoryPoolsSupported, MemoryPoolsSupported)                                                  \
    P(clusterLaunch, ClusterLaunch)

static int attribute(int device, enum cudaDeviceAttr attr)
{
    int value = 0;

    (void)cudart_driver.cuDeviceGetAttribute(&value, (CUdevice_attribute)attr, device);
    return value;
}

#if FAKE_CUDART_VERSION >= 13000

cudaError_t CUDARTAPI cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)

#else

#include "tests/fake/cuda/cudart_12.h"

cudaError_t cudaGetDeviceProperties_v2(struct cudart_12_device_prop *prop, int device)

#endif
{
    TRY(device_check(device));
    INVALID_IF(!prop);
    memset(prop, 0, sizeof(*prop));
    (void)cudart_driver.cuDeviceGetName(prop->name, sizeof(prop->name), device);
    (void)cudart_driver.cuDeviceGetUuid((CUuuid *)&prop->uuid, device);
    (void)cudart_driver.cuDeviceTotalMem(&prop->totalGlobalMem, device);
#define FILL(field, name) prop->field = attribute(device, cudaDevAttr##name);
    PROPERTIES(FILL)
#if FAKE_CUDART_VERSION < 13000
    FILL(clockRate, ClockRate)
    FILL(memoryClockRate, MemoryClockRate)
    FILL(deviceOverlap, GpuOverlap)
    FILL(singleToDoublePrecisionPerfRatio, SingleToDoublePrecisionPerfRatio)
#endif
#undef FILL
    prop->unifiedFunctionPointers = 1;
    return cudaSuccess;
}
