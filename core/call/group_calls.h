/*
 * NCCL groups: what a thread calls between ncclGroupStart and ncclGroupEnd.
 *
 * Each copy of NCCL counts the groups of a thread for itself, so all of this is per thread and
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

/* Will the group that this call closes end with such an error? */
bool ng_group_calls_are_refused(const struct ng_call *call, struct ng_thread *thread);

/* A collective, send or receive that NCCL took inside a group: it is remembered until the end. */
void ng_group_calls_keep(const struct ng_call *call, bool p2p,
                         const struct ng_call_context *context);

#endif
