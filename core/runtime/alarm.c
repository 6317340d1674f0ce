/*
 * The queue of alarms.
 *
 * Entered by guard threads. Must never wait for another thread, except for the lock below.
 */
#include "core/runtime/alarm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/runtime/wake.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

/* Protects `alarms`; nests inside nothing, held for copies only. */
static NG_FORGOTTEN pthread_mutex_t alarm_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ng_alarm alarms[NG_ALARMS_MAX] NG_LARGE;
static NG_FORGOTTEN unsigned alarm_count;

static _Atomic uint32_t restarts;

unsigned ng_alarm_find_room(const struct ng_alarm *of, unsigned count, const struct ng_alarm *alarm)
{
    unsigned at = count;

    if (count == NG_ALARMS_MAX)
        for (at = 0; at < count && of[at].level >= alarm->level;)
            at++;
    return at;
}

void ng_alarm_raise(const struct ng_alarm *alarm)
{
    pthread_mutex_lock(&alarm_lock);
    unsigned at = ng_alarm_find_room(alarms, alarm_count, alarm);
    if (at < NG_ALARMS_MAX)
        alarms[at] = *alarm;
    alarm_count += at == alarm_count && at < NG_ALARMS_MAX;
    pthread_mutex_unlock(&alarm_lock);
    ng_wake_incident();
}

bool ng_alarm_take(struct ng_alarm *ret_alarm)
{
    uint32_t now = atomic_load(&restarts);

    NG_HOLD(&alarm_lock);
    NG_KEEP(alarm, alarms, alarm_count, alarm->restarts == now);
    bool any = alarm_count > 0;
    if (any) {
        unsigned best = 0;
        for (unsigned i = 1; i < alarm_count; i++)
            if (alarms[i].level > alarms[best].level)
                best = i;
        *ret_alarm = alarms[best];
        memmove(&alarms[best], &alarms[best + 1], (--alarm_count - best) * sizeof(alarms[0]));
    }
    return any;
}

void ng_alarm_restart(void)
{
    atomic_fetch_add(&restarts, 1);
}

uint32_t ng_alarm_restarts(void)
{
    return atomic_load(&restarts);
}
