/*
 * Graphs of the stand-in driver: nodes, instantiation into a program, and its replay on a stream.
 *
 * Entered by any thread of the program; fake_graph_run by stream threads. A replay runs the nodes
 * one after the other, in an order that respects the edges.
 */
#include "tests/fake/cuda/cuda_graph.h"

#include <stdlib.h>
#include <string.h>

struct CUuserObject_st {
    struct CUuserObject_st *next; /* among those whose destructor is to be run */
    unsigned int refs;
    CUhostFn destroy;
    void *pointer;
};

/* One node as it is executed. */
struct step {
    struct operation op;
    CUgraphNodeType type;
    CUgraphNode node; /* only compared, it may be gone */
};

/* What an executable graph runs. Never changed while a launch holds it: an update makes a new one.
 */
struct program {
    unsigned int refs;
    size_t n;
    struct step *steps;
    struct object_ref *objects;
};

struct CUgraphExec_st {
    struct program *program;
    unsigned long long flags;
    struct mark *last; /* end of the last launch */
};

static struct CUuserObject_st *dead_objects;

/* User objects. */

static void object_release(CUuserObject object, unsigned int count)
{
    object->refs -= count;
    if (object->refs)
        return;
    fake_handle_remove(object);
    object->next = dead_objects;
    dead_objects = object;
}

void fake_user_objects_reap(void)
{
    struct thread *thread = fake_thread();

    while (dead_objects) {
        struct CUuserObject_st *object = dead_objects;
        bool before = thread->in_host_function;

        dead_objects = object->next;
        thread->in_host_function = true; /* a destructor may not call CUDA */
        fake_unlock();
        object->destroy(object->pointer);
        free(object);
        fake_lock();
        thread->in_host_function = before;
    }
}

static inline void leave_graphs(const bool *held)
{
    fake_user_objects_reap();
    fake_unlock_at_end(held);
}

/* As ENTER_DRIVER, for a call that may end the life of a user object. */
#define ENTER_GRAPHS                                                                               \
    TRY(fake_ready());                                                                             \
    __attribute__((cleanup(leave_graphs), unused)) const bool held = (fake_lock(), true)

static void objects_add(struct object_ref **objects, CUuserObject object, unsigned int count)
{
    struct object_ref *ref = *objects;

    while (ref && ref->object != object)
        ref = ref->next;
    if (!ref) {
        ref = fake_new(sizeof(*ref));
        *ref = (struct object_ref){*objects, object, 0};
        *objects = ref;
    }
    ref->count += count;
}

static void objects_copy(struct object_ref **to, const struct object_ref *from)
{
    for (; from; from = from->next) {
        objects_add(to, from->object, 1);
        from->object->refs++;
    }
}

static void objects_clear(struct object_ref **objects)
{
    while (*objects) {
        struct object_ref *ref = *objects;

        *objects = ref->next;
        object_release(ref->object, ref->count);
        free(ref);
    }
}

CUresult CUDAAPI cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                                    unsigned int initialRefcount, unsigned int flags)
{
    TRY(fake_ready());
    INVALID_IF(!object_out || !destroy || !initialRefcount ||
               flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    CUuserObject object = fake_new(sizeof(*object));
    *object = (struct CUuserObject_st){.refs = initialRefcount, .destroy = destroy, .pointer = ptr};
    HOLD_LOCK;
    fake_handle_add(object, HANDLE_USER_OBJECT);
    *object_out = object;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    ENTER_GRAPHS;
    INVALID_IF(!count || !fake_handle_is(object, HANDLE_USER_OBJECT) || count > object->refs);
    object_release(object, count);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                         unsigned int flags)
{
    ENTER_DRIVER;
    INVALID_IF(!count || !fake_handle_is(graph, HANDLE_GRAPH) ||
               !fake_handle_is(object, HANDLE_USER_OBJECT) ||
               (flags & ~(unsigned int)CU_GRAPH_USER_OBJECT_MOVE));
    objects_add(&graph->objects, object, count);
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
        object->refs += count;
    return CUDA_SUCCESS;
}

/* Operations in nodes and steps: each copy holds references of its own. */

static void operation_hold(struct operation *op)
{
    if (op->kind == OP_RECORD || op->kind == OP_WAIT)
        op->event.event->refs++;
}

static void operation_drop(struct operation *op)
{
    if (op->kind == OP_RECORD || op->kind == OP_WAIT)
        fake_event_unref(op->event.event);
}

static void program_unref(struct program *program)
{
    if (--program->refs)
        return;
    for (size_t i = 0; i < program->n; i++)
        operation_drop(&program->steps[i].op);
    objects_clear(&program->objects);
    free(program->steps);
    free(program);
}

static void program_append(struct program *program, const struct step *step)
{
    program->steps = fake_resize(program->steps, (program->n + 1) * sizeof(*step));
    program->steps[program->n++] = *step;
    operation_hold(&program->steps[program->n - 1].op);
}

static CUresult program_add_graph(struct program *program, CUgraph graph);

static CUresult program_add_node(struct program *program, CUgraphNode node)
{
    struct step step = {.op = node->op, .type = node->type, .node = node};

    if (node->visited)
        return CUDA_SUCCESS;
    INVALID_IF(node->entered); /* a cycle */
    node->entered = true;
    for (size_t i = 0; i < node->n_deps; i++)
        TRY(program_add_node(program, node->deps[i]));
    node->visited = true;
    if (node->child)
        return program_add_graph(program, node->child);
    program_append(program, &step);
    return CUDA_SUCCESS;
}

static CUresult program_add_graph(struct program *program, CUgraph graph)
{
    for (CUgraphNode node = graph->first; node; node = node->next)
        node->visited = node->entered = false;
    for (CUgraphNode node = graph->first; node; node = node->next)
        TRY(program_add_node(program, node));
    objects_copy(&program->objects, graph->objects);
    return CUDA_SUCCESS;
}

static CUresult program_create(CUgraph graph, struct program **ret_program)
{
    struct program *program = fake_new(sizeof(*program));
    CUresult result;

    program->refs = 1;
    result = program_add_graph(program, graph);
    if (result == CUDA_SUCCESS)
        *ret_program = program;
    else
        program_unref(program);
    return result;
}

/* A copy that may be changed. */
static struct program *program_copy(const struct program *from)
{
    struct program *program = fake_new(sizeof(*program));

    program->refs = 1;
    for (size_t i = 0; i < from->n; i++)
        program_append(program, &from->steps[i]);
    objects_copy(&program->objects, from->objects);
    return program;
}

/* Graphs and nodes. */

CUgraph fake_graph_create(void)
{
    CUgraph graph = fake_new(sizeof(*graph));

    fake_handle_add(graph, HANDLE_GRAPH);
    return graph;
}

static void node_unlink(CUgraphNode node)
{
    CUgraph graph = node->graph;

    if (node->prev)
        node->prev->next = node->next;
    else
        graph->first = node->next;
    if (node->next)
        node->next->prev = node->prev;
    else
        graph->last = node->prev;
}

static void node_destroy(CUgraphNode node)
{
    node_unlink(node);
    fake_handle_remove(node);
    if (node->child) {
        node->child->child = false;
        fake_graph_destroy(node->child);
    }
    operation_drop(&node->op);
    free(node->deps);
    free(node);
}

void fake_graph_destroy(CUgraph graph)
{
    while (graph->last)
        node_destroy(graph->last);
    objects_clear(&graph->objects);
    fake_handle_remove(graph);
    free(graph);
}

static bool node_depends_on(CUgraphNode node, CUgraphNode other)
{
    for (size_t i = 0; i < node->n_deps; i++)
        if (node->deps[i] == other)
            return true;
    return false;
}

static CUresult node_depend(CUgraphNode node, CUgraphNode other)
{
    INVALID_IF(node == other || node_depends_on(node, other));
    node->deps = fake_resize(node->deps, (node->n_deps + 1) * sizeof(other));
    node->deps[node->n_deps++] = other;
    return CUDA_SUCCESS;
}

/* Takes over what `op` refers to on success only. */
CUresult fake_node_add(CUgraph graph, const CUgraphNode *deps, size_t n_deps, CUgraphNodeType type,
                       const struct operation *op, CUgraphNode *ret_node)
{
    CUresult result = CUDA_SUCCESS;
    CUgraphNode node;

    INVALID_IF(n_deps && !deps);
    for (size_t i = 0; i < n_deps; i++)
        INVALID_IF(!fake_handle_is(deps[i], HANDLE_NODE) || deps[i]->graph != graph);
    node = fake_new(sizeof(*node));
    for (size_t i = 0; i < n_deps && result == CUDA_SUCCESS; i++)
        result = node_depend(node, deps[i]);
    if (result != CUDA_SUCCESS) {
        free(node->deps);
        free(node);
        return result;
    }
    node->graph = graph;
    node->type = type;
    node->op = *op;
    node->prev = graph->last;
    if (graph->last)
        graph->last->next = node;
    else
        graph->first = node;
    graph->last = node;
    fake_handle_add(node, HANDLE_NODE);
    *ret_node = node;
    return CUDA_SUCCESS;
}

static void mark_node(CUgraphNode node)
{
    if (node->visited)
        return;
    node->visited = true;
    for (size_t i = 0; i < node->n_deps; i++)
        mark_node(node->deps[i]);
}

void fake_graph_mark_ancestors(CUgraph graph, const CUgraphNode *nodes, size_t n_nodes)
{
    for (CUgraphNode node = graph->first; node; node = node->next)
        node->visited = false;
    for (size_t i = 0; i < n_nodes; i++)
        mark_node(nodes[i]);
}

static CUgraphNode find_in_clone(CUgraph clone, CUgraphNode original)
{
    for (CUgraphNode node = clone->first; node; node = node->next)
        if (node->source == original)
            return node;
    return NULL;
}

/* What is right in the one is right in the other: no node and no edge can be refused. */
static CUgraph graph_clone(CUgraph from)
{
    CUgraph graph = fake_graph_create();

    for (CUgraphNode node = from->first; node; node = node->next) {
        CUgraphNode copy;

        (void)fake_node_add(graph, NULL, 0, node->type, &node->op, &copy);
        operation_hold(&copy->op);
        copy->source = node;
        if (node->child) {
            copy->child = graph_clone(node->child);
            copy->child->child = true;
        }
    }
    /* Edges may lead forward in the order of creation, so they come last. */
    for (CUgraphNode node = from->first; node; node = node->next)
        for (size_t i = 0; i < node->n_deps; i++)
            (void)node_depend(find_in_clone(graph, node), find_in_clone(graph, node->deps[i]));
    objects_copy(&graph->objects, from->objects);
    return graph;
}

/* Replay. */

void fake_graph_run(struct CUstream_st *stream, struct operation *op)
{
    struct program *program = op->graph.program;

    for (size_t i = 0; i < program->n; i++) {
        struct operation step = program->steps[i].op;

        if (step.kind == OP_RECORD || step.kind == OP_WAIT) {
            if (!op->graph.marks[i])
                continue; /* an event that had never been recorded */
            step.event.mark = op->graph.marks[i];
        }
        fake_operation_run(stream, &step);
    }
    fake_mark_reach(op->graph.end);
}

void fake_graph_launch_release(struct operation *op)
{
    for (size_t i = 0; i < op->graph.program->n; i++)
        fake_mark_unref(op->graph.marks[i]);
    free(op->graph.marks);
    fake_mark_unref(op->graph.end);
    program_unref(op->graph.program);
}

static CUresult launch(CUgraphExec exec, struct CUstream_st *stream)
{
    struct operation op = {.kind = OP_GRAPH, .graph = {.program = exec->program}};
    struct program *program = exec->program;
    CUresult result;

    /* No launch can be captured, and one that is tried ends the capture, whatever came before. */
    result = fake_capture_stream_guard(stream) == CUDA_SUCCESS
                 ? fake_capture_legacy_guard(stream)
                 : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (result != CUDA_SUCCESS)
        return result;
    if (exec->last && !exec->last->done && exec->last->stream != stream) {
        /* Launches of one executable graph never overlap. */
        struct operation wait = {.kind = OP_WAIT, .event = {.mark = exec->last}};

        exec->last->refs++;
        result = fake_stream_enqueue(stream, &wait);
        if (result != CUDA_SUCCESS) {
            fake_mark_unref(wait.event.mark);
            return result;
        }
    }
    program->refs++;
    op.graph.marks = fake_new((program->n + 1) * sizeof(*op.graph.marks));
    op.graph.end = fake_mark_create(stream);
    for (size_t i = 0; i < program->n; i++) {
        struct step *step = &program->steps[i];
        struct CUevent_st *event;

        if (step->op.kind != OP_RECORD && step->op.kind != OP_WAIT)
            continue;
        event = step->op.event.event;
        if (step->op.kind == OP_RECORD) {
            /* From now until the replay comes to it the event is not ready. */
            fake_capture_event_reset(event);
            fake_mark_unref(event->mark);
            event->mark = fake_mark_create(stream);
        }
        op.graph.marks[i] = event->mark;
        if (event->mark)
            event->mark->refs++;
    }
    result = fake_stream_enqueue(stream, &op);
    if (result != CUDA_SUCCESS) {
        for (size_t i = 0; i < program->n; i++)
            if (op.graph.marks[i] && program->steps[i].op.kind == OP_RECORD)
                fake_mark_reach(op.graph.marks[i]); /* nothing else will */
        fake_graph_launch_release(&op);
        return result;
    }
    op.graph.end->refs++;
    fake_mark_unref(exec->last);
    exec->last = op.graph.end;
    return CUDA_SUCCESS;
}

/* The calls. */

#define is_graph(handle) fake_handle_is(handle, HANDLE_GRAPH)
#define is_node(handle)  fake_handle_is(handle, HANDLE_NODE)
#define is_exec(handle)  fake_handle_is(handle, HANDLE_EXEC)

GETTER(cuGraphCreate, (CUgraph * phGraph, unsigned int flags), ENTER_GRAPHS;
       INVALID_IF(flags), phGraph, fake_graph_create())

CUresult CUDAAPI cuGraphDestroy(CUgraph hGraph)
{
    ENTER_GRAPHS;
    INVALID_IF(!is_graph(hGraph) || hGraph->child);
    fake_graph_destroy(hGraph);
    return CUDA_SUCCESS;
}

GETTER(cuGraphClone, (CUgraph * phGraphClone, CUgraph originalGraph), ENTER_GRAPHS;
       INVALID_IF(!is_graph(originalGraph)), phGraphClone, graph_clone(originalGraph))

CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
                                        CUgraph hClonedGraph)
{
    ENTER_GRAPHS;
    INVALID_IF(!phNode || !is_node(hOriginalNode) || !is_graph(hClonedGraph));
    CUgraphNode found = find_in_clone(hClonedGraph, hOriginalNode);
    INVALID_IF(!found);
    *phNode = found;
    return CUDA_SUCCESS;
}

static CUresult add_node(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                         size_t numDependencies, CUgraphNodeType type, const struct operation *op)
{
    INVALID_IF(!phGraphNode || !is_graph(hGraph));
    return fake_node_add(hGraph, dependencies, numDependencies, type, op, phGraphNode);
}

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                     const CUgraphNode *dependencies, size_t numDependencies)
{
    ENTER_GRAPHS;
    return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY,
                    &(struct operation){.kind = OP_EMPTY});
}

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                          const CUgraphNode *dependencies, size_t numDependencies,
                                          CUgraph childGraph)
{
    ENTER_GRAPHS;
    INVALID_IF(!is_graph(childGraph));
    CUgraph clone = graph_clone(childGraph);
    CUresult result = add_node(phGraphNode, hGraph, dependencies, numDependencies,
                               CU_GRAPH_NODE_TYPE_GRAPH, &(struct operation){.kind = OP_EMPTY});
    if (result == CUDA_SUCCESS) {
        (*phGraphNode)->child = clone;
        clone->child = true;
    } else {
        fake_graph_destroy(clone);
    }
    return result;
}

CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    ENTER_GRAPHS;
    INVALID_IF(!phGraph || !is_node(hNode) || hNode->type != CU_GRAPH_NODE_TYPE_GRAPH);
    REFUSE_IF(!hNode->child, CUDA_ERROR_NOT_SUPPORTED); /* a captured launch keeps no graph */
    *phGraph = hNode->child;
    return CUDA_SUCCESS;
}

GETTER(cuGraphEventRecordNodeGetEvent, (CUgraphNode hNode, CUevent *event_out), ENTER_GRAPHS;
       INVALID_IF(!is_node(hNode) || hNode->op.kind != OP_RECORD), event_out, hNode->op.event.event)

static CUresult host_operation(const CUDA_HOST_NODE_PARAMS *parameters, struct operation *ret_op)
{
    INVALID_IF(!parameters || !parameters->fn);
    *ret_op = (struct operation){.kind = OP_HOST,
                                 .host = {.fn = parameters->fn, .data = parameters->userData}};
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                    const CUgraphNode *dependencies, size_t numDependencies,
                                    const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    struct operation op;

    ENTER_GRAPHS;
    TRY(host_operation(nodeParams, &op));
    return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_HOST,
                    &op);
}

CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    bool found = false;
    struct operation op;

    ENTER_GRAPHS;
    TRY(host_operation(nodeParams, &op));
    INVALID_IF(!is_exec(hGraphExec) || !is_node(hNode));
    struct program *changed = program_copy(hGraphExec->program);
    for (size_t i = 0; i < changed->n; i++)
        if (changed->steps[i].node == hNode && changed->steps[i].op.kind == OP_HOST) {
            changed->steps[i].op = op;
            found = true;
        }
    program_unref(found ? hGraphExec->program : changed);
    INVALID_IF(!found);
    hGraphExec->program = changed;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode hNode)
{
    ENTER_GRAPHS;
    INVALID_IF(!is_node(hNode));
    for (CUgraphNode node = hNode->graph->first; node; node = node->next)
        for (size_t i = 0; i < node->n_deps; i++)
            if (node->deps[i] == hNode)
                node->deps[i--] = node->deps[--node->n_deps];
    node_destroy(hNode);
    return CUDA_SUCCESS;
}

GETTER(cuGraphNodeGetType, (CUgraphNode hNode, CUgraphNodeType *type), ENTER_GRAPHS;
       INVALID_IF(!is_node(hNode)), type, hNode->type)

/* Fills an array of *n entries, clears the rest of it, and sets *n to how many there are. */
struct out {
    CUgraphNode *nodes;
    size_t room, used;
};

static void out_add(struct out *out, CUgraphNode node)
{
    if (out->nodes && out->used < out->room)
        out->nodes[out->used] = node;
    out->used++;
}

static void out_end(struct out *out, size_t *n)
{
    if (!out->nodes) {
        *n = out->used;
        return;
    }
    for (size_t i = out->used; i < out->room; i++)
        out->nodes[i] = NULL;
    *n = out->used < out->room ? out->used : out->room;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    ENTER_GRAPHS;
    INVALID_IF(!numNodes || !is_graph(hGraph));
    struct out out = {nodes, *numNodes, 0};
    for (CUgraphNode node = hGraph->first; node; node = node->next)
        out_add(&out, node);
    out_end(&out, numNodes);
    return CUDA_SUCCESS;
}

static void clear_edge_data(CUgraphEdgeData *edgeData, size_t n)
{
    if (edgeData)
        memset(edgeData, 0, n * sizeof(*edgeData));
}

CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                                    CUgraphEdgeData *edgeData, size_t *numEdges)
{
    ENTER_GRAPHS;
    INVALID_IF(!numEdges || !is_graph(hGraph) || !from != !to);
    struct out from_out = {from, *numEdges, 0}, to_out = {to, *numEdges, 0};
    size_t n = *numEdges;
    for (CUgraphNode node = hGraph->first; node; node = node->next)
        for (size_t i = 0; i < node->n_deps; i++) {
            out_add(&from_out, node->deps[i]);
            out_add(&to_out, node);
        }
    out_end(&from_out, &n);
    out_end(&to_out, numEdges);
    if (from)
        clear_edge_data(edgeData, n);
    return CUDA_SUCCESS;
}

FORM(cuGraphGetEdges, (CUgraph hGraph, CUgraphNode *from, CUgraphNode *to, size_t *numEdges),
     cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges))

static bool edges_ok(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t n)
{
    if (!is_graph(graph) || (n && (!from || !to)))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!is_node(from[i]) || !is_node(to[i]) || from[i]->graph != graph ||
            to[i]->graph != graph)
            return false;
    return true;
}

CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
                                           const CUgraphNode *to, const CUgraphEdgeData *edgeData,
                                           size_t numDependencies)
{
    ENTER_GRAPHS;
    INVALID_IF(!edges_ok(hGraph, from, to, numDependencies));
    for (size_t i = 0; i < numDependencies; i++)
        TRY(node_depend(to[i], from[i]));
    return CUDA_SUCCESS;
}

FORM(cuGraphAddDependencies,
     (CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to, size_t numDependencies),
     cuGraphAddDependencies_v2(hGraph, from, to, NULL, numDependencies))

/* Executable graphs. */

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                             unsigned long long flags)
{
    struct program *program;

    ENTER_GRAPHS;
    INVALID_IF(!phGraphExec || !is_graph(hGraph));
    REFUSE_IF(flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH, CUDA_ERROR_NOT_SUPPORTED);
    TRY(program_create(hGraph, &program));
    CUgraphExec exec = fake_new(sizeof(*exec));
    exec->program = program;
    exec->flags = flags;
    fake_handle_add(exec, HANDLE_EXEC);
    *phGraphExec = exec;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph,
                                       CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
    if (phErrorNode)
        *phErrorNode = NULL;
    if (logBuffer && bufferSize)
        *logBuffer = '\0';
    return cuGraphInstantiateWithFlags(phGraphExec, hGraph, 0);
}

FORM(cuGraphInstantiate,
     (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,
      size_t bufferSize),
     cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize))

CUresult CUDAAPI cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                                   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    INVALID_IF(!instantiateParams);
    instantiateParams->hErrNode_out = NULL;
    CUresult result = cuGraphInstantiateWithFlags(phGraphExec, hGraph, instantiateParams->flags);
    instantiateParams->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

FORM(cuGraphInstantiateWithParams,
     (CUgraphExec * phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
     cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph, instantiateParams))

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    ENTER_GRAPHS;
    INVALID_IF(!is_exec(hGraphExec));
    /* Launches under way hold the program until they are done. */
    fake_handle_remove(hGraphExec);
    fake_mark_unref(hGraphExec->last);
    program_unref(hGraphExec->program);
    free(hGraphExec);
    return CUDA_SUCCESS;
}

STREAM_CALL(cuGraphLaunch, (CUgraphExec hGraphExec, CUstream hStream), (hGraphExec, hStream))
{
    struct CUstream_st *stream;

    ENTER_GRAPHS;
    TRY(fake_stream_resolve(hStream, &stream));
    return is_exec(hGraphExec) ? launch(hGraphExec, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                      CUgraphExecUpdateResultInfo *resultInfo)
{
    CUgraphExecUpdateResult outcome = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    struct program *program = NULL;
    CUgraphNode where = NULL;

    ENTER_GRAPHS;
    INVALID_IF(!is_exec(hGraphExec) || !is_graph(hGraph) || !resultInfo);
    if (program_create(hGraph, &program) != CUDA_SUCCESS) {
        outcome = CU_GRAPH_EXEC_UPDATE_ERROR;
    } else if (program->n != hGraphExec->program->n) {
        outcome = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    } else {
        for (size_t i = 0; i < program->n; i++)
            if (program->steps[i].type != hGraphExec->program->steps[i].type) {
                outcome = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
                where = program->steps[i].node;
            }
    }
    resultInfo->result = outcome;
    resultInfo->errorNode = where;
    resultInfo->errorFromNode = NULL;
    if (outcome != CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        if (program)
            program_unref(program);
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    /* Later changes still name the nodes of the graph that was instantiated. */
    for (size_t i = 0; i < program->n; i++)
        program->steps[i].node = hGraphExec->program->steps[i].node;
    program_unref(hGraphExec->program);
    hGraphExec->program = program;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph,
                                   CUgraphNode *hErrorNode_out,
                                   CUgraphExecUpdateResult *updateResult_out)
{
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
    CUresult result = cuGraphExecUpdate_v2(hGraphExec, hGraph, &info);

    if (hErrorNode_out)
        *hErrorNode_out = info.errorNode;
    if (updateResult_out)
        *updateResult_out = info.result;
    return result;
}
