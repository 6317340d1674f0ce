/*
 * The board, as core sees it: what ranks share. Backends live in store/.
 *
 * Only the guard's incident thread calls these, so backends need no locks. No call blocks longer
 * than it says; none is ever made from a program's thread. Loss of a backend is an error return,
 * never a wait.
 */
#ifndef NCCLGUARD_CORE_NCCL_BOARD_H
#define NCCLGUARD_CORE_NCCL_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/group_set.h"
#include "core/nccl/op.h"
#include "core/util/arena.h"
#include "core/util/clock.h"
#include "core/util/descriptor.h"

/* Files of incidents, where a backend keeps them as files, are named NG_INCIDENT_PREFIX + epoch. */
#define NG_INCIDENT_PREFIX "incident-"

/* Files of entries likewise, in a form that file names may have. */
#define NG_ENTRY_PREFIX "entry-"

/* Bounds of what a program may put on the board. */
#define NG_BOARD_KEY_MAX   72
#define NG_BOARD_VALUE_MAX 4096
#define NG_BOARD_KEEP_MAX  64 /* entries of one process that live as long as it does */
#define NG_BOARD_HAVE_MAX  64 /* keys that are asked for at once */

/* Room for the name of a run as a folder. */
#define NG_BOARD_RUN_NAME_BYTES 96

enum ng_incident_level {
    NG_INCIDENT_SUSPECT = 1, /* a verdict is published, nothing is ended */
    NG_INCIDENT_TIMEOUT = 2, /* a deadline has passed: verdict, dumps of all ranks, policy */
    NG_INCIDENT_LIMIT        /* every level lies below */
};

/*
 * Epochs are counted up one by one. What lies above the first is no epoch, whoever says so; and
 * what a store tells that lies further ahead of the newest that is known than the second is none
 * that anybody has counted to.
 */
#define NG_EPOCH_MAX       UINT32_MAX
#define NG_EPOCH_AHEAD_MAX (1u << 20)

enum ng_incident_state {
    NG_INCIDENT_CLAIMED = 1, /* somebody works out the verdict; at level TIMEOUT everybody dumps */
    NG_INCIDENT_JUDGED =
        2, /* `line` holds the verdict; at level TIMEOUT everybody acts by policy */
};

/* Where an incident is kept. Each counts epochs of its own. */
enum ng_incident_source {
    NG_SOURCE_HOST = 0, /* the folder of this host's black boxes */
    NG_SOURCE_JOB = 1,  /* the store that all hosts share */
    NG_SOURCES = 2,
};

/* One incident of the job. Written by its claimant only. */
struct ng_incident {
    uint64_t epoch; /* from 1; grows with every incident of its source */
    enum ng_incident_source source;
    enum ng_incident_level level;
    enum ng_incident_state state;
    uint64_t group_id, seq; /* what is stuck; seq 0: no collective */
    uint32_t op;
    int32_t claimant_rank; /* global; -1 not known */
    int32_t claimant_pid;
    uint64_t claimant_ticks; /* tells a reused pid */
    uint64_t claimant_slot;  /* on the job's board; 0 none */
    uint64_t claimant_host;  /* identity of its host and process namespace; 0 not known */
    uint64_t label;          /* of the claimant's incarnation of the job; 0: for all of them */
    int64_t claimed_mono_ns; /* on this host's clock: where it is another's, when it was heard of */
    int64_t since_mono_ns;   /* when that which is stuck began to wait; 0 not known */
    int64_t stalled_ns;      /* work pending for this long counts as stuck in its verdict */
    int32_t policy;          /* enum ng_on_timeout, plus one; 0 not said */
    bool differs;            /* about calls that are not alike, though nothing need be stuck */
    bool failed;  /* since NCCL reports an error, whatever is behind that: no deadline has passed */
    uint8_t kind; /* of the verdict, enum ng_verdict_kind; NG_KIND_HEALTHY: there is none yet */
    uint64_t supersedes; /* incidents of this source up to this epoch are given up: their claimants
                            did not come through */
    char line[512];      /* the verdict in one line */
    struct ng_group_set scope; /* what the policies that abort are to abort; of level TIMEOUT */
};

/* What an operator commands every rank of the job, by `ncclguard abort` and the like. */
enum ng_command_kind {
    NG_COMMAND_ABORT = 1, /* abort `group_id` */
    NG_COMMAND_DUMP,      /* write what `rank` knows and only it can tell, of this host's board into
                             folder `path` */
    NG_COMMAND_REST,   /* the clocks of `group_id` rest for `for_ns`, INT64_MAX: until the next such
                          command; 0: they run again */
    NG_COMMAND_RELOAD, /* read the rules file again */
    NG_COMMAND_LIMIT   /* every kind lies below */
};

struct ng_command {
    enum ng_command_kind kind;
    enum ng_incident_source source;
    uint64_t group_id;     /* 0: all groups */
    int32_t rank;          /* -1: all ranks */
    int64_t for_ns;        /* from 0 */
    int64_t given_mono_ns; /* on this host's clock: where it is another's, when it was heard of */
    char line[512];        /* what is logged of it */
    char path[512];
};

/* What a board has for its ranks. Commands and incidents of a source have one row of epochs. */
struct ng_news {
    uint64_t epoch;
    bool is_command; /* else an incident */
    union {
        struct ng_incident incident;
        struct ng_command command;
    };
};

/*
 * Is `wanted` part of what this incident is about: the same operation at this level or above, or
 * any timeout that is not judged yet? What began after it was judged is something new, though it
 * may look the same.
 */
static inline bool ng_incident_covers(const struct ng_incident *there,
                                      const struct ng_incident *wanted)
{
    if (there->state == NG_INCIDENT_JUDGED && there->claimed_mono_ns < wanted->since_mono_ns)
        return false;
    if (wanted->differs) /* once for each group, wherever its ranks were found to differ */
        return there->differs && there->level >= wanted->level &&
               there->group_id == wanted->group_id;
    if (there->level == NG_INCIDENT_TIMEOUT && there->state == NG_INCIDENT_CLAIMED)
        return true;
    return there->level >= wanted->level && there->group_id == wanted->group_id &&
           there->seq == wanted->seq && there->op == wanted->op;
}

/* After -EBUSY of ng_board_ops.begin, one tries again after this time; at random between the two.
 */
#define NG_CLAIM_PAUSE_NS     (250 * NG_MS)
#define NG_CLAIM_PAUSE_MAX_NS (400 * NG_MS)

/*
 * Does what covers `wanted` do so although its claimant is no more? A claim does not, which he
 * cannot judge any more, nor what is stuck, for another reason perhaps. That calls differ stays
 * true; and whoever was told may have ended since, with an error for the call, so that who looks
 * now finds less.
 */
static inline bool ng_incident_outlives_claimant(const struct ng_incident *there,
                                                 const struct ng_incident *wanted)
{
    return there->differs && wanted->differs && there->state == NG_INCIDENT_JUDGED;
}

/* What ended ng_board_ops.wait. */
#define NG_BOARD_KICK     1u /* the kick descriptor became readable */
#define NG_BOARD_DEATH    2u /* a process of the job ended */
#define NG_BOARD_INCIDENT 4u /* an incident was claimed or judged, or may have been */

/* Why somebody wants to look at the whole job: the more it may find that others do not, the higher.
 */
enum ng_claim_cause {
    NG_CAUSE_END = 1, /* a process ended: every rank with work pending sees the same, and tells of
                         ends alone */
    NG_CAUSE_LATE =
        2, /* something of its own has waited for long: whatever the reason is, it is told */
    NG_CAUSE_OWN = 3, /* it knows something that others cannot see, or do not see yet */
};

/* Small data for all processes of the job. */
struct ng_board_entry {
    const char *key; /* 1 to NG_BOARD_KEY_MAX bytes */
    const void *data;
    size_t bytes;
    /* It goes this long after it was put; 0: it stays as long as its process, and the board's time
     * to live beyond. */
    int64_t keep_ns;
};

/* A verdict as another host published it: verdict.json and verdict.txt. */
struct ng_documents {
    struct ng_arena arena; /* owns both */
    const char *json, *text;
    size_t json_bytes, text_bytes;
};

struct ng_board;
struct ng_box;
struct ng_verdict;
struct ng_view;

struct ng_board_ops {
    /*
     * Sleep until something happens, `timeout_ms` at most. `kick` is an eventfd of the caller's,
     * drained here. Returns NG_BOARD_* bits; 0 on timeout.
     */
    unsigned (*wait)(struct ng_board *board, const struct ng_descriptor *kick, int timeout_ms);

    /* Grows with every process of the job that ends, in whatever way, as far as this board has
     * noticed. */
    uint32_t (*ended)(struct ng_board *board);

    /*
     * An examination of the whole job is expensive, and one is enough: 0: it is ours now, until
     * `finish`, or until it is taken for lost after some seconds; -EBUSY: somebody is at it, or has
     * just found nothing. Each level has its own. Where nobody can be asked, everybody may.
     *
     * Who found nothing holds back those with no better cause than its own, and nobody with
     * NG_CAUSE_OWN. So whoever has a better cause than all others, and tries again within
     * NG_CLAIM_PAUSE_MAX_NS, waits for the one that is at it and no longer, however many others
     * want to look.
     */
    int (*begin)(struct ng_board *board, enum ng_incident_level level, enum ng_claim_cause cause);
    /* `in_vain`: there was nothing to tell; else an incident came of it, or the answer does not
     * matter any more, which says nothing to others. */
    void (*finish)(struct ng_board *board, enum ng_incident_level level, bool in_vain);

    /* Append every process of the job that can be seen, this one included, and seal. 0 or -errno.
     * What of the job could not be asked is told in a note. */
    int (*view)(struct ng_board *board, struct ng_view *view);

    /* The same, of this host only; never waits. */
    int (*view_host)(struct ng_board *board, struct ng_view *view);

    /* Show the black box of every other process of the job on this host that lives and has not
     * begun to leave. A box is there until the next call of any of these. NULL: nobody's can be
     * seen. */
    void (*each)(struct ng_board *board, void (*visit)(void *context, const struct ng_box *box),
                 void *context);

    /* Signal the process of a box that `each` shows, and no other that has its number by now. 0;
     * -ESRCH: it has ended, or cannot be named here; -EPERM: it is another user's by now, or of
     * another run; or -errno. NULL: as of `each`. */
    int (*signal)(struct ng_board *board, const struct ng_box *box, int signal_number);

    /* The policy (one more than enum ng_on_timeout) by which a verdict has ended a rank of this
     * host since this process came, and when that began; 0: none. Of what has been waited for.
     * NULL: as of `each`. */
    uint32_t (*given_up)(struct ng_board *board, int64_t *ret_since_mono_ns);

    /*
     * Where other runs of the job's name live on this host, or did while this process was there,
     * and have the same folder of evidence: 0, and a name for this run, the same for all processes
     * of it. -ENOENT: there are none. Never waits. NULL: no other runs are ever there.
     */
    int (*apart)(struct ng_board *board, char ret_name[NG_BOARD_RUN_NAME_BYTES]);

    /*
     * Groups that their members take for one and the same, by different ids: `group_id`,
     * `other_ids`. From then on what happens to one half is news to the other, unless the board
     * knows that they are of different runs of the job. Waits like `view`.
     */
    void (*unite)(struct ng_board *board, uint64_t group_id, const uint64_t *other_ids,
                  uint32_t count);

    /*
     * Claim an incident; epoch, source, state and claimant are filled in. 0: *ret_incident is ours.
     * -EEXIST: *ret_incident is a living claimant's that covers it, or outlives him: the same
     * operation at this level or above, or any timeout that is not judged yet. Another -errno:
     * nothing is known.
     */
    int (*claim)(struct ng_board *board, const struct ng_incident *wanted,
                 struct ng_incident *ret_incident);

    /* Publish the verdict on an incident that we claimed: state JUDGED and `line`. 0 or -errno. */
    int (*publish)(struct ng_board *board, const struct ng_incident *incident,
                   const struct ng_verdict *verdict);

    /*
     * The incident or command of a source with the smallest epoch above `epoch`, of those since
     * this process joined: a later incarnation of a job of the same name is never ended by an
     * incident of an earlier one. 0, or -ENOENT.
     */
    int (*next)(struct ng_board *board, enum ng_incident_source source, uint64_t epoch,
                struct ng_news *ret_news);

    /* Read an incident again, by its source and epoch. 0, or -ENOENT. */
    int (*get)(struct ng_board *board, struct ng_incident *incident);

    /* Does the claimant of this incident still live? If not, all that it has said of it is there
     * for `get`. */
    bool (*claimant_alive)(struct ng_board *board, const struct ng_incident *incident);

    /* This process has written its dump for an incident. */
    void (*dumped)(struct ng_board *board, const struct ng_incident *incident);

    /* Living processes, this one excluded, whose dump for it is not written yet. */
    uint32_t (*dumps_missing)(struct ng_board *board, const struct ng_incident *incident);

    /* The documents of a verdict that was reached on another host; the caller gives back their
     * arena. 0; -ENOENT: it was reached here, or there are none; or -errno. */
    int (*read_verdict)(struct ng_board *board, const struct ng_incident *incident,
                        struct ng_documents *ret_documents);

    /* The id of the group that others of the job joined under `joined_id`: core/view/grow_id.h. 0;
     * -ENOENT: nobody has told it yet. Never waits. */
    int (*grown)(struct ng_board *board, uint64_t joined_id, uint64_t *ret_id);

    /*
     * Agreeing across hosts (core/check/lockstep_check.h): what this process's hash logs say of
     * that is told to other hosts, and what those say is put there, until nothing waits any more;
     * the incident thread is woken by it. `changed`: there is more to tell. 0, or -EIO: the store
     * cannot be used at the moment. Never waits. NULL: there are no other hosts.
     */
    int (*agree)(struct ng_board *board, bool changed);

    /*
     * Put an entry where there is none. 0, also where the same process has put the same before;
     * -EEXIST: there is another, of a process that lives or has ended a moment ago; -ENOSPC: no
     * room, or too many of this process; -EIO: the store does not answer at the moment; or -errno.
     */
    int (*put)(struct ng_board *board, const struct ng_board_entry *entry);

    /* What was put under `key`: *ret_bytes of it, in ret_data, which has room for
     * NG_BOARD_VALUE_MAX. 0; -ENOENT; -EIO, -errno as above. */
    int (*fetch)(struct ng_board *board, const char *key, void *ret_data, size_t *ret_bytes);

    /* Of the keys "<prefix><number>", `count` numbers from `first` (up to NG_BOARD_HAVE_MAX): bit i
     * of *ret_there says that there is one for first + i. 0, -EIO, -errno. */
    int (*have)(struct ng_board *board, const char *prefix, uint32_t first, uint32_t count,
                uint64_t *ret_there);

    /* Nobody needs this entry of ours any more; where it goes by itself soon, nothing is done. */
    void (*forget)(struct ng_board *board, const char *key);

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
