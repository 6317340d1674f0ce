/* What the programs that try the entry points share: the NCCL functions that they fetch, each by
 * its name, and the plugins through which they fetch them. */
#ifndef TESTS_PROGRAMS_ENTRY_POINTS_H
#define TESTS_PROGRAMS_ENTRY_POINTS_H

#include <cuda_runtime_api.h>
#include <nccl.h>

/* ENTRY_POINT(type, name without "nccl", parameters, arguments) */
#define ENTRY_POINTS_NCCL(ENTRY_POINT)                                                             \
    ENTRY_POINT(ncclResult_t, GetVersion, (int *version), (version))                               \
    ENTRY_POINT(const char *, GetErrorString, (ncclResult_t result), (result))                     \
    ENTRY_POINT(const char *, GetLastError, (ncclComm_t comm), (comm))                             \
    ENTRY_POINT(ncclResult_t, GetUniqueId, (ncclUniqueId * id), (id))                              \
    ENTRY_POINT(ncclResult_t, CommInitRank,                                                        \
                (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank),                        \
                (comm, nranks, id, rank))                                                          \
    ENTRY_POINT(ncclResult_t, CommSplit,                                                           \
                (ncclComm_t comm, int color, int key, ncclComm_t *child, ncclConfig_t *config),    \
                (comm, color, key, child, config))                                                 \
    ENTRY_POINT(ncclResult_t, CommCount, (const ncclComm_t comm, int *count), (comm, count))       \
    ENTRY_POINT(ncclResult_t, CommUserRank, (const ncclComm_t comm, int *rank), (comm, rank))      \
    ENTRY_POINT(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t * error),          \
                (comm, error))                                                                     \
    ENTRY_POINT(ncclResult_t, CommFinalize, (ncclComm_t comm), (comm))                             \
    ENTRY_POINT(ncclResult_t, CommDestroy, (ncclComm_t comm), (comm))                              \
    ENTRY_POINT(ncclResult_t, GroupStart, (void), ())                                              \
    ENTRY_POINT(ncclResult_t, GroupEnd, (void), ())                                                \
    ENTRY_POINT(ncclResult_t, AllReduce,                                                           \
                (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,  \
                 ncclComm_t comm, cudaStream_t stream),                                            \
                (send, recv, count, type, op, comm, stream))                                       \
    ENTRY_POINT(ncclResult_t, Broadcast,                                                           \
                (const void *send, void *recv, size_t count, ncclDataType_t type, int root,        \
                 ncclComm_t comm, cudaStream_t stream),                                            \
                (send, recv, count, type, root, comm, stream))                                     \
    ENTRY_POINT(ncclResult_t, Bcast,                                                               \
                (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,       \
                 cudaStream_t stream),                                                             \
                (buffer, count, type, root, comm, stream))                                         \
    ENTRY_POINT(ncclResult_t, Reduce,                                                              \
                (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,  \
                 int root, ncclComm_t comm, cudaStream_t stream),                                  \
                (send, recv, count, type, op, root, comm, stream))                                 \
    ENTRY_POINT(ncclResult_t, AllGather,                                                           \
                (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm, \
                 cudaStream_t stream),                                                             \
                (send, recv, count, type, comm, stream))                                           \
    ENTRY_POINT(ncclResult_t, ReduceScatter,                                                       \
                (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,  \
                 ncclComm_t comm, cudaStream_t stream),                                            \
                (send, recv, count, type, op, comm, stream))                                       \
    ENTRY_POINT(ncclResult_t, Send,                                                                \
                (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,   \
                 cudaStream_t stream),                                                             \
                (send, count, type, peer, comm, stream))                                           \
    ENTRY_POINT(ncclResult_t, Recv,                                                                \
                (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,         \
                 cudaStream_t stream),                                                             \
                (recv, count, type, peer, comm, stream))

/* One copy of NCCL, as the program reaches it. */
struct entry_points_nccl {
#define ENTRY_POINT(type, name, parameters, arguments) type(*name) parameters;
    ENTRY_POINTS_NCCL(ENTRY_POINT)
#undef ENTRY_POINT
};

/* The CUDA runtime; a library in a link namespace of its own needs the one that lies there. */
#define ENTRY_POINTS_CUDA(ENTRY_POINT)                                                             \
    ENTRY_POINT(cudaSetDevice, (int device))                                                       \
    ENTRY_POINT(cudaMalloc, (void **memory, size_t size))                                          \
    ENTRY_POINT(cudaFree, (void *memory))                                                          \
    ENTRY_POINT(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags))                \
    ENTRY_POINT(cudaStreamDestroy, (cudaStream_t stream))                                          \
    ENTRY_POINT(cudaStreamSynchronize, (cudaStream_t stream))                                      \
    ENTRY_POINT(cudaMemcpy, (void *to, const void *from, size_t size, enum cudaMemcpyKind kind))

struct entry_points_cuda {
#define ENTRY_POINT(name, parameters) cudaError_t(*name) parameters;
    ENTRY_POINTS_CUDA(ENTRY_POINT)
#undef ENTRY_POINT
};

/* Of a plugin that is linked with NCCL: its own calls, by ordinary symbols. */
void entry_points_linked(struct entry_points_nccl *ret_nccl);

/* Of a plugin that looks NCCL up by itself, from its own place in the link map. `how` is "handle"
 * (of the library at `path`), "next" (RTLD_NEXT) or "default" (RTLD_DEFAULT). NULL, or what went
 * wrong. */
const char *entry_points_seek(const char *how, const char *path,
                              struct entry_points_nccl *ret_nccl);

#endif
