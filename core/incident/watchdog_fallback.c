/*
 * Stands in for a stuck watchdog.
 */
#include "core/incident/watchdog_fallback.h"

#include "core/comm/comm.h"
#include "core/comm/deadline.h"
#include "core/device/device_wait.h"
#include "core/incident/alarms.h"
#include "core/recorder/box.h"
#include "core/runtime/alarm.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/watchdog/watchdog.h"

#define WATCHDOG_SILENCE_NS (5 * NG_S)
/* The longest ordinary round of the incident thread, including its work. */
#define STEP_NS (2 * NG_S)
#define LOOK_NS (10 * NG_S) /* from a deadline to the second look; then twice as long each */

static NG_FORGOTTEN struct {
    int64_t watched_ns, stood_in_ns, silence_ns; /* of the watchdog */
    bool silence_told;
} own;

void ng_watchdog_fallback_begin(void)
{
    own.stood_in_ns = ng_clock_mono_ns();
}

/* How many looks are due at this age: one at the deadline, and others ever later, since what others
 * wait for may show only then. */
static unsigned looks_due(int64_t age, int64_t timeout)
{
    return age < timeout ? 0 : 64 - (unsigned)__builtin_clzll((age - timeout) / LOOK_NS + 1);
}

/*
 * If the watchdog is stuck in a CUDA call or in the dynamic linker, the clocks of what it last saw
 * in flight continue here, credited like its own. The device may have finished it since: a deadline
 * passes only if other ranks show that it cannot have (core/incident/incident_claim.c).
 */
void ng_watchdog_fallback_check(void)
{
    struct ng_box *box = &ng_guard.box;
    int64_t now = ng_clock_mono_ns(), step = now - own.stood_in_ns;
    int64_t watched = NG_LOAD(box->header->watchdog_mono_ns);
    uint32_t groups = NG_LOAD(box->header->group_used);
    struct ng_watchdog_activity at;

    own.stood_in_ns = now;
    step = NG_MIN(step, STEP_NS);
    if (watched != own.watched_ns) {
        own.watched_ns = watched;
        own.silence_ns = 0;
        own.silence_told = false;
        return;
    }
    ng_watchdog_where(&at);
    /* The processor stands still, or too many threads compete with this one: no deadline passes in
     * that time. */
    if (at.own)
        return;
    own.silence_ns += step;
    if (own.silence_ns < WATCHDOG_SILENCE_NS)
        return;
    if (!own.silence_told)
        ng_log(NG_LOG_WARN, "the watchdog has been stuck for %.0f s in %s",
               (double)own.silence_ns / 1e9, at.what);
    ng_deadline_expire_suspensions(now);
    for (uint32_t i = 0; i < groups; i++) {
        struct ng_box_group *group = &box->groups[i];
        if (!NG_LOAD(group->pending_record))
            continue;
        /* Normally the watchdog writes this, but it does not run; the first step makes up for the
         * whole silence. */
        int64_t before = NG_LOAD(group->pending_age_ns), timeout = NG_LOAD(group->timeout_ns);
        int64_t age = before + (own.silence_told ? step : own.silence_ns);
        if (NG_LOAD(group->rests))
            continue;
        NG_STORE(group->pending_doubt, NG_LOAD(group->pending_doubt) | NG_PENDING_UNWATCHED);
        NG_STORE(group->pending_age_ns, age);
        if (timeout <= 0)
            continue;
        timeout += ng_deadline_extended_since(ng_comm_at(i), now - age);
        if (looks_due(age, timeout) == looks_due(before, timeout))
            continue;
        struct ng_alarm alarm = {.level = NG_INCIDENT_TIMEOUT,
                                 .group_id = NG_LOAD(group->id),
                                 .seq = NG_LOAD(group->pending_seq),
                                 .age_ns = age,
                                 .record = NG_LOAD(group->pending_record),
                                 .restarts = ng_alarm_restarts(),
                                 .unwatched = true};
        if (before < timeout)
            ng_device_wait_expire(i, now - age);
        ng_alarms_handle(&alarm);
    }
    own.silence_told = true;
}
