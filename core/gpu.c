/*
 * Pools of works and their events.
 *
 * Steps 4 and 6: entered by program threads (take, record) and by the watchdog (ask, give). Must never change the
 * current context, break a capture, or leave a CUDA error behind: only the driver API is used, which has no
 * pending error.
 */
#include "core/gpu.h"

#include <string.h>
#include <sys/mman.h>

#include "core/comm.h"
#include "core/guard.h"
#include "core/log.h"
#include "core/watchdog.h"

#define GPUS_MAX    64u   /* contexts */
#define WORKS_MAX   1024u /* about as many launches as a stream takes before the launching call blocks */
#define WORKS_STEP  64u   /* the pool grows by so many */

struct ng_gpu {
    CUcontext context;
    struct ng_work *works;
    _Atomic uint64_t free; /* tag << 32 | index + 1 of the first free work: the tag defeats ABA */
    _Atomic uint32_t made; /* works that have their events */
    _Atomic uint32_t taken;
    atomic_flag growing;
    atomic_bool lost; /* a query failed for good */
};

static struct ng_gpu gpus[GPUS_MAX];
static _Atomic uint32_t gpu_count;
static atomic_flag gpu_adding = ATOMIC_FLAG_INIT;

/* The default streams have no context of their own: they mean the current one. */
static bool is_default_stream(const void *stream)
{
    return (uintptr_t)stream <= 2;
}

static struct ng_gpu *find_gpu(CUcontext context)
{
    uint32_t count = atomic_load_explicit(&gpu_count, memory_order_acquire);

    for (uint32_t i = 0; i < count; i++)
        if (gpus[i].context == context)
            return &gpus[i];
    return NULL;
}

static struct ng_gpu *add_gpu(CUcontext context)
{
    struct ng_gpu *gpu;

    while (atomic_flag_test_and_set_explicit(&gpu_adding, memory_order_acquire))
        ; /* a few instructions long, once per context */
    gpu = find_gpu(context);
    if (!gpu && gpu_count < GPUS_MAX) {
        gpu = &gpus[gpu_count];
        void *map = mmap(NULL, WORKS_MAX * sizeof(*gpu->works), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED) {
            gpu = NULL;
        } else {
            gpu->works = map;
            gpu->context = context;
            atomic_store_explicit(&gpu_count, gpu_count + 1, memory_order_release);
        }
    }
    atomic_flag_clear_explicit(&gpu_adding, memory_order_release);
    return gpu;
}

struct ng_gpu *ng_gpu_of(struct ng_comm *comm, void *stream, bool *ret_capturing)
{
    struct ng_gpu *gpu = atomic_load_explicit(&comm->gpu, memory_order_relaxed);
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUcontext context = NULL;

    *ret_capturing = false;
    const struct ng_cuda *cuda = ng_guard_cuda();
    if (__builtin_expect(!cuda, 0))
        return NULL;
    CUresult result = cuda->stream_is_capturing(stream, &capture);
    /* CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the legacy stream while another one is captured. */
    if (__builtin_expect(result != CUDA_SUCCESS || capture != CU_STREAM_CAPTURE_STATUS_NONE, 0)) {
        *ret_capturing = result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        return NULL;
    }
    if (__builtin_expect(gpu != NULL, 1))
        return atomic_load_explicit(&gpu->lost, memory_order_relaxed) ? NULL : gpu;
    if (is_default_stream(stream)) {
        if (cuda->ctx_get_current(&context) != CUDA_SUCCESS)
            return NULL;
    } else if (cuda->stream_get_ctx(stream, &context) != CUDA_SUCCESS) {
        return NULL;
    }
    if (!context)
        return NULL;
    gpu = find_gpu(context);
    if (!gpu)
        gpu = add_gpu(context);
    if (gpu)
        atomic_store_explicit(&comm->gpu, gpu, memory_order_relaxed);
    return gpu;
}

static void push_free(struct ng_gpu *gpu, struct ng_work *work)
{
    uint64_t head = atomic_load_explicit(&gpu->free, memory_order_relaxed), next;

    do {
        atomic_store_explicit(&work->next_free, (uint32_t)head, memory_order_relaxed);
        next = ((head >> 32) + 1) << 32 | (uint32_t)(work - gpu->works + 1);
    } while (!atomic_compare_exchange_weak_explicit(&gpu->free, &head, next, memory_order_release,
                                                    memory_order_relaxed));
}

static struct ng_work *pop_free(struct ng_gpu *gpu)
{
    uint64_t head = atomic_load_explicit(&gpu->free, memory_order_acquire), next;
    struct ng_work *work;

    do {
        if ((uint32_t)head == 0)
            return NULL;
        work = &gpu->works[(uint32_t)head - 1];
        next = ((head >> 32) + 1) << 32 | atomic_load_explicit(&work->next_free, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&gpu->free, &head, next, memory_order_acquire,
                                                    memory_order_acquire));
    return work;
}

/* More works with their events. The context is made current for the making and put back. */
static void grow_pool(struct ng_gpu *gpu)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    CUcontext popped;

    if (atomic_flag_test_and_set_explicit(&gpu->growing, memory_order_acquire))
        return;
    uint32_t made = atomic_load_explicit(&gpu->made, memory_order_relaxed);
    if (made < WORKS_MAX && cuda->ctx_push(gpu->context) == CUDA_SUCCESS) {
        for (uint32_t i = 0; i < WORKS_STEP; i++) {
            struct ng_work *work = &gpu->works[made + i];
            if (cuda->event_create(&work->start, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
                break;
            if (cuda->event_create(&work->end, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
                cuda->event_destroy(work->start);
                break;
            }
            work->gpu = gpu;
            atomic_store_explicit(&gpu->made, made + i + 1, memory_order_relaxed);
            push_free(gpu, work);
        }
        cuda->ctx_pop(&popped);
    }
    atomic_flag_clear_explicit(&gpu->growing, memory_order_release);
}

struct ng_work *ng_gpu_take(struct ng_gpu *gpu)
{
    struct ng_work *work = pop_free(gpu);

    if (__builtin_expect(!work, 0)) {
        grow_pool(gpu);
        work = pop_free(gpu);
        if (!work)
            return NULL;
    }
    uint32_t taken = atomic_fetch_add_explicit(&gpu->taken, 1, memory_order_relaxed) + 1;
    /* Half of the limit in flight: the watchdog should look before its usual time. */
    if (__builtin_expect(taken == WORKS_MAX / 2, 0))
        ng_watchdog_hurry();
    return work;
}

void ng_gpu_give(struct ng_work *work)
{
    atomic_fetch_sub_explicit(&work->gpu->taken, 1, memory_order_relaxed);
    push_free(work->gpu, work);
}

static bool record(struct ng_gpu *gpu, CUevent event, void *stream)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    CUcontext current = NULL, popped;

    if (__builtin_expect(!is_default_stream(stream), 1)) {
        CUresult result = cuda->event_record(event, stream);
        if (__builtin_expect(result == CUDA_SUCCESS, 1))
            return true;
        if (result != CUDA_ERROR_INVALID_CONTEXT)
            return false;
    } else if (cuda->ctx_get_current(&current) == CUDA_SUCCESS && current == gpu->context) {
        return cuda->event_record(event, stream) == CUDA_SUCCESS;
    }
    /* The calling thread has no context, or another one than the communicator's device. */
    if (cuda->ctx_push(gpu->context) != CUDA_SUCCESS)
        return false;
    bool recorded = cuda->event_record(event, stream) == CUDA_SUCCESS;
    cuda->ctx_pop(&popped);
    return recorded;
}

bool ng_gpu_record_start(struct ng_work *work, void *stream)
{
    work->has_start = record(work->gpu, work->start, stream);
    return work->has_start;
}

bool ng_gpu_record_end(struct ng_work *work, void *stream)
{
    return record(work->gpu, work->end, stream);
}

static enum ng_gpu_state query(struct ng_gpu *gpu, CUevent event)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;

    if (atomic_load_explicit(&gpu->lost, memory_order_relaxed))
        return NG_GPU_LOST;
    CUresult result = cuda->event_query(event);
    if (result == CUDA_ERROR_INVALID_CONTEXT && cuda->ctx_set_current(gpu->context) == CUDA_SUCCESS)
        result = cuda->event_query(event);
    if (result == CUDA_SUCCESS)
        return NG_GPU_DONE;
    if (result == CUDA_ERROR_NOT_READY)
        return NG_GPU_PENDING;
    atomic_store(&gpu->lost, true);
    /* A driver that has shut down is the ordinary end of a program. */
    if (result != CUDA_ERROR_DEINITIALIZED && result != CUDA_ERROR_NOT_INITIALIZED &&
        !atomic_load(&ng_guard.ending))
        ng_log(NG_LOG_WARN,
               "CUDA error %d when asking whether work has finished: collectives on this device are no longer watched",
               (int)result);
    return NG_GPU_LOST;
}

enum ng_gpu_state ng_gpu_started(const struct ng_work *work)
{
    return work->has_start ? query(work->gpu, work->start) : NG_GPU_PENDING;
}

enum ng_gpu_state ng_gpu_ended(const struct ng_work *work)
{
    return query(work->gpu, work->end);
}

void ng_gpu_adopt_thread(void)
{
    const struct ng_cuda *cuda = ng_guard_cuda();
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (cuda)
        cuda->thread_exchange_capture_mode(&mode);
}

unsigned ng_gpu_load(void)
{
    uint32_t count = atomic_load_explicit(&gpu_count, memory_order_acquire), most = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t taken = atomic_load_explicit(&gpus[i].taken, memory_order_relaxed);
        if (taken > most)
            most = taken;
    }
    return most * 100 / WORKS_MAX;
}

void ng_gpu_after_fork(void)
{
    memset(gpus, 0, sizeof(gpus));
    atomic_store(&gpu_count, 0);
    atomic_flag_clear(&gpu_adding);
}
