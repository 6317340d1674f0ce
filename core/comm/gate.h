/*
 * The gate in front of a communicator that the guard may abort at any moment.
 *
 * For calls that no thread's slot shows, and for buffer registration: the guard waits for every
 * call that the gate has let in before it calls ncclCommAbort. core/policy/abort.h lists the
 * results of calls on an aborted communicator.
 */
#ifndef NCCLGUARD_CORE_COMM_GATE_H
#define NCCLGUARD_CORE_COMM_GATE_H

#include "core/nccl/op.h"
#include "core/nccl/verdict_kind.h"

struct ng_comm;

/*
 * A call that no thread's slot shows begins. NG_CALL_PROCEED, with *ret_guest for ng_gate_leave; or
 * the result to return instead (then *ret_guest is NULL), also if the program has ended the
 * communicator itself (core/comm/ended.h).
 */
int ng_gate_visit(const void *handle, struct ng_comm **ret_guest);
void ng_gate_leave(struct ng_comm *guest); /* NULL: no guest */

/* The same for operation `op`, except that for a call that may not proceed *ret_comm is the
 * condemned communicator, without being its guest; NULL: there is none, the program has ended
 * it. */
int ng_gate_try(const void *handle, enum ng_op op, struct ng_comm **ret_comm);

/* The result of calls on `comm` for this reason: ncclRemoteError if the kind blames a peer and the
 * library has that error; otherwise, and for the culprit itself, ncclSystemError. Any thread. */
int ng_gate_result(const struct ng_comm *comm, enum ng_verdict_kind kind, const char *reason);

#endif
