/*
 * A NCCL that does nothing and succeeds: what is left of a program's time is its own and the
 * guard's.
 *
 * Has what the benchmarks call and what the guard asks a communicator, each function with its
 * profiling twin (pncclX). Communicators remember who they are and nothing else; unique ids differ.
 */
#pragma GCC visibility push(default)

#include <nccl.h>

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct ncclComm {
    int nranks, rank;
};

/* As in the real library: the body is pncclX, and ncclX is a weak second name of it. */
#define TWIN(name) extern __typeof__(p##name) name __attribute__((weak, alias("p" #name)))

/* ---- library ---- */

ncclResult_t pncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
TWIN(ncclGetVersion);

const char *pncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "error";
}
TWIN(ncclGetErrorString);

const char *pncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}
TWIN(ncclGetLastError);

/* ---- communicators ---- */

ncclResult_t pncclGetUniqueId(ncclUniqueId *id)
{
    static atomic_uint_fast64_t ordinal;
    uint64_t value = atomic_fetch_add(&ordinal, 1) + 1;
    memset(id, 0, sizeof(*id));
    memcpy(id, &value, sizeof(value));
    return ncclSuccess;
}
TWIN(ncclGetUniqueId);

ncclResult_t pncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank)
{
    (void)id;
    *comm = malloc(sizeof(**comm));
    if (!*comm)
        return ncclSystemError;
    **comm = (struct ncclComm){.nranks = nranks, .rank = rank};
    return ncclSuccess;
}
TWIN(ncclCommInitRank);

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    free(comm);
    return ncclSuccess;
}
TWIN(ncclCommDestroy);

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error)
{
    (void)comm;
    *error = ncclSuccess;
    return ncclSuccess;
}
TWIN(ncclCommGetAsyncError);

ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
    *count = comm->nranks;
    return ncclSuccess;
}
TWIN(ncclCommCount);

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device)
{
    (void)comm;
    *device = 0;
    return ncclSuccess;
}
TWIN(ncclCommCuDevice);

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}
TWIN(ncclCommUserRank);

/* ---- calls: succeed, whatever they are given ---- */

#define NOTHING(name, ...)                                                                         \
    ncclResult_t p##name(__VA_ARGS__)                                                              \
    {                                                                                              \
        return ncclSuccess;                                                                        \
    }                                                                                              \
    TWIN(name)

#pragma GCC diagnostic ignored "-Wunused-parameter"

NOTHING(ncclAllReduce, const void *send, void *recv, size_t count, ncclDataType_t dtype,
        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
NOTHING(ncclSend, const void *send, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
        cudaStream_t stream);
NOTHING(ncclRecv, void *recv, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
        cudaStream_t stream);
NOTHING(ncclGroupStart, void);
NOTHING(ncclGroupEnd, void);
