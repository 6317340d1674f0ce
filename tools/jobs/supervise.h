/*
 * A child process that is run as if its parent were not there.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_SUPERVISE_H
#define NCCLGUARD_TOOLS_JOBS_SUPERVISE_H

#include <stdbool.h>

#include "tools/jobs/job_folders.h"
#include "tools/jobs/leftovers.h"
#include "tools/jobs/rank_ends.h"

/*
 * Run argv (looked up in PATH, environment as it is) in this process's group and terminal until it
 * ends, and then end every process that it left behind: SIGTERM, and after 2 s SIGKILL. Signals
 * sent to this process are passed on to the child; a stop by job control stops this process too. If
 * this process is killed, the child is killed. Job folders that come up meanwhile are noted in
 * `folders`; what a verdict leaves of a job is ended by `leftovers`, so that the child's own end
 * does not wait for it; and the ends of ranks are noted by `ends`. NULL: not wanted.
 *
 * 0 with the child's wait status, or -errno of the failed start: what execvp said (-ENOENT, -EACCES
 * …), or of fork. The process must have one thread. Afterwards every signal that can be blocked is
 * blocked.
 */
int ng_supervise(char *const *argv, struct ng_job_folders *folders, struct ng_leftovers *leftovers,
                 struct ng_rank_ends *ends, int *ret_status);

/* Was this process told to end meanwhile, from the terminal or by somebody: SIGINT, SIGTERM,
 * SIGHUP, SIGQUIT? Then the program was, too. */
bool ng_supervise_was_told_to_end(void);

/* End this process as a child with this wait status ended: same exit code, or by the same signal
 * (no core file). */
_Noreturn void ng_supervise_end_like(int status);

#endif
