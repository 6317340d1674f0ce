/*
 * Calls in which ranks wait for each other on the host: `host_calls WHAT HOW OPTIONS…`. Every
 * iteration a pair of them, and an all-reduce. The faults come before the call
 *
 *   window, window-end    ncclCommWindowRegister, ncclCommWindowDeregister
 *   device, device-end    ncclDevCommCreate, ncclDevCommDestroy
 *   suspend, resume       ncclCommSuspend, ncclCommResume
 *   destroy               no pair; at the end the last rank aborts, before the others destroy
 *   destroy-busy          the same, while the last rank's broadcast is still on the streams of the
 *                         others, which check its data
 *
 * HOW: plain; grouped, each in an NCCL group; nonblocking, by a communicator that is so.
 */
#include "tests/programs/common.h"

#include <stdio.h>
#include <stdlib.h>

/* Declared here: the program builds with older headers, and the device's header is C++. */
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 29, 7)
ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags);
ncclResult_t ncclCommResume(ncclComm_t comm);
#endif
ncclResult_t ncclDevCommCreate(ncclComm_t comm, const void *requirements, void *device_comm);
ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const void *device_comm);
#pragma weak ncclCommSuspend
#pragma weak ncclCommResume
#pragma weak ncclDevCommCreate
#pragma weak ncclDevCommDestroy

#define BYTES       (2u << 20)
#define SUSPEND_MEM 1
#define WORDS       64
#define SENT        7

#define WHATS(WHAT)                                                                                \
    WHAT(WINDOW, "window"), WHAT(WINDOW_END, "window-end"), WHAT(DEVICE, "device"),                \
        WHAT(DEVICE_END, "device-end"), WHAT(SUSPEND, "suspend"), WHAT(RESUME, "resume"),          \
        WHAT(DESTROY, "destroy"), WHAT(BUSY, "destroy-busy")
enum { WHATS(WORD_NUMBER), WHAT_COUNT };
static const char *const whats[WHAT_COUNT] = {WHATS(WORD_TEXT)};

#define HOWS(HOW) HOW(PLAIN, "plain"), HOW(GROUPED, "grouped"), HOW(NONBLOCKING, "nonblocking")
enum { HOWS(WORD_NUMBER), HOW_COUNT };
static const char *const hows[HOW_COUNT] = {HOWS(WORD_TEXT)};

static unsigned faulty, how;
static void *memory;
static ncclWindow_t window;
static _Alignas(64) char device_comm[4096], requirements[4096];

static ncclResult_t make(unsigned what, ncclComm_t comm)
{
    switch (what) {
    case WINDOW:
        return ncclCommWindowRegister(comm, memory, BYTES, &window, NCCL_WIN_COLL_SYMMETRIC);
    case WINDOW_END:
        return ncclCommWindowDeregister(comm, window);
    case DEVICE:
        return ncclDevCommCreate(comm, requirements, device_comm);
    case DEVICE_END:
        return ncclDevCommDestroy(comm, device_comm);
    case SUSPEND:
        return ncclCommSuspend(comm, SUSPEND_MEM);
    default:
        return ncclCommResume(comm);
    }
}

/* As nonblocking programs do: NCCL may report success for what is in progress. */
static ncclResult_t settle(ncclComm_t comm, ncclResult_t result)
{
    if (how == NONBLOCKING && result == ncclSuccess)
        result = ncclInProgress;
    while (result == ncclInProgress && ncclCommGetAsyncError(comm, &result) == ncclSuccess)
        sleep_ms(result == ncclInProgress);
    return result;
}

static void call(struct member *member, unsigned what, unsigned long i)
{
    struct call none = {.op = OP_ALLREDUCE};
    ncclResult_t result = ncclSuccess;

    if (what == faulty &&
        !face_faults(&options, place.rank, member->name, i, &none, member->stream))
        return;
    if (how == GROUPED)
        NCCL(ncclGroupStart());
    result = make(what, member->comm);
    if (how == GROUPED)
        result = result == ncclSuccess ? ncclGroupEnd() : result;
    result = settle(member->comm, result);
    if (result != ncclSuccess) {
        printf("rank %d: %s %d\n", place.rank, whats[what], result);
        fflush(stdout);
        exit(5);
    }
}

static ncclComm_t init(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclUniqueId id = exchange_id(&place, &options, 0);

    config.blocking = how != NONBLOCKING;
    ncclResult_t result = ncclCommInitRankConfig(&comm, place.nranks, id, place.rank, &config);
    result = settle(comm, result);
    WRONG_IF(result != ncclSuccess, "ncclCommInitRankConfig", ncclGetErrorString(result));
    return comm;
}

static ncclResult_t all_reduce(struct member *member)
{
    float *buffer = memory;

    ncclResult_t result =
        settle(member->comm, ncclAllReduce(buffer, buffer, 256, ncclFloat32, ncclSum, member->comm,
                                           member->stream));
    CUDA(cudaStreamSynchronize(member->stream));
    return result;
}

static void CUDART_CB take_time(void *unused)
{
    sleep_ms(500);
}

/* What the last rank has sent is still on its way when it aborts. */
static void broadcast_late(const struct member *member, bool sends)
{
    CUDA(cudaMemset(memory, sends ? SENT : 0, WORDS));
    CUDA(cudaDeviceSynchronize());
    if (!sends)
        CUDA(cudaLaunchHostFunc(member->stream, take_time, NULL));
    NCCL(ncclBroadcast(memory, memory, WORDS, ncclUint8, place.nranks - 1, member->comm,
                       member->stream));
    if (sends)
        CUDA(cudaStreamSynchronize(member->stream));
}

static void check_broadcast(const struct member *member)
{
    unsigned char got[WORDS];

    CUDA(cudaStreamSynchronize(member->stream));
    CUDA(cudaMemcpy(got, memory, WORDS, cudaMemcpyDeviceToHost));
    for (int i = 0; i < WORDS; i++)
        WRONG_IF(got[i] != SENT, "broadcast", "other data than were sent");
}

int main(int argc, char **argv)
{
    struct member member = {0};

    faulty = argc > 2 ? word_index(argv[1], whats, WHAT_COUNT) : WHAT_COUNT;
    how = argc > 2 ? word_index(argv[2], hows, HOW_COUNT) : HOW_COUNT;
    if (faulty == WHAT_COUNT || how == HOW_COUNT) {
        fprintf(stderr, "usage: %s WHAT HOW OPTIONS\n", argv[0]);
        return 2;
    }
    setenv("FAKE_NCCL_DEVICE_API", "1", 0); /* the stand-ins', which lack it otherwise */
    argv[2] = argv[0];
    rank_begin(0, "world", argc - 2, argv + 2);
    ncclComm_t comm = init();
    member_init(&member, &options, "world", place.rank, comm, 1);
    NCCL(ncclMemAlloc(&memory, BYTES));
    for (unsigned long i = 1; i <= (unsigned long)options.iters; i++) {
        NCCL(all_reduce(&member));
        if (faulty >= DESTROY)
            continue;
        call(&member, faulty & ~1u, i);
        call(&member, faulty | 1u, i);
    }
    bool aborts = faulty >= DESTROY && place.rank == place.nranks - 1;
    ncclUniqueId none = {{0}};
    if (faulty == BUSY)
        broadcast_late(&member, aborts);
    if (aborts)
        NCCL(ncclCommAbort(comm));
    if (faulty >= DESTROY) /* the others come after it */
        share_id(&place, &options, 1, aborts ? &none : NULL);
    if (!aborts)
        NCCL(ncclCommDestroy(comm));
    if (faulty == BUSY && !aborts)
        check_broadcast(&member);
    printf("rank %d: works\n", place.rank);
    return 0;
}
