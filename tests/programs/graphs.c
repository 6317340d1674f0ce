/*
 * All-reduces captured into a CUDA graph, and replayed: `graphs MODE [options]`. Each graph has
 * --batch calls (3) and is launched --iters times; faults count launches, from 1. MODE:
 *
 *   plain     one graph, waited for after each launch
 *   ahead     the same, waited for at the end alone (--sync-every: now and then)
 *   modes     a capture in each of CUDA's modes, while another thread asks events
 *   update    before each launch the graph is captured anew, and the executable one updated
 *   again     before each launch it is captured anew, and instantiated
 *   clone     the graph is cloned, the original destroyed, and the clone launched
 *   child     it is a child of another graph, behind an empty node
 *   nested    it is a child of a child
 *   refused   as plain; before, it is launched into a capture, which CUDA refuses
 *   pending   after each launch, graph and executable graph are destroyed, and made anew
 *   streams   launches go to two streams in turn, which wait for each other
 *   grouped   ten calls at a time are in one NCCL group
 *   pairs     sends to the next rank and receives from the previous one, in NCCL groups
 *   mixed     between two launches all call once
 *   split     half of the calls are on a communicator of half of the ranks
 *   middle    as plain; --stall R:N: the device of rank R stops in the middle of launch N
 *   thrown    no graph is launched: before each call rank 0 captures another one, and throws that
 * away held      as plain, and the communicator is destroyed before the graph: it waits for that
 * for ever kept      as plain, and the graph lives until the process ends: an abort waits for it
 *
 * The maximum of all ranks' numbers must come out. The last line: "rank R: L launches, all right".
 */
#include "tests/programs/common.h"

#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define COUNT 256

#define MODES(MODE)                                                                                \
    MODE(PLAIN, "plain"), MODE(AHEAD, "ahead"), MODE(MODES_OF_CUDA, "modes"),                      \
        MODE(UPDATE, "update"), MODE(AGAIN, "again"), MODE(CLONE, "clone"), MODE(CHILD, "child"),  \
        MODE(NESTED, "nested"), MODE(REFUSED, "refused"), MODE(PENDING, "pending"),                \
        MODE(STREAMS, "streams"), MODE(GROUPED, "grouped"), MODE(PAIRS, "pairs"),                  \
        MODE(MIXED, "mixed"), MODE(SPLIT, "split"), MODE(MIDDLE, "middle"),                        \
        MODE(THROWN, "thrown"), MODE(HELD, "held"), MODE(KEPT, "kept")
enum { MODES(WORD_NUMBER), MODE_COUNT };
static const char *const names[MODE_COUNT] = {MODES(WORD_TEXT)};

static unsigned mode;
static ncclComm_t comm, half;
static cudaStream_t stream, other_stream;
static cudaEvent_t turn;
static float *sent, *received;
static unsigned long launches;
static unsigned long stalls_at; /* launch in whose middle this rank's device stops; 0 none */

static void call_once(unsigned long i, cudaStream_t on)
{
    ncclComm_t used = mode == SPLIT && i % 2 ? half : comm;

    NCCL(ncclAllReduce(sent, received, COUNT, ncclFloat32, ncclMax, used, on));
}

static void send_around(cudaStream_t on)
{
    NCCL(ncclGroupStart());
    NCCL(ncclSend(sent, COUNT, ncclFloat32, (place.rank + 1) % place.nranks, comm, on));
    NCCL(ncclRecv(received, COUNT, ncclFloat32, (place.rank + place.nranks - 1) % place.nranks,
                  comm, on));
    NCCL(ncclGroupEnd());
}

static void CUDART_CB in_the_middle(void *unused)
{
    static unsigned long times;

    if (++times != stalls_at)
        return;
    fprintf(stderr, "rank %d (pid %d): stall at call %lu of world\n", place.rank, getpid(), times);
    block_for_ever();
}

static void make_calls(cudaStream_t on)
{
    for (unsigned long i = 0; i < options.batch; i++) {
        if (mode == GROUPED && i % 10 == 0)
            NCCL(ncclGroupStart());
        if (mode == MIDDLE && i == options.batch / 2)
            CUDA(cudaLaunchHostFunc(on, in_the_middle, NULL));
        if (mode == PAIRS)
            send_around(on);
        else
            call_once(i, on);
        if (mode == GROUPED && (i % 10 == 9 || i + 1 == options.batch))
            NCCL(ncclGroupEnd());
    }
}

static cudaGraph_t capture(enum cudaStreamCaptureMode how)
{
    cudaGraph_t graph;

    CUDA(cudaStreamBeginCapture(stream, how));
    make_calls(stream);
    CUDA(cudaStreamEndCapture(stream, &graph));
    return graph;
}

static cudaGraphExec_t instantiate(cudaGraph_t graph)
{
    cudaGraphExec_t exec;

    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    return exec;
}

static void launch_into_capture(cudaGraphExec_t exec)
{
    cudaGraph_t graph;

    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    WRONG_IF(cudaGraphLaunch(exec, stream) != cudaErrorStreamCaptureUnsupported ||
                 cudaStreamEndCapture(stream, &graph) != cudaErrorStreamCaptureInvalidated,
             "cudaGraphLaunch", "is not refused in a capture");
    (void)cudaGetLastError();
}

/* As the mode wants it; the graph is gone. */
static cudaGraphExec_t make_exec(void)
{
    cudaGraph_t graph = capture(cudaStreamCaptureModeGlobal), outer;
    cudaGraphNode_t first, node;
    cudaGraphExec_t exec;

    if (mode == CLONE) {
        CUDA(cudaGraphClone(&outer, graph));
        CUDA(cudaGraphDestroy(graph));
        graph = outer;
    }
    for (int depth = mode == CHILD ? 1 : mode == NESTED ? 2 : 0; depth; depth--) {
        CUDA(cudaGraphCreate(&outer, 0));
        CUDA(cudaGraphAddEmptyNode(&first, outer, NULL, 0));
        CUDA(cudaGraphAddChildGraphNode(&node, outer, &first, 1, graph));
        CUDA(cudaGraphDestroy(graph));
        graph = outer;
    }
    exec = instantiate(graph);
    CUDA(cudaGraphDestroy(graph));
    if (mode == REFUSED)
        launch_into_capture(exec);
    return exec;
}

static cudaGraphExec_t make_anew(cudaGraphExec_t exec)
{
    cudaGraph_t graph;

    if (mode == UPDATE) {
        graph = capture(cudaStreamCaptureModeThreadLocal);
        cudaGraphExecUpdateResultInfo info;
        CUDA(cudaGraphExecUpdate(exec, graph, &info));
        CUDA(cudaGraphDestroy(graph));
    } else if (mode == AGAIN || mode == PENDING) {
        CUDA(cudaGraphExecDestroy(exec));
        exec = make_exec();
    }
    return exec;
}

static void check(void)
{
    float result[COUNT];
    int from = mode == PAIRS ? (place.rank + place.nranks - 1) % place.nranks : place.nranks - 1;
    bool halves = mode == SPLIT && options.batch % 2 == 0;

    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamSynchronize(other_stream));
    CUDA(cudaMemcpy(result, received, sizeof(result), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        WRONG_IF(!halves && result[i] != (float)from, "replay", "the result is wrong");
}

/* A call of another size, which no rank makes. */
static void throw_away(void)
{
    cudaGraph_t graph;

    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    NCCL(ncclAllReduce(sent, received, COUNT / 2, ncclFloat32, ncclMax, comm, stream));
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphDestroy(graph));
}

static void launch(cudaGraphExec_t exec)
{
    cudaStream_t on = mode == STREAMS && launches % 2 ? other_stream : stream;
    cudaStream_t after = on == stream ? other_stream : stream;
    struct call call = {OP_ALLREDUCE, ncclFloat32, ncclMax, COUNT, -1};

    launches++;
    if (mode != MIDDLE && !face_faults(&options, place.rank, "world", launches, &call, on))
        return;
    if (mode == THROWN) {
        if (place.rank == 0)
            throw_away();
        call_once(0, stream);
        return;
    }
    CUDA(cudaGraphLaunch(exec, on));
    if (mode == STREAMS) {
        CUDA(cudaEventRecord(turn, on));
        CUDA(cudaStreamWaitEvent(after, turn, 0));
    }
    if (mode == MIXED)
        call_once(0, stream);
}

static atomic_bool asking = true;

/* In relaxed mode, as a thread must be that asks while others capture. */
static void *ask(void *unused)
{
    enum cudaStreamCaptureMode how = cudaStreamCaptureModeRelaxed;
    cudaEvent_t event;

    device_use(place.local_rank);
    CUDA(cudaThreadExchangeStreamCaptureMode(&how));
    CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    while (atomic_load(&asking))
        cudaEventQuery(event);
    CUDA(cudaEventDestroy(event));
    return unused;
}

/* Captured in each mode, and launched once. */
static void try_modes(void)
{
    static const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal,
                                                       cudaStreamCaptureModeThreadLocal,
                                                       cudaStreamCaptureModeRelaxed};
    pthread_t thread = thread_start(ask, NULL);

    for (int i = 0; i < 3; i++) {
        cudaGraph_t graph = capture(modes[i]);
        cudaGraphExec_t exec = instantiate(graph);
        CUDA(cudaGraphLaunch(exec, stream));
        check();
        CUDA(cudaGraphExecDestroy(exec));
        CUDA(cudaGraphDestroy(graph));
    }
    atomic_store(&asking, false);
    pthread_join(thread, NULL);
}

static void prepare(void)
{
    float mine[COUNT];

    device_use(place.local_rank);
    stream = device_stream_create();
    other_stream = device_stream_create();
    CUDA(cudaEventCreateWithFlags(&turn, cudaEventDisableTiming));
    sent = device_alloc(sizeof(mine));
    received = device_alloc(sizeof(mine));
    for (int i = 0; i < COUNT; i++)
        mine[i] = (float)place.rank;
    device_copy_in(sent, mine, sizeof(mine), stream);
    comm = world_init(&place, &options, 0);
    if (mode == SPLIT)
        NCCL(ncclCommSplit(comm, place.rank % 2, place.rank, &half, NULL));
    /* What a communicator connects with its first call, a capture need not. */
    make_calls(stream);
    check();
    for (int i = 0; i < options.nfaults; i++)
        if (mode == MIDDLE && options.faults[i].rank == place.rank)
            stalls_at = options.faults[i].nth + 1; /* the calls above came by it, too */
}

int main(int argc, char **argv)
{
    if (argc < 2 || (mode = word_index(argv[1], names, MODE_COUNT)) == MODE_COUNT) {
        fprintf(stderr, "usage: graphs MODE [options]\n");
        return 2;
    }
    argv[1] = argv[0];
    options_parse(&options, TAKES_BATCH, "world", argc - 1, argv + 1);
    place_init(&place, &options);
    prepare();
    if (mode == MODES_OF_CUDA)
        try_modes();
    cudaGraphExec_t exec = mode == THROWN ? NULL : make_exec();
    for (unsigned long i = 0; i < options.iters; i++) {
        if (i)
            exec = make_anew(exec);
        launch(exec);
        if (mode != AHEAD && mode != PENDING)
            check();
        else if (drain_due(&options, i))
            check();
        pause_between(&options);
    }
    check();
    if (mode != KEPT && mode != HELD && exec)
        CUDA(cudaGraphExecDestroy(exec));
    if (half)
        NCCL(ncclCommDestroy(half));
    if (mode != KEPT)
        NCCL(ncclCommDestroy(comm));
    printf("rank %d: %lu launches, all right\n", place.rank, launches);
    return 0;
}
