/*
 * Incidents: from an alarm of this process, or news of another, to a verdict and its consequences.
 *
 * Steps 9 and 10. One thread per process, which never calls CUDA or NCCL: it must work when those
 * hang.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_INCIDENT_THREAD_H
#define NCCLGUARD_CORE_INCIDENT_INCIDENT_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/nccl/disagreement.h"

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

/* Start the thread. 0 or -errno. */
int ng_incident_start(void);

/* Watchdog, monitor: raise an alarm. Never blocks for longer than a copy. */
void ng_incident_raise(const struct ng_alarm *alarm);

/* Incident thread, where there is a board: until there is news, or for so long. */
void ng_incident_pause(int timeout_ms);

/* Wake the thread and let it end; returns when it has, or after `bound_ms`. False: it did not end
 * in time. Where a deadline's verdict is on its way to the disk, some seconds more. */
bool ng_incident_finish(int bound_ms);

/* In a forked child. */
void ng_incident_after_fork(void);

#endif
