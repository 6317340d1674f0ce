/*
 * Periodic output while nothing is wrong: a status line for each group, with its straggler if there
 * is one, and the metrics file.
 *
 * One thread, "ncclguard/status", if either is wanted. No other thread waits for it, so a disk or
 * pipe that hangs holds up nothing else.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_STATUS_LOG_H
#define NCCLGUARD_CORE_INCIDENT_STATUS_LOG_H

/* Start the thread if there is anything for it to do and it does not run: with the guard, and when
 * the level of the log has changed. Any thread. */
void ng_status_log_start(void);

/* A policy is about to end the process: write the metrics once more. Returns when they are written,
 * or after some tenths of a second. Incident thread. */
void ng_status_log_save(void);

/* The process exits: write the metrics once more; takes some tenths of a second at most. */
void ng_status_log_finish(void);

/* Only threads of the guard are left: tell the thread to end. Does not wait. */
void ng_status_log_quit(void);

/* In a forked child. */
void ng_status_log_after_fork(void);

#endif
