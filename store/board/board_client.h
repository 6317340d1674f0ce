/*
 * The board as tools use it from outside: a job's processes, and commands to them.
 *
 * The store is the job's: `local:` (the folder of its black boxes) or Redis. One thread at a time;
 * allocates; waits until its deadline, never longer. No text contains a password.
 */
#ifndef NCCLGUARD_STORE_BOARD_BOARD_CLIENT_H
#define NCCLGUARD_STORE_BOARD_BOARD_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/view/view.h"
#include "store/board/local.h"

struct ng_kv_jobs;
struct ng_tls_ops;

struct ng_observed_job {
    const char *url;    /* NCCLGUARD_STORE */
    const char *folder; /* folder of the job's black boxes, for a local store; NULL none */
    const char *job;
    const struct ng_tls_ops *tls; /* the TLS implementation; NULL: rediss:// is an error */
    const char *key_file;         /* NCCLGUARD_STORE_KEY; NULL or "" none */
    uint64_t run; /* run in that folder or on that store, as in struct ng_local_run; 0 all */
};

/* Large enough for every `why`. */
#define NG_BOARD_CLIENT_WHY_BYTES 512

/*
 * Append all visible processes of the job to a view, and seal it. Returns how many, 0 included (no
 * such job), or -errno; then `why` has one line for the user, with the remedy.
 */
int ng_board_client_view(const struct ng_observed_job *job, int64_t deadline_mono_ns,
                         struct ng_view *view, char *why, size_t why_bytes);

/* The runs of the job on a store of several hosts, up to `room` of them; `name` is the host of the
 * process `pid`. Returns how many, or -errno as above; 0 also if it is not such a store. */
int ng_board_client_runs(const struct ng_observed_job *job, int64_t deadline_mono_ns,
                         struct ng_local_run *ret_runs, uint32_t room, char *why, size_t why_bytes);

/* The jobs on a store of several hosts, whichever `job` is named. 0, or -errno as above; none also
 * if it is not such a store. */
int ng_board_client_jobs(const struct ng_observed_job *job, int64_t deadline_mono_ns,
                         struct ng_kv_jobs *ret_jobs, char *why, size_t why_bytes);

/* Give every rank of the job, or of its run, a command. Returns how many of its processes were
 * alive, or -errno as above. */
int ng_board_client_order(const struct ng_observed_job *job, const struct ng_command *command,
                          int64_t deadline_mono_ns, char *why, size_t why_bytes);

/* A verdict that ranks have stored on a store of several hosts. */
struct ng_board_client_verdict {
    struct ng_incident incident;   /* complete, except that its times are 0 */
    struct ng_documents documents; /* NULL: none; the caller releases their arena */
};

/*
 * The newest verdict on the store, for an incident above `epoch` of the run to which these groups
 * belong; a verdict on a deadline takes precedence over suspicions. 0; -ENOENT: there is none, or
 * the store is not one of several hosts; or -errno as above. *ret_living: how many processes of the
 * run are alive according to the store (of the job, if the run is not known there); may be NULL.
 */
int ng_board_client_verdict(const struct ng_observed_job *job, const uint64_t *group_ids,
                            uint32_t group_count, uint64_t epoch, int64_t deadline_mono_ns,
                            struct ng_board_client_verdict *ret_verdict, uint32_t *ret_living,
                            char *why, size_t why_bytes);

/*
 * Tell the store of several hosts that processes of the job have died, which left black boxes at
 * `paths`; in each, how and when it was seen to end is recorded. `told` (in and out): those that
 * need not be told any more: told now or by others, or of no interest. They are told in the order
 * of `paths`, none before those ahead of it, be it that a black box cannot be opened now. Tries
 * until the deadline. 0: all those of this job are told; or -errno as above.
 */
int ng_board_client_report_ends(const struct ng_observed_job *job, const char *const *paths,
                                bool *told, size_t count, int64_t deadline_mono_ns, char *why,
                                size_t why_bytes);

#endif
