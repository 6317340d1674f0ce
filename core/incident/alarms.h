/*
 * Alarms of this process, once they are taken from their queue (core/runtime/alarm.h): examined, or
 * kept until it is their turn.
 *
 * The incident thread's.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_ALARMS_H
#define NCCLGUARD_CORE_INCIDENT_ALARMS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/runtime/alarm.h"

/* Look into an alarm, now or, where somebody else looks at the job, later. */
void ng_alarms_handle(const struct ng_alarm *alarm);

/* It was too early for a word: look again later. */
void ng_alarms_put_off(const struct ng_alarm *alarm);

/* Those that wait for their turn, if it has come. */
void ng_alarms_retry(void);

/* A verdict has come: those that waited for it have it. */
void ng_alarms_answered(const struct ng_incident *incident);

/* An abort: what waited for its turn may have been a consequence. */
void ng_alarms_forget(void);

/* Somebody else looks at the job: nobody here does before this. */
void ng_alarms_try_later(void);
bool ng_alarms_may_try(void);

/* Does any wait for its turn? *ret_due_ns is when that comes. */
bool ng_alarms_wait(int64_t *ret_due_ns);

/* In a forked child. */
void ng_alarms_after_fork(void);

#endif
