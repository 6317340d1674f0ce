/*
 * What no rank of this host can read from the store, or tell it: all of them are frozen, or gone.
 *
 * Ranks read the store of several hosts themselves. If no rank of a host can, `ncclguard run` does,
 * and leaves on that host's disk what a rank would have left there. It also tells the store of
 * ranks that died, since no rank of their host may be left.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_WITNESS_H
#define NCCLGUARD_TOOLS_JOBS_WITNESS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/nccl/board.h"

/* The same for all runs. Texts belong to the caller, and outlive the witnesses. */
struct ng_witness_options {
    const char *store;    /* NCCLGUARD_STORE */
    const char *key_file; /* NCCLGUARD_STORE_KEY; NULL none */
    const char *evidence; /* folder of the evidence; NULL: the default one of the job */
};

/* One run on this host. */
struct ng_witness_run {
    const struct ng_witness_options *options;
    char job[128];
    char evidence[PATH_MAX];
    uint64_t id; /* as in struct ng_local_run */
    uint64_t groups[32];
    uint32_t group_count;
};

/* Do ranks of several hosts share the store? If not, it has no verdict. */
bool ng_witness_is_of_use(const struct ng_witness_options *options);

/*
 * The run under this `ncclguard run` that has left its black boxes in the folder: that of the
 * process with this id, 0: any. False: there is none, or it has no group.
 */
bool ng_witness_find_run(const struct ng_witness_options *options, const char *boxes, int pid,
                         struct ng_witness_run *ret_run);

/*
 * Read a verdict of an incident above `epoch` from the store, and put it into the evidence folder.
 * 0; -ENOENT: there is none; or -errno. *ret_living: live processes of the job; may be NULL. Waits
 * for the store for at most two seconds.
 */
int ng_witness_look(const struct ng_witness_run *run, uint64_t epoch,
                    struct ng_incident *ret_incident, uint32_t *ret_living);

/*
 * Do so in a separate process, once a second, until there is a verdict on a deadline; then dump the
 * black boxes of the run, and write its incident to the returned descriptor, which is nonblocking.
 * End of file: nothing more will arrive. Closing it ends the process. -errno: it could not be
 * started. The calling process must have one thread.
 */
int ng_witness_start(const struct ng_witness_run *run);

/*
 * Tell the store, in a separate process, that the ranks that left the black boxes at `paths` have
 * died: no rank of this host may be left to do it. That process lasts for a minute at most, if the
 * store does not answer; a black box that cannot be opened keeps those behind it back for 5 s.
 * SIGTERM does not end it. The calling process must have one thread.
 */
void ng_witness_report_ends(const struct ng_witness_options *options, const char *const *paths,
                            size_t count);

#endif
