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

/* Will the group that this call closes end with the error of a refused call? */
bool ng_group_calls_are_refused(const struct ng_call *call, struct ng_thread *thread);

/* Keep a collective, send or receive that NCCL accepted inside a group until the group ends. */
void ng_group_calls_keep(const struct ng_call *call, bool p2p,
                         const struct ng_call_context *context);

#endif
