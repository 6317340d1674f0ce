/*
 * Communicators of this process: from NCCL's handle to the group record.
 *
 * Any program thread can look up a record, lock-free; creation and end take one mutex. Records are
 * type-stable: a pointer to one stays readable for ever, though after its communicator has ended
 * the record may be reused for another.
 */
#ifndef NCCLGUARD_CORE_COMM_COMM_H
#define NCCLGUARD_CORE_COMM_COMM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/comm/deadline.h"
#include "core/nccl/nccl.h"
#include "core/nccl/verdict_kind.h"
#include "core/recorder/box.h"

struct ng_call;
struct ng_gpu;
struct ng_async_op;
struct ng_launch_log;

#define NG_COMM_CAPACITY 4096u

/* Whether a communicator is being ended, and by which side. Once it is condemned, no call of the
 * program reaches NCCL with it: see core/policy/abort.h. */
enum ng_comm_fate {
    NG_FATE_LIVES,
    NG_FATE_PROGRAM_ENDS, /* the program is inside ncclCommDestroy or ncclCommAbort */
    NG_FATE_HELD,      /* it lives, and calls on it wait briefly: core/comm/in_flight_calls.h; only
                          converted ones */
    NG_FATE_CONDEMNED, /* the guard is going to abort it */
    NG_FATE_ABORTING,  /* the guard's ncclCommAbort is under way */
    NG_FATE_ABORTED,   /* the abort has returned, or there was nothing to abort */
};

#define NG_COMM_REASON_BYTES 512

/* Why calls on a communicator fail: a verdict's line and kind; or another text and
 * NG_KIND_HEALTHY. */
struct ng_comm_reason {
    enum ng_verdict_kind kind;
    char text[NG_COMM_REASON_BYTES];
};

/* ---- State of each part of the guard for a communicator ---- */

/* Counts of point-to-point calls with a peer, so that the k-th send is matched with the k-th
 * receive. */
struct ng_peer_count {
    _Atomic uint32_t sends, receives;
};

struct ng_comm_p2p {
    _Atomic(struct ng_peer_count *)
        counts; /* nranks of them, allocated with the first point-to-point call */
    size_t bytes;
    bool lost; /* not counted any more: see ng_comm_lose_peers */
};

/* For an abort from outside: uses by the program that the thread slots of the black box do not
 * show. */
struct ng_comm_in_flight {
    _Atomic uint32_t guests;      /* calls inside NCCL that those slots do not show */
    _Atomic uint32_t guest_tid;   /* thread of the newest of them; 0 not known */
    _Atomic uint32_t open_groups; /* open NCCL groups that hold calls on it */
};

/* core/call/nonblocking.h. */
struct ng_comm_mode {
    _Atomic bool nonblocking; /* only the program may query its state */
    _Atomic bool converted;   /* made nonblocking by the guard, which the program does not know */
    _Atomic uint32_t
        questions; /* state queries by threads inside its calls that have not returned */
};

/* core/device/in_progress.h: works that NCCL has yet to launch, newest first, and the thread slot
 * that shows the call in progress. */
struct ng_comm_in_progress {
    _Atomic(struct ng_async_op *) works;
    _Atomic(struct ng_box_thread *) stays_in;
    int64_t stays_since_mono_ns;
};

/* Its creating call: ng_comm_making. */
struct ng_comm_making {
    bool under_way;
    void **handle_at; /* where NCCL writes the handle during the call, NULL until then; NULL: after
                         the call */
    _Atomic(struct ng_comm *) parent; /* of a child, until the child exists */
};

/* Which work of each kind is measured next, by core/config/timing.h: collectives by sequence
 * number; NCCL groups with collectives, and works of sends and receives alone, by count. */
struct ng_comm_timing {
    _Atomic uint64_t next_coll, next_joined, next_p2p;
    _Atomic uint64_t joined_works, p2p_works;
};

/* core/device/burst.h: its newest work. Written by the calling thread: a communicator is called
 * from one thread at a time. */
struct ng_comm_burst {
    void *stream;
    int64_t left_mono_ns; /* when its call returned to the program */
};

/* Written before `fate` says CONDEMNED. */
struct ng_comm_abort {
    int result; /* ncclResult_t of later calls */
    int64_t until_mono_ns;
    char reason[NG_COMM_REASON_BYTES];
};

/* core/device/device_wait.h. */
struct ng_comm_wait {
    /* Works entered until then and unfinished are past their deadline; 0 none. */
    _Atomic int64_t overdue_mono_ns;
    /* Written by the calling thread: a communicator is called from one thread at a time. */
    atomic_bool failed;
    struct ng_comm_reason reason;
};

/* Histogram of collective durations of this group as the watchdog saw them: buckets are powers of
 * two of a microsecond. */
#define NG_HISTORY_BUCKETS 40

/* Under the watchdog's lock of a round. */
struct ng_comm_watch {
    uint32_t generation;              /* of the slot: the fields below belong to it */
    struct ng_async_op *first, *last; /* in flight, oldest first */
    uint32_t length;
    int64_t entered_ns; /* entry time of the work whose age this is; 0 none */
    int64_t age_ns;     /* credited age of `first`, as of: */
    int64_t aged_mono_ns;
    unsigned alarmed; /* alarm levels already raised for `first` */
    bool looked;      /* an alarm was raised that only asks to look at its device */
    uint32_t history[NG_HISTORY_BUCKETS];
    uint32_t history_count;
};

/* core/device/async.h, on the watchdog's thread. */
struct ng_comm_async {
    uint32_t generation;   /* of the slot: the fields below belong to it */
    int64_t asked_mono_ns; /* when NCCL was last queried for its asynchronous error */
    bool raised;           /* as an alarm */
};

/* The watchdog's counters of one operation on a communicator: calls whose end it saw, from their
 * records. Bytes as the callers passed them. */
#define NG_COMM_COUNTED_OPS 20u /* every operation that is work has a smaller number */
struct ng_comm_count {
    _Atomic uint64_t calls, bytes;
};

/* Alarms that were raised. */
struct ng_stall_count {
    _Atomic uint64_t suspects, timeouts;
};

/* Marks a communicator whose streams belong to a different CUDA library than ours: our driver must
 * not be given them, so nothing is observed. */
#define NG_COMM_GPU_OUT_OF_REACH ((struct ng_gpu *)(uintptr_t)1)

/* Written by the watchdog; others may read them. */
struct ng_comm_totals {
    struct ng_comm_count ops[NG_COMM_COUNTED_OPS];
    _Atomic uint64_t unseen; /* operations that ended after their records had been overwritten */
    struct ng_stall_count stalls;
};

/* Used if the black box is full. */
struct ng_comm_spare {
    struct ng_box_group group;
    struct ng_box_hash_log hash_log;
    struct ng_box_host_calls host_calls;
};

struct ng_comm {
    /* Fields that every call reads come first. */
    _Atomic(void *) handle;             /* ncclComm_t; NULL before NCCL wrote it */
    const struct ng_nccl *_Atomic nccl; /* the library that created it */
    struct ng_box_group *group;         /* in the black box or in `spare` */
    struct ng_box_hash_log *hash_log;   /* in the black box or in `spare` */
    uint32_t slot;
    _Atomic uint32_t fate;  /* enum ng_comm_fate */
    atomic_bool cut_off;    /* the program's own ncclCommAbort has begun: works in flight then end
                               unfinished */
    _Atomic bool may_retry; /* its creation is retried if it fails: core/call/init_retry.h */
    _Atomic(struct ng_gpu *) gpu; /* known from the first work on */
    _Atomic(struct ng_async_op *)
        incoming; /* newest first; program threads push, the watchdog takes all */
    struct ng_comm_p2p p2p;
    struct ng_comm_in_flight in_flight;
    /* From here to `barriers`: zero in a new communicator, cleared together. */
    _Alignas(uint64_t) struct ng_comm_mode mode;
    struct ng_comm_burst burst;
    struct ng_comm_timing timing;
    _Atomic(struct ng_launch_log *) launch_log; /* NULL before its first launch */
    struct ng_comm_in_progress in_progress;
    struct ng_comm_making making;
    /* The group id that joining ranks use for the next grown communicator, from the unique id that
     * this process created for them; 0 none. */
    _Atomic uint64_t invited_id;
    _Atomic uint64_t nccl_hash;           /* ng_group_id_nccl; 0: not made from a unique id */
    _Atomic uint64_t barriers;            /* monitored barriers that this rank has entered */
    struct ng_box_host_calls *host_calls; /* in the black box or in `spare` */
    struct ng_comm_abort abort;
    struct ng_comm_wait wait;
    char given_name[NG_BOX_NAME_BYTES]; /* by the program; rules may rename the group */
    struct ng_deadline deadline;
    struct ng_comm_watch watch;
    struct ng_comm_async async;
    struct ng_comm_totals totals;
    struct ng_comm_spare spare;
};

/*
 * A record for a communicator that is being created, in state CREATING; NULL if there is no room
 * (counted). `id` 0: not known before the call; `name` "" none.
 */
struct ng_comm *ng_comm_create(const struct ng_nccl *nccl, enum ng_op created_by, uint64_t id,
                               int nranks, int rank, const char *name);

/*
 * NCCL wrote the handle: the record can be found from now on. If `made`, the record becomes READY
 * and NCCL is queried for rank, size and device; this is not allowed while a nonblocking
 * communicator is in progress, when only ncclCommGetAsyncError and ncclCommAbort may be called.
 * True: it is READY now, and the program continues with it.
 */
bool ng_comm_bind(struct ng_comm *comm, void *handle, bool made);

/*
 * A handle has a first place, in a part of the table that is a single page for the few
 * communicators of a usual process. Behind that part is open addressing over handles, for those
 * whose first place is taken; an entry there, once used, is never NULL again.
 */
#define NG_COMM_FIRST_BITS 8
#define NG_COMM_TABLE_BITS 14
#define NG_COMM_FIRST_SIZE (1u << NG_COMM_FIRST_BITS)
#define NG_COMM_TABLE_SIZE (1u << NG_COMM_TABLE_BITS) /* four times the capacity */
#define NG_COMM_PLACES     (NG_COMM_FIRST_SIZE + NG_COMM_TABLE_SIZE)
struct ng_comm_entry {
    _Atomic(void *) handle; /* NULL never used */
    _Atomic(struct ng_comm *) comm;
};
extern struct ng_comm_entry *_Atomic ng_comm_table
    __attribute__((visibility("hidden"))); /* never NULL */

static inline uint32_t ng_comm_hash(const void *handle, unsigned bits)
{
    return (uint32_t)((uintptr_t)handle >> 4) * UINT32_C(0x9e3779b1) >> (32 - bits);
}

/* Set the device of a communicator before it is created: `device`, or if that is -1 the calling
 * thread's. What cannot be determined now is filled in later. */
void ng_comm_set_device(struct ng_comm *comm, int device);

/* Query NCCL for what is not known yet about a finished communicator: size, rank and device. */
void ng_comm_ask(struct ng_comm *comm, void *handle);

/* The slow half of ng_comm_find: the handle is not in its first place. */
struct ng_comm *ng_comm_find_further(const void *handle);

/* The record of a handle; NULL not known. Lock-free. */
static inline struct ng_comm *ng_comm_find(const void *handle)
{
    struct ng_comm_entry *entries = atomic_load_explicit(&ng_comm_table, memory_order_acquire);
    struct ng_comm_entry *entry = &entries[ng_comm_hash(handle, NG_COMM_FIRST_BITS)];

    /* A NULL handle matches an unused entry, which has no record. */
    return __builtin_expect(atomic_load_explicit(&entry->handle, memory_order_acquire) == handle, 1)
               ? atomic_load_explicit(&entry->comm, memory_order_relaxed)
               : ng_comm_find_further(handle);
}

/*
 * The library that a communicator belongs to; NULL if the handle is not known. Lock-free, any
 * thread. A handle value that is reused by another library's communicator denotes that one from the
 * moment it is bound.
 */
static inline const struct ng_nccl *ng_comm_nccl(const void *handle)
{
    struct ng_comm *comm = ng_comm_find(handle);

    return comm ? atomic_load_explicit(&comm->nccl, memory_order_relaxed) : NULL;
}

/* Has the program destroyed or aborted the communicator with this handle, and has no other had the
 * handle since, as far as records go back? False if communicators were created for which there was
 * no room, since one of them may have it. Lock-free. */
bool ng_comm_has_ended(const void *handle);

/* Make a record for the handle of a communicator that was created without our wrappers. NULL no
 * room. */
struct ng_comm *ng_comm_adopt(const struct ng_nccl *nccl, void *handle);

/* The program renames the group: applies to all its communicators in this process. */
void ng_comm_rename(struct ng_comm *comm, const char *name);

/* The communicator ends in `state`; its handle is forgotten, unless the guard aborts it. */
void ng_comm_end(struct ng_comm *comm, enum ng_group_state state);

/* Check, by device and, if known, rank, whether another communicator of this process has the same
 * id, as all do with NCCL_COMM_ID. Then other ranks cannot tell calls on the two, or on their
 * children, apart. `parent` NULL none. */
void ng_comm_find_twins(struct ng_comm *comm, const struct ng_comm *parent);

/* The creating call of `comm` begins: NCCL will write the handle to *made_at, which is NULL until
 * then. `made_at` NULL: the handle is known when the call returns. `parent` NULL none. */
void ng_comm_making(struct ng_comm *comm, void **made_at, struct ng_comm *parent);

/* The creating call is over: `made_at` belongs to the program again. */
void ng_comm_made(struct ng_comm *comm);

/* Is `comm` between these two calls? A nonblocking one may be unfinished even afterwards. */
bool ng_comm_is_being_made(const struct ng_comm *comm);

/* The communicator that is being created and already has this handle; NULL none. */
struct ng_comm *ng_comm_find_made(const void *handle);

/*
 * The guard is going to abort this communicator: mark it in the box and for calls. False: it has
 * ended, or the program is ending it. The handle stays known until NCCL reuses it.
 */
bool ng_comm_condemn(struct ng_comm *comm, int result, const char *reason, int64_t until_mono_ns);

/* The handle of a condemned communicator, to abort it; NULL: NCCL has not written it. *ret_making:
 * its creating call is under way. */
void *ng_comm_condemned_handle(struct ng_comm *comm, bool *ret_making);

static inline bool ng_comm_is_condemned(const struct ng_comm *comm)
{
    return __builtin_expect(
        atomic_load_explicit(&comm->fate, memory_order_acquire) >= NG_FATE_CONDEMNED, 0);
}

/*
 * The same, for a program thread whose slot in the black box already shows it inside a call on
 * `comm`. The guard's abort, which writes the fate and then reads the slots, fences for both sides:
 * here only the compiler must keep the order.
 */
static inline bool ng_comm_is_condemned_now(const struct ng_comm *comm)
{
    atomic_signal_fence(memory_order_seq_cst);
    return ng_comm_is_condemned(comm);
}

/* The same, or held: ng_in_flight_await then distinguishes the two. */
static inline bool ng_comm_is_shut_now(const struct ng_comm *comm)
{
    atomic_signal_fence(memory_order_seq_cst);
    return __builtin_expect(atomic_load_explicit(&comm->fate, memory_order_acquire) >= NG_FATE_HELD,
                            0);
}

/* Neither the program nor the guard is ending it. */
static inline bool ng_comm_is_let_live(const struct ng_comm *comm)
{
    uint32_t fate = atomic_load(&comm->fate);

    return fate == NG_FATE_LIVES || fate == NG_FATE_HELD;
}

/* Does it have watched work in flight? Any thread. */
bool ng_comm_has_works(const struct ng_comm *comm);

/* Every record ever used has an index below the count. Watchdog. */
uint32_t ng_comm_count(void);
struct ng_comm *ng_comm_at(uint32_t index);

static inline struct ng_comm *ng_comm_last(void)
{
    uint32_t count = ng_comm_count();

    return count ? ng_comm_at(count - 1) : NULL;
}

/* A loop over those records, as many as there are when it begins; and the first for which
 * `condition`, an expression of the pointer `item`, is true, NULL: none. */
#define NG_EACH_COMM(item)                                                                         \
    for (struct ng_comm *item##_last = ng_comm_last(), *item = item##_last ? ng_comm_at(0) : NULL; \
         item; item = item == item##_last ? NULL : ng_comm_at(item->slot + 1))
#define NG_FIND_COMM(item, condition)                                                              \
    ({                                                                                             \
        struct ng_comm *found_ = NULL;                                                             \
        NG_EACH_COMM (item)                                                                        \
            if (condition) {                                                                       \
                found_ = item;                                                                     \
                break;                                                                             \
            }                                                                                      \
        found_;                                                                                    \
    })

/* From now on works are measured by this mode, NG_TIMING_*. Incident thread. */
void ng_comm_set_timing(int mode);

/* Counts of point-to-point calls with a peer; NULL out of range, out of memory or lost. */
struct ng_peer_count *ng_comm_peer(struct ng_comm *comm, int peer);

/*
 * Count one more call to (or from) a peer. Returns its number, from 1; 0 if it is not counted. A
 * communicator is called from one thread at a time (NCCL's rule), so the count is a plain load and
 * store.
 */
static inline uint64_t ng_comm_count_peer(struct ng_comm *comm, enum ng_op op, int peer)
{
    struct ng_peer_count *peers = atomic_load_explicit(&comm->p2p.counts, memory_order_acquire);
    struct ng_peer_count *counts =
        __builtin_expect(peers && peer >= 0 && peer < NG_LOAD(comm->group->nranks), 1)
            ? &peers[peer]
            : ng_comm_peer(comm, peer);

    if (__builtin_expect(!counts, 0))
        return 0;
    _Atomic uint32_t *count = op == NG_OP_Send ? &counts->sends : &counts->receives;
    uint32_t next = NG_LOAD(*count) + 1;
    NG_STORE(*count, next);
    return next;
}

/* Undo the count of a send or receive that NCCL refused: it did not happen. */
void ng_comm_uncount_peer(struct ng_comm *comm, enum ng_op op, int peer);

/* Some counted calls did not happen, and it is not known which: stop counting, so that no call is
 * matched with the wrong counterpart. */
void ng_comm_lose_peers(struct ng_comm *comm);

/* "group "tp", id 0123456789abcdef (rank 1 of 4)". */
void ng_comm_describe(const struct ng_comm *comm, char *ret_text, size_t bytes);

/* In a forked child: forget everything. */
void ng_comm_after_fork(void);

#endif
