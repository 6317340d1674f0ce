/*
 * Work on the device: events that tell when it begins and ends.
 *
 * Program threads take a work, record its events on their own stream and hand it to the watchdog,
 * which asks the events and gives the work back. Events come from a pool for each CUDA context;
 * none is made on the way of a call but when the pool has to grow, in steps, up to its limit.
 */
#ifndef NCCLGUARD_CORE_DEVICE_GPU_H
#define NCCLGUARD_CORE_DEVICE_GPU_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/comm/comm.h"
#include "core/runtime/runtime.h"

/* What is between a start and an end event: one call, or all calls of a NCCL group on one
 * communicator and stream. */
struct ng_async_op {
    _Atomic uint32_t next_free; /* index + 1 in the pool */
    bool has_start;
    bool timed; /* its events tell the time: written once */
    struct ng_gpu *gpu;
    struct ng_async_op *next; /* in the communicator's queue */
    CUevent start, end;
    uint64_t last_record;         /* newest record; the others follow by work_previous */
    uint64_t first_seq, last_seq; /* collectives in it; 0 none */
    uint32_t p2p_count;
    int64_t entered_mono_ns;
    int64_t mark; /* of its deadline's extensions; the watchdog's own */
    void *stream; /* of one that NCCL has still to launch: core/device/in_progress.h */
    /* Of a timed one, for whoever counts its duration. */
    enum ng_op op; /* NG_OP_GroupEnd: several calls */
    uint32_t calls;
    uint64_t bytes;
    bool symmetric; /* every rank waits in it for every other */
    /* Of the replay of a CUDA graph: core/device/graph.h. NULL and 0 else: who sets them clears
     * them. */
    struct ng_graph_part *part;
    uint64_t launch;      /* which of all launches of this process */
    uint64_t replay;      /* which of its graph */
    uint64_t recalled;    /* a second record of one of its calls; 0 none */
    uint32_t done;        /* calls of the part that are known to have finished */
    uint64_t done_record; /* the newest of their records: those behind it have reached their last
                             state */
};

/* Works with events of one sort, and those that are free. */
struct ng_pool {
    struct ng_async_op *works;
    _Atomic uint64_t free; /* tag << 32 | index + 1 of the first free work: the tag defeats ABA */
    _Atomic uint32_t made; /* works that have their events */
    atomic_flag growing;
};

/*
 * The works of one CUDA context. Once lost, nothing more is taken from it; a context that is found
 * alive later (a device that was reset has a new one, mostly at the same address) gets works and
 * events of its own.
 */
struct ng_gpu {
    CUcontext _Atomic context;
    _Atomic uint64_t context_id; /* + 1; 0 not known: the driver is older than 12.0 */
    struct ng_pool pool;         /* of events without timing */
    struct ng_pool
        timed_pool;      /* of events with timing; made with the first work that is measured */
    atomic_bool lost;    /* CUDA fails here for good */
    atomic_bool untimed; /* no more events with timing are to be had */
};

/* The default streams have no context of their own: they mean the current one. */
static inline bool ng_gpu_default_stream(const void *stream)
{
    return (uintptr_t)stream <= 2;
}

/* The slow halves of the functions below. */
struct ng_gpu *ng_gpu_choose(struct ng_comm *comm, void *stream);
struct ng_async_op *ng_gpu_grow(struct ng_gpu *gpu);
struct ng_async_op *ng_gpu_start_elsewhere(struct ng_comm *comm, struct ng_async_op *work,
                                           void *stream);
bool ng_gpu_record_elsewhere(struct ng_gpu *gpu, CUevent event, void *stream);

/*
 * What to do with work on `stream`: a pool of its context, or NULL where nothing can be observed
 * (no driver, the context is gone). Sets *ret_capturing when the stream is being captured into a
 * graph: then no event may be recorded.
 */
static inline struct ng_gpu *ng_gpu_of(struct ng_comm *comm, void *stream, bool *ret_capturing)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    const struct ng_cuda *cuda = ng_guard_cuda();

    struct ng_gpu *gpu = atomic_load_explicit(&comm->gpu, memory_order_acquire);

    *ret_capturing = false;
    if (__builtin_expect(!cuda || gpu == NG_COMM_GPU_OUT_OF_REACH, 0))
        return NULL;
    CUresult result = cuda->stream_is_capturing(stream, &capture);
    /* CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: the legacy stream while another one is captured. */
    if (__builtin_expect(result != CUDA_SUCCESS || capture != CU_STREAM_CAPTURE_STATUS_NONE, 0)) {
        *ret_capturing = result == CUDA_SUCCESS || result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        return NULL;
    }
    if (__builtin_expect(!gpu || atomic_load_explicit(&gpu->lost, memory_order_relaxed), 0))
        gpu = ng_gpu_choose(comm, stream);
    return gpu;
}

/* A work that is free; NULL there is none now. */
static inline struct ng_async_op *ng_pool_take(struct ng_pool *pool)
{
    uint64_t head = atomic_load_explicit(&pool->free, memory_order_acquire), next;
    struct ng_async_op *work;

    do {
        if (__builtin_expect((uint32_t)head == 0, 0))
            return NULL;
        work = &pool->works[(uint32_t)head - 1];
        next =
            ((head >> 32) + 1) << 32 | atomic_load_explicit(&work->next_free, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&pool->free, &head, next, memory_order_acquire,
                                                    memory_order_acquire));
    return work;
}

/* A work whose events tell no time; NULL when all are in flight (counted by the caller). */
static inline struct ng_async_op *ng_gpu_take(struct ng_gpu *gpu)
{
    struct ng_async_op *work = ng_pool_take(&gpu->pool);

    return __builtin_expect(work != NULL, 1) ? work : ng_gpu_grow(gpu);
}

/* Back to the pool. Any thread, once. */
void ng_gpu_give(struct ng_async_op *work);

/* Record an event of a work on the stream. False: CUDA refused; the work is not observed. */
static inline bool ng_gpu_record(struct ng_gpu *gpu, CUevent event, void *stream)
{
    if (__builtin_expect(!ng_gpu_default_stream(stream) &&
                             ng_guard.cuda.event_record(event, stream) == CUDA_SUCCESS,
                         1))
        return true;
    return ng_gpu_record_elsewhere(gpu, event, stream);
}

/*
 * Begin to observe what the program puts on `stream` next: a work whose start is recorded; NULL
 * where nothing can be observed, *ret_capturing as in ng_gpu_of.
 */
static inline __attribute__((always_inline)) struct ng_async_op *
ng_gpu_start(struct ng_comm *comm, void *stream, bool *ret_capturing)
{
    struct ng_gpu *gpu = ng_gpu_of(comm, stream, ret_capturing);
    struct ng_async_op *work = __builtin_expect(gpu != NULL, 1) ? ng_gpu_take(gpu) : NULL;

    if (__builtin_expect(!work, 0))
        return NULL;
    work->has_start = ng_gpu_record(gpu, work->start, stream);
    return __builtin_expect(work->has_start, 1) ? work : ng_gpu_start_elsewhere(comm, work, stream);
}

/* The same for a work that is to be measured; where its pool has none, one that is not timed. */
struct ng_async_op *ng_gpu_start_timed(struct ng_comm *comm, void *stream, bool *ret_capturing);

enum ng_gpu_state {
    NG_GPU_PENDING,
    NG_GPU_DONE,
    NG_GPU_LOST /* CUDA fails: nothing more is known */
};

/* Watchdog: has the start, the end been reached? */
enum ng_gpu_state ng_gpu_started(const struct ng_async_op *work);
enum ng_gpu_state ng_gpu_ended(const struct ng_async_op *work);

/* Watchdog: how long the device took for a timed work that has ended, 1 at the least; 0 not known.
 */
int64_t ng_gpu_duration_ns(const struct ng_async_op *work);

/* A thread of the program that has no current context, asks, and leaves nothing behind: true, where
 * it is to be left again. */
bool ng_gpu_enter_context(struct ng_gpu *gpu);
void ng_gpu_leave_context(void);

/*
 * Exchange this thread's capture mode with *mode: a thread that asks events must be in relaxed
 * mode, or its questions would break another thread's capture. False: no driver, or not initialised
 * yet.
 */
bool ng_gpu_relax_thread(CUstreamCaptureMode *mode);

/* Works of one context: about twice the launches that a stream takes before the launching call
 * blocks. */
#define NG_GPU_WORKS_MAX 2048u

/* In a forked child: CUDA does not work here, forget everything. */
void ng_gpu_after_fork(void);

#endif
