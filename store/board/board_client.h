/*
 * The board seen from outside, by tools: a job's processes, and orders to them.
 *
 * The store is the one that the job has: `local:` (the folder of its black boxes) or Redis. Any one
 * thread at a time; allocates; waits until its deadline, never longer. No password is in any text.
 */
#ifndef NCCLGUARD_STORE_BOARD_BOARD_CLIENT_H
#define NCCLGUARD_STORE_BOARD_BOARD_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/view/view.h"

struct ng_tls_ops;

struct ng_observed_job {
    const char *url;    /* NCCLGUARD_STORE */
    const char *folder; /* of the job's black boxes, for a local store; NULL none */
    const char *job;
    const struct ng_tls_ops *tls; /* what speaks TLS; NULL: rediss:// is an error */
    const char *key_file;         /* NCCLGUARD_STORE_KEY; NULL or "" none */
    uint64_t run;                 /* in that folder: of struct ng_local_run; 0 all */
};

/* Room that suffices for every `why`. */
#define NG_BOARD_CLIENT_WHY_BYTES 512

/*
 * Append all processes of the job that can be seen to a view, and seal it. How many, 0 included (no
 * such job), or -errno; then `why` has one line for people, with the mend.
 */
int ng_board_client_view(const struct ng_observed_job *job, int64_t deadline_mono_ns,
                         struct ng_view *view, char *why, size_t why_bytes);

/* Give every rank of the job a command. How many processes of it lived, or -errno as above. */
int ng_board_client_order(const struct ng_observed_job *job, const struct ng_command *command,
                          int64_t deadline_mono_ns, char *why, size_t why_bytes);

/* A verdict that ranks have put on a store of several hosts. */
struct ng_board_client_verdict {
    struct ng_incident incident;   /* judged; its times are left 0 */
    struct ng_documents documents; /* NULL: there are none; the caller gives back their arena */
};

/*
 * The newest verdict on the store, of an incident above `epoch`, on the run of the job that these
 * groups are of; one on a deadline goes before suspicions. 0; -ENOENT: there is none, or the store
 * is none of several hosts; or -errno as above. *ret_living: processes of the job that live, as the
 * store knows; NULL: not asked for.
 */
int ng_board_client_verdict(const struct ng_observed_job *job, const uint64_t *group_ids,
                            uint32_t group_count, uint64_t epoch, int64_t deadline_mono_ns,
                            struct ng_board_client_verdict *ret_verdict, uint32_t *ret_living,
                            char *why, size_t why_bytes);

#endif
