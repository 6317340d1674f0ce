/*
 * The monitor: who watches the watchdog.
 *
 * One thread per process, which never calls CUDA or NCCL, and takes no lock that the watchdog or
 * the program holds: it must see that the watchdog hangs in one of those. The watchdog is stuck
 * when it has made no round for NCCLGUARD_HEARTBEAT_TIMEOUT of the monitor's own time. Then the
 * black box says so (ng_box_header.watchdog_stuck_mono_ns), and the incident thread deals with it
 * as with a deadline: verdict `watchdog_stuck`, evidence, policy. Where that thread does not come
 * round either, the monitor ends the process, if the policy ends it at all.
 *
 * Own time: what passes between two rounds of the monitor, but never more than half as much again
 * as it meant to sleep. While the process was stopped, sat in a debugger or its machine slept, the
 * monitor made no rounds either; and a watchdog that a debugger holds alone is not stuck. While the
 * whole job is suspended, or its program is in a phase, none of it counts: a checkpoint may keep
 * all of CUDA locked for as long as it takes. Where single groups rest, it does.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_MONITOR_H
#define NCCLGUARD_CORE_INCIDENT_MONITOR_H

#include <stdint.h>

/* For how long a clock that somebody else writes has not moved, in the own time of who looks. */
struct ng_silence {
    int64_t seen_mono_ns; /* the clock when it was looked at last */
    int64_t silent_ns;
};

/* The clock shows `now_seen_ns`, and `step_ns` have passed since it was looked at. Returns for how
 * long it has been silent. Pure. */
static inline int64_t ng_silence_look(struct ng_silence *silence, int64_t now_seen_ns,
                                      int64_t step_ns)
{
    if (silence->seen_mono_ns != now_seen_ns)
        *silence = (struct ng_silence){.seen_mono_ns = now_seen_ns};
    else
        silence->silent_ns += step_ns;
    return silence->silent_ns;
}

/* How long to sleep between two looks, so that a silence of `timeout_ns` is seen soon: from 10 ms
 * to a second. Pure. */
int64_t ng_monitor_pause_ns(int64_t timeout_ns);

/* What of the time between two looks counts, when a pause of `pause_ns` was meant. Pure. */
int64_t ng_monitor_credit_ns(int64_t passed_ns, int64_t pause_ns);

/* Start the thread, unless NCCLGUARD_HEARTBEAT_TIMEOUT is 0. 0 or -errno. */
int ng_monitor_start(void);

/* The watchdog is not to be called stuck yet, since the deadlines rest: its silence is counted anew
 * afterwards. Incident thread. */
void ng_monitor_withdraw(void);

/* The thread ends by itself, at once: nobody is left to be guarded. Any thread. */
void ng_monitor_quit(void);

/* In a forked child. */
void ng_monitor_after_fork(void);

#endif
