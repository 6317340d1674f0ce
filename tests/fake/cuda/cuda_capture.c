/*
 * Stream capture of the stand-in driver: which calls a capture forbids, and what becomes a node.
 *
 * Entered by any thread of the program. The rules are those of the driver API's documentation, at
 * cuThreadExchangeStreamCaptureMode and in the guide's section on prohibited operations.
 */
#include "tests/fake/cuda/cuda_graph.h"

#include <stdlib.h>

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

    if (thread->capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
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
    REFUSE_IF(stream->capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    stream->capture->invalidated = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static bool legacy_conflict(const struct CUstream_st *stream, bool invalidate)
{
    bool conflict = false;

    for (struct CUstream_st *s = stream->ctx->streams; s && stream->legacy; s = s->next)
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

static void deps_add(CUgraphNode **deps, size_t *n_deps, const CUgraphNode *from, size_t n)
{
    *deps = fake_resize(*deps, (*n_deps + n + 1) * sizeof(*from));
    for (size_t i = 0; i < n; i++) {
        bool present = false;

        for (size_t j = 0; j < *n_deps && !present; j++)
            present = (*deps)[j] == from[i];
        if (!present)
            (*deps)[(*n_deps)++] = from[i];
    }
}

static void deps_set(CUgraphNode **deps, size_t *n_deps, const CUgraphNode *from, size_t n)
{
    CUgraphNode *old = *deps; /* from may be a part of it */

    *deps = NULL;
    *n_deps = 0;
    deps_add(deps, n_deps, from, n);
    free(old);
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

    REFUSE_IF(capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    result = fake_node_add(capture->graph, stream->capture_deps, stream->n_capture_deps,
                           node_type(op->kind), op, &node);
    if (result == CUDA_SUCCESS)
        deps_set(&stream->capture_deps, &stream->n_capture_deps, &node, 1);
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

    REFUSE_IF(capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (external)
        return add_event_node(stream, event, OP_RECORD);
    /* Not a node: the event only marks the place, for streams that wait for it. */
    fake_capture_event_reset(event);
    deps_set(&event->capture_deps, &event->n_capture_deps, stream->capture_deps,
             stream->n_capture_deps);
    event->capture = capture;
    capture->refs++;
    return CUDA_SUCCESS;
}

CUresult fake_capture_wait(struct CUstream_st *stream, struct CUevent_st *event, bool external)
{
    struct capture *theirs = event->capture, *ours = stream->capture;

    REFUSE_IF(ours && ours->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (external)
        return ours ? add_event_node(stream, event, OP_WAIT) : CUDA_ERROR_INVALID_VALUE;
    if (!theirs) {
        if (!event->mark)
            return CUDA_SUCCESS; /* never recorded: no effect */
        ours->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (theirs->ended) {
        REFUSE_IF(!ours, CUDA_ERROR_CAPTURED_EVENT);
        ours->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    REFUSE_IF(theirs->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    if (ours && ours != theirs) {
        ours->invalidated = theirs->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    }
    if (!ours && stream->legacy) {
        theirs->invalidated = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* the default stream cannot be captured */
    }
    deps_add(&stream->capture_deps, &stream->n_capture_deps, event->capture_deps,
             event->n_capture_deps);
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

static CUresult begin(CUstream hStream, CUgraph graph, const CUgraphNode *deps, size_t n_deps,
                      CUstreamCaptureMode mode)
{
    ENTER_STREAM(hStream, stream);
    INVALID_IF((unsigned int)mode > CU_STREAM_CAPTURE_MODE_RELAXED || (n_deps && !deps) ||
               (graph && !fake_handle_is(graph, HANDLE_GRAPH)));
    for (size_t i = 0; i < n_deps; i++)
        INVALID_IF(!fake_handle_is(deps[i], HANDLE_NODE));
    REFUSE_IF(stream->legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    REFUSE_IF(stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    deps_set(&stream->capture_deps, &stream->n_capture_deps, deps, n_deps);
    struct capture *capture = fake_new(sizeof(*capture));
    *capture = (struct capture){.next = captures,
                                .id = fake_next_id(),
                                .mode = mode,
                                .owner = fake_thread()->id,
                                .origin = stream,
                                .graph = graph ? graph : fake_graph_create(),
                                .owns_graph = !graph};
    stream_join(stream, capture);
    captures = capture;
    return CUDA_SUCCESS;
}

STREAM_FORMS(cuStreamBeginCapture_v2, (CUstream hStream, CUstreamCaptureMode mode),
             begin(hStream, NULL, NULL, 0, mode))
STREAM_FORMS(cuStreamBeginCapture, (CUstream hStream),
             begin(hStream, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL))
STREAM_FORMS(cuStreamBeginCaptureToGraph,
             (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,
              const CUgraphEdgeData *dependencyData, size_t numDependencies,
              CUstreamCaptureMode mode),
             hGraph ? begin(hStream, hGraph, dependencies, numDependencies, mode)
                    : CUDA_ERROR_INVALID_VALUE)

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

STREAM_CALL(cuStreamEndCapture, (CUstream hStream, CUgraph *phGraph), (hStream, phGraph))
{
    CUresult result = CUDA_SUCCESS;

    ENTER_STREAM(hStream, stream);
    struct capture *capture = stream->capture;
    INVALID_IF(!phGraph);
    REFUSE_IF(!capture, CUDA_ERROR_ILLEGAL_STATE);
    REFUSE_IF(capture->origin != stream, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    REFUSE_IF(capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
                  capture->owner != fake_thread()->id,
              CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
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
    return result;
}

static CUresult info(CUstream hStream, CUstreamCaptureStatus *status, cuuint64_t *id,
                     CUgraph *graph, const CUgraphNode **deps, size_t *n_deps)
{
    ENTER_STREAM(hStream, stream);
    INVALID_IF(!status);
    REFUSE_IF(legacy_conflict(stream, false),
              CUDA_ERROR_STREAM_CAPTURE_IMPLICIT); /* here the capture is not harmed */
    *status = !stream->capture               ? CU_STREAM_CAPTURE_STATUS_NONE
              : stream->capture->invalidated ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                             : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    if (id)
        *id = stream->capture->id;
    if (graph)
        *graph = stream->capture->graph;
    if (deps)
        *deps = stream->capture_deps;
    if (n_deps)
        *n_deps = stream->n_capture_deps;
    return CUDA_SUCCESS;
}

STREAM_FORMS(cuStreamIsCapturing, (CUstream hStream, CUstreamCaptureStatus *captureStatus),
             info(hStream, captureStatus, NULL, NULL, NULL, NULL))
STREAM_FORMS(cuStreamGetCaptureInfo,
             (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out),
             info(hStream, captureStatus_out, id_out, NULL, NULL, NULL))
STREAM_FORMS(cuStreamGetCaptureInfo_v2,
             (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
              CUgraph *graph_out, const CUgraphNode **dependencies_out,
              size_t *numDependencies_out),
             info(hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                  numDependencies_out))

STREAM_CALL(cuStreamGetCaptureInfo_v3,
            (CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out,
             CUgraph *graph_out, const CUgraphNode **dependencies_out,
             const CUgraphEdgeData **edgeData_out, size_t *numDependencies_out),
            (hStream, captureStatus_out, id_out, graph_out, dependencies_out, edgeData_out,
             numDependencies_out))
{
    if (edgeData_out)
        *edgeData_out = NULL; /* no edge here has data */
    return info(hStream, captureStatus_out, id_out, graph_out, dependencies_out,
                numDependencies_out);
}

STREAM_CALL(cuStreamUpdateCaptureDependencies,
            (CUstream hStream, CUgraphNode *dependencies, size_t numDependencies,
             unsigned int flags),
            (hStream, dependencies, numDependencies, flags))
{
    ENTER_STREAM(hStream, stream);
    REFUSE_IF(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    REFUSE_IF(stream->capture->invalidated, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    INVALID_IF(flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (numDependencies && !dependencies));
    for (size_t i = 0; i < numDependencies; i++)
        INVALID_IF(!fake_handle_is(dependencies[i], HANDLE_NODE) ||
                   dependencies[i]->graph != stream->capture->graph);
    (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES ? deps_set : deps_add)(
        &stream->capture_deps, &stream->n_capture_deps, dependencies, numDependencies);
    return CUDA_SUCCESS;
}

STREAM_FORMS(cuStreamUpdateCaptureDependencies_v2,
             (CUstream hStream, CUgraphNode *dependencies, const CUgraphEdgeData *dependencyData,
              size_t numDependencies, unsigned int flags),
             cuStreamUpdateCaptureDependencies_ptsz(hStream, dependencies, numDependencies, flags))
