/*
 * The gate before a communicator that the guard may abort at any moment.
 *
 * For calls that are in no thread's slot, and what registers buffers: whoever is let in is waited
 * for, before NCCL is told to abort. What calls on an aborted communicator return is told in
 * core/policy/abort.h.
 */
#ifndef NCCLGUARD_CORE_COMM_GATE_H
#define NCCLGUARD_CORE_COMM_GATE_H

#include "core/nccl/op.h"
#include "core/verdict/verdict.h"

struct ng_comm;

/*
 * A call that is in no thread's slot begins: NG_CALL_PROCEED, with *ret_guest for ng_gate_leave, or
 * what to return instead (then *ret_guest is NULL), also where the program has ended the
 * communicator itself (core/comm/ended.h).
 */
int ng_gate_visit(const void *handle, struct ng_comm **ret_guest);
void ng_gate_leave(struct ng_comm *guest); /* NULL: nobody */

/* The same of operation `op`, but that *ret_comm of a call that may not proceed is the condemned
 * communicator, whose guest it is not; NULL: there is none, the program has ended it. */
int ng_gate_try(const void *handle, enum ng_op op, struct ng_comm **ret_comm);

/* What calls on `comm` return for this reason: ncclRemoteError where its kind says that a peer is
 * to blame, and the library knows that error; else, and to the culprit itself, ncclSystemError. Any
 * thread. */
int ng_gate_result(const struct ng_comm *comm, enum ng_verdict_kind kind, const char *reason);

#endif
