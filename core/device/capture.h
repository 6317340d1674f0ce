/*
 * Calls that were captured into CUDA graphs, and the events that tell of them when they are
 * replayed.
 *
 * What is captured does not run, so no work is made of it. Behind each call an event is recorded
 * with the external flag, which makes it a node of the graph: after a launch it tells whether that
 * replay has come so far. Not before it, too: on its stream the end of the call before tells the
 * same, and each node is one more for the device. A user object of the graph tells when neither it
 * nor anything made of it needs the events any more; then others get them. Entered by the program's
 * threads, and by the driver's own where it gives user objects up.
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
    /* The newest launch of any graph that holds its calls: theirs are the events since then. */
    _Atomic uint64_t launch;
};

/* A call as the program made it. */
struct ng_captured {
    struct ng_call call;
    struct ng_comm *comm;
    uint32_t comm_generation;
    uint32_t flags;             /* NG_RECORD_* bits */
    uint64_t ordinal;           /* in the order of capture, of all */
    struct ng_capture *capture; /* NULL: free */
    /* Of the last call of a work; the others of its NCCL group are linked by `before`. */
    CUevent event; /* NULL none; once made it stays with its slot */
    CUevent
        start; /* likewise, and recorded before it: both tell the time; NULL it is not measured */
    struct ng_gpu *gpu;
    uint64_t context_id;
    uint32_t before; /* index + 1; 0 none */
    uint32_t older;  /* likewise: of its capture, or of the free ones */
    /* Of one that is measured, with all of its NCCL group. */
    enum ng_op measured_op; /* NG_OP_GroupEnd: several calls */
    uint64_t measured_bytes;
};

/* The shim sees launches: captured calls are worth following. Before the program's main. */
void ng_capture_enable(void);
bool ng_capture_is_on(void);

/* No event goes into a graph any more: such a node is not allowed where this program may put it.
 * Logged once. */
void ng_capture_stop(const char *why);

/*
 * A call, or a NCCL group, is about to go into the capture of `stream`. Where all are measured
 * (NCCLGUARD_TIMING=all), an event is recorded, and the answer is for whichever follows, if any
 * does; else NULL. Program threads.
 */
struct ng_captured *ng_capture_begin(struct ng_comm *comm, void *stream);

/*
 * A call went into the capture of `stream`; or all those of a NCCL group on this communicator and
 * stream, of which `last` is the newest in `grouped`, plus 1. Without an event where one is not to
 * be had: the replays are then not seen. The capture is never broken. Program threads.
 */
void ng_capture_add(struct ng_comm *comm, void *stream, const struct ng_call *call,
                    struct ng_captured *begun);
void ng_capture_add_group(struct ng_comm *comm, void *stream, const struct ng_grouped_call *grouped,
                          uint32_t last, struct ng_captured *begun);

/* Is there any captured call now? */
bool ng_capture_any(void);

/* The last call of the work behind which an event was recorded in a capture; NULL another event.
 * Under ng_capture_lock, which is also held as long as anything behind the pointer is read that no
 * launch keeps. */
const struct ng_captured *ng_capture_find(CUevent event);
const struct ng_captured *ng_capture_before(const struct ng_captured *captured);
void ng_capture_lock(void);
void ng_capture_unlock(void);

/* Is work of this communicator in a graph that still exists? */
bool ng_capture_holds(const struct ng_comm *comm);

void ng_capture_after_fork(void);

#endif
