/*
 * Hooks on the functions that record, wait for, synchronise and query streams and events.
 *
 * Beside the steps of a call. Entered by the program's threads in place of the driver. Each calls
 * the driver first, and changes its result only if that is success and the data is poisoned. Calls
 * of NCCL and of the guard pass through untouched.
 */
#include "shim/cuda_hooks.h"

#include "core/device/poison.h"
#include "shim/cuda_door.h"

static CUresult settle(const struct ng_poison_before *before, CUresult result)
{
    return result == CUDA_SUCCESS && ng_poison_settle(before) ? CUDA_ERROR_LAUNCH_FAILED : result;
}

/* A hook keeps errno as the driver leaves it: no later step changes it. */

#define SETTLED_HOOK(symbol, type, handle, look)                                                   \
    static CUresult CUDAAPI hook_##symbol(type handle)                                             \
    {                                                                                              \
        if (ng_cuda_door_is_own(CALLER))                                                           \
            return ng_cuda_real_##symbol()(handle);                                                \
        struct ng_poison_before before = look;                                                     \
        return settle(&before, ng_cuda_real_##symbol()(handle));                                   \
    }
SETTLED_HOOK(cuStreamSynchronize, CUstream, stream, ng_poison_stream(stream, false))
SETTLED_HOOK(cuStreamSynchronize_ptsz, CUstream, stream, ng_poison_stream(stream, true))
SETTLED_HOOK(cuStreamQuery, CUstream, stream, ng_poison_stream(stream, false))
SETTLED_HOOK(cuStreamQuery_ptsz, CUstream, stream, ng_poison_stream(stream, true))
SETTLED_HOOK(cuEventSynchronize, CUevent, event, ng_poison_event(event))
SETTLED_HOOK(cuEventQuery, CUevent, event, ng_poison_event(event))

static CUresult settle_context(CUcontext context, CUresult result)
{
    return result == CUDA_SUCCESS && ng_poison_has_context(context) ? CUDA_ERROR_LAUNCH_FAILED
                                                                    : result;
}

static CUresult CUDAAPI hook_cuCtxSynchronize(void)
{
    CUresult result = ng_cuda_real_cuCtxSynchronize()();

    return ng_cuda_door_is_own(CALLER) ? result : settle_context(NULL, result);
}

static CUresult CUDAAPI hook_cuCtxSynchronize_v2(CUcontext context)
{
    CUresult result = ng_cuda_real_cuCtxSynchronize_v2()(context);

    return ng_cuda_door_is_own(CALLER) ? result : settle_context(context, result);
}

#define FOLLOWED_HOOK(symbol, parameters, arguments, follow)                                       \
    static CUresult CUDAAPI hook_##symbol parameters                                               \
    {                                                                                              \
        CUresult result = ng_cuda_real_##symbol() arguments;                                       \
        if (result == CUDA_SUCCESS && !ng_cuda_door_is_own(CALLER))                                \
            follow;                                                                                \
        return result;                                                                             \
    }
FOLLOWED_HOOK(cuEventRecord, (CUevent event, CUstream stream), (event, stream),
              ng_poison_recorded(event, stream, false))
FOLLOWED_HOOK(cuEventRecord_ptsz, (CUevent event, CUstream stream), (event, stream),
              ng_poison_recorded(event, stream, true))
FOLLOWED_HOOK(cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned int flags),
              (event, stream, flags), ng_poison_recorded(event, stream, false))
FOLLOWED_HOOK(cuEventRecordWithFlags_ptsz, (CUevent event, CUstream stream, unsigned int flags),
              (event, stream, flags), ng_poison_recorded(event, stream, true))
FOLLOWED_HOOK(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned int flags),
              (stream, event, flags), ng_poison_waits(stream, false, event))
FOLLOWED_HOOK(cuStreamWaitEvent_ptsz, (CUstream stream, CUevent event, unsigned int flags),
              (stream, event, flags), ng_poison_waits(stream, true, event))

/* Before the driver's call: afterwards another thread may receive the same handle. */
static CUresult CUDAAPI hook_cuStreamDestroy_v2(CUstream stream)
{
    ng_poison_destroyed(stream);
    return ng_cuda_real_cuStreamDestroy_v2()(stream);
}

static CUresult CUDAAPI hook_cuEventDestroy_v2(CUevent event)
{
    ng_poison_destroyed(event);
    return ng_cuda_real_cuEventDestroy_v2()(event);
}

void ng_cuda_poison_enable(void)
{
    ng_cuda_hook_enable_cuStreamSynchronize(hook_cuStreamSynchronize);
    ng_cuda_hook_enable_cuStreamSynchronize_ptsz(hook_cuStreamSynchronize_ptsz);
    ng_cuda_hook_enable_cuStreamQuery(hook_cuStreamQuery);
    ng_cuda_hook_enable_cuStreamQuery_ptsz(hook_cuStreamQuery_ptsz);
    ng_cuda_hook_enable_cuEventSynchronize(hook_cuEventSynchronize);
    ng_cuda_hook_enable_cuEventQuery(hook_cuEventQuery);
    ng_cuda_hook_enable_cuCtxSynchronize(hook_cuCtxSynchronize);
    ng_cuda_hook_enable_cuCtxSynchronize_v2(hook_cuCtxSynchronize_v2);
    ng_cuda_hook_enable_cuEventRecord(hook_cuEventRecord);
    ng_cuda_hook_enable_cuEventRecord_ptsz(hook_cuEventRecord_ptsz);
    ng_cuda_hook_enable_cuEventRecordWithFlags(hook_cuEventRecordWithFlags);
    ng_cuda_hook_enable_cuEventRecordWithFlags_ptsz(hook_cuEventRecordWithFlags_ptsz);
    ng_cuda_hook_enable_cuStreamWaitEvent(hook_cuStreamWaitEvent);
    ng_cuda_hook_enable_cuStreamWaitEvent_ptsz(hook_cuStreamWaitEvent_ptsz);
    ng_cuda_hook_enable_cuStreamDestroy_v2(hook_cuStreamDestroy_v2);
    ng_cuda_hook_enable_cuEventDestroy_v2(hook_cuEventDestroy_v2);
}
