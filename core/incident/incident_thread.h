/*
 * Incidents: from an alarm of this process, or news of another, to a verdict and its consequences.
 *
 * One thread per process, which never calls CUDA or NCCL: it must work when those hang.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_INCIDENT_THREAD_H
#define NCCLGUARD_CORE_INCIDENT_INCIDENT_THREAD_H

#include <stdbool.h>

/* Start the thread. 0 or -errno. */
int ng_incident_start(void);

/* Incident thread, where there is a board: until there is news, or for so long. */
void ng_incident_pause(int timeout_ms);

/* Wake the thread and let it end; returns when it has, or after `bound_ms`. False: it did not end
 * in time. Where a deadline's verdict is on its way to the disk, some seconds more. */
bool ng_incident_finish(int bound_ms);

/* In a forked child. */
void ng_incident_after_fork(void);

#endif
