/*
 * Creating and ending communicators, blocking or not, alone or inside an NCCL group.
 */
#ifndef NCCLGUARD_CORE_CALL_CREATION_H
#define NCCLGUARD_CORE_CALL_CREATION_H

#include "core/comm/thread.h"
#include "core/nccl/call.h"

/* Adopt the communicator of a call that was created without our wrappers; NULL if the call names
 * none. */
struct ng_comm *ng_creation_adopt(const struct ng_call *call);

/* Calls that create communicators. */
int ng_creation_enter(const struct ng_call *call, struct ng_thread *thread,
                      struct ng_call_context *context);
void ng_creation_leave(const struct ng_call *call, const struct ng_call_context *context,
                       int result);

/* NCCL has returned `result`: the communicators created in `calls` exist now, or have failed. */
void ng_creation_bind(struct ng_group_calls *calls, int result);

/* The program has asked for the state of a communicator: check which nonblocking creations have
 * finished. */
void ng_creation_poll(const struct ng_call *call, int result);

/* NCCL has created the unique id by which others may join this communicator with the next
 * ncclCommGrow. */
void ng_creation_invite(const struct ng_call *call, int result);

/* Calls that end communicators. */
int ng_ending_enter(const struct ng_call *call, struct ng_thread *thread,
                    struct ng_call_context *context);
int ng_ending_leave(const struct ng_call *call, const struct ng_call_context *context, int result);

#endif
