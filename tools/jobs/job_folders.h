/*
 * The folders in shared memory of the jobs that run under this process: found while they run,
 * removed at their end.
 *
 * The launcher that is run names the job, in its children's environment, so that the name cannot be
 * known beforehand. What can be seen is that a descendant of ours puts its black box into a folder.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_JOB_FOLDERS_H
#define NCCLGUARD_TOOLS_JOBS_JOB_FOLDERS_H

#include <stdbool.h>
#include <stddef.h>

struct ng_job_folders {
    int fd; /* of inotify; -1 none: one must look now and then */
    int base_watch;
    char base[64];
    struct ng_job_folder *list;
    size_t count;
};

/*
 * Watch the places where libraries of this user put black boxes. News come as SIGIO of code
 * POLL_IN, upon which ng_job_folders_look is due: that signal must be blocked. Where the system has
 * no more watches to give (fd -1), it is due once a second: black boxes say of which run they are,
 * that which NCCLGUARD_RUN_ID names.
 */
void ng_job_folders_watch(struct ng_job_folders *ret_folders);

/* Take note of what came since. */
void ng_job_folders_look(struct ng_job_folders *folders);

/* Whether a descendant of ours was seen to put its black box into any of them, or may have without
 * being seen. */
bool ng_job_folders_used(const struct ng_job_folders *folders);

/* The i-th of those folders' jobs, as the launcher named it, from 0; NULL there are no more. Theirs
 * until they are removed. */
const char *ng_job_folders_name(const struct ng_job_folders *folders, size_t i);

/* The folder of the i-th of them stays. */
void ng_job_folders_keep(struct ng_job_folders *folders, size_t i);

/*
 * Shared memory is memory: remove the folders that descendants of ours used and in which no process
 * lives any more; up to 2 s for a black box whose lock has outlived its process. Those in which
 * somebody else's ranks of the same job live stay. Ends the watching.
 */
void ng_job_folders_remove(struct ng_job_folders *folders);

#endif
