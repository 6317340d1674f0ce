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
    bool enabled;
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

static CUresult objects_add(struct object_ref **objects, CUuserObject object, unsigned int count)
{
    struct object_ref *ref;

    for (ref = *objects; ref; ref = ref->next)
        if (ref->object == object) {
            ref->count += count;
            return CUDA_SUCCESS;
        }
    ref = malloc(sizeof(*ref));
    if (!ref)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ref = (struct object_ref){*objects, object, count};
    *objects = ref;
    return CUDA_SUCCESS;
}

static CUresult objects_copy(struct object_ref **to, const struct object_ref *from)
{
    CUresult result = CUDA_SUCCESS;

    for (; from && result == CUDA_SUCCESS; from = from->next) {
        result = objects_add(to, from->object, 1);
        if (result == CUDA_SUCCESS)
            from->object->refs++;
    }
    return result;
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
    CUuserObject object;
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (!object_out || !destroy || !initialRefcount || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
        return CUDA_ERROR_INVALID_VALUE;
    object = calloc(1, sizeof(*object));
    if (!object)
        return CUDA_ERROR_OUT_OF_MEMORY;
    object->refs = initialRefcount;
    object->destroy = destroy;
    object->pointer = ptr;
    fake_lock();
    fake_handle_add(object, HANDLE_USER_OBJECT);
    fake_unlock();
    *object_out = object;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    if (!count || !fake_handle_is(object, HANDLE_USER_OBJECT))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        object->refs += count;
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    if (!count || !fake_handle_is(object, HANDLE_USER_OBJECT) || count > object->refs)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        object_release(object, count);
    fake_user_objects_reap();
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                         unsigned int flags)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    if (!count || !fake_handle_is(graph, HANDLE_GRAPH) ||
        !fake_handle_is(object, HANDLE_USER_OBJECT) ||
        (flags & ~(unsigned int)CU_GRAPH_USER_OBJECT_MOVE)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        result = objects_add(&graph->objects, object, count);
        if (result == CUDA_SUCCESS && !(flags & CU_GRAPH_USER_OBJECT_MOVE))
            object->refs += count;
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    result = CUDA_ERROR_INVALID_VALUE;
    if (count && fake_handle_is(graph, HANDLE_GRAPH))
        for (struct object_ref **link = &graph->objects; *link; link = &(*link)->next) {
            struct object_ref *ref = *link;

            if (ref->object != object || ref->count < count)
                continue;
            ref->count -= count;
            if (!ref->count) {
                *link = ref->next;
                free(ref);
            }
            object_release(object, count);
            result = CUDA_SUCCESS;
            break;
        }
    fake_user_objects_reap();
    fake_unlock();
    return result;
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

static CUresult program_append(struct program *program, const struct step *step)
{
    struct step *bigger = realloc(program->steps, (program->n + 1) * sizeof(*bigger));

    if (!bigger)
        return CUDA_ERROR_OUT_OF_MEMORY;
    program->steps = bigger;
    bigger[program->n++] = *step;
    operation_hold(&bigger[program->n - 1].op);
    return CUDA_SUCCESS;
}

static CUresult program_add_graph(struct program *program, CUgraph graph);

static CUresult program_add_node(struct program *program, CUgraphNode node)
{
    struct step step = {.op = node->op, .type = node->type, .node = node, .enabled = true};
    CUresult result = CUDA_SUCCESS;

    if (node->visited)
        return CUDA_SUCCESS;
    if (node->entered)
        return CUDA_ERROR_INVALID_VALUE; /* a cycle */
    node->entered = true;
    for (size_t i = 0; i < node->n_deps && result == CUDA_SUCCESS; i++)
        result = program_add_node(program, node->deps[i]);
    node->visited = true;
    if (result != CUDA_SUCCESS)
        return result;
    if (node->child)
        return program_add_graph(program, node->child);
    return program_append(program, &step);
}

static CUresult program_add_graph(struct program *program, CUgraph graph)
{
    CUresult result = CUDA_SUCCESS;

    for (CUgraphNode node = graph->first; node; node = node->next)
        node->visited = node->entered = false;
    for (CUgraphNode node = graph->first; node && result == CUDA_SUCCESS; node = node->next)
        result = program_add_node(program, node);
    return result == CUDA_SUCCESS ? objects_copy(&program->objects, graph->objects) : result;
}

static CUresult program_create(CUgraph graph, struct program **ret_program)
{
    struct program *program = calloc(1, sizeof(*program));
    CUresult result;

    if (!program)
        return CUDA_ERROR_OUT_OF_MEMORY;
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
    struct program *program = calloc(1, sizeof(*program));

    if (!program)
        return NULL;
    program->refs = 1;
    for (size_t i = 0; i < from->n; i++)
        if (program_append(program, &from->steps[i]) != CUDA_SUCCESS) {
            program_unref(program);
            return NULL;
        }
    if (objects_copy(&program->objects, from->objects) != CUDA_SUCCESS) {
        program_unref(program);
        return NULL;
    }
    return program;
}

/* Graphs and nodes. */

CUgraph fake_graph_create(void)
{
    CUgraph graph = calloc(1, sizeof(*graph));

    if (graph)
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
    graph->n_nodes--;
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
    CUgraphNode *bigger;

    if (node == other || node_depends_on(node, other))
        return CUDA_ERROR_INVALID_VALUE;
    bigger = realloc(node->deps, (node->n_deps + 1) * sizeof(*bigger));
    if (!bigger)
        return CUDA_ERROR_OUT_OF_MEMORY;
    node->deps = bigger;
    bigger[node->n_deps++] = other;
    return CUDA_SUCCESS;
}

/* Takes over what `op` refers to on success only. */
CUresult fake_node_add(CUgraph graph, const CUgraphNode *deps, size_t n_deps, CUgraphNodeType type,
                       const struct operation *op, CUgraphNode *ret_node)
{
    CUresult result = CUDA_SUCCESS;
    CUgraphNode node;

    if (n_deps && !deps)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n_deps; i++)
        if (!fake_handle_is(deps[i], HANDLE_NODE) || deps[i]->graph != graph)
            return CUDA_ERROR_INVALID_VALUE;
    node = calloc(1, sizeof(*node));
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
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
    graph->n_nodes++;
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

static CUresult graph_clone(CUgraph from, CUgraph *ret_graph)
{
    CUgraph graph = fake_graph_create();
    CUresult result = graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    for (CUgraphNode node = from->first; node && result == CUDA_SUCCESS; node = node->next) {
        CUgraphNode copy;

        result = fake_node_add(graph, NULL, 0, node->type, &node->op, &copy);
        if (result != CUDA_SUCCESS)
            break;
        operation_hold(&copy->op);
        copy->source = node;
        if (node->child) {
            result = graph_clone(node->child, &copy->child);
            if (result == CUDA_SUCCESS)
                copy->child->child = true;
        }
    }
    /* Edges may lead forward in the order of creation, so they come last. */
    for (CUgraphNode node = from->first; node && result == CUDA_SUCCESS; node = node->next)
        for (size_t i = 0; i < node->n_deps && result == CUDA_SUCCESS; i++)
            result = node_depend(find_in_clone(graph, node), find_in_clone(graph, node->deps[i]));
    if (result == CUDA_SUCCESS)
        result = objects_copy(&graph->objects, from->objects);
    if (result == CUDA_SUCCESS)
        *ret_graph = graph;
    else if (graph)
        fake_graph_destroy(graph);
    return result;
}

/* Replay. */

void fake_graph_run(struct CUstream_st *stream, struct operation *op)
{
    struct program *program = op->graph.program;

    for (size_t i = 0; i < program->n; i++) {
        struct operation step = program->steps[i].op;

        if (!program->steps[i].enabled)
            continue;
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
    op.graph.marks = calloc(program->n + 1, sizeof(*op.graph.marks));
    op.graph.end = fake_mark_create(stream);
    if (!op.graph.marks || !op.graph.end) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
        goto fail;
    }
    for (size_t i = 0; i < program->n; i++) {
        struct step *step = &program->steps[i];
        struct CUevent_st *event;

        if (!step->enabled || (step->op.kind != OP_RECORD && step->op.kind != OP_WAIT))
            continue;
        event = step->op.event.event;
        if (step->op.kind == OP_RECORD) {
            /* From now until the replay comes to it the event is not ready. */
            struct mark *mark = fake_mark_create(stream);

            if (!mark) {
                result = CUDA_ERROR_OUT_OF_MEMORY;
                goto fail;
            }
            fake_capture_event_reset(event);
            fake_mark_unref(event->mark);
            event->mark = mark;
        }
        op.graph.marks[i] = event->mark;
        if (event->mark)
            event->mark->refs++;
    }
    result = fake_stream_enqueue(stream, &op);
    if (result != CUDA_SUCCESS)
        goto fail;
    op.graph.end->refs++;
    fake_mark_unref(exec->last);
    exec->last = op.graph.end;
    return CUDA_SUCCESS;
fail:
    if (op.graph.marks)
        for (size_t i = 0; i < program->n; i++)
            if (op.graph.marks[i]) {
                if (program->steps[i].op.kind == OP_RECORD)
                    fake_mark_reach(op.graph.marks[i]); /* nothing else will */
                fake_mark_unref(op.graph.marks[i]);
            }
    free(op.graph.marks);
    fake_mark_unref(op.graph.end);
    program_unref(program);
    return result;
}

/* The calls. */

static CUresult enter(void)
{
    CUresult result = fake_ready();

    if (result == CUDA_SUCCESS)
        fake_lock();
    return result;
}

static CUresult leave(CUresult result)
{
    fake_user_objects_reap();
    fake_unlock();
    return result;
}

static bool is_graph(CUgraph graph)
{
    return fake_handle_is(graph, HANDLE_GRAPH);
}

static bool is_node(CUgraphNode node)
{
    return fake_handle_is(node, HANDLE_NODE);
}

static bool is_exec(CUgraphExec exec)
{
    return fake_handle_is(exec, HANDLE_EXEC);
}

CUresult CUDAAPI cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!phGraph || flags)
        return leave(CUDA_ERROR_INVALID_VALUE);
    *phGraph = fake_graph_create();
    return leave(*phGraph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult CUDAAPI cuGraphDestroy(CUgraph hGraph)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!is_graph(hGraph) || hGraph->child)
        return leave(CUDA_ERROR_INVALID_VALUE);
    fake_graph_destroy(hGraph);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!phGraphClone || !is_graph(originalGraph))
        return leave(CUDA_ERROR_INVALID_VALUE);
    return leave(graph_clone(originalGraph, phGraphClone));
}

CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode *phNode, CUgraphNode hOriginalNode,
                                        CUgraph hClonedGraph)
{
    CUgraphNode found;
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!phNode || !is_node(hOriginalNode) || !is_graph(hClonedGraph))
        return leave(CUDA_ERROR_INVALID_VALUE);
    found = find_in_clone(hClonedGraph, hOriginalNode);
    if (found)
        *phNode = found;
    return leave(found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult add_node(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                         size_t numDependencies, CUgraphNodeType type, const struct operation *op)
{
    if (!phGraphNode || !is_graph(hGraph))
        return CUDA_ERROR_INVALID_VALUE;
    return fake_node_add(hGraph, dependencies, numDependencies, type, op, phGraphNode);
}

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                     const CUgraphNode *dependencies, size_t numDependencies)
{
    struct operation op = {.kind = OP_EMPTY};
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    return leave(add_node(phGraphNode, hGraph, dependencies, numDependencies,
                          CU_GRAPH_NODE_TYPE_EMPTY, &op));
}

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                    const CUgraphNode *dependencies, size_t numDependencies,
                                    const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    struct operation op = {.kind = OP_HOST};
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!nodeParams || !nodeParams->fn)
        return leave(CUDA_ERROR_INVALID_VALUE);
    op.host.fn = nodeParams->fn;
    op.host.data = nodeParams->userData;
    return leave(
        add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_HOST, &op));
}

CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS *nodeParams)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!nodeParams || !is_node(hNode) || hNode->op.kind != OP_HOST)
        return leave(CUDA_ERROR_INVALID_VALUE);
    nodeParams->fn = hNode->op.host.fn;
    nodeParams->userData = hNode->op.host.data;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphHostNodeSetParams(CUgraphNode hNode,
                                          const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!nodeParams || !nodeParams->fn || !is_node(hNode) || hNode->op.kind != OP_HOST)
        return leave(CUDA_ERROR_INVALID_VALUE);
    hNode->op.host.fn = nodeParams->fn;
    hNode->op.host.data = nodeParams->userData;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                      const CUgraphNode *dependencies, size_t numDependencies,
                                      const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    struct operation op;
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_memory_copy_operation(copyParams, &op);
    if (result == CUDA_SUCCESS)
        result = add_node(phGraphNode, hGraph, dependencies, numDependencies,
                          CU_GRAPH_NODE_TYPE_MEMCPY, &op);
    return leave(result);
}

CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!nodeParams || !is_node(hNode) || hNode->op.kind != OP_COPY)
        return leave(CUDA_ERROR_INVALID_VALUE);
    memset(nodeParams, 0, sizeof(*nodeParams));
    nodeParams->dstMemoryType = nodeParams->srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    nodeParams->dstDevice = (CUdeviceptr)hNode->op.copy.dst;
    nodeParams->srcDevice = (CUdeviceptr)hNode->op.copy.src;
    nodeParams->dstPitch = hNode->op.copy.dst_pitch;
    nodeParams->srcPitch = hNode->op.copy.src_pitch;
    if (hNode->op.copy.dst_pitch)
        nodeParams->dstHeight = hNode->op.copy.dst_slice / hNode->op.copy.dst_pitch;
    if (hNode->op.copy.src_pitch)
        nodeParams->srcHeight = hNode->op.copy.src_slice / hNode->op.copy.src_pitch;
    nodeParams->WidthInBytes = hNode->op.copy.width;
    nodeParams->Height = hNode->op.copy.height;
    nodeParams->Depth = hNode->op.copy.depth;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams)
{
    struct operation op;
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!is_node(hNode) || hNode->op.kind != OP_COPY)
        return leave(CUDA_ERROR_INVALID_VALUE);
    result = fake_memory_copy_operation(nodeParams, &op);
    if (result == CUDA_SUCCESS)
        hNode->op = op;
    return leave(result);
}

CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                      const CUgraphNode *dependencies, size_t numDependencies,
                                      const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    struct operation op;
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_memory_set_operation(memsetParams, &op);
    if (result == CUDA_SUCCESS)
        result = add_node(phGraphNode, hGraph, dependencies, numDependencies,
                          CU_GRAPH_NODE_TYPE_MEMSET, &op);
    return leave(result);
}

CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!nodeParams || !is_node(hNode) || hNode->op.kind != OP_SET)
        return leave(CUDA_ERROR_INVALID_VALUE);
    nodeParams->dst = (CUdeviceptr)hNode->op.set.dst;
    nodeParams->pitch = hNode->op.set.pitch;
    nodeParams->value = hNode->op.set.value;
    nodeParams->elementSize = hNode->op.set.element;
    nodeParams->width = hNode->op.set.width;
    nodeParams->height = hNode->op.set.height;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphMemsetNodeSetParams(CUgraphNode hNode,
                                            const CUDA_MEMSET_NODE_PARAMS *nodeParams)
{
    struct operation op;
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!is_node(hNode) || hNode->op.kind != OP_SET)
        return leave(CUDA_ERROR_INVALID_VALUE);
    result = fake_memory_set_operation(nodeParams, &op);
    if (result == CUDA_SUCCESS)
        hNode->op = op;
    return leave(result);
}

static CUresult add_child(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                          size_t numDependencies, CUgraph childGraph)
{
    struct operation op = {.kind = OP_EMPTY};
    CUgraph clone;
    CUresult result;

    if (!is_graph(childGraph))
        return CUDA_ERROR_INVALID_VALUE;
    result = graph_clone(childGraph, &clone);
    if (result != CUDA_SUCCESS)
        return result;
    result =
        add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_GRAPH, &op);
    if (result == CUDA_SUCCESS) {
        (*phGraphNode)->child = clone;
        clone->child = true;
    } else {
        fake_graph_destroy(clone);
    }
    return result;
}

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                          const CUgraphNode *dependencies, size_t numDependencies,
                                          CUgraph childGraph)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    return leave(add_child(phGraphNode, hGraph, dependencies, numDependencies, childGraph));
}

CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!phGraph || !is_node(hNode) || hNode->type != CU_GRAPH_NODE_TYPE_GRAPH)
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (!hNode->child)
        return leave(CUDA_ERROR_NOT_SUPPORTED); /* a captured launch keeps no graph */
    *phGraph = hNode->child;
    return leave(CUDA_SUCCESS);
}

static CUresult add_event(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                          size_t numDependencies, enum operation_kind kind, CUevent event)
{
    struct operation op = {.kind = kind, .event = {.event = event}};
    CUresult result;

    if (!fake_handle_is(event, HANDLE_EVENT))
        return CUDA_ERROR_INVALID_VALUE;
    result = add_node(
        phGraphNode, hGraph, dependencies, numDependencies,
        kind == OP_RECORD ? CU_GRAPH_NODE_TYPE_EVENT_RECORD : CU_GRAPH_NODE_TYPE_WAIT_EVENT, &op);
    if (result == CUDA_SUCCESS)
        event->refs++;
    return result;
}

static CUresult get_event(CUgraphNode hNode, enum operation_kind kind, CUevent *event_out)
{
    if (!event_out || !is_node(hNode) || hNode->op.kind != kind)
        return CUDA_ERROR_INVALID_VALUE;
    *event_out = hNode->op.event.event;
    return CUDA_SUCCESS;
}

static CUresult set_event(CUgraphNode hNode, enum operation_kind kind, CUevent event)
{
    if (!is_node(hNode) || hNode->op.kind != kind || !fake_handle_is(event, HANDLE_EVENT))
        return CUDA_ERROR_INVALID_VALUE;
    event->refs++;
    fake_event_unref(hNode->op.event.event);
    hNode->op.event.event = event;
    return CUDA_SUCCESS;
}

static CUresult exec_set(CUgraphExec exec, CUgraphNode node, const struct operation *op)
{
    struct program *changed = NULL;
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (!is_exec(exec) || !is_node(node))
        return CUDA_ERROR_INVALID_VALUE;
    changed = program_copy(exec->program);
    if (!changed)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < changed->n; i++)
        if (changed->steps[i].node == node && changed->steps[i].op.kind == op->kind) {
            operation_drop(&changed->steps[i].op);
            changed->steps[i].op = *op;
            operation_hold(&changed->steps[i].op);
            result = CUDA_SUCCESS;
        }
    if (result == CUDA_SUCCESS) {
        program_unref(exec->program);
        exec->program = changed;
    } else {
        program_unref(changed);
    }
    return result;
}

#define DEFINE_EVENT_NODE(add, get, set, exec_set_event, what)                                     \
    CUresult CUDAAPI add(CUgraphNode *phGraphNode, CUgraph hGraph,                                 \
                         const CUgraphNode *dependencies, size_t numDependencies, CUevent event)   \
    {                                                                                              \
        CUresult result = enter();                                                                 \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        return leave(add_event(phGraphNode, hGraph, dependencies, numDependencies, what, event));  \
    }                                                                                              \
    CUresult CUDAAPI get(CUgraphNode hNode, CUevent *event_out)                                    \
    {                                                                                              \
        CUresult result = enter();                                                                 \
        return result == CUDA_SUCCESS ? leave(get_event(hNode, what, event_out)) : result;         \
    }                                                                                              \
    CUresult CUDAAPI set(CUgraphNode hNode, CUevent event)                                         \
    {                                                                                              \
        CUresult result = enter();                                                                 \
        return result == CUDA_SUCCESS ? leave(set_event(hNode, what, event)) : result;             \
    }                                                                                              \
    CUresult CUDAAPI exec_set_event(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)      \
    {                                                                                              \
        struct operation op = {.kind = what, .event = {.event = event}};                           \
        CUresult result = enter();                                                                 \
        if (result != CUDA_SUCCESS)                                                                \
            return result;                                                                         \
        if (!fake_handle_is(event, HANDLE_EVENT))                                                  \
            return leave(CUDA_ERROR_INVALID_VALUE);                                                \
        return leave(exec_set(hGraphExec, hNode, &op));                                            \
    }

DEFINE_EVENT_NODE(cuGraphAddEventRecordNode, cuGraphEventRecordNodeGetEvent,
                  cuGraphEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, OP_RECORD)
DEFINE_EVENT_NODE(cuGraphAddEventWaitNode, cuGraphEventWaitNodeGetEvent,
                  cuGraphEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent, OP_WAIT)

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies,
                                   const CUgraphEdgeData *dependencyData, size_t numDependencies,
                                   CUgraphNodeParams *nodeParams)
{
    if (!nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    switch (nodeParams->type) {
    case CU_GRAPH_NODE_TYPE_EMPTY:
        return cuGraphAddEmptyNode(phGraphNode, hGraph, dependencies, numDependencies);
    case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS host = {.fn = nodeParams->host.fn,
                                      .userData = nodeParams->host.userData};

        return cuGraphAddHostNode(phGraphNode, hGraph, dependencies, numDependencies, &host);
    }
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return cuGraphAddMemcpyNode(phGraphNode, hGraph, dependencies, numDependencies,
                                    &nodeParams->memcpy.copyParams, nodeParams->memcpy.copyCtx);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS set = {.dst = nodeParams->memset.dst,
                                       .pitch = nodeParams->memset.pitch,
                                       .value = nodeParams->memset.value,
                                       .elementSize = nodeParams->memset.elementSize,
                                       .width = nodeParams->memset.width,
                                       .height = nodeParams->memset.height};

        return cuGraphAddMemsetNode(phGraphNode, hGraph, dependencies, numDependencies, &set,
                                    nodeParams->memset.ctx);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return cuGraphAddChildGraphNode(phGraphNode, hGraph, dependencies, numDependencies,
                                        nodeParams->graph.graph);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return cuGraphAddEventRecordNode(phGraphNode, hGraph, dependencies, numDependencies,
                                         nodeParams->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return cuGraphAddEventWaitNode(phGraphNode, hGraph, dependencies, numDependencies,
                                       nodeParams->eventWait.event);
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                const CUgraphNode *dependencies, size_t numDependencies,
                                CUgraphNodeParams *nodeParams)
{
    return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, NULL, numDependencies, nodeParams);
}

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode hNode)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!is_node(hNode))
        return leave(CUDA_ERROR_INVALID_VALUE);
    for (CUgraphNode node = hNode->graph->first; node; node = node->next)
        for (size_t i = 0; i < node->n_deps; i++)
            if (node->deps[i] == hNode)
                node->deps[i--] = node->deps[--node->n_deps];
    node_destroy(hNode);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!type || !is_node(hNode))
        return leave(CUDA_ERROR_INVALID_VALUE);
    *type = hNode->type;
    return leave(CUDA_SUCCESS);
}

/* Fills an array of *n entries, clears what is left over, and tells how many there are. */
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
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!numNodes || !is_graph(hGraph))
        return leave(CUDA_ERROR_INVALID_VALUE);
    struct out out = {nodes, *numNodes, 0};
    for (CUgraphNode node = hGraph->first; node; node = node->next)
        out_add(&out, node);
    out_end(&out, numNodes);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!numRootNodes || !is_graph(hGraph))
        return leave(CUDA_ERROR_INVALID_VALUE);
    struct out out = {rootNodes, *numRootNodes, 0};
    for (CUgraphNode node = hGraph->first; node; node = node->next)
        if (!node->n_deps)
            out_add(&out, node);
    out_end(&out, numRootNodes);
    return leave(CUDA_SUCCESS);
}

static void clear_edge_data(CUgraphEdgeData *edgeData, size_t n)
{
    if (edgeData)
        memset(edgeData, 0, n * sizeof(*edgeData));
}

CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                                    CUgraphEdgeData *edgeData, size_t *numEdges)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!numEdges || !is_graph(hGraph) || !from != !to)
        return leave(CUDA_ERROR_INVALID_VALUE);
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
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphGetEdges(CUgraph hGraph, CUgraphNode *from, CUgraphNode *to,
                                 size_t *numEdges)
{
    return cuGraphGetEdges_v2(hGraph, from, to, NULL, numEdges);
}

CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode *dependencies,
                                               CUgraphEdgeData *edgeData, size_t *numDependencies)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!numDependencies || !is_node(hNode))
        return leave(CUDA_ERROR_INVALID_VALUE);
    struct out out = {dependencies, *numDependencies, 0};
    for (size_t i = 0; i < hNode->n_deps; i++)
        out_add(&out, hNode->deps[i]);
    out_end(&out, numDependencies);
    if (dependencies)
        clear_edge_data(edgeData, *numDependencies);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode *dependencies,
                                            size_t *numDependencies)
{
    return cuGraphNodeGetDependencies_v2(hNode, dependencies, NULL, numDependencies);
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                                 CUgraphEdgeData *edgeData,
                                                 size_t *numDependentNodes)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!numDependentNodes || !is_node(hNode))
        return leave(CUDA_ERROR_INVALID_VALUE);
    struct out out = {dependentNodes, *numDependentNodes, 0};
    for (CUgraphNode node = hNode->graph->first; node; node = node->next)
        if (node_depends_on(node, hNode))
            out_add(&out, node);
    out_end(&out, numDependentNodes);
    if (dependentNodes)
        clear_edge_data(edgeData, *numDependentNodes);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode *dependentNodes,
                                              size_t *numDependentNodes)
{
    return cuGraphNodeGetDependentNodes_v2(hNode, dependentNodes, NULL, numDependentNodes);
}

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
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!edges_ok(hGraph, from, to, numDependencies))
        return leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < numDependencies && result == CUDA_SUCCESS; i++)
        result = node_depend(to[i], from[i]);
    return leave(result);
}

CUresult CUDAAPI cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from,
                                        const CUgraphNode *to, size_t numDependencies)
{
    return cuGraphAddDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

CUresult CUDAAPI cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode *from,
                                              const CUgraphNode *to,
                                              const CUgraphEdgeData *edgeData,
                                              size_t numDependencies)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!edges_ok(hGraph, from, to, numDependencies))
        return leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < numDependencies; i++) {
        if (!node_depends_on(to[i], from[i]))
            return leave(CUDA_ERROR_INVALID_VALUE);
        for (size_t j = 0; j < to[i]->n_deps; j++)
            if (to[i]->deps[j] == from[i]) {
                to[i]->deps[j] = to[i]->deps[--to[i]->n_deps];
                break;
            }
    }
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode *from,
                                           const CUgraphNode *to, size_t numDependencies)
{
    return cuGraphRemoveDependencies_v2(hGraph, from, to, NULL, numDependencies);
}

/* Executable graphs. */

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
                                             unsigned long long flags)
{
    CUgraphExec exec;
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!phGraphExec || !is_graph(hGraph))
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        return leave(CUDA_ERROR_NOT_SUPPORTED);
    exec = calloc(1, sizeof(*exec));
    if (!exec)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    result = program_create(hGraph, &exec->program);
    if (result != CUDA_SUCCESS) {
        free(exec);
        return leave(result);
    }
    exec->flags = flags;
    fake_handle_add(exec, HANDLE_EXEC);
    *phGraphExec = exec;
    return leave(CUDA_SUCCESS);
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

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph,
                                    CUgraphNode *phErrorNode, char *logBuffer, size_t bufferSize)
{
    return cuGraphInstantiate_v2(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult CUDAAPI cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
                                                   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    CUresult result;

    if (!instantiateParams)
        return CUDA_ERROR_INVALID_VALUE;
    instantiateParams->hErrNode_out = NULL;
    result = cuGraphInstantiateWithFlags(phGraphExec, hGraph, instantiateParams->flags);
    instantiateParams->result_out =
        result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
    return result;
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
    return cuGraphInstantiateWithParams_ptsz(phGraphExec, hGraph, instantiateParams);
}

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t *flags)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!flags || !is_exec(hGraphExec))
        return leave(CUDA_ERROR_INVALID_VALUE);
    *flags = hGraphExec->flags;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!is_exec(hGraphExec))
        return leave(CUDA_ERROR_INVALID_VALUE);
    /* Launches under way hold the program until they are done. */
    fake_handle_remove(hGraphExec);
    fake_mark_unref(hGraphExec->last);
    program_unref(hGraphExec->program);
    free(hGraphExec);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphLaunch_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    struct CUstream_st *stream;
    CUcontext ctx;
    CUresult result = fake_enter(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_stream_resolve(hStream, &stream);
    if (result == CUDA_SUCCESS)
        result = is_exec(hGraphExec) ? launch(hGraphExec, stream) : CUDA_ERROR_INVALID_VALUE;
    return leave(result);
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    return cuGraphLaunch_ptsz(hGraphExec, hStream ? hStream : CU_STREAM_LEGACY);
}

CUresult CUDAAPI cuGraphUpload_ptsz(CUgraphExec hGraphExec, CUstream hStream)
{
    struct operation op = {.kind = OP_EMPTY};
    struct CUstream_st *stream;
    CUcontext ctx;
    CUresult result = fake_enter(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_stream_resolve(hStream, &stream);
    if (result == CUDA_SUCCESS && !is_exec(hGraphExec))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = fake_capture_stream_guard(stream); /* an upload cannot be captured */
    if (result == CUDA_SUCCESS)
        result = fake_stream_submit(stream, &op);
    return leave(result);
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    return cuGraphUpload_ptsz(hGraphExec, hStream ? hStream : CU_STREAM_LEGACY);
}

CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              const CUDA_HOST_NODE_PARAMS *nodeParams)
{
    struct operation op = {.kind = OP_HOST};
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!nodeParams || !nodeParams->fn)
        return leave(CUDA_ERROR_INVALID_VALUE);
    op.host.fn = nodeParams->fn;
    op.host.data = nodeParams->userData;
    return leave(exec_set(hGraphExec, hNode, &op));
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    struct operation op;
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_memory_copy_operation(copyParams, &op);
    return leave(result == CUDA_SUCCESS ? exec_set(hGraphExec, hNode, &op) : result);
}

CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMSET_NODE_PARAMS *memsetParams,
                                                CUcontext ctx)
{
    struct operation op;
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_memory_set_operation(memsetParams, &op);
    return leave(result == CUDA_SUCCESS ? exec_set(hGraphExec, hNode, &op) : result);
}

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                       unsigned int isEnabled)
{
    struct program *changed;
    CUresult result = enter();
    bool found = false;

    if (result != CUDA_SUCCESS)
        return result;
    if (!is_exec(hGraphExec) || !is_node(hNode))
        return leave(CUDA_ERROR_INVALID_VALUE);
    if (hNode->type != CU_GRAPH_NODE_TYPE_MEMCPY && hNode->type != CU_GRAPH_NODE_TYPE_MEMSET)
        return leave(CUDA_ERROR_INVALID_VALUE); /* only kernels, copies and sets */
    changed = program_copy(hGraphExec->program);
    if (!changed)
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    for (size_t i = 0; i < changed->n; i++)
        if (changed->steps[i].node == hNode) {
            changed->steps[i].enabled = isEnabled != 0;
            found = true;
        }
    if (found) {
        program_unref(hGraphExec->program);
        hGraphExec->program = changed;
    } else {
        program_unref(changed);
    }
    return leave(found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode,
                                       unsigned int *isEnabled)
{
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!isEnabled || !is_exec(hGraphExec) || !is_node(hNode))
        return leave(CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < hGraphExec->program->n; i++)
        if (hGraphExec->program->steps[i].node == hNode) {
            *isEnabled = hGraphExec->program->steps[i].enabled;
            return leave(CUDA_SUCCESS);
        }
    return leave(CUDA_ERROR_INVALID_VALUE);
}

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                      CUgraphExecUpdateResultInfo *resultInfo)
{
    CUgraphExecUpdateResult outcome = CU_GRAPH_EXEC_UPDATE_SUCCESS;
    struct program *program = NULL;
    CUgraphNode where = NULL;
    CUresult result = enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (!is_exec(hGraphExec) || !is_graph(hGraph) || !resultInfo)
        return leave(CUDA_ERROR_INVALID_VALUE);
    result = program_create(hGraph, &program);
    if (result != CUDA_SUCCESS) {
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
    if (outcome == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
        /* Later changes still name the nodes of the graph that was instantiated. */
        for (size_t i = 0; i < program->n; i++) {
            program->steps[i].node = hGraphExec->program->steps[i].node;
            program->steps[i].enabled = hGraphExec->program->steps[i].enabled;
        }
        program_unref(hGraphExec->program);
        hGraphExec->program = program;
    } else {
        if (program)
            program_unref(program);
        result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    }
    resultInfo->result = outcome;
    resultInfo->errorNode = where;
    resultInfo->errorFromNode = NULL;
    return leave(result);
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
