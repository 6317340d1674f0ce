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

/* The same for one more send or receive on the communicator and stream of the call before it, which
 * was kept for a capture. False: it is another case, and nothing has happened. */
static inline __attribute__((always_inline)) bool
ng_group_calls_keep_next(struct ng_group_calls *calls, const struct ng_call *call,
                         const struct ng_comm *comm, struct ng_box_record *record,
                         uint64_t record_id)
{
    if (!calls->pending_count || calls->grouped_count == calls->grouped_room)
        return false;
    struct ng_pending *pending = &calls->pending[calls->pending_count - 1];
    if (pending->comm != comm || pending->stream != call->stream || !pending->last_call)
        return false;
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
