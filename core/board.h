/*
 * The board, as core sees it: what ranks share. Backends live in store/.
 *
 * Only the guard's incident thread calls these, so backends need no locks. No call blocks longer
 * than it says; none is ever made from a program's thread. Loss of a backend is an error return,
 * never a wait.
 */
#ifndef NCCLGUARD_CORE_BOARD_H
#define NCCLGUARD_CORE_BOARD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/descriptor.h"
#include "core/op.h"
#include "core/view.h"

/* Files of incidents, where a backend keeps them as files, are named NG_INCIDENT_PREFIX + epoch. */
#define NG_INCIDENT_PREFIX "incident-"

enum ng_incident_level {
    NG_INCIDENT_SUSPECT = 1, /* a verdict is published, nothing is ended */
    NG_INCIDENT_TIMEOUT = 2, /* a deadline has passed: verdict, dumps of all ranks, policy */
};

enum ng_incident_state {
    NG_INCIDENT_CLAIMED = 1, /* somebody works out the verdict; at level TIMEOUT everybody dumps */
    NG_INCIDENT_JUDGED =
        2, /* `line` holds the verdict; at level TIMEOUT everybody acts by policy */
};

/* One incident of the job. Written by its claimant only. */
struct ng_incident {
    uint64_t epoch; /* from 1; grows with every incident of the job */
    enum ng_incident_level level;
    enum ng_incident_state state;
    uint64_t group_id, seq; /* what is stuck; seq 0: no collective */
    uint32_t op;
    int32_t claimant_rank; /* global; -1 not known */
    int32_t claimant_pid;
    uint64_t claimant_ticks; /* tells a reused pid */
    int64_t claimed_mono_ns;
    int64_t since_mono_ns; /* when that which is stuck began to wait; 0 not known */
    int64_t stalled_ns;    /* work pending for this long counts as stuck in its verdict */
    uint64_t supersedes;   /* incidents up to this epoch are given up: their claimants did not come
                              through */
    char line[512];        /* the verdict in one line */
};

/* What ended ng_board_ops.wait. */
#define NG_BOARD_KICK     1u /* the kick descriptor became readable */
#define NG_BOARD_DEATH    2u /* a process of the job ended */
#define NG_BOARD_INCIDENT 4u /* an incident was claimed or judged, or may have been */

struct ng_board;

struct ng_board_ops {
    /*
     * Sleep until something happens, `timeout_ms` at most. `kick` is an eventfd of the caller's,
     * drained here. Returns NG_BOARD_* bits; 0 on timeout.
     */
    unsigned (*wait)(struct ng_board *board, const struct ng_descriptor *kick, int timeout_ms);

    /* How many processes of the job ended so far, in whatever way, as far as this board has
     * noticed. */
    uint32_t (*ended)(struct ng_board *board);

    /* Append every process of the job that can be seen, this one included, and seal. 0 or -errno.
     */
    int (*view)(struct ng_board *board, struct ng_view *view);

    /*
     * Claim an incident; epoch, state and claimant are filled in. 0: *ret_incident is ours.
     * -EEXIST: *ret_incident is a living claimant's that covers it: the same operation at this
     * level or above, or any timeout that is not judged yet. Another -errno: nothing is known.
     */
    int (*claim)(struct ng_board *board, const struct ng_incident *wanted,
                 struct ng_incident *ret_incident);

    /* Publish a new state of an incident that we claimed. 0 or -errno. */
    int (*publish)(struct ng_board *board, const struct ng_incident *incident);

    /*
     * The incident with the smallest epoch above `epoch`, of those claimed since this process
     * joined: a later incarnation of a job of the same name is never ended by an incident of an
     * earlier one. 0, or -ENOENT.
     */
    int (*next)(struct ng_board *board, uint64_t epoch, struct ng_incident *ret_incident);

    /* Read an incident again by its epoch. 0, or -ENOENT. */
    int (*get)(struct ng_board *board, uint64_t epoch, struct ng_incident *ret_incident);

    /* Does the claimant of this incident still live? */
    bool (*claimant_alive)(struct ng_board *board, const struct ng_incident *incident);

    /* Living processes, this one excluded, whose dump for `epoch` is not written yet. */
    uint32_t (*dumps_missing)(struct ng_board *board, uint64_t epoch);

    /* This process leaves. Where it was the last and nothing happened, nothing stays behind. */
    void (*leave)(struct ng_board *board);

    /* In a forked child, which has no part in it: close what was inherited. Async-signal-safe; the
     * board is not used after it. */
    void (*abandon)(struct ng_board *board);
};

struct ng_board {
    const struct ng_board_ops *ops;
};

#endif
