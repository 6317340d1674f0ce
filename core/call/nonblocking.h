/*
 * Communicators that the guard has NCCL make nonblocking (NCCLGUARD_INIT=nonblocking), and that
 * look blocking to the program.
 *
 * Such a communicator is called converted. Whoever has made a call on it waits here, asking NCCL
 * with growing pauses, until it is done, until an abort from outside ends it, or, for one that
 * makes a communicator under the policy `log`, until its deadline. The thread is still inside its
 * call for all who watch it, so that deadlines and verdicts are those of a blocked call.
 *
 * What is converted. Everything that makes a communicator, where the program's configuration does
 * not ask for nonblocking itself, NCCL_COMM_BLOCKING does not overrule it, and the library can
 * (2.14). Children are what their parent is, so that both may be in one NCCL group, where NCCL
 * wants one kind only. ncclCommInitAll always blocks: a process that has called it goes on with
 * blocking communicators.
 *
 * NCCL's rule (and its source: the question that finds a call finished also puts away what it ran
 * on): only one thread may ask for a communicator's state while a call is in progress. So it is
 * the thread of the call itself that asks, and anybody else only while there is none, and holds the
 * next one up for that moment (core/comm/in_flight_calls.h).
 */
#ifndef NCCLGUARD_CORE_CALL_NONBLOCKING_H
#define NCCLGUARD_CORE_CALL_NONBLOCKING_H

#include <stdbool.h>

#include "core/comm/thread.h"
#include "core/nccl/call.h"

/* Is what this call makes to be converted? Program threads, before the call is entered. */
bool ng_nonblocking_takes(const struct ng_call *call);

/*
 * Make it, for a call that has been entered and says so in `context`: what the program gets. Inside
 * a NCCL group it is only begun.
 */
int ng_nonblocking_make(const struct ng_call *call, const struct ng_call_context *context);

/* A call on `comm` has returned `result`: what the program gets, once it is done where the
 * communicator is converted. `calls` NULL: no NCCL group is open. */
int ng_nonblocking_finish(struct ng_comm *comm, struct ng_group_calls *calls,
                          struct ng_thread *thread, int result);

/* The same of a call that is only passed on; `comm` NULL: of none that is followed. */
int ng_nonblocking_finish_passed(struct ng_comm *comm, int result);

/* The same of the closing of a group, which may be on several. */
int ng_nonblocking_finish_group(struct ng_group_calls *calls, struct ng_thread *thread, int result);

/* The program asks for the state of a converted communicator: NCCL's answer where no call is under
 * way, else what is known. */
int ng_nonblocking_answer(struct ng_comm *comm, const struct ng_call *call);

#endif
