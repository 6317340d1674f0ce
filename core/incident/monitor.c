/*
 * The monitor's thread.
 *
 * Entered by its own thread alone. Must never call CUDA or NCCL, wait for a lock that the watchdog
 * or the program can hold, or mistake its own standstill for the watchdog's.
 */
#include "core/incident/monitor.h"

#include <stdio.h>
#include <string.h>

#include "core/comm/deadline.h"
#include "core/evidence/blocked_in.h"
#include "core/policy/policy.h"
#include "core/runtime/alarm.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/log.h"
#include "core/util/memory.h"
#include "core/watchdog/watchdog.h"

#define PAUSE_MAX_NS NG_S
#define PAUSE_MIN_NS (10 * NG_MS)
#define TELLS_MIN_NS (5 * NG_S) /* the watchdog rests for up to a second between its rounds */
#define LOOKS        8          /* within the timeout, unless the pause is at its bounds */

static NG_FORGOTTEN _Atomic uint32_t quitting; /* futex word */

/* Written before the thread starts: how long the watchdog may be silent, and whether that is only
 * logged, since the heartbeat is switched off. */
static int64_t bound_ns;
static bool only_tells;

int64_t ng_monitor_pause_ns(int64_t timeout_ns)
{
    int64_t pause_ns = timeout_ns / LOOKS;

    return pause_ns > PAUSE_MAX_NS   ? PAUSE_MAX_NS
           : pause_ns < PAUSE_MIN_NS ? PAUSE_MIN_NS
                                     : pause_ns;
}

int64_t ng_monitor_credit_ns(int64_t passed_ns, int64_t pause_ns)
{
    int64_t most_ns = pause_ns + pause_ns / 2;

    return passed_ns < 0 ? 0 : passed_ns > most_ns ? most_ns : passed_ns;
}

/* Is the watchdog itself held by a debugger, or stopped, while we run? */
static bool is_held(const struct ng_blocked_in *inside)
{
    return inside->state == 't' || inside->state == 'T';
}

/* "cuEventQuery (thread 712 in ioctl of /dev/nvidia0)" */
static void describe(const struct ng_watchdog_activity *activity,
                     const struct ng_blocked_in *inside, char *ret_text, size_t bytes)
{
    char now[NG_BOX_FRAME_BYTES] = "";

    if (inside)
        ng_blocked_in_describe(inside, now, sizeof(now));
    snprintf(ret_text, bytes, "%s (thread %d%s%s)", activity->what, activity->tid,
             now[0] ? " " : "", now);
}

/* Publish it in the black box for the neighbours, the dump and the verdict. */
static void publish(int64_t silent_ns, const char *text)
{
    struct ng_box_header *header = ng_guard.box.header;
    uint64_t words[NG_BOX_FRAME_BYTES / 8] = {0};

    memcpy(words, text, strnlen(text, sizeof(words) - 1));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        NG_STORE(header->watchdog_in[i], words[i]);
    atomic_store_explicit(&header->watchdog_stuck_mono_ns, ng_clock_mono_ns() - silent_ns,
                          memory_order_release);
}

static void tell_switched_off(int64_t silent_ns, const char *text)
{
    ng_log(NG_LOG_WARN,
           "the watchdog has made no round for %.0f s: it is in %s; with a heartbeat "
           "(NCCLGUARD_HEARTBEAT_TIMEOUT, which is 0 here) of that time this would have been a "
           "deadline, policy %s",
           (double)silent_ns / 1e9, text, ng_on_timeout_name(ng_deadline_policy(0, NG_OP_NONE)));
}

/* True: it is stuck, and the incident thread has been notified, or the log alone. */
static bool raise_stuck(int64_t silent_ns)
{
    struct ng_alarm alarm = {.level = NG_INCIDENT_TIMEOUT,
                             .watchdog = true,
                             .age_ns = silent_ns,
                             .restarts = ng_alarm_restarts()};
    struct ng_watchdog_activity activity;
    struct ng_blocked_in inside;
    char text[NG_BOX_FRAME_BYTES];

    ng_watchdog_where(&activity);
    if (activity.own)
        return false;
    bool known = ng_blocked_in_read(activity.tid, &inside) == 0;
    if (known && is_held(&inside))
        return false;
    describe(&activity, known ? &inside : NULL, text, sizeof(text));
    if (only_tells) {
        tell_switched_off(silent_ns, text);
        return true;
    }
    publish(silent_ns, text);
    ng_alarm_raise(&alarm);
    /* Logged last, here and below: the log may block, for example on a pipe that has no reader. */
    ng_log(
        NG_LOG_ERROR,
        "the watchdog has made no round for %.0f s (NCCLGUARD_HEARTBEAT_TIMEOUT): it is in %s; "
        "what the devices of this process have finished is not known; where CUDA may be busy for "
        "so long (compiling, loading kernels), raise the variable, or set it to 0 to be only told",
        (double)silent_ns / 1e9, text);
    return true;
}

void ng_monitor_withdraw(void)
{
    NG_STORE(ng_guard.box.header->watchdog_stuck_mono_ns, 0);
}

static void recover(void)
{
    ng_monitor_withdraw();
    ng_log(NG_LOG_WARN, "the watchdog makes its rounds again");
}

/* Both the incident thread, which reaches verdicts, and the watchdog, which raises alarms, are
 * stuck. */
static void end_without_verdict(void)
{
    static const char words[] = "the watchdog and the incident thread are both stuck";

    ng_policy_bound(ng_deadline_policy(0, NG_OP_NONE), 0);
    ng_log(NG_LOG_ERROR, "%s; policy: %s", words,
           ng_on_timeout_name(ng_deadline_policy(0, NG_OP_NONE)));
}

static bool is_wanted(uint32_t generation)
{
    return atomic_load(&ng_guard.generation) == generation && !atomic_load(&quitting) &&
           !atomic_load(&ng_guard.ending);
}

static void *monitor(void *unused)
{
    const struct ng_box_header *header = ng_guard.box.header;
    int64_t timeout_ns = bound_ns;
    int64_t pause_ns = ng_monitor_pause_ns(timeout_ns), before = ng_clock_mono_ns();
    struct ng_silence watchdog = {0}, incidents = {0};
    uint32_t generation = atomic_load(&ng_guard.generation);
    bool raised = false, gave_up = false;

    ng_guard.adopt_thread();
    while (is_wanted(generation)) {
        ng_futex_wait(&quitting, 0, pause_ns);
        int64_t now = ng_clock_mono_ns(), step_ns = ng_monitor_credit_ns(now - before, pause_ns);
        before = now;
        int64_t silent_ns = ng_silence_look(&watchdog, NG_LOAD(header->watchdog_mono_ns), step_ns);
        int64_t idle_ns = ng_silence_look(&incidents, NG_LOAD(header->heartbeat_mono_ns), step_ns);
        if (!is_wanted(generation))
            break;
        if (ng_deadline_rests(NULL) ||
            (raised && !only_tells && !NG_LOAD(header->watchdog_stuck_mono_ns))) {
            ng_monitor_withdraw();
            watchdog.silent_ns = 0;
            raised = gave_up = false;
        } else if (raised && silent_ns == 0) {
            recover();
            raised = gave_up = false;
        } else if (!raised && silent_ns >= timeout_ns) {
            raised = raise_stuck(silent_ns);
            if (!raised)
                watchdog.silent_ns = 0;
        } else if (raised && !only_tells && !gave_up && idle_ns >= timeout_ns) {
            end_without_verdict();
            gave_up = true;
        }
    }
    return unused;
}

int64_t ng_monitor_bound_ns(int64_t heartbeat_ns, int64_t cold_suspect_ns)
{
    if (heartbeat_ns || !cold_suspect_ns)
        return heartbeat_ns;
    return cold_suspect_ns > TELLS_MIN_NS ? cold_suspect_ns : TELLS_MIN_NS;
}

int ng_monitor_start(void)
{
    only_tells = ng_guard.config.heartbeat_timeout_ns == 0;
    bound_ns =
        ng_monitor_bound_ns(ng_guard.config.heartbeat_timeout_ns, ng_guard.config.cold_suspect_ns);
    return bound_ns ? ng_guard_thread("ncclguard/beat", monitor) : 0;
}

void ng_monitor_quit(void)
{
    atomic_store(&quitting, 1);
    ng_futex_wake(&quitting, 1);
}
