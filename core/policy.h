/*
 * What a deadline leads to.
 *
 * Step 10. Called by the incident thread, after verdict and dumps.
 */
#ifndef NCCLGUARD_CORE_POLICY_H
#define NCCLGUARD_CORE_POLICY_H

#include <stdint.h>

/* Name of the configured policy: "log", "kill". */
const char *ng_policy_name(void);

/*
 * Start the thread that ends the process where nothing else does: now, since later the program may
 * be stuck inside malloc, which making a thread needs. Only where the policy ends anything. 0 or
 * -errno.
 */
int ng_policy_start(void);

/* Nobody is left to be guarded: that thread ends. */
void ng_policy_finish(void);

/* In a forked child. */
void ng_policy_after_fork(void);

/*
 * From now on the process ends within `bound_ns` where the policy ends it, though writing evidence,
 * logging or waiting hang (a dead file server, a pipe that nobody reads). Once per process; later
 * calls change nothing.
 */
void ng_policy_bound(int64_t bound_ns);

/* Act by the configured policy on a verdict that is written and logged. Does not return where the
 * process ends. */
void ng_policy_act(void);

/* Is `text` a valid NCCLGUARD_EXIT ("abort", "exit:CODE" with 0 <= CODE <= 255)? 0, or -EINVAL. */
int ng_policy_parse_exit(const char *text, int *ret_code);

#endif
