/*
 * Streams and events of the stand-in driver: each stream runs its work in order on a thread of its
 * own, made with the first piece of work, so that one that hangs holds up no other.
 *
 * Entered by any thread of the program; stream_main is what the stream threads run. Host functions
 * run without the lock and may block for ever.
 */
#include "tests/fake/cuda/cuda_state.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Signalled when a stream wrote a value that another stream may wait for. */
static pthread_cond_t value_written;
static pthread_once_t value_once = PTHREAD_ONCE_INIT;

static void value_written_init(void)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&value_written, &attributes);
    pthread_condattr_destroy(&attributes);
}

/* References. */

void fake_stream_ref(struct CUstream_st *stream)
{
    stream->refs++;
}

void fake_stream_unref(struct CUstream_st *stream)
{
    if (--stream->refs)
        return;
    pthread_cond_destroy(&stream->arrived);
    pthread_cond_destroy(&stream->done);
    free(stream->capture_deps);
    free(stream);
}

struct mark *fake_mark_create(struct CUstream_st *stream)
{
    struct mark *mark = fake_new(sizeof(*mark));

    mark->refs = 1;
    mark->stream = stream;
    fake_stream_ref(stream);
    return mark;
}

void fake_mark_unref(struct mark *mark)
{
    if (!mark || --mark->refs)
        return;
    fake_stream_unref(mark->stream);
    free(mark);
}

void fake_mark_reach(struct mark *mark)
{
    mark->done = true;
    mark->time_ns = fake_now_ns();
    pthread_cond_broadcast(&mark->stream->done);
}

/* Adds how far the stream has been filled until now. */
static void point_add(struct point **points, size_t *n, struct CUstream_st *stream)
{
    *points = fake_resize(*points, (*n + 1) * sizeof(**points));
    (*points)[(*n)++] = (struct point){stream, stream->enqueued};
    fake_stream_ref(stream);
}

/* Waits; all give up the lock meanwhile. */

static void point_wait(const struct point *point)
{
    while (point->stream->completed < point->seq)
        pthread_cond_wait(&point->stream->done, &fake_mutex);
}

static void mark_wait(struct mark *mark)
{
    while (!mark->done)
        pthread_cond_wait(&mark->stream->done, &fake_mutex);
}

void fake_stream_wait_idle(struct CUstream_st *stream)
{
    struct point point = {stream, stream->enqueued};

    fake_stream_ref(stream);
    point_wait(&point);
    fake_stream_unref(stream);
}

/* Waits for what was enqueued until now in the streams that `wanted` chooses. */
static void drain(CUcontext ctx, bool (*wanted)(const struct CUstream_st *))
{
    struct point *points = NULL;
    size_t n = 0;

    for (struct CUstream_st *s = ctx->streams; s; s = s->next)
        if (wanted(s))
            point_add(&points, &n, s);
    for (size_t i = 0; i < n; i++) {
        point_wait(&points[i]);
        fake_stream_unref(points[i].stream);
    }
    free(points);
}

static bool is_busy(const struct CUstream_st *stream)
{
    return stream->completed < stream->enqueued;
}

/* And waits for the default stream, as that waits for it. */
static bool is_busy_blocking(const struct CUstream_st *stream)
{
    return is_busy(stream) && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

void fake_context_drain(CUcontext ctx)
{
    drain(ctx, is_busy);
}

void fake_device_drain(int device)
{
    for (CUcontext ctx = fake_contexts; ctx; ctx = ctx->next)
        if (ctx->device == device)
            drain(ctx, is_busy);
}

/* Running one operation; locked on entry and exit. */

static void run_copy(const struct operation *op)
{
    for (size_t y = 0; y < op->copy.height; y++)
        memmove(op->copy.dst + y * op->copy.dst_pitch, op->copy.src + y * op->copy.src_pitch,
                op->copy.width);
}

static bool still_valid(const struct operation *op)
{
    if (op->kind == OP_SET)
        return fake_memory_known(op->set.dst, op->set.width * op->set.element);
    size_t rows = op->copy.height - 1;
    if (op->copy.dst_known &&
        !fake_memory_known(op->copy.dst, rows * op->copy.dst_pitch + op->copy.width))
        return false;
    return !op->copy.src_known || op->copy.staging ||
           fake_memory_known(op->copy.src, rows * op->copy.src_pitch + op->copy.width);
}

static void run_set(const struct operation *op)
{
    if (op->set.element == 1) {
        memset(op->set.dst, (int)op->set.value, op->set.width);
        return;
    }
    for (size_t x = 0; x < op->set.width; x++)
        memcpy(op->set.dst + x * op->set.element, &op->set.value, op->set.element);
}

static bool value_reached(const struct operation *op)
{
    uint64_t now, want = op->value.value;
    int64_t ahead;

    if (op->value.wide) {
        now = __atomic_load_n((uint64_t *)op->value.address, __ATOMIC_ACQUIRE);
        ahead = (int64_t)(now - want);
    } else {
        now = __atomic_load_n((uint32_t *)op->value.address, __ATOMIC_ACQUIRE);
        want = (uint32_t)want;
        ahead = (int32_t)((uint32_t)now - (uint32_t)want);
    }
    switch (op->value.flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ:
        return ahead >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
        return now == want;
    case CU_STREAM_WAIT_VALUE_AND:
        return (now & want) != 0;
    default:
        return (~(now | want) & (op->value.wide ? UINT64_MAX : UINT32_MAX)) != 0;
    }
}

/* The host writes such values with plain stores, so beside the signal the memory is looked at. */
static void wait_value(const struct operation *op)
{
    while (!value_reached(op)) {
        struct timespec until;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        pthread_cond_timedwait(&value_written, &fake_mutex, &until);
    }
}

static void run_host(struct operation *op, CUresult status)
{
    struct thread *thread = fake_thread();

    thread->in_host_function = true;
    fake_unlock();
    if (op->kind == OP_HOST)
        op->host.fn(op->host.data);
    else
        op->callback.fn(op->callback.handle, status, op->callback.data);
    fake_lock();
    thread->in_host_function = false;
}

void fake_operation_run(struct CUstream_st *stream, struct operation *op)
{
    CUresult sticky = stream->ctx->sticky;

    switch (op->kind) {
    case OP_HOST:
        /* After a fault a host function is not run, a callback is told. */
        if (sticky == CUDA_SUCCESS)
            run_host(op, sticky);
        break;
    case OP_CALLBACK:
        run_host(op, sticky);
        break;
    case OP_COPY:
    case OP_SET:
        if (sticky != CUDA_SUCCESS)
            break;
        if (!still_valid(op)) {
            stream->ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
            break;
        }
        fake_unlock();
        (op->kind == OP_COPY ? run_copy : run_set)(op);
        fake_lock();
        break;
    case OP_RECORD:
        fake_mark_reach(op->event.mark);
        break;
    case OP_WAIT:
        mark_wait(op->event.mark);
        break;
    case OP_WRITE_VALUE:
        if (op->value.wide)
            __atomic_store_n((uint64_t *)op->value.address, op->value.value, __ATOMIC_RELEASE);
        else
            __atomic_store_n((uint32_t *)op->value.address, (uint32_t)op->value.value,
                             __ATOMIC_RELEASE);
        pthread_cond_broadcast(&value_written);
        break;
    case OP_WAIT_VALUE:
        wait_value(op);
        break;
    case OP_FREE:
        fake_memory_free_base(op->free.base);
        break;
    case OP_GRAPH:
        fake_graph_run(stream, op);
        break;
    case OP_KERNEL:
        if (sticky == CUDA_SUCCESS) {
            fake_unlock();
            bool well = fake_kernel_run(op);
            fake_lock();
            if (!well)
                stream->ctx->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
            pthread_cond_broadcast(&value_written); /* it may have written one */
        }
        break;
    case OP_EMPTY:
        break;
    }
}

static void operation_release(struct operation *op)
{
    if (op->kind == OP_COPY)
        free(op->copy.staging);
    else if (op->kind == OP_RECORD || op->kind == OP_WAIT)
        fake_mark_unref(op->event.mark);
    else if (op->kind == OP_GRAPH)
        fake_graph_launch_release(op);
}

/* Once the process is being torn down, streams stand still: the program's memory is going away. */
static void stand_still_at_exit(void)
{
    static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

    while (!fake_running())
        pthread_cond_wait(&never, &fake_mutex);
}

static void stream_unlink(struct CUstream_st *stream)
{
    if (stream->prev)
        stream->prev->next = stream->next;
    else
        stream->ctx->streams = stream->next;
    if (stream->next)
        stream->next->prev = stream->prev;
}

static void *stream_main(void *data)
{
    struct CUstream_st *stream = data;

    fake_lock();
    for (;;) {
        struct work *work;

        while (!stream->head && !stream->closing)
            pthread_cond_wait(&stream->arrived, &fake_mutex);
        stand_still_at_exit();
        work = stream->head;
        if (!work)
            break;
        for (size_t i = 0; i < work->n_waits; i++)
            point_wait(&work->waits[i]);
        fake_operation_run(stream, &work->op);
        stand_still_at_exit();
        stream->head = work->next;
        if (!stream->head)
            stream->tail = NULL;
        stream->completed = work->seq;
        pthread_cond_broadcast(&stream->done);
        for (size_t i = 0; i < work->n_waits; i++)
            fake_stream_unref(work->waits[i].stream);
        operation_release(&work->op);
        free(work->waits);
        free(work);
        fake_user_objects_reap();
    }
    stream_unlink(stream);
    fake_stream_unref(stream);
    fake_unlock();
    return NULL;
}

static bool worker_start(struct CUstream_st *stream)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, old;
    int failed;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals belong to the program's own threads */
    failed = pthread_create(&thread, &attributes, stream_main, stream);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    if (failed)
        return false;
    stream->worker = true;
    fake_stream_ref(stream);
    return true;
}

/* What a new item must wait for because of the default stream's implicit order. */
static void implicit_waits(const struct CUstream_st *stream, struct work *work)
{
    if (stream->flags & CU_STREAM_NON_BLOCKING)
        return;
    for (struct CUstream_st *s = stream->ctx->streams; s; s = s->next)
        if (s != stream && (stream->legacy || s->legacy) && is_busy_blocking(s))
            point_add(&work->waits, &work->n_waits, s);
}

/* Takes over what `op` refers to on success only. */
CUresult fake_stream_enqueue(struct CUstream_st *stream, const struct operation *op)
{
    struct work *work;

    fake_stream_ref(stream);
    while (stream->enqueued - stream->completed >= FAKE_QUEUE_LIMIT)
        pthread_cond_wait(&stream->done, &fake_mutex);
    if (!stream->worker && !worker_start(stream)) {
        fake_stream_unref(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    work = fake_new(sizeof(*work));
    implicit_waits(stream, work);
    work->op = *op;
    work->seq = ++stream->enqueued;
    if (stream->tail)
        stream->tail->next = work;
    else
        stream->head = work;
    stream->tail = work;
    pthread_cond_signal(&stream->arrived);
    fake_stream_unref(stream);
    return CUDA_SUCCESS;
}

CUresult fake_stream_submit(struct CUstream_st *stream, const struct operation *op)
{
    CUresult result;

    if (stream->capture)
        return fake_capture_add(stream, op);
    result = fake_capture_legacy_guard(stream);
    return result == CUDA_SUCCESS ? fake_stream_enqueue(stream, op) : result;
}

/* Making and finding streams. */

static struct CUstream_st *stream_create(CUcontext ctx, unsigned int flags, int priority)
{
    struct CUstream_st *stream = fake_new(sizeof(*stream));

    pthread_once(&value_once, value_written_init);
    pthread_cond_init(&stream->arrived, NULL);
    pthread_cond_init(&stream->done, NULL);
    stream->ctx = ctx;
    stream->id = fake_next_id();
    stream->flags = flags;
    stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
    stream->refs = 1;
    stream->next = ctx->streams;
    if (stream->next)
        stream->next->prev = stream;
    ctx->streams = stream;
    fake_handle_add(stream, HANDLE_STREAM);
    return stream;
}

static struct CUstream_st *legacy_stream(CUcontext ctx)
{
    if (!ctx->legacy) {
        ctx->legacy = stream_create(ctx, 0, 0);
        ctx->legacy->legacy = true;
    }
    return ctx->legacy;
}

static struct CUstream_st *stream_of_thread(CUcontext ctx)
{
    struct thread *thread = fake_thread();
    struct CUstream_st *stream;

    for (stream = thread->default_streams; stream; stream = stream->thread_next)
        if (stream->ctx == ctx && !stream->closing)
            return stream;
    stream = stream_create(ctx, 0, 0);
    stream->per_thread = true;
    fake_stream_ref(stream); /* the thread's list */
    stream->thread_next = thread->default_streams;
    thread->default_streams = stream;
    return stream;
}

CUresult fake_stream_resolve(CUstream handle, struct CUstream_st **ret_stream)
{
    CUcontext ctx;

    TRY(fake_context(&ctx));
    if (handle == CU_STREAM_LEGACY || !handle || handle == CU_STREAM_PER_THREAD) {
        *ret_stream = handle == CU_STREAM_LEGACY ? legacy_stream(ctx) : stream_of_thread(ctx);
        return CUDA_SUCCESS;
    }
    REFUSE_IF(!fake_handle_is(handle, HANDLE_STREAM), CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(!handle->ctx->alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    if (handle->ctx->sticky != CUDA_SUCCESS)
        return handle->ctx->sticky;
    *ret_stream = handle;
    return CUDA_SUCCESS;
}

/* The handle is dead at once, the stream when its work is done. */
void fake_stream_close(struct CUstream_st *stream)
{
    if (stream->closing)
        return;
    fake_capture_stream_gone(stream);
    fake_handle_remove(stream);
    stream->closing = true;
    if (stream == stream->ctx->legacy)
        stream->ctx->legacy = NULL;
    if (stream->worker)
        pthread_cond_signal(&stream->arrived);
    else
        stream_unlink(stream);
    fake_stream_unref(stream);
}

void fake_context_close_streams(CUcontext ctx)
{
    struct CUstream_st *next;

    for (struct CUstream_st *stream = ctx->streams; stream; stream = next) {
        next = stream->next;
        fake_stream_close(stream);
    }
}

void fake_thread_close_streams(struct thread *thread)
{
    while (thread->default_streams) {
        struct CUstream_st *stream = thread->default_streams;

        thread->default_streams = stream->thread_next;
        fake_stream_close(stream);
        fake_stream_unref(stream);
    }
}

/* The calls. */

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    ENTER(ctx);
    INVALID_IF(!phStream || (flags & ~(unsigned int)CU_STREAM_NON_BLOCKING));
    *phStream = stream_create(ctx, flags, priority);
    return CUDA_SUCCESS;
}

FORM(cuStreamCreate, (CUstream * phStream, unsigned int Flags),
     cuStreamCreateWithPriority(phStream, Flags, 0))

V2_CALL(cuStreamDestroy, (CUstream hStream), (hStream))
{
    ENTER(ctx);
    REFUSE_IF(!fake_handle_is(hStream, HANDLE_STREAM) || hStream->legacy || hStream->per_thread,
              CUDA_ERROR_INVALID_HANDLE);
    fake_stream_close(hStream);
    return CUDA_SUCCESS;
}

#define DEFINE_STREAM_GETTER(name, type, expression)                                               \
    STREAM_CALL(name, (CUstream hStream, type * out), (hStream, out))                              \
    {                                                                                              \
        ENTER_STREAM(hStream, stream);                                                             \
        INVALID_IF(!out);                                                                          \
        *out = (expression);                                                                       \
        return CUDA_SUCCESS;                                                                       \
    }

DEFINE_STREAM_GETTER(cuStreamGetCtx, CUcontext, stream->ctx)
DEFINE_STREAM_GETTER(cuStreamGetFlags, unsigned int, stream->flags)
DEFINE_STREAM_GETTER(cuStreamGetPriority, int, stream->priority)
DEFINE_STREAM_GETTER(cuStreamGetId, unsigned long long, stream->id)

STREAM_CALL(cuStreamGetCtx_v2, (CUstream hStream, CUcontext *pCtx, CUgreenCtx *pGreenCtx),
            (hStream, pCtx, pGreenCtx))
{
    TRY(cuStreamGetCtx_ptsz(hStream, pCtx));
    if (pGreenCtx)
        *pGreenCtx = NULL;
    return CUDA_SUCCESS;
}

static bool stream_idle(const struct CUstream_st *stream)
{
    if (stream->legacy)
        for (const struct CUstream_st *s = stream->ctx->streams; s; s = s->next)
            if (is_busy_blocking(s))
                return false;
    return !is_busy(stream);
}

/* What forbids to look at, or wait for, a stream. */
static CUresult stream_guard(struct CUstream_st *stream)
{
    TRY(fake_capture_legacy_guard(stream));
    TRY(fake_capture_stream_guard(stream));
    return fake_capture_guard();
}

STREAM_CALL(cuStreamQuery, (CUstream hStream), (hStream))
{
    ENTER_STREAM(hStream, stream);
    TRY(stream_guard(stream));
    return stream_idle(stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

STREAM_CALL(cuStreamSynchronize, (CUstream hStream), (hStream))
{
    ENTER_STREAM(hStream, stream);
    TRY(stream_guard(stream));
    CUcontext ctx = stream->ctx;
    if (stream->legacy)
        drain(ctx, is_busy_blocking);
    else
        fake_stream_wait_idle(stream);
    return ctx->sticky;
}

STREAM_CALL(cuLaunchHostFunc, (CUstream hStream, CUhostFn fn, void *userData),
            (hStream, fn, userData))
{
    struct operation op = {.kind = OP_HOST, .host = {.fn = fn, .data = userData}};

    ENTER_STREAM(hStream, stream);
    return fn ? fake_stream_submit(stream, &op) : CUDA_ERROR_INVALID_VALUE;
}

STREAM_CALL(cuStreamAddCallback,
            (CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags),
            (hStream, callback, userData, flags))
{
    struct operation op = {.kind = OP_CALLBACK,
                           .callback = {.fn = callback, .data = userData, .handle = hStream}};

    ENTER_STREAM(hStream, stream);
    INVALID_IF(!callback || flags);
    if (stream->capture)
        return fake_capture_stream_guard(stream); /* callbacks cannot be captured */
    return fake_stream_submit(stream, &op);
}

/* Values in memory. */

static CUresult value_operation(enum operation_kind kind, CUstream hStream, CUdeviceptr addr,
                                uint64_t value, unsigned int flags, bool wide)
{
    struct operation op = {
        .kind = kind,
        .value = {.address = (void *)addr, .value = value, .flags = flags, .wide = wide}};
    unsigned int allowed = kind == OP_WAIT_VALUE ? 3u : CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
    size_t size = wide ? 8 : 4;

    ENTER_STREAM(hStream, stream);
    INVALID_IF(addr % size || !fake_memory_known((void *)addr, size) || (flags & ~allowed));
    REFUSE_IF(stream->capture && kind == OP_WRITE_VALUE && flags,
              CUDA_ERROR_NOT_SUPPORTED); /* a graph node keeps the barrier */
    return fake_stream_submit(stream, &op);
}

#define VALUE_FORMS(name, kind, type, wide)                                                        \
    STREAM_FORMS(name, (CUstream hStream, CUdeviceptr addr, type value, unsigned int flags),       \
                 value_operation(kind, hStream, addr, value, flags, wide))
#define DEFINE_VALUE(name, kind, type, wide)                                                       \
    VALUE_FORMS(name, kind, type, wide)                                                            \
    VALUE_FORMS(name##_v2, kind, type, wide)

DEFINE_VALUE(cuStreamWriteValue32, OP_WRITE_VALUE, cuuint32_t, false)
DEFINE_VALUE(cuStreamWriteValue64, OP_WRITE_VALUE, cuuint64_t, true)
DEFINE_VALUE(cuStreamWaitValue32, OP_WAIT_VALUE, cuuint32_t, false)
DEFINE_VALUE(cuStreamWaitValue64, OP_WAIT_VALUE, cuuint64_t, true)

/* Events. */

void fake_event_unref(struct CUevent_st *event)
{
    if (--event->refs)
        return;
    fake_mark_unref(event->mark);
    fake_capture_event_reset(event);
    free(event);
}

static unsigned long events_recorded; /* on the device that gets stuck */
static unsigned long found_pending;   /* queries of them, one after another, that found no end */

/* Locked. */
static CUresult event_check(CUevent handle)
{
    REFUSE_IF(!fake_handle_is(handle, HANDLE_EVENT), CUDA_ERROR_INVALID_HANDLE);
    REFUSE_IF(!handle->ctx->alive || handle->ctx_id != handle->ctx->id,
              CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
    ENTER(ctx);
    INVALID_IF(!phEvent || (Flags & ~7u) ||
               ((Flags & CU_EVENT_INTERPROCESS) && !(Flags & CU_EVENT_DISABLE_TIMING)));
    CUevent event = fake_new(sizeof(*event));
    *event = (struct CUevent_st){.ctx = ctx, .ctx_id = ctx->id, .flags = Flags, .refs = 1};
    fake_handle_add(event, HANDLE_EVENT);
    *phEvent = event;
    return CUDA_SUCCESS;
}

V2_CALL(cuEventDestroy, (CUevent hEvent), (hEvent))
{
    ENTER(ctx);
    REFUSE_IF(!fake_handle_is(hEvent, HANDLE_EVENT), CUDA_ERROR_INVALID_HANDLE);
    fake_handle_remove(hEvent);
    hEvent->destroyed = true;
    fake_event_unref(hEvent);
    return CUDA_SUCCESS;
}

STREAM_CALL(cuEventRecordWithFlags, (CUevent hEvent, CUstream hStream, unsigned int flags),
            (hEvent, hStream, flags))
{
    struct operation op = {.kind = OP_RECORD};
    struct CUstream_st *stream;

    ENTER(ctx);
    TRY(event_check(hEvent));
    TRY(fake_stream_resolve(hStream, &stream));
    INVALID_IF(flags & ~(unsigned int)CU_EVENT_RECORD_EXTERNAL);
    REFUSE_IF(stream->ctx != hEvent->ctx, CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture)
        return fake_capture_record(stream, hEvent, flags != 0);
    INVALID_IF(flags); /* external means a graph node */
    op.event.mark = fake_mark_create(stream);
    events_recorded += fake_devices[hEvent->ctx->device].physical == fake_stuck_device.physical;
    /* Not ready from now on, also while this call waits for room in the queue. */
    struct mark *before = hEvent->mark;
    hEvent->mark = op.event.mark;
    op.event.mark->refs++;
    hEvent->refs++;
    fake_capture_event_reset(hEvent);
    CUresult result = fake_stream_submit(stream, &op);
    if (result != CUDA_SUCCESS) {
        if (hEvent->mark == op.event.mark) {
            hEvent->mark = before;
            before = op.event.mark;
        }
        fake_mark_unref(op.event.mark);
    }
    fake_mark_unref(before);
    fake_event_unref(hEvent);
    return result;
}

STREAM_FORMS(cuEventRecord, (CUevent hEvent, CUstream hStream),
             cuEventRecordWithFlags_ptsz(hEvent, hStream, 0))

/* An event recorded in a capture stands for no work: looking at it harms the capture. */
static CUresult captured_event(CUevent event)
{
    if (!event->capture)
        return CUDA_SUCCESS;
    if (!event->capture->ended)
        event->capture->invalidated = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

/* Locked. */
static bool is_stuck(CUcontext ctx)
{
    return fake_stuck_device.physical >= 0 &&
           fake_devices[ctx->device].physical == fake_stuck_device.physical &&
           events_recorded >= fake_stuck_device.after && found_pending >= fake_stuck_device.pending;
}

static void __attribute__((noreturn)) never_return(void)
{
    fake_unlock();
    for (;;)
        pause();
}

CUresult CUDAAPI cuEventQuery(CUevent hEvent)
{
    ENTER(ctx);
    TRY(event_check(hEvent));
    if (is_stuck(hEvent->ctx))
        never_return();
    TRY(captured_event(hEvent));
    TRY(fake_capture_guard());
    TRY(hEvent->ctx->sticky);
    bool pending = hEvent->mark && !hEvent->mark->done;
    if (fake_devices[hEvent->ctx->device].physical == fake_stuck_device.physical)
        found_pending =
            pending && events_recorded >= fake_stuck_device.after ? found_pending + 1 : 0;
    return pending ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventSynchronize(CUevent hEvent)
{
    ENTER(ctx);
    TRY(event_check(hEvent));
    TRY(captured_event(hEvent));
    TRY(fake_capture_guard());
    struct mark *mark = hEvent->mark;
    CUcontext owner = hEvent->ctx;
    if (mark) {
        mark->refs++;
        mark_wait(mark);
        fake_mark_unref(mark);
    }
    return owner->sticky;
}

V2_CALL(cuEventElapsedTime, (float *pMilliseconds, CUevent hStart, CUevent hEnd),
        (pMilliseconds, hStart, hEnd))
{
    ENTER(ctx);
    TRY(event_check(hStart));
    INVALID_IF(!pMilliseconds);
    if (!fake_handle_is(hEnd, HANDLE_EVENT) || hStart->ctx != hEnd->ctx ||
        ((hStart->flags | hEnd->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    TRY(captured_event(hStart));
    TRY(captured_event(hEnd));
    REFUSE_IF(!hStart->mark || !hEnd->mark, CUDA_ERROR_INVALID_HANDLE); /* never recorded */
    REFUSE_IF(!hStart->mark->done || !hEnd->mark->done, CUDA_ERROR_NOT_READY);
    *pMilliseconds = (float)((double)(int64_t)(hEnd->mark->time_ns - hStart->mark->time_ns) / 1e6);
    return CUDA_SUCCESS;
}

STREAM_CALL(cuStreamWaitEvent, (CUstream hStream, CUevent hEvent, unsigned int Flags),
            (hStream, hEvent, Flags))
{
    struct operation op = {.kind = OP_WAIT};
    struct CUstream_st *stream;

    ENTER(ctx);
    TRY(event_check(hEvent));
    TRY(fake_stream_resolve(hStream, &stream));
    INVALID_IF(Flags & ~(unsigned int)CU_EVENT_WAIT_EXTERNAL);
    if (stream->capture || hEvent->capture)
        return fake_capture_wait(stream, hEvent, Flags != 0);
    INVALID_IF(Flags);
    if (!hEvent->mark || hEvent->mark->done)
        return CUDA_SUCCESS;
    op.event.mark = hEvent->mark;
    op.event.mark->refs++;
    CUresult result = fake_stream_submit(stream, &op);
    if (result != CUDA_SUCCESS)
        fake_mark_unref(op.event.mark);
    return result;
}
