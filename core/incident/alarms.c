/*
 * Alarms of this process: examined or parked.
 */
#include "core/incident/alarms.h"

#include <errno.h>
#include <string.h>

#include "core/comm/deadline.h"
#include "core/incident/deaths.h"
#include "core/incident/incident_claim.h"
#include "core/incident/incident_response.h"
#include "core/incident/monitor.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/watchdog/watchdog.h"

/* Incident thread alone. */
static struct {
    /* Alarms parked until another process has finished its examination. */
    struct ng_alarm parked[NG_ALARMS_MAX];
    int64_t parked_mono_ns[NG_ALARMS_MAX];
    unsigned parked_count;
    int64_t next_try_ns;
} own;

/* Another process is examining the job: its verdict may explain this alarm. If not, the alarm is
 * examined later. */
static void park(const struct ng_alarm *alarm)
{
    unsigned at = ng_alarm_find_room(own.parked, own.parked_count, alarm);

    if (at == NG_ALARMS_MAX)
        return;
    own.parked[at] = *alarm;
    own.parked_mono_ns[at] = ng_clock_mono_ns();
    own.parked_count += at == own.parked_count;
}

/* Does this verdict explain a parked alarm? A verdict on something else explains work that is
 * merely late, but neither an NCCL error nor a stuck watchdog. */
static bool answers(const struct ng_incident *incident, const struct ng_alarm *alarm)
{
    if (alarm->level > incident->level)
        return false;
    if (alarm->async_error)
        return ng_response_is_async_error(incident) && incident->group_id == alarm->group_id;
    if (alarm->nan)
        return incident->kind == NG_KIND_NAN;
    return !alarm->watchdog || incident->kind == NG_KIND_WATCHDOG_STUCK;
}

/* A verdict was reached: drop the parked alarms that it explains. */
void ng_alarms_answered(const struct ng_incident *incident)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < own.parked_count; i++) {
        /* Differing calls are reported whatever else is wrong, but once per group. */
        if (own.parked[i].disagreement.group_id
                ? own.parked[i].group_id == incident->group_id && incident->kind == NG_KIND_MISMATCH
                : answers(incident, &own.parked[i]))
            continue;
        own.parked[kept] = own.parked[i];
        own.parked_mono_ns[kept++] = own.parked_mono_ns[i];
    }
    own.parked_count = kept;
    ng_deaths_note(incident);
    if (incident->source == NG_SOURCE_JOB)
        ng_deaths_are_reported();
}

/* Spread the retries: thousands of processes may be waiting. */
void ng_alarms_try_later(void)
{
    int64_t now = ng_clock_mono_ns();
    uint32_t number = (uint32_t)now * UINT32_C(2654435761);

    own.next_try_ns =
        now + NG_CLAIM_PAUSE_NS + (int64_t)number % (NG_CLAIM_PAUSE_MAX_NS - NG_CLAIM_PAUSE_NS);
}

/* The board shows other processes which work here is late, but not what this process found. */
static enum ng_claim_cause cause_of(const struct ng_alarm *alarm)
{
    if (alarm->death)
        return NG_CAUSE_END;
    return alarm->disagreement.group_id || alarm->nan || alarm->async_error || alarm->watchdog
               ? NG_CAUSE_OWN
               : NG_CAUSE_LATE;
}

void ng_alarms_handle(const struct ng_alarm *alarm)
{
    /*
     * Other ranks may have waited less than this one and still be the cause, or be blocked by it. A
     * wait of half the suspect time is already unusual.
     */
    int64_t unusual_ns = alarm->death                 ? NG_DEATHS_STALL_NS
                         : ng_guard.config.suspect_ns ? ng_guard.config.suspect_ns / 2
                                                      : 2 * NG_S;
    bool late = !alarm->async_error && !alarm->nan;
    int64_t stalled_ns = alarm->age_ns / 2 < unusual_ns && late ? alarm->age_ns / 2 : unusual_ns;
    struct ng_incident wanted = {.level = alarm->level,
                                 .group_id = alarm->group_id,
                                 .seq = alarm->seq,
                                 .op = alarm->op,
                                 .stalled_ns = stalled_ns,
                                 .failed = alarm->async_error,
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
    bool early = alarm->level == NG_INCIDENT_SUSPECT && cause_of(alarm) == NG_CAUSE_LATE &&
                 ng_response_others_may_abort();
    if (early || (ng_guard.board && ng_guard.board->ops->begin(ng_guard.board, alarm->level,
                                                               cause_of(alarm)) == -EBUSY)) {
        ng_alarms_put_off(alarm);
        return;
    }
    ng_claim(&wanted,
             alarm->level == NG_INCIDENT_TIMEOUT && late && !alarm->death &&
                 !alarm->disagreement.group_id,
             alarm);
}

void ng_alarms_put_off(const struct ng_alarm *alarm)
{
    park(alarm);
    ng_alarms_try_later();
}

void ng_alarms_retry(void)
{
    unsigned count = own.parked_count;
    struct ng_alarm again[NG_ALARMS_MAX];

    if (!count || ng_clock_mono_ns() < own.next_try_ns)
        return;
    memcpy(again, own.parked, count * sizeof(again[0]));
    own.parked_count = 0;
    uint32_t restarts = ng_alarm_restarts();
    /* An abort that one alarm leads to may release the others. */
    for (unsigned i = 0; i < count && ng_alarm_restarts() == restarts; i++) {
        /* Work that has made progress since needs no verdict. */
        again[i].age_ns += ng_clock_mono_ns() - own.parked_mono_ns[i];
        if (again[i].async_error || again[i].nan || again[i].death ||
            again[i].disagreement.group_id || ng_watchdog_still(&again[i]))
            ng_alarms_handle(&again[i]);
    }
}

void ng_alarms_forget(void)
{
    own.parked_count = 0;
}

bool ng_alarms_may_try(void)
{
    return ng_clock_mono_ns() >= own.next_try_ns;
}

bool ng_alarms_wait(int64_t *ret_due_ns)
{
    *ret_due_ns = own.next_try_ns;
    return own.parked_count > 0;
}

void ng_alarms_after_fork(void)
{
    memset(&own, 0, sizeof(own));
}
