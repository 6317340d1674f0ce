/*
 * The part of a driver that graphs need: captures are numbered, nodes are the events that were
 * recorded in one.
 */
#include "tests/unit/core/helpers/made_graphs.h"

#include <pthread.h>
#include <stdatomic.h>

#include "core/comm/comm.h"
#include "core/device/capture.h"
#include "core/device/graph.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/watchdog/watchdog.h"
#include "tests/unit/core/helpers/answers.h"
#include "tests/unit/core/helpers/made_calls.h"

#define NODES 64

static struct ng_cuda driver; /* of made_calls */
/* The watchdog asks while a test captures. Protects nodes and node_count; nests inside nothing. */
static pthread_mutex_t nodes_lock = PTHREAD_MUTEX_INITIALIZER;
static CUevent nodes[NODES];
static unsigned node_count;
static cuuint64_t capture_id;
static _Atomic int reached = -1;
static CUhostFn end_graph;
static void *end_argument;

static CUresult get_capture_info(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id,
                                 CUgraph *graph, const CUgraphNode **dependencies, size_t *count)
{
    *id = capture_id;
    *graph = (CUgraph)nodes;
    return driver.stream_is_capturing(stream, status);
}

static CUresult record_with_flags(CUevent event, CUstream stream, unsigned flags)
{
    if (flags != CU_EVENT_RECORD_EXTERNAL || made_graph_nodes() == NODES)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&nodes_lock);
    nodes[node_count++] = event;
    pthread_mutex_unlock(&nodes_lock);
    return CUDA_SUCCESS;
}

/* Of an event among the nodes; -1 it is none. */
static int place_of(CUevent event)
{
    int place = -1;

    pthread_mutex_lock(&nodes_lock);
    for (unsigned i = 0; i < node_count && place < 0; i++)
        if (nodes[i] == event)
            place = (int)i;
    pthread_mutex_unlock(&nodes_lock);
    return place;
}

static CUresult user_object_create(CUuserObject *object, void *argument, CUhostFn end,
                                   unsigned count, unsigned flags)
{
    end_graph = end;
    end_argument = argument;
    *object = (CUuserObject)nodes;
    return CUDA_SUCCESS;
}

CUDA_ANSWER(user_object_release, (CUuserObject object, unsigned count), end_graph(end_argument))
CUDA_ANSWER(retain_user_object,
            (CUgraph graph, CUuserObject object, unsigned count, unsigned flags))

/* In any order, which is not that of the calls. */
static CUresult get_nodes(CUgraph graph, CUgraphNode *into, size_t *count)
{
    for (size_t i = 0; into && i < node_count; i++)
        into[i] = (CUgraphNode)&nodes[node_count - 1 - i];
    *count = node_count;
    return CUDA_SUCCESS;
}

CUDA_ANSWER(get_type, (CUgraphNode node, CUgraphNodeType *type),
            *type = CU_GRAPH_NODE_TYPE_EVENT_RECORD)
CUDA_ANSWER(get_event, (CUgraphNode node, CUevent *event), *event = *(CUevent *)node)

static CUresult query(CUevent event)
{
    int come = atomic_load(&reached), place = place_of(event);

    if (place < 0)
        return driver.event_query(event);
    return come < 0 || place < come ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* Of a replay: a millisecond between two nodes; what was recorded elsewhere is the other driver's.
 */
static CUresult elapsed(float *ms, CUevent start, CUevent end)
{
    if (place_of(start) < 0)
        return driver.event_elapsed(ms, start, end);
    *ms = 1;
    return query(end) == CUDA_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static unsigned made_events;

static CUresult create(CUevent *event, unsigned flags)
{
    made_events++;
    return driver.event_create(event, flags);
}

void made_graphs_begin(void)
{
    struct ng_cuda *cuda = &ng_guard.cuda;

    driver = *cuda;
    cuda->stream_get_capture_info = get_capture_info;
    cuda->event_record_with_flags = record_with_flags;
    cuda->user_object_create = user_object_create;
    cuda->user_object_release = user_object_release;
    cuda->graph_retain_user_object = retain_user_object;
    cuda->graph_get_nodes = get_nodes;
    cuda->graph_node_get_type = get_type;
    cuda->graph_event_node_get_event = get_event;
    cuda->event_query = query;
    cuda->event_elapsed = elapsed;
    ng_capture_enable();
}

void made_capture_begin(void)
{
    pthread_mutex_lock(&nodes_lock);
    node_count = 0;
    pthread_mutex_unlock(&nodes_lock);
    capture_id++;
    made_events = 0;
    ng_guard.cuda.event_create = create;
    made_calls.captures = true;
}

void made_capture_end(void)
{
    made_calls.captures = false;
    ng_guard.cuda.event_create = driver.event_create;
}

unsigned made_graph_nodes(void)
{
    return node_count;
}

unsigned made_graph_events(void)
{
    return made_events;
}

void made_instantiate(void *exec)
{
    ng_graph_made(exec, (CUgraph)nodes);
}

void made_exec_destroy(void *exec)
{
    ng_graph_destroyed(exec);
}

void made_graph_end(void)
{
    end_graph(end_argument);
}

bool made_launch(void *exec, void *stream)
{
    struct ng_graph *graph = ng_graph_find(exec);

    if (!graph)
        return false;
    ng_graph_before_launch(graph, stream);
    ng_graph_after_launch(graph, stream, true);
    return true;
}

void made_reach(int events)
{
    atomic_store(&reached, events);
}

struct made_pending made_pending(const void *comm)
{
    const struct ng_box_group *group = ng_comm_find(comm)->group;

    ng_wake_await_rounds(ng_clock_mono_ns() + 10 * NG_S);
    ng_wake_await_rounds(ng_clock_mono_ns() + 10 * NG_S);
    return (struct made_pending){NG_LOAD(group->pending_seq), NG_LOAD(group->pending_record),
                                 (NG_LOAD(group->pending_doubt) & NG_PENDING_VAGUE) != 0};
}

struct made_replay made_newest_replay(void)
{
    const struct ng_box *box = &ng_guard.box;
    const struct ng_box_record *record =
        &box->records[ng_record_slot(NG_LOAD(box->header->record_next) - 1, box->record_capacity)];

    return (struct made_replay){NG_LOAD(record->graph), NG_LOAD(record->replay),
                                NG_LOAD(record->graph_position), NG_LOAD(record->graph_calls),
                                NG_LOAD(record->flags)};
}
