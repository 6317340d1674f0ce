/*
 * The board of one host: the job's folder of black boxes in shared memory. No server.
 *
 * Ranks observe each other's progress by reading each other's boxes. Liveness is observed by pidfd,
 * or, if process namespaces differ, by the lock that every process holds on its box. Incidents are
 * small files, claimed by link(2), which succeeds for exactly one process. News arrives through
 * inotify; if it is not available, the board polls.
 */
#ifndef NCCLGUARD_STORE_BOARD_LOCAL_H
#define NCCLGUARD_STORE_BOARD_LOCAL_H

#include <stdbool.h>

#include "core/nccl/board.h"
#include "core/view/view.h"

struct ng_box;

/*
 * The board in `folder`, which exists. `own_box` is this process's and must outlive the board; it
 * is read when the board is first used, so it may be created afterwards. 0 or -errno; freed with
 * the process.
 */
int ng_local_open(const char *folder, const struct ng_box *own_box, struct ng_board **ret_board);

/* A process of this host as the board knows it; valid during the call. */
struct ng_local_peer {
    const struct ng_box *box;
    const char *name; /* of its box */
    enum ng_life life;
    bool self;
    bool met;    /* it was alive when this process first saw it */
    bool execed; /* it now runs another program */
    int end;     /* of a dead one: ng_proc_end */
};
typedef void ng_local_each_fn(void *context, const struct ng_local_peer *peer);

/* Every process that the board has seen so far. Incident thread; never blocks. */
void ng_local_each(struct ng_board *board, ng_local_each_fn *each, void *context);

/*
 * For tools: store a complete record, such as that of a command (store/wire/command_record.h), for
 * the processes of one run in a job's folder (0: all). *ret_living: how many of them were alive; if
 * none, nothing is stored. 0 or -errno.
 */
int ng_local_leave(const char *folder, uint64_t run, const struct ng_incident *record,
                   uint32_t *ret_living);

/* A run among the processes of a folder. */
struct ng_local_run {
    uint64_t id;                        /* never 0 */
    int pid;                            /* of one of its processes */
    char job[128];                      /* that process's name for its job */
    char name[NG_BOARD_RUN_NAME_BYTES]; /* of its evidence folder, if it has its own */
    unsigned processes, living;
};

/* A process, and the run to which it belongs. */
struct ng_local_process {
    int pid;
    uint64_t start_ticks;
    uint64_t run; /* as in struct ng_local_run; 0: it has no black box in the folder */
};

/* For tools: complete `run` of each, from the current boxes in a folder. 0 or -errno. */
int ng_local_find_runs_of(const char *folder, struct ng_local_process *processes, uint32_t count);

/* For tools: the runs in a folder, at most `room`. How many, or -errno. */
int ng_local_runs(const char *folder, struct ng_local_run *ret_runs, uint32_t room);

/*
 * For tools: read an incident from the file at `path` in a job's folder (NG_INCIDENT_PREFIX and its
 * epoch), however old it is. 0; -EBADMSG: not an incident; or -errno.
 */
int ng_local_read_incident(const char *path, struct ng_incident *ret_incident);

/*
 * For tools: append every black box of one run in `folder` (0: of all) to a view, with the current
 * liveness of its process, and seal the view. Files that are not usable boxes get a note. Returns
 * how many boxes were read, or -errno.
 */
int ng_local_collect(const char *folder, uint64_t run, struct ng_view *view);

#endif
