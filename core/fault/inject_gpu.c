/*
 * Injected faults on the device.
 *
 * Program threads. A stream of the program may be under capture: calls that would invalidate it are
 * made in relaxed mode, and queued work becomes part of the graph.
 */
#include "core/fault/inject_state.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "core/device/gpu.h"
#include "core/nccl/call.h"
#include "core/nccl/cuda.h"
#include "core/runtime/runtime.h"

/* The driver, with the context of the call's stream made current if none is. False: there is none,
 * or it is not the one that NCCL uses. */
static bool enter(const struct ng_call *call, const struct ng_cuda **ret_cuda, bool *ret_pushed)
{
    const struct ng_cuda *cuda = ng_guard_cuda();
    CUcontext current = NULL, wanted = NULL;

    *ret_pushed = false;
    *ret_cuda = cuda;
    if (!cuda || call->nccl->foreign)
        return false;
    if (ng_gpu_default_stream(call->stream) ||
        cuda->stream_get_ctx(call->stream, &wanted) != CUDA_SUCCESS)
        return true;
    *ret_pushed = cuda->ctx_get_current(&current) != CUDA_SUCCESS || current != wanted;
    if (*ret_pushed)
        *ret_pushed = cuda->ctx_push(wanted) == CUDA_SUCCESS;
    return true;
}

static void leave(const struct ng_cuda *cuda, bool pushed)
{
    CUcontext unused;

    if (pushed)
        cuda->ctx_pop(&unused);
}

/* ---- Work that never begins ---- */

/* A word of host memory that devices read, and that stays 0. */
static int never_word(const struct ng_cuda *cuda, CUdeviceptr *ret_word)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    void *word = NULL;

    if (!cuda->mem_host_alloc || !cuda->mem_host_get_device_pointer)
        return CUDA_ERROR_NOT_SUPPORTED;
    bool relaxed = ng_gpu_relax_thread(&mode);
    int result = (int)cuda->mem_host_alloc(&word, sizeof(uint64_t),
                                           CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    if (!result) {
        memset(word, 0, sizeof(uint64_t));
        result = (int)cuda->mem_host_get_device_pointer(ret_word, word, 0);
    }
    if (relaxed)
        ng_gpu_relax_thread(&mode);
    return result;
}

/* For streams that cannot wait for memory: blocks the stream, and CUDA's thread for host
 * functions. */
static void CUDA_CB never_return(void *unused)
{
    for (;;)
        pause();
}

static int stall(const struct ng_cuda *cuda, CUstream stream)
{
    CUdeviceptr word;
    int result = cuda->stream_wait_value32 ? never_word(cuda, &word) : CUDA_ERROR_NOT_SUPPORTED;

    if (!result)
        result = (int)cuda->stream_wait_value32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ);
    if (result && cuda->launch_host_func)
        result = (int)cuda->launch_host_func(stream, never_return, NULL);
    return result;
}

int ng_inject_gpu_stall(const struct ng_call *call)
{
    const struct ng_cuda *cuda;
    bool pushed;

    if (!enter(call, &cuda, &pushed))
        return CUDA_ERROR_NOT_INITIALIZED;
    int result = stall(cuda, call->stream);
    leave(cuda, pushed);
    return result;
}

/* ---- NaN ---- */

/* All of its bits set is a NaN in every floating-point type of NCCL. */
static bool has_nan(int dtype)
{
    return strstr(ng_dtype_name(dtype), "float") != NULL;
}

int ng_inject_gpu_nan(const struct ng_call *call)
{
    size_t bytes = call->count * ng_dtype_bytes(call->dtype);
    const struct ng_cuda *cuda;
    bool pushed;

    if (!call->send_buffer || !bytes || !has_nan(call->dtype))
        return -EINVAL;
    if (!enter(call, &cuda, &pushed))
        return CUDA_ERROR_NOT_INITIALIZED;
    int result = cuda->memset_d8_async
                     ? (int)cuda->memset_d8_async((CUdeviceptr)(uintptr_t)call->send_buffer, 0xff,
                                                  bytes, call->stream)
                     : CUDA_ERROR_NOT_SUPPORTED;
    leave(cuda, pushed);
    return result;
}
