/*
 * A NCCL in C that remembers what it was called with, and knows which copy it is. Any thread.
 */
#include "tests/unit/shim/door/nccl_copy.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

static __thread struct door_nccl_call last;
static int number;

struct ncclComm {
    int rank, nranks;
    const int *owner; /* tells copies apart */
};

/* The call's name and, in order, its arguments as far as they are whole numbers or addresses. */
#define NOTE(called, ...) (last = (struct door_nccl_call){.name = called, .values = {__VA_ARGS__}})

__attribute__((constructor)) static void find_number(void)
{
    Dl_info info;
    const char *end;

    if (!dladdr(&number, &info) || !(end = strrchr(info.dli_fname, '/')))
        return;
    while (end > info.dli_fname && end[-1] != '/')
        end--;
    number = atoi(end);
}

EXPORT const struct door_nccl_call *door_nccl_last(void)
{
    return &last;
}

EXPORT ncclResult_t ncclGetVersion(int *version)
{
    *version = DOOR_NCCL_VERSION(number);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    static int serial;

    memset(id, 'a' + number % 26, sizeof(*id));
    *(int *)id = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    NOTE("CommInitRank", (uintptr_t)comm, (uint64_t)nranks, 0, (uint64_t)rank);
    last.id = id;
    *comm = malloc(sizeof(**comm));
    if (!*comm)
        return ncclSystemError;
    (*comm)->rank = rank;
    (*comm)->nranks = nranks;
    (*comm)->owner = &number;
    return ncclSuccess;
}

/* NCCL crashes or worse where it meets another copy's communicator; here it is said. */
static ncclResult_t check(ncclComm_t comm)
{
    return comm && comm->owner == &number ? ncclSuccess : ncclInvalidArgument;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    if (check(comm) != ncclSuccess)
        return ncclInvalidArgument;
    free(comm);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return check(comm);
}

EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->nranks;
    return check(comm);
}

EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return check(comm);
}

EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device)
{
    *device = 0;
    return check(comm);
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    *error = ncclSuccess;
    return check(comm);
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "an error";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
    return "";
}

EXPORT ncclResult_t ncclGroupStart(void)
{
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
    return ncclSuccess;
}

EXPORT ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                  ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                  cudaStream_t stream)
{
    NOTE("AllReduce", (uintptr_t)sendbuff, (uintptr_t)recvbuff, count, datatype, op,
         (uintptr_t)comm, (uintptr_t)stream);
    errno = EDOM;
    return check(comm);
}

EXPORT ncclResult_t ncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                                  ncclDataType_t datatype, int root, ncclComm_t comm,
                                  cudaStream_t stream)
{
    NOTE("Broadcast", (uintptr_t)sendbuff, (uintptr_t)recvbuff, count, datatype, (uint64_t)root,
         (uintptr_t)comm, (uintptr_t)stream);
    return check(comm);
}

/* Like the real one: through the PLT. */
EXPORT ncclResult_t ncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root,
                              ncclComm_t comm, cudaStream_t stream)
{
    return ncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}

EXPORT ncclResult_t ncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype,
                                  int peer, ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx,
                                  int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream)
{
    NOTE("PutSignal", (uintptr_t)localbuff, count, datatype, (uint64_t)peer, (uintptr_t)peerWin,
         peerWinOffset, (uint64_t)sigIdx, (uint64_t)ctx, flags, (uintptr_t)comm, (uintptr_t)stream);
    return check(comm);
}

EXPORT struct ncclTeam ncclTeamWorld(ncclComm_t comm)
{
    return (struct ncclTeam){comm->nranks, comm->rank, 1000 + number};
}

EXPORT int ncclTeamRankToWorld(ncclComm_t comm, struct ncclTeam team, int rank)
{
    NOTE("TeamRankToWorld", (uintptr_t)comm, 0, (uint64_t)rank);
    last.team = team;
    return 10000 + number;
}
