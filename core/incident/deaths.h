/*
 * Reacts to ends of other processes.
 *
 * If pending work needs a rank that is gone, there is no reason to wait for the suspect time.
 * Incident thread alone, except ng_deaths_hear.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_DEATHS_H
#define NCCLGUARD_CORE_INCIDENT_DEATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/util/clock.h"

struct ng_comm;
struct ng_incident;
struct ng_verdict;

#define NG_DEATHS_STALL_NS (200 * NG_MS) /* work pending this long, with a needed rank gone */

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
void ng_deaths_hear(struct ng_comm *comm);

/* A verdict on the whole job has been reached: it covers all ends so far. */
void ng_deaths_are_reported(void);

/* Note a verdict of this or another process: the end that it reports is not reported again, even if
 * the reporting process is gone by now. A suspicion starts the NCCLGUARD_DEATH_TIMEOUT clock. */
void ng_deaths_note(const struct ng_incident *incident);

/*
 * NCCLGUARD_DEATH_TIMEOUT has passed since the first report of an end that others wait for, and
 * this is the current verdict. May the policy act? Only if the end is certain and both the end and
 * the wait are at least that old. If not, the clock runs for the remaining time; it stops when no
 * rank waits for an ended rank any more.
 */
bool ng_deaths_may_act(const struct ng_verdict *verdict);

/* Are ends being examined? *ret_due_ns is when the next check is due. */
bool ng_deaths_are_due(int64_t *ret_due_ns);

/* In a forked child. */
void ng_deaths_after_fork(void);

#endif
