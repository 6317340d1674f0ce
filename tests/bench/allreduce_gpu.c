/*
 * All-reduce of float over a range of sizes on real (or stand-in) GPUs, one process per rank: host
 * time to enqueue, time back to back, latency; with --replays those of a CUDA graph of 100 calls
 * instead, per launch, up to REPLAY_BYTES_MAX.
 *
 * RANK, WORLD_SIZE and LOCAL_RANK say who this process is; the unique id goes through a file in the
 * folder --rendezvous. Knows nothing of the guard, except in the mode `inprocess`, where bursts of
 * calls through the ordinary symbol alternate with bursts of calls that go straight into the
 * library (its pncclAllReduce), on the same communicator.
 *
 * For each size and kind rank 0 prints one JSON line per arm: the median over the repetitions, and
 * each repetition.
 */
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/bench/figures.h"

#define CUDA(call)                                                                                 \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess)                                                                 \
            fail(__LINE__, #call, cudaGetErrorString(error_));                                     \
    } while (0)

#define NCCL(call)                                                                                 \
    do {                                                                                           \
        ncclResult_t result_ = (call);                                                             \
        if (result_ != ncclSuccess)                                                                \
            fail(__LINE__, #call, ncclGetErrorString(result_));                                    \
    } while (0)

typedef __typeof__(&ncclAllReduce) all_reduce_function;

enum kind { KIND_ENQUEUE, KIND_BACK_TO_BACK, KIND_LATENCY, KINDS };

#define REPLAY_CALLS     100
#define REPLAY_BYTES_MAX ((size_t)256 << 10)

static const char *const kind_names[KINDS] = {"enqueue", "back_to_back", "latency"};

struct arm {
    const char *name;
    all_reduce_function all_reduce;
    cudaGraphExec_t graph; /* NULL: its calls are made, not replayed */
};

#define MAX_ARMS 3
#define MAX_REPS 1000

struct bench {
    int rank, nranks, device;
    ncclComm_t comm;
    cudaStream_t stream;
    float *send, *recv;
    struct arm arms[MAX_ARMS];
    int narms;
};

struct settings {
    const char *rendezvous;
    bool inprocess, replays;
    unsigned instantiate; /* flags of cudaGraphInstantiate */
    size_t min_bytes, max_bytes;
    int reps;
    int divide;
};

static int rank_for_messages;

static void fail(int line, const char *call, const char *text)
{
    fprintf(stderr, "rank %d: allreduce_gpu.c:%d %s: %s\n", rank_for_messages, line, call, text);
    exit(3);
}

static int environment_number(const char *name)
{
    const char *value = getenv(name);
    if (!value) {
        fprintf(stderr, "allreduce_gpu: %s is not set: start it with run-gpu-compare\n", name);
        exit(2);
    }
    return atoi(value);
}

/* Rank 0 writes the id under a temporary name and renames it; the others look until it is there. */
static ncclUniqueId exchange_id(const struct bench *bench, const char *folder)
{
    ncclUniqueId id;
    char path[3072], temporary[4096];
    snprintf(path, sizeof(path), "%s/unique_id", folder);
    if (bench->rank == 0) {
        NCCL(ncclGetUniqueId(&id));
        snprintf(temporary, sizeof(temporary), "%s.new", path);
        int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, &id, sizeof(id)) != (ssize_t)sizeof(id) || close(fd) ||
            rename(temporary, path))
            fail(__LINE__, path, strerror(errno));
        return id;
    }
    for (double deadline = bench_now_us() + 60e6;;) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            if (read(fd, &id, sizeof(id)) != (ssize_t)sizeof(id))
                fail(__LINE__, path, "cut off");
            close(fd);
            return id;
        }
        if (bench_now_us() > deadline)
            fail(__LINE__, path, "rank 0 wrote no unique id within 60 s");
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
}

static const char *object_of(void *address)
{
    Dl_info info;
    return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

/* The library's own function, past whatever is preloaded. The profiling name goes first: a guard
 * that answers dlsym may answer for the ordinary one. */
static all_reduce_function find_bare(void)
{
    void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        fail(__LINE__, "dlopen(libnccl.so.2, RTLD_NOLOAD)", dlerror());
    void *function = dlsym(library, "pncclAllReduce");
    if (!function)
        function = dlsym(library, "ncclAllReduce");
    if (!function)
        fail(__LINE__, "dlsym", dlerror());
    if (!strstr(object_of(function), "nccl.so"))
        fail(__LINE__, object_of(function), "is not NCCL: no way past the preloaded library");
    return (all_reduce_function)function;
}

static void choose_arms(struct bench *bench, bool inprocess)
{
    bool preloaded = !strstr(object_of((void *)ncclAllReduce), "nccl.so");
    if (!inprocess) {
        bench->arms[bench->narms++] =
            (struct arm){.name = preloaded ? "guarded" : "bare", .all_reduce = ncclAllReduce};
        return;
    }
    if (!preloaded)
        fail(__LINE__, "--inprocess", "nothing is preloaded: there is nothing to compare with");
    all_reduce_function bare = find_bare();
    bench->arms[bench->narms++] = (struct arm){.name = "bare", .all_reduce = bare};
    bench->arms[bench->narms++] = (struct arm){.name = "guarded", .all_reduce = ncclAllReduce};
    /* The same again: its difference from the first is the noise. */
    bench->arms[bench->narms++] = (struct arm){.name = "bare_again", .all_reduce = bare};
}

static void call(const struct bench *bench, const struct arm *arm, size_t count)
{
    NCCL(arm->all_reduce(bench->send, bench->recv, count, ncclFloat32, ncclSum, bench->comm,
                         bench->stream));
}

static void call_or_launch(const struct bench *bench, const struct arm *arm, size_t count)
{
    if (arm->graph)
        CUDA(cudaGraphLaunch(arm->graph, bench->stream));
    else
        call(bench, arm, count);
}

static void capture(const struct bench *bench, struct arm *arm, size_t count, unsigned flags)
{
    cudaGraph_t graph;

    CUDA(cudaStreamBeginCapture(bench->stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < REPLAY_CALLS; i++)
        call(bench, arm, count);
    CUDA(cudaStreamEndCapture(bench->stream, &graph));
    CUDA(cudaGraphInstantiate(&arm->graph, graph, flags));
    CUDA(cudaGraphDestroy(graph));
}

/* All ranks have come, and nothing is queued. */
static void meet(const struct bench *bench, const struct arm *arm)
{
    call(bench, arm, 1);
    CUDA(cudaStreamSynchronize(bench->stream));
}

static int calls_for(enum kind kind, size_t bytes, int divide)
{
    static const struct {
        size_t bytes; /* up to this size */
        int calls[KINDS];
    } table[] = {
        {256 << 10, {200, 1000, 200}},
        {2 << 20, {200, 200, 50}},
        {16 << 20, {100, 50, 50}},
        {SIZE_MAX, {30, 20, 10}},
    };
    int row = 0;
    while (bytes > table[row].bytes)
        row++;
    int calls = table[row].calls[kind] / divide;
    return calls < 2 ? 2 : calls;
}

/* Microseconds a call, or a launch. */
static double measure(const struct bench *bench, const struct arm *arm, enum kind kind,
                      size_t count, int calls)
{
    meet(bench, arm);
    double start = bench_now_us();
    for (int i = 0; i < calls; i++) {
        call_or_launch(bench, arm, count);
        if (kind == KIND_LATENCY)
            CUDA(cudaStreamSynchronize(bench->stream));
    }
    double enqueued = bench_now_us();
    CUDA(cudaStreamSynchronize(bench->stream));
    return ((kind == KIND_ENQUEUE ? enqueued : bench_now_us()) - start) / calls;
}

static void print(const struct arm *arm, enum kind kind, size_t bytes, int calls, const double *us,
                  int reps)
{
    double sorted[MAX_REPS];
    memcpy(sorted, us, (size_t)reps * sizeof(double));
    printf("{\"bytes\": %zu, \"kind\": \"%s\", \"arm\": \"%s\", \"calls\": %d, "
           "\"median_us\": %.4f, \"reps_us\": [",
           bytes, kind_names[kind], arm->name, calls, bench_median(sorted, (size_t)reps));
    for (int i = 0; i < reps; i++)
        printf("%s%.4f", i ? ", " : "", us[i]);
    printf("]}\n");
    fflush(stdout);
}

static void run_size(struct bench *bench, const struct settings *settings, size_t bytes)
{
    static double us[KINDS][MAX_ARMS][MAX_REPS];
    size_t count = bytes / sizeof(float);
    int divide = settings->divide * (settings->replays ? 10 : 1);

    if (settings->replays && bytes > REPLAY_BYTES_MAX)
        return;
    for (int i = 0; i < bench->narms; i++) {
        if (settings->replays)
            capture(bench, &bench->arms[i], count, settings->instantiate);
        for (int warm = 0; warm < 10; warm++)
            call_or_launch(bench, &bench->arms[i], count);
    }
    CUDA(cudaStreamSynchronize(bench->stream));

    for (int rep = 0; rep < settings->reps; rep++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int i = 0; i < bench->narms; i++) {
                /* Forth, then back: what drifts hits all arms alike. */
                int arm = rep % 2 ? bench->narms - 1 - i : i;
                us[kind][arm][rep] = measure(bench, &bench->arms[arm], (enum kind)kind, count,
                                             calls_for((enum kind)kind, bytes, divide));
            }

    if (bench->rank == 0)
        for (int kind = 0; kind < KINDS; kind++)
            for (int arm = 0; arm < bench->narms; arm++)
                print(&bench->arms[arm], (enum kind)kind, bytes,
                      calls_for((enum kind)kind, bytes, divide), us[kind][arm], settings->reps);
    for (int i = 0; i < bench->narms && settings->replays; i++) {
        CUDA(cudaGraphExecDestroy(bench->arms[i].graph));
        bench->arms[i].graph = NULL;
    }
}

/* A benchmark of a library that does not reduce would be worth nothing. */
static void check_sums(const struct bench *bench)
{
    enum { COUNT = 1024 };
    static float host[COUNT];
    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(bench->rank + 1 + i);
    CUDA(cudaMemcpy(bench->send, host, sizeof(host), cudaMemcpyHostToDevice));
    call(bench, &bench->arms[0], COUNT);
    CUDA(cudaStreamSynchronize(bench->stream));
    CUDA(cudaMemcpy(host, bench->recv, sizeof(host), cudaMemcpyDeviceToHost));
    int n = bench->nranks;
    for (int i = 0; i < COUNT; i++)
        if (host[i] != (float)(n * (n + 1) / 2 + n * i))
            fail(__LINE__, "all-reduce", "wrong sum");
}

static size_t number(const char *text)
{
    char *end;
    unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end) {
        fprintf(stderr, "allreduce_gpu: not a number: %s\n", text);
        exit(2);
    }
    return (size_t)value;
}

static void parse(struct settings *settings, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--inprocess")) {
            settings->inprocess = true;
            continue;
        }
        if (!strcmp(argv[i], "--replays")) {
            settings->replays = true;
            continue;
        }
        if (value && !strcmp(argv[i], "--rendezvous"))
            settings->rendezvous = value;
        else if (value && !strcmp(argv[i], "--min-bytes"))
            settings->min_bytes = number(value);
        else if (value && !strcmp(argv[i], "--max-bytes"))
            settings->max_bytes = number(value);
        else if (value && !strcmp(argv[i], "--reps"))
            settings->reps = (int)number(value);
        else if (value && !strcmp(argv[i], "--instantiate"))
            settings->instantiate = (unsigned)number(value);
        else if (value && !strcmp(argv[i], "--divide"))
            settings->divide = (int)number(value);
        else {
            fprintf(stderr, "usage: allreduce_gpu --rendezvous DIR [--inprocess] [--replays "
                            "[--instantiate FLAGS]] "
                            "[--min-bytes N] [--max-bytes N] [--reps N] [--divide N]\n");
            exit(2);
        }
        i++;
    }
    if (!settings->rendezvous || settings->reps < 1 || settings->reps > MAX_REPS ||
        settings->divide < 1 || settings->min_bytes < 8 ||
        settings->max_bytes < settings->min_bytes) {
        fprintf(stderr,
                "allreduce_gpu: --rendezvous is needed; --reps 1 to %d; --divide from 1; "
                "sizes from 8\n",
                MAX_REPS);
        exit(2);
    }
}

int main(int argc, char **argv)
{
    struct settings settings = {
        .min_bytes = 8, .max_bytes = (size_t)256 << 20, .reps = 11, .divide = 1};
    struct bench bench = {0};
    parse(&settings, argc, argv);
    bench.rank = rank_for_messages = environment_number("RANK");
    bench.nranks = environment_number("WORLD_SIZE");
    bench.device = environment_number("LOCAL_RANK");

    size_t room = settings.max_bytes < 4096 ? 4096 : settings.max_bytes;
    CUDA(cudaSetDevice(bench.device));
    CUDA(cudaStreamCreateWithFlags(&bench.stream, cudaStreamNonBlocking));
    CUDA(cudaMalloc((void **)&bench.send, room));
    CUDA(cudaMalloc((void **)&bench.recv, room));
    CUDA(cudaMemset(bench.send, 0, room));
    CUDA(cudaDeviceSynchronize());

    ncclUniqueId id = exchange_id(&bench, settings.rendezvous);
    NCCL(ncclCommInitRank(&bench.comm, bench.nranks, id, bench.rank));
    choose_arms(&bench, settings.inprocess);
    check_sums(&bench);

    if (bench.rank == 0) {
        int version = 0;
        NCCL(ncclGetVersion(&version));
        printf("{\"nccl_version\": %d, \"nccl\": \"%s\", \"symbol\": \"%s\", \"ranks\": %d}\n",
               version, object_of((void *)find_bare()), object_of((void *)ncclAllReduce),
               bench.nranks);
    }

    for (size_t bytes = settings.min_bytes; bytes < settings.max_bytes; bytes *= 8)
        run_size(&bench, &settings, bytes);
    run_size(&bench, &settings, settings.max_bytes);

    NCCL(ncclCommDestroy(bench.comm));
    CUDA(cudaFree(bench.send));
    CUDA(cudaFree(bench.recv));
    CUDA(cudaStreamDestroy(bench.stream));
    return 0;
}
