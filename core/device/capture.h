/*
 * Calls that were captured into CUDA graphs, and the events that show their progress during a
 * replay.
 *
 * A captured call does not run, so no work is created for it. Behind each call an event is recorded
 * with the external flag, which makes it a node of the graph: after a launch it shows whether that
 * replay has reached it. No event is recorded before a call: the end of the previous call on the
 * stream shows the same, and each node costs device time. A user object of the graph is released
 * once neither the graph nor anything instantiated from it needs the events; they are then reused.
 * Entered by the program's threads, and by the driver's threads when they release user objects.
 */
#ifndef NCCLGUARD_CORE_DEVICE_CAPTURE_H
#define NCCLGUARD_CORE_DEVICE_CAPTURE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/comm/comm.h"
#include "core/nccl/call.h"

struct ng_gpu;
struct ng_grouped_call;

/* One capture with calls in it. */
struct ng_capture {
    uint64_t id;     /* the driver's; 0 unused */
    uint32_t newest; /* index + 1 of its newest call; they are linked by `older` */
    uint32_t next_free;
    /* The newest launch of any graph that holds its calls: the events belong to it from then on. */
    _Atomic uint64_t launch;
};

/* A call as the program made it. */
struct ng_captured {
    struct ng_call call;
    struct ng_comm *comm;
    uint32_t comm_generation;
    uint32_t flags;             /* NG_RECORD_* bits */
    uint64_t ordinal;           /* in capture order, over all captures */
    struct ng_capture *capture; /* NULL: free */
    /* Of the last call of a work; the others of its NCCL group are linked by `before`. */
    CUevent event; /* NULL none; once made it stays with its slot */
    CUevent
        start; /* as `event`, but recorded before the call: both have timing; NULL not measured */
    struct ng_gpu *gpu;
    uint64_t context_id;
    uint32_t before; /* index + 1; 0 none */
    uint32_t older;  /* index + 1 in the list of its capture, or in the free list; 0 none */
    /* Of a measured call, together with all calls of its NCCL group. */
    enum ng_op measured_op; /* NG_OP_GroupEnd: several calls */
    uint64_t measured_bytes;
};

/* The shim intercepts graph launches, so captured calls can be followed. Before the program's
 * main. */
void ng_capture_enable(void);
bool ng_capture_is_on(void);

/* Stop putting events into graphs: this program may use a graph where such a node is not allowed.
 * Logged once. */
void ng_capture_stop(const char *why);

/*
 * A call or a NCCL group is about to be captured on `stream`. If all works are measured
 * (NCCLGUARD_TIMING=all), record a start event and return it, for the next ng_capture_add, if one
 * follows; else NULL. Program threads.
 */
struct ng_captured *ng_capture_begin(struct ng_comm *comm, void *stream);

/*
 * A call was captured on `stream`; or all calls of a NCCL group on this communicator and stream, of
 * which `last` is the index of the newest in `grouped`, plus 1. If no event is available, replays
 * of the call are not observed. Never invalidates the capture. Program threads.
 */
void ng_capture_add(struct ng_comm *comm, void *stream, const struct ng_call *call,
                    struct ng_captured *begun);
void ng_capture_add_group(struct ng_comm *comm, void *stream, const struct ng_grouped_call *grouped,
                          uint32_t last, struct ng_captured *begun);

/* Does any captured call exist now? */
bool ng_capture_any(void);

/* The last call of the work that this event was recorded behind in a capture; NULL if it is another
 * event. Call with ng_capture_lock held, and keep it while reading anything behind the pointer that
 * no launch keeps alive. */
const struct ng_captured *ng_capture_find(CUevent event);
const struct ng_captured *ng_capture_before(const struct ng_captured *captured);
void ng_capture_lock(void);
void ng_capture_unlock(void);

/* Is work of this communicator in a graph that still exists? */
bool ng_capture_holds(const struct ng_comm *comm);

#endif
