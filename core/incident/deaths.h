/*
 * Ends of other processes: news of their own.
 *
 * If work is pending that needs one that is gone, there is no reason to wait for the suspect time.
 * Incident thread alone, but for ng_deaths_hear.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_DEATHS_H
#define NCCLGUARD_CORE_INCIDENT_DEATHS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/util/clock.h"

struct ng_comm;
struct ng_incident;
struct ng_verdict;

#define NG_DEATHS_STALL_NS (200 * NG_MS) /* work pending this long, and a rank it needs is gone */

/* Has a process ended that pending work needs? */
void ng_deaths_check(void);

/*
 * Program threads: NCCL fails a call of this communicator (NULL: not known) since a peer is gone.
 * The program may end for it in the next instant, before anybody has waited for anything: who it is
 * is looked for now. Returns when that is told, or nobody is found to be gone, after 300 ms at most
 * (a second, with a store); at once where that was done within the last seconds, where the
 * communicator is being aborted, and where nobody asks for suspicions (NCCLGUARD_SUSPECT=0). The
 * communicator is known to have that error from then on. Keeps errno.
 */
void ng_deaths_hear(struct ng_comm *comm);

/* A verdict of the whole job has been reached: it knows of all ends until now. */
void ng_deaths_are_told(void);

/* A verdict, of this process or another: the end that it is about is no news any more, though
 * whoever reported it may be gone by now. A suspicion starts the clock of NCCLGUARD_DEATH_TIMEOUT.
 */
void ng_deaths_note(const struct ng_incident *incident);

/*
 * NCCLGUARD_DEATH_TIMEOUT has passed since an end was known that others wait for, and this is the
 * verdict now. Does the policy act? Only if the end is certain, and both it and the wait are as
 * old. If not, the clock runs on for the rest of the time; it ends where nobody waits any more for
 * a rank that ended.
 */
bool ng_deaths_may_act(const struct ng_verdict *verdict);

/* Are ends looked into, and when is the next look? */
bool ng_deaths_are_due(int64_t *ret_due_ns);

/* In a forked child. */
void ng_deaths_after_fork(void);

#endif
