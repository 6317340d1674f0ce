/*
 * Captured calls, their events, and the release of both.
 *
 * Entered by the program's threads in a capture, and by the thread on which the driver drops a
 * graph's last reference. Must never invalidate a capture: everything here is done in relaxed mode,
 * and nothing waits.
 */
#include "core/device/capture.h"

#include <pthread.h>
#include <string.h>

#include "core/comm/thread.h"
#include "core/device/gpu.h"
#include "core/runtime/runtime.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define CALLS_MAX    (1u << 17)
#define CAPTURES_MAX (1u << 14)
#define SLOTS        (CALLS_MAX * 2) /* slots of the event table: a power of two */
#define CONTEXTS_MAX 64u

static atomic_bool wanted, stopped;

/* Protects everything below. Never nested with another lock. No CUDA call is made with it held: any
 * of them may release a user object, and that takes this lock. */
static NG_FORGOTTEN pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static NG_FORGOTTEN struct ng_captured *calls; /* type-stable */
static NG_FORGOTTEN struct ng_capture *captures;
/* By event: index + 1 of its call; 0 free. Events are never removed. */
static NG_FORGOTTEN uint32_t *slots;
static NG_FORGOTTEN uint32_t call_count, capture_count;
static NG_FORGOTTEN uint32_t free_calls, free_captures; /* index + 1: calls without events */
static struct {
    struct ng_gpu *gpu;
    uint64_t context_id;
    uint32_t free;       /* calls that have an event of this context */
    uint32_t free_timed; /* those that have two, with timing */
} contexts[CONTEXTS_MAX];
static NG_FORGOTTEN uint32_t context_count;
static uint64_t newest_ordinal;
static NG_FORGOTTEN _Atomic uint32_t live_calls;
static NG_FORGOTTEN struct ng_capture *newest_capture; /* usually the next one needed */

void ng_capture_enable(void)
{
    atomic_store(&wanted, true);
}

bool ng_capture_is_on(void)
{
    return atomic_load_explicit(&wanted, memory_order_relaxed);
}

void ng_capture_stop(const char *why)
{
    if (atomic_load(&wanted) && !atomic_exchange(&stopped, true))
        ng_log(NG_LOG_INFO, "%s: replays of graphs that are captured from now on are not watched",
               why);
}

void ng_capture_lock(void)
{
    pthread_mutex_lock(&lock);
}

void ng_capture_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

bool ng_capture_any(void)
{
    return atomic_load_explicit(&live_calls, memory_order_relaxed) != 0;
}

/* Under the lock. */
static bool make_tables(void)
{
    if (!calls)
        calls = ng_memory_reserve(CALLS_MAX * sizeof(*calls));
    if (!captures)
        captures = ng_memory_reserve(CAPTURES_MAX * sizeof(*captures));
    if (!slots)
        slots = ng_memory_reserve(SLOTS * sizeof(*slots));
    return calls && captures && slots;
}

static uint32_t index_of(const struct ng_captured *captured)
{
    return (uint32_t)(captured - calls);
}

static uint32_t slot_of(CUevent event)
{
    return (uint32_t)(((uintptr_t)event >> 3) * UINT64_C(0x9e3779b97f4a7c15) >> 40) & (SLOTS - 1);
}

static void keep_event(struct ng_captured *captured)
{
    uint32_t slot = slot_of(captured->event);

    /* More slots than events: one is always free. */
    while (slots[slot] && calls[slots[slot] - 1].event != captured->event)
        slot = (slot + 1) & (SLOTS - 1);
    slots[slot] = index_of(captured) + 1;
}

const struct ng_captured *ng_capture_find(CUevent event)
{
    if (!slots)
        return NULL;
    for (uint32_t slot = slot_of(event); slots[slot]; slot = (slot + 1) & (SLOTS - 1)) {
        const struct ng_captured *captured = &calls[slots[slot] - 1];
        if (captured->event == event)
            return captured->capture && captured->call.op ? captured : NULL;
    }
    return NULL;
}

const struct ng_captured *ng_capture_before(const struct ng_captured *captured)
{
    return captured->before ? &calls[captured->before - 1] : NULL;
}

/* The free lists of calls with events of a context; NULL: no room for another context. Under the
 * lock. */
static uint32_t *free_of(struct ng_gpu *gpu, uint64_t context_id, bool timed)
{
    uint32_t i = 0;

    while (i < context_count && (contexts[i].gpu != gpu || contexts[i].context_id != context_id))
        i++;
    if (i == CONTEXTS_MAX)
        return NULL;
    if (i == context_count) {
        contexts[i].gpu = gpu;
        contexts[i].context_id = context_id;
        contexts[i].free = contexts[i].free_timed = 0; /* of the parent, before a fork */
        context_count++;
    }
    return timed ? &contexts[i].free_timed : &contexts[i].free;
}

static struct ng_captured *take_from(uint32_t *list)
{
    struct ng_captured *captured = NULL;

    if (*list) {
        captured = &calls[*list - 1];
        *list = captured->older;
    } else if (call_count < CALLS_MAX) {
        captured = &calls[call_count++];
    }
    return captured;
}

static void give_call(struct ng_captured *captured)
{
    uint32_t *list = captured->event ? free_of(captured->gpu, captured->context_id, captured->start)
                                     : &free_calls;

    captured->capture = NULL;
    captured->before = 0;
    if (!list)
        return;
    captured->older = *list;
    *list = index_of(captured) + 1;
}

/* The graph, its copies and everything instantiated from them are gone, and their launches have
 * ended. Called by the driver on a thread of its choice, which must not call CUDA. */
static void CUDA_CB end_capture(void *argument)
{
    struct ng_capture *capture = argument;

    NG_HOLD(&lock);
    /* A forked child has separate tables. */
    if (captures && capture >= captures && capture < captures + capture_count && capture->id) {
        for (uint32_t at = capture->newest; at;) {
            struct ng_captured *captured = &calls[at - 1];
            at = captured->older;
            give_call(captured);
            atomic_fetch_sub(&live_calls, 1);
        }
        capture->id = 0;
        capture->newest = 0;
        capture->next_free = free_captures;
        free_captures = (uint32_t)(capture - captures) + 1;
    }
}

static struct ng_capture *add_capture(uint64_t id)
{
    struct ng_capture *capture = NULL;

    NG_HOLD(&lock);
    if (make_tables()) {
        if (free_captures) {
            capture = &captures[free_captures - 1];
            free_captures = capture->next_free;
        } else if (capture_count < CAPTURES_MAX) {
            capture = &captures[capture_count++];
        }
    }
    if (capture) {
        capture->id = id;
        capture->newest = 0;
        atomic_store(&capture->launch, 0);
    }
    return capture;
}

/* The capture with this id, whose graph notifies us of its end; NULL: not available. */
static struct ng_capture *capture_of(uint64_t id, CUgraph graph)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    struct ng_capture *capture;
    CUuserObject object;

    /* Capture ids are never reused, so this one's graph still exists. */
    pthread_mutex_lock(&lock);
    capture = newest_capture && newest_capture->id == id
                  ? newest_capture
                  : NG_FIND(one, captures, capture_count, one->id == id);
    newest_capture = capture;
    pthread_mutex_unlock(&lock);
    if (capture || !(capture = add_capture(id)))
        return capture;
    if (cuda->user_object_create(&object, capture, end_capture, 1,
                                 CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) != CUDA_SUCCESS) {
        end_capture(capture);
        return NULL;
    }
    if (cuda->graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE) !=
        CUDA_SUCCESS) {
        cuda->user_object_release(object, 1); /* ends the capture */
        return NULL;
    }
    pthread_mutex_lock(&lock);
    newest_capture = capture;
    pthread_mutex_unlock(&lock);
    return capture;
}

/* Take a call with an event of this context, possibly a new one. */
static struct ng_captured *take_with_event(struct ng_gpu *gpu, bool timed)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    uint64_t context_id = atomic_load(&gpu->context_id);
    CUevent event = NULL, start = NULL;
    unsigned flags = timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
    CUcontext popped;

    pthread_mutex_lock(&lock);
    uint32_t *list = free_of(gpu, context_id, timed);
    struct ng_captured *captured = list ? take_from(list) : NULL;
    pthread_mutex_unlock(&lock);
    if (!captured || captured->event)
        return captured;
    CUresult result = cuda->ctx_push(gpu->context);
    if (result == CUDA_SUCCESS) {
        result = cuda->event_create(&event, flags);
        if (result == CUDA_SUCCESS && timed &&
            (result = cuda->event_create(&start, flags)) != CUDA_SUCCESS)
            cuda->event_destroy(event);
        cuda->ctx_pop(&popped);
    }
    pthread_mutex_lock(&lock);
    if (result == CUDA_SUCCESS) {
        captured->event = event;
        captured->start = start;
        captured->gpu = gpu;
        captured->context_id = context_id;
        keep_event(captured);
    } else {
        give_call(captured);
        captured = NULL;
    }
    pthread_mutex_unlock(&lock);
    return captured;
}

static void fill(struct ng_captured *captured, struct ng_comm *comm, const struct ng_call *call,
                 uint32_t flags)
{
    captured->call = *call;
    captured->call.creation = NULL;
    captured->comm = comm;
    captured->comm_generation = NG_LOAD(comm->group->generation);
    captured->flags = flags;
    if (ng_op_table[call->op].op_class == NG_CLASS_P2P)
        captured->flags |= NG_RECORD_P2P;
    else if (call->send_buffer == call->recv_buffer)
        captured->flags |= NG_RECORD_IN_PLACE;
    captured->before = 0;
}

static uint64_t bytes_of(const struct ng_call *call)
{
    return call->count * ng_dtype_bytes(call->dtype);
}

static void give_chain(struct ng_captured *last)
{
    while (last) {
        struct ng_captured *before = last->before ? &calls[last->before - 1] : NULL;
        give_call(last);
        last = before;
    }
}

/* Fill in the call in `last`, which has the event, and those before it in its NCCL group, from the
 * newest. False: no room for all, and only `last` is kept: with a part of them, the numbers of
 * later calls would differ from those of other ranks. Under the lock. */
static bool fill_all(struct ng_captured *last, struct ng_comm *comm,
                     const struct ng_grouped_call *grouped, uint32_t newest, uint32_t flags)
{
    struct ng_captured *after = last;

    fill(last, comm, &grouped[newest - 1].call, flags);
    last->measured_op = grouped[newest - 1].before ? NG_OP_GroupEnd : last->call.op;
    last->measured_bytes = bytes_of(&last->call);
    for (uint32_t at = grouped[newest - 1].before; at; at = grouped[at - 1].before) {
        struct ng_captured *captured = take_from(&free_calls);
        if (!captured) {
            give_chain(last->before ? &calls[last->before - 1] : NULL);
            last->before = 0;
            return false;
        }
        fill(captured, comm, &grouped[at - 1].call, flags);
        after->before = index_of(captured) + 1;
        after = captured;
        last->measured_bytes += bytes_of(&captured->call);
    }
    return true;
}

/* Let the capture own the call. Under the lock. */
static void own(struct ng_capture *capture, struct ng_captured *captured)
{
    captured->capture = capture;
    captured->older = capture->newest;
    capture->newest = index_of(captured) + 1;
    atomic_fetch_add(&live_calls, 1);
}

/* The same with all calls before it in its NCCL group. Under the lock. */
static void join(struct ng_capture *capture, struct ng_captured *last)
{
    uint32_t count = 0, behind = 0;

    for (struct ng_captured *captured = last; captured;
         captured = captured->before ? &calls[captured->before - 1] : NULL, count++)
        if (captured->capture != capture)
            own(capture, captured);
    newest_ordinal += count;
    for (struct ng_captured *captured = last; captured;
         captured = captured->before ? &calls[captured->before - 1] : NULL)
        captured->ordinal = newest_ordinal - behind++;
}

/* The events in the graph belong to no call yet, and stay with the capture until it ends. Under the
 * lock. */
static void join_nothing(struct ng_capture *capture, struct ng_captured *captured)
{
    captured->call = (struct ng_call){.op = NG_OP_NONE};
    captured->before = 0;
    if (captured->capture != capture)
        own(capture, captured);
}

static void tell_once(atomic_bool *told, const char *what, CUresult result)
{
    if (atomic_exchange(told, true))
        return;
    if (result == CUDA_SUCCESS)
        ng_log(NG_LOG_WARN, "%s: replays may not be watched", what);
    else
        ng_log(NG_LOG_WARN, "CUDA error %d (%s) %s: replays may not be watched", (int)result,
               ng_cuda_error_text((int)result), what);
}

/* The capture of `stream`, and the pool of the device; NULL: there is none, or not available. In
 * relaxed mode. */
static struct ng_capture *capture_on(struct ng_comm *comm, void *stream, struct ng_gpu **ret_gpu)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUgraph graph = NULL;
    cuuint64_t id = 0;

    if (ng_guard.cuda.stream_get_capture_info(stream, &status, &id, &graph, NULL, NULL) !=
            CUDA_SUCCESS ||
        status != CU_STREAM_CAPTURE_STATUS_ACTIVE || !id || !graph ||
        !(*ret_gpu = ng_gpu_choose(comm, stream)))
        return NULL;
    return capture_of(id, graph);
}

/* In relaxed mode. */
static void add(struct ng_comm *comm, void *stream, const struct ng_grouped_call *grouped,
                uint32_t newest, uint32_t flags, struct ng_captured *begun)
{
    static atomic_bool told_event, told_room;
    struct ng_gpu *gpu = NULL;
    struct ng_capture *capture = begun ? begun->capture : capture_on(comm, stream, &gpu);
    struct ng_captured *captured = begun ? begun : capture ? take_with_event(gpu, false) : NULL;
    bool fits = true;

    if (!captured) {
        tell_once(&told_room, "there is no room for more calls in CUDA graphs", CUDA_SUCCESS);
        return;
    }
    CUresult result =
        ng_guard.cuda.event_record_with_flags(captured->event, stream, CU_EVENT_RECORD_EXTERNAL);
    pthread_mutex_lock(&lock);
    if (result == CUDA_SUCCESS && (fits = fill_all(captured, comm, grouped, newest, flags)))
        join(capture, captured);
    else if (captured->start || result == CUDA_SUCCESS)
        join_nothing(capture, captured);
    else
        give_call(captured);
    pthread_mutex_unlock(&lock);
    if (result != CUDA_SUCCESS)
        tell_once(&told_event, "when an event was to go into a CUDA graph", result);
    else if (!fits)
        tell_once(&told_room, "there is no room for more calls in CUDA graphs", CUDA_SUCCESS);
}

static bool is_supported(const struct ng_cuda *cuda)
{
    return cuda && cuda->stream_get_capture_info && cuda->event_record_with_flags &&
           cuda->user_object_create && cuda->user_object_release &&
           cuda->graph_retain_user_object && cuda->graph_get_nodes && cuda->graph_node_get_type &&
           cuda->graph_event_node_get_event;
}

static bool may_add(CUstreamCaptureMode *mode)
{
    return ng_capture_is_on() && !atomic_load(&stopped) && is_supported(ng_guard_cuda()) &&
           ng_gpu_relax_thread(mode);
}

static void add_relaxed(struct ng_comm *comm, void *stream, const struct ng_grouped_call *grouped,
                        uint32_t newest, uint32_t flags, struct ng_captured *begun)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (!may_add(&mode))
        return;
    add(comm, stream, grouped, newest, flags, begun);
    ng_gpu_relax_thread(&mode);
}

/* In relaxed mode. */
static struct ng_captured *begin(struct ng_comm *comm, void *stream)
{
    struct ng_gpu *gpu = NULL;
    struct ng_capture *capture = capture_on(comm, stream, &gpu);
    struct ng_captured *captured = capture ? take_with_event(gpu, true) : NULL;

    if (!captured)
        return NULL;
    CUresult result =
        ng_guard.cuda.event_record_with_flags(captured->start, stream, CU_EVENT_RECORD_EXTERNAL);
    NG_HOLD(&lock);
    if (result == CUDA_SUCCESS) {
        join_nothing(capture, captured);
    } else {
        give_call(captured);
        captured = NULL;
    }
    return captured;
}

struct ng_captured *ng_capture_begin(struct ng_comm *comm, void *stream)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    /* All or none: a single event with timing makes all events of its graph expensive on the
     * device. */
    if (NG_LOAD(ng_guard.timing) != NG_TIMING_ALL || !may_add(&mode))
        return NULL;
    struct ng_captured *captured = begin(comm, stream);
    ng_gpu_relax_thread(&mode);
    return captured;
}

void ng_capture_add(struct ng_comm *comm, void *stream, const struct ng_call *call,
                    struct ng_captured *begun)
{
    const struct ng_grouped_call alone = {.call = *call};

    add_relaxed(comm, stream, &alone, 1, 0, begun);
}

void ng_capture_add_group(struct ng_comm *comm, void *stream, const struct ng_grouped_call *grouped,
                          uint32_t last, struct ng_captured *begun)
{
    add_relaxed(comm, stream, grouped, last, NG_RECORD_IN_GROUP, begun);
}

bool ng_capture_holds(const struct ng_comm *comm)
{
    uint32_t generation = NG_LOAD(comm->group->generation);

    NG_HOLD(&lock);
    return NG_ANY(call, calls, call_count,
                  call->capture && call->comm == comm && call->comm_generation == generation);
}
