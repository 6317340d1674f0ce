/*
 * Handles alarms of this process after they leave the queue (core/runtime/alarm.h): each is
 * examined now or parked for later.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_ALARMS_H
#define NCCLGUARD_CORE_INCIDENT_ALARMS_H

#include "core/nccl/board.h"
#include "core/runtime/alarm.h"

/* Examine an alarm, now or, if another process is examining the job, later. */
void ng_alarms_handle(const struct ng_alarm *alarm);

/* Examine the parked alarms (core/incident/alarm_retry.h) again, if they are due. */
void ng_alarms_retry(void);

/* A verdict was reached: drop the parked alarms that it explains. */
void ng_alarms_answered(const struct ng_incident *incident);

#endif
