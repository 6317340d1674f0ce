/*
 * From an alarm, or another process's unfinished incident, to a claimed incident.
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

/* Is the cause of the alarm being handled, or already settled? */
bool ng_claim_is_settled(const struct ng_alarm *alarm);

/* Look at the devices, where what they show may help to explain this alarm: if another rank is the
 * one that judges, it needs what is known here. Begins to ask the driver, and waits for looks at
 * NCCL's counters and connections as long as these do. */
void ng_claim_look(const struct ng_alarm *alarm);

/* Judge the subject of `wanted`, because of an alarm or in place of a failed claimant (`alarm`
 * NULL). `sure`: it is stuck even if the evidence does not show it. Ends the examination that
 * board->ops->begin began. */
void ng_claim(const struct ng_incident *wanted, bool sure, const struct ng_alarm *alarm);

/* Claim an incident for what was judged and carry it out, or join the incident that covers it. Also
 * ends the examination. */
void ng_claim_open(const struct ng_incident *wanted, struct ng_view *view,
                   struct ng_verdict *verdict);

/* End the examination; `in_vain` as in ng_board_ops.finish. */
void ng_claim_end(enum ng_incident_level level, bool in_vain);

/* Follow an incident of another process; if its claimant fails to deliver a verdict, take over,
 * once. */
void ng_claim_join(struct ng_incident *incident);

#endif
