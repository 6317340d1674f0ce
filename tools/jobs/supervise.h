/*
 * Runs a child process as if its parent were not there.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_SUPERVISE_H
#define NCCLGUARD_TOOLS_JOBS_SUPERVISE_H

#include <stdbool.h>

#include "tools/jobs/job_folders.h"
#include "tools/jobs/leftovers.h"
#include "tools/jobs/rank_ends.h"

/*
 * Run argv (looked up in PATH, environment unchanged) in this process's group and terminal until it
 * ends, and then end every process that it left behind: SIGTERM, and after 2 s SIGKILL. Signals
 * sent to this process are passed on to the child; a stop by job control stops this process too. If
 * this process is killed, the child is killed. Job folders that appear meanwhile are recorded in
 * `folders`; `leftovers` ends the processes that a verdict leaves of a job, so that the child's own
 * end does not wait for them; `ends` records the ends of ranks. NULL: not wanted.
 *
 * 0 with the child's wait status, or -errno of the failed start: of execvp (-ENOENT, -EACCES …) or
 * of fork. The process must have one thread. Afterwards every signal that can be blocked is
 * blocked.
 */
int ng_supervise(char *const *argv, struct ng_job_folders *folders, struct ng_leftovers *leftovers,
                 struct ng_rank_ends *ends, int *ret_status);

/* Did this process receive SIGINT, SIGTERM, SIGHUP or SIGQUIT meanwhile? Then the program did,
 * too. */
bool ng_supervise_got_end_signal(void);

/* End this process as a child with this wait status ended: with the same exit code, or by the same
 * signal (no core file). */
_Noreturn void ng_supervise_end_like(int status);

#endif
