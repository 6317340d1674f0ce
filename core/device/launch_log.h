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

struct ng_comm;

#define NG_LAUNCH_CHANNELS 64u
#define NG_LAUNCH_LOG_SIZE 256u /* the newest launches */

/* A launch with its arguments in one buffer, as NCCL makes them. */
struct ng_kernel_launch {
    unsigned blocks;
    CUstream stream;
    const void *arguments;
    size_t bytes;
};

struct ng_launch_entry {
    _Atomic uint64_t number;     /* of the launch, from 1; guard word, 0 while it is written */
    _Atomic uint64_t channels;   /* one bit each */
    _Atomic uint64_t seq;        /* the newest collective that was called until then */
    _Atomic uint64_t collective; /* 1: that collective is in it; 0: sends and receives alone */
    _Atomic uint32_t after[NG_LAUNCH_CHANNELS]; /* the counter of each channel that it has */
};

struct ng_launch_log {
    _Atomic uint32_t generation;      /* of the communicator's record */
    _Atomic uint64_t device_comm;     /* address of NCCL's structure on the device; 0 not known */
    _Atomic(const char *) distrusted; /* why its counters are not used; NULL: they are */
    _Atomic uint64_t count;           /* launches */
    _Atomic uint32_t after[NG_LAUNCH_CHANNELS];
    struct ng_launch_entry entries[NG_LAUNCH_LOG_SIZE]; /* by number */
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

#endif
