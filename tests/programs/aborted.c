/*
 * What a program meets whose communicator somebody else aborts: `aborted WHERE [ERROR [REASON
 * [all]]]` waits on every rank until it happens, then says what each function of NCCL returns for
 * the dead handle, and works on. WHERE:
 *
 *   warm      the last rank leaves out the second all-reduce: the others wait for their streams
 *   cold      it leaves out the first: the others wait inside the call
 *   group     the same in a NCCL group: they wait inside ncclGroupEnd
 *   p2p       it leaves out its send: the others wait for their receive
 *   split     it does not come to ncclCommSplit
 *   window    it does not come to ncclCommWindowRegister
 *   finalize  it leaves out an all-reduce, and the others wait inside ncclCommFinalize
 *   destroy   the same inside ncclCommDestroy, which nobody can abort
 *   init      it does not come to ncclCommInitRank: the others wait inside that
 *   replay    as warm, but the others wait in the replay of a graph, which they have destroyed
 * since graph     as warm, but the others hold a graph with captured work, which an abort waits for
 *   dead      it kills itself instead of its second all-reduce
 *   idle      nobody waits for anything
 *   again     as warm, and then once more with the new communicator
 *   own       nobody waits, and each rank aborts its communicator itself, but goes on to use it
 *   gives-up  as warm, but rank 0 aborts its communicator itself at SIGUSR1 and ends by SIGABRT,
 * and the last rank sleeps race      as warm, but the others abort their communicator themselves,
 * again and again, from two threads, as soon as they hear of it
 *
 * The rank that is missing asks its communicator's state, in `init` that of one of its own. Lines
 * on stdout: "rank R: waiting", then "rank R: FUNCTION RESULT" with NCCL's numbers. All ranks, in
 * `dead` those that are left, then make a new communicator and use it, and one that was there
 * before: without the dead rank it works on, with it it is dead, too. At last "rank R: works on".
 *
 * ERROR is the number that calls shall return (6: a peer is to blame; to the last rank, which is
 * that peer, they return 2), REASON what ncclGetLastError shall hold; "-" any. all: every
 * communicator is aborted, also the one that was there before. Exit status 0 if all is as it should
 * be, 5 if not. With NCCLGUARD_INIT=nonblocking a failed group puts all of its communicators into
 * an error that stays, as NCCL has it: then one more is there for that, and is aborted at once.
 */
#include "tests/programs/common.h"

#include <cuda_runtime_api.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#define PLACES(PLACE)                                                                              \
    PLACE(WARM, "warm"), PLACE(COLD, "cold"), PLACE(GROUP, "group"), PLACE(P2P, "p2p"),            \
        PLACE(SPLIT, "split"), PLACE(WINDOW, "window"), PLACE(FINALIZE, "finalize"),               \
        PLACE(DESTROY, "destroy"), PLACE(INIT, "init"), PLACE(REPLAY, "replay"),                   \
        PLACE(GRAPH, "graph"), PLACE(DEAD, "dead"), PLACE(IDLE, "idle"), PLACE(RACE, "race"),      \
        PLACE(AGAIN, "again"), PLACE(OWN, "own"), PLACE(GIVES_UP, "gives-up")
enum { PLACES(WORD_NUMBER), PLACE_COUNT };
static const char *const names[PLACE_COUNT] = {PLACES(WORD_TEXT)};

static unsigned where;
static int wanted_error = -1;            /* -1 any */
static const char *wanted_reason = NULL; /* NULL any */
static bool last;                        /* this rank is the one that the others miss */
static bool nonblocking;                 /* the guard makes communicators so */
static cudaStream_t stream, other_stream;
static float *buffer;

static void say(const char *what, int result)
{
    printf("rank %d: %s %d\n", place.rank, what, result);
    fflush(stdout);
}

static void expect(const char *what, int result, int wanted)
{
    say(what, result);
    if (wanted < 0 || result == wanted)
        return;
    fprintf(stderr, "rank %d: %s is %d, should be %d\n", place.rank, what, result, wanted);
    exit(5);
}

static void say_waiting(void)
{
    printf("rank %d: waiting\n", place.rank);
    fprintf(stderr, "rank %d (pid %d): waiting\n", place.rank, getpid());
    fflush(stdout);
}

static ncclResult_t all_reduce(ncclComm_t comm)
{
    return ncclAllReduce(buffer, buffer, SUM_COUNT, ncclFloat32, ncclSum, comm, stream);
}

/* Until the work ends with the communicator, and leaves garbage: with an error where the guard says
 * so. */
static void wait_for_stream(void)
{
    say("cudaStreamSynchronize", cudaStreamSynchronize(stream));
}

static void wait_on_device(ncclComm_t comm)
{
    NCCL(all_reduce(comm));
    wait_for_stream();
}

static cudaGraph_t capture(ncclComm_t comm)
{
    cudaGraph_t graph;
    cudaStream_t captured = device_stream_create();

    CUDA(cudaStreamBeginCapture(captured, cudaStreamCaptureModeThreadLocal));
    NCCL(ncclAllReduce(buffer, buffer, SUM_COUNT, ncclFloat32, ncclSum, comm, captured));
    CUDA(cudaStreamEndCapture(captured, &graph));
    return graph;
}

static void wait_in_replay(ncclComm_t comm)
{
    cudaGraph_t graph = capture(comm);
    cudaGraphExec_t exec;

    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaGraphExecDestroy(exec));
    wait_for_stream();
}

static void *abort_it(void *comm)
{
    await_error(comm);
    for (int i = 0; i < 100; i++) {
        say("own CommAbort", ncclCommAbort(comm));
        sleep_ms(1);
    }
    return NULL;
}

/* Two threads end what the guard ends, about at the same time. */
static void race(ncclComm_t comm)
{
    pthread_t thread = thread_start(abort_it, comm);

    if (!last)
        wait_on_device(comm);
    abort_it(comm);
    pthread_join(thread, NULL);
}

static void wait_in_group(ncclComm_t comm)
{
    NCCL(ncclGroupStart());
    NCCL(all_reduce(comm));
    say("blocked GroupEnd", ncclGroupEnd());
}

static void wait_for_last(ncclComm_t comm)
{
    ncclComm_t child = NULL;
    int sender = place.nranks - 1;

    switch (where) {
    case WARM:
    case AGAIN:
    case GRAPH:
    case DEAD:
    case GIVES_UP:
        wait_on_device(comm);
        break;
    case REPLAY:
        wait_in_replay(comm);
        break;
    case RACE:
        race(comm);
        break;
    case COLD:
        say("blocked AllReduce", all_reduce(comm));
        break;
    case GROUP:
        wait_in_group(comm);
        break;
    case P2P:
        say("Recv", ncclRecv(buffer, SUM_COUNT, ncclFloat32, sender, comm, stream));
        wait_for_stream();
        break;
    case SPLIT:
        say("blocked CommSplit", ncclCommSplit(comm, 0, place.rank, &child, NULL));
        break;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    case WINDOW: {
        ncclWindow_t window;
        void *memory;
        NCCL(ncclMemAlloc(&memory, 2u << 20));
        say("blocked CommWindowRegister",
            ncclCommWindowRegister(comm, memory, 2u << 20, &window, NCCL_WIN_COLL_SYMMETRIC));
        break;
    }
#endif
    case FINALIZE:
        NCCL(all_reduce(comm));
        say("blocked CommFinalize", ncclCommFinalize(comm));
        break;
    case DESTROY:
        NCCL(all_reduce(comm));
        say("blocked CommDestroy", ncclCommDestroy(comm));
        break;
    default:
        break;
    }
}

/* What calls on the dead one are to return on this rank: to that which the others missed no peer is
 * to blame. */
static int error_here(void)
{
    return last && wanted_error == ncclRemoteError ? ncclSystemError : wanted_error;
}

/* Once more, with one that works. */
static void wait_again(ncclComm_t comm)
{
    if (!last)
        wait_on_device(comm);
    await_error(comm);
    expect("AllReduce again", all_reduce(comm), error_here());
    expect("CommDestroy again", ncclCommDestroy(comm), ncclSuccess);
}

/* As a framework's watchdog, when it is told that this has taken too long. */
static void give_up(ncclComm_t comm)
{
    sigset_t user;
    int number;

    while (last)
        pause();
    NCCL(all_reduce(comm));
    sigemptyset(&user);
    sigaddset(&user, SIGUSR1);
    sigwait(&user, &number);
    NCCL(ncclCommAbort(comm));
    abort();
}

/* Makes a communicator and waits on it; it is dead afterwards. */
static ncclComm_t wait_for_abort(void)
{
    ncclComm_t comm = NULL;
    struct place alone = {0, 1, place.local_rank};

    if (where == INIT && !last) {
        ncclUniqueId id = exchange_id(&place, &options, 0);
        say_waiting();
        say("CommInitRank", ncclCommInitRank(&comm, place.nranks, id, place.rank));
        return comm;
    }
    comm = where == INIT ? world_init(&alone, &options, 0) : world_init(&place, &options, 0);
    if (where != COLD && where != GROUP && where != SPLIT && where != INIT) {
        NCCL(all_reduce(comm));
        device_stream_sync(stream);
    }
    if (where == GRAPH)
        capture(comm);
    say_waiting();
    if (where == DEAD && last)
        kill(getpid(), SIGKILL);
    if (where == GIVES_UP && (last || place.rank == 0))
        give_up(comm);
    if (!last || where == RACE)
        wait_for_last(comm);
    if (where != RACE && (where != INIT || !last))
        await_error(comm);
    return comm;
}

/* All ranks of `living` do it: were its all-reduce launched, the sums would tell. */
static void try_group(ncclComm_t comm, ncclComm_t living)
{
    static const float one[SUM_COUNT] = {1};
    float after[SUM_COUNT];
    int error = error_here();

    device_copy_in(buffer, one, sizeof(one), other_stream);
    NCCL(ncclGroupStart());
    say("grouped AllReduce of one that lives",
        ncclAllReduce(buffer, buffer, SUM_COUNT, ncclFloat32, ncclSum, living, other_stream));
    expect("grouped Broadcast",
           ncclBroadcast(buffer, buffer, SUM_COUNT, ncclFloat32, 0, comm, stream), error);
    int result = ncclGroupEnd();
    expect("GroupEnd", result, error < 0 && result != ncclSuccess ? result : error);
    device_copy_out(after, buffer, sizeof(after), other_stream);
    device_stream_sync(other_stream);
    expect("grouped AllReduce is launched", memcmp(one, after, sizeof(one)) != 0, false);
    if (!nonblocking)
        return;
    ncclResult_t state = ncclSuccess;
    NCCL(ncclCommGetAsyncError(living, &state));
    expect("one that lives is in error", state != ncclSuccess, true);
    NCCL(ncclCommAbort(living)); /* before the guard does something about the error */
}

static void try_all(ncclComm_t comm, ncclComm_t living)
{
    ncclResult_t answer = ncclSuccess;
    ncclComm_t child = NULL;
    int number = -1, error = error_here();
    void *handle = NULL;

    expect("AllReduce", all_reduce(comm), error);
    expect("Send", ncclSend(buffer, SUM_COUNT, ncclFloat32, 0, comm, stream), error);
    try_group(comm, living);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    ncclWindow_t window;
    NCCL(ncclGroupStart());
    expect("grouped CommWindowRegister",
           ncclCommWindowRegister(comm, buffer, SUM_COUNT * sizeof(*buffer), &window, 0), error);
    expect("GroupEnd", ncclGroupEnd(), error);
#endif
    expect("CommCount", ncclCommCount(comm, &number), error);
    expect("CommUserRank", ncclCommUserRank(comm, &number), error);
    expect("CommRegister", ncclCommRegister(comm, buffer, SUM_COUNT * sizeof(*buffer), &handle),
           error);
    expect("CommSplit", ncclCommSplit(comm, 0, 0, &child, NULL), error);
    expect("CommGetAsyncError", ncclCommGetAsyncError(comm, &answer), ncclSuccess);
    expect("CommGetAsyncError answers", answer, error);
    expect_reason(comm, wanted_reason);
    expect("CommFinalize", ncclCommFinalize(comm), ncclSuccess);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
    expect("CommRevoke", ncclCommRevoke(comm, 0), ncclSuccess);
#endif
    expect("CommAbort", ncclCommAbort(comm), ncclSuccess);
    expect("CommDestroy", ncclCommDestroy(comm), ncclSuccess);
    expect("CommAbort again", ncclCommAbort(comm), ncclSuccess);
}

/* NCCL has freed it: it would crash. */
static void try_own(ncclComm_t living)
{
    ncclComm_t comm = world_init(&place, &options, 0), child = NULL;
    int number = -1;
    void *handle = NULL;

    wanted_error = ncclInvalidArgument;
    NCCL(all_reduce(comm));
    device_stream_sync(stream);
    NCCL(ncclCommRegister(comm, buffer, SUM_COUNT * sizeof(*buffer), &handle));
    NCCL(ncclCommAbort(comm));
    expect("AllReduce", all_reduce(comm), ncclInvalidArgument);
    try_group(comm, living);
    expect("CommCount", ncclCommCount(comm, &number), ncclInvalidArgument);
    expect("CommSplit", ncclCommSplit(comm, 0, 0, &child, NULL), ncclInvalidArgument);
    expect("CommDeregister", ncclCommDeregister(comm, handle), ncclSuccess);
    expect("CommDestroy", ncclCommDestroy(comm), ncclSuccess);
    expect("CommAbort again", ncclCommAbort(comm), ncclSuccess);
    expect("reason", strstr(ncclGetLastError(comm), "destroyed or aborted") != NULL, true);
}

/* The ranks that live add up their numbers, from 1. */
static void use(ncclComm_t comm, const struct place *mine)
{
    float sum = (float)(mine->nranks * (mine->nranks + 1) / 2);

    sum_up(comm, (float)mine->rank + 1, sum, buffer, other_stream);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 5 || (where = word_index(argv[1], names, PLACE_COUNT)) == PLACE_COUNT ||
        (argc == 5 && strcmp(argv[4], "all") != 0)) {
        fprintf(stderr, "usage: aborted WHERE [ERROR [REASON [all]]]\n");
        return 2;
    }
    if (argc > 2 && strcmp(argv[2], "-") != 0)
        wanted_error = atoi(argv[2]);
    if (argc > 3 && strcmp(argv[3], "-") != 0)
        wanted_reason = argv[3];
    bool all = argc == 5;
    const char *init = getenv("NCCLGUARD_INIT");
    nonblocking = init && strcmp(init, "nonblocking") == 0;
    if (where == GIVES_UP) {
        sigset_t user; /* before there are threads */
        sigemptyset(&user);
        sigaddset(&user, SIGUSR1);
        sigprocmask(SIG_BLOCK, &user, NULL);
    }
    place_begin();
    last = place.rank == place.nranks - 1;
    stream = device_stream_create();
    other_stream = device_stream_create();
    buffer = device_alloc(SUM_COUNT * sizeof(*buffer));

    struct place living = {place.rank, place.nranks - (where == DEAD), place.local_rank};
    ncclComm_t other = world_init(&place, &options, 2), without_dead = other;
    ncclComm_t grouped = nonblocking ? world_init(&place, &options, 4) : NULL;
    use(other, &place);
    if (where == DEAD)
        NCCL(ncclCommSplit(other, last ? NCCL_SPLIT_NOCOLOR : 0, place.rank, &without_dead, NULL));
    if (where == OWN)
        try_own(other);
    ncclComm_t comm = where == OWN ? NULL : wait_for_abort();
    if (where == DEAD)
        expect("AllReduce with the dead rank", all_reduce(other), wanted_error);
    if (comm && where != RACE && (where != INIT || !last))
        try_all(comm, grouped ? grouped : without_dead);
    else if (grouped)
        NCCL(ncclCommAbort(grouped));
    if (all) {
        await_error(without_dead); /* not all are aborted in the same moment */
        expect("AllReduce with the one before", all_reduce(without_dead), error_here());
    } else {
        use(without_dead, &living);
    }
    comm = world_init(&living, &options, 1);
    use(comm, &living);
    if (where == AGAIN) {
        wait_again(comm);
        comm = world_init(&living, &options, 3);
        use(comm, &living);
    }
    NCCL(ncclCommDestroy(comm));
    printf("rank %d: works on\n", place.rank);
    return 0;
}
