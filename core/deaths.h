/*
 * Ends of other processes: news of their own.
 *
 * Step 9. If work is pending that needs one that is gone, there is no reason to wait for the
 * suspect time. Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_DEATHS_H
#define NCCLGUARD_CORE_DEATHS_H

#include <stdbool.h>
#include <stdint.h>

/* Has a process ended that pending work needs? */
void ng_deaths_check(void);

/* A verdict of the whole job has been reached: it knows of all ends until now. */
void ng_deaths_are_told(void);

/* Are ends looked into, and when is the next look? */
bool ng_deaths_are_due(int64_t *ret_due_ns);

/* In a forked child. */
void ng_deaths_after_fork(void);

#endif
