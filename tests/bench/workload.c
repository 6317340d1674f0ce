/* The workloads of the host benchmarks. */
#include "tests/bench/workload.h"

#include "core/nccl/cuda.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const workload_names[WORKLOADS] = {
    [WORKLOAD_ALLREDUCE] = "allreduce",
    [WORKLOAD_SENDRECV] = "sendrecv",
    [WORKLOAD_ROTATE] = "rotate",
};

int workload_find(const char *name)
{
    for (int i = 0; i < WORKLOADS; i++)
        if (!strcmp(name, workload_names[i]))
            return i;
    return -1;
}

int workload_load_driver(void)
{
    static const char *const names[] = {
#define DRIVER_NAME(field, name, prototype) name,
        NG_CUDA_FUNCTIONS(DRIVER_NAME)
#undef DRIVER_NAME
    };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        return -1;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (!dlsym(driver, names[i])) {
            fprintf(stderr, "libcuda.so.1 lacks %s, which core/nccl/cuda.h asks for\n", names[i]);
            return -1;
        }
    return 0;
}

static void check(ncclResult_t result, const char *call)
{
    if (result != ncclSuccess) {
        fprintf(stderr, "%s: %s\n", call, ncclGetErrorString(result));
        exit(3);
    }
}

void workload_create(ncclComm_t *ret_comms, int count)
{
    for (int i = 0; i < count; i++) {
        ncclUniqueId id;
        check(ncclGetUniqueId(&id), "ncclGetUniqueId");
        check(ncclCommInitRank(&ret_comms[i], 2, id, 0), "ncclCommInitRank");
    }
}

void workload_destroy(ncclComm_t *comms, int count)
{
    for (int i = 0; i < count; i++)
        check(ncclCommDestroy(comms[i]), "ncclCommDestroy");
}

#define STREAM ((cudaStream_t)(uintptr_t)0x5000)
#define SEND   ((const void *)(uintptr_t)0x100000)
#define RECV   ((void *)(uintptr_t)0x200000)
#define COUNT  256

static void all_reduce(ncclComm_t comm)
{
    ncclAllReduce(SEND, RECV, COUNT, ncclFloat32, ncclSum, comm, STREAM);
}

void workload_run(enum workload workload, const ncclComm_t *comms, int ncomms, unsigned calls)
{
    switch (workload) {
    case WORKLOAD_ALLREDUCE:
        for (unsigned i = 0; i < calls; i++)
            all_reduce(comms[0]);
        break;
    case WORKLOAD_SENDRECV:
        for (unsigned i = 0; i < calls; i++) {
            ncclGroupStart();
            ncclSend(SEND, COUNT, ncclFloat32, 1, comms[0], STREAM);
            ncclRecv(RECV, COUNT, ncclFloat32, 1, comms[0], STREAM);
            ncclGroupEnd();
        }
        break;
    case WORKLOAD_ROTATE:
        for (unsigned i = 0, at = 0; i < calls; i++) {
            all_reduce(comms[at]);
            if (++at == (unsigned)ncomms)
                at = 0;
        }
        break;
    case WORKLOADS:
        abort();
    }
}
