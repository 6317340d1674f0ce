/*
 * The watchdog: tracks what has finished, what has not, and for how long.
 *
 * One thread per process.
 */
#ifndef NCCLGUARD_CORE_WATCHDOG_WATCHDOG_H
#define NCCLGUARD_CORE_WATCHDOG_WATCHDOG_H

#include <stdbool.h>

struct ng_alarm;
struct ng_comm;
struct ng_stall_count;

/* Start the thread. 0 or -errno. */
int ng_watchdog_start(void);

/*
 * Called by a program thread that has just created the process's first communicator: waits until
 * the watchdog has been through a round with it, 100 ms at most, and only once. In a library's
 * first call on a thread the dynamic linker allocates that thread's variables, and ends the process
 * if it cannot; later the program may have left no memory for that.
 */
void ng_watchdog_meet(void);

/*
 * Called by a program thread before ncclCommAbort on `comm`, so that work that has finished by now
 * is distinguished from work that the abort ends, which is FAILED. Waits for the watchdog's next
 * check, but not for long.
 */
void ng_watchdog_cut_off(struct ng_comm *comm);

/*
 * Restart the deadline of everything that is stuck, and invalidate alarms that were raised before
 * (ng_alarm.restarts): what they waited for has been aborted. Incident thread.
 */
void ng_watchdog_restart(void);

/* Is the subject of an alarm still stuck, as this process itself sees it? Incident thread. */
bool ng_watchdog_still(const struct ng_alarm *alarm);

/*
 * Run one last round on the calling thread, and none after it: the process exits. Bounded; false:
 * the watchdog thread did not stop in time.
 */
bool ng_watchdog_finish(void);

/* Let the thread end by itself, soon; ng_watchdog_finish is still to be called. */
void ng_watchdog_quit(void);

/* What the watchdog thread is doing, to explain why it makes no progress. */
struct ng_watchdog_activity {
    int tid;          /* 0: not started */
    const char *what; /* "cuEventQuery"; a static string */
    bool own;         /* its own work, or its pause: if it stays there, it gets no CPU time */
};
void ng_watchdog_where(struct ng_watchdog_activity *ret_activity);

/* In a forked child. */
void ng_watchdog_after_fork(void);

#endif
