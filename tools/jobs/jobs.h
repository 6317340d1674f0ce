/*
 * The job that a command acts on: its store, its name, the folder of its black boxes.
 *
 * Used by the commands that observe a running job.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_JOBS_H
#define NCCLGUARD_TOOLS_JOBS_JOBS_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util/clock.h"
#include "store/board/board_client.h"

/* How long a command waits for a store. */
#define NG_JOBS_WAIT_NS (2 * NG_S)

struct ng_job {
    char name[128];
    char folder[PATH_MAX];
    char why[NG_BOARD_CLIENT_WHY_BYTES]; /* reason of the last failed observation */
    struct ng_observed_job observed;     /* points into the above: do not copy a job */
};

/* The options of commands that take a job, its store and a run. */
#define NG_JOBS_JOB_OPTION                                                                         \
    {                                                                                              \
        "job", "JOB", "the job's name (default: NCCLGUARD_JOB, else the only one on this host)"    \
    }
#define NG_JOBS_STORE_OPTION                                                                       \
    {                                                                                              \
        "store", "URL",                                                                            \
            "where its ranks share what they know (default: NCCLGUARD_STORE, else\n"               \
            "local:); ps does not show the password"                                               \
    }
#define NG_JOBS_RUN_OPTION                                                                         \
    {                                                                                              \
        "run", "RUN", "where several runs of that name are alive: which (the command lists them)"  \
    }

/* A job that has black boxes on this host. */
struct ng_job_here {
    char name[128];
    unsigned processes, living;
    int64_t stuck_ns,
        living_stuck_ns; /* the shortest time after which one of them, or one of those alive, calls
                          * work stuck: suspect time or deadline; 0 none has either */
};

/*
 * Fill in the job: the store `store` (NULL: NCCLGUARD_STORE), the job `name` (NULL: NCCLGUARD_JOB,
 * else the only one alive on this host, else the only one that has left its black boxes here). Of
 * the runs of that name, on this host or on the store, `run` (NULL: the only one alive). 0, or an
 * exit status after reporting the usage error: no such store or run, several jobs or runs (a list),
 * none.
 */
int ng_jobs_choose(const char *command, const char *name, const char *store, const char *run,
                   struct ng_job *ret_job);

/* The same without a choice of run: all that the job has, now or later. Asks no store. */
int ng_jobs_choose_all_runs(const char *command, const char *name, const char *store,
                            struct ng_job *ret_job);

/* Where the jobs of this host are, for a command that looks at all of them. */
struct ng_jobs_of_host {
    char job[128];         /* the only one that is meant; "": all */
    char folder[PATH_MAX]; /* of all their black boxes; "": each has its own */
    bool several_hosts;    /* the store is one of several hosts */
};

/* Of the job `name` (NULL: all), by the store `store` (NULL: NCCLGUARD_STORE). 0, or an exit status
 * after reporting the usage error. */
int ng_jobs_of_host(const char *command, const char *name, const char *store,
                    struct ng_jobs_of_host *ret_where);

/* "0123456789abcdef (4 of 4 processes alive, pid 7 among them), …"; with its host, if there are
 * several. */
void ng_jobs_name_runs(const struct ng_local_run *runs, int count, bool local, char *ret_text,
                       size_t bytes);

/*
 * The time after which the job calls work stuck: from its black boxes on this host, those of live
 * processes first; else NCCLGUARD_SUSPECT of this command, else the default.
 */
int64_t ng_jobs_stuck_ns(const struct ng_job *job);

/* Whether the store is this host's black boxes. */
bool ng_jobs_is_local(const struct ng_job *job);

/* The job as it is now: how many processes were seen, 0 included, or -errno with the reason in
 * job->why. */
int ng_jobs_view(struct ng_job *job, struct ng_view *view);

/* The same for a command that can do nothing without: 0, or an exit status after reporting why. */
int ng_jobs_view_or_tell(const char *command, struct ng_job *job, struct ng_view *view);

/*
 * Report the usage error of a job that cannot be seen, with the jobs that can. Returns the exit
 * status.
 */
int ng_jobs_none(const char *command, const struct ng_job *job);

/* Report why an observation failed with `error`; returns an exit status. */
int ng_jobs_failed(const char *command, const struct ng_job *job, int error);

/* The remedy for a store that could not be queried, by the error of the attempt. */
const char *ng_jobs_mend(int error);

/*
 * Jobs that have black boxes in `folder`; `nested`: in its subfolders. To be freed; NULL none or no
 * memory.
 */
struct ng_job_here *ng_jobs_here(const char *folder, int nested, size_t *ret_count);

/* The TLS implementation for a store, linked in if the build has OpenSSL; NULL: its URL needs none,
 * or this build has none. */
const struct ng_tls_ops *ng_tls_for(const char *url);

#endif
