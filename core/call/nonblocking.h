/*
 * Communicators that the guard creates as nonblocking (NCCLGUARD_INIT=nonblocking) but that look
 * blocking to the program.
 *
 * Such a communicator is called converted. A thread that makes a call on it waits here, polling
 * NCCL with growing pauses, until the call is done, until an abort from outside ends it or, for a
 * call that creates a communicator under the policy `log`, until its deadline. Observers still see
 * the thread inside its call, so deadlines and verdicts are those of a blocked call.
 *
 * Converted are all calls that create a communicator, unless the program's configuration itself
 * asks for nonblocking, NCCL_COMM_BLOCKING overrules it, or the library lacks the feature (before
 * 2.14). Children follow their parent, so that both may be in one NCCL group, where NCCL allows
 * only one kind. ncclCommInitAll always blocks: a process that has called it continues with
 * blocking communicators.
 *
 * NCCL's rule: only one thread may query a communicator's state while a call is in progress (in its
 * source, the query that finds a call finished also frees what the call ran on). So the thread of
 * the call itself queries; other threads may do so only while no call is in progress, and hold up
 * the next call for that moment (core/comm/in_flight_calls.h).
 */
#ifndef NCCLGUARD_CORE_CALL_NONBLOCKING_H
#define NCCLGUARD_CORE_CALL_NONBLOCKING_H

#include <stdbool.h>

#include "core/comm/thread.h"
#include "core/nccl/call.h"

/* Will the communicator that this call creates be converted? Program threads, before the call is
 * entered. */
bool ng_nonblocking_takes(const struct ng_call *call);

/*
 * Create it, for a call that has been entered and says so in `context`. Returns the result for the
 * program. Inside an NCCL group the creation is only begun.
 */
int ng_nonblocking_make(const struct ng_call *call, const struct ng_call_context *context);

/* A call on `comm` has returned `result`: if the communicator is converted, wait until the call is
 * done. Returns the result for the program. `calls` NULL: no NCCL group is open. */
int ng_nonblocking_finish(struct ng_comm *comm, struct ng_group_calls *calls,
                          struct ng_thread *thread, int result);

/* The same for a call that is only passed on; `comm` NULL: no tracked communicator. */
int ng_nonblocking_finish_passed(struct ng_comm *comm, int result);

/* The same for closing a group, which may involve several communicators, and is in progress. */
int ng_nonblocking_finish_group(struct ng_group_calls *calls, struct ng_thread *thread);

/* The program asks for the state of a converted communicator: NCCL's answer if no call is under
 * way, else the last known state. */
int ng_nonblocking_answer(struct ng_comm *comm, const struct ng_call *call);

#endif
