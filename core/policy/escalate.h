/*
 * An abort of a policy that does not return: the verdict abort_stuck.
 *
 * The process ends after it.
 */
#ifndef NCCLGUARD_CORE_POLICY_ESCALATE_H
#define NCCLGUARD_CORE_POLICY_ESCALATE_H

#include <stdbool.h>

/*
 * Write and log that this rank's abort is stuck, on which group, and what keeps it. Replaces the
 * verdict that led to the abort, and quotes it. False: none is any more, and there is nothing to
 * end the process for. Incident thread; may hang where the disk or the log does, which the policy
 * bounds.
 */
bool ng_escalate_stuck_abort(void);

#endif
