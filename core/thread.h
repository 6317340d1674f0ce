/*
 * What the guard keeps for each of the program's threads.
 *
 * Made with a thread's first tracked call (the only allocation), given back when the thread ends. A
 * thread touches only its own.
 */
#ifndef NCCLGUARD_CORE_THREAD_H
#define NCCLGUARD_CORE_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/box.h"
#include "core/call.h"
#include "core/guard.h"

/* Calls on one communicator and stream in the open NCCL group: one work when the group is closed.
 */
struct ng_pending {
    struct ng_comm *comm;
    void *stream;
    uint64_t last_record;
    uint64_t first_seq, last_seq;
    uint32_t p2p_count;
    int64_t entered_mono_ns;
    struct ng_work *work;
    bool capturing;
};

/* A communicator whose handle NCCL has still to write. */
struct ng_created {
    struct ng_comm *comm;
    void **new_comm;
    uint32_t generation; /* of the record */
    void *watched; /* whose asynchronous state tells when: the parent, or the communicator itself */
};

struct ng_thread {
    uint32_t generation; /* of the guard that it belongs to */
    uint32_t tid;
    struct ng_box_thread *slot; /* in the black box, or `spare` */
    struct ng_box_thread spare;
    uint32_t group_depth; /* open ncclGroupStart */
    struct ng_pending *pending;
    uint32_t pending_count, pending_room;
    struct ng_created *created;
    uint32_t created_count, created_room;
};

/* Initial-exec: read in two instructions, and never allocated behind the program's back. */
extern __thread struct ng_thread *ng_this_thread
    __attribute__((tls_model("initial-exec"), visibility("hidden")));

/* The slow half of ng_thread_get: a thread's first call, or its first after a fork. */
struct ng_thread *ng_thread_make(void);

/* This thread's own; NULL when memory is short: the call then goes unrecorded. */
static inline struct ng_thread *ng_thread_get(void)
{
    struct ng_thread *thread = ng_this_thread;

    if (__builtin_expect(thread && thread->generation == atomic_load_explicit(&ng_guard.generation,
                                                                              memory_order_relaxed),
                         1))
        return thread;
    return ng_thread_make();
}

/* Room for one more; NULL when memory is short. */
struct ng_pending *ng_thread_add_pending(struct ng_thread *thread);
struct ng_created *ng_thread_add_created(struct ng_thread *thread);

#endif
