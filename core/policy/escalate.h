/*
 * Reports a policy's abort that does not return: the verdict abort_stuck.
 *
 * The process ends afterwards.
 */
#ifndef NCCLGUARD_CORE_POLICY_ESCALATE_H
#define NCCLGUARD_CORE_POLICY_ESCALATE_H

#include <stdbool.h>

/*
 * Write and log that this rank's abort is stuck, for which group and why. Replaces the verdict that
 * led to the abort, and quotes it. False: no abort is stuck any more, so there is no reason to end
 * the process. Incident thread; may hang if the disk or the log hangs, which the policy bounds.
 */
bool ng_escalate_stuck_abort(void);

#endif
