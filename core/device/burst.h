/*
 * Bursts: works that follow each other so closely that the program has put nothing else on the
 * stream in between. The device reaches each of them as soon as the one before it ends, so they
 * need no start event.
 *
 * "So closely" is the time that the thread spent outside NCCL: a program needs more than this limit
 * to launch a kernel, and mostly more to record an event and have the stream wait for it. Something
 * short may still fit, and another thread may use the stream. So a work without start event counts
 * as reached once the work before it has ended, but that is inferred, not seen: core/recorder/box.h
 * has a mark for it.
 *
 * Program threads. A few loads, stores and one reading of the fast clock for each call.
 */
#ifndef NCCLGUARD_CORE_DEVICE_BURST_H
#define NCCLGUARD_CORE_DEVICE_BURST_H

#include "core/comm/comm.h"
#include "core/comm/thread.h"
#include "core/device/gpu.h"
#include "core/util/fast_clock.h"

#define NG_BURST_GAP_NS  NG_US
#define NG_BURST_CALL_NS NG_US /* more for each call of an NCCL group: NCCL's time inside it */

/*
 * The thread puts a work of `comm` on the stream. Does it go on with a burst: was the last thing
 * that this thread did with NCCL a work of the same communicator on the same stream, at most
 * `gap_ns` before `now_mono_ns`? Default streams also wait for work of other streams.
 */
static inline bool ng_burst_goes_on(const struct ng_comm *comm, const struct ng_thread *thread,
                                    const void *stream, int64_t now_mono_ns, int64_t gap_ns)
{
    return comm->burst.stream == stream && comm->burst.left_mono_ns == thread->left_mono_ns &&
           (uint64_t)(now_mono_ns - thread->left_mono_ns) <= (uint64_t)gap_ns &&
           !ng_gpu_default_stream(stream);
}

/* The thread does something that the next work must not take for a part of its burst. */
static inline void ng_burst_end(struct ng_thread *thread)
{
    thread->left_mono_ns = 0;
}

/* The work is on the stream, with its end event, and the thread returns to the program. */
static inline void ng_burst_keep(struct ng_comm *comm, struct ng_thread *thread, void *stream,
                                 int64_t now_mono_ns)
{
    comm->burst.stream = stream;
    comm->burst.left_mono_ns = thread->left_mono_ns = now_mono_ns;
}

#endif
