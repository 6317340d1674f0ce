/*
 * The watchdog: what has finished, what has not, and for how long.
 *
 * One thread per process.
 */
#ifndef NCCLGUARD_CORE_WATCHDOG_WATCHDOG_H
#define NCCLGUARD_CORE_WATCHDOG_WATCHDOG_H

#include <stdbool.h>
#include <stdint.h>

struct ng_alarm;
struct ng_comm;
struct ng_stall_count;

/* Start the thread. 0 or -errno. */
int ng_watchdog_start(void);

/*
 * A program thread, about to call ncclCommAbort on `comm`: what has finished by now is told apart
 * from what the abort ends, which is FAILED. Waits for the watchdog to look, but not for long.
 */
void ng_watchdog_cut_off(struct ng_comm *comm);

/*
 * What is stuck gets its whole deadline once more, and alarms that were raised before count no
 * longer (ng_alarm.restarts): what they waited for has been aborted. Incident thread.
 */
void ng_watchdog_restart(void);

/* Is what an alarm was raised for still stuck, as this process itself sees it? Incident thread. */
bool ng_watchdog_still(const struct ng_alarm *alarm);

/*
 * One last round by the calling thread, and no more rounds after it: the process exits. Bounded;
 * false when the watchdog's thread could not be had out of the way in time.
 */
bool ng_watchdog_finish(void);

/* The thread ends by itself, soon; a last look is still to be taken. */
void ng_watchdog_quit(void);

/* What the thread is at, for who wonders why it does not come round. */
struct ng_watchdog_activity {
    int tid;          /* 0: it has not begun */
    const char *what; /* "cuEventQuery": for ever readable */
    bool own; /* work of its own, or its pause: where it stays in that, it gets no processor */
};
void ng_watchdog_where(struct ng_watchdog_activity *ret_place);

/* In a forked child. */
void ng_watchdog_after_fork(void);

#endif
