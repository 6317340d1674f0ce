/*
 * Hooks on the launches of NCCL's kernels: core/device/launch_log.h keeps what each one adds to
 * NCCL's counters on the device.
 *
 * NCCL alone gets these hooks, so the program's own launches cost nothing. Entered by the threads
 * on which NCCL launches. Must never change what is launched, nor the result.
 */
#include <errno.h>
#include <stdatomic.h>

#include "core/device/launch_log.h"
#include "core/runtime/runtime.h"
#include "shim/cuda_hooks.h"

/* Before the launch, so that no counter is ever ahead of what was noted. Returns where; NULL: it
 * is not one of the kernels that count, or not of a known communicator. */
static struct ng_launch_log *note(unsigned int blocks, CUstream stream, void **parameters,
                                  void **extra)
{
    struct ng_kernel_launch launch = {.blocks = blocks, .stream = stream};
    int saved = errno;

    if (parameters || !extra || !atomic_load_explicit(&ng_guard.running, memory_order_acquire))
        return NULL;
    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2)
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            launch.arguments = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            launch.bytes = *(const size_t *)extra[1];
        else
            return NULL;
    struct ng_launch_log *log = ng_launch_log_note(&launch);
    errno = saved;
    return log;
}

static __attribute__((noinline)) CUresult finish(struct ng_launch_log *log, CUresult result)
{
    if (__builtin_expect(log && result != CUDA_SUCCESS, 0)) {
        int saved = errno;
        ng_launch_log_distrust(log, "a launch of NCCL failed");
        errno = saved;
    }
    return result;
}

#define LAUNCH_HOOK(symbol, meant)                                                                 \
    static CUresult CUDAAPI hook_##symbol(                                                         \
        CUfunction function, unsigned int blocks_x, unsigned int blocks_y, unsigned int blocks_z,  \
        unsigned int threads_x, unsigned int threads_y, unsigned int threads_z,                    \
        unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)               \
    {                                                                                              \
        struct ng_launch_log *log = note(blocks_x, meant, parameters, extra);                      \
        return finish(log, ng_cuda_real_##symbol()(function, blocks_x, blocks_y, blocks_z,         \
                                                   threads_x, threads_y, threads_z, shared_bytes,  \
                                                   stream, parameters, extra));                    \
    }
LAUNCH_HOOK(cuLaunchKernel, stream)
LAUNCH_HOOK(cuLaunchKernel_ptsz, stream ? stream : CU_STREAM_PER_THREAD)

static __attribute__((noinline)) CUresult
launch_kernel_ex(const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra)
{
    struct ng_launch_log *log =
        config ? note(config->gridDimX, config->hStream, parameters, extra) : NULL;

    return finish(log, ng_cuda_real_cuLaunchKernelEx()(config, function, parameters, extra));
}

/* The one that NCCL uses. What a launch could have otherwise is looked for only where it is not
 * like the communicator's launch before it. */
static CUresult CUDAAPI hook_cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                                              void **parameters, void **extra)
{
    if (!config || !extra || extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER ||
        extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE)
        return launch_kernel_ex(config, function, parameters, extra);
    struct ng_kernel_launch launch = {.blocks = config->gridDimX,
                                      .stream = config->hStream,
                                      .arguments = extra[1],
                                      .bytes = *(const size_t *)extra[3]};
    struct ng_launch_log *log = ng_launch_log_note_usual(&launch);
    if (__builtin_expect(!log, 0))
        return launch_kernel_ex(config, function, parameters, extra);
    CUresult result = ng_cuda_real_cuLaunchKernelEx()(config, function, parameters, extra);
    return __builtin_expect(result == CUDA_SUCCESS, 1) ? result : finish(log, result);
}

static CUresult CUDAAPI hook_cuLaunchKernelEx_ptsz(const CUlaunchConfig *config,
                                                   CUfunction function, void **parameters,
                                                   void **extra)
{
    CUstream stream = config && config->hStream ? config->hStream : CU_STREAM_PER_THREAD;
    struct ng_launch_log *log = config ? note(config->gridDimX, stream, parameters, extra) : NULL;

    return finish(log, ng_cuda_real_cuLaunchKernelEx_ptsz()(config, function, parameters, extra));
}

void ng_cuda_launches_enable(void)
{
    ng_cuda_hook_enable_cuLaunchKernel(hook_cuLaunchKernel);
    ng_cuda_hook_enable_cuLaunchKernel_ptsz(hook_cuLaunchKernel_ptsz);
    ng_cuda_hook_enable_cuLaunchKernelEx(hook_cuLaunchKernelEx);
    ng_cuda_hook_enable_cuLaunchKernelEx_ptsz(hook_cuLaunchKernelEx_ptsz);
}
