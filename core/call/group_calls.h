/*
 * NCCL groups: the calls that a thread makes between ncclGroupStart and ncclGroupEnd.
 *
 * Each copy of NCCL counts the groups of a thread separately, so all of this is per thread and
 * library.
 */
#ifndef NCCLGUARD_CORE_CALL_GROUP_CALLS_H
#define NCCLGUARD_CORE_CALL_GROUP_CALLS_H

#include <stdbool.h>

#include "core/comm/thread.h"
#include "core/nccl/call.h"

/* ncclGroupStart, ncclGroupEnd and ncclGroupSimulateEnd; `thread` is the calling one. */
int ng_group_calls_enter(const struct ng_call *call, struct ng_thread *thread);
int ng_group_calls_leave(const struct ng_call *call, struct ng_thread *thread, int result);

/* ncclGroupStart has succeeded. */
static inline void ng_group_calls_open(struct ng_group_calls *calls, struct ng_thread *thread)
{
    calls->depth++;
    NG_STORE(thread->slot->group_depth, ++thread->open_groups);
}

/* Keep a collective, send or receive that NCCL accepted inside a group until the group ends. */
void ng_group_calls_keep(const struct ng_call *call, bool p2p,
                         const struct ng_call_context *context);

/* The first call on a communicator and stream in an open group: from now on the group holds the
 * communicator. */
static inline void ng_group_calls_begin(struct ng_pending *pending, struct ng_comm *comm,
                                        void *stream, int64_t entered_mono_ns)
{
    *pending =
        (struct ng_pending){.comm = comm, .stream = stream, .entered_mono_ns = entered_mono_ns};
    atomic_fetch_add(&comm->in_flight.open_groups, 1);
}

/* Keep a call of class HOST (core/call/host_call.h) that NCCL accepted inside a group: ranks wait
 * where the group is closed. */
void ng_group_calls_keep_host_call(struct ng_group_calls *calls, const struct ng_call *call,
                                   struct ng_comm *comm, const struct ng_thread *thread);

/*
 * As ng_group_calls_keep, for a send or receive that is the first call of the group, or on the
 * communicator and stream of the call before it, where calls are kept for captures and there is
 * room. False: it is another case, and nothing has happened.
 */
static inline __attribute__((always_inline)) bool
ng_group_calls_keep_usual(struct ng_group_calls *calls, const struct ng_call *call,
                          struct ng_comm *comm, struct ng_box_record *record, uint64_t record_id,
                          int64_t entered_mono_ns)
{
    struct ng_pending *pending;

    if (calls->pending_count) {
        pending = &calls->pending[calls->pending_count - 1];
        if (pending->comm != comm || pending->stream != call->stream || !pending->last_call ||
            calls->grouped_count == calls->grouped_room)
            return false;
    } else {
        if (!calls->pending_room || !calls->grouped_room)
            return false;
        pending = calls->pending;
        ng_group_calls_begin(pending, comm, call->stream, entered_mono_ns);
        calls->pending_count = 1;
        calls->grouped_count = 0;
    }
    NG_STORE(record->work_previous, pending->last_record);
    pending->last_record = record_id;
    pending->p2p_count++;
    struct ng_grouped_call *grouped = &calls->grouped[calls->grouped_count++];
    grouped->call = *call;
    grouped->before = pending->last_call;
    pending->last_call = calls->grouped_count;
    return true;
}

#endif
