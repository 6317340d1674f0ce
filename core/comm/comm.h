/*
 * Communicators of this process: from NCCL's handle to the group record.
 *
 * Lookups by any program thread, lock-free; making and ending under one mutex. Records are
 * type-stable: a pointer to one stays readable for ever, though after the end of its communicator
 * it may be given to another.
 */
#ifndef NCCLGUARD_CORE_COMM_COMM_H
#define NCCLGUARD_CORE_COMM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/comm/deadline.h"
#include "core/nccl/nccl.h"
#include "core/recorder/box.h"
#include "core/verdict/verdict.h"

struct ng_call;
struct ng_gpu;
struct ng_async_op;

#define NG_COMM_CAPACITY 4096u

/* Who ends a communicator. Once it is condemned, no call of the program reaches NCCL with it: see
 * core/policy/abort.h. */
enum ng_comm_fate {
    NG_FATE_LIVES,
    NG_FATE_PROGRAM_ENDS, /* the program is inside ncclCommDestroy or ncclCommAbort */
    NG_FATE_HELD, /* it lives, and calls on it wait for a moment: core/comm/in_flight_calls.h; only
                     converted ones */
    NG_FATE_CONDEMNED, /* the guard is going to abort it */
    NG_FATE_ABORTING,  /* the guard's ncclCommAbort is under way */
    NG_FATE_ABORTED,   /* and has returned; or there was nothing to abort */
};

#define NG_COMM_REASON_BYTES 512

/* Why calls on a communicator fail: a verdict in one line, and its kind; or other words, and
 * NG_KIND_HEALTHY. */
struct ng_comm_reason {
    enum ng_verdict_kind kind;
    char text[NG_COMM_REASON_BYTES];
};

/* ---- What each part of the guard keeps of a communicator ---- */

/* Point-to-point calls to and from each peer, counted so that the k-th send meets the k-th receive.
 */
struct ng_peer_count {
    _Atomic uint32_t sends, receives;
};

struct ng_comm_p2p {
    _Atomic(struct ng_peer_count *)
        counts; /* nranks of them, made with the first point-to-point call */
    size_t bytes;
    bool lost; /* counted no more: see ng_comm_lose_peers */
};

/* For an abort from outside: what the program is doing with it, beyond its threads' slots in the
 * black box. */
struct ng_comm_in_flight {
    _Atomic uint32_t guests;      /* calls inside NCCL that are not in those slots */
    _Atomic uint32_t open_groups; /* NCCL groups that hold calls of it and are not closed yet */
};

/* core/call/nonblocking.h. */
struct ng_comm_mode {
    _Atomic bool nonblocking; /* only the program may ask for its state */
    _Atomic bool converted;   /* and does not know, since the guard made it so */
    _Atomic uint32_t
        questions; /* for its state, by threads of its own calls, that have not returned */
};

/* core/device/in_progress.h: works that NCCL has still to launch, newest first, and where the call
 * that is in progress is to be seen. */
struct ng_comm_in_progress {
    _Atomic(struct ng_async_op *) works;
    _Atomic(struct ng_box_thread *) stays_in;
    int64_t stays_since_mono_ns;
};

/* Its creating call: ng_comm_making. */
struct ng_comm_making {
    bool under_way;
    void **handle_at; /* where NCCL writes the handle meanwhile, NULL until then; NULL: later */
    _Atomic(struct ng_comm *) parent; /* of one that is made from another, until it is there */
};

/* Which work of each kind is measured next, by core/config/timing.h: collectives by their sequence,
 * NCCL groups with collectives and works of sends and receives alone by how many there were. */
struct ng_comm_timing {
    _Atomic uint64_t next_coll, next_joined, next_p2p;
    _Atomic uint64_t joined_works, p2p_works;
};

/* Written before `fate` says CONDEMNED. */
struct ng_comm_abort {
    int result; /* ncclResult_t of later calls */
    int64_t until_mono_ns;
    char reason[NG_COMM_REASON_BYTES];
};

/* core/device/device_wait.h. */
struct ng_comm_wait {
    /* What was entered until then, and has not finished, is past its deadline; 0 none. */
    _Atomic int64_t overdue_mono_ns;
    /* Written by the calling thread: a communicator is called from one at a time. */
    atomic_bool failed;
    struct ng_comm_reason reason;
};

/* How long collectives of this group took so far, as the watchdog saw it: powers of two of a
 * microsecond. */
#define NG_HISTORY_BUCKETS 40

/* The watchdog's own. */
struct ng_comm_watch {
    uint32_t generation;              /* of the slot: the fields below belong to it */
    struct ng_async_op *first, *last; /* in flight, oldest first */
    uint32_t length;
    int64_t entered_ns; /* which work the age is of: when it was entered; 0 none */
    int64_t age_ns;     /* credited age of `first` */
    unsigned alarmed;   /* levels already raised for `first` */
    uint32_t history[NG_HISTORY_BUCKETS];
    uint32_t history_count;
};

/* core/device/async.h, on the watchdog's thread. */
struct ng_comm_async {
    uint32_t generation;   /* of the slot: the fields below belong to it */
    int64_t asked_mono_ns; /* when NCCL was last asked for its asynchronous error */
    bool raised;           /* as an alarm */
};

/* What the watchdog has counted of one operation on a communicator: those whose end it saw, by
 * their records. Bytes as the callers passed them. */
#define NG_COMM_COUNTED_OPS 20u /* every operation that is work has a number below */
struct ng_comm_count {
    _Atomic uint64_t calls, bytes;
};

/* Alarms that were raised. */
struct ng_stall_count {
    _Atomic uint64_t suspects, timeouts;
};

/* Stands for the context of a communicator whose streams belong to another CUDA than ours: handing
 * them to our driver would be wrong, so nothing is observed. */
#define NG_COMM_GPU_OUT_OF_REACH ((struct ng_gpu *)(uintptr_t)1)

/* Written by the watchdog; others may read them. */
struct ng_comm_totals {
    struct ng_comm_count ops[NG_COMM_COUNTED_OPS];
    _Atomic uint64_t unseen; /* operations that ended, and whose records were gone */
    struct ng_stall_count stalls;
};

/* Where the black box is full. */
struct ng_comm_spare {
    struct ng_box_group group;
    struct ng_box_hash_log hash_log;
};

struct ng_comm {
    /* What every call reads comes first. */
    _Atomic(void *) handle;             /* ncclComm_t; NULL before NCCL wrote it */
    const struct ng_nccl *_Atomic nccl; /* the library that made it */
    struct ng_box_group *group;         /* in the black box, or in `spare` */
    struct ng_box_hash_log *hash_log;   /* likewise */
    uint32_t slot;
    _Atomic uint32_t fate; /* enum ng_comm_fate */
    atomic_bool cut_off; /* the program's own ncclCommAbort has begun: what was in flight then ends,
                            but not finished */
    _Atomic bool may_retry;       /* what ends its making is tried again: core/call/init_retry.h */
    _Atomic(struct ng_gpu *) gpu; /* known with the first work */
    _Atomic(struct ng_async_op *)
        incoming; /* newest first; program threads push, the watchdog takes all */
    struct ng_comm_p2p p2p;
    struct ng_comm_in_flight in_flight;
    struct ng_comm_mode mode;
    struct ng_comm_timing timing;
    struct ng_comm_in_progress in_progress;
    struct ng_comm_making making;
    /* What those call the next grown one who join it by the unique id that this process made for
     * them; 0 none. */
    _Atomic uint64_t invited_id;
    _Atomic uint64_t barriers; /* monitored barriers that this rank has come to */
    struct ng_comm_abort abort;
    struct ng_comm_wait wait;
    char given_name[NG_BOX_NAME_BYTES]; /* by the program; rules may call the group otherwise */
    struct ng_deadline deadline;
    struct ng_comm_watch watch;
    struct ng_comm_async async;
    struct ng_comm_totals totals;
    struct ng_comm_spare spare;
};

/*
 * A record for a communicator that is being made, in state CREATING; NULL when there is no room
 * (counted). `id` 0: not known before the call; `name` "" none.
 */
struct ng_comm *ng_comm_create(const struct ng_nccl *nccl, enum ng_op created_by, uint64_t id,
                               int nranks, int rank, const char *name);

/*
 * NCCL wrote the handle: the record can be found. Where it is `made`, the record becomes READY, and
 * NCCL is asked for rank, size and device; not while a nonblocking communicator is in progress,
 * when only ncclCommGetAsyncError and ncclCommAbort may be called. True: it is READY now, and the
 * program goes on with it.
 */
bool ng_comm_bind(struct ng_comm *comm, void *handle, bool made);

/* Open addressing over handles; an entry once used is never NULL again. */
#define NG_COMM_TABLE_SIZE 16384u /* a power of two, four times the capacity */
struct ng_comm_entry {
    _Atomic(void *) handle; /* NULL never used */
    _Atomic(struct ng_comm *) comm;
};
extern struct ng_comm_entry *_Atomic ng_comm_table __attribute__((visibility("hidden")));

static inline uint32_t ng_comm_hash(const void *handle)
{
    return (uint32_t)(((uintptr_t)handle >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 40) &
           (NG_COMM_TABLE_SIZE - 1);
}

/* The device of one that is to be made, before NCCL is asked for anything: `device`, or where that
 * is -1 the calling thread's. What is not to be had is learned later. */
void ng_comm_place(struct ng_comm *comm, int device);

/* Ask NCCL for what is not known yet of a finished communicator: its size, rank and device. */
void ng_comm_ask(struct ng_comm *comm, void *handle);

/* The record of a handle; NULL not known. Lock-free. */
static inline struct ng_comm *ng_comm_find(const void *handle)
{
    struct ng_comm_entry *entries = atomic_load_explicit(&ng_comm_table, memory_order_acquire);
    uint32_t i = ng_comm_hash(handle);

    /* A NULL handle meets an unused entry, which has no record. */
    if (__builtin_expect(!entries, 0))
        return NULL;
    for (uint32_t probes = 0; probes < NG_COMM_TABLE_SIZE;
         probes++, i = (i + 1) & (NG_COMM_TABLE_SIZE - 1)) {
        void *there = atomic_load_explicit(&entries[i].handle, memory_order_acquire);
        if (__builtin_expect(there == handle, 1))
            return atomic_load_explicit(&entries[i].comm, memory_order_relaxed);
        if (!there)
            return NULL;
    }
    return NULL;
}

/*
 * The library that a communicator belongs to; NULL where the handle is not known. Lock-free, any
 * thread. A handle value that comes again with another library's communicator means that one from
 * the moment it is bound.
 */
static inline const struct ng_nccl *ng_comm_nccl(const void *handle)
{
    struct ng_comm *comm = ng_comm_find(handle);

    return comm ? atomic_load_explicit(&comm->nccl, memory_order_relaxed) : NULL;
}

/* Has the program destroyed or aborted the communicator with this handle, and does it belong to
 * none since, as far as records go back? Where communicators were made that there was no room for,
 * nobody knows: false. Lock-free. */
bool ng_comm_has_ended(const void *handle);

/* The handle of a communicator that was made behind our back: a record of its own kind. NULL no
 * room. */
struct ng_comm *ng_comm_adopt(const struct ng_nccl *nccl, void *handle);

/* The program calls the group by another name: so do all communicators of it in this process. */
void ng_comm_rename(struct ng_comm *comm, const char *name);

/* The communicator's life ends in `state`; its handle is forgotten, unless the guard aborts it. */
void ng_comm_end(struct ng_comm *comm, enum ng_group_state state);

/* With its device, and its rank where that is known: does another one of this process have its id,
 * as all have with NCCL_COMM_ID? Then other ranks cannot tell calls of the one from those of the
 * other, or of what is made from them. `parent` NULL none. */
void ng_comm_find_twins(struct ng_comm *comm, const struct ng_comm *parent);

/* The creating call of `comm` begins: NCCL will write the handle to `made_at`, which is NULL until
 * then. `made_at` NULL: it is known when the call returns. `parent` NULL none. */
void ng_comm_making(struct ng_comm *comm, void **made_at, struct ng_comm *parent);

/* It is over: `made_at` is the program's own again. */
void ng_comm_made(struct ng_comm *comm);

/* Between the two? A nonblocking one may be unfinished beyond them. */
bool ng_comm_is_being_made(const struct ng_comm *comm);

/* The communicator that is being made and has this handle already; NULL none. */
struct ng_comm *ng_comm_find_made(const void *handle);

/*
 * The guard is going to abort this communicator: box and calls say so from now on. False: it has
 * ended, or the program ends it. The handle stays known until NCCL gives it to another one.
 */
bool ng_comm_condemn(struct ng_comm *comm, int result, const char *reason, int64_t until_mono_ns);

/* The handle of a condemned communicator, to be aborted; NULL NCCL has not written it. *ret_making:
 * its creating call is under way. */
void *ng_comm_condemned_handle(struct ng_comm *comm, bool *ret_making);

static inline bool ng_comm_is_condemned(const struct ng_comm *comm)
{
    return __builtin_expect(
        atomic_load_explicit(&comm->fate, memory_order_acquire) >= NG_FATE_CONDEMNED, 0);
}

/*
 * The same, asked by a program thread whose slot in the black box already says that it is inside a
 * call on `comm`. The guard's abort, which writes first and then looks, fences for both sides: here
 * only the compiler must keep the order.
 */
static inline bool ng_comm_is_condemned_now(const struct ng_comm *comm)
{
    atomic_signal_fence(memory_order_seq_cst);
    return ng_comm_is_condemned(comm);
}

/* The same, or held: then ng_in_flight_await tells whether it is the one or the other. */
static inline bool ng_comm_is_shut_now(const struct ng_comm *comm)
{
    atomic_signal_fence(memory_order_seq_cst);
    return __builtin_expect(atomic_load_explicit(&comm->fate, memory_order_acquire) >= NG_FATE_HELD,
                            0);
}

/* Nobody ends it. */
static inline bool ng_comm_is_let_live(const struct ng_comm *comm)
{
    uint32_t fate = atomic_load(&comm->fate);

    return fate == NG_FATE_LIVES || fate == NG_FATE_HELD;
}

/* Is there work of it in flight, as far as anybody watches it? Any thread. */
bool ng_comm_has_works(const struct ng_comm *comm);

/* Every record ever used lies below the count. Watchdog. */
uint32_t ng_comm_count(void);
struct ng_comm *ng_comm_at(uint32_t index);

/* Counts of point-to-point calls with a peer; NULL out of range, out of memory or lost. */
struct ng_peer_count *ng_comm_peer(struct ng_comm *comm, int peer);

/* Count one more to (or from) a peer: its number, from 1; 0 where none is counted. */
static inline uint64_t ng_comm_count_peer(struct ng_comm *comm, enum ng_op op, int peer)
{
    struct ng_peer_count *counts = ng_comm_peer(comm, peer);

    if (!counts)
        return 0;
    return 1 + atomic_fetch_add_explicit(op == NG_OP_Send ? &counts->sends : &counts->receives, 1,
                                         memory_order_relaxed);
}

/* NCCL refused a send or receive that was counted: it did not happen. */
void ng_comm_uncount_peer(struct ng_comm *comm, enum ng_op op, int peer);

/* Some did not happen, and nobody knows which: from now on none is counted, so that none is taken
 * for the counterpart of another. */
void ng_comm_lose_peers(struct ng_comm *comm);

/* "group "tp", id 0123456789abcdef (rank 1 of 4)". */
void ng_comm_describe(const struct ng_comm *comm, char *ret_text, size_t bytes);

/* In a forked child: everything is forgotten. */
void ng_comm_after_fork(void);

#endif
