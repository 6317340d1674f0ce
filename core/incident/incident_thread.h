/*
 * The incident thread: takes alarms of this process and news of others to a verdict and its
 * consequences.
 *
 * One thread per process. It never calls CUDA or NCCL: it must work when those hang.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_INCIDENT_THREAD_H
#define NCCLGUARD_CORE_INCIDENT_INCIDENT_THREAD_H

#include <stdbool.h>

/* Start the thread. 0 or -errno. */
int ng_incident_start(void);

/* Wake the thread and let it end; returns when it has ended, or after `bound_ms`; some seconds
 * later while a deadline's verdict is on its way to the disk. False: it did not end in time. */
bool ng_incident_finish(int bound_ms);

#endif
