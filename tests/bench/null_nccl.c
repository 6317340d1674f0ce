/*
 * A NCCL that does nothing and succeeds: what is left of a program's time is its own and the
 * guard's.
 *
 * Exports what the library of the header's release exports, each function with its profiling twin
 * (pncclX). Communicators remember who they are and nothing else; unique ids differ.
 */
#pragma GCC visibility push(default)

#include <nccl.h>

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct ncclComm {
    int nranks, rank, device;
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

static ncclResult_t make_comm(ncclComm_t *ret_comm, int nranks, int rank, int device)
{
    struct ncclComm *comm = malloc(sizeof(*comm));
    if (!comm)
        return ncclSystemError;
    *comm = (struct ncclComm){.nranks = nranks, .rank = rank, .device = device};
    *ret_comm = comm;
    return ncclSuccess;
}

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
    return make_comm(comm, nranks, rank, 0);
}
TWIN(ncclCommInitRank);

ncclResult_t pncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank,
                                     ncclConfig_t *config)
{
    (void)id;
    (void)config;
    return make_comm(comm, nranks, rank, 0);
}
TWIN(ncclCommInitRankConfig);

ncclResult_t pncclCommInitAll(ncclComm_t *comms, int ndev, const int *devices)
{
    for (int i = 0; i < ndev; i++) {
        ncclResult_t result = make_comm(&comms[i], ndev, i, devices ? devices[i] : i);
        if (result != ncclSuccess)
            return result;
    }
    return ncclSuccess;
}
TWIN(ncclCommInitAll);

ncclResult_t pncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *new_comm,
                            ncclConfig_t *config)
{
    (void)key;
    (void)config;
    if (color == NCCL_SPLIT_NOCOLOR) {
        *new_comm = NULL;
        return ncclSuccess;
    }
    return make_comm(new_comm, comm->nranks, comm->rank, comm->device);
}
TWIN(ncclCommSplit);

ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    (void)comm;
    return ncclSuccess;
}
TWIN(ncclCommFinalize);

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    free(comm);
    return ncclSuccess;
}
TWIN(ncclCommDestroy);

ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    free(comm);
    return ncclSuccess;
}
TWIN(ncclCommAbort);

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
    *device = comm->device;
    return ncclSuccess;
}
TWIN(ncclCommCuDevice);

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}
TWIN(ncclCommUserRank);

/* ---- custom reductions ---- */

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t dtype,
                                       ncclScalarResidence_t residence, ncclComm_t comm)
{
    (void)scalar;
    (void)dtype;
    (void)residence;
    (void)comm;
    *op = (ncclRedOp_t)ncclNumOps;
    return ncclSuccess;
}
TWIN(ncclRedOpCreatePreMulSum);

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    (void)op;
    (void)comm;
    return ncclSuccess;
}
TWIN(ncclRedOpDestroy);

/* ---- collectives, point to point, groups: succeed, whatever they are given ---- */

#define NOTHING(name, ...)                                                                         \
    ncclResult_t p##name(__VA_ARGS__)                                                              \
    {                                                                                              \
        return ncclSuccess;                                                                        \
    }                                                                                              \
    TWIN(name)

#pragma GCC diagnostic ignored "-Wunused-parameter"

NOTHING(ncclAllReduce, const void *send, void *recv, size_t count, ncclDataType_t dtype,
        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
NOTHING(ncclReduce, const void *send, void *recv, size_t count, ncclDataType_t dtype,
        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream);
NOTHING(ncclBcast, void *buffer, size_t count, ncclDataType_t dtype, int root, ncclComm_t comm,
        cudaStream_t stream);
NOTHING(ncclBroadcast, const void *send, void *recv, size_t count, ncclDataType_t dtype, int root,
        ncclComm_t comm, cudaStream_t stream);
NOTHING(ncclReduceScatter, const void *send, void *recv, size_t count, ncclDataType_t dtype,
        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
NOTHING(ncclAllGather, const void *send, void *recv, size_t count, ncclDataType_t dtype,
        ncclComm_t comm, cudaStream_t stream);
NOTHING(ncclSend, const void *send, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
        cudaStream_t stream);
NOTHING(ncclRecv, void *recv, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
        cudaStream_t stream);
NOTHING(ncclGroupStart, void);
NOTHING(ncclGroupEnd, void);

/* ---- what later releases added ---- */

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
ncclResult_t pncclMemAlloc(void **memory, size_t size)
{
    *memory = malloc(size);
    return *memory ? ncclSuccess : ncclSystemError;
}
TWIN(ncclMemAlloc);

ncclResult_t pncclMemFree(void *memory)
{
    free(memory);
    return ncclSuccess;
}
TWIN(ncclMemFree);

ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buffer, size_t size, void **handle)
{
    *handle = buffer;
    return ncclSuccess;
}
TWIN(ncclCommRegister);

NOTHING(ncclCommDeregister, const ncclComm_t comm, void *handle);
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 22, 0)
NOTHING(ncclGroupSimulateEnd, ncclSimInfo_t *info);
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 23, 0)
ncclResult_t pncclCommInitRankScalable(ncclComm_t *comm, int nranks, int rank, int nids,
                                       ncclUniqueId *ids, ncclConfig_t *config)
{
    return make_comm(comm, nranks, rank, 0);
}
TWIN(ncclCommInitRankScalable);
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 24, 0)
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
void pncclResetDebugInit()
{
}
TWIN(ncclResetDebugInit);
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
ncclResult_t pncclCommShrink(ncclComm_t comm, int *excluded, int nexcluded, ncclComm_t *new_comm,
                             ncclConfig_t *config, int flags)
{
    return make_comm(new_comm, comm->nranks - nexcluded, 0, comm->device);
}
TWIN(ncclCommShrink);

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buffer, size_t size,
                                     ncclWindow_t *window, int flags)
{
    *window = NULL;
    return ncclSuccess;
}
TWIN(ncclCommWindowRegister);

NOTHING(ncclCommWindowDeregister, ncclComm_t comm, ncclWindow_t window);
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
NOTHING(ncclAlltoAll, const void *send, void *recv, size_t count, ncclDataType_t dtype,
        ncclComm_t comm, cudaStream_t stream);
NOTHING(ncclGather, const void *send, void *recv, size_t count, ncclDataType_t dtype, int root,
        ncclComm_t comm, cudaStream_t stream);
NOTHING(ncclScatter, const void *send, void *recv, size_t count, ncclDataType_t dtype, int root,
        ncclComm_t comm, cudaStream_t stream);

/* The host side of the device API. nccl_device.h is C++ and CUDA; the pointers are opaque here. */
struct null_team {
    int nranks, rank, stride;
};

NOTHING(ncclDevCommCreate, ncclComm_t comm, const void *requirements, void *dev_comm);
NOTHING(ncclDevCommDestroy, ncclComm_t comm, const void *dev_comm);
NOTHING(ncclLLA2ACreateRequirement, int nblocks, int nslots, void *handle, void *requirement);
NOTHING(ncclLsaBarrierCreateRequirement, struct null_team team, int nbarriers, void *handle,
        void *requirement);

int pncclLLA2ACalcSlots(int elements, int element_size)
{
    return 1;
}
TWIN(ncclLLA2ACalcSlots);

static struct null_team team_of(ncclComm_t comm)
{
    return (struct null_team){comm->nranks, comm->rank, 1};
}

struct null_team pncclTeamWorld(ncclComm_t comm)
{
    return team_of(comm);
}
TWIN(ncclTeamWorld);

struct null_team pncclTeamLsa(ncclComm_t comm)
{
    return team_of(comm);
}
TWIN(ncclTeamLsa);

struct null_team pncclTeamRail(ncclComm_t comm)
{
    return (struct null_team){1, 0, comm->nranks};
}
TWIN(ncclTeamRail);

int pncclTeamRankToWorld(ncclComm_t comm, struct null_team team, int rank)
{
    return comm->rank + (rank - team.rank) * team.stride;
}
TWIN(ncclTeamRankToWorld);

int pncclTeamRankToLsa(ncclComm_t comm, struct null_team team, int rank)
{
    return comm->rank + (rank - team.rank) * team.stride;
}
TWIN(ncclTeamRankToLsa);
#endif

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
NOTHING(ncclCommRevoke, ncclComm_t comm, int flags);
NOTHING(ncclGinBarrierCreateRequirement, ncclComm_t comm, struct null_team team, int nbarriers,
        void *handle, void *requirement);
#endif
