/*
 * The alarm queue of this process: guard threads raise alarms, the incident thread takes them.
 */
#ifndef NCCLGUARD_CORE_RUNTIME_ALARM_H
#define NCCLGUARD_CORE_RUNTIME_ALARM_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/nccl/disagreement.h"

#define NG_ALARMS_MAX 64u /* a process may be stuck in many communicators at once */

/* A finding of the watchdog, the monitor or a check. */
struct ng_alarm {
    enum ng_incident_level level;
    uint64_t group_id;
    uint64_t seq; /* 0: no collective */
    enum ng_op op;
    bool failed; /* NCCL reports an asynchronous error, or CUDA failed for good: no work need be
                  * late */
    bool nan; /* NaN were found in data that this process was about to send: no work need be late */
    int64_t age_ns; /* credited by the watchdog's rounds, so it differs slightly from clock time */
    /* The subject: the time when a thread entered the call; for work on a device 0, and its record
     * as in the black box (pending_record). */
    int64_t since_mono_ns;
    uint64_t record;
    uint32_t restarts; /* restarts of the watchdog's clocks when it was raised */
    bool looks;        /* nothing is suspected here, but other ranks may suspect the same call: only
                        * look at the devices */
    bool watchdog;     /* the watchdog itself is stuck: raised by the monitor */
    bool unwatched;    /* a deadline of work that a stuck watchdog saw last: the device may have
                        * finished it since */
    bool
        death; /* a rank ended this long ago and others wait for it: no deadline need have passed */
    struct ng_disagreement disagreement; /* ranks make different calls; group_id 0: they do not */
};

/* Raise an alarm, and wake the incident thread. Any guard thread; never blocks for longer than it
 * takes to copy an alarm. */
void ng_alarm_raise(const struct ng_alarm *alarm);

/* Incident thread: take the gravest alarm that was raised since the last restart. False: none. */
bool ng_alarm_take(struct ng_alarm *ret_alarm);

/* The index for one more alarm in a list of `count`; NG_ALARMS_MAX: there is no room. A deadline
 * outranks a suspicion: it is not raised again, and the policy depends on it. Pure. */
unsigned ng_alarm_find_room(const struct ng_alarm *of, unsigned count,
                            const struct ng_alarm *alarm);

/* The watchdog's clocks start again (ng_watchdog_restart): alarms raised before are void. */
void ng_alarm_restart(void);
uint32_t ng_alarm_restarts(void); /* number of restarts */

#endif
