/*
 * Pools of works and their events.
 *
 * Steps 4 and 6: entered by program threads (take, record) and by the watchdog (ask, give). Must
 * never change the current context, break a capture, or leave a CUDA error behind: only the driver
 * API is used, which has no pending error.
 */
#include "core/gpu.h"

#include <string.h>
#include <sys/mman.h>

#include "core/comm.h"
#include "core/guard.h"
#include "core/log.h"
#include "core/watchdog.h"

#define GPUS_MAX   64u /* contexts */
#define WORKS_MAX  NG_GPU_WORKS_MAX
#define WORKS_STEP 64u /* the pool grows by so many */

static struct ng_gpu gpus[GPUS_MAX];
static _Atomic uint32_t gpu_count;
static atomic_flag gpu_adding = ATOMIC_FLAG_INIT;

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

/* NCCL works on the communicator's device, whichever is current: so its default stream is that
 * device's. */
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
    /* The program, or its CUDA runtime, holds it as long as it has streams there. */
    cuda->primary_ctx_release(device);
    return primary;
}

struct ng_gpu *ng_gpu_choose(struct ng_comm *comm, void *stream)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    CUcontext context = NULL;

    if (ng_gpu_default_stream(stream)) {
        context = context_of_device(atomic_load(&comm->group->device));
    } else if (cuda->stream_get_ctx(stream, &context) != CUDA_SUCCESS) {
        return NULL;
    }
    if (!context)
        return NULL;
    struct ng_gpu *gpu = find_gpu(context);
    if (!gpu)
        gpu = add_gpu(context);
    if (gpu)
        atomic_store_explicit(&comm->gpu, gpu, memory_order_release);
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

/* More works with their events. The context is made current for the making and put back. */
static void grow_pool(struct ng_gpu *gpu)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    CUcontext popped;

    if (atomic_flag_test_and_set_explicit(&gpu->growing, memory_order_acquire))
        return;
    uint32_t made = atomic_load_explicit(&gpu->made, memory_order_relaxed);
    if (made < WORKS_MAX && cuda->ctx_push(gpu->context) == CUDA_SUCCESS) {
        for (uint32_t i = 0; i < WORKS_STEP && made + i < WORKS_MAX; i++) {
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

struct ng_work *ng_gpu_grow(struct ng_gpu *gpu)
{
    /* The pool ran dry: the watchdog should look before its usual time. */
    if (atomic_load_explicit(&gpu->made, memory_order_relaxed) > 0)
        ng_watchdog_hurry();
    grow_pool(gpu);
    return (uint32_t)atomic_load(&gpu->free) ? ng_gpu_take(gpu) : NULL;
}

void ng_gpu_give(struct ng_work *work)
{
    push_free(work->gpu, work);
}

bool ng_gpu_record_elsewhere(struct ng_gpu *gpu, CUevent event, void *stream)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    CUcontext current = NULL, popped;

    if (ng_gpu_default_stream(stream) && cuda->ctx_get_current(&current) == CUDA_SUCCESS &&
        current == gpu->context)
        return cuda->event_record(event, stream) == CUDA_SUCCESS;
    /* The calling thread has no context, or another one than the communicator's device. */
    if (cuda->ctx_push(gpu->context) != CUDA_SUCCESS)
        return false;
    bool recorded = cuda->event_record(event, stream) == CUDA_SUCCESS;
    cuda->ctx_pop(&popped);
    return recorded;
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
               "CUDA error %d when asking whether work has finished: collectives on this device "
               "are no longer watched",
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
}
