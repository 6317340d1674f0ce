/*
 * Stream capture of the stand-in driver: which calls a capture forbids, and what becomes a node.
 *
 * Entered by any thread of the program. The rules are those of the driver API's documentation, at
 * cuThreadExchangeStreamCaptureMode and in the guide's section on prohibited operations.
 */
#include "tests/fake/cuda/cuda_graph.h"

#include <stdlib.h>
#include <string.h>

static struct capture *captures; /* under way */

static void capture_unref(struct capture *capture)
{
    if (!--capture->refs)
        free(capture);
}

/* Guards. */

CUresult fake_capture_guard(void)
{
    struct thread *thread = fake_thread();
    CUresult result = CUDA_SUCCESS;

    if (!captures || thread->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_SUCCESS;
    for (struct capture *capture = captures; capture; capture = capture->next) {
        bool mine = capture->owner == thread->id;
        bool forbids = mine ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                            : thread->capture_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                  capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;

        if (forbids) {
            capture->invalidated = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

CUresult fake_capture_context_guard(CUcontext ctx)
{
    CUresult result = CUDA_SUCCESS;

    if (!captures)
        return CUDA_SUCCESS;
    for (struct CUstream_st *stream = ctx->streams; stream; stream = stream->next)
        if (stream->capture) {
            stream->capture->invalidated = true;
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    return result == CUDA_SUCCESS ? fake_capture_guard() : result;
}

CUresult fake_capture_stream_guard(struct CUstream_st *stream)
{
    if (!stream->capture)
        return CUDA_SUCCESS;
    if (stream->capture->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    stream->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static bool legacy_conflict(const struct CUstream_st *stream, bool invalidate)
{
    bool conflict = false;

    if (!captures || !stream->legacy)
        return false;
    for (struct CUstream_st *s = stream->ctx->streams; s; s = s->next)
        if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING)) {
            conflict = true;
            if (invalidate)
                s->capture->invalidated = true;
        }
    return conflict;
}

CUresult fake_capture_legacy_guard(struct CUstream_st *stream)
{
    return legacy_conflict(stream, true) ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_SUCCESS;
}

/* The places in a capture that the next node of a stream will depend on. */

static bool deps_set(CUgraphNode **deps, size_t *n_deps, const CUgraphNode *from, size_t n)
{
    CUgraphNode *copy = NULL;

    if (n) {
        copy = malloc(n * sizeof(*copy));
        if (!copy)
            return false;
        memcpy(copy, from, n * sizeof(*copy));
    }
    free(*deps);
    *deps = copy;
    *n_deps = n;
    return true;
}

static bool deps_add(CUgraphNode **deps, size_t *n_deps, const CUgraphNode *from, size_t n)
{
    CUgraphNode *bigger = realloc(*deps, (*n_deps + n + 1) * sizeof(*bigger));

    if (!bigger)
        return false;
    *deps = bigger;
    for (size_t i = 0; i < n; i++) {
        bool present = false;

        for (size_t j = 0; j < *n_deps && !present; j++)
            present = bigger[j] == from[i];
        if (!present)
            bigger[(*n_deps)++] = from[i];
    }
    return true;
}

static void stream_join(struct CUstream_st *stream, struct capture *capture)
{
    stream->capture = capture;
    capture->refs++;
}

static void stream_leave(struct CUstream_st *stream)
{
    struct capture *capture = stream->capture;

    stream->capture = NULL;
    free(stream->capture_deps);
    stream->capture_deps = NULL;
    stream->n_capture_deps = 0;
    capture_unref(capture);
}

/* Captured work. */

static CUgraphNodeType node_type(enum operation_kind kind)
{
    switch (kind) {
    case OP_HOST:
        return CU_GRAPH_NODE_TYPE_HOST;
    case OP_COPY:
        return CU_GRAPH_NODE_TYPE_MEMCPY;
    case OP_SET:
        return CU_GRAPH_NODE_TYPE_MEMSET;
    case OP_KERNEL:
        return CU_GRAPH_NODE_TYPE_KERNEL;
    case OP_RECORD:
        return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
    case OP_WAIT:
        return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    case OP_WRITE_VALUE:
    case OP_WAIT_VALUE:
        return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
    default:
        return CU_GRAPH_NODE_TYPE_EMPTY;
    }
}

/* Takes over what `op` refers to on success only. */
CUresult fake_capture_add(struct CUstream_st *stream, const struct operation *op)
{
    struct capture *capture = stream->capture;
    CUgraphNode node;
    CUresult result;

    if (capture->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    result = fake_node_add(capture->graph, stream->capture_deps, stream->n_capture_deps,
                           node_type(op->kind), op, &node);
    if (result == CUDA_SUCCESS &&
        !deps_set(&stream->capture_deps, &stream->n_capture_deps, &node, 1))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

void fake_capture_event_reset(struct CUevent_st *event)
{
    if (!event->capture)
        return;
    capture_unref(event->capture);
    event->capture = NULL;
    free(event->capture_deps);
    event->capture_deps = NULL;
    event->n_capture_deps = 0;
}

static CUresult add_event_node(struct CUstream_st *stream, struct CUevent_st *event,
                               enum operation_kind kind)
{
    struct operation op = {.kind = kind, .event = {.event = event}};
    CUresult result;

    event->refs++;
    result = fake_capture_add(stream, &op);
    if (result != CUDA_SUCCESS)
        fake_event_unref(event);
    return result;
}

CUresult fake_capture_record(struct CUstream_st *stream, struct CUevent_st *event, bool external)
{
    struct capture *capture = stream->capture;

    if (capture->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external)
        return add_event_node(stream, event, OP_RECORD);
    /* Not a node: the event only marks the place, for streams that wait for it. */
    fake_capture_event_reset(event);
    if (!deps_set(&event->capture_deps, &event->n_capture_deps, stream->capture_deps,
                  stream->n_capture_deps))
        return CUDA_ERROR_OUT_OF_MEMORY;
    event->capture = capture;
    capture->refs++;
    return CUDA_SUCCESS;
}

CUresult fake_capture_wait(struct CUstream_st *stream, struct CUevent_st *event, bool external)
{
    struct capture *theirs = event->capture, *ours = stream->capture;

    if (ours && ours->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (external)
        return ours ? add_event_node(stream, event, OP_WAIT) : CUDA_ERROR_INVALID_VALUE;
    if (!theirs) {
        if (!event->mark)
            return CUDA_SUCCESS; /* never recorded: no effect */
        ours->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (theirs->ended) {
        if (!ours)
            return CUDA_ERROR_CAPTURED_EVENT;
        ours->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (theirs->invalidated)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (ours && ours != theirs) {
        ours->invalidated = theirs->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (!ours && stream->legacy) {
        theirs->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* the default stream cannot be captured */
    }
    if (!deps_add(&stream->capture_deps, &stream->n_capture_deps, event->capture_deps,
                  event->n_capture_deps))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!ours)
        stream_join(stream, theirs);
    return CUDA_SUCCESS;
}

static void capture_end(struct capture *capture)
{
    for (struct capture **link = &captures; *link; link = &(*link)->next)
        if (*link == capture) {
            *link = capture->next;
            break;
        }
    capture->ended = true;
    for (CUcontext ctx = fake_contexts; ctx; ctx = ctx->next)
        for (struct CUstream_st *s = ctx->streams; s; s = s->next)
            if (s->capture == capture)
                stream_leave(s);
}

void fake_capture_stream_gone(struct CUstream_st *stream)
{
    struct capture *capture = stream->capture;

    if (!capture)
        return;
    capture->invalidated = true;
    if (capture->origin == stream) {
        /* Nobody can end it any more. */
        capture->refs++;
        capture_end(capture);
        if (capture->owns_graph)
            fake_graph_destroy(capture->graph);
        capture_unref(capture);
    } else {
        stream_leave(stream);
    }
}

/* The calls. */

static CUresult resolve(CUstream handle, CUcontext *ret_ctx, struct CUstream_st **ret_stream)
{
    CUresult result = fake_enter(ret_ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_stream_resolve(handle, ret_stream);
    if (result != CUDA_SUCCESS)
        fake_unlock();
    return result;
}

static CUresult begin(CUstream hStream, CUgraph graph, const CUgraphNode *deps, size_t n_deps,
                      CUstreamCaptureMode mode)
{
    struct CUstream_st *stream;
    struct capture *capture;
    bool owns = !graph;
    CUcontext ctx;
    CUresult result = resolve(hStream, &ctx, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if ((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (n_deps && !deps) ||
        (graph && !fake_handle_is(graph, HANDLE_GRAPH))) {
        result = CUDA_ERROR_INVALID_VALUE;
        goto out;
    }
    for (size_t i = 0; i < n_deps; i++)
        if (!fake_handle_is(deps[i], HANDLE_NODE)) {
            result = CUDA_ERROR_INVALID_VALUE;
            goto out;
        }
    if (stream->legacy) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        goto out;
    }
    if (stream->capture) {
        result = CUDA_ERROR_ILLEGAL_STATE;
        goto out;
    }
    capture = calloc(1, sizeof(*capture));
    if (owns)
        graph = fake_graph_create();
    if (!capture || !graph ||
        !deps_set(&stream->capture_deps, &stream->n_capture_deps, deps, n_deps)) {
        if (owns && graph)
            fake_graph_destroy(graph);
        free(capture);
        result = CUDA_ERROR_OUT_OF_MEMORY;
        goto out;
    }
    capture->id = fake_next_id();
    capture->mode = mode;
    capture->owner = fake_thread()->id;
    capture->origin = stream;
    capture->ctx = ctx;
    capture->graph = graph;
    capture->owns_graph = owns;
    stream_join(stream, capture);
    capture->next = captures;
    captures = capture;
out:
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream hStream, CUstreamCaptureMode mode)
{
    return begin(hStream, NULL, NULL, 0, mode);
}

CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream hStream, CUstreamCaptureMode mode)
{
    return begin(hStream ? hStream : CU_STREAM_LEGACY, NULL, NULL, 0, mode);
}

CUresult CUDAAPI cuStreamBeginCapture_ptsz(CUstream hStream)
{
    return begin(hStream, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream hStream)
{
    return cuStreamBeginCapture_v2(hStream, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph_ptsz(CUstream hStream, CUgraph hGraph,
                                                  const CUgraphNode *dependencies,
                                                  const CUgraphEdgeData *dependencyData,
                                                  size_t numDependencies, CUstreamCaptureMode mode)
{
    return hGraph ? begin(hStream, hGraph, dependencies, numDependencies, mode)
                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream hStream, CUgraph hGraph,
                                             const CUgraphNode *dependencies,
                                             const CUgraphEdgeData *dependencyData,
                                             size_t numDependencies, CUstreamCaptureMode mode)
{
    return cuStreamBeginCaptureToGraph_ptsz(hStream ? hStream : CU_STREAM_LEGACY, hGraph,
                                            dependencies, dependencyData, numDependencies, mode);
}

/* Work of another stream that the origin does not depend on when the capture ends. */
static bool has_unjoined(struct capture *capture)
{
    bool unjoined = false;

    fake_graph_mark_ancestors(capture->graph, capture->origin->capture_deps,
                              capture->origin->n_capture_deps);
    for (CUcontext ctx = fake_contexts; ctx; ctx = ctx->next)
        for (struct CUstream_st *s = ctx->streams; s; s = s->next) {
            if (s->capture != capture || s == capture->origin)
                continue;
            for (size_t i = 0; i < s->n_capture_deps; i++)
                unjoined |= !s->capture_deps[i]->visited;
        }
    return unjoined;
}

CUresult CUDAAPI cuStreamEndCapture_ptsz(CUstream hStream, CUgraph *phGraph)
{
    struct CUstream_st *stream;
    struct capture *capture;
    CUcontext ctx;
    CUresult result = resolve(hStream, &ctx, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    capture = stream->capture;
    if (!phGraph)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!capture)
        result = CUDA_ERROR_ILLEGAL_STATE;
    else if (capture->origin != stream)
        result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->owner != fake_thread()->id)
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    if (result != CUDA_SUCCESS) {
        fake_unlock();
        return result;
    }
    if (capture->invalidated)
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    else if (has_unjoined(capture))
        result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    capture->refs++;
    capture_end(capture);
    *phGraph = result == CUDA_SUCCESS ? capture->graph : NULL;
    if (result != CUDA_SUCCESS && capture->owns_graph)
        fake_graph_destroy(capture->graph);
    capture_unref(capture);
    fake_user_objects_reap();
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    return cuStreamEndCapture_ptsz(hStream ? hStream : CU_STREAM_LEGACY, phGraph);
}

static CUresult info(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id,
                     CUgraph *graph, const CUgraphNode **deps, size_t *n_deps)
{
    struct CUstream_st *stream;
    CUcontext ctx;
    CUresult result = resolve(hStream, &ctx, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!status) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (legacy_conflict(stream, false)) {
        result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT; /* here the capture is not harmed */
    } else if (!stream->capture) {
        *status = CU_STREAM_CAPTURE_STATUS_NONE;
    } else if (stream->capture->invalidated) {
        *status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    } else {
        *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
        if (id)
            *id = stream->capture->id;
        if (graph)
            *graph = stream->capture->graph;
        if (deps)
            *deps = stream->capture_deps;
        if (n_deps)
            *n_deps = stream->n_capture_deps;
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuStreamIsCapturing_ptsz(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    return info(hStream, captureStatus, NULL, NULL, NULL, NULL);
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    return cuStreamIsCapturing_ptsz(hStream ? hStream : CU_STREAM_LEGACY, captureStatus);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_ptsz(CUstream hStream,
                                             CUstreamCaptureStatus *captureStatus_out,
                                             cuuint64_t *id_out)
{
    return info(hStream, captureStatus_out, id_out, NULL, NULL, NULL);
}

CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream hStream, CUstreamCaptureStatus *captureStatus_out,
                                        cuuint64_t *id_out)
{
    return cuStreamGetCaptureInfo_ptsz(hStream ? hStream : CU_STREAM_LEGACY, captureStatus_out,
                                       id_out);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v2_ptsz(CUstream hStream,
                                                CUstreamCaptureStatus *captureStatus_out,
                                                cuuint64_t *id_out, CUgraph *graph_out,
                                                const CUgraphNode **dependencies_out,
                                                size_t *numDependencies_out)
{
    return info(hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                numDependencies_out);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v2(CUstream hStream,
                                           CUstreamCaptureStatus *captureStatus_out,
                                           cuuint64_t *id_out, CUgraph *graph_out,
                                           const CUgraphNode **dependencies_out,
                                           size_t *numDependencies_out)
{
    return info(hStream ? hStream : CU_STREAM_LEGACY, captureStatus_out, id_out, graph_out,
                dependencies_out, numDependencies_out);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v3_ptsz(CUstream hStream,
                                                CUstreamCaptureStatus *captureStatus_out,
                                                cuuint64_t *id_out, CUgraph *graph_out,
                                                const CUgraphNode **dependencies_out,
                                                const CUgraphEdgeData **edgeData_out,
                                                size_t *numDependencies_out)
{
    if (edgeData_out)
        *edgeData_out = NULL; /* no edge here has data */
    return info(hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                numDependencies_out);
}

CUresult CUDAAPI cuStreamGetCaptureInfo_v3(CUstream hStream,
                                           CUstreamCaptureStatus *captureStatus_out,
                                           cuuint64_t *id_out, CUgraph *graph_out,
                                           const CUgraphNode **dependencies_out,
                                           const CUgraphEdgeData **edgeData_out,
                                           size_t *numDependencies_out)
{
    return cuStreamGetCaptureInfo_v3_ptsz(hStream ? hStream : CU_STREAM_LEGACY, captureStatus_out,
                                          id_out, graph_out, dependencies_out, edgeData_out,
                                          numDependencies_out);
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_ptsz(CUstream hStream, CUgraphNode *dependencies,
                                                        size_t numDependencies, unsigned int flags)
{
    struct CUstream_st *stream;
    bool done;
    CUcontext ctx;
    CUresult result = resolve(hStream, &ctx, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!stream->capture) {
        result = CUDA_ERROR_ILLEGAL_STATE;
    } else if (stream->capture->invalidated) {
        result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    } else if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (numDependencies && !dependencies)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        for (size_t i = 0; i < numDependencies; i++)
            if (!fake_handle_is(dependencies[i], HANDLE_NODE) ||
                dependencies[i]->graph != stream->capture->graph)
                result = CUDA_ERROR_INVALID_VALUE;
        if (result == CUDA_SUCCESS) {
            done = flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES
                       ? deps_set(&stream->capture_deps, &stream->n_capture_deps, dependencies,
                                  numDependencies)
                       : deps_add(&stream->capture_deps, &stream->n_capture_deps, dependencies,
                                  numDependencies);
            if (!done)
                result = CUDA_ERROR_OUT_OF_MEMORY;
        }
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies(CUstream hStream, CUgraphNode *dependencies,
                                                   size_t numDependencies, unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_ptsz(hStream ? hStream : CU_STREAM_LEGACY,
                                                  dependencies, numDependencies, flags);
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream hStream,
                                                           CUgraphNode *dependencies,
                                                           const CUgraphEdgeData *dependencyData,
                                                           size_t numDependencies,
                                                           unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies_ptsz(hStream, dependencies, numDependencies, flags);
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies_v2(CUstream hStream, CUgraphNode *dependencies,
                                                      const CUgraphEdgeData *dependencyData,
                                                      size_t numDependencies, unsigned int flags)
{
    return cuStreamUpdateCaptureDependencies(hStream, dependencies, numDependencies, flags);
}
