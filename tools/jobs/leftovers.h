/*
 * What a verdict leaves of a job: processes that the guard inside them cannot end.
 *
 * A rank that is frozen, one that has never called NCCL, one whose guard does not get to its end.
 * With policies `kill` and `teardown` the job is over once the guard has ended a rank of it.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_LEFTOVERS_H
#define NCCLGUARD_TOOLS_JOBS_LEFTOVERS_H

#include <stdint.h>

#include "tools/jobs/job_folders.h"
#include "tools/jobs/witness.h"

struct ng_leftovers;

/* `dir`: the folder of black boxes that the user has named; NULL none. `witness` outlives it. NULL:
 * no memory. */
struct ng_leftovers *ng_leftovers_create(const char *dir, int64_t abort_wait_ns,
                                         const struct ng_witness_options *witness);
void ng_leftovers_destroy(struct ng_leftovers *leftovers);

/*
 * Look into the folders of the jobs that run under this process: has a rank been ended by its
 * guard, and does anything of that job live 2 s later? What has been there at the verdict and
 * descends from this process gets SIGTERM, and 2 s later SIGKILL; what is stopped gets SIGKILL at
 * once; each with a line on stderr. Processes that began later are a new attempt of the launcher's,
 * and left alone. The launcher likewise, once it has had neither a child nor work for 5 s after the
 * last of them is gone; but not torchrun with restarts left.
 *
 * Where no guard of a run on this host gives a sign of life, as its ranks are frozen, the verdict
 * comes from the store of several hosts.
 *
 * Returns within how many milliseconds it is due again.
 */
int ng_leftovers_tend(struct ng_leftovers *leftovers, const struct ng_job_folders *folders);

#endif
