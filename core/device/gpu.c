/*
 * Pools of works and their events.
 *
 * Entered by program threads (take, record) and by the watchdog (query, return). Must never change
 * the current context, invalidate a capture, or leave a CUDA error behind: only the driver API is
 * used, which has no pending error.
 */
#include "core/device/gpu.h"

#include <sched.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/nccl/op.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/memory.h"

#define GPUS_MAX        64u /* contexts */
#define WORKS_MAX       NG_GPU_WORKS_MAX
#define WORKS_FIRST     320u       /* works made with the communicator, ahead of its calls */
#define WORKS_STEP      64u        /* works added when the pool grows */
#define TIMED_STEP      8u         /* the same for timed works, of which few are in flight */
#define DURATION_MAX_MS 1000000000 /* eleven days: longer values are invalid */
#define GROW_YIELDS     100        /* how often a thread yields while another grows the pool */
#define WAIT_NS         (NG_S / 2) /* how long a call waits for a round that is under way, at most */
#define REST_SHARE      9          /* so many times as long nobody does afterwards, if in vain */

static struct ng_gpu gpus[GPUS_MAX] NG_LARGE;
static _Atomic uint32_t gpu_count;
static atomic_flag gpu_adding = ATOMIC_FLAG_INIT;
static _Atomic int64_t look_from_mono_ns; /* until then no call looks for finished works itself */
static _Atomic int64_t wait_from_mono_ns; /* until then none waits for a round that is under way */

/* Does the context no longer exist, because the program has destroyed it or reset the device? */
static bool is_gone(CUresult result)
{
    return result == CUDA_ERROR_CONTEXT_IS_DESTROYED || result == CUDA_ERROR_INVALID_CONTEXT ||
           result == CUDA_ERROR_INVALID_HANDLE;
}

/* Asynchronous errors are handled alike: core/device/async.h. */
static void record_error(struct ng_comm *comm, CUresult result)
{
    if (ng_cuda_error_is_permanent((int)result) && !NG_LOAD(comm->group->error_mono_ns))
        NG_STORE(comm->group->error_mono_ns, ng_clock_mono_ns());
    NG_STORE(comm->group->cuda_error, (int)result);
}

/* CUDA fails here permanently: log it once, and write it into the black box for every communicator
 * that worked here. */
static void lose(struct ng_gpu *gpu, CUresult result)
{
    if (atomic_exchange(&gpu->lost, true))
        return;
    /* The driver has shut down: a normal end of the program. */
    if (result == CUDA_ERROR_DEINITIALIZED || result == CUDA_ERROR_NOT_INITIALIZED ||
        atomic_load(&ng_guard.ending))
        return;
    for (uint32_t i = 0, count = ng_comm_count(); i < count; i++) {
        struct ng_comm *comm = ng_comm_at(i);
        uint32_t state = NG_LOAD(comm->group->state);
        if (atomic_load(&comm->gpu) == gpu && ng_group_state_is_alive(state))
            record_error(comm, result);
    }
    if (is_gone(result))
        ng_log(NG_LOG_INFO,
               "a CUDA context has ended (CUDA error %d) while collectives were in flight there",
               (int)result);
    else
        ng_log(NG_LOG_WARN,
               "CUDA error %d (%s) when asking whether work has finished: collectives on this "
               "device are no longer watched",
               (int)result, ng_cuda_error_text((int)result));
}

/* + 1; 0 not known. */
static uint64_t id_of(CUcontext context)
{
    unsigned long long id;

    if (!ng_guard.cuda.ctx_get_id || ng_guard.cuda.ctx_get_id(context, &id) != CUDA_SUCCESS)
        return 0;
    return id + 1;
}

/*
 * Do the events of these pools still exist? They are gone if the device was reset and used again,
 * even though its context is at the same address. Drivers with context ids reveal this; with
 * others, one event is queried.
 */
static bool is_alive(struct ng_gpu *gpu, uint64_t id)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (atomic_load_explicit(&gpu->lost, memory_order_acquire))
        return false;
    if (id && id == atomic_load(&gpu->context_id))
        return true;
    if (id) {
        atomic_store(&gpu->lost, true);
        return false;
    }
    struct ng_pool *pool = atomic_load(&gpu->pool.made) ? &gpu->pool : &gpu->timed_pool;
    if (!atomic_load(&pool->made) || !ng_gpu_relax_thread(&mode))
        return true;
    uint32_t first = (uint32_t)atomic_load(&pool->free);
    CUresult result = cuda->event_query(pool->works[first ? first - 1 : 0].end);
    ng_gpu_relax_thread(&mode);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return true;
    atomic_store(&gpu->lost, true);
    return false;
}

/* The pool of a live context; NULL: there is none yet. */
static struct ng_gpu *find_gpu(CUcontext context, uint64_t id)
{
    uint32_t count = atomic_load_explicit(&gpu_count, memory_order_acquire);

    for (uint32_t i = 0; i < count; i++)
        if (atomic_load_explicit(&gpus[i].context, memory_order_relaxed) == context &&
            is_alive(&gpus[i], id))
            return &gpus[i];
    return NULL;
}

/* Have all works returned to this lost pool? The events are gone with their context. */
static bool is_empty(struct ng_pool *pool)
{
    uint32_t made = atomic_load(&pool->made), home = 0;

    for (uint32_t at = (uint32_t)atomic_load_explicit(&pool->free, memory_order_acquire);
         at && home < made; home++)
        at = atomic_load_explicit(&pool->works[at - 1].next_free, memory_order_relaxed);
    return home == made;
}

static void forget_events(struct ng_pool *pool)
{
    atomic_store(&pool->made, 0);
    atomic_store(&pool->free, ((atomic_load(&pool->free) >> 32) + 1) << 32);
}

/* Make both pools of a lost context reusable for another, if none of their works is in flight. */
static bool empty_pools(struct ng_gpu *gpu)
{
    if (atomic_flag_test_and_set_explicit(&gpu->pool.growing, memory_order_acquire))
        return false;
    if (atomic_flag_test_and_set_explicit(&gpu->timed_pool.growing, memory_order_acquire)) {
        atomic_flag_clear_explicit(&gpu->pool.growing, memory_order_release);
        return false;
    }
    bool empty = is_empty(&gpu->pool) && is_empty(&gpu->timed_pool);
    if (empty) {
        forget_events(&gpu->pool);
        forget_events(&gpu->timed_pool);
        atomic_store(&gpu->untimed, false);
    }
    atomic_flag_clear_explicit(&gpu->timed_pool.growing, memory_order_release);
    atomic_flag_clear_explicit(&gpu->pool.growing, memory_order_release);
    return empty;
}

/* A pool for a context that has none, an old one if possible. Under gpu_adding. */
static struct ng_gpu *unused_gpu(void)
{
    struct ng_gpu *gpu;

    for (uint32_t i = 0; i < gpu_count; i++) {
        gpu = &gpus[i];
        if (atomic_load_explicit(&gpu->lost, memory_order_acquire) && empty_pools(gpu))
            return gpu;
    }
    if (gpu_count == GPUS_MAX)
        return NULL;
    gpu = &gpus[gpu_count];
    gpu->pool.works = ng_memory_reserve(WORKS_MAX * sizeof(*gpu->pool.works));
    return gpu->pool.works ? gpu : NULL;
}

static struct ng_gpu *add_gpu(CUcontext context, uint64_t id)
{
    while (atomic_flag_test_and_set_explicit(&gpu_adding, memory_order_acquire))
        ; /* a few instructions long, once per context */
    struct ng_gpu *gpu = NULL;
    /* Was another thread first? Makes no CUDA call. */
    for (uint32_t i = 0; i < gpu_count && !gpu; i++)
        if (!atomic_load(&gpus[i].lost) && atomic_load(&gpus[i].context) == context &&
            atomic_load(&gpus[i].context_id) == id)
            gpu = &gpus[i];
    if (!gpu && (gpu = unused_gpu())) {
        atomic_store(&gpu->context, context);
        atomic_store(&gpu->context_id, id);
        atomic_store_explicit(&gpu->lost, false, memory_order_release);
        if (gpu == &gpus[gpu_count])
            atomic_store_explicit(&gpu_count, gpu_count + 1, memory_order_release);
    }
    atomic_flag_clear_explicit(&gpu_adding, memory_order_release);
    return gpu;
}

/* NCCL works on the communicator's device, whichever is current, so its default stream is that of
 * this device. */
static CUcontext context_of_device(int device)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    CUcontext current = NULL, primary = NULL;
    CUdevice current_device = -1;

    if (cuda->ctx_get_current(&current) != CUDA_SUCCESS)
        current = NULL;
    if (current && (device < 0 || (cuda->ctx_get_device(&current_device) == CUDA_SUCCESS &&
                                   current_device == device)))
        return current;
    if (device < 0 || cuda->primary_ctx_retain(&primary, device) != CUDA_SUCCESS)
        return NULL;
    /* The program, or its CUDA runtime, keeps it as long as it has streams there. */
    cuda->primary_ctx_release(device);
    return primary;
}

static struct ng_gpu *gpu_of_context(CUcontext context, uint64_t id)
{
    struct ng_gpu *gpu = find_gpu(context, id);

    return gpu ? gpu : add_gpu(context, id);
}

struct ng_gpu *ng_gpu_choose(struct ng_comm *comm, void *stream)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    struct ng_gpu *before = atomic_load_explicit(&comm->gpu, memory_order_acquire);
    CUcontext context = NULL;

    if (ng_gpu_default_stream(stream)) {
        context = context_of_device(atomic_load(&comm->group->device));
    } else if (cuda->stream_get_ctx(stream, &context) != CUDA_SUCCESS) {
        return NULL;
    }
    if (!context)
        return NULL;
    uint64_t id = id_of(context);
    /* A context that failed before is not tried again with each call. */
    if (before && atomic_load(&before->lost) && atomic_load(&before->context) == context &&
        atomic_load(&before->context_id) == id)
        return NULL;
    struct ng_gpu *gpu = gpu_of_context(context, id);
    if (gpu)
        atomic_store_explicit(&comm->gpu, gpu, memory_order_release);
    return gpu;
}

static void push_free(struct ng_pool *pool, struct ng_async_op *work)
{
    uint64_t head = atomic_load_explicit(&pool->free, memory_order_relaxed), next;

    do {
        atomic_store_explicit(&work->next_free, (uint32_t)head, memory_order_relaxed);
        next = ((head >> 32) + 1) << 32 | (uint32_t)(work - pool->works + 1);
    } while (!atomic_compare_exchange_weak_explicit(&pool->free, &head, next, memory_order_release,
                                                    memory_order_relaxed));
}

/* Events of one more work, in the current context. */
static CUresult make_events(struct ng_gpu *gpu, struct ng_async_op *work, bool timed)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    unsigned flags = timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING;
    CUresult result = cuda->event_create(&work->start, flags);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuda->event_create(&work->end, flags);
    if (result != CUDA_SUCCESS) {
        cuda->event_destroy(work->start);
        return result;
    }
    work->gpu = gpu;
    work->timed = timed;
    return CUDA_SUCCESS;
}

/*
 * Add works with their events. Makes the context current meanwhile, and restores the previous one.
 * `ahead`: no call needs them yet, so a failure has no consequence; a call will try again.
 */
static void grow_pool(struct ng_gpu *gpu, struct ng_pool *pool, bool ahead)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    bool timed = pool == &gpu->timed_pool;
    uint32_t step = timed ? TIMED_STEP : ahead ? WORKS_FIRST : WORKS_STEP;
    CUresult result = CUDA_SUCCESS;
    CUcontext popped;

    /* Another thread is growing the pool, and has the first works in a microsecond or two: without
     * waiting, this call would be unobserved. */
    for (int i = 0; atomic_flag_test_and_set_explicit(&pool->growing, memory_order_acquire); i++) {
        if (i == GROW_YIELDS || (uint32_t)atomic_load(&pool->free))
            return;
        sched_yield();
    }
    if ((uint32_t)atomic_load(&pool->free)) {
        atomic_flag_clear_explicit(&pool->growing, memory_order_release);
        return;
    }
    if (!pool->works && !(pool->works = ng_memory_reserve(WORKS_MAX * sizeof(*pool->works))))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    uint32_t made = atomic_load_explicit(&pool->made, memory_order_relaxed);
    if (result == CUDA_SUCCESS && made < WORKS_MAX &&
        (result = cuda->ctx_push(gpu->context)) == CUDA_SUCCESS) {
        for (uint32_t i = 0; i < step && made + i < WORKS_MAX; i++) {
            struct ng_async_op *work = &pool->works[made + i];
            result = make_events(gpu, work, timed);
            if (result != CUDA_SUCCESS)
                break;
            atomic_store_explicit(&pool->made, made + i + 1, memory_order_relaxed);
            push_free(pool, work);
        }
        cuda->ctx_pop(&popped);
    }
    /* Not a single event: this context is unusable, and is not tried again with each call. */
    if (result != CUDA_SUCCESS && !ahead && !timed && !atomic_load(&pool->made))
        lose(gpu, result);
    /* Nor are events with timing, if no more can be created; untimed ones are used instead. */
    if (result != CUDA_SUCCESS && !ahead && timed)
        atomic_store(&gpu->untimed, true);
    atomic_flag_clear_explicit(&pool->growing, memory_order_release);
}

/*
 * All works that there can be are in flight. Mostly the device has finished many of them, and the
 * watchdog has had no processor to see it: this thread has one, and looks itself, since nobody
 * would ever tell of the hang of a call without a work. Where they are in flight indeed it looks in
 * vain, and where the watchdog lost its processor in the middle of a round it waits for that: each
 * for at most a tenth of the program's time.
 */
static struct ng_async_op *look_for_finished(struct ng_gpu *gpu)
{
    int64_t began_ns = ng_clock_mono_ns();
    bool waits = began_ns >= atomic_load_explicit(&wait_from_mono_ns, memory_order_relaxed);

    if (began_ns < atomic_load_explicit(&look_from_mono_ns, memory_order_relaxed))
        return NULL;
    bool entered = ng_gpu_enter_context(gpu);
    bool looked = ng_wake_look_here(waits ? WAIT_NS : 0);
    if (entered)
        ng_gpu_leave_context();
    struct ng_async_op *work = ng_pool_take(&gpu->pool);
    int64_t ended_ns = ng_clock_mono_ns(), next_ns = ended_ns + REST_SHARE * (ended_ns - began_ns);
    if (looked && !work)
        atomic_store_explicit(&look_from_mono_ns, next_ns, memory_order_relaxed);
    else if (!looked && waits)
        atomic_store_explicit(&wait_from_mono_ns, next_ns, memory_order_relaxed);
    return work;
}

struct ng_async_op *ng_gpu_grow(struct ng_gpu *gpu)
{
    struct ng_pool *pool = &gpu->pool;

    /* The pool ran dry: request an early round of the watchdog. */
    if (atomic_load_explicit(&pool->made, memory_order_relaxed) > 0)
        ng_wake_watchdog();
    grow_pool(gpu, pool, false);
    struct ng_async_op *work = ng_pool_take(pool);
    if (!work && atomic_load_explicit(&pool->made, memory_order_relaxed) == WORKS_MAX)
        work = look_for_finished(gpu);
    return work;
}

/* A work with timing; NULL: none available. */
static struct ng_async_op *take_timed(struct ng_gpu *gpu)
{
    struct ng_async_op *work = ng_pool_take(&gpu->timed_pool);

    if (work || atomic_load_explicit(&gpu->untimed, memory_order_relaxed))
        return work;
    if (atomic_load_explicit(&gpu->timed_pool.made, memory_order_relaxed) > 0)
        ng_wake_watchdog();
    grow_pool(gpu, &gpu->timed_pool, false);
    return ng_pool_take(&gpu->timed_pool);
}

struct ng_async_op *ng_gpu_start_timed(struct ng_comm *comm, void *stream, bool *ret_capturing)
{
    struct ng_gpu *gpu = ng_gpu_of(comm, stream, ret_capturing);
    struct ng_async_op *work = gpu ? take_timed(gpu) : NULL;

    if (!work && !(work = gpu ? ng_gpu_take(gpu) : NULL))
        return NULL;
    work->has_start = ng_gpu_record(gpu, work->start, stream);
    return work->has_start ? work : ng_gpu_start_elsewhere(comm, work, stream);
}

void ng_gpu_prepare(struct ng_comm *comm)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    int device = atomic_load(&comm->group->device);

    if (atomic_load(&comm->gpu) || device < 0 || !ng_gpu_relax_thread(&mode))
        return;
    CUcontext context = context_of_device(device);
    struct ng_gpu *gpu = context ? gpu_of_context(context, id_of(context)) : NULL;
    if (gpu && !atomic_load(&gpu->pool.made))
        grow_pool(gpu, &gpu->pool, true);
    if (gpu && !atomic_load(&gpu->timed_pool.made) && !atomic_load(&gpu->untimed) &&
        NG_LOAD(ng_guard.timing) != NG_TIMING_OFF)
        grow_pool(gpu, &gpu->timed_pool, true);
    ng_gpu_relax_thread(&mode);
}

void ng_gpu_give(struct ng_async_op *work)
{
    push_free(work->timed ? &work->gpu->timed_pool : &work->gpu->pool, work);
}

/* The stream rejects the start event: it may belong to another context than the communicator's last
 * stream, or its device was reset since. */
struct ng_async_op *ng_gpu_start_elsewhere(struct ng_comm *comm, struct ng_async_op *work,
                                           void *stream)
{
    struct ng_gpu *gpu = ng_gpu_choose(comm, stream);

    if (!gpu || gpu == work->gpu)
        return work;
    struct ng_async_op *timed = work->timed ? take_timed(gpu) : NULL;
    ng_gpu_give(work);
    work = timed ? timed : ng_gpu_take(gpu);
    if (work)
        work->has_start = ng_gpu_record(gpu, work->start, stream);
    return work;
}

bool ng_gpu_record_elsewhere(struct ng_gpu *gpu, CUevent event, void *stream)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    CUcontext current = NULL, popped;

    if (ng_gpu_default_stream(stream) && cuda->ctx_get_current(&current) == CUDA_SUCCESS &&
        current == gpu->context)
        return cuda->event_record(event, stream) == CUDA_SUCCESS;
    /* The calling thread has no context, or not that of the communicator's device. */
    if (cuda->ctx_push(gpu->context) != CUDA_SUCCESS)
        return false;
    bool recorded = cuda->event_record(event, stream) == CUDA_SUCCESS;
    cuda->ctx_pop(&popped);
    return recorded;
}

bool ng_gpu_enter_context(struct ng_gpu *gpu)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    CUcontext current = NULL;

    return (cuda->ctx_get_current(&current) != CUDA_SUCCESS || !current) &&
           cuda->ctx_push(gpu->context) == CUDA_SUCCESS;
}

void ng_gpu_leave_context(void)
{
    CUcontext popped;

    ng_guard.cuda.ctx_pop(&popped);
}

/* Is a capture the reason? Then the result says nothing about the event. */
static bool is_about_capture(CUresult result)
{
    return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

static enum ng_gpu_state query(struct ng_gpu *gpu, CUevent event)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;

    if (atomic_load_explicit(&gpu->lost, memory_order_relaxed))
        return NG_GPU_LOST;
    CUresult result = cuda->event_query(event);
    /* The thread may have no context, or one whose device was reset. */
    if ((result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED) &&
        cuda->ctx_set_current(gpu->context) == CUDA_SUCCESS)
        result = cuda->event_query(event);
    if (result == CUDA_SUCCESS)
        return NG_GPU_DONE;
    if (result == CUDA_ERROR_NOT_READY || is_about_capture(result))
        return NG_GPU_PENDING;
    lose(gpu, result);
    return NG_GPU_LOST;
}

enum ng_gpu_state ng_gpu_started(const struct ng_async_op *work)
{
    return work->has_start ? query(work->gpu, work->start) : NG_GPU_DONE;
}

enum ng_gpu_state ng_gpu_ended(const struct ng_async_op *work)
{
    return query(work->gpu, work->end);
}

int64_t ng_gpu_duration_ns(const struct ng_async_op *work)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    float ms = 0;

    if (!work->timed || !work->has_start || !cuda->event_elapsed ||
        atomic_load_explicit(&work->gpu->lost, memory_order_relaxed))
        return 0;
    CUresult result = cuda->event_elapsed(&ms, work->start, work->end);
    if (result == CUDA_ERROR_INVALID_CONTEXT &&
        cuda->ctx_set_current(work->gpu->context) == CUDA_SUCCESS)
        result = cuda->event_elapsed(&ms, work->start, work->end);
    /* Rejects NaN and negative values, too, as for a work whose events were used twice. */
    if (result != CUDA_SUCCESS || !(ms >= 0) || ms > (float)DURATION_MAX_MS)
        return 0;
    int64_t duration_ns = (int64_t)((double)ms * 1e6);
    return duration_ns > 0 ? duration_ns : 1;
}

bool ng_gpu_relax_thread(CUstreamCaptureMode *mode)
{
    const struct ng_cuda *cuda = ng_guard_cuda();

    return cuda && cuda->thread_exchange_capture_mode(mode) == CUDA_SUCCESS;
}

void ng_gpu_after_fork(void)
{
    memset(gpus, 0, sizeof(gpus));
    atomic_store(&gpu_count, 0);
    atomic_flag_clear(&gpu_adding);
    atomic_store(&look_from_mono_ns, 0);
    atomic_store(&wait_from_mono_ns, 0);
}
