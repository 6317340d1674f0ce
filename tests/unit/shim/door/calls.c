/*
 * Calls of NCCL through functions that were fetched by name, from two copies of it in turn: each
 * argument and each result arrives, at the right copy.
 *
 *   door_calls FOLDER
 *
 * FOLDER holds 1/libnccl.so.2 and 2/libnccl.so.2 (nccl_copy.c). Prints a line for each check, the
 * same with the guard preloaded as without; exits with 0 when each holds.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/shim/door/nccl_copy.h"

#define COPIES 2

/* FUNCTION(type, name without "nccl", parameters) */
#define FUNCTIONS(FUNCTION)                                                                        \
    FUNCTION(ncclResult_t, GetVersion, (int *))                                                    \
    FUNCTION(ncclResult_t, GetUniqueId, (ncclUniqueId *))                                          \
    FUNCTION(ncclResult_t, CommInitRank, (ncclComm_t *, int, ncclUniqueId, int))                   \
    FUNCTION(ncclResult_t, CommDestroy, (ncclComm_t))                                              \
    FUNCTION(ncclResult_t, CommCount, (const ncclComm_t, int *))                                   \
    FUNCTION(const char *, GetErrorString, (ncclResult_t))                                         \
    FUNCTION(ncclResult_t, GroupStart, (void))                                                     \
    FUNCTION(ncclResult_t, GroupEnd, (void))                                                       \
    FUNCTION(                                                                                      \
        ncclResult_t, AllReduce,                                                                   \
        (const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t))     \
    FUNCTION(ncclResult_t, Bcast, (void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t)) \
    FUNCTION(ncclResult_t, PutSignal,                                                              \
             (const void *, size_t, ncclDataType_t, int, ncclWindow_t, size_t, int, int, unsigned, \
              ncclComm_t, cudaStream_t))                                                           \
    FUNCTION(struct ncclTeam, TeamWorld, (ncclComm_t))                                             \
    FUNCTION(int, TeamRankToWorld, (ncclComm_t, struct ncclTeam, int))

static struct copy {
    int number;
    void *handle;
    door_nccl_last_function *last;
#define FUNCTION(type, name, parameters) type(*name) parameters;
    FUNCTIONS(FUNCTION)
#undef FUNCTION
} copies[COPIES];

static unsigned failures;

static void check(bool holds, const char *what, int number)
{
    printf("%s %s (copy %d)\n", holds ? "ok" : "not ok", what, number);
    if (!holds)
        __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
}

/* Under the guard each function that was found must be the guard's. */
static bool is_where_it_should_be(void *function)
{
    const char *word = getenv("DOOR_GUARDED");
    bool guarded = word && strcmp(word, "1") == 0;
    Dl_info info;

    return function && dladdr(function, &info) &&
           guarded == !!strstr(info.dli_fname, "libncclguard.so");
}

static void fetch(struct copy *copy, const char *folder)
{
    char path[PATH_MAX];
    bool there = true;

    snprintf(path, sizeof(path), "%s/%d/libnccl.so.2", folder, copy->number);
    copy->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!copy->handle) {
        printf("not ok %s\n", dlerror());
        exit(1);
    }
    copy->last = (door_nccl_last_function *)dlsym(copy->handle, "door_nccl_last");
#define FUNCTION(type, name, parameters)                                                           \
    *(void **)&copy->name = dlsym(copy->handle, "nccl" #name);                                     \
    there &= is_where_it_should_be(*(void **)&copy->name);
    FUNCTIONS(FUNCTION)
#undef FUNCTION
    check(there, "every function is found", copy->number);
}

static bool are(const uint64_t *values, const uint64_t *expected, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (values[i] != expected[i])
            return false;
    return true;
}

static void call_all(struct copy *copy)
{
    const struct door_nccl_call *last = copy->last();
    struct ncclTeam team;
    ncclUniqueId id, sent;
    ncclComm_t comm = NULL;
    char send[8], recv[8];
    cudaStream_t stream = (cudaStream_t)0x1122334455667788;
    ncclWindow_t window = (ncclWindow_t)0x8877665544332211;
    int version = 0, count = 0;

    check(copy->GetVersion(&version) == ncclSuccess && version == DOOR_NCCL_VERSION(copy->number),
          "its version", copy->number);
    check(copy->GetUniqueId(&id) == ncclSuccess, "a unique id", copy->number);
    for (unsigned i = sizeof(int); i < sizeof(id); i++)
        ((char *)&id)[i] = (char)(i * 7 + (unsigned)copy->number);
    sent = id;
    check(copy->CommInitRank(&comm, 3, id, 2) == ncclSuccess && comm &&
              strcmp(last->name, "CommInitRank") == 0 &&
              memcmp(&last->id, &sent, sizeof(sent)) == 0 && last->values[1] == 3 &&
              last->values[3] == 2,
          "a structure of 128 bytes by value", copy->number);
    check(copy->CommCount(comm, &count) == ncclSuccess && count == 3, "a passed call",
          copy->number);
    check(strcmp(copy->GetErrorString(ncclSuccess), "no error") == 0, "a result that is an address",
          copy->number);

    errno = ERANGE;
    check(copy->AllReduce(send, recv, 0x123456789abcdef0, ncclBfloat16, ncclMax, comm, stream) ==
                  ncclSuccess &&
              errno == EDOM && strcmp(last->name, "AllReduce") == 0 &&
              are(last->values,
                  (uint64_t[]){(uintptr_t)send, (uintptr_t)recv, 0x123456789abcdef0, ncclBfloat16,
                               ncclMax, (uintptr_t)comm, (uintptr_t)stream},
                  7),
          "seven arguments, and errno", copy->number);
    check(copy->Bcast(recv, 5, ncclInt8, 1, comm, stream) == ncclSuccess &&
              strcmp(last->name, "Broadcast") == 0 &&
              are(last->values,
                  (uint64_t[]){(uintptr_t)recv, (uintptr_t)recv, 5, ncclInt8, 1, (uintptr_t)comm,
                               (uintptr_t)stream},
                  7),
          "a call that NCCL makes itself stays in its copy", copy->number);
    check(copy->GroupStart() == ncclSuccess &&
              copy->PutSignal(send, 6, ncclInt32, 1, window, 0x0fedcba987654321, 7, 8, 9, comm,
                              stream) == ncclSuccess &&
              copy->GroupEnd() == ncclSuccess && strcmp(last->name, "PutSignal") == 0 &&
              are(last->values,
                  (uint64_t[]){(uintptr_t)send, 6, ncclInt32, 1, (uintptr_t)window,
                               0x0fedcba987654321, 7, 8, 9, (uintptr_t)comm, (uintptr_t)stream},
                  11),
          "eleven arguments", copy->number);
    team = copy->TeamWorld(comm);
    check(team.nRanks == 3 && team.rank == 2 && team.stride == 1000 + copy->number,
          "a structure as the result", copy->number);
    team.stride = 77;
    check(copy->TeamRankToWorld(comm, team, 4) == 10000 + copy->number && last->values[2] == 4 &&
              memcmp(&last->team, &team, sizeof(team)) == 0,
          "a small structure by value", copy->number);
    check(copy->CommDestroy(comm) == ncclSuccess, "the end of a communicator", copy->number);
}

static void *in_a_thread(void *unused)
{
    for (unsigned i = 0; i < COPIES; i++)
        call_all(&copies[i]);
    return NULL;
}

/* A function that this thread is the first to ask for. */
static void *first_look_up(void *handle)
{
    void *volatile found = dlsym(handle, "ncclGetLastError");

    return found;
}

static void small_stack(const char *folder)
{
    pthread_attr_t attributes;
    pthread_t thread;
    char path[PATH_MAX];
    void *handle, *found;

    snprintf(path, sizeof(path), "%s/3/libnccl.so.2", folder);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN));
    if (pthread_create(&thread, &attributes, first_look_up, handle) != 0) {
        check(false, "a thread with the smallest stack starts", 3);
        return;
    }
    pthread_join(thread, &found);
    check(is_where_it_should_be(found), "found on the smallest stack", 3);
    pthread_attr_destroy(&attributes);
}

int main(int argc, char **argv)
{
    pthread_t thread;

    if (argc != 2) {
        fprintf(stderr, "usage: door_calls FOLDER\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    small_stack(argv[1]);
    for (int i = 0; i < COPIES; i++) {
        copies[i].number = i + 1;
        fetch(&copies[i], argv[1]);
    }
    for (unsigned i = 0; i < COPIES; i++)
        call_all(&copies[i]);
    if (pthread_create(&thread, NULL, in_a_thread, NULL) != 0)
        return 1;
    pthread_join(thread, NULL);
    /* Nothing of theirs is used any more. */
    for (unsigned i = 0; i < COPIES; i++)
        dlclose(copies[i].handle);
    return failures > 0;
}
