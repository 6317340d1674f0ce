/*
 * An incident that has been claimed, by this process or another: evidence, verdict, policy.
 *
 * Incident thread alone, but for the question whether one is under way.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_INCIDENT_RESPONSE_H
#define NCCLGUARD_CORE_INCIDENT_INCIDENT_RESPONSE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/incident/incident_thread.h"
#include "core/nccl/board.h"
#include "core/verdict/verdict.h"
#include "core/view/view.h"

/* Is it about an error that NCCL reports? */
bool ng_response_is_async_error(const struct ng_incident *incident);

/* Did we claim it ourselves? */
bool ng_response_is_own(const struct ng_incident *incident);

/* The newest epoch of a source that is dealt with; and another that is. */
uint64_t ng_response_seen(enum ng_incident_source source);
void ng_response_done(enum ng_incident_source source, uint64_t epoch);

/* The incident is ours: make it whole, then act on it. */
void ng_response_lead(struct ng_incident *incident, struct ng_view *view,
                      struct ng_verdict *verdict);

/*
 * A deadline has passed somewhere, and somebody else judges it: write our evidence, wait for the
 * verdict, act. False: the claimant is gone or hangs, and somebody has to take over.
 */
bool ng_response_follow(struct ng_incident *incident);

/*
 * What somebody else suspects, and has judged: in this process's log, and on this host's disk if
 * another host has reached it. A suspicion that is older than a deadline which this process has
 * dealt with changes nothing any more, but is logged where calls differ.
 */
void ng_response_hear(const struct ng_incident *incident);

/*
 * The process ends by itself, while somebody else judges a deadline, or has: its verdict is for
 * this host's disk and this process's log, too, and is not acted on. Waits for it until then at the
 * latest.
 */
void ng_response_keep(struct ng_incident *incident, int64_t until_mono_ns);

/* Is a deadline's verdict on its way to the disk? Any thread. */
bool ng_response_is_under_way(void);

/* A verdict's line in this process's log. */
void ng_response_log(const struct ng_incident *incident);

/* The deadline holds though there is no verdict: for the group alone that is known to be stuck. */
void ng_response_act_unjudged(const struct ng_incident *wanted);

/*
 * A rank of this host was ended by a verdict, through this policy (one more than enum
 * ng_on_timeout), and this process has not heard of it: it can read the board no more, as after
 * setuid. It ends likewise, unless a policy of its own is milder than `teardown`.
 */
void ng_response_follow_end(uint32_t policy);

/* Was this the call, or the group's error, that the verdict before was about? Or did it wait
 * already when policy kill gave the process up? */
bool ng_response_has_told_call(const struct ng_incident *same);
bool ng_response_has_told_error(uint64_t group_id);

/* Was any verdict about NaN? They spread, and all that are found later may follow from those. */
bool ng_response_has_told_nan(void);

/* In a forked child. */
void ng_response_after_fork(void);

#endif
