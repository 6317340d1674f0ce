/*
 * Processes that remain of a job after a verdict, since the guard inside them cannot end them.
 *
 * These are a rank that is frozen, one that has never called NCCL, and one whose guard does not get
 * to ending it. With policies `kill` and `teardown` the job is over once the guard has ended one of
 * its ranks.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_LEFTOVERS_H
#define NCCLGUARD_TOOLS_JOBS_LEFTOVERS_H

#include <stdint.h>

#include "tools/jobs/job_folders.h"
#include "tools/jobs/witness.h"

struct ng_leftovers;

/* `dir`: the folder of black boxes that the user has set; NULL none. `witness` outlives it. NULL:
 * no memory. */
struct ng_leftovers *ng_leftovers_create(const char *dir, int64_t abort_wait_ns,
                                         const struct ng_witness_options *witness);
void ng_leftovers_destroy(struct ng_leftovers *leftovers);

/*
 * Check the folders of the jobs that run under this process: has a rank been ended by its guard,
 * and is any process of that job alive 2 s later? Processes that existed at the verdict and descend
 * from this process get SIGTERM, and 2 s later SIGKILL; stopped ones get SIGKILL at once; each with
 * a line on stderr. Processes that began later belong to a new attempt of the launcher and are left
 * alone. The launcher is ended in the same way once it has had neither a child nor work for 5 s
 * after the last of them is gone; but not torchrun with restarts left.
 *
 * If no guard of a run on this host gives a sign of life, since its ranks are frozen, the verdict
 * is read from the store of several hosts.
 *
 * Returns in how many milliseconds the next call is due.
 */
int ng_leftovers_check(struct ng_leftovers *leftovers, const struct ng_job_folders *folders);

#endif
