/*
 * The folders in shared memory of the jobs that run under this process: found while they run,
 * removed at their end.
 *
 * The launcher that is run names the job, in its children's environment, so the name is not known
 * beforehand. What can be observed is that a descendant of ours puts its black box into a folder.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_JOB_FOLDERS_H
#define NCCLGUARD_TOOLS_JOBS_JOB_FOLDERS_H

#include <stdbool.h>
#include <stddef.h>

struct ng_job_folders {
    int fd; /* of inotify; -1 none: polling is needed */
    int base_watch;
    char base[64];
    struct ng_job_folder *list;
    size_t count;
};

/*
 * Watch the places where libraries of this user put black boxes. News arrives as SIGIO with code
 * POLL_IN, upon which ng_job_folders_look is due: that signal must be blocked. If the system has no
 * watches left (fd -1), it is due once a second. A black box states its run, which must be the one
 * that NCCLGUARD_RUN_ID names.
 */
void ng_job_folders_watch(struct ng_job_folders *ret_folders);

/* Record what has appeared since the last call. */
void ng_job_folders_look(struct ng_job_folders *folders);

/* Whether a descendant of ours was seen to put its black box into any of them, or may have done so
 * unseen. */
bool ng_job_folders_used(const struct ng_job_folders *folders);

/* The job of the i-th of those folders, as the launcher named it, from 0; NULL there are no more.
 * Owned by the folders, until these are removed. */
const char *ng_job_folders_name(const struct ng_job_folders *folders, size_t i);

/* Keep the i-th folder at the end. */
void ng_job_folders_keep(struct ng_job_folders *folders, size_t i);

/*
 * Release shared memory: remove the folders that descendants of ours used and in which no process
 * is alive any more, waiting up to 2 s for a black box whose lock has outlived its process, and
 * those that have appeared since and are empty, whoever used them. Folders with live ranks of the
 * same job that we did not start stay. Ends the watching.
 */
void ng_job_folders_remove(struct ng_job_folders *folders);

#endif
