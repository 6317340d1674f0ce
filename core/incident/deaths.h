/*
 * Reacts to ends of other processes.
 *
 * If pending work needs a rank that is gone, there is no reason to wait for the suspect time.
 * Incident thread alone, except ng_deaths_await_report.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_DEATHS_H
#define NCCLGUARD_CORE_INCIDENT_DEATHS_H

#include <stdbool.h>
#include <stdint.h>

struct ng_comm;

/* Check whether a process has ended that pending work needs. */
void ng_deaths_check(void);

/*
 * Program threads: NCCL has failed a call on this communicator (NULL: not known) because a peer is
 * gone. The program may exit because of it at once, before any rank has waited, so the dead peer is
 * identified now. Returns when it is reported or no dead peer is found, after 300 ms at most (1 s
 * with a store). Returns at once if this was done within the last seconds, if the communicator is
 * being aborted, or if suspicions are off (NCCLGUARD_SUSPECT=0). Records the error on the
 * communicator. Keeps errno.
 */
void ng_deaths_await_report(struct ng_comm *comm);

/* Are ends being examined? *ret_due_ns is when the next check is due. */
bool ng_deaths_are_due(int64_t *ret_due_ns);

#endif
