/*
 * Calls on a communicator that the program itself has destroyed or aborted; and communicators that
 * it never ended.
 *
 * NCCL has freed the communicator, and would read or free it again. So these calls never reach
 * NCCL: Destroy, Abort, Finalize, Revoke and deregistration return success, since there is nothing
 * to do; all others return ncclInvalidArgument, with the reason as ncclGetLastError's text and a
 * line in the log. This holds until NCCL gives the handle to a new communicator, and while there is
 * a record of the old one, which is reused only after 64 others have ended. Any thread; takes no
 * lock unless the handle is one that has ended.
 */
#ifndef NCCLGUARD_CORE_COMM_ENDED_H
#define NCCLGUARD_CORE_COMM_ENDED_H

#include "core/nccl/op.h"

/* The result of a call on a handle without a known live communicator; NG_CALL_PROCEED: the program
 * has not ended it. */
int ng_ended_answer(const void *handle, enum ng_op op);

/* The same for a call that is only passed on, by its name without "nccl"; `answer` is its result
 * otherwise. */
int ng_ended_passed(const void *handle, const char *name, int answer);

/* The process exits: log, in one line, the communicators of several ranks that the program has not
 * begun to end. A warning where this process is rank 0 of the largest group that it had, so that
 * one process of a job warns; information elsewhere. */
void ng_ended_tell_left(void);

/* The text for ncclGetLastError; NULL: the program has not ended it. */
const char *ng_ended_reason(const void *handle);

#endif
