/*
 * From an alarm, or somebody's unfinished incident, to an incident that is claimed.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_INCIDENT_CLAIM_H
#define NCCLGUARD_CORE_INCIDENT_INCIDENT_CLAIM_H

#include <stdbool.h>

#include "core/nccl/board.h"
#include "core/runtime/alarm.h"
#include "core/verdict/verdict.h"
#include "core/view/view.h"

/* Is what it was raised for being dealt with, or done with, by now? */
bool ng_claim_is_settled(const struct ng_alarm *alarm);

/* Judge what `wanted` is about, because of an alarm, or in somebody's place (NULL). `sure`: it is
 * stuck, though the evidence may not show it. Ends the examination that board->ops->begin began. */
void ng_claim(const struct ng_incident *wanted, bool sure, const struct ng_alarm *alarm);

/* Claim an incident for what was judged, and conduct it; or join the one that covers it. Ends the
 * examination, too. */
void ng_claim_open(const struct ng_incident *wanted, struct ng_view *view,
                   struct ng_verdict *verdict);

/* The examination is over; `in_vain` as in ng_board_ops.finish. */
void ng_claim_end(enum ng_incident_level level, bool in_vain);

/* Follow somebody's incident; where its claimant does not come through, take its place, once. */
void ng_claim_join(struct ng_incident *incident);

/* In a forked child. */
void ng_claim_after_fork(void);

#endif
