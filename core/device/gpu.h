/*
 * Work on the device: events that show when it begins and ends.
 *
 * Program threads take a work, record its events on their own stream and hand it to the watchdog,
 * which queries the events and returns the work. Events come from a pool for each CUDA context. The
 * first ones are created with the first communicator there, more when the pool has to grow, in
 * steps, up to its limit.
 */
#ifndef NCCLGUARD_CORE_DEVICE_GPU_H
#define NCCLGUARD_CORE_DEVICE_GPU_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/comm/comm.h"
#include "core/runtime/runtime.h"

/* One launched operation between a start and an end event: one call, or all calls of a NCCL group
 * on one communicator and stream. */
struct ng_async_op {
    _Atomic uint32_t next_free; /* index + 1 in the pool */
    bool has_start;             /* else nothing shows when it begins: core/device/burst.h */
    bool timed;                 /* its events have timing: written once */
    struct ng_gpu *gpu;
    struct ng_async_op *next; /* in the communicator's queue */
    CUevent start, end;
    uint64_t last_record;         /* newest record; the others follow by work_previous */
    uint64_t first_seq, last_seq; /* collectives in it; 0 none */
    uint32_t p2p_count;
    int64_t entered_mono_ns;
    int64_t mark; /* for deadline extensions; used by the watchdog only */
    void *stream; /* for a work that NCCL has still to launch: core/device/in_progress.h */
    /* Of a timed work, for the duration statistics. */
    enum ng_op op; /* NG_OP_GroupEnd: several calls */
    uint32_t calls;
    uint64_t bytes;
    bool symmetric; /* every rank of the group waits for every other */
    /* Of the replay of a CUDA graph: core/device/graph.h. Otherwise NULL and 0: the code that sets
     * them clears them. */
    struct ng_graph_part *part;
    uint64_t launch;      /* number of the launch in this process */
    uint64_t replay;      /* number of the launch of its graph */
    uint64_t recalled;    /* a second record of one of its calls; 0 none */
    uint32_t done;        /* calls of the part that are known to have finished */
    uint64_t done_record; /* the newest of their records; it and the records behind it have reached
                             their final state */
};

/* Works with events of one kind, and the list of free ones. */
struct ng_pool {
    struct ng_async_op *works;
    _Atomic uint64_t free; /* tag << 32 | index + 1 of the first free work: the tag defeats ABA */
    _Atomic uint32_t made; /* works that have their events */
    atomic_flag growing;
};

/*
 * The works of one CUDA context. Once the context is lost, nothing more is taken from it. A context
 * that is found alive later (after a reset a device has a new one, mostly at the same address) gets
 * its own works and events.
 */
struct ng_gpu {
    CUcontext _Atomic context;
    _Atomic uint64_t context_id; /* + 1; 0 not known: the driver is older than 12.0 */
    struct ng_pool pool;         /* of events without timing */
    struct ng_pool timed_pool;   /* of events with timing; unused if nothing is measured */
    atomic_bool lost;            /* CUDA fails in this context permanently */
    atomic_bool untimed;         /* no more events with timing can be created */
};

/* The default streams have no context of their own: they use the current one. */
static inline bool ng_gpu_default_stream(const void *stream)
{
    return (uintptr_t)stream <= 2;
}

/* The context is known, and can be used. */
static inline bool ng_gpu_is_at_hand(const struct ng_gpu *gpu)
{
    return __builtin_expect((uintptr_t)gpu > (uintptr_t)NG_COMM_GPU_OUT_OF_REACH, 1) &&
           __builtin_expect(!atomic_load_explicit(&gpu->lost, memory_order_relaxed), 1);
}

/* The slow halves of the functions below. */
struct ng_gpu *ng_gpu_choose(struct ng_comm *comm, void *stream);
struct ng_async_op *ng_gpu_grow(struct ng_gpu *gpu);
struct ng_async_op *ng_gpu_start_elsewhere(struct ng_comm *comm, struct ng_async_op *work,
                                           void *stream);
bool ng_gpu_record_elsewhere(struct ng_gpu *gpu, CUevent event, void *stream);

/*
 * The pool of the context of `stream`, or NULL if nothing can be observed (no driver, or the
 * context is gone). Sets *ret_capturing when the stream is being captured into a graph: then no
 * event may be recorded.
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

/*
 * Make the first works of the context that a new communicator's device has now, so that no call of
 * the program has to. Does nothing if that context has works, or is not known: then the first call
 * makes them. On the thread that created the communicator, which NCCL has finished.
 */
void ng_gpu_prepare(struct ng_comm *comm);

/* Take a free work; NULL: none is free now. */
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
    if (!work)
        __builtin_unreachable();
    return work;
}

/* Take a work whose events have no timing; NULL: all are in flight (the caller counts that). Where
 * as many as there can be seem to be, looks itself which of them have finished. */
static inline struct ng_async_op *ng_gpu_take(struct ng_gpu *gpu)
{
    struct ng_async_op *work = ng_pool_take(&gpu->pool);

    return __builtin_expect(work != NULL, 1) ? work : ng_gpu_grow(gpu);
}

/* Return a work to its pool. Any thread, once. */
void ng_gpu_give(struct ng_async_op *work);

/* Record an event of a work on the stream. False: CUDA failed; the work is not observed. */
static inline bool ng_gpu_record(struct ng_gpu *gpu, CUevent event, void *stream)
{
    if (__builtin_expect(!ng_gpu_default_stream(stream) &&
                             ng_guard.cuda.event_record(event, stream) == CUDA_SUCCESS,
                         1))
        return true;
    return ng_gpu_record_elsewhere(gpu, event, stream);
}

/*
 * Begin to observe what the program puts on `stream` next: returns a work whose start is recorded,
 * unless it goes on with a burst (core/device/burst.h); NULL if nothing can be observed.
 * *ret_capturing as in ng_gpu_of.
 */
static inline __attribute__((always_inline)) struct ng_async_op *
ng_gpu_start(struct ng_comm *comm, void *stream, bool in_burst, bool *ret_capturing)
{
    struct ng_gpu *gpu = ng_gpu_of(comm, stream, ret_capturing);
    struct ng_async_op *work = __builtin_expect(gpu != NULL, 1) ? ng_gpu_take(gpu) : NULL;

    if (__builtin_expect(!work, 0))
        return NULL;
    work->has_start = !in_burst && ng_gpu_record(gpu, work->start, stream);
    if (in_burst)
        return work;
    return __builtin_expect(work->has_start, 1) ? work : ng_gpu_start_elsewhere(comm, work, stream);
}

/* The same for a work that is to be measured; an untimed one if the timed pool is empty. */
struct ng_async_op *ng_gpu_start_timed(struct ng_comm *comm, void *stream, bool *ret_capturing);

enum ng_gpu_state {
    NG_GPU_PENDING,
    NG_GPU_DONE,
    NG_GPU_LOST /* CUDA fails: the state is unknown */
};

/* Has the device reached the work's start; its end? A work without start event has been reached if
 * it is the oldest of its communicator, as far as can be known. Watchdog. */
enum ng_gpu_state ng_gpu_started(const struct ng_async_op *work);
enum ng_gpu_state ng_gpu_ended(const struct ng_async_op *work);

/* How long the device took for a timed work that has ended, at least 1; 0 not known. Watchdog. */
int64_t ng_gpu_duration_ns(const struct ng_async_op *work);

/* Enter the context on a program thread that has no current one, so that it can query and leave
 * nothing behind. True: the caller must leave it again. */
bool ng_gpu_enter_context(struct ng_gpu *gpu);
void ng_gpu_leave_context(void);

/*
 * Exchange this thread's capture mode with *mode: a thread that queries events must be in relaxed
 * mode, or its queries would invalidate another thread's capture. False: no driver, or not
 * initialised yet.
 */
bool ng_gpu_relax_thread(CUstreamCaptureMode *mode);

/* Works of one context: about twice the launches that a stream takes before the launching call
 * blocks. */
#define NG_GPU_WORKS_MAX 2048u

/* In a forked child, where CUDA does not work: drop all state. */
void ng_gpu_after_fork(void);

#endif
