/*
 * Work on the device: events that tell when it begins and ends.
 *
 * Steps 4 and 6. Program threads take a work, record its events on their own stream and hand it to the watchdog, which
 * asks the events and gives the work back. Events come from a pool for each CUDA context; none is made on the way of a
 * call but when the pool has to grow, in steps, up to its limit.
 */
#ifndef NCCLGUARD_CORE_GPU_H
#define NCCLGUARD_CORE_GPU_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ng_comm;
struct ng_gpu;

/* What is between a start and an end event: one call, or all calls of a NCCL group on one communicator and stream. */
struct ng_work {
    _Atomic uint32_t next_free; /* index + 1 in the pool */
    bool has_start;
    struct ng_gpu *gpu;
    struct ng_comm *comm;
    struct ng_work *next; /* in the communicator's queue */
    CUevent start, end;
    uint64_t last_record; /* newest record; the others follow by work_previous */
    uint64_t first_seq, last_seq; /* collectives in it; 0 none */
    uint32_t p2p_count;
    uint32_t generation;   /* of the communicator's slot */
    int64_t entered_mono_ns;
    int64_t timeout_ns;
};

/*
 * What to do with work on `stream`: a pool of its context, or NULL where nothing can be observed (no driver, the
 * context is gone). Sets *ret_capturing when the stream is being captured into a graph: then no event may be recorded.
 */
struct ng_gpu *ng_gpu_of(struct ng_comm *comm, void *stream, bool *ret_capturing);

/* A work of the pool; NULL when all are in flight (counted by the caller). Tells the watchdog when it runs low. */
struct ng_work *ng_gpu_take(struct ng_gpu *gpu);

/* Back to the pool. Any thread, once. */
void ng_gpu_give(struct ng_work *work);

/* Record the start, or the end, on the stream. False: CUDA refused; the work is not observed. */
bool ng_gpu_record_start(struct ng_work *work, void *stream);
bool ng_gpu_record_end(struct ng_work *work, void *stream);

enum ng_gpu_state { NG_GPU_PENDING, NG_GPU_DONE, NG_GPU_LOST /* CUDA fails: nothing more is known */ };

/* Watchdog: has the start, the end been reached? */
enum ng_gpu_state ng_gpu_started(const struct ng_work *work);
enum ng_gpu_state ng_gpu_ended(const struct ng_work *work);

/* Watchdog: make this thread fit to ask events without disturbing anybody's capture. Once, at its start. */
void ng_gpu_adopt_thread(void);

/* Works in flight, over all pools, as a share of the largest pool's limit in percent. */
unsigned ng_gpu_load(void);

/* In a forked child: CUDA does not work here, forget everything. */
void ng_gpu_after_fork(void);

#endif
