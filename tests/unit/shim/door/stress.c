/*
 * Many threads load libraries, look names up in them and let go of them, while collectives run and,
 * if asked for, the process forks: every answer is right, and every call reaches its own copy of
 * NCCL.
 *
 *   door_stress [--threads N] [--rounds N] [--seconds N] [--forks N] FOLDER
 *
 * FOLDER holds, for each number from 0 to 9, a copy of NCCL as N/libnccl.so.N and a plugin that is
 * linked with it as N/libstress.so; and libdoor_versions.so. Ends after so many rounds of each
 * thread, or so many seconds. Prints one line, the same with the guard preloaded as without; exits
 * with 0 when each check held. The first that did not is told on stderr.
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <nccl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COPIES   10 /* two more than the guard has room for */
#define IN_USE   8  /* with communicators, from the start to the end */
#define PAIRS    4  /* of these have two ranks */
#define ELEMENTS 64
#define CHECK_AT 16 /* look-up rounds between two glances at the clock */

static const char *folder;
static char copy_path[COPIES][PATH_MAX], plugin_path[COPIES][PATH_MAX], versions_path[PATH_MAX];
static unsigned thread_count = 64, rounds = 400, seconds = 10, forks;
static struct timespec deadline;
static bool failed;
static pthread_barrier_t ready;

__attribute__((format(printf, 1, 2))) static void fail(const char *format, ...)
{
    char line[1000];
    va_list arguments;

    if (__atomic_exchange_n(&failed, true, __ATOMIC_SEQ_CST))
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    fprintf(stderr, "not ok %s\n", line);
}

static bool is_over(void)
{
    struct timespec now;

    if (__atomic_load_n(&failed, __ATOMIC_RELAXED))
        return true;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > deadline.tv_sec ||
           (now.tv_sec == deadline.tv_sec && now.tv_nsec >= deadline.tv_nsec);
}

/* Whether a string of NCCL's lies in the copy. */
static bool is_in_copy(const char *string, unsigned copy)
{
    Dl_info info;

    return string && dladdr(string, &info) && info.dli_fname &&
           strcmp(info.dli_fname, copy_path[copy]) == 0;
}

/* The error of a look-up that has just failed. */
static void check_error(void *found, const char *path, const char *name, const char *version)
{
    char expected[PATH_MAX + 100];
    const char *error = dlerror();

    snprintf(expected, sizeof(expected), "%s: undefined symbol: %s%s%s", path, name,
             version ? ", version " : "", version ? version : "");
    if (found)
        fail("%s is found in %s", name, path);
    else if (!error || strcmp(error, expected) != 0)
        fail("the error is \"%s\", expected: \"%s\"", error ? error : "(nothing)", expected);
}

static void *open_library(const char *path, int mode)
{
    void *handle = dlopen(path, RTLD_NOW | mode);
    const char *error;

    if (!handle) {
        error = dlerror();
        fail("dlopen: %s", error ? error : "(nothing)");
    }
    return handle;
}

/* ---- Looking up ---- */

static void use_copy(unsigned copy)
{
    void *handle = open_library(copy_path[copy], RTLD_LOCAL);
    const char *(*get_string)(ncclResult_t);
    ncclResult_t (*get_version)(int *);
    int version = 0;
    void *found;

    if (!handle)
        return;
    *(void **)&get_string = dlsym(handle, "ncclGetErrorString");
    *(void **)&get_version = dlsym(handle, "ncclGetVersion");
    if (!get_string || !is_in_copy(get_string(ncclSuccess), copy))
        fail("a string of copy %u lies elsewhere", copy);
    if (!get_version || get_version(&version) != ncclSuccess || version < 22600)
        fail("copy %u is of version %d", copy, version);
    if (dlerror())
        fail("an error after success");
    found = dlsym(handle, "ncclNothing");
    check_error(found, copy_path[copy], "ncclNothing", NULL);
    dlclose(handle);
}

static void use_plugin(unsigned copy)
{
    void *handle = open_library(plugin_path[copy], RTLD_LOCAL);
    const char *(*get_string)(void);
    int (*get_version)(void);

    if (!handle)
        return;
    *(void **)&get_string = dlsym(handle, "stress_plugin_string");
    *(void **)&get_version = dlsym(handle, "stress_plugin_version");
    if (!get_string || !get_version)
        fail("plugin %u lacks its functions", copy);
    else if (!is_in_copy(get_string(), copy) || get_version() < 22600)
        fail("plugin %u reached another copy", copy);
    /* Of the library that it is linked with. */
    *(void **)&get_string = dlsym(handle, "ncclGetErrorString");
    if (!get_string ||
        !is_in_copy(((const char *(*)(ncclResult_t))(void *)get_string)(ncclSuccess), copy))
        fail("through plugin %u another copy is found", copy);
    dlclose(handle);
}

static void use_unrelated(void)
{
    static const char *const names[] = {"ncclNothing", "cuNothing", "nothing", "ncclAllReduce",
                                        "cuGetProcAddress"};
    void *handle = open_library(versions_path, RTLD_LOCAL);
    int (*number)(void);

    if (!handle)
        return;
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        void *found = dlsym(handle, names[i]);

        check_error(found, versions_path, names[i], NULL);
        found = dlvsym(handle, names[i], "DOOR_1");
        check_error(found, versions_path, names[i], "DOOR_1");
    }
    *(void **)&number = dlvsym(handle, "ncclDoorNumber", "DOOR_1");
    if (!number || number() != 1)
        fail("ncclDoorNumber@DOOR_1");
    *(void **)&number = dlsym(handle, "cuDoorNumber");
    if (!number || number() != 2)
        fail("cuDoorNumber");
    dlclose(handle);
}

static void use_scopes(void)
{
    const char *error;

    if (dlsym(RTLD_DEFAULT, "malloc") != dlsym(RTLD_NEXT, "malloc") || dlerror())
        fail("malloc by default and next");
    if (dlsym(RTLD_DEFAULT, "ncclNothing") || !(error = dlerror()) || !strstr(error, "ncclNothing"))
        fail("ncclNothing by default");
    if (dlsym(RTLD_NEXT, "cuNothing") || !(error = dlerror()) || !strstr(error, "cuNothing"))
        fail("cuNothing next");
    if (dlopen("/nothing/there.so", RTLD_NOW) || !(error = dlerror()) ||
        !strstr(error, "/nothing/there.so"))
        fail("a library that is not there");
}

static void *look_up(void *seed)
{
    unsigned state = (unsigned)(uintptr_t)seed * 2654435761u + 1;

    pthread_barrier_wait(&ready);
    for (unsigned i = 0; i < rounds; i++) {
        if (i % CHECK_AT == 0 && is_over())
            break;
        state = state * 1103515245u + 12345u;
        unsigned choice = state >> 16;

        switch (choice % 4) {
        case 0:
            use_copy(choice / 4 % COPIES);
            break;
        case 1:
            use_plugin(choice / 4 % IN_USE);
            break;
        case 2:
            use_unrelated();
            break;
        default:
            use_scopes();
        }
    }
    return NULL;
}

/* ---- Collectives ---- */

static ncclUniqueId pair_id[PAIRS];

/* FUNCTION(name, parameters) */
#define FUNCTIONS(FUNCTION)                                                                        \
    FUNCTION(GetUniqueId, (ncclUniqueId *))                                                        \
    FUNCTION(CommInitRank, (ncclComm_t *, int, ncclUniqueId, int))                                 \
    FUNCTION(CommDestroy, (ncclComm_t))                                                            \
    FUNCTION(GroupStart, (void))                                                                   \
    FUNCTION(GroupEnd, (void))                                                                     \
    FUNCTION(AllReduce, (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,    \
                         cudaStream_t))

/* One rank of a communicator. Pairs come first: threads 2n and 2n+1 are the ranks of copy n. */
struct rank {
    unsigned copy;
    int rank, nranks, device;
    void *handle;
    const char *(*GetErrorString)(ncclResult_t);
#define FUNCTION(name, parameters) ncclResult_t(*name) parameters;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
};

#define RANKS (2 * PAIRS + IN_USE - PAIRS)
static struct rank ranks[RANKS];
static unsigned long collectives;

static void set_up(struct rank *rank, unsigned index)
{
    rank->copy = index < 2 * PAIRS ? index / 2 : index - PAIRS;
    rank->nranks = index < 2 * PAIRS ? 2 : 1;
    rank->rank = index < 2 * PAIRS ? (int)index % 2 : 0;
    rank->device = (int)index % 8;
    rank->handle = open_library(copy_path[rank->copy], RTLD_LOCAL);
    if (!rank->handle)
        exit(1);
#define FUNCTION(name, parameters)                                                                 \
    *(void **)&rank->name = dlsym(rank->handle, "nccl" #name);                                     \
    if (!rank->name)                                                                               \
        fail("copy %u lacks nccl" #name, rank->copy);
    FUNCTIONS(FUNCTION)
    FUNCTION(GetErrorString, )
#undef FUNCTION
}

/* Both ranks of a pair must make the same calls, so only the number of calls ends them. */
static void *collect(void *argument)
{
    struct rank *rank = argument;
    int host[ELEMENTS], *device = NULL, sum = rank->nranks * (rank->nranks + 1) / 2;
    cudaStream_t stream;
    ncclComm_t comm;
    ncclUniqueId id;
    unsigned calls = rounds / 4 + 1;

    if (rank->nranks == 2)
        id = pair_id[rank->copy];
    else if (rank->GetUniqueId(&id) != ncclSuccess)
        fail("no unique id of copy %u", rank->copy);
    if (cudaSetDevice(rank->device) != cudaSuccess || cudaStreamCreate(&stream) != cudaSuccess ||
        cudaMalloc((void **)&device, sizeof(host)) != cudaSuccess)
        fail("CUDA fails");
    if (rank->CommInitRank(&comm, rank->nranks, id, rank->rank) != ncclSuccess) {
        fail("no communicator of copy %u", rank->copy);
        pthread_barrier_wait(&ready);
        return NULL;
    }
    pthread_barrier_wait(&ready);
    for (unsigned i = 0; i < calls; i++) {
        bool grouped = i % 3 == 0;

        for (unsigned j = 0; j < ELEMENTS; j++)
            host[j] = (rank->rank + 1) * (int)(i + j);
        cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice);
        if (grouped && rank->GroupStart() != ncclSuccess)
            fail("a group does not start");
        if (rank->AllReduce(device, device, ELEMENTS, ncclInt32, ncclSum, comm, stream) !=
            ncclSuccess)
            fail("ncclAllReduce of copy %u fails", rank->copy);
        if (grouped && rank->GroupEnd() != ncclSuccess)
            fail("a group does not end");
        if (cudaStreamSynchronize(stream) != cudaSuccess)
            fail("a stream fails");
        cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost);
        for (unsigned j = 0; j < ELEMENTS; j++)
            if (host[j] != sum * (int)(i + j))
                fail("a sum of copy %u is %d, not %d", rank->copy, host[j], sum * (int)(i + j));
        if (!is_in_copy(rank->GetErrorString(ncclSuccess), rank->copy))
            fail("a call of copy %u reached another", rank->copy);
        __atomic_fetch_add(&collectives, 1, __ATOMIC_RELAXED);
    }
    if (rank->CommDestroy(comm) != ncclSuccess)
        fail("a communicator of copy %u does not end", rank->copy);
    cudaFree(device);
    cudaStreamDestroy(stream);
    return NULL;
}

/* ---- Forking ---- */

/* What a child of a process with threads may do: calls that take no lock, and leave. */
static void *fork_often(void *unused)
{
    pthread_barrier_wait(&ready);
    for (unsigned i = 0; i < forks && !is_over(); i++) {
        pid_t child = fork(), ended;
        int status = 0;

        if (child == 0)
            _exit(is_in_copy(ranks[0].GetErrorString(ncclSuccess), 0) ? 7 : 1);
        if (child < 0) {
            fail("fork: %s", strerror(errno));
            break;
        }
        do
            ended = waitpid(child, &status, 0);
        while (ended < 0 && errno == EINTR);
        if (ended != child || !WIFEXITED(status) || WEXITSTATUS(status) != 7)
            fail("a child ends with status %#x", status);
    }
    return NULL;
}

static bool read_options(int argc, char **argv)
{
    static const char *const names[] = {"--threads", "--rounds", "--seconds", "--forks"};
    unsigned *const values[] = {&thread_count, &rounds, &seconds, &forks};
    int i = 1;

    for (; i + 1 < argc; i += 2) {
        unsigned option = 0;

        while (option < 4 && strcmp(argv[i], names[option]) != 0)
            option++;
        if (option == 4)
            return false;
        *values[option] = (unsigned)strtoul(argv[i + 1], NULL, 10);
    }
    if (i + 1 != argc)
        return false;
    folder = argv[i];
    return true;
}

int main(int argc, char **argv)
{
    pthread_t *threads;
    unsigned started = 0, others;

    if (!read_options(argc, argv)) {
        fprintf(stderr, "usage: door_stress [--threads N] [--rounds N] [--seconds N] [--forks N] "
                        "FOLDER\n");
        return 2;
    }
    others = thread_count > RANKS ? thread_count - RANKS : 1;
    threads = calloc(RANKS + others + 1, sizeof(*threads));
    for (unsigned i = 0; i < COPIES; i++) {
        snprintf(copy_path[i], sizeof(copy_path[i]), "%s/%u/libnccl.so.%u", folder, i, i);
        snprintf(plugin_path[i], sizeof(plugin_path[i]), "%s/%u/libstress.so", folder, i);
    }
    snprintf(versions_path, sizeof(versions_path), "%s/libdoor_versions.so", folder);
    for (unsigned i = 0; i < RANKS; i++)
        set_up(&ranks[i], i);
    for (unsigned i = 0; i < PAIRS; i++)
        if (ranks[2 * i].GetUniqueId(&pair_id[i]) != ncclSuccess)
            fail("no unique id of copy %u", i);
    clock_gettime(CLOCK_MONOTONIC, &deadline);
    deadline.tv_sec += seconds;
    pthread_barrier_init(&ready, NULL, RANKS + others + (forks > 0));
    for (unsigned i = 0; i < RANKS; i++)
        started += pthread_create(&threads[started], NULL, collect, &ranks[i]) == 0;
    for (unsigned i = 0; i < others; i++)
        started +=
            pthread_create(&threads[started], NULL, look_up, (void *)(uintptr_t)(i + 1)) == 0;
    if (forks > 0)
        started += pthread_create(&threads[started], NULL, fork_often, NULL) == 0;
    if (started != RANKS + others + (forks > 0)) {
        fprintf(stderr, "not ok threads do not start\n");
        return 1;
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    if (failed)
        return 1;
    printf("ok %u threads, %lu collectives\n", RANKS + others, collectives);
    return 0;
}
