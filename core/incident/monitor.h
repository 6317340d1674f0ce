/*
 * The monitor: watches the watchdog.
 *
 * One thread per process. It never calls CUDA or NCCL, and takes no lock that the watchdog or the
 * program holds, since it must detect that the watchdog hangs in one of those. The watchdog is
 * stuck when it has finished no round for NCCLGUARD_HEARTBEAT_TIMEOUT of the monitor's own time.
 * The monitor then marks the black box (ng_box_header.watchdog_stuck_mono_ns), and the incident
 * thread handles it like a deadline: verdict `watchdog_stuck`, evidence, policy. If the incident
 * thread is stuck as well, the monitor ends the process, provided that the policy ends it at all.
 *
 * Own time is the time between two rounds of the monitor, but at most 1.5 times the intended sleep:
 * while the process is stopped, in a debugger, or its machine sleeps, the monitor makes no rounds
 * either. A watchdog that a debugger holds alone is not stuck. While the whole job is suspended or
 * its program is in a phase, no time counts: a checkpoint may lock all of CUDA for as long as it
 * takes. If only single groups are paused, time counts.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_MONITOR_H
#define NCCLGUARD_CORE_INCIDENT_MONITOR_H

#include <stdint.h>

/* For how long a clock that another thread or process writes has not moved, in the observer's own
 * time. */
struct ng_silence {
    int64_t seen_mono_ns; /* value of the clock at the last look */
    int64_t silent_ns;
};

/* The clock shows `now_seen_ns`, and `step_ns` have passed since the last look. Returns how long
 * the clock has been silent. Pure. */
static inline int64_t ng_silence_look(struct ng_silence *silence, int64_t now_seen_ns,
                                      int64_t step_ns)
{
    if (silence->seen_mono_ns != now_seen_ns)
        *silence = (struct ng_silence){.seen_mono_ns = now_seen_ns};
    else
        silence->silent_ns += step_ns;
    return silence->silent_ns;
}

/* How long to sleep between two looks so that a silence of `timeout_ns` is detected soon: 10 ms to
 * 1 s. Pure. */
int64_t ng_monitor_pause_ns(int64_t timeout_ns);

/* How much of the time between two looks counts if a pause of `pause_ns` was intended. Pure. */
int64_t ng_monitor_credit_ns(int64_t passed_ns, int64_t pause_ns);

/* For how long the watchdog may be silent; 0: for ever. If NCCLGUARD_HEARTBEAT_TIMEOUT is 0, it is
 * NCCLGUARD_COLD_SUSPECT, but at least 5 s: an idle watchdog looks once a second. Pure. */
int64_t ng_monitor_bound_ns(int64_t heartbeat_ns, int64_t cold_suspect_ns);

/* Start the thread. If NCCLGUARD_HEARTBEAT_TIMEOUT is 0, it only logs that the watchdog is stuck. 0
 * or -errno. */
int ng_monitor_start(void);

/* The watchdog is not reported as stuck yet because the deadlines are paused: its silence is
 * counted from zero afterwards. Incident thread. */
void ng_monitor_withdraw(void);

/* Tell the thread to end at once: no program thread is left to guard. Any thread. */
void ng_monitor_quit(void);

#endif
