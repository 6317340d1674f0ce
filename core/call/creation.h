/*
 * Making and ending communicators, blocking or not, alone or inside a NCCL group.
 */
#ifndef NCCLGUARD_CORE_CALL_CREATION_H
#define NCCLGUARD_CORE_CALL_CREATION_H

#include "core/comm/thread.h"
#include "core/nccl/call.h"

/* A communicator that was made behind our back; NULL where the call names none. */
struct ng_comm *ng_creation_adopt(const struct ng_call *call);

/* Calls that make communicators. */
int ng_creation_enter(const struct ng_call *call, struct ng_thread *thread,
                      struct ng_call_context *context);
void ng_creation_leave(const struct ng_call *call, const struct ng_call_context *context,
                       int result);

/* What was made by the calls of `calls` is there, or failed: NCCL has answered `result`. */
void ng_creation_bind(struct ng_group_calls *calls, int result);

/* The program has asked for the state of a communicator: is anything nonblocking finished by now?
 */
void ng_creation_poll(const struct ng_call *call, int result);

/* NCCL has made the id under which others may join this communicator: with the next ncclCommGrow.
 */
void ng_creation_invite(const struct ng_call *call, int result);

/* Calls that end communicators. */
int ng_ending_enter(const struct ng_call *call, struct ng_thread *thread,
                    struct ng_call_context *context);
int ng_ending_leave(const struct ng_call *call, const struct ng_call_context *context, int result);

/* In a forked child. */
void ng_creation_after_fork(void);

#endif
