/*
 * Eight copies of NCCL and a device, of which nothing exists but what core asks for.
 */
#include "tests/unit/core/helpers/made_ranks.h"

#include <stdlib.h>
#include <string.h>

#include "core/call/init_retry.h"
#include "core/check/arguments.h"
#include "core/check/check.h"
#include "core/check/signature_compare.h"
#include "core/comm/comm.h"
#include "core/device/capture.h"
#include "core/device/graph.h"
#include "core/nccl/call.h"
#include "core/nccl/nccl.h"
#include "core/policy/abort.h"
#include "core/runtime/alarm.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/memory.h"
#include "core/view/comparable.h"
#include "core/view/hash_log.h"
#include "core/view/signature.h"
#include "core/view/view.h"
#include "core/watchdog/watchdog.h"
#include "tests/unit/core/helpers/answers.h"

#define COMMS_MAX  1024u /* handles */
#define GRAPHS_MAX 2048u
#define NODES_MAX  64u

/* ---- The device ---- */

struct CUctx_st {
    int unused;
};
struct CUevent_st {
    bool recorded;
    struct CUevent_st *next, **link;
};
struct made_graph;
struct CUstream_st {
    struct made_graph *capture; /* NULL none is under way */
};

/* A node is an event that is recorded, or a graph. */
struct CUgraphNode_st {
    CUevent event;
    struct made_graph *graph;
};
struct made_graph {
    bool used;
    struct CUgraphNode_st nodes[NODES_MAX];
    unsigned node_count;
    cuuint64_t capture_id;
    struct {
        CUhostFn end;
        void *argument;
    } objects[NODES_MAX];
    unsigned object_count;
};

static struct CUctx_st context;
static struct CUstream_st streams[MADE_RANKS][MADE_RANK_STREAMS];
static struct made_graph graphs[GRAPHS_MAX];
static cuuint64_t captures;
static bool held;

CUDA_ANSWER(ctx_get_current, (CUcontext * ret_context), *ret_context = &context)
CUDA_ANSWER(ctx_set_current, (CUcontext unused))

static int rank_now; /* whose call it is: each has a device of its own */

CUDA_ANSWER(ctx_get_device, (CUdevice * device), *device = rank_now)
CUDA_ANSWER(ctx_get_id, (CUcontext unused, unsigned long long *id), *id = 1)
CUDA_ANSWER(primary_ctx_retain, (CUcontext * ret_context, CUdevice device), *ret_context = &context)
CUDA_ANSWER(primary_ctx_release, (CUdevice device))
CUDA_ANSWER(stream_get_ctx, (CUstream stream, CUcontext *ret_context), *ret_context = &context)
CUDA_ANSWER(stream_is_capturing, (CUstream stream, CUstreamCaptureStatus *status),
            *status = stream->capture ? CU_STREAM_CAPTURE_STATUS_ACTIVE
                                      : CU_STREAM_CAPTURE_STATUS_NONE)

static CUresult exchange_capture_mode(CUstreamCaptureMode *mode)
{
    static CUstreamCaptureMode mine = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUstreamCaptureMode before = mine;

    mine = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* All there are: the guard keeps its own until the process ends. */
static struct CUevent_st *events;

static CUresult event_create(CUevent *event, unsigned flags)
{
    struct CUevent_st *made = calloc(1, sizeof(*made));
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->link = &events;
    made->next = events;
    if (events)
        events->link = &made->next;
    events = made;
    *event = made;
    return CUDA_SUCCESS;
}

static CUresult event_destroy(CUevent event)
{
    *event->link = event->next;
    if (event->next)
        event->next->link = event->link;
    free(event);
    return CUDA_SUCCESS;
}

static CUresult event_record(CUevent event, CUstream stream)
{
    if (stream->capture)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    event->recorded = true;
    return CUDA_SUCCESS;
}

static CUresult event_query(CUevent event)
{
    return held && event->recorded ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUDA_ANSWER(event_elapsed, (float *ms, CUevent start, CUevent end), *ms = 1)

static CUresult get_capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                 CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
    if (stream->capture) {
        *id = stream->capture->capture_id;
        *graph = (CUgraph)stream->capture;
    }
    return stream_is_capturing(stream, status);
}

static void add_node(struct made_graph *graph, CUevent event, struct made_graph *inner)
{
    if (graph->node_count == NODES_MAX)
        abort();
    graph->nodes[graph->node_count++] = (struct CUgraphNode_st){event, inner};
}

static CUresult record_with_flags(CUevent event, CUstream stream, unsigned flags)
{
    if (!stream->capture || flags != CU_EVENT_RECORD_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    event->recorded = true;
    add_node(stream->capture, event, NULL);
    return CUDA_SUCCESS;
}

static struct {
    CUhostFn end;
    void *argument;
} object;

static CUresult user_object_create(CUuserObject *ret_object, void *argument, CUhostFn end,
                                   unsigned count, unsigned flags)
{
    object.end = end;
    object.argument = argument;
    *ret_object = (CUuserObject)&object;
    return CUDA_SUCCESS;
}

CUDA_ANSWER(user_object_release, (CUuserObject unused, unsigned count), object.end(object.argument))

static CUresult retain_user_object(CUgraph handle, CUuserObject unused, unsigned count,
                                   unsigned flags)
{
    struct made_graph *graph = (struct made_graph *)handle;

    graph->objects[graph->object_count].end = object.end;
    graph->objects[graph->object_count++].argument = object.argument;
    return CUDA_SUCCESS;
}

/* The newest first: in any order that is not that of the calls. */
static CUresult get_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count)
{
    struct made_graph *graph = (struct made_graph *)handle;

    for (unsigned i = 0; nodes && i < graph->node_count; i++)
        nodes[i] = &graph->nodes[graph->node_count - 1 - i];
    *count = graph->node_count;
    return CUDA_SUCCESS;
}

CUDA_ANSWER(get_type, (CUgraphNode node, CUgraphNodeType *type),
            *type = node->event ? CU_GRAPH_NODE_TYPE_EVENT_RECORD : CU_GRAPH_NODE_TYPE_GRAPH)
CUDA_ANSWER(get_event, (CUgraphNode node, CUevent *event), *event = node->event)

static CUresult get_child(CUgraphNode node, CUgraph *graph)
{
    if (!node->graph)
        return CUDA_ERROR_NOT_SUPPORTED;
    *graph = (CUgraph)node->graph;
    return CUDA_SUCCESS;
}

/* All memory from here on. */
#define MEMORY_BYTES (UINT64_C(1) << 46)
#define MEMORY       (UINT64_C(1) << 44)

CUDA_ANSWER(device_get_attribute, (int *value, CUdevice_attribute attribute, CUdevice device),
            *value = attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR ? 9 : 0)

static CUresult mem_get_address_range(CUdeviceptr *base, size_t *size, CUdeviceptr at)
{
    if (at < MEMORY || at >= MEMORY + MEMORY_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    *base = MEMORY;
    *size = MEMORY_BYTES;
    return CUDA_SUCCESS;
}

static CUresult pointer_get_attribute(void *value, CUpointer_attribute attribute, CUdeviceptr at)
{
    if (at < MEMORY || at >= MEMORY + MEMORY_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    *(unsigned *)value = attribute == CU_POINTER_ATTRIBUTE_MEMORY_TYPE      ? CU_MEMORYTYPE_DEVICE
                         : attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL ? (unsigned)rank_now
                                                                            : 0;
    return CUDA_SUCCESS;
}

static const struct ng_cuda device = {
    .loaded = true,
    .ctx_get_current = ctx_get_current,
    .ctx_set_current = ctx_set_current,
    .ctx_push = ctx_set_current,
    .ctx_pop = ctx_get_current,
    .ctx_get_device = ctx_get_device,
    .ctx_get_id = ctx_get_id,
    .primary_ctx_retain = primary_ctx_retain,
    .primary_ctx_release = primary_ctx_release,
    .stream_get_ctx = stream_get_ctx,
    .stream_is_capturing = stream_is_capturing,
    .thread_exchange_capture_mode = exchange_capture_mode,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_elapsed = event_elapsed,
    .stream_get_capture_info = get_capture_info,
    .event_record_with_flags = record_with_flags,
    .user_object_create = user_object_create,
    .user_object_release = user_object_release,
    .graph_retain_user_object = retain_user_object,
    .graph_get_nodes = get_nodes,
    .graph_node_get_type = get_type,
    .graph_event_node_get_event = get_event,
    .graph_child_node_get_graph = get_child,
    .device_get_attribute = device_get_attribute,
    .mem_get_address_range = mem_get_address_range,
    .pointer_get_attribute = pointer_get_attribute,
};

/* ---- NCCL ---- */

static struct {
    const void *handle;
    int nranks, rank, device;
} known[COMMS_MAX]; /* what NCCL says of a communicator */

static struct ng_nccl libraries[MADE_RANKS];

static unsigned place_of(const void *handle)
{
    unsigned i = 0;

    while (i < COMMS_MAX && known[i].handle && known[i].handle != handle)
        i++;
    if (i == COMMS_MAX)
        abort();
    return i;
}

NCCL_ANSWER(comm_count, (const void *comm, int *ret_count),
            *ret_count = known[place_of(comm)].nranks)
NCCL_ANSWER(comm_user_rank, (const void *comm, int *ret_rank),
            *ret_rank = known[place_of(comm)].rank)
NCCL_ANSWER(comm_cu_device, (const void *comm, int *ret_device),
            *ret_device = known[place_of(comm)].device)
NCCL_ANSWER(get_async_error, (void *comm, int *ret_error), *ret_error = NG_NCCL_SUCCESS)

/* ---- The guard ---- */

static struct made_alarm alarm;
static unsigned objections;
static int64_t now_ns = 1000 * NG_S;
static struct ng_hash_log told[MADE_TOLD];
static bool told_any[MADE_TOLD];

/* The linker gives core these in place of its own. */
int __real_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    if (clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, ret_time);
    now_ns += NG_US;
    *ret_time = (struct timespec){.tv_sec = now_ns / NG_S, .tv_nsec = now_ns % NG_S};
    return 0;
}

void __wrap_ng_alarm_raise(const struct ng_alarm *raised)
{
    if (!alarm.count++) {
        alarm.group_id = raised->group_id;
        alarm.after = raised->disagreement.difference.after;
        alarm.seq = raised->disagreement.difference.seq;
        alarm.ranks[0] = raised->disagreement.ranks[0];
        alarm.ranks[1] = raised->disagreement.ranks[1];
    }
}

void __wrap_ng_arguments_tell(const struct ng_call *call, struct ng_call_context *call_context,
                              const char *why, int result)
{
    objections++;
}

struct made_alarm made_ranks_alarm(void)
{
    struct made_alarm taken = alarm;

    memset(&alarm, 0, sizeof(alarm));
    return taken;
}

unsigned made_ranks_objections(void)
{
    unsigned taken = objections;

    objections = 0;
    return taken;
}

static void adopt_nothing(void)
{
}

/* Asked for by the leak sanitizer, where there is one. Between programs the guard begins anew as in
 * a forked child, which gives back nothing of its parent's: graphs that a program leaves behind are
 * lost then. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:ng_graph_made\nleak:ng_graph_child_set\n";
}

void made_ranks_begin(int64_t records, bool arguments, bool graphs_seen)
{
    const struct ng_box_identity identity = {.job = ""};

    for (unsigned i = 0; i < MADE_RANKS; i++)
        libraries[i] = (struct ng_nccl){.index = i,
                                        .version = 22800,
                                        .path = "",
                                        .comm_count = comm_count,
                                        .comm_user_rank = comm_user_rank,
                                        .comm_cu_device = comm_cu_device,
                                        .comm_get_async_error = get_async_error};
    ng_memory_forget();
    ng_abort_after_fork();
    ng_init_retry_after_fork();
    ng_comm_after_fork();
    ng_graph_after_fork();
    ng_watchdog_after_fork();
    ng_signature_compare_after_fork();
    memset(graphs, 0, sizeof(graphs));
    memset(streams, 0, sizeof(streams));
    memset(known, 0, sizeof(known));
    memset(told_any, 0, sizeof(told_any));
    if (ng_guard.box.header)
        ng_box_close(&ng_guard.box, NULL);
    if (ng_box_create(NULL, &identity, (uint32_t)records, &ng_guard.box) != 0)
        abort();
    ng_guard.cuda = device;
    atomic_store(&ng_guard.cuda_found, true);
    ng_guard.adopt_thread = adopt_nothing;
    atomic_store(&ng_guard.timing, NG_TIMING_SAMPLED);
    ng_guard.config.trace_size = records;
    ng_guard.config.check = arguments ? NG_CHECK_SIGNATURE_ARGS : NG_CHECK_SIGNATURE;
    ng_check_start();
    if (graphs_seen)
        ng_capture_enable();
    atomic_fetch_add(&ng_guard.generation, 1);
    atomic_store(&ng_guard.running, true);
    ng_log_init(NG_LOG_OFF, NULL, 0); /* NCCL's errors are part of the programs */
    made_ranks_alarm();
    made_ranks_objections();
    held = false;
}

void made_ranks_hold(bool hold)
{
    held = hold;
}

/* Each is the last of its thread; and the next one does not know that. */
void made_ranks_watch(void)
{
    ng_watchdog_finish();
    ng_watchdog_after_fork();
}

/* The time until the next round passes after this one: a call that begins then is younger than a
 * second. */
void made_ranks_compare(bool later)
{
    if (later)
        now_ns += 2 * NG_S;
    ng_signature_compare_run(NULL, now_ns);
    now_ns += NG_S;
}

void made_rank_tells(const void *comm, unsigned place)
{
    const struct ng_comm *found = ng_comm_find(comm);

    told_any[place] = found && ng_comparable_is_clear(&ng_guard.box, found->slot) &&
                      ng_comparable_hash_log(&ng_guard.box, found->slot, now_ns, &told[place]);
}

bool made_rank_differs(const void *comm, unsigned place)
{
    const struct ng_comm *found = ng_comm_find(comm);
    struct ng_hash_log_difference difference;
    struct ng_hash_log hash_log;

    return found && told_any[place] && ng_comparable_is_clear(&ng_guard.box, found->slot) &&
           ng_comparable_hash_log(&ng_guard.box, found->slot, now_ns, &hash_log) &&
           ng_hash_log_differ(&told[place], &hash_log, &difference);
}

struct made_standing made_rank_standing(const void *comm)
{
    const struct ng_comm *found = ng_comm_find(comm);

    if (!found)
        return (struct made_standing){0};
    return (struct made_standing){NG_LOAD(found->group->id), NG_LOAD(found->group->entered),
                                  NG_LOAD(found->group->scheduled),
                                  NG_LOAD(found->group->rolling_hash)};
}

struct made_mismatch made_ranks_mismatch(void *const *comms, unsigned count)
{
    struct made_mismatch mismatch = {false};
    struct ng_mismatch found;
    struct ng_view view;

    ng_view_init(&view);
    if (ng_view_add_box(&view, &ng_guard.box, NG_LIFE_RUNNING, now_ns, "") != 0)
        abort();
    ng_view_seal(&view);
    for (unsigned i = 0; i < count && !mismatch.found; i++) {
        uint32_t group = ng_view_find_group(&view, made_rank_standing(comms[i]).id);
        if (group != UINT32_MAX && ng_mismatch_find(&view, group, UINT64_MAX, &found))
            mismatch = (struct made_mismatch){true, i, found.seq};
    }
    ng_view_fini(&view);
    return mismatch;
}

/* ---- What a rank does ---- */

static struct {
    struct ng_call call;
    struct ng_creation creation;
    struct ng_call_context call_context;
    void *handle;
    char id[128];
    struct made_making making;
} makings[MADE_RANKS];

void made_rank_begins_making(const struct made_making *making)
{
    struct ng_creation *creation = &makings[making->rank].creation;
    struct ng_call *call = &makings[making->rank].call;

    rank_now = making->rank;
    makings[making->rank].making = *making;
    makings[making->rank].handle = NULL;
    if (making->id)
        memcpy(makings[making->rank].id, making->id, sizeof(makings[making->rank].id));
    *creation = (struct ng_creation){.unique_ids = making->id ? makings[making->rank].id : NULL,
                                     .unique_id_count = making->id != NULL,
                                     .nranks = making->parent ? 0 : making->nranks,
                                     .rank = making->parent ? -1 : making->group_rank,
                                     .color = making->color,
                                     .list = making->excluded,
                                     .list_count = making->excluded_count,
                                     .new_comm = &makings[making->rank].handle};
    *call = (struct ng_call){.op = !making->parent    ? NG_OP_CommInitRank
                                   : making->excluded ? NG_OP_CommShrink
                                                      : NG_OP_CommSplit,
                             .nccl = &libraries[making->rank],
                             .comm = making->parent,
                             .dtype = -1,
                             .redop = -1,
                             .root = -1,
                             .creation = creation};
    if (ng_call_enter(call, &makings[making->rank].call_context) != NG_CALL_PROCEED)
        abort();
}

void made_rank_ends_making(int rank)
{
    const struct made_making *making = &makings[rank].making;

    if (making->handle) {
        unsigned place = place_of(making->handle);
        known[place].handle = making->handle;
        known[place].nranks = making->nranks;
        known[place].rank = making->group_rank;
        known[place].device = rank;
    }
    makings[rank].handle = making->handle;
    ng_call_leave(&makings[rank].call, &makings[rank].call_context, NG_NCCL_SUCCESS);
}

static void pass_through(const struct ng_call *call, const struct made_rank_call *what, int result)
{
    enum ng_op_class op_class = ng_op_table[call->op].op_class;
    struct ng_call_context call_context;

    int answer = op_class == NG_CLASS_COLLECTIVE ? ng_collective_enter(call, &call_context)
                 : op_class == NG_CLASS_P2P      ? ng_p2p_enter(call, &call_context)
                                                 : ng_call_enter(call, &call_context);
    if (answer != NG_CALL_PROCEED)
        abort();
    if (what && what->inside)
        what->inside(what->argument);
    if (op_class == NG_CLASS_COLLECTIVE)
        ng_collective_leave(call, &call_context, result);
    else if (op_class == NG_CLASS_P2P)
        ng_p2p_leave(call, &call_context, result);
    else
        ng_call_leave(call, &call_context, result);
}

void made_rank_ends(int rank, void *comm, bool aborts)
{
    const struct ng_call call = {.op = aborts ? NG_OP_CommAbort : NG_OP_CommDestroy,
                                 .nccl = &libraries[rank],
                                 .comm = comm,
                                 .dtype = -1,
                                 .redop = -1,
                                 .root = -1};

    rank_now = rank;
    /* Or the abort would wait for rounds of a watchdog that is not there. */
    held = false;
    made_ranks_watch();
    pass_through(&call, NULL, NG_NCCL_SUCCESS);
}

/* As programs pass them: what a rank does not read or write is NULL. */
static void give_buffers(struct ng_call *call, const struct made_rank_call *what)
{
    unsigned place = place_of(what->comm);
    uint64_t part = what->count * ng_dtype_bytes(what->dtype),
             own = part * (uint64_t)known[place].rank;
    char *first = (char *)(uintptr_t)MEMORY, *second = first + MEMORY_BYTES / 2;
    bool root = what->root == known[place].rank;

    call->send_buffer = first;
    call->recv_buffer = what->in_place ? first : second;
    switch (what->op) {
    case NG_OP_AllGather:
        call->send_buffer = what->in_place ? first + own : first;
        break;
    case NG_OP_ReduceScatter:
        call->recv_buffer = what->in_place ? first + own : second;
        break;
    case NG_OP_AlltoAll:
    case NG_OP_AllToAllv:
        call->recv_buffer = second;
        break;
    case NG_OP_Gather:
        call->send_buffer = what->in_place && root ? first + own : first;
        call->recv_buffer = !root ? NULL : what->in_place ? first : second;
        break;
    case NG_OP_Scatter:
        call->recv_buffer = what->in_place && root ? first + own : second;
        call->send_buffer = root ? first : NULL;
        break;
    case NG_OP_Broadcast:
        call->send_buffer = root || what->in_place ? call->send_buffer : NULL;
        break;
    case NG_OP_Reduce:
        call->recv_buffer = root || what->in_place ? call->recv_buffer : NULL;
        break;
    case NG_OP_Send:
        call->recv_buffer = NULL;
        break;
    case NG_OP_Recv:
        call->send_buffer = NULL;
        break;
    default:
        break;
    }
    if (!what->count && what->op != NG_OP_AllToAllv)
        call->send_buffer = call->recv_buffer = NULL;
}

void made_rank_calls(const struct made_rank_call *what)
{
    struct ng_call call = {.op = (enum ng_op)what->op,
                           .nccl = &libraries[what->rank],
                           .comm = what->comm,
                           .stream = &streams[what->rank][what->stream],
                           .count = what->count,
                           .dtype = what->dtype,
                           .redop = what->redop,
                           .root = what->root};

    rank_now = what->rank;
    give_buffers(&call, what);
    pass_through(&call, what, what->result);
}

static void group_call(int rank, enum ng_op op, int result)
{
    const struct ng_call call = {
        .op = op, .nccl = &libraries[rank], .dtype = -1, .redop = -1, .root = -1};

    pass_through(&call, NULL, result);
}

void made_rank_opens_group(int rank)
{
    group_call(rank, NG_OP_GroupStart, NG_NCCL_SUCCESS);
}

void made_rank_closes_group(int rank, int result)
{
    group_call(rank, NG_OP_GroupEnd, result);
}

void made_rank_simulates_group(int rank)
{
    group_call(rank, NG_OP_GroupSimulateEnd, NG_NCCL_SUCCESS);
}

/* ---- Graphs ---- */

static CUgraphExec exec_of(unsigned graph)
{
    return (CUgraphExec)(uintptr_t)(UINT64_C(0x7d0000000000) + ((uint64_t)graph << 8));
}

void made_rank_begins_capture(int rank, unsigned stream)
{
    unsigned i = 0;

    while (i < GRAPHS_MAX && graphs[i].used)
        i++;
    if (i == GRAPHS_MAX)
        abort();
    graphs[i] = (struct made_graph){.used = true, .capture_id = ++captures};
    streams[rank][stream].capture = &graphs[i];
}

unsigned made_rank_ends_capture(int rank, unsigned stream)
{
    struct made_graph *graph = streams[rank][stream].capture;

    streams[rank][stream].capture = NULL;
    ng_graph_made(exec_of((unsigned)(graph - graphs)), (CUgraph)graph);
    return (unsigned)(graph - graphs);
}

void made_rank_adds_child(unsigned graph, int rank, unsigned stream)
{
    add_node(streams[rank][stream].capture, NULL, &graphs[graph]);
}

void made_rank_launches(unsigned graph, int rank, unsigned stream)
{
    struct ng_graph *found = ng_graph_find(exec_of(graph));
    CUstream on = &streams[rank][stream];

    rank_now = rank;
    if (!found)
        return;
    ng_graph_before_launch(found, on);
    ng_graph_after_launch(found, on, true);
}

void made_rank_updates(unsigned graph, unsigned from)
{
    ng_graph_made(exec_of(graph), (CUgraph)&graphs[from]);
}

void made_rank_sets_child(unsigned graph, unsigned from)
{
    ng_graph_child_set(exec_of(graph), &graphs[graph].nodes[0], (CUgraph)&graphs[from]);
}

void made_rank_forgets(unsigned graph)
{
    ng_graph_destroyed(exec_of(graph));
    for (unsigned i = 0; i < graphs[graph].object_count; i++)
        graphs[graph].objects[i].end(graphs[graph].objects[i].argument);
    graphs[graph].used = false;
    graphs[graph].object_count = 0;
}
