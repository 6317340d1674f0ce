/*
 * Carries out the policy after a deadline.
 *
 * Called by the incident thread, after verdict and dumps.
 */
#ifndef NCCLGUARD_CORE_POLICY_POLICY_H
#define NCCLGUARD_CORE_POLICY_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/config/config.h"
#include "core/nccl/group_set.h"
#include "core/nccl/verdict_kind.h"

/*
 * Start the thread that acts when nothing else does: now, since later the program may be stuck
 * inside malloc, which creating a thread needs. Only if a policy does anything. 0 or -errno.
 */
int ng_policy_start(void);

/* No program thread is left to guard: that thread ends. */
void ng_policy_finish(void);

/*
 * An incident with this policy begins: from now on the policy is carried out within `bound_ns`,
 * even if writing evidence, logging or waiting hangs (a dead file server, a pipe without a reader):
 * the process ends, or all its communicators are aborted. Later calls have no effect until the
 * policy has been acted on.
 */
void ng_policy_bound(enum ng_on_timeout policy, int64_t bound_ns);

/* Note whether the other ranks of the host have received the verdict that is acted on next.
 * Incident thread. */
void ng_policy_note_reported(bool told);

/*
 * Act on a verdict that has been written and logged: `line` is the verdict's, and becomes the
 * reason that failed calls of the program report. After `abort` and `teardown`, call
 * ng_policy_follow_up. `kill` does not return; but with NCCLGUARD_BLOCKING_WAIT, under `kill` and
 * `teardown`, waiting calls return the error first, and the process ends, without further logging,
 * only if none of them has returned within NCCLGUARD_ABORT_WAIT.
 */
void ng_policy_act(enum ng_on_timeout policy, const struct ng_group_set *scope,
                   enum ng_verdict_kind kind, const char *line);

/*
 * Follow up an abort that a policy has ordered: once it has returned, `teardown` ends the process;
 * if it has not returned within NCCLGUARD_ABORT_WAIT, a separate verdict reports that, and both
 * policies end the process. Incident thread, at least once a second.
 */
void ng_policy_follow_up(void);

/* The process exits: wait until the guard's aborts have returned, within their bound, since CUDA
 * and NCCL must not be torn down under them. */
void ng_policy_await_aborts(void);

#endif
