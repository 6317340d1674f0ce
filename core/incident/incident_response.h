/*
 * Carries out an incident that this or another process has claimed: evidence, verdict, policy.
 *
 * Incident thread alone, except ng_response_is_under_way.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_INCIDENT_RESPONSE_H
#define NCCLGUARD_CORE_INCIDENT_INCIDENT_RESPONSE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/verdict/verdict.h"
#include "core/view/view.h"

/* Does the incident report that NCCL or CUDA has failed? Then no deadline need have passed. */
bool ng_response_is_failure(const struct ng_incident *incident);

/* Did this process claim the incident? */
bool ng_response_is_own(const struct ng_incident *incident);

/* The newest epoch of a source that has been handled; and mark one as handled. */
uint64_t ng_response_seen(enum ng_incident_source source);
void ng_response_done(enum ng_incident_source source, uint64_t epoch);

/* This process claimed the incident: complete it, then act on it. */
void ng_response_lead(struct ng_incident *incident, struct ng_view *view,
                      struct ng_verdict *verdict);

/*
 * A deadline has passed and another process judges it: write our evidence, wait for the verdict,
 * act. False: the claimant is gone or hangs, and another process must take over.
 */
bool ng_response_follow(struct ng_incident *incident);

/*
 * Take note of a suspicion that another process has judged: log it here, and write it to this
 * host's disk if it was reached on another host. The verdict of a deadline that this process has
 * handled stays there, while the suspicion may be a consequence of it or is about its call. A
 * suspicion older than that deadline has no effect, but is still logged if calls differ.
 */
void ng_response_receive(const struct ng_incident *incident);

/*
 * The process exits by itself while another process judges a deadline, or has judged it: the
 * verdict still goes to this host's disk and this process's log, but is not acted on. Waits for it
 * until `until_mono_ns` at the latest.
 */
void ng_response_keep(struct ng_incident *incident, int64_t until_mono_ns);

/* Is a deadline's verdict being worked out or written to disk? Any thread. */
bool ng_response_is_under_way(void);

/* Write a verdict's line to this process's log. */
void ng_response_log(const struct ng_incident *incident);

/* The deadline applies although there is no verdict: act for the one group that is known to be
 * stuck. */
void ng_response_act_unjudged(const struct ng_incident *wanted);

/*
 * A verdict ended a rank of this host by this policy (enum ng_on_timeout plus one), and this
 * process did not receive it because it can no longer read the board, for example after setuid.
 * This process ends as well, unless its own policy is milder than `teardown`.
 */
void ng_response_follow_end(uint32_t policy);

/* Did the previous verdict report this call, or this group's error? Or was the call already waiting
 * when policy kill gave up the process? */
bool ng_response_has_reported_call(const struct ng_incident *same);
bool ng_response_has_reported_error(uint64_t group_id);

/* May other ranks still be held up by the abort that the previous verdict led to? Within its
 * bound. */
bool ng_response_others_may_abort(void);

/* Has any verdict reported NaN? NaN spread, so all that are found later may follow from the
 * first. */
bool ng_response_has_reported_nan(void);

#endif
