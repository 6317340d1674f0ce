/*
 * Checks each call before it is made: `+args` (core/check/arguments.h), `strict`
 * (core/check/lockstep_check.h) and `+nan` (core/check/nan.h), behind one branch of the caller's
 * (ng_guard.checks_calls). Program threads.
 */
#ifndef NCCLGUARD_CORE_CHECK_CALL_CHECK_H
#define NCCLGUARD_CORE_CHECK_CALL_CHECK_H

struct ng_call;
struct ng_call_context;
struct ng_comm;

/*
 * Check a call that has been recorded and is about to be made. NG_CALL_PROCEED; else the
 * ncclResult_t that the program gets, with the reason kept for ng_call_check_keep_reason. With
 * `strict`, waits for the other ranks.
 */
int ng_call_check(const struct ng_call *call, struct ng_call_context *context, char *ret_reason,
                  unsigned bytes);

/* Keep the text that ncclGetLastError returns for a rejected call. */
void ng_call_check_keep_reason(struct ng_comm *comm, const char *reason);

#endif
