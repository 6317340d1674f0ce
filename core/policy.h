/*
 * What a deadline leads to.
 *
 * Step 10. Called by the incident thread, after verdict and dumps.
 */
#ifndef NCCLGUARD_CORE_POLICY_H
#define NCCLGUARD_CORE_POLICY_H

/* Name of the configured policy: "log", "kill". */
const char *ng_policy_name(void);

/* Act by the configured policy on a verdict that is written and logged. Does not return where the process ends. */
void ng_policy_act(void);

/* Is `text` a valid NCCLGUARD_EXIT ("abort", "exit:CODE" with 0 <= CODE <= 255)? 0, or -EINVAL. */
int ng_policy_parse_exit(const char *text, int *ret_code);

#endif
