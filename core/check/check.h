/*
 * Checks of calls (NCCLGUARD_CHECK): which ones are configured, and what happens before a call is
 * made.
 *
 * `signature` costs nothing per call: core/check/signature_compare.h compares what is recorded
 * anyway. `strict` (core/check/lockstep_check.h), `+args` (core/check/arguments.h) and `+nan`
 * (core/check/nan.h) look at each call, behind one branch. Program threads. A rule
 * (core/comm/rules.h) may override this for a group.
 */
#ifndef NCCLGUARD_CORE_CHECK_CHECK_H
#define NCCLGUARD_CORE_CHECK_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/op.h"

struct ng_call;
struct ng_comm;
struct ng_call_context;

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

/* Are signatures of this group compared? Rules for single operations do not count. And does a
 * difference in calls, one of them of this operation, end what a deadline would end? */
bool ng_check_compares(uint64_t group_id);
bool ng_check_ends(uint64_t group_id, enum ng_op op);

/*
 * Check a call that has been recorded and is about to be made. NG_CALL_PROCEED; else the
 * ncclResult_t that the program gets, with the reason kept for ng_check_keep_reason. With `strict`,
 * waits for the other ranks.
 */
int ng_check_call(const struct ng_call *call, struct ng_call_context *context, char *ret_reason,
                  unsigned bytes);

/* Keep the text that ncclGetLastError returns for a rejected call. */
void ng_check_keep_reason(struct ng_comm *comm, const char *reason);

#endif
