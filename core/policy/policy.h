/*
 * What a deadline leads to.
 *
 * Called by the incident thread, after verdict and dumps.
 */
#ifndef NCCLGUARD_CORE_POLICY_POLICY_H
#define NCCLGUARD_CORE_POLICY_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/config/config.h"
#include "core/nccl/group_set.h"
#include "core/verdict/verdict.h"

/* "log", "abort", "teardown", "kill". */
const char *ng_policy_name(enum ng_on_timeout policy);

/*
 * Start the thread that acts where nothing else does: now, since later the program may be stuck
 * inside malloc, which making a thread needs. Only where a policy does anything. 0 or -errno.
 */
int ng_policy_start(void);

/* Nobody is left to be guarded: that thread ends. */
void ng_policy_finish(void);

/* In a forked child. */
void ng_policy_after_fork(void);

/*
 * An incident begins that this policy is for: from now on the policy is carried out within
 * `bound_ns`, though writing evidence, logging or waiting hang (a dead file server, a pipe that
 * nobody reads): the process ends, or all its communicators are aborted. Until it has been acted
 * on, later calls change nothing.
 */
void ng_policy_bound(enum ng_on_timeout policy, int64_t bound_ns);

/* Do the other ranks of the host know of the verdict that is acted on next? Incident thread. */
void ng_policy_note_told(bool told);

/*
 * Act on a verdict that is written and logged: `line` is the verdict's, and
 * becomes the reason that the program's calls give. `abort` and `teardown` are to be tended. `kill`
 * does not return; but with NCCLGUARD_BLOCKING_WAIT calls that wait return the error first, and the
 * process ends only where none of them has within NCCLGUARD_ABORT_WAIT, without a further word.
 */
void ng_policy_act(enum ng_on_timeout policy, const struct ng_group_set *scope,
                   enum ng_verdict_kind kind, const char *line);

/*
 * See to an abort that a policy has ordered: once it has returned, `teardown` ends the process;
 * where it has not within NCCLGUARD_ABORT_WAIT, that is told as a verdict of its own, and both
 * policies end the process. Incident thread, at least once a second.
 */
void ng_policy_tend(void);

/* Where `teardown` is about to end the process: does not return before it does, so that how it ends
 * is not a matter of who is faster. Else returns at once. Program threads. */
void ng_policy_await_end(void);

/* The process exits: until an abort of the guard's has returned, as CUDA and NCCL must not go away
 * under it; within its bound. */
void ng_policy_await_aborts(void);

#endif
