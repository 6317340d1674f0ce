/*
 * Poison (NCCLGUARD_POISON): keeps the program from using results that an abort has cut short.
 *
 * After an abort the device is free at once: whatever waited for it, above all a stream that is
 * being synchronised, reports success although its buffers hold garbage. So the guard tracks which
 * streams and events of the program depend on which communicators: a collective makes its stream
 * depend on its communicator, an event inherits the dependencies of its stream when it is recorded,
 * and a stream that waits for an event inherits those of the event. Once a synchronisation has
 * succeeded, these dependencies are cleared. When the guard aborts a communicator with work in
 * flight, everything that depends on it is poisoned: synchronising or querying it returns
 * CUDA_ERROR_LAUNCH_FAILED, which CUDA reports for kernels that were cut off and which programs
 * treat as loss of the computed data. This lasts until the program has created another
 * communicator, or acknowledges.
 *
 * Entered by the program's threads through the hooks of shim/cuda_poison.c, and by the thread that
 * aborts. No lock, no allocation. In doubt it poisons, except for: work that NCCL launches later
 * (nonblocking communicators), copies that synchronise by themselves (cuMemcpyDtoH), and streams
 * that wait for the legacy default stream implicitly.
 */
#ifndef NCCLGUARD_CORE_DEVICE_POISON_H
#define NCCLGUARD_CORE_DEVICE_POISON_H

#include <stdbool.h>
#include <stdint.h>

struct ng_comm;
struct ng_gpu;

/* Is it configured? The same for the life of the process. */
bool ng_poison_is_on(void);

/* Work of `comm` was put on `stream`. Program thread, before the work is handed over. */
void ng_poison_note(struct ng_comm *comm, const struct ng_gpu *gpu, void *stream);

/* Would an abort of `comm` now cut off work? False if poison is not configured. Abort thread. */
bool ng_poison_threatens(const struct ng_comm *comm);

/* Poison everything that depends on work of `comm`. Abort thread, before it calls NCCL. */
void ng_poison_comm(const struct ng_comm *comm);

/* The program acknowledges: nothing is poisoned any more. Any thread. */
void ng_poison_acknowledge(void);

/* The program has a communicator whose creation began at `begun_mono_ns`: this counts as an
 * acknowledgement, unless it began before the newest abort. Any thread. */
void ng_poison_made(int64_t begun_mono_ns);

/*
 * For the hooks: on the calling thread, with the program's handles. `per_thread`: the form of a
 * function for which stream 0 is the thread's own.
 */
void ng_poison_recorded(void *event, void *stream, bool per_thread);
void ng_poison_waits(void *stream, bool per_thread, void *event);
void ng_poison_destroyed(
    void *handle); /* a stream or event: its handle may be reused for another later */

/* Dependencies of an object, read before it is synchronised or queried. */
struct ng_poison_before {
    uintptr_t key;
    uint64_t word;
};
struct ng_poison_before ng_poison_stream(void *stream, bool per_thread);
struct ng_poison_before ng_poison_event(void *event);

/* The driver reported success. True: the object is poisoned all the same; false: what it depended
 * on has finished. */
bool ng_poison_settle(const struct ng_poison_before *before);

/* Was a communicator of this context (NULL: the current one) aborted with work in flight? */
bool ng_poison_has_context(void *context);

#endif
