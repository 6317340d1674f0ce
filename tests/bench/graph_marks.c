/*
 * What a mark behind each call costs: an event that tells no time, in a CUDA graph and without one.
 *
 *     graph_marks KERNEL.ptx [--calls N] [--kib K] [--rounds R] [--replays M]
 *
 * A call is a kernel of one block that reads K KiB. Graphs of N calls, in three shapes: in one
 * stream; each call on a second stream that the first one waits for, as PyTorch has its
 * collectives; and the same with a kernel of the program between. Marks stand behind the call or
 * before it in its stream; behind it with nothing that waits for it; behind the join; or behind
 * every tenth call. Without a graph: no mark, one behind, one before and one behind, as the guard
 * makes them. All in turn; medians of R rounds of M replays, in microseconds a call: back to back;
 * each waited for; and for the host, to enqueue. One line of JSON each. Needs one GPU; on the
 * stand-in the figures say nothing.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tests/bench/figures.h"
#include "tests/bench/kernel.h"

#define ROUNDS_MAX 100
#define EXTERNAL   1u /* CU_EVENT_RECORD_EXTERNAL */
#define SET        1u /* CU_STREAM_SET_CAPTURE_DEPENDENCIES */

enum shape { IN_ONE_STREAM, BESIDE, BESIDE_WITH_WORK, WITHOUT_A_GRAPH, SHAPES };
static const char *const shape_names[SHAPES] = {"in one stream", "beside",
                                                "beside, with work between", "no graph"};

enum mark { NONE, BEHIND, BEFORE, BOTH, LEAF, JOINED, EVERY_TENTH, FEWEST_EDGES, MARKS };
static const char *const mark_names[MARKS] = {
    "none", "behind",          "before",      "both",
    "leaf", "behind the join", "every tenth", "behind, fewest edges"};

struct variant {
    enum shape shape;
    enum mark mark;
    CUgraphExec graph;
    size_t nodes, edges;
    double back_to_back[ROUNDS_MAX], waited_for[ROUNDS_MAX], enqueue[ROUNDS_MAX];
};

static struct variant variants[] = {
    {IN_ONE_STREAM, NONE},
    {IN_ONE_STREAM, BEHIND},
    {IN_ONE_STREAM, BEFORE},
    {IN_ONE_STREAM, LEAF},
    {IN_ONE_STREAM, EVERY_TENTH},
    {BESIDE, NONE},
    {BESIDE, BEHIND},
    {BESIDE, BEFORE},
    {BESIDE, LEAF},
    {BESIDE, JOINED},
    {BESIDE, EVERY_TENTH},
    {BESIDE, FEWEST_EDGES},
    {BESIDE_WITH_WORK, NONE},
    {BESIDE_WITH_WORK, BEHIND},
    {BESIDE_WITH_WORK, BEFORE},
    {BESIDE_WITH_WORK, LEAF},
    {BESIDE_WITH_WORK, JOINED},
    {BESIDE_WITH_WORK, EVERY_TENTH},
    {BESIDE_WITH_WORK, FEWEST_EDGES},
    {WITHOUT_A_GRAPH, NONE},
    {WITHOUT_A_GRAPH, BEHIND},
    {WITHOUT_A_GRAPH, BOTH},
};
#define VARIANTS (sizeof(variants) / sizeof(variants[0]))

static CUstream program, beside; /* streams */
static CUevent fork_event, join_event, *marks;
static struct bench_kernel kernel, work;
static unsigned calls = 100, kib = 32, rounds = 15, replays = 50;

/* The node that was added last; all that was added before it is done before it, in these shapes. */
static CUgraphNode last_of(CUstream stream)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *found;
    size_t count = 0;

    CUDA(cuStreamGetCaptureInfo_v2, stream, &status, NULL, NULL, &found, &count);
    return count ? found[0] : NULL;
}

static void mark_in_graph(unsigned call, CUstream stream, bool leaf)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *found;
    CUgraphNode before[8];
    size_t count = 0;

    CUDA(cuStreamGetCaptureInfo_v2, stream, &status, NULL, NULL, &found, &count);
    if (count > sizeof(before) / sizeof(before[0]))
        count = 0; /* what is not kept is not put back */
    memcpy(before, found, count * sizeof(before[0]));
    CUDA(cuEventRecordWithFlags, marks[call], stream, EXTERNAL);
    if (leaf && count)
        CUDA(cuStreamUpdateCaptureDependencies, stream, before, count, SET);
}

static void capture_call(const struct variant *variant, unsigned call)
{
    CUstream stream = variant->shape == IN_ONE_STREAM ? program : beside;
    enum mark mark = variant->mark;
    CUgraphNode last = call ? last_of(stream) : NULL;

    if (variant->shape == BESIDE_WITH_WORK) {
        bench_kernel_launch(&work, program);
        last = last_of(program);
    }
    if (stream != program) {
        CUDA(cuEventRecord, fork_event, program);
        CUDA(cuStreamWaitEvent, stream, fork_event, 0);
    }
    if (mark == BEFORE && call) /* before the first there is nothing to stand behind */
        mark_in_graph(call, stream, false);
    if (mark == FEWEST_EDGES && last)
        CUDA(cuStreamUpdateCaptureDependencies, stream, &last, 1, SET);
    bench_kernel_launch(&kernel, stream);
    if (mark == BEHIND || mark == FEWEST_EDGES || mark == LEAF ||
        (mark == EVERY_TENTH && call % 10 == 9))
        mark_in_graph(call, stream, mark == LEAF);
    if (stream != program) {
        CUDA(cuEventRecord, join_event, stream);
        CUDA(cuStreamWaitEvent, program, join_event, 0);
    }
    if (mark == JOINED)
        mark_in_graph(call, program, false);
}

static void capture(struct variant *variant)
{
    CUgraph graph;

    CUDA(cuStreamBeginCapture_v2, program, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (unsigned call = 0; call < calls; call++)
        capture_call(variant, call);
    CUDA(cuStreamEndCapture, program, &graph);
    CUDA(cuGraphGetNodes, graph, NULL, &variant->nodes);
    CUDA(cuGraphGetEdges, graph, NULL, NULL, &variant->edges);
    CUDA(cuGraphInstantiateWithFlags, &variant->graph, graph, 0);
}

static void enqueue(const struct variant *variant)
{
    if (variant->graph) {
        CUDA(cuGraphLaunch, variant->graph, program);
        return;
    }
    for (unsigned call = 0; call < calls; call++) {
        if (variant->mark == BOTH)
            CUDA(cuEventRecord, marks[call], program);
        bench_kernel_launch(&kernel, program);
        if (variant->mark != NONE)
            CUDA(cuEventRecord, marks[calls + call], program);
    }
}

/* Microseconds a call. */
static double took(double begun, unsigned times)
{
    return (bench_now_us() - begun) / times / calls;
}

static void measure(struct variant *variant, unsigned round)
{
    enqueue(variant);
    CUDA(cuStreamSynchronize, program);
    double begun = bench_now_us();
    enqueue(variant);
    variant->enqueue[round] = took(begun, 1);
    CUDA(cuStreamSynchronize, program);
    begun = bench_now_us();
    for (unsigned i = 0; i < replays; i++)
        enqueue(variant);
    CUDA(cuStreamSynchronize, program);
    variant->back_to_back[round] = took(begun, replays);
    begun = bench_now_us();
    for (unsigned i = 0; i < replays; i++) {
        enqueue(variant);
        CUDA(cuStreamSynchronize, program);
    }
    variant->waited_for[round] = took(begun, replays);
}

static bool read_options(int argc, char **argv)
{
    const struct {
        const char *name;
        unsigned *value, max;
    } options[] = {{"--calls", &calls, 10000},
                   {"--kib", &kib, 1 << 20},
                   {"--rounds", &rounds, ROUNDS_MAX},
                   {"--replays", &replays, 100000}};

    for (int i = 2; i < argc; i += 2) {
        unsigned at = 0;
        while (at < sizeof(options) / sizeof(options[0]) && strcmp(argv[i], options[at].name) != 0)
            at++;
        if (at == sizeof(options) / sizeof(options[0]) || i + 1 == argc)
            return false;
        *options[at].value = (unsigned)strtoul(argv[i + 1], NULL, 10);
        if (!*options[at].value || *options[at].value > options[at].max)
            return false;
    }
    return argc > 1;
}

int main(int argc, char **argv)
{
    if (!read_options(argc, argv)) {
        fprintf(stderr,
                "usage: graph_marks KERNEL.ptx [--calls N] [--kib K] [--rounds R] [--replays M]\n");
        return 2;
    }
    bench_begin("graph_marks");
    CUDA(cuStreamCreate, &program, CU_STREAM_NON_BLOCKING);
    CUDA(cuStreamCreate, &beside, CU_STREAM_NON_BLOCKING);
    CUDA(cuEventCreate, &fork_event, CU_EVENT_DISABLE_TIMING);
    CUDA(cuEventCreate, &join_event, CU_EVENT_DISABLE_TIMING);
    marks = calloc(2 * (size_t)calls, sizeof(*marks));
    if (!marks)
        return 1;
    for (unsigned i = 0; i < 2 * calls; i++)
        CUDA(cuEventCreate, &marks[i], CU_EVENT_DISABLE_TIMING);
    kernel = bench_kernel_load(argv[1], (size_t)kib << 10, 0, program);
    work = bench_kernel_load(argv[1], (size_t)kib << 10, 0, program);
    CUDA(cuStreamSynchronize, program);
    for (size_t i = 0; i < VARIANTS; i++)
        if (variants[i].shape != WITHOUT_A_GRAPH)
            capture(&variants[i]);
    for (unsigned round = 0; round < rounds; round++)
        for (size_t i = 0; i < VARIANTS; i++)
            measure(&variants[i], round);
    for (size_t i = 0; i < VARIANTS; i++)
        printf("{\"shape\": \"%s\", \"marks\": \"%s\", \"nodes\": %zu, \"edges\": %zu, "
               "\"back_to_back_us\": %.3f, "
               "\"waited_for_us\": %.3f, \"enqueue_us\": %.3f}\n",
               shape_names[variants[i].shape], mark_names[variants[i].mark], variants[i].nodes,
               variants[i].edges, bench_median(variants[i].back_to_back, rounds),
               bench_median(variants[i].waited_for, rounds),
               bench_median(variants[i].enqueue, rounds));
    return 0;
}
