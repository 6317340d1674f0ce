/*
 * The board of one host: the job's folder of black boxes in shared memory. No server.
 *
 * Ranks see each other's progress by reading each other's boxes; liveness by pidfd, or, where
 * process namespaces differ, by the lock that every process holds on its box; incidents are small
 * files, claimed by link(2), which succeeds for exactly one; news arrive through inotify, or are
 * looked for where there is none to be had.
 */
#ifndef NCCLGUARD_STORE_BOARD_LOCAL_H
#define NCCLGUARD_STORE_BOARD_LOCAL_H

#include <stdbool.h>

#include "core/nccl/board.h"
#include "core/view/view.h"

struct ng_box;

/*
 * The board in `folder`, which exists. `own_box` is this process's, and must outlive the board; it
 * is read when the board is first used, so it may be made afterwards. 0 or -errno; freed with the
 * process.
 */
int ng_local_open(const char *folder, const struct ng_box *own_box, struct ng_board **ret_board);

/* A process of this host as the board knows it; valid during the call. */
struct ng_local_peer {
    const struct ng_box *box;
    const char *name; /* of its box */
    enum ng_life life;
    bool self;
    bool met;    /* it lived when this process first saw it */
    bool execed; /* it has become another program */
    int end;     /* of a dead one: ng_proc_end */
};
typedef void ng_local_each_fn(void *context, const struct ng_local_peer *peer);

/* Every process that the board has seen so far. Incident thread; never waits. */
void ng_local_each(struct ng_board *board, ng_local_each_fn *each, void *context);

/*
 * Leave a record that is complete, as that of a command (store/wire/command_record.h), for the
 * processes of one run in a job's folder (0: of all): for tools. *ret_living: how many there were;
 * with none, nothing is left. 0 or -errno.
 */
int ng_local_leave(const char *folder, uint64_t run, const struct ng_incident *record,
                   uint32_t *ret_living);

/* A run among the processes of a folder. */
struct ng_local_run {
    uint64_t id;                        /* never 0 */
    int pid;                            /* of one of its processes, */
    char job[128];                      /* and what that calls its job */
    char name[NG_BOARD_RUN_NAME_BYTES]; /* of its folder of evidence, where it has one of its own */
    unsigned processes, living;
};

/* A process, and the run that it is of. */
struct ng_local_process {
    int pid;
    uint64_t start_ticks;
    uint64_t run; /* as in struct ng_local_run; 0: it has no black box in the folder */
};

/* Complete `run` of each, by the boxes of a folder as they are now: for tools. 0 or -errno. */
int ng_local_find_runs_of(const char *folder, struct ng_local_process *processes, uint32_t count);

/* The runs in a folder, `room` at most: for tools. How many, or -errno. */
int ng_local_runs(const char *folder, struct ng_local_run *ret_runs, uint32_t room);

/*
 * What the file at `path` of a job's folder, NG_INCIDENT_PREFIX and its epoch, says of an incident,
 * however long ago: for tools. 0; -EBADMSG it is none; or -errno.
 */
int ng_local_read_incident(const char *path, struct ng_incident *ret_incident);

/*
 * Append every black box of one run in `folder` (0: of all) to a view, with the liveness of its
 * process now, and seal it: for tools. Files that are no usable box get a note. Returns how many
 * boxes were read, or -errno.
 */
int ng_local_collect(const char *folder, uint64_t run, struct ng_view *view);

#endif
