/*
 * Alarms of this process: examined or parked.
 */
#include "core/incident/alarms.h"

#include <errno.h>

#include "core/comm/deadline.h"
#include "core/incident/alarm_retry.h"
#include "core/incident/incident_claim.h"
#include "core/incident/incident_response.h"
#include "core/incident/known_deaths.h"
#include "core/incident/monitor.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/watchdog/watchdog.h"

/* Does this verdict explain a parked alarm? A verdict on something else explains work that is
 * merely late, but neither a failure of NCCL or CUDA nor a stuck watchdog. */
static bool answers(const struct ng_incident *incident, const struct ng_alarm *alarm)
{
    if (alarm->level > incident->level)
        return false;
    if (alarm->failed)
        return ng_response_is_failure(incident) && incident->group_id == alarm->group_id;
    if (alarm->nan)
        return incident->kind == NG_KIND_NAN;
    return !alarm->watchdog || incident->kind == NG_KIND_WATCHDOG_STUCK;
}

/* Differing calls are reported whatever else is wrong, but once per group. */
static bool explains(const struct ng_incident *incident, const struct ng_alarm *alarm)
{
    return alarm->disagreement.group_id
               ? alarm->group_id == incident->group_id && incident->kind == NG_KIND_MISMATCH
               : answers(incident, alarm);
}

void ng_alarms_answered(const struct ng_incident *incident)
{
    ng_alarm_retry_drop(explains, incident);
    ng_known_deaths_note(incident);
    if (incident->source == NG_SOURCE_JOB)
        ng_known_deaths_cover();
}

/* The board shows other processes which work here is late, but not what this process found. */
static enum ng_claim_cause cause_of(const struct ng_alarm *alarm)
{
    if (alarm->death)
        return NG_CAUSE_END;
    return alarm->disagreement.group_id || alarm->nan || alarm->failed || alarm->watchdog
               ? NG_CAUSE_OWN
               : NG_CAUSE_LATE;
}

void ng_alarms_handle(const struct ng_alarm *alarm)
{
    /*
     * Other ranks may have waited less than this one and still be the cause, or be blocked by it. A
     * wait of half the suspect time is already unusual.
     */
    int64_t unusual_ns = alarm->death                 ? NG_KNOWN_DEATHS_STALL_NS
                         : ng_guard.config.suspect_ns ? ng_guard.config.suspect_ns / 2
                                                      : 2 * NG_S;
    bool late = !alarm->failed && !alarm->nan;
    int64_t stalled_ns = alarm->age_ns / 2 < unusual_ns && late ? alarm->age_ns / 2 : unusual_ns;
    struct ng_incident wanted = {.level = alarm->level,
                                 .group_id = alarm->group_id,
                                 .seq = alarm->seq,
                                 .op = alarm->op,
                                 .stalled_ns = stalled_ns,
                                 .failed = alarm->failed,
                                 .since_mono_ns = ng_clock_mono_ns() - alarm->age_ns};

    /* No rank need be waiting; and a rank that finds the same difference has found one that was
     * already reported. */
    if (alarm->disagreement.group_id) {
        wanted.differs = true;
        wanted.since_mono_ns = 0;
    }
    if (ng_claim_is_settled(alarm))
        return;
    if (alarm->watchdog && ng_deadline_rests(NULL)) {
        ng_monitor_withdraw();
        return;
    }
    /* Ranks leave an abort at different moments, and are missed elsewhere meanwhile. */
    if (alarm->level == NG_INCIDENT_SUSPECT && cause_of(alarm) == NG_CAUSE_LATE &&
        ng_response_others_may_abort()) {
        ng_alarm_retry_park(alarm);
        return;
    }
    ng_claim_look(alarm);
    if (alarm->looks)
        return;
    if (ng_guard.board &&
        ng_guard.board->ops->begin(ng_guard.board, alarm->level, cause_of(alarm)) == -EBUSY) {
        ng_alarm_retry_put_off(alarm);
        return;
    }
    ng_claim(&wanted,
             alarm->level == NG_INCIDENT_TIMEOUT && late && !alarm->death &&
                 !alarm->disagreement.group_id,
             alarm);
}

void ng_alarms_retry(void)
{
    struct ng_alarm again[NG_ALARMS_MAX];
    unsigned count = ng_alarm_retry_take(again);
    uint32_t restarts = ng_alarm_restarts();

    /* An abort that one alarm leads to may release the others. */
    for (unsigned i = 0; i < count && ng_alarm_restarts() == restarts; i++) {
        again[i].age_ns += ng_clock_mono_ns();
        /* Work that has made progress since needs no verdict. */
        if (again[i].failed || again[i].nan || again[i].death || again[i].disagreement.group_id ||
            ng_watchdog_still(&again[i]))
            ng_alarms_handle(&again[i]);
    }
}
