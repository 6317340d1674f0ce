/*
 * What is needed to read device memory while NCCL's kernels may hang: for each context a stream of
 * the guard's own, an event and pinned memory, and work for a worker thread, since calls of the
 * driver may block (core/runtime/io_workers.h). One reading runs at a time; never the watchdog's.
 *
 * Must never copy from memory that NCCL may have freed: a reader stores the communicator in
 * `copied` and then asks ng_comm_is_let_live; the freeing thread writes first, too, and then reads.
 */
#ifndef NCCLGUARD_CORE_DEVICE_DEVICE_READING_H
#define NCCLGUARD_CORE_DEVICE_DEVICE_READING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/cuda.h"

struct ng_comm;
struct ng_launch_log;

/* In one context. A reset device has another context, perhaps at the same address. */
struct ng_device_reader {
    CUcontext context;
    uint64_t context_id;
    CUstream stream;
    CUevent event;
    void *copy; /* pinned; NULL: it could not be made */
};

/* Tasks under way. */
#define NG_DEVICE_READS    1u
#define NG_DEVICE_PREPARES 2u

#define NG_DEVICE_READERS_MAX 64u

struct ng_device_reading {
    /* Constant. */
    const char *over;    /* logged when it is given up: "… are not read any more" */
    uint32_t copy_bytes; /* of the pinned memory of each reader */
    /* Visit the communicators: read, or only open readers while nothing hangs. Worker thread. */
    void (*visit_all)(bool reads);
    /* Read from the device of one; its context is current. Worker thread. */
    void (*read)(struct ng_comm *comm, struct ng_launch_log *log, struct ng_device_reader *reader);

    _Atomic uint32_t under_way;
    atomic_bool given_up;
    _Atomic(const struct ng_comm *) copied; /* something is copied from its memory */
    _Atomic(CUevent) late;                  /* behind copies that had no end in time */

    /* Worker thread. */
    struct ng_device_reader readers[NG_DEVICE_READERS_MAX];
    uint32_t reader_count;
};

/* Is there memory for what a driver's library needs for a thread? Where it finds none, the C
 * library ends the process. Worker thread. */
bool ng_device_reading_has_room(void);

/* Read nothing more in this process. Logs the first reason. Any guard thread. */
void ng_device_reading_give_up(struct ng_device_reading *reading, const char *why);

/* Begin one of the tasks. False: it could not be given to a worker, is under way already, or was
 * given up. Never waits. Incident thread. */
bool ng_device_reading_begin(struct ng_device_reading *reading, uint32_t task);

/* Open the reader for the device of a communicator, if it has none yet, and let it read where
 * `reads`. Worker thread. */
void ng_device_reading_visit(struct ng_device_reading *reading, struct ng_comm *comm,
                             struct ng_launch_log *log, bool reads);

/* Wait until the copies on its stream have come back. 0; -ETIME: they have not, by then; -EIO.
 * Worker thread. */
int ng_device_reading_await(struct ng_device_reading *reading,
                            const struct ng_device_reader *reader, int64_t until_mono_ns);

/* Have all copies come back, also those that once were late? Then none is of a communicator any
 * more. Worker thread. */
bool ng_device_reading_is_free(struct ng_device_reading *reading);

/* Is something copied from this communicator, or was it when the copies became late, and they have
 * not come back? Any thread. */
bool ng_device_reading_copies(const struct ng_device_reading *reading, const struct ng_comm *comm);

/* The process ends: read no more, and wait for tasks under way, as long as this. */
void ng_device_reading_finish(struct ng_device_reading *reading, int64_t wait_ns);

void ng_device_reading_after_fork(struct ng_device_reading *reading);

#endif
