/*
 * The guard's state for each program thread.
 *
 * Created with a thread's first tracked call (the only allocation), freed when the thread ends. A
 * thread accesses only its own.
 */
#ifndef NCCLGUARD_CORE_COMM_THREAD_H
#define NCCLGUARD_CORE_COMM_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/comm/comm.h"
#include "core/nccl/call.h"
#include "core/nccl/nccl.h"
#include "core/recorder/box.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"

/* Calls on one communicator and stream in an open NCCL group; they become one work when the group
 * is closed. */
struct ng_pending {
    struct ng_comm *comm;
    void *stream;
    uint64_t last_record;
    uint64_t first_seq, last_seq;
    uint64_t hash_before; /* the group's rolling hash before `first_seq` */
    uint32_t coll_count, p2p_count;
    int64_t entered_mono_ns;
    struct ng_async_op *work;
    struct ng_async_op
        *waiter; /* what the closing call waits for: core/device/device_wait.h; NULL none */
    bool capturing;
    struct ng_captured *begun; /* valid if `capturing`: core/device/capture.h */
    bool let_go;               /* no longer counted in comm->open_groups */
    uint32_t last_call; /* index of its newest call in ng_group_calls.grouped, plus 1; 0 none, or
                           some are missing */
    bool calls_lost;    /* some are missing for good */
};

/* A call of an open group, kept if it may be captured into a CUDA graph: its record may be
 * overwritten by then. */
struct ng_grouped_call {
    struct ng_call call;
    uint32_t
        before; /* previous call of the same pending work, index plus 1; 0: this is the first */
};

/* A communicator whose handle NCCL has yet to write. */
struct ng_created {
    struct ng_comm *comm;
    void **new_comm;
    uint32_t generation; /* of the record */
    void *watched; /* whose asynchronous state shows when: the parent, or the communicator itself */
    void *before;  /* value of the program's variable before the call */
    bool in_group; /* counted in comm->open_groups */
};

/* Other communicators that a group involves, and for which closing it waits. */
#define NG_GROUP_JOINED 64u

/* A thread's calls between ncclGroupStart and ncclGroupEnd of one library: each copy of NCCL counts
 * its groups separately. */
struct ng_group_calls {
    uint32_t depth; /* open ncclGroupStart */
    bool broken;    /* holds a communicator that NCCL has freed: it can never be closed */
    int error;      /* result of the newest call that was refused without calling NCCL, which
                       ncclGroupEnd returns; else success */
    struct ng_pending *pending;
    uint32_t pending_count, pending_room;
    struct ng_grouped_call *grouped; /* of all pending works */
    uint32_t grouped_count, grouped_room;
    struct ng_created *created; /* also by a call outside of any group, until it returns */
    uint32_t created_count, created_room;
    struct ng_comm *joined[NG_GROUP_JOINED]; /* core/call/nonblocking.h */
    uint32_t joined_count;
};

#define NG_THREAD_NO_STREAM ((void *)UINTPTR_MAX)

struct ng_thread {
    uint32_t generation; /* of the guard that it belongs to */
    uint32_t tid;
    uintptr_t stack_low, stack_end; /* core/comm/call_stack.h; 0 not determined yet, or not known */
    struct ng_box_thread *slot;     /* in the black box, or `spare` */
    struct ng_comm *newest;         /* of its newest call that looked here; never NULL */
    struct ng_box_thread spare;
    uint32_t open_groups; /* open ncclGroupStart of all libraries together */
    int64_t left_mono_ns; /* core/device/burst.h: when it last left NCCL; 0 no burst goes on */
    /* While it is inside a collective of `newest` outside of NCCL groups that has seen that its
     * stream is not captured: that stream; else NG_THREAD_NO_STREAM. For what NCCL launches there:
     * core/device/launch_log.h. */
    void *eager_stream;
    int *errno_at; /* its errno */
    /* The communicator of its last creating call, if the guard aborted it; else NULL. */
    struct ng_comm *not_made;
    uint32_t not_made_generation; /* of its record */
    struct ng_group_calls first;  /* of library 0, which is usually the only one */
    struct ng_group_calls *others[NG_NCCL_MAX - 1]; /* of library 1 and up; created when needed */
};

/* Initial-exec: read in two instructions, and never allocated lazily. */
extern __thread struct ng_thread *ng_this_thread
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The slow half of ng_thread_get: a thread's first call, or its first after a fork. */
struct ng_thread *ng_thread_make(void);

/* Does this state belong to the guard that runs now? NULL does not. */
static inline bool ng_thread_is_known(const struct ng_thread *thread)
{
    return thread &&
           thread->generation == atomic_load_explicit(&ng_guard.generation, memory_order_relaxed);
}

/* This thread's state; NULL out of memory: the call then goes unrecorded. */
static inline struct ng_thread *ng_thread_get(void)
{
    struct ng_thread *thread = ng_this_thread;

    return __builtin_expect(ng_thread_is_known(thread), 1) ? thread : ng_thread_make();
}

/*
 * The record of a handle, as ng_comm_find, for the calling thread: first looks whether it is that
 * of its newest call. A record has its handle for just as long as the table has it: it loses it
 * when the communicator ends, or when NCCL gives the handle to another one. NULL also if `thread`
 * does not belong to the guard that runs now.
 */
static inline __attribute__((always_inline)) struct ng_comm *
ng_thread_find_comm(struct ng_thread *thread, const void *handle)
{
    struct ng_comm *comm;

    if (__builtin_expect(thread && handle, 1)) {
        comm = thread->newest;
        if (!comm)
            __builtin_unreachable();
        if (__builtin_expect(atomic_load_explicit(&comm->handle, memory_order_acquire) == handle,
                             1))
            return comm;
    }
    if (!ng_thread_is_known(thread))
        return NULL;
    comm = ng_comm_find(handle);
    if (comm)
        thread->newest = comm;
    return comm;
}

/* The slow half of ng_thread_group_calls: a library other than the first. */
struct ng_group_calls *ng_thread_other_group_calls(struct ng_thread *thread, uint32_t index);

/* The group calls of this thread in `nccl`; NULL out of memory. */
static inline struct ng_group_calls *ng_thread_group_calls(struct ng_thread *thread,
                                                           const struct ng_nccl *nccl)
{
    return __builtin_expect(nccl->index == 0, 1) ? &thread->first
                                                 : ng_thread_other_group_calls(thread, nccl->index);
}

/* The same if a group is open there; else NULL. */
static inline struct ng_group_calls *ng_thread_open_group(struct ng_thread *thread,
                                                          const struct ng_nccl *nccl)
{
    if (__builtin_expect(thread->open_groups == 0, 1))
        return NULL;
    struct ng_group_calls *calls = ng_thread_group_calls(thread, nccl);
    return calls && calls->depth ? calls : NULL;
}

/* Append one entry; NULL out of memory. */
struct ng_pending *ng_thread_add_pending(struct ng_group_calls *calls);
struct ng_created *ng_thread_add_created(struct ng_group_calls *calls);
struct ng_grouped_call *ng_thread_add_grouped(struct ng_group_calls *calls);

/* A call of this thread in `nccl` is answered with `result` and does not reach NCCL. If a group is
 * open and `result` is an error, the outermost ncclGroupEnd will return it and launch nothing, as
 * after a call that NCCL itself has refused: programs check nothing else. No effect if no group is
 * open. */
void ng_thread_refuse(const struct ng_nccl *nccl, int result);

/* The open group no longer delays an abort of its communicators: it is being closed, or its thread
 * has ended. */
void ng_thread_let_go_group(struct ng_group_calls *calls);

/* What a thread's slot in the black box shows once ng_thread_mark has followed, which must be at
 * once. `group_slot` UINT32_MAX none. */
static inline void ng_thread_set_record(struct ng_box_thread *slot, uint32_t group_slot,
                                        uint64_t record_id)
{
    NG_STORE(slot->group_slot, group_slot);
    NG_STORE(slot->record_id, record_id);
}

/* Mark it as inside `op`, until ng_thread_unmark. */
static inline void ng_thread_mark(struct ng_box_thread *slot, enum ng_op op, uint64_t seq,
                                  int64_t now_mono_ns)
{
    NG_STORE(slot->seq, seq);
    NG_STORE(slot->since_mono_ns, now_mono_ns);
    atomic_store_explicit(&slot->op, op, memory_order_release);
    ng_wake_resting_watchdog();
}

static inline void ng_thread_enter(struct ng_thread *thread, enum ng_op op,
                                   const struct ng_comm *comm, uint64_t record_id, uint64_t seq,
                                   int64_t now_mono_ns)
{
    ng_thread_set_record(thread->slot, comm ? comm->slot : UINT32_MAX, record_id);
    ng_thread_mark(thread->slot, op, seq, now_mono_ns);
}

static inline void ng_thread_unmark(struct ng_box_thread *slot)
{
    atomic_store_explicit(&slot->op, 0, memory_order_release);
}

static inline void ng_thread_leave(struct ng_thread *thread)
{
    ng_thread_unmark(thread->slot);
}

#endif
