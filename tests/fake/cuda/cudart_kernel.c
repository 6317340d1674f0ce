/*
 * What programs built by nvcc call before main and for a kernel launch: registration is accepted,
 * and a launch says that there is no code for this device, for the stand-in runs none.
 */
#include "tests/fake/cuda/cudart_state.h"

/* Declared by no header. */
#define NVCC(ret, name, parameters)                                                                \
    ret name parameters;                                                                           \
    ret name parameters

NVCC(void **, __cudaRegisterFatBinary, (void *fatCubin))
{
    static void *registered;

    return &registered;
}

NVCC(void, __cudaRegisterFatBinaryEnd, (void **handle))
{
}

NVCC(void, __cudaUnregisterFatBinary, (void **handle))
{
}

NVCC(void, __cudaRegisterFunction,
     (void **handle, const char *hostFun, char *deviceFun, const char *deviceName, int thread_limit,
      void *tid, void *bid, void *bDim, void *gDim, int *wSize))
{
}

NVCC(void, __cudaRegisterVar,
     (void **handle, char *hostVar, char *deviceAddress, const char *deviceName, int ext,
      size_t size, int constant, int global))
{
}

NVCC(void, __cudaRegisterManagedVar,
     (void **handle, void **hostVar, char *deviceAddress, const char *deviceName, int ext,
      size_t size, int constant, int global))
{
}

NVCC(void, __cudaRegisterHostVar,
     (void **handle, const char *deviceName, char *hostVar, size_t size))
{
}

NVCC(char, __cudaInitModule, (void **handle))
{
    return 1;
}

/* The <<<>>> of a launch, kept for the thread until the launch itself. */
static __thread struct {
    dim3 grid, block;
    size_t shared;
    struct CUstream_st *stream;
} configuration;

NVCC(unsigned int, __cudaPushCallConfiguration,
     (dim3 gridDim, dim3 blockDim, size_t sharedMem, struct CUstream_st *stream))
{
    configuration.grid = gridDim;
    configuration.block = blockDim;
    configuration.shared = sharedMem;
    configuration.stream = stream;
    return 0;
}

NVCC(cudaError_t, __cudaPopCallConfiguration,
     (dim3 * gridDim, dim3 *blockDim, size_t *sharedMem, void *stream))
{
    *gridDim = configuration.grid;
    *blockDim = configuration.block;
    *sharedMem = configuration.shared;
    *(struct CUstream_st **)stream = configuration.stream;
    return cudaSuccess;
}

static cudaError_t no_code(void)
{
    cudaError_t result = cudart_bind();

    return cudart_done(result == cudaSuccess ? cudaErrorNoKernelImageForDevice : result);
}

FORM(cudaLaunchKernel,
     (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
      cudaStream_t stream),
     no_code())
FORM(cudaLaunchKernel_ptsz,
     (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
      cudaStream_t stream),
     no_code())
FORM(cudaLaunchKernelExC, (const cudaLaunchConfig_t *config, const void *func, void **args),
     no_code())
FORM(cudaLaunchKernelExC_ptsz, (const cudaLaunchConfig_t *config, const void *func, void **args),
     no_code())
FORM(cudaFuncGetAttributes, (struct cudaFuncAttributes * attr, const void *func), no_code())

struct cudaChannelFormatDesc CUDARTAPI cudaCreateChannelDesc(int x, int y, int z, int w,
                                                             enum cudaChannelFormatKind f)
{
    return (struct cudaChannelFormatDesc){x, y, z, w, f};
}
