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

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* Does this, and answers so. */
#define ANSWER(type, name, parameters, action, value)                                              \
    type p##name parameters                                                                        \
    {                                                                                              \
        action;                                                                                    \
        return value;                                                                              \
    }                                                                                              \
    TWIN(name)
#define TELL(name, parameters, action) ANSWER(ncclResult_t, name, parameters, action, ncclSuccess)

TELL(ncclGetVersion, (int *version), *version = NCCL_VERSION_CODE);
ANSWER(const char *, ncclGetErrorString, (ncclResult_t result), ,
       result == ncclSuccess ? "no error" : "error");
ANSWER(const char *, ncclGetLastError, (ncclComm_t comm), , "");

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
    *comm = malloc(sizeof(**comm));
    if (!*comm)
        return ncclSystemError;
    **comm = (struct ncclComm){.nranks = nranks, .rank = rank};
    return ncclSuccess;
}
TWIN(ncclCommInitRank);

TELL(ncclCommDestroy, (ncclComm_t comm), free(comm));
TELL(ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t *error), *error = ncclSuccess);
TELL(ncclCommCount, (const ncclComm_t comm, int *count), *count = comm->nranks);
TELL(ncclCommCuDevice, (const ncclComm_t comm, int *device), *device = 0);
TELL(ncclCommUserRank, (const ncclComm_t comm, int *rank), *rank = comm->rank);

/* ---- calls: succeed, whatever they are given ---- */

TELL(ncclAllReduce,
     (const void *send, void *recv, size_t count, ncclDataType_t dtype, ncclRedOp_t op,
      ncclComm_t comm, cudaStream_t stream), );
TELL(ncclSend,
     (const void *send, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
      cudaStream_t stream), );
TELL(ncclRecv,
     (void *recv, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
      cudaStream_t stream), );
TELL(ncclGroupStart, (void), );
TELL(ncclGroupEnd, (void), );
