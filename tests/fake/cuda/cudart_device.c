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
#define ERROR(error, text) {error, #error, text},
#include "tests/fake/cuda/cudart_errors.def"
#undef ERROR
};

const char *CUDARTAPI cudaGetErrorName(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
        if (errors[i].error == error)
            return errors[i].name;
    return "unrecognized error code";
}

const char *CUDARTAPI cudaGetErrorString(cudaError_t error)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i++)
        if (errors[i].error == error)
            return errors[i].text;
    return "unrecognized error code";
}

/* Versions and entry points. */

cudaError_t CUDARTAPI cudaRuntimeGetVersion(int *runtimeVersion)
{
    if (!runtimeVersion)
        return cudart_done(cudaErrorInvalidValue);
    *runtimeVersion = FAKE_CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t CUDARTAPI cudaDriverGetVersion(int *driverVersion)
{
    if (!driverVersion)
        return cudart_done(cudaErrorInvalidValue);
    pthread_once(&load_once, load);
    if (!cudart_driver.cuDriverGetVersion) {
        *driverVersion = 0; /* no driver is not an error here */
        return cudaSuccess;
    }
    return cudart_done((cudaError_t)cudart_driver.cuDriverGetVersion(driverVersion));
}

static cudaError_t entry_point(const char *symbol, void **funcPtr, int version,
                               unsigned long long flags,
                               enum cudaDriverEntryPointQueryResult *driverStatus)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    cudaError_t result = cudart_ready();

    if (result == cudaSuccess && !funcPtr)
        result = cudaErrorInvalidValue;
    if (result == cudaSuccess)
        result =
            (cudaError_t)cudart_driver.cuGetProcAddress(symbol, funcPtr, version, flags, &status);
    if (result == cudaSuccess && driverStatus)
        *driverStatus = (enum cudaDriverEntryPointQueryResult)status;
    else if (result == cudaSuccess && status != CU_GET_PROC_ADDRESS_SUCCESS)
        result = cudaErrorSymbolNotFound;
    return cudart_done(result);
}

cudaError_t CUDARTAPI cudaGetDriverEntryPoint(const char *symbol, void **funcPtr,
                                              unsigned long long flags,
                                              enum cudaDriverEntryPointQueryResult *driverStatus)
{
    return entry_point(symbol, funcPtr, FAKE_CUDART_VERSION, flags, driverStatus);
}

cudaError_t CUDARTAPI
cudaGetDriverEntryPoint_ptsz(const char *symbol, void **funcPtr, unsigned long long flags,
                             enum cudaDriverEntryPointQueryResult *driverStatus)
{
    return entry_point(symbol, funcPtr, FAKE_CUDART_VERSION,
                       flags ? flags : cudaEnablePerThreadDefaultStream, driverStatus);
}

cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion(
    const char *symbol, void **funcPtr, unsigned int cudaVersion, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *driverStatus)
{
    return entry_point(symbol, funcPtr, (int)cudaVersion, flags, driverStatus);
}

cudaError_t CUDARTAPI cudaGetDriverEntryPointByVersion_ptsz(
    const char *symbol, void **funcPtr, unsigned int cudaVersion, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *driverStatus)
{
    return entry_point(symbol, funcPtr, (int)cudaVersion,
                       flags ? flags : cudaEnablePerThreadDefaultStream, driverStatus);
}

/* Devices. */

cudaError_t CUDARTAPI cudaGetDeviceCount(int *count)
{
    cudaError_t result;

    if (!count)
        return cudart_done(cudaErrorInvalidValue);
    *count = 0;
    result = cudart_ready();
    if (result == cudaSuccess)
        result = (cudaError_t)cudart_driver.cuDeviceGetCount(count);
    return cudart_done(result);
}

static cudaError_t device_check(int device)
{
    cudaError_t result = cudart_ready();
    int count = 0;

    if (result == cudaSuccess)
        result = (cudaError_t)cudart_driver.cuDeviceGetCount(&count);
    if (result != cudaSuccess)
        return result;
    return device >= 0 && device < count ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t CUDARTAPI cudaSetDevice(int device)
{
    CUcontext primary;
    cudaError_t result = device_check(device);

    if (result == cudaSuccess)
        result = cudart_context(device, &primary);
    if (result == cudaSuccess)
        result = (cudaError_t)cudart_driver.cuCtxSetCurrent(primary);
    if (result == cudaSuccess)
        thread_device = device;
    return cudart_done(result);
}

cudaError_t CUDARTAPI cudaInitDevice(int device, unsigned int deviceFlags, unsigned int flags)
{
    CUcontext primary;
    cudaError_t result = device_check(device);

    if (result == cudaSuccess && (flags & ~(unsigned int)cudaInitDeviceFlagsAreValid))
        result = cudaErrorInvalidValue;
    if (result == cudaSuccess && (flags & cudaInitDeviceFlagsAreValid))
        result = (cudaError_t)cudart_driver.cuDevicePrimaryCtxSetFlags(device, deviceFlags);
    if (result == cudaSuccess)
        result = cudart_context(device, &primary);
    return cudart_done(result);
}

cudaError_t CUDARTAPI cudaGetDevice(int *device)
{
    CUcontext current = NULL;
    cudaError_t result = cudart_ready();

    if (!device)
        return cudart_done(cudaErrorInvalidValue);
    if (result == cudaSuccess)
        result = (cudaError_t)cudart_driver.cuCtxGetCurrent(&current);
    if (result == cudaSuccess && current)
        result = (cudaError_t)cudart_driver.cuCtxGetDevice(device);
    else if (result == cudaSuccess)
        *device = thread_device;
    return cudart_done(result);
}

cudaError_t CUDARTAPI cudaSetValidDevices(int *device_arr, int len)
{
    return cudart_done(len ? cudaErrorNotSupported : cudaSuccess);
}

cudaError_t CUDARTAPI cudaSetDeviceFlags(unsigned int flags)
{
    int device;
    cudaError_t result = cudaGetDevice(&device);

    if (result == cudaSuccess)
        result = (cudaError_t)cudart_driver.cuDevicePrimaryCtxSetFlags(device, flags);
    return cudart_done(result);
}

cudaError_t CUDARTAPI cudaGetDeviceFlags(unsigned int *flags)
{
    int device, active;
    cudaError_t result = cudaGetDevice(&device);

    if (result == cudaSuccess && !flags)
        result = cudaErrorInvalidValue;
    if (result == cudaSuccess)
        result = (cudaError_t)cudart_driver.cuDevicePrimaryCtxGetState(device, flags, &active);
    return cudart_done(result);
}

cudaError_t CUDARTAPI cudaDeviceSynchronize(void)
{
    CUDART_CALL(cudart_bind, cuCtxSynchronize());
}

cudaError_t CUDARTAPI cudaDeviceReset(void)
{
    int device;
    cudaError_t result = cudaGetDevice(&device);

    if (result == cudaSuccess) {
        pthread_mutex_lock(&mutex);
        result = (cudaError_t)cudart_driver.cuDevicePrimaryCtxReset(device);
        primaries[device].retained = false;
        atomic_fetch_add_explicit(&resets, 1, memory_order_release);
        pthread_mutex_unlock(&mutex);
    }
    if (result == cudaSuccess)
        last_error = cudaSuccess;
    return cudart_done(result);
}

cudaError_t CUDARTAPI cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    /* The runtime's numbers are the driver's. */
    CUDART_CALL(cudart_ready, cuDeviceGetAttribute(value, (CUdevice_attribute)attr, device));
}

cudaError_t CUDARTAPI cudaDeviceGetPCIBusId(char *pciBusId, int len, int device)
{
    CUDART_CALL(cudart_ready, cuDeviceGetPCIBusId(pciBusId, len, device));
}

cudaError_t CUDARTAPI cudaDeviceGetByPCIBusId(int *device, const char *pciBusId)
{
    CUDART_CALL(cudart_ready, cuDeviceGetByPCIBusId(device, pciBusId));
}

cudaError_t CUDARTAPI cudaDeviceCanAccessPeer(int *canAccessPeer, int device, int peerDevice)
{
    CUDART_CALL(cudart_ready, cuDeviceCanAccessPeer(canAccessPeer, device, peerDevice));
}

cudaError_t CUDARTAPI cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr,
                                                int srcDevice, int dstDevice)
{
    CUDART_CALL(cudart_ready,
                cuDeviceGetP2PAttribute(value, (CUdevice_P2PAttribute)attr, srcDevice, dstDevice));
}

cudaError_t CUDARTAPI cudaDeviceEnablePeerAccess(int peerDevice, unsigned int flags)
{
    CUcontext peer;
    cudaError_t result = cudart_bind();

    if (result == cudaSuccess)
        result = device_check(peerDevice);
    if (result == cudaSuccess)
        result = cudart_context(peerDevice, &peer);
    if (result == cudaSuccess)
        result = (cudaError_t)cudart_driver.cuCtxEnablePeerAccess(peer, flags);
    if (result == cudaErrorDeviceUninitialized)
        result = cudaErrorInvalidDevice; /* the device itself */
    return cudart_done(result);
}

cudaError_t CUDARTAPI cudaDeviceDisablePeerAccess(int peerDevice)
{
    CUcontext peer;
    cudaError_t result = cudart_bind();

    if (result == cudaSuccess)
        result = device_check(peerDevice);
    if (result == cudaSuccess)
        result = cudart_context(peerDevice, &peer);
    if (result == cudaSuccess)
        result = (cudaError_t)cudart_driver.cuCtxDisablePeerAccess(peer);
    return cudart_done(result);
}

cudaError_t CUDARTAPI cudaDeviceGetLimit(size_t *pValue, enum cudaLimit limit)
{
    CUDART_CALL(cudart_bind, cuCtxGetLimit(pValue, (CUlimit)limit));
}

cudaError_t CUDARTAPI cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
    CUDART_CALL(cudart_bind, cuCtxSetLimit((CUlimit)limit, value));
}

cudaError_t CUDARTAPI cudaDeviceGetCacheConfig(enum cudaFuncCache *pCacheConfig)
{
    CUDART_CALL(cudart_bind, cuCtxGetCacheConfig((CUfunc_cache *)pCacheConfig));
}

cudaError_t CUDARTAPI cudaDeviceSetCacheConfig(enum cudaFuncCache cacheConfig)
{
    CUDART_CALL(cudart_bind, cuCtxSetCacheConfig((CUfunc_cache)cacheConfig));
}

cudaError_t CUDARTAPI cudaDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    CUDART_CALL(cudart_bind, cuCtxGetStreamPriorityRange(leastPriority, greatestPriority));
}

cudaError_t CUDARTAPI cudaDeviceGetDefaultMemPool(cudaMemPool_t *memPool, int device)
{
    CUDART_CALL(cudart_ready, cuDeviceGetDefaultMemPool(memPool, device));
}

cudaError_t CUDARTAPI cudaDeviceGetMemPool(cudaMemPool_t *memPool, int device)
{
    CUDART_CALL(cudart_ready, cuDeviceGetMemPool(memPool, device));
}

cudaError_t CUDARTAPI cudaDeviceSetMemPool(int device, cudaMemPool_t memPool)
{
    CUDART_CALL(cudart_ready, cuDeviceSetMemPool(device, memPool));
}

/* Fields that both layouts of cudaDeviceProp have. */
#define FILL_PROPERTIES(prop, device)                                                              \
    do {                                                                                           \
        (void)cudart_driver.cuDeviceGetName((prop)->name, sizeof((prop)->name), device);           \
        (void)cudart_driver.cuDeviceGetUuid((CUuuid *)&(prop)->uuid, device);                      \
        (void)cudart_driver.cuDeviceTotalMem(&(prop)->totalGlobalMem, device);                     \
        (prop)->sharedMemPerBlock = attribute(device, cudaDevAttrMaxSharedMemoryPerBlock);         \
        (prop)->regsPerBlock = attribute(device, cudaDevAttrMaxRegistersPerBlock);                 \
        (prop)->warpSize = attribute(device, cudaDevAttrWarpSize);                                 \
        (prop)->memPitch = attribute(device, cudaDevAttrMaxPitch);                                 \
        (prop)->maxThreadsPerBlock = attribute(device, cudaDevAttrMaxThreadsPerBlock);             \
        (prop)->maxThreadsDim[0] = attribute(device, cudaDevAttrMaxBlockDimX);                     \
        (prop)->maxThreadsDim[1] = attribute(device, cudaDevAttrMaxBlockDimY);                     \
        (prop)->maxThreadsDim[2] = attribute(device, cudaDevAttrMaxBlockDimZ);                     \
        (prop)->maxGridSize[0] = attribute(device, cudaDevAttrMaxGridDimX);                        \
        (prop)->maxGridSize[1] = attribute(device, cudaDevAttrMaxGridDimY);                        \
        (prop)->maxGridSize[2] = attribute(device, cudaDevAttrMaxGridDimZ);                        \
        (prop)->totalConstMem = attribute(device, cudaDevAttrTotalConstantMemory);                 \
        (prop)->major = attribute(device, cudaDevAttrComputeCapabilityMajor);                      \
        (prop)->minor = attribute(device, cudaDevAttrComputeCapabilityMinor);                      \
        (prop)->textureAlignment = attribute(device, cudaDevAttrTextureAlignment);                 \
        (prop)->texturePitchAlignment = attribute(device, cudaDevAttrTexturePitchAlignment);       \
        (prop)->multiProcessorCount = attribute(device, cudaDevAttrMultiProcessorCount);           \
        (prop)->canMapHostMemory = attribute(device, cudaDevAttrCanMapHostMemory);                 \
        (prop)->surfaceAlignment = attribute(device, cudaDevAttrSurfaceAlignment);                 \
        (prop)->concurrentKernels = attribute(device, cudaDevAttrConcurrentKernels);               \
        (prop)->ECCEnabled = attribute(device, cudaDevAttrEccEnabled);                             \
        (prop)->pciBusID = attribute(device, cudaDevAttrPciBusId);                                 \
        (prop)->asyncEngineCount = attribute(device, cudaDevAttrAsyncEngineCount);                 \
        (prop)->unifiedAddressing = attribute(device, cudaDevAttrUnifiedAddressing);               \
        (prop)->memoryBusWidth = attribute(device, cudaDevAttrGlobalMemoryBusWidth);               \
        (prop)->l2CacheSize = attribute(device, cudaDevAttrL2CacheSize);                           \
        (prop)->persistingL2CacheMaxSize = attribute(device, cudaDevAttrMaxPersistingL2CacheSize); \
        (prop)->maxThreadsPerMultiProcessor =                                                      \
            attribute(device, cudaDevAttrMaxThreadsPerMultiProcessor);                             \
        (prop)->streamPrioritiesSupported =                                                        \
            attribute(device, cudaDevAttrStreamPrioritiesSupported);                               \
        (prop)->globalL1CacheSupported = attribute(device, cudaDevAttrGlobalL1CacheSupported);     \
        (prop)->localL1CacheSupported = attribute(device, cudaDevAttrLocalL1CacheSupported);       \
        (prop)->sharedMemPerMultiprocessor =                                                       \
            attribute(device, cudaDevAttrMaxSharedMemoryPerMultiprocessor);                        \
        (prop)->regsPerMultiprocessor =                                                            \
            attribute(device, cudaDevAttrMaxRegistersPerMultiprocessor);                           \
        (prop)->managedMemory = attribute(device, cudaDevAttrManagedMemory);                       \
        (prop)->concurrentManagedAccess = attribute(device, cudaDevAttrConcurrentManagedAccess);   \
        (prop)->computePreemptionSupported =                                                       \
            attribute(device, cudaDevAttrComputePreemptionSupported);                              \
        (prop)->canUseHostPointerForRegisteredMem =                                                \
            attribute(device, cudaDevAttrCanUseHostPointerForRegisteredMem);                       \
        (prop)->cooperativeLaunch = attribute(device, cudaDevAttrCooperativeLaunch);               \
        (prop)->sharedMemPerBlockOptin =                                                           \
            attribute(device, cudaDevAttrMaxSharedMemoryPerBlockOptin);                            \
        (prop)->maxBlocksPerMultiProcessor =                                                       \
            attribute(device, cudaDevAttrMaxBlocksPerMultiprocessor);                              \
        (prop)->accessPolicyMaxWindowSize =                                                        \
            attribute(device, cudaDevAttrMaxAccessPolicyWindowSize);                               \
        (prop)->reservedSharedMemPerBlock =                                                        \
            attribute(device, cudaDevAttrReservedSharedMemoryPerBlock);                            \
        (prop)->hostRegisterSupported = attribute(device, cudaDevAttrHostRegisterSupported);       \
        (prop)->memoryPoolsSupported = attribute(device, cudaDevAttrMemoryPoolsSupported);         \
        (prop)->clusterLaunch = attribute(device, cudaDevAttrClusterLaunch);                       \
        (prop)->unifiedFunctionPointers = 1;                                                       \
    } while (0)

static int attribute(int device, enum cudaDeviceAttr attr)
{
    int value = 0;

    (void)cudart_driver.cuDeviceGetAttribute(&value, (CUdevice_attribute)attr, device);
    return value;
}

#if FAKE_CUDART_VERSION >= 13000

cudaError_t CUDARTAPI cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    cudaError_t result = device_check(device);

    if (result == cudaSuccess && !prop)
        result = cudaErrorInvalidValue;
    if (result == cudaSuccess) {
        memset(prop, 0, sizeof(*prop));
        FILL_PROPERTIES(prop, device);
    }
    return cudart_done(result);
}

#else

#include "tests/fake/cuda/cudart_12.h"

cudaError_t cudaGetDeviceProperties_v2(struct cudart_12_device_prop *prop, int device)
{
    cudaError_t result = device_check(device);

    if (result == cudaSuccess && !prop)
        result = cudaErrorInvalidValue;
    if (result == cudaSuccess) {
        memset(prop, 0, sizeof(*prop));
        FILL_PROPERTIES(prop, device);
        prop->clockRate = attribute(device, cudaDevAttrClockRate);
        prop->memoryClockRate = attribute(device, cudaDevAttrMemoryClockRate);
        prop->deviceOverlap = attribute(device, cudaDevAttrGpuOverlap);
        prop->singleToDoublePrecisionPerfRatio =
            attribute(device, cudaDevAttrSingleToDoublePrecisionPerfRatio);
    }
    return cudart_done(result);
}

#endif
