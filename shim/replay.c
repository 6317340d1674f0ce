/*
 * Repeats a call of the program from what core recorded of it.
 *
 * Entered by the program's threads, if faults are armed. The call goes through its wrapper, so that
 * it is recorded at the point where NCCL gets it; it must never reach NCCL in another way.
 */
#include "shim/replay.h"

#include <errno.h>

#include "core/fault/inject.h"

static ncclResult_t make(const struct ng_call *call, const struct ng_functions *wrappers)
{
    const void *send = call->send_buffer;
    void *receive = call->recv_buffer;
    size_t count = (size_t)call->count;
    ncclDataType_t dtype = (ncclDataType_t)call->dtype;
    ncclRedOp_t redop = (ncclRedOp_t)call->redop;
    ncclComm_t comm = call->comm;
    cudaStream_t stream = call->stream;

    switch (call->op) {
    case NG_OP_AllReduce:
        return wrappers->AllReduce(send, receive, count, dtype, redop, comm, stream);
    case NG_OP_Broadcast:
        return wrappers->Broadcast(send, receive, count, dtype, call->root, comm, stream);
    case NG_OP_Reduce:
        return wrappers->Reduce(send, receive, count, dtype, redop, call->root, comm, stream);
    case NG_OP_AllGather:
        return wrappers->AllGather(send, receive, count, dtype, comm, stream);
    case NG_OP_ReduceScatter:
        return wrappers->ReduceScatter(send, receive, count, dtype, redop, comm, stream);
    case NG_OP_AlltoAll:
        return wrappers->AlltoAll(send, receive, count, dtype, comm, stream);
    case NG_OP_Gather:
        return wrappers->Gather(send, receive, count, dtype, call->root, comm, stream);
    case NG_OP_Scatter:
        return wrappers->Scatter(send, receive, count, dtype, call->root, comm, stream);
    default: /* core postpones no other */
        return ncclInvalidUsage;
    }
}

void ng_replay_end(struct ng_injection *injection, const struct ng_functions *wrappers)
{
    struct ng_call call;
    int saved = errno;

    ng_inject_done(injection);
    if (ng_inject_following(injection, &call))
        ng_inject_followed(&call, (int)make(&call, wrappers));
    errno = saved;
}
