/*
 * What the guard tells while nothing is wrong: a line for each group now and then, with the rank
 * that its others wait for, where there is one, and the file of metrics.
 *
 * One thread, "ncclguard/status", where either is wanted; nobody waits for it, so that a disk or a
 * pipe that hangs holds up nothing else.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_STATUS_LOG_H
#define NCCLGUARD_CORE_INCIDENT_STATUS_LOG_H

/* The guard starts: so does the thread, where there is anything for it to do. */
void ng_status_log_start(void);

/* A policy is about to end the process: the metrics are written once more. Returns when they are,
 * or after some tenths of a second. Incident thread. */
void ng_status_log_save(void);

/* The process exits: the metrics are written once more, for some tenths of a second at most. */
void ng_status_log_finish(void);

/* No thread but the guard's is left: the thread ends. Does not wait. */
void ng_status_log_quit(void);

/* In a forked child. */
void ng_status_log_after_fork(void);

#endif
