/*
 * What NCCL has launched on each communicator, as far as NCCL's own counters can show that the
 * device has finished it.
 *
 * Each channel of a communicator has a counter in device memory, to which a kernel adds the number
 * of its works there at its end (NCCL 2.26.5 and newer, src/device/common.h). The arguments of a
 * launch say how many that will be, so for each launch the log has the value that every channel
 * reaches with it. core/device/launch_counters.h reads the counters.
 *
 * The first warp of a block counts, without waiting for the others. A launch that has not counted
 * is not finished. One that has counted has begun, so all before it are finished; it may run on
 * itself where its warps do different things: a send beside a receive, both ways of a tree.
 *
 * A log has one writer, the thread that calls NCCL with the communicator, and any readers. Nothing
 * here waits or locks; a communicator's first launch allocates its log.
 */
#ifndef NCCLGUARD_CORE_DEVICE_LAUNCH_LOG_H
#define NCCLGUARD_CORE_DEVICE_LAUNCH_LOG_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/comm/comm.h"
#include "core/comm/thread.h"
#include "core/nccl/op.h"
#include "core/runtime/runtime.h"

#define NG_LAUNCH_CHANNELS 64u
#define NG_LAUNCH_LOG_SIZE 256u /* the newest launches, and one that may be written */

/* struct ncclDevKernelArgs and ncclDevWorkBatch of NCCL 2.22.3 to 2.32.3, src/include/device.h. The
 * first batch of each channel follows the arguments, in the order of channels. */
struct ng_launch_arguments {
    uint64_t device_comm;
    uint64_t channels; /* one bit each */
    uint8_t storage_type;
    uint32_t work_mask;
    uint64_t works;
};

struct ng_launch_batch {
    uint32_t flags; /* lowest bits: how many batches further the channel's next one is; 0: none */
    uint32_t offset_base;
    uint64_t offset_bits; /* one for each work */
};

_Static_assert(sizeof(struct ng_launch_arguments) == 32 && sizeof(struct ng_launch_batch) == 16,
               "as in NCCL");

#define NG_LAUNCH_STORAGE_TYPES 3
#define NG_LAUNCH_JUMP          0x3fffu

/* A launch with its arguments in one buffer, as NCCL makes them. */
struct ng_kernel_launch {
    unsigned blocks;
    CUstream stream;
    const struct ng_launch_arguments *arguments;
    size_t bytes;
};

/* Launches on the same channels, with the same works there. */
struct ng_launch_run {
    _Atomic uint64_t first; /* launch, from 1 */
    _Atomic uint64_t channels;
    /* Of each launch on each of the channels; 0: they differ, see `mixed`, and it is one launch. */
    _Atomic uint32_t works;
};

/*
 * The program's thread stores as little as it can for a launch that is like the one before it: the
 * collective and the count. Readers work out, from the newest launch back, what the counters reach
 * with each. `count` is stored behind all of a launch; `changes` is odd while a run is begun.
 */
struct ng_launch_log {
    /* What a launch of the newest run is known by: it has one batch on each channel, with these
     * bits. For the writer alone. */
    struct {
        size_t bytes; /* of the arguments up to the last batch; SIZE_MAX: none continues the run */
        uint32_t blocks;
        uint64_t channels, bits;
    } like;
    _Atomic uint64_t device_comm; /* address of NCCL's structure on the device; 0 not known */
    _Atomic uint64_t count;       /* launches */
    /* By launch: the newest collective that was called until then, times 2; plus 1: it is in the
     * launch, 0: sends and receives alone are. */
    _Atomic uint64_t seqs[NG_LAUNCH_LOG_SIZE];
    _Atomic(const char *) distrusted; /* why its counters are not used; NULL: they are */
    _Atomic uint64_t changes;
    _Atomic uint64_t run_count; /* each of at least one launch: all of `seqs` have theirs */
    _Atomic uint32_t after[NG_LAUNCH_CHANNELS]; /* the counters with the runs before the newest */
    struct ng_launch_run runs[NG_LAUNCH_LOG_SIZE]; /* by number */
    _Atomic uint32_t mixed[NG_LAUNCH_LOG_SIZE][NG_LAUNCH_CHANNELS];
};

/* How far the device is. */
struct ng_launch_progress {
    uint64_t counted; /* this collective and those before it have counted */
    uint64_t left;    /* the last so many launches have not */
    /* Of the first of those: the channels on which it has not counted, and whether it has a
     * collective. */
    uint64_t channels;
    bool collective;
};

/*
 * NCCL is about to launch this kernel, on the calling thread. Returns the log that has it; NULL:
 * it is not known of which communicator it is. A log that cannot be kept exactly is distrusted from
 * then on.
 */
struct ng_launch_log *ng_launch_log_note(const struct ng_kernel_launch *launch);

/* Forget all launches. */
void ng_launch_log_clear(struct ng_launch_log *log);

/* Its part that knows no communicator: `seq` is the newest collective that was called, which is in
 * the launch if `collective`. False: these are not the arguments that are known. */
bool ng_launch_log_add(struct ng_launch_log *log, const struct ng_kernel_launch *launch,
                       uint64_t seq, bool collective);

/* Use the counters of this log no more. Says so once, at level info. */
void ng_launch_log_distrust(struct ng_launch_log *log, const char *why);

/* The log of a communicator; NULL: nothing was launched, or it is distrusted. Any thread. */
struct ng_launch_log *ng_launch_log_of(const struct ng_comm *comm);

/* What counters that were read from the device, before this call, say. False: they contradict the
 * log, or the log does not reach back far enough. */
bool ng_launch_log_compare(struct ng_launch_log *log, const uint64_t counters[NG_LAUNCH_CHANNELS],
                           struct ng_launch_progress *ret_progress);

/* Has a communicator launched for the first time since the last call of this function? */
bool ng_launch_log_is_new(void);

/* In a forked child, where CUDA does not work. */
void ng_launch_log_after_fork(void);

/* ---- The usual launch: like the one before it ---- */

/* Is it like the newest launch of this log? */
static inline __attribute__((always_inline)) bool
ng_launch_log_continues(const struct ng_launch_log *log, const struct ng_kernel_launch *launch)
{
    typedef uint64_t pair __attribute__((vector_size(16), aligned(8), may_alias));
    const struct ng_launch_arguments *arguments = launch->arguments;
    const struct ng_launch_batch *batch = (const struct ng_launch_batch *)(arguments + 1);

    if (launch->bytes < log->like.bytes || launch->blocks != log->like.blocks ||
        arguments->channels != log->like.channels || batch->flags & NG_LAUNCH_JUMP ||
        batch->offset_bits != log->like.bits)
        return false;
    if (launch->blocks == 1)
        return true;
    const pair *at = (const pair *)batch, *end = at + launch->blocks, first = *at;
    pair differs = {0, 0};
    for (; end - at >= 8; at += 8)
        differs |= (at[0] ^ first) | (at[1] ^ first) | (at[2] ^ first) | (at[3] ^ first) |
                   (at[4] ^ first) | (at[5] ^ first) | (at[6] ^ first) | (at[7] ^ first);
    for (; at != end; at++)
        differs |= *at ^ first;
    return !(differs[0] & NG_LAUNCH_JUMP) && !differs[1];
}

/* Add such a launch; `seq` as in struct ng_launch_log. */
static inline __attribute__((always_inline)) void ng_launch_log_continue(struct ng_launch_log *log,
                                                                         uint64_t seq)
{
    uint64_t number = NG_LOAD(log->count) + 1;

    atomic_thread_fence(memory_order_release); /* readers of the oldest see the count before it */
    NG_STORE(log->seqs[number % NG_LAUNCH_LOG_SIZE], seq);
    atomic_store_explicit(&log->count, number, memory_order_release);
}

/*
 * As ng_launch_log_note, for a launch inside a collective outside of NCCL groups that is like the
 * communicator's launch before it, on a stream of which the call has seen that it is not captured.
 * NULL: it is another case, and nothing has happened. Calls nothing.
 */
static inline __attribute__((always_inline)) struct ng_launch_log *
ng_launch_log_note_usual(const struct ng_kernel_launch *launch)
{
    const struct ng_thread *thread = ng_this_thread;

    if (!thread || thread->eager_stream != launch->stream)
        return NULL;
    const struct ng_comm *comm = thread->newest;
    struct ng_launch_log *log = atomic_load_explicit(&comm->launch_log, memory_order_relaxed);
    if (!log || !ng_launch_log_continues(log, launch) ||
        NG_LOAD(log->device_comm) != launch->arguments->device_comm)
        return NULL;
    ng_launch_log_continue(log, NG_LOAD(comm->group->entered) << 1 | 1);
    return log;
}

#endif
