/*
 * Repeats a call of the program from what core recorded of it.
 *
 * Entered by the program's threads, if faults are armed. The call goes through its wrapper, so that
 * it is recorded at the point where NCCL gets it; it must never reach NCCL in another way.
 */
#include "shim/replay.h"

#include <errno.h>

#include "core/fault/inject.h"
#include "shim/nccl_compat.h"

/* The wrappers, by the names that stubs use: the exported ones could lead to an interposer. */
#define ENTRY(name, ...)                                                                           \
    extern ncclResult_t ng_entry_##name(__VA_ARGS__) __attribute__((visibility("hidden")));
ENTRY(AllReduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
      cudaStream_t)
ENTRY(Broadcast, const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)
ENTRY(Reduce, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
      cudaStream_t)
ENTRY(AllGather, const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t)
ENTRY(ReduceScatter, const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
      cudaStream_t)
ENTRY(AlltoAll, const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t)
ENTRY(Gather, const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)
ENTRY(Scatter, const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)

static ncclResult_t make(const struct ng_call *call)
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
        return ng_entry_AllReduce(send, receive, count, dtype, redop, comm, stream);
    case NG_OP_Broadcast:
        return ng_entry_Broadcast(send, receive, count, dtype, call->root, comm, stream);
    case NG_OP_Reduce:
        return ng_entry_Reduce(send, receive, count, dtype, redop, call->root, comm, stream);
    case NG_OP_AllGather:
        return ng_entry_AllGather(send, receive, count, dtype, comm, stream);
    case NG_OP_ReduceScatter:
        return ng_entry_ReduceScatter(send, receive, count, dtype, redop, comm, stream);
    case NG_OP_AlltoAll:
        return ng_entry_AlltoAll(send, receive, count, dtype, comm, stream);
    case NG_OP_Gather:
        return ng_entry_Gather(send, receive, count, dtype, call->root, comm, stream);
    case NG_OP_Scatter:
        return ng_entry_Scatter(send, receive, count, dtype, call->root, comm, stream);
    default: /* core postpones no other */
        return ncclInvalidUsage;
    }
}

void ng_replay_end(struct ng_injection *injection)
{
    struct ng_call call;
    int saved = errno;

    ng_inject_done(injection);
    if (ng_inject_following(injection, &call))
        ng_inject_followed(&call, (int)make(&call));
    errno = saved;
}
