/*
 * Calls on a communicator that the program itself has destroyed or aborted.
 *
 * NCCL has freed what they name, and would read or free it again. So NCCL sees none of them:
 * Destroy, Abort, Finalize, Revoke and the giving back of registrations return success, since there
 * is nothing to be done; all others ncclInvalidArgument, the reason as ncclGetLastError's text, and
 * a line in the log. Until NCCL gives the handle to a new communicator; and as long as there is a
 * record of the old one, which is given away again only after 64 others have ended. Any thread;
 * takes no lock, but where the handle is one that has ended.
 */
#ifndef NCCLGUARD_CORE_COMM_ENDED_H
#define NCCLGUARD_CORE_COMM_ENDED_H

#include "core/nccl/op.h"

/* A call on a handle of which no living communicator is known: what it returns, or NG_CALL_PROCEED:
 * the program has not ended it. */
int ng_ended_answer(const void *handle, enum ng_op op);

/* The same of a call that is only passed on, by its name without "nccl"; `answer` is what it would
 * return else. */
int ng_ended_passed(const void *handle, const char *name, int answer);

/* The text of ncclGetLastError; NULL: the program has not ended it. */
const char *ng_ended_reason(const void *handle);

#endif
