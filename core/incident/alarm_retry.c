/*
 * Alarms that are examined again later.
 */
#include "core/incident/alarm_retry.h"

#include <string.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

/* Incident thread alone. */
static struct ng_alarm parked[NG_ALARMS_MAX] NG_LARGE; /* age_ns: less when it was parked */
static NG_FORGOTTEN struct {
    unsigned parked_count;
    int64_t paused_until_ns; /* another process is examining the job */
    int64_t next_try_ns;     /* of the parked alarms; the pause counts, too */
} own;

/* Spread the retries: thousands of processes may be waiting. */
static int64_t later_ns(void)
{
    int64_t now = ng_clock_mono_ns();
    uint32_t number = (uint32_t)now * UINT32_C(2654435761);

    return now + NG_CLAIM_PAUSE_NS + (int64_t)number % (NG_CLAIM_PAUSE_MAX_NS - NG_CLAIM_PAUSE_NS);
}

void ng_alarm_retry_pause(void)
{
    own.paused_until_ns = later_ns();
}

bool ng_alarm_retry_is_due(void)
{
    return ng_clock_mono_ns() >= own.paused_until_ns;
}

void ng_alarm_retry_park(const struct ng_alarm *alarm)
{
    unsigned at = ng_alarm_find_room(parked, own.parked_count, alarm);

    if (at < NG_ALARMS_MAX) {
        parked[at] = *alarm;
        parked[at].age_ns -= ng_clock_mono_ns();
        own.parked_count += at == own.parked_count;
    }
    own.next_try_ns = later_ns();
}

void ng_alarm_retry_put_off(const struct ng_alarm *alarm)
{
    ng_alarm_retry_park(alarm);
    ng_alarm_retry_pause();
}

static int64_t due_ns(void)
{
    return own.next_try_ns > own.paused_until_ns ? own.next_try_ns : own.paused_until_ns;
}

unsigned ng_alarm_retry_take(struct ng_alarm ret_alarms[NG_ALARMS_MAX])
{
    unsigned count = ng_clock_mono_ns() >= due_ns() ? own.parked_count : 0;

    memcpy(ret_alarms, parked, count * sizeof(parked[0]));
    own.parked_count -= count;
    return count;
}

void ng_alarm_retry_drop(ng_alarm_explains_fn *explains, const struct ng_incident *incident)
{
    NG_KEEP(alarm, parked, own.parked_count, !explains(incident, alarm));
}

void ng_alarm_retry_forget(void)
{
    own.parked_count = 0;
}

bool ng_alarm_retry_wait(int64_t *ret_due_ns)
{
    *ret_due_ns = due_ns();
    return own.parked_count > 0;
}
