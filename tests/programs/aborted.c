/*
 * What a program meets whose communicator somebody else aborts: `aborted WHERE` waits on every rank
 * until it happens, then says what each function of NCCL returns for the dead handle, and works on
 * with a new communicator. WHERE:
 *
 *   warm  the last rank leaves out the second all-reduce: the others wait for their streams
 *   cold  it leaves out the first: the others wait inside the call
 *   init  it does not come to ncclCommInitRank: the others wait inside that
 *   idle  nobody waits for anything
 *
 * The rank that is missing asks its communicator's state, in `init` that of one of its own. Lines on
 * stdout: "rank R: waiting", then "rank R: FUNCTION RESULT" with NCCL's numbers, at last "rank R:
 * new communicator works". Exit status 0 if it does.
 */
#include "tests/programs/common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT 1024

static struct place place;
static const struct options options = {.program = "aborted", .timeout_s = 120};
static cudaStream_t stream;
static float *buffer;

static void say(const char *what, int result)
{
    printf("rank %d: %s %d\n", place.rank, what, result);
    fflush(stdout);
}

static void say_waiting(void)
{
    printf("rank %d: waiting\n", place.rank);
    fflush(stdout);
}

static ncclResult_t all_reduce(ncclComm_t comm)
{
    return ncclAllReduce(buffer, buffer, COUNT, ncclFloat32, ncclSum, comm, stream);
}

/* As a program's own watchdog does, until there is something to hear. */
static void await_error(ncclComm_t comm)
{
    struct timespec pause = {.tv_nsec = 2000000};
    ncclResult_t result, answer = ncclSuccess;
    while ((result = ncclCommGetAsyncError(comm, &answer)) == ncclSuccess && answer == ncclSuccess)
        nanosleep(&pause, NULL);
}

/* Makes a communicator and waits on it; it is dead afterwards. */
static ncclComm_t wait_for_abort(const char *where)
{
    bool last = place.rank == place.nranks - 1;
    ncclComm_t comm = NULL;
    struct place alone = {0, 1, place.local_rank};

    if (strcmp(where, "init") == 0 && !last) {
        ncclUniqueId id = exchange_id(&place, &options, 0);
        say_waiting();
        say("CommInitRank", ncclCommInitRank(&comm, place.nranks, id, place.rank));
        return comm;
    }
    comm = strcmp(where, "init") == 0 ? world_init(&alone, &options, 0)
                                      : world_init(&place, &options, 0);
    if (strcmp(where, "warm") == 0) {
        NCCL(all_reduce(comm));
        device_stream_sync(stream);
    }
    say_waiting();
    if (!last && strcmp(where, "cold") == 0) {
        say("blocked AllReduce", all_reduce(comm));
    } else if (!last && strcmp(where, "warm") == 0) {
        NCCL(all_reduce(comm));
        device_stream_sync(stream);
    }
    await_error(comm);
    return comm;
}

static void try_all(ncclComm_t comm)
{
    ncclResult_t answer = ncclSuccess;
    ncclComm_t child = NULL;
    int number = -1;
    void *handle = NULL;

    say("AllReduce", all_reduce(comm));
    say("Send", ncclSend(buffer, COUNT, ncclFloat32, 0, comm, stream));
    NCCL(ncclGroupStart());
    say("grouped Broadcast", ncclBroadcast(buffer, buffer, COUNT, ncclFloat32, 0, comm, stream));
    say("GroupEnd", ncclGroupEnd());
    say("CommCount", ncclCommCount(comm, &number));
    say("CommUserRank", ncclCommUserRank(comm, &number));
    say("CommRegister", ncclCommRegister(comm, buffer, COUNT * sizeof(*buffer), &handle));
    say("CommSplit", ncclCommSplit(comm, 0, 0, &child, NULL));
    say("CommGetAsyncError", ncclCommGetAsyncError(comm, &answer));
    say("CommGetAsyncError answers", answer);
    printf("rank %d: GetLastError: %s\n", place.rank, ncclGetLastError(comm));
    say("CommFinalize", ncclCommFinalize(comm));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
    say("CommRevoke", ncclCommRevoke(comm, 0));
#endif
    say("CommAbort", ncclCommAbort(comm));
    say("CommDestroy", ncclCommDestroy(comm));
    say("CommAbort again", ncclCommAbort(comm));
}

static void work_on(void)
{
    float one[COUNT], sum[COUNT];
    ncclComm_t comm = world_init(&place, &options, 1);
    for (int i = 0; i < COUNT; i++)
        one[i] = (float)place.rank + 1;
    device_copy_in(buffer, one, sizeof(one), stream);
    device_stream_sync(stream);
    NCCL(all_reduce(comm));
    device_copy_out(sum, buffer, sizeof(sum), stream);
    device_stream_sync(stream);
    for (int i = 0; i < COUNT; i++)
        if (sum[i] != (float)(place.nranks * (place.nranks + 1) / 2))
            fail(__FILE__, __LINE__, "all-reduce", "the new communicator adds up wrongly");
    NCCL(ncclCommDestroy(comm));
    printf("rank %d: new communicator works\n", place.rank);
}

int main(int argc, char **argv)
{
    static const char *const places[] = {"warm", "cold", "init", "idle"};
    const char *where = NULL;
    for (size_t i = 0; argc == 2 && i < sizeof(places) / sizeof(places[0]); i++)
        if (strcmp(argv[1], places[i]) == 0)
            where = places[i];
    if (!where) {
        fprintf(stderr, "usage: aborted warm|cold|init|idle\n");
        return 2;
    }
    place_init(&place, &options);
    device_use(place.local_rank);
    stream = device_stream_create();
    buffer = device_alloc(COUNT * sizeof(*buffer));
    ncclComm_t comm = wait_for_abort(where);
    if (comm)
        try_all(comm);
    work_on();
    return 0;
}
