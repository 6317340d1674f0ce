/*
 * One process, several devices, two NCCL libraries: all-reduces in turn through each, checked.
 *
 *   two_versions LIBNCCL LIBNCCL [--devices N] [--iters N] [--count N]
 *
 * Both are loaded with RTLD_LOCAL and reached by dlsym alone. Prints "library I version V" and, for
 * each device of each library, "rank R library I ok calls=N checksum=…".
 */
#include "tests/programs/data.h"
#include "tests/programs/device.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARIES   2
#define DEVICES_MAX 16
#define LIMIT_S     120

struct member {
    ncclComm_t comm;
    cudaStream_t stream;
    float *host_in, *host_out;
    void *device_in, *device_out;
    uint64_t checksum;
    unsigned long calls;
};

struct library {
    int version;
    __typeof__(&ncclGetVersion) get_version;
    __typeof__(&ncclGetErrorString) get_error_string;
    __typeof__(&ncclCommInitAll) comm_init_all;
    __typeof__(&ncclCommDestroy) comm_destroy;
    __typeof__(&ncclGroupStart) group_start;
    __typeof__(&ncclGroupEnd) group_end;
    __typeof__(&ncclAllReduce) all_reduce;
    struct member members[DEVICES_MAX];
};

_Thread_local int fail_rank;

void fail(const char *file, int line, const char *call, const char *text)
{
    fprintf(stderr, "rank %d: %s:%d %s: %s\n", fail_rank, file, line, call, text);
    exit(3);
}

#define NCCL(library, call)                                                                        \
    do {                                                                                           \
        ncclResult_t result_ = (library)->call;                                                    \
        if (result_ != ncclSuccess)                                                                \
            fail(__FILE__, __LINE__, #call, (library)->get_error_string(result_));                 \
    } while (0)

static void *need(void *handle, const char *name)
{
    void *symbol = dlsym(handle, name);
    if (!symbol)
        fail(__FILE__, __LINE__, name, dlerror());
    return symbol;
}

static void load(struct library *library, const char *path, int number)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fail(__FILE__, __LINE__, "dlopen", dlerror());
    library->get_version = need(handle, "ncclGetVersion");
    library->get_error_string = need(handle, "ncclGetErrorString");
    library->comm_init_all = need(handle, "ncclCommInitAll");
    library->comm_destroy = need(handle, "ncclCommDestroy");
    library->group_start = need(handle, "ncclGroupStart");
    library->group_end = need(handle, "ncclGroupEnd");
    library->all_reduce = need(handle, "ncclAllReduce");
    NCCL(library, get_version(&library->version));
    printf("library %d version %d\n", number, library->version);
}

static void join(struct library *library, int devices, size_t count)
{
    ncclComm_t comms[DEVICES_MAX];
    NCCL(library, comm_init_all(comms, devices, NULL));
    for (int rank = 0; rank < devices; rank++) {
        struct member *member = &library->members[rank];
        device_use(rank);
        member->comm = comms[rank];
        member->stream = device_stream_create();
        member->host_in = device_host_alloc(count * sizeof(float));
        member->host_out = device_host_alloc(count * sizeof(float));
        member->device_in = device_alloc(count * sizeof(float));
        member->device_out = device_alloc(count * sizeof(float));
    }
}

/* One all-reduce over all devices, and its check. Another library's kernels are not on the devices
 * meanwhile: two of them that wait for each other's place would never finish. */
static void all_reduce(struct library *library, int devices, size_t count, uint64_t tag)
{
    struct stream_of_values values = {.seed = 7, .tag = tag, .dtype = ncclFloat, .redop = ncclSum};

    for (int rank = 0; rank < devices; rank++) {
        struct member *member = &library->members[rank];
        device_use(rank);
        data_fill(member->host_in, &values, rank, count);
        device_copy_in(member->device_in, member->host_in, count * sizeof(float), member->stream);
    }
    NCCL(library, group_start());
    for (int rank = 0; rank < devices; rank++) {
        struct member *member = &library->members[rank];
        NCCL(library, all_reduce(member->device_in, member->device_out, count, ncclFloat, ncclSum,
                                 member->comm, member->stream));
    }
    NCCL(library, group_end());
    for (int rank = 0; rank < devices; rank++) {
        struct member *member = &library->members[rank];
        fail_rank = rank;
        device_use(rank);
        device_copy_out(member->host_out, member->device_out, count * sizeof(float),
                        member->stream);
        device_stream_sync(member->stream);
        for (size_t i = 0; i < count; i++)
            if (member->host_out[i] != (float)data_reduce(&values, devices, i))
                fail(__FILE__, __LINE__, "ncclAllReduce", "wrong data");
        member->checksum = data_checksum(member->checksum, member->host_out, count * sizeof(float));
        member->calls++;
    }
}

static unsigned long number(const char *name, const char *text, unsigned long max)
{
    char *end;
    unsigned long value = text ? strtoul(text, &end, 10) : 0;
    if (!text || *end || value < 1 || value > max) {
        fprintf(stderr, "two_versions: %s wants a number from 1 to %lu\n", name, max);
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    static struct library libraries[LIBRARIES];
    unsigned long devices = 2, iters = 20, count = 4096;

    if (argc < 1 + LIBRARIES) {
        fprintf(stderr,
                "usage: two_versions LIBNCCL LIBNCCL [--devices N] [--iters N] [--count N]\n");
        return 2;
    }
    for (int i = 1 + LIBRARIES; i < argc; i += 2) {
        if (strcmp(argv[i], "--devices") == 0)
            devices = number(argv[i], argv[i + 1], DEVICES_MAX);
        else if (strcmp(argv[i], "--iters") == 0)
            iters = number(argv[i], argv[i + 1], 1000000);
        else if (strcmp(argv[i], "--count") == 0)
            count = number(argv[i], argv[i + 1], 1 << 28);
        else {
            fprintf(stderr, "two_versions: unknown option %s\n", argv[i]);
            return 2;
        }
    }
    alarm(LIMIT_S);
    if ((int)devices > device_count()) {
        fprintf(stderr, "two_versions: --devices %lu: there are %d\n", devices, device_count());
        return 2;
    }
    for (int i = 0; i < LIBRARIES; i++)
        load(&libraries[i], argv[1 + i], i);
    if (libraries[0].version == libraries[1].version) {
        fprintf(stderr, "two_versions: both libraries are %d\n", libraries[0].version);
        return 2;
    }
    for (int i = 0; i < LIBRARIES; i++)
        join(&libraries[i], (int)devices, count);
    for (unsigned long iteration = 0; iteration < iters; iteration++)
        for (int i = 0; i < LIBRARIES; i++)
            all_reduce(&libraries[i], (int)devices, count, iteration * LIBRARIES + (unsigned)i);
    for (int i = 0; i < LIBRARIES; i++)
        for (int rank = 0; rank < (int)devices; rank++) {
            struct member *member = &libraries[i].members[rank];
            device_use(rank);
            NCCL(&libraries[i], comm_destroy(member->comm));
            device_stream_destroy(member->stream);
            device_free(member->device_in);
            device_free(member->device_out);
            device_host_free(member->host_in);
            device_host_free(member->host_out);
            printf("rank %d library %d ok calls=%lu checksum=%016" PRIx64 "\n", rank, i,
                   member->calls, member->checksum);
        }
    return 0;
}
