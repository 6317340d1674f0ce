/*
 * Alarms parked until another process has finished its examination of the job, whose verdict may
 * explain them, or until more is known.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_ALARM_RETRY_H
#define NCCLGUARD_CORE_INCIDENT_ALARM_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/runtime/alarm.h"

/* It is too early for a verdict: examine the alarm again later. Ends are examined meanwhile. */
void ng_alarm_retry_park(const struct ng_alarm *alarm);

/* The same after the job was examined, by this process or another one: with a pause, as below. */
void ng_alarm_retry_put_off(const struct ng_alarm *alarm);

/* Take the parked alarms, if they are due. Returns their number; to the age of each the present
 * time (ng_clock_mono_ns) must be added. */
unsigned ng_alarm_retry_take(struct ng_alarm ret_alarms[NG_ALARMS_MAX]);

/* A verdict was reached: drop the parked alarms that it explains. */
typedef bool ng_alarm_explains_fn(const struct ng_incident *incident, const struct ng_alarm *alarm);
void ng_alarm_retry_drop(ng_alarm_explains_fn *explains, const struct ng_incident *incident);

/* After an abort: drop the parked alarms, which may have been consequences of what was aborted. */
void ng_alarm_retry_forget(void);

/* Another process is examining the job: ng_alarm_retry_is_due is false here for a while. */
void ng_alarm_retry_pause(void);
bool ng_alarm_retry_is_due(void);

/* Is any alarm parked? *ret_due_ns is when the parked alarms are due. */
bool ng_alarm_retry_wait(int64_t *ret_due_ns);

#endif
