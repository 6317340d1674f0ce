/*
 * Retries communicator init (NCCLGUARD_INIT_RETRY): if an attempt fails on one rank with a system
 * or remote error, or if its deadline passes although all ranks have arrived, all ranks end the
 * attempt and make another one, with a unique id that rank 0 of the group creates. The program sees
 * a single call.
 *
 * All ranks take the same decision through board entries under one prefix per attempt, which
 * identifies the group by the program's own unique id: numbers 0 to n - 1 are ranks that have
 * arrived, n to 2n - 1 ranks that have ended the attempt, and 2n states that and how it failed.
 * When all have ended it, rank 0 puts the outcome: done, again, or given up. So a rank whose init
 * succeeded returns only once all others have succeeded, too; otherwise its new communicator is
 * aborted.
 *
 * Never retries with a rank that has died or has not arrived: then the watchdog's deadline applies,
 * with its verdict. If ranks turn out not to share a board, NCCL's result stands.
 *
 * Not retried: init inside a NCCL group; nonblocking init by the program; split, shrink, grow and
 * ncclCommInitAll.
 */
#ifndef NCCLGUARD_CORE_CALL_INIT_RETRY_H
#define NCCLGUARD_CORE_CALL_INIT_RETRY_H

#include <stdbool.h>

#include "core/comm/thread.h"
#include "core/nccl/call.h"

/* Is this call subject to retry? Program threads, before it is entered. */
bool ng_init_retry_takes(const struct ng_call *call, struct ng_thread *thread);

/* Make all attempts, each of which ends with `leave` (ng_call_leave); returns the result for the
 * program. `converts`: convert to nonblocking, see core/call/nonblocking.h. */
typedef int ng_call_leave_fn(const struct ng_call *call, struct ng_call_context *context,
                             int result);
int ng_init_retry_make(const struct ng_call *call, struct ng_thread *thread,
                       struct ng_call_context *context, bool converts, ng_call_leave_fn *leave);

/* In a forked child. */
void ng_init_retry_after_fork(void);

#endif
