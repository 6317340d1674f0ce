/*
 * Poison (NCCLGUARD_POISON): results that an abort has cut off are not taken for results.
 *
 * After an abort the device is free at once: what waited for it, a stream that is synchronised
 * most of all, reports success over buffers that hold garbage. So the guard follows which streams
 * and events of the program depend on which communicators: a collective makes its stream depend on
 * its communicator, an event has what its stream had when it was recorded, and a stream that waits
 * for an event gets that. Once synchronising has succeeded, nothing depends on anything any more.
 * When the guard aborts a communicator with work in flight, what depends on it is poisoned: to
 * synchronise or to query it returns CUDA_ERROR_LAUNCH_FAILED, which is what CUDA says of kernels
 * that were cut off, and what programs treat as the loss of what was computed; until the program
 * has made another communicator, or acknowledges.
 *
 * Entered by the program's threads through the hooks of shim/cuda_poison.c, and by the thread that
 * aborts. No lock, nothing allocated. What is not known errs towards poison, but for: work that
 * NCCL launches later (nonblocking communicators), copies that synchronise by themselves
 * (cuMemcpyDtoH), and streams that wait for the legacy default stream implicitly.
 */
#ifndef NCCLGUARD_CORE_DEVICE_POISON_H
#define NCCLGUARD_CORE_DEVICE_POISON_H

#include <stdbool.h>
#include <stdint.h>

struct ng_comm;
struct ng_gpu;

/* Is it configured? The same for the life of the process. */
bool ng_poison_is_on(void);

/* Program thread: work of `comm` went to `stream`; before the work is handed over. */
void ng_poison_note(struct ng_comm *comm, const struct ng_gpu *gpu, void *stream);

/* Would an abort of `comm` now cut off work? False where poison is not configured. Abort thread. */
bool ng_poison_threatens(const struct ng_comm *comm);

/* What depends on work of `comm` is poisoned from now on. Abort thread, before NCCL is told. */
void ng_poison_comm(const struct ng_comm *comm);

/* The program knows: nothing is poisoned any more. Any thread. */
void ng_poison_acknowledge(void);

/* It has a communicator whose making began at `begun_mono_ns`: it knows, unless that was before the
 * newest abort. Any thread. */
void ng_poison_made(int64_t begun_mono_ns);

/*
 * For the hooks: on the calling thread, with the program's handles. `per_thread`: the form of a
 * function for which stream 0 is the thread's own.
 */
void ng_poison_recorded(void *event, void *stream, bool per_thread);
void ng_poison_waits(void *stream, bool per_thread, void *event);
void ng_poison_destroyed(
    void *handle); /* a stream or event: its handle means something new later */

/* Before something is synchronised or asked: what it depends on. */
struct ng_poison_before {
    uintptr_t key;
    uint64_t word;
};
struct ng_poison_before ng_poison_stream(void *stream, bool per_thread);
struct ng_poison_before ng_poison_event(void *event);

/* It has succeeded. True: all the same it is poisoned; else what it depended on has finished. */
bool ng_poison_settle(const struct ng_poison_before *before);

/* Has a communicator of this context, NULL the current one, been aborted with work in flight? */
bool ng_poison_has_context(void *context);

/* In a forked child. */
void ng_poison_after_fork(void);

#endif
