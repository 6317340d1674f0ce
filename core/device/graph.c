/*
 * What each executable graph holds, and what a launch of it means.
 *
 * Program threads; the progress of a replay is read by the watchdog. A launch looks up a handle,
 * and does more only if the graph holds calls: no lock, no allocation.
 */
#include "core/device/graph.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/comm/ring.h"
#include "core/comm/thread.h"
#include "core/device/burst.h"
#include "core/device/capture.h"
#include "core/device/gpu.h"
#include "core/device/poison.h"
#include "core/device/work.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define SLOTS     16384u /* a power of two */
#define DEPTH_MAX 16     /* nesting of graphs */
#define ASKED_MAX 256u   /* events queried in one round of the watchdog */

/* One call of a graph. */
struct graph_call {
    /* As it was captured. `capture` is always readable; its events are reused once the graph and
     * its launches are gone. `event` NULL: it ends with a later call of its NCCL group. */
    struct ng_captured captured;
    CUgraphNode
        child; /* the node of the child graph that contains it; NULL the outermost. Only compared */
    uint32_t copy;     /* how many copies of the same call precede it in the graph */
    uint32_t position; /* among all calls of the graph, from 1 */
};

/* The calls of a graph on one communicator. */
struct ng_graph_part {
    struct ng_graph *graph;
    struct ng_comm *comm;
    uint32_t generation;
    struct graph_call *calls;
    uint32_t count;
    bool measured;            /* any of its calls is */
    struct ng_async_op *work; /* from before to after a launch */
};

struct ng_graph {
    struct ng_graph *next; /* list of those that are no longer launched */
    CUgraphExec exec;
    uint64_t number;
    uint64_t replays;       /* so far; used by the launching thread */
    _Atomic uint32_t works; /* works that have not been returned */
    uint64_t launch; /* set during a launch; 0: the driver rejects it, or it cannot be observed */
    struct graph_call *calls;
    uint32_t count, room;
    struct ng_graph_part *parts;
    uint32_t part_count;
    bool has_copies; /* of one call: its event may belong to any of them */
};

/* By handle. A slot keeps its handle for ever, since most handles are reused. */
static struct {
    _Atomic(CUgraphExec) exec;
    _Atomic(struct ng_graph *) graph;
} slots[SLOTS] NG_LARGE;

_Atomic uint32_t ng_graph_count; /* graphs ever found */
static _Atomic uint64_t numbers, launches;

/* Protects `slots` for writers, and `leaving`. Never taken while another lock is held; only
 * ng_capture_lock is taken inside it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ng_graph *leaving; /* no longer launched; their works may not have been returned */

static uint32_t slot_of(CUgraphExec exec)
{
    return (uint32_t)(((uintptr_t)exec >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (SLOTS - 1);
}

struct ng_graph *ng_graph_look_up(CUgraphExec exec)
{
    for (uint32_t slot = slot_of(exec), i = 0; i < SLOTS; slot = (slot + 1) & (SLOTS - 1), i++) {
        CUgraphExec there = atomic_load_explicit(&slots[slot].exec, memory_order_acquire);
        if (there == exec)
            return atomic_load_explicit(&slots[slot].graph, memory_order_acquire);
        if (!there)
            return NULL;
    }
    return NULL;
}

/* ---- What is in a graph ---- */

static void free_graph(struct ng_graph *graph)
{
    if (!graph)
        return;
    free(graph->calls);
    free(graph->parts);
    free(graph);
}

static bool add_call(struct ng_graph *graph, CUgraphNode child, const struct ng_captured *captured)
{
    if (graph->count == graph->room) {
        uint32_t room = graph->room ? graph->room * 2 : 64;
        struct graph_call *bigger = realloc(graph->calls, room * sizeof(*bigger));
        if (!bigger)
            return false;
        graph->calls = bigger;
        graph->room = room;
    }
    graph->calls[graph->count++] = (struct graph_call){.captured = *captured, .child = child};
    return true;
}

/* The calls that end with the event of a node, if it is one of ours. */
static bool add_event(struct ng_graph *graph, CUgraphNode child, CUevent event)
{
    uint32_t last = graph->count;
    bool fits = true;

    ng_capture_lock();
    for (const struct ng_captured *captured = ng_capture_find(event); captured && fits;
         captured = ng_capture_before(captured))
        fits = add_call(graph, child, captured);
    ng_capture_unlock();
    /* Only the last call has the event: clear what the slots of the others still hold. */
    for (uint32_t i = last + 1; i < graph->count; i++)
        graph->calls[i].captured.event = graph->calls[i].captured.start = NULL;
    return fits;
}

/* A graph may contain other graphs (cuGraphAddChildGraphNode). */
static bool add_nodes(struct ng_graph *graph, CUgraph from, CUgraphNode child, unsigned depth)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    CUgraphNode *nodes = NULL;
    size_t count = 0;
    bool fits = true;

    if (depth == DEPTH_MAX || cuda->graph_get_nodes(from, NULL, &count) != CUDA_SUCCESS || !count)
        return true;
    nodes = malloc(count * sizeof(*nodes));
    if (!nodes)
        return false;
    if (cuda->graph_get_nodes(from, nodes, &count) != CUDA_SUCCESS)
        count = 0;
    for (size_t i = 0; i < count && fits; i++) {
        CUgraphNodeType type;
        CUgraph inner;
        CUevent event;
        if (cuda->graph_node_get_type(nodes[i], &type) != CUDA_SUCCESS)
            continue;
        if (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD &&
            cuda->graph_event_node_get_event(nodes[i], &event) == CUDA_SUCCESS)
            fits = add_event(graph, child, event);
        else if (type == CU_GRAPH_NODE_TYPE_GRAPH && cuda->graph_child_node_get_graph &&
                 cuda->graph_child_node_get_graph(nodes[i], &inner) == CUDA_SUCCESS)
            fits = add_nodes(graph, inner, nodes[i], depth + 1);
    }
    free(nodes);
    return fits;
}

static int by_order(const void *a, const void *b)
{
    const struct graph_call *left = a, *right = b;

    return NG_ORDER(left->copy, right->copy)
               ?: NG_ORDER(left->captured.ordinal, right->captured.ordinal);
}

static int by_ordinal(const void *a, const void *b)
{
    const struct graph_call *left = a, *right = b;

    return NG_ORDER(left->captured.ordinal, right->captured.ordinal);
}

static int by_comm(const void *a, const void *b)
{
    const struct graph_call *left = a, *right = b;

    return NG_ORDER(left->captured.comm->slot, right->captured.comm->slot)
               ?: NG_ORDER(left->position, right->position);
}

/*
 * Nodes are listed in any order. Sort the calls in capture order, which is the order that NCCL
 * requires on every rank; if a graph occurs twice in another one, all calls of one copy precede
 * those of the other.
 */
static bool sort_calls(struct ng_graph *graph)
{
    uint32_t first = 0;

    qsort(graph->calls, graph->count, sizeof(*graph->calls), by_ordinal);
    for (uint32_t i = 1; i < graph->count; i++)
        if (graph->calls[i].captured.ordinal == graph->calls[i - 1].captured.ordinal) {
            graph->calls[i].copy = graph->calls[i - 1].copy + 1;
            graph->has_copies = true;
        }
    qsort(graph->calls, graph->count, sizeof(*graph->calls), by_order);
    for (uint32_t i = 0; i < graph->count; i++)
        graph->calls[i].position = i + 1;
    qsort(graph->calls, graph->count, sizeof(*graph->calls), by_comm);
    graph->parts = calloc(graph->count, sizeof(*graph->parts));
    for (uint32_t i = 0; i < graph->count && graph->parts; i++) {
        if (i + 1 < graph->count &&
            graph->calls[i + 1].captured.comm == graph->calls[i].captured.comm)
            continue;
        graph->parts[graph->part_count++] =
            (struct ng_graph_part){.graph = graph,
                                   .comm = graph->calls[i].captured.comm,
                                   .generation = graph->calls[i].captured.comm_generation,
                                   .calls = &graph->calls[first],
                                   .count = i + 1 - first};
        for (; first <= i; first++)
            graph->parts[graph->part_count - 1].measured |=
                graph->calls[first].captured.start != NULL;
    }
    return graph->parts;
}

/* NULL: it holds no calls, or memory is short. */
static struct ng_graph *read_graph(CUgraph from)
{
    struct ng_graph *graph = ng_capture_any() && ng_guard_cuda() ? calloc(1, sizeof(*graph)) : NULL;

    if (!graph)
        return NULL;
    if (add_nodes(graph, from, NULL, 0) && graph->count && sort_calls(graph))
        return graph;
    free_graph(graph);
    return NULL;
}

static int by_position(const void *a, const void *b)
{
    const struct graph_call *left = a, *right = b;

    return NG_ORDER(left->position, right->position);
}

/*
 * A copy of `before` in which the calls of one child are replaced by those of `with`, one by one:
 * CUDA requires both graphs to have the same shape. NULL: they do not, or memory is short.
 */
static struct ng_graph *replace_child(const struct ng_graph *before, CUgraphNode child,
                                      struct ng_graph *with)
{
    struct ng_graph *graph = before ? calloc(1, sizeof(*graph)) : NULL;
    uint32_t next = 0, count = with ? with->count : 0;

    if (!graph || !(graph->calls = malloc(before->count * sizeof(*graph->calls)))) {
        free_graph(graph);
        return NULL;
    }
    graph->count = graph->room = before->count;
    memcpy(graph->calls, before->calls, before->count * sizeof(*graph->calls));
    qsort(graph->calls, graph->count, sizeof(*graph->calls), by_position);
    if (with)
        qsort(with->calls, count, sizeof(*with->calls), by_position);
    for (uint32_t i = 0; i < graph->count; i++) {
        struct graph_call *call = &graph->calls[i];
        uint64_t ordinal = call->captured.ordinal;
        if (call->child == child) {
            if (next < count)
                *call = with->calls[next];
            next++;
            call->child = child;
        }
        call->captured.ordinal = ordinal;
        call->copy = 0;
    }
    graph->has_copies = with && with->has_copies;
    if (next == count && sort_calls(graph))
        return graph;
    free_graph(graph);
    return NULL;
}

/* ---- Known graphs ---- */

/* Free graphs that are no longer launched and whose launches have ended. Under the lock. */
static void sweep(void)
{
    for (struct ng_graph **link = &leaving; *link;) {
        struct ng_graph *graph = *link;
        if (atomic_load(&graph->works)) {
            link = &graph->next;
            continue;
        }
        *link = graph->next;
        free_graph(graph);
    }
}

/* Set the graph of a handle; NULL: none. Returns the previous one. Under the lock. */
static struct ng_graph *put(CUgraphExec exec, struct ng_graph *graph)
{
    static atomic_bool told;

    for (uint32_t slot = slot_of(exec), i = 0; i < SLOTS; slot = (slot + 1) & (SLOTS - 1), i++) {
        CUgraphExec there = atomic_load_explicit(&slots[slot].exec, memory_order_relaxed);
        if (there && there != exec)
            continue;
        if (!there && !graph)
            return NULL;
        struct ng_graph *before = atomic_load_explicit(&slots[slot].graph, memory_order_relaxed);
        atomic_store_explicit(&slots[slot].graph, graph, memory_order_release);
        atomic_store_explicit(&slots[slot].exec, exec, memory_order_release);
        return before;
    }
    if (graph && !atomic_exchange(&told, true))
        ng_log(NG_LOG_WARN,
               "there are too many executable CUDA graphs: replays of new ones are not watched");
    return graph; /* to be freed */
}

/* Let the handle stand for `graph`; NULL: for a graph without calls. */
static void take_over(CUgraphExec exec, struct ng_graph *graph)
{
    if (!graph && !ng_graph_find(exec))
        return;
    NG_HOLD(&lock);
    sweep();
    struct ng_graph *before = ng_graph_look_up(exec);
    if (graph) {
        /* For the program it remains the same graph after an update. */
        graph->exec = exec;
        graph->number = before ? before->number : 1 + atomic_fetch_add(&numbers, 1);
        graph->replays = before ? before->replays : 0;
    }
    before = put(exec, graph);
    if (before) {
        before->next = leaving;
        leaving = before;
    }
    if (graph)
        atomic_fetch_add(&ng_graph_count, 1);
}

void ng_graph_made(CUgraphExec exec, CUgraph from)
{
    take_over(exec, read_graph(from));
}

void ng_graph_child_set(CUgraphExec exec, CUgraphNode node, CUgraph from)
{
    struct ng_graph *before = ng_graph_find(exec), *with = read_graph(from);

    if (before || with) {
        struct ng_graph *graph = replace_child(before, node, with);
        if (!graph)
            ng_log(NG_LOG_INFO, "a graph in a CUDA graph was replaced by another one: replays of "
                                "it are not watched");
        take_over(exec, graph);
    }
    free_graph(with);
}

void ng_graph_destroyed(CUgraphExec exec)
{
    if (!ng_graph_find(exec))
        return;
    NG_HOLD(&lock);
    struct ng_graph *before = put(exec, NULL);
    if (before) {
        before->next = leaving;
        leaving = before;
    }
    sweep();
}

/* ---- A launch ---- */

/* Does the communicator still exist? It may have ended since, and its record been reused. */
static bool is_there(const struct ng_graph_part *part)
{
    return part->generation == NG_LOAD(part->comm->group->generation);
}

void ng_graph_before_launch(struct ng_graph *graph, void *stream)
{
    bool capturing = false;

    graph->launch = 0;
    if (ng_this_thread)
        ng_burst_end(ng_this_thread);
    for (uint32_t i = 0; i < graph->part_count && !capturing; i++) {
        struct ng_graph_part *part = &graph->parts[i];
        part->work = is_there(part) ? ng_gpu_start(part->comm, stream, false, &capturing) : NULL;
    }
    if (capturing) /* the driver rejects it */
        return;
    graph->launch = 1 + atomic_fetch_add(&launches, 1);
    /* Before the driver's launch: from now on the events may belong to this launch. */
    for (uint32_t i = 0; i < graph->count; i++)
        if (i == 0 || graph->calls[i].captured.capture != graph->calls[i - 1].captured.capture)
            atomic_store_explicit(&graph->calls[i].captured.capture->launch, graph->launch,
                                  memory_order_release);
}

/* The calls of a launch on one communicator. */
struct entered {
    uint64_t first_seq, last_seq, last_record;
    uint32_t p2p;
};

/* Mark the record as that of a replay; the flag is written last. */
static void say_replay(struct ng_box_record *record, const struct ng_graph_part *part,
                       const struct graph_call *graph_call, uint64_t replay)
{
    NG_STORE(record->graph, part->graph->number);
    NG_STORE(record->replay, replay);
    NG_STORE(record->graph_position, graph_call->position);
    NG_STORE(record->graph_calls, part->graph->count);
    atomic_thread_fence(memory_order_release);
    NG_STORE(record->flags, graph_call->captured.flags | NG_RECORD_REPLAYED);
}

/* Give the call its next number, and a record if the ring has room for the whole launch. */
static void enter_call(const struct ng_graph_part *part, const struct graph_call *graph_call,
                       uint32_t tid, int64_t now_mono_ns, void *stream, bool recorded,
                       struct entered *entered)
{
    const struct ng_call *call = &graph_call->captured.call;
    struct ng_comm *comm = part->comm;
    struct ng_box_group *group = comm->group;
    bool p2p = graph_call->captured.flags & NG_RECORD_P2P;
    uint64_t coll_seq = NG_LOAD(group->entered) + !p2p, peer_ordinal = 0, id = 0, hash = 0;
    uint64_t p2p_seq = NG_LOAD(group->p2p_entered) + p2p;
    struct ng_box_record *record = NULL;

    if (p2p) {
        NG_STORE(group->p2p_entered, p2p_seq);
        peer_ordinal = ng_comm_count_peer(comm, call->op, call->root);
    }
    if (recorded)
        record = ng_ring_add(call, comm, tid, now_mono_ns, coll_seq, p2p_seq, peer_ordinal,
                             graph_call->captured.flags, !p2p, &id, &hash);
    if (record) {
        NG_STORE(record->stream, (uintptr_t)stream);
        NG_STORE(record->work_previous, entered->last_record);
        say_replay(record, part, graph_call, part->graph->replays);
        ng_ring_advance(record, id, NG_RECORD_SCHEDULED);
        entered->last_record = id;
    }
    if (p2p) {
        entered->p2p++;
        return;
    }
    NG_STORE(group->entered_record, id);
    if (!record)
        hash = ng_ring_roll(group, call);
    NG_STORE(group->rolling_hash, hash);
    atomic_store_explicit(&group->entered, coll_seq, memory_order_release);
    entered->first_seq = entered->first_seq ? entered->first_seq : coll_seq;
    entered->last_seq = coll_seq;
}

static void enter_part(struct ng_graph_part *part, uint32_t tid, int64_t now_mono_ns, void *stream)
{
    struct ng_async_op *work = part->work;
    struct entered entered = {0};
    /* One launch must not overwrite the records of all other communicators. */
    uint32_t recorded = ng_guard.box.record_capacity / 2;

    for (uint32_t i = 0; i < part->count; i++)
        enter_call(part, &part->calls[i], tid, now_mono_ns, stream, part->count - i <= recorded,
                   &entered);
    if (entered.last_seq) {
        NG_STORE(part->comm->group->scheduled, entered.last_seq);
        if (!recorded) {
            const struct ng_call *last = &part->calls[part->count - 1].captured.call;
            NG_STORE(part->comm->group->last_call,
                     ng_box_pack_call(last->op, last->dtype, last->root));
            NG_STORE(part->comm->group->last_redop, last->redop);
            NG_STORE(part->comm->group->last_count, last->count);
        }
    }
    part->work = NULL;
    if (!work || !ng_gpu_record(work->gpu, work->end, stream)) {
        ng_ring_set_chain(entered.last_record, NG_RECORD_UNWATCHED);
        ng_async_op_give_up(work, part->count);
        return;
    }
    ng_async_op_fill(work, entered.last_record, entered.first_seq, entered.last_seq, entered.p2p,
                     now_mono_ns);
    work->part = part;
    work->launch = part->graph->launch;
    work->replay = part->graph->replays;
    work->done = 0;
    work->done_record = work->recalled = 0;
    atomic_fetch_add_explicit(&part->graph->works, 1, memory_order_relaxed);
    if (__builtin_expect(ng_poison_is_on(), 0))
        ng_poison_note(part->comm, work->gpu, stream);
    ng_async_op_hand_over(part->comm, work);
    ng_wake_resting_watchdog();
}

void ng_graph_after_launch(struct ng_graph *graph, void *stream, bool launched)
{
    int64_t now = ng_clock_mono_ns();

    if (launched && graph->launch) {
        struct ng_thread *thread = ng_thread_get();
        graph->replays++;
        for (uint32_t i = 0; i < graph->part_count; i++)
            if (is_there(&graph->parts[i]))
                enter_part(&graph->parts[i], thread ? thread->tid : 0, now, stream);
    }
    for (uint32_t i = 0; i < graph->part_count; i++) {
        if (graph->parts[i].work)
            ng_gpu_give(graph->parts[i].work);
        graph->parts[i].work = NULL;
    }
}

/* ---- Progress ---- */

uint32_t ng_graph_calls(const struct ng_async_op *work)
{
    return work->part->count;
}

enum ng_op ng_graph_op(const struct ng_async_op *work)
{
    return work->done < work->part->count ? work->part->calls[work->done].captured.call.op
                                          : NG_OP_NONE;
}

/* Do the events of the call belong to this launch? */
static bool tells_of(const struct graph_call *call, const struct ng_async_op *work)
{
    return atomic_load_explicit(&call->captured.capture->launch, memory_order_acquire) ==
           work->launch;
}

/* Up to which call the replay has finished, according to the events. */
static uint32_t ask_events(const struct ng_async_op *work, bool *ret_vague)
{
    const struct ng_graph_part *part = work->part;
    struct ng_async_op asked = {0};
    uint32_t questions = 0, done = work->done;

    *ret_vague = part->graph->has_copies;
    for (uint32_t i = done; i < part->count && questions < ASKED_MAX && !*ret_vague; i++) {
        const struct graph_call *call = &part->calls[i];
        if (!call->captured.event)
            continue; /* it ends with a later call of its NCCL group */
        asked.gpu = call->captured.gpu;
        asked.end = call->captured.event;
        questions++;
        bool ended = ng_gpu_ended(&asked) == NG_GPU_DONE;
        /* Checked last: an event that a later launch has reused meanwhile means nothing. */
        *ret_vague = !tells_of(call, work);
        if (*ret_vague || !ended)
            break;
        done = i + 1;
    }
    return done;
}

struct ng_graph_progress ng_graph_progress(const struct ng_async_op *work)
{
    const struct ng_graph_part *part = work->part;
    struct ng_graph_progress progress = {0};

    progress.done = ask_events(work, &progress.vague);
    for (uint32_t i = work->done; i < progress.done; i++)
        if (part->calls[i].captured.flags & NG_RECORD_P2P)
            progress.p2p++;
        else
            progress.collectives++;
    return progress;
}

bool ng_graph_measures(const struct ng_async_op *work)
{
    return work->part->measured && !work->part->graph->has_copies;
}

bool ng_graph_measured(const struct ng_async_op *work, uint32_t call,
                       struct ng_graph_measure *ret_measure)
{
    const struct ng_graph_part *part = work->part;
    const struct graph_call *measured = &part->calls[call];
    struct ng_async_op asked = {.has_start = true, .timed = true};

    if (!measured->captured.start || !tells_of(measured, work))
        return false;
    asked.gpu = measured->captured.gpu;
    asked.start = measured->captured.start;
    asked.end = measured->captured.event;
    *ret_measure =
        (struct ng_graph_measure){measured->captured.measured_op, measured->captured.measured_bytes,
                                  ng_gpu_duration_ns(&asked)};
    /* Checked last: the times must not be those of a later launch. */
    return ret_measure->duration_ns > 0 && tells_of(measured, work);
}

uint64_t ng_graph_recall(const struct ng_async_op *work, uint32_t tid)
{
    const struct ng_graph_part *part = work->part;
    const struct graph_call *call = work->done < part->count ? &part->calls[work->done] : NULL;
    uint64_t id, hash;

    /* The numbers of sends and receives are not kept. */
    if (!call || (call->captured.flags & NG_RECORD_P2P))
        return 0;
    struct ng_box_record *record = ng_ring_add(
        &call->captured.call, part->comm, tid, work->entered_mono_ns, work->first_seq,
        NG_LOAD(part->comm->group->p2p_entered), 0, call->captured.flags, false, &id, &hash);
    if (!record)
        return 0;
    say_replay(record, part, call, work->replay);
    ng_ring_advance(record, id, NG_RECORD_SCHEDULED);
    return id;
}

void ng_graph_forget(struct ng_async_op *work)
{
    struct ng_graph *graph = work->part->graph;

    work->part = NULL;
    work->done_record = work->recalled = 0;
    atomic_fetch_sub_explicit(&graph->works, 1, memory_order_release);
}

void ng_graph_after_fork(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    leaving = NULL;
    for (uint32_t i = 0; i < SLOTS && atomic_load(&ng_graph_count); i++)
        atomic_store(&slots[i].graph, NULL);
    atomic_store(&ng_graph_count, 0);
}
