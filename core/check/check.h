/*
 * Checks of calls (NCCLGUARD_CHECK): which ones are wanted. A rule (core/comm/rules.h) may override
 * the configuration for a group.
 *
 * `signature` costs nothing per call: core/check/signature_compare.h compares what is recorded
 * anyway. The others look at each call: core/check/call_check.h.
 */
#ifndef NCCLGUARD_CORE_CHECK_CHECK_H
#define NCCLGUARD_CORE_CHECK_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/op.h"

/* Is `+args` configured? The same for the life of the process. */
bool ng_check_arguments(void);

/* Take over the configuration; before any guard thread runs. */
void ng_check_start(void);

/* Are rolling hashes compared? Any thread. */
bool ng_check_signatures(void);

/* Do ranks agree before each collective (core/check/lockstep_check.h); and do ranks of several
 * hosts? With NCCL_COMM_ID several hosts cannot tell a communicator from an earlier one. Any
 * thread. */
bool ng_check_strict(void);
bool ng_check_strict_across(void);

/* Is data checked for NaN, and can it be? Any thread. */
bool ng_check_nan(void);

/* Are signatures of this group compared? Rules for single operations do not count. And does a
 * difference in calls, one of them of this operation, end what a deadline would end? */
bool ng_check_compares(uint64_t group_id);
bool ng_check_ends(uint64_t group_id, enum ng_op op);

#endif
