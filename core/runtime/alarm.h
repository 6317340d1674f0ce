/*
 * Alarms of this process: raised where something is found, taken by the incident thread.
 */
#ifndef NCCLGUARD_CORE_RUNTIME_ALARM_H
#define NCCLGUARD_CORE_RUNTIME_ALARM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/nccl/disagreement.h"

#define NG_ALARMS_MAX 64u /* a process may be stuck in all of its communicators at once */

/* What the watchdog saw, or the monitor. */
struct ng_alarm {
    enum ng_incident_level level;
    uint64_t group_id;
    uint64_t seq; /* 0: no collective */
    enum ng_op op;
    bool async_error; /* NCCL reports one: nothing need be late */
    bool nan; /* numbers that are none were found in what this process was to send: likewise */
    int64_t
        age_ns; /* credited: by the watchdog's rounds, so a little more or less than a clock's */
    /* What it is about: when a thread entered the call; of work on a device, 0, and its record as
     * in the black box (pending_record). */
    int64_t since_mono_ns;
    uint64_t record;
    uint32_t restarts; /* of the watchdog's clocks, when it was raised */
    bool watchdog;     /* the watchdog itself is stuck: raised by the monitor */
    bool death; /* a rank ended so long ago, and others wait for it: no deadline need have passed */
    struct ng_disagreement disagreement; /* ranks call different things; group_id 0: not so */
};

/* Raise an alarm, and wake the incident thread. Any guard thread; never blocks for longer than a
 * copy. */
void ng_alarm_raise(const struct ng_alarm *alarm);

/* Incident thread: the gravest one that still counts, none from before a restart. False: none. */
bool ng_alarm_take(struct ng_alarm *ret_alarm);

/* Where one more goes in a list of `count`; NG_ALARMS_MAX nowhere. A deadline counts more than a
 * suspicion: nobody raises it again, and the policy hangs on it. Pure. */
unsigned ng_alarm_find_room(const struct ng_alarm *of, unsigned count,
                            const struct ng_alarm *alarm);

/* What is stuck begins anew (ng_watchdog_restart): alarms that were raised before count no longer.
 */
void ng_alarm_restart(void);
uint32_t ng_alarm_restarts(void); /* how often that was */

/* In a forked child. */
void ng_alarm_after_fork(void);

#endif
