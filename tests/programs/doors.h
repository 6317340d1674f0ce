/* What the programs of the door tests share: the NCCL functions that they fetch, each by its name,
 * and the plugins through which they fetch them. */
#ifndef TESTS_PROGRAMS_DOORS_H
#define TESTS_PROGRAMS_DOORS_H

#include <cuda_runtime_api.h>
#include <nccl.h>

/* DOOR(type, name without "nccl", parameters, arguments) */
#define DOORS_NCCL(DOOR)                                                                           \
    DOOR(ncclResult_t, GetVersion, (int *version), (version))                                      \
    DOOR(const char *, GetErrorString, (ncclResult_t result), (result))                            \
    DOOR(const char *, GetLastError, (ncclComm_t comm), (comm))                                    \
    DOOR(ncclResult_t, GetUniqueId, (ncclUniqueId * id), (id))                                     \
    DOOR(ncclResult_t, CommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank),   \
         (comm, nranks, id, rank))                                                                 \
    DOOR(ncclResult_t, CommSplit,                                                                  \
         (ncclComm_t comm, int color, int key, ncclComm_t *child, ncclConfig_t *config),           \
         (comm, color, key, child, config))                                                        \
    DOOR(ncclResult_t, CommCount, (const ncclComm_t comm, int *count), (comm, count))              \
    DOOR(ncclResult_t, CommUserRank, (const ncclComm_t comm, int *rank), (comm, rank))             \
    DOOR(ncclResult_t, CommGetAsyncError, (ncclComm_t comm, ncclResult_t * error), (comm, error))  \
    DOOR(ncclResult_t, CommFinalize, (ncclComm_t comm), (comm))                                    \
    DOOR(ncclResult_t, CommDestroy, (ncclComm_t comm), (comm))                                     \
    DOOR(ncclResult_t, GroupStart, (void), ())                                                     \
    DOOR(ncclResult_t, GroupEnd, (void), ())                                                       \
    DOOR(ncclResult_t, AllReduce,                                                                  \
         (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,         \
          ncclComm_t comm, cudaStream_t stream),                                                   \
         (send, recv, count, type, op, comm, stream))                                              \
    DOOR(ncclResult_t, Broadcast,                                                                  \
         (const void *send, void *recv, size_t count, ncclDataType_t type, int root,               \
          ncclComm_t comm, cudaStream_t stream),                                                   \
         (send, recv, count, type, root, comm, stream))                                            \
    DOOR(ncclResult_t, Bcast,                                                                      \
         (void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,              \
          cudaStream_t stream),                                                                    \
         (buffer, count, type, root, comm, stream))                                                \
    DOOR(ncclResult_t, Reduce,                                                                     \
         (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,         \
          int root, ncclComm_t comm, cudaStream_t stream),                                         \
         (send, recv, count, type, op, root, comm, stream))                                        \
    DOOR(ncclResult_t, AllGather,                                                                  \
         (const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,        \
          cudaStream_t stream),                                                                    \
         (send, recv, count, type, comm, stream))                                                  \
    DOOR(ncclResult_t, ReduceScatter,                                                              \
         (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,         \
          ncclComm_t comm, cudaStream_t stream),                                                   \
         (send, recv, count, type, op, comm, stream))                                              \
    DOOR(ncclResult_t, Send,                                                                       \
         (const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,          \
          cudaStream_t stream),                                                                    \
         (send, count, type, peer, comm, stream))                                                  \
    DOOR(ncclResult_t, Recv,                                                                       \
         (void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,                \
          cudaStream_t stream),                                                                    \
         (recv, count, type, peer, comm, stream))

/* One copy of NCCL, as the program reaches it. */
struct doors_nccl {
#define DOOR(type, name, parameters, arguments) type(*name) parameters;
    DOORS_NCCL(DOOR)
#undef DOOR
};

/* The CUDA runtime; a library in a link namespace of its own needs the one that lies there. */
#define DOORS_CUDA(DOOR)                                                                           \
    DOOR(cudaSetDevice, (int device))                                                              \
    DOOR(cudaMalloc, (void **memory, size_t size))                                                 \
    DOOR(cudaFree, (void *memory))                                                                 \
    DOOR(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags))                       \
    DOOR(cudaStreamDestroy, (cudaStream_t stream))                                                 \
    DOOR(cudaStreamSynchronize, (cudaStream_t stream))                                             \
    DOOR(cudaMemcpy, (void *to, const void *from, size_t size, enum cudaMemcpyKind kind))

struct doors_cuda {
#define DOOR(name, parameters) cudaError_t(*name) parameters;
    DOORS_CUDA(DOOR)
#undef DOOR
};

/* Of a plugin that is linked with NCCL: its own calls, by ordinary symbols. */
void doors_linked(struct doors_nccl *ret_nccl);

/* Of a plugin that looks NCCL up by itself, from its own place in the link map. `how` is "handle"
 * (of the library at `path`), "next" (RTLD_NEXT) or "default" (RTLD_DEFAULT). NULL, or what went
 * wrong. */
const char *doors_seek(const char *how, const char *path, struct doors_nccl *ret_nccl);

#endif
