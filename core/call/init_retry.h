/*
 * Communicator init that is tried again (NCCLGUARD_INIT_RETRY): where an attempt failed on one rank
 * with a system or remote error, or its deadline passed though all ranks had come, all ranks end it
 * and make another one, with a unique id that rank 0 of the group has made. The program sees one
 * call.
 *
 * All ranks take the same decision, by entries of the board under one prefix for each attempt,
 * which names the group by the program's own unique id: numbers 0 to n - 1 are the ranks that have
 * come, n to 2n - 1 those that have ended the attempt, 2n says that it failed, and how. When all
 * have ended it, rank 0 puts the outcome: it is done, again, or given up. So a rank whose init
 * succeeded returns only when all others' have, too; what it has made is aborted else.
 *
 * Never with a rank that has died or did not come: then the deadline is that of the watchdog, with
 * its verdict. Where ranks turn out not to share a board, what NCCL says counts.
 *
 * Not retried: init inside a NCCL group; a nonblocking one of the program's own; split, shrink,
 * grow and ncclCommInitAll.
 */
#ifndef NCCLGUARD_CORE_CALL_INIT_RETRY_H
#define NCCLGUARD_CORE_CALL_INIT_RETRY_H

#include <stdbool.h>

#include "core/comm/thread.h"
#include "core/nccl/call.h"

/* Is this call one that is tried again? Program threads, before it is entered. */
bool ng_init_retry_takes(const struct ng_call *call, struct ng_thread *thread);

/* All of it: what the program gets. `converts`: as core/call/nonblocking.h does. */
int ng_init_retry_make(const struct ng_call *call, struct ng_thread *thread,
                       struct ng_call_context *context, bool converts);

/* In a forked child. */
void ng_init_retry_after_fork(void);

#endif
