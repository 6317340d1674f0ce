/*
 * Calls of class HOST (core/nccl/op.def): ranks wait inside them for each other, on the host.
 *
 * Beside the path of collectives. The black box counts them, so that a rank that has not come can
 * be named; they have the deadline of calls that create communicators. Inside an NCCL group the
 * rank waits where the group is closed.
 */
#ifndef NCCLGUARD_CORE_CALL_HOST_CALL_H
#define NCCLGUARD_CORE_CALL_HOST_CALL_H

#include "core/comm/thread.h"
#include "core/nccl/call.h"

/* As ng_call_enter and ng_call_leave; `thread` is the calling one. */
int ng_host_call_enter(const struct ng_call *call, struct ng_thread *thread,
                       struct ng_call_context *context);
int ng_host_call_leave(const struct ng_call *call, const struct ng_call_context *context,
                       int result);

/* The thread closes the NCCL group in which `comm` has such calls, if any; and its end. */
static inline void ng_host_call_closing(struct ng_comm *comm)
{
    if (__builtin_expect(NG_LOAD(comm->host_calls->open), 0))
        NG_STORE(comm->host_calls->open, 0);
}

#endif
