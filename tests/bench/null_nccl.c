/*
 * A NCCL that does nothing and succeeds: what is left of a program's time is its own and the
 * guard's.
 *
 * Has what the benchmarks call and what the guard asks a communicator, each function with its
 * profiling twin (pncclX). Communicators remember who they are and nothing else; unique ids differ.
 *
 * With NULL_NCCL_CHANNELS=N it also launches as NCCL 2.28.9 does: one kernel on N channels, with
 * one work each, and one event for each call outside of groups and for each group.
 */
#pragma GCC visibility push(default)

#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CHANNELS_MAX 64

struct ncclComm {
    int nranks, rank;
    /* ncclDevKernelArgs and ncclDevWorkBatch, src/include/device.h. */
    struct {
        void *comm;
        uint64_t channels;
        uint8_t storage_type;
        uint32_t work_mask;
        void *works;
        struct {
            uint32_t flags, base;
            uint64_t bits;
        } batches[CHANNELS_MAX];
    } arguments;
};

/* ---- launches ---- */

static unsigned channels; /* 0: nothing is launched */
static __typeof__(&cuLaunchKernelEx) launch_kernel;
static __typeof__(&cuEventRecord) record_event;

static void find_driver(void)
{
    const char *text = getenv("NULL_NCCL_CHANNELS");
    unsigned wanted = text ? (unsigned)atoi(text) : 0;
    void *handle = wanted ? dlopen("libcuda.so.1", RTLD_LAZY) : NULL;
    __typeof__(&cuGetProcAddress_v2) ask =
        handle ? (__typeof__(ask))dlsym(handle, "cuGetProcAddress_v2") : NULL;

    if (!wanted || channels)
        return;
    if (wanted > CHANNELS_MAX || !ask ||
        ask("cuLaunchKernelEx", (void **)&launch_kernel, 12000, 0, NULL) != CUDA_SUCCESS ||
        ask("cuEventRecord", (void **)&record_event, 12000, 0, NULL) != CUDA_SUCCESS)
        abort();
    channels = wanted;
}

static void prepare_launches(ncclComm_t comm)
{
    find_driver();
    if (!channels)
        return;
    comm->arguments.comm = comm; /* stands for its structure on the device */
    comm->arguments.channels = UINT64_MAX >> (CHANNELS_MAX - channels);
    for (unsigned i = 0; i < channels; i++)
        comm->arguments.batches[i].bits = 1;
}

static __attribute__((noinline)) void launch(ncclComm_t comm, cudaStream_t stream)
{
    size_t bytes = offsetof(__typeof__(comm->arguments), batches) +
                   channels * sizeof(comm->arguments.batches[0]);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &comm->arguments, CU_LAUNCH_PARAM_BUFFER_SIZE,
                     &bytes, CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = {.gridDimX = channels, .hStream = (CUstream)stream};

    launch_kernel(&config, NULL, NULL, extra);
    record_event(NULL, (CUstream)stream);
}

/* Calls of the open group: its launch. */
static __thread struct {
    unsigned depth;
    ncclComm_t comm;
    cudaStream_t stream;
} group __attribute__((tls_model("initial-exec")));

static inline void call(ncclComm_t comm, cudaStream_t stream)
{
    if (!channels)
        return;
    group.comm = comm;
    group.stream = stream;
    if (!group.depth)
        launch(comm, stream);
}

static inline void end_group(void)
{
    if (channels && --group.depth == 0)
        launch(group.comm, group.stream);
}

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
    prepare_launches(*comm);
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
      ncclComm_t comm, cudaStream_t stream),
     call(comm, stream));
TELL(ncclSend,
     (const void *send, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
      cudaStream_t stream),
     call(comm, stream));
TELL(ncclRecv,
     (void *recv, size_t count, ncclDataType_t dtype, int peer, ncclComm_t comm,
      cudaStream_t stream),
     call(comm, stream));
TELL(ncclGroupStart, (void), group.depth += channels != 0);
TELL(ncclGroupEnd, (void), end_group());
