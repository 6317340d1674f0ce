/*
 * Handles alarms of this process after they leave the queue (core/runtime/alarm.h): each is
 * examined now or parked for later.
 *
 * Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_ALARMS_H
#define NCCLGUARD_CORE_INCIDENT_ALARMS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/runtime/alarm.h"

/* Examine an alarm, now or, if another process is examining the job, later. */
void ng_alarms_handle(const struct ng_alarm *alarm);

/* It was too early for a verdict: examine the alarm again later. */
void ng_alarms_put_off(const struct ng_alarm *alarm);

/* Examine the parked alarms again, if they are due. */
void ng_alarms_retry(void);

/* A verdict was reached: drop the parked alarms that it explains. */
void ng_alarms_answered(const struct ng_incident *incident);

/* After an abort: drop the parked alarms, which may have been consequences of what was aborted. */
void ng_alarms_forget(void);

/* Another process is examining the job: ng_alarms_may_try is false here for a while. */
void ng_alarms_try_later(void);
bool ng_alarms_may_try(void);

/* Is any alarm parked? *ret_due_ns is when the parked alarms are due. */
bool ng_alarms_wait(int64_t *ret_due_ns);

/* In a forked child. */
void ng_alarms_after_fork(void);

#endif
