/*
 * The board, as core sees it: data shared by the ranks. Backends are in store/.
 *
 * Only the guard's incident thread calls these, so backends need no locks. No call blocks longer
 * than documented; none is ever made from a thread of the program. Loss of a backend is an error
 * return, never a wait.
 */
#ifndef NCCLGUARD_CORE_NCCL_BOARD_H
#define NCCLGUARD_CORE_NCCL_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/group_set.h"
#include "core/nccl/op.h"
#include "core/nccl/verdict_kind.h"
#include "core/util/arena.h"
#include "core/util/clock.h"
#include "core/util/descriptor.h"

/* If a backend stores incidents as files, they are named NG_INCIDENT_PREFIX + epoch. */
#define NG_INCIDENT_PREFIX "incident-"

/* Files of entries begin with this prefix, followed by the key in a form that file names may
 * have. */
#define NG_ENTRY_PREFIX "entry-"

/* Limits of what a program may put on the board. */
#define NG_BOARD_KEY_MAX   72
#define NG_BOARD_VALUE_MAX 4096
#define NG_BOARD_KEEP_MAX  64 /* entries of one process that live as long as it does */
#define NG_BOARD_HAVE_MAX  64 /* keys per query */

/* Room for a run's name as a folder name. */
#define NG_BOARD_RUN_NAME_BYTES 96

enum ng_incident_level {
    NG_INCIDENT_SUSPECT = 1, /* a verdict is published, nothing is ended */
    NG_INCIDENT_TIMEOUT = 2, /* a deadline has passed: verdict, dumps of all ranks, policy */
    NG_INCIDENT_LIMIT        /* every level is below */
};

/*
 * Epochs are counted up one by one. A number above the first limit is never a valid epoch. An epoch
 * from a store that is further ahead of the newest known one than the second limit is invalid, too.
 */
#define NG_EPOCH_MAX       UINT32_MAX
#define NG_EPOCH_AHEAD_MAX (1u << 20)

enum ng_incident_state {
    NG_INCIDENT_CLAIMED =
        1, /* its claimant works out the verdict; at level TIMEOUT all ranks dump */
    NG_INCIDENT_JUDGED = 2, /* `line` holds the verdict; at level TIMEOUT all ranks act by policy */
};

/* Where an incident is stored. Each source counts its own epochs. */
enum ng_incident_source {
    NG_SOURCE_HOST = 0, /* the folder of this host's black boxes */
    NG_SOURCE_JOB = 1,  /* the store that all hosts share */
    NG_SOURCES = 2,
};

/* One incident of the job. Written only by its claimant. */
struct ng_incident {
    uint64_t epoch; /* from 1; grows with every incident of its source */
    enum ng_incident_source source;
    enum ng_incident_level level;
    enum ng_incident_state state;
    uint64_t group_id, seq; /* what is stuck; seq 0: no collective */
    uint32_t op;
    int32_t claimant_rank; /* global; -1 not known */
    int32_t claimant_pid;
    uint64_t claimant_ticks; /* reveals a reused pid */
    uint64_t claimant_slot;  /* on the job's board; 0 none */
    uint64_t claimant_host;  /* identity of its host and process namespace; 0 not known */
    uint64_t label; /* the claimant's incarnation of the job; of a command the run that it is
                     * for, 0 all */
    int64_t
        claimed_mono_ns;   /* on this host's clock; if it is another host's, when it was received */
    int64_t since_mono_ns; /* when the stuck operation began to wait; 0 not known */
    int64_t stalled_ns;    /* its verdict counts work pending for this long as stuck */
    int32_t policy;        /* enum ng_on_timeout, plus 1; 0 not given */
#define NG_INCIDENT_POLICY_LOG 1 /* nothing is ended by it */
    bool differs;                /* about calls that differ; nothing need be stuck */
    bool failed; /* raised because NCCL reports an error, whatever its cause: no deadline has passed
                  */
    uint8_t kind; /* of the verdict, enum ng_verdict_kind; NG_KIND_HEALTHY: no verdict yet; of
                     a claim also NG_KIND_DEAD_RANK, if that will be its verdict for certain */
    uint64_t supersedes; /* incidents of this source up to this epoch are abandoned: their claimants
                            failed to deliver a verdict */
    char line[512];      /* the verdict in one line */
    struct ng_group_set
        scope; /* the groups that policies with an abort abort; level TIMEOUT only */
};

/* An operator's command to every rank of the job, by `ncclguard abort` and similar. */
enum ng_command_kind {
    NG_COMMAND_ABORT = 1, /* abort `group_id` */
    NG_COMMAND_DUMP, /* `rank` writes what only it can provide: into folder `path`, if given on this
                        host's board */
    NG_COMMAND_REST, /* suspend the clocks of `group_id` for `for_ns`; INT64_MAX: until the next
                        such command; 0: resume them */
    NG_COMMAND_RELOAD, /* read the rules file again */
    NG_COMMAND_SET,    /* change the options that `set` has values for */
    NG_COMMAND_LIMIT   /* every kind is below */
};

/* As many as a record has room for: core/config/settable.h. */
#define NG_COMMAND_SETTABLES 3

struct ng_command {
    enum ng_command_kind kind;
    enum ng_incident_source source;
    uint64_t group_id;                 /* 0: all groups */
    int32_t rank;                      /* -1: all ranks */
    int64_t for_ns;                    /* from 0 */
    uint8_t set[NG_COMMAND_SETTABLES]; /* struct ng_settable_values */
    int64_t given_mono_ns; /* on this host's clock; if it is another host's, when it was received */
    char line[512];        /* the text that is logged */
    char path[512];
};

/* An incident or a command for the ranks. Both share one sequence of epochs per source. */
struct ng_news {
    uint64_t epoch;
    bool is_command; /* else an incident */
    union {
        struct ng_incident incident;
        struct ng_command command;
    };
};

/* Is `wanted` about a rank that was reported as missing or frozen, and has died since? Not once a
 * policy has acted, since ranks end by it. */
static inline bool ng_incident_is_outdone(const struct ng_incident *there,
                                          const struct ng_incident *wanted)
{
    return there->state == NG_INCIDENT_JUDGED && wanted->kind == NG_KIND_DEAD_RANK &&
           (there->kind == NG_KIND_MISSING_RANK || there->kind == NG_KIND_INIT_MISSING_RANK ||
            there->kind == NG_KIND_STOPPED_RANK) &&
           (there->level == NG_INCIDENT_SUSPECT || there->policy == NG_INCIDENT_POLICY_LOG);
}

/*
 * Does this incident cover `wanted`: the same operation at this level or above, or any timeout that
 * is not judged yet? A problem that began after the verdict is new, even if it looks the same.
 */
static inline bool ng_incident_covers(const struct ng_incident *there,
                                      const struct ng_incident *wanted)
{
    if (there->state == NG_INCIDENT_JUDGED && there->claimed_mono_ns < wanted->since_mono_ns)
        return false;
    if (ng_incident_is_outdone(there, wanted))
        return false;
    if (wanted->differs) /* once per group, wherever its ranks were found to differ */
        return there->differs && there->level >= wanted->level &&
               there->group_id == wanted->group_id;
    if (there->level == NG_INCIDENT_TIMEOUT && there->state == NG_INCIDENT_CLAIMED)
        return true;
    return there->level >= wanted->level && there->group_id == wanted->group_id &&
           there->seq == wanted->seq && there->op == wanted->op;
}

/* After -EBUSY from ng_board_ops.begin, retry after a random time between these two. */
#define NG_CLAIM_PAUSE_NS     (250 * NG_MS)
#define NG_CLAIM_PAUSE_MAX_NS (400 * NG_MS)

/*
 * Does an incident that covers `wanted` still cover it after its claimant has ended? A claim does
 * not, since it will never be judged; nor does an incident about stuck work, which may be stuck for
 * another reason now. A difference in calls remains true, and ranks that got an error for the call
 * may have ended since, so that a later examination would find less.
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

/* Why a process wants to examine the whole job: the more it may find that others cannot, the
 * higher. */
enum ng_claim_cause {
    NG_CAUSE_END =
        1, /* a process ended: every rank with work pending sees the same, and reports only ends */
    NG_CAUSE_LATE = 2, /* its own work has waited for long: reported whatever the reason is */
    NG_CAUSE_OWN = 3,  /* it knows something that others cannot see, or not yet */
};

/* Small data for all processes of the job. */
struct ng_board_entry {
    const char *key; /* 1 to NG_BOARD_KEY_MAX bytes */
    const void *data;
    size_t bytes;
    /* Lifetime from when it was put: no other run may use its key. 0: as long as its process, plus
     * the board's time to live. */
    int64_t keep_ns;
    const char
        *words; /* what the launcher says of this run, as text for other ranks; NULL nothing */
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
     * Sleep until an event, for at most `timeout_ms`. `kick` is an eventfd of the caller, drained
     * here. Returns NG_BOARD_* bits; 0 on timeout.
     */
    unsigned (*wait)(struct ng_board *board, const struct ng_descriptor *kick, int timeout_ms);

    /* Number of processes of the job that this board has seen end, in whatever way; only grows. */
    uint32_t (*ended)(struct ng_board *board);

    /*
     * Reserve the examination of the whole job, which is expensive and needed only once. 0: it is
     * ours until `finish`, or until it is considered lost after some seconds; -EBUSY: another
     * process is examining, or has just found nothing. Each level has its own reservation. If the
     * board is unavailable, every process may examine.
     *
     * A process that found nothing holds back those with no better cause than its own, but none
     * with NG_CAUSE_OWN. So a process that has a better cause than all others, and retries within
     * NG_CLAIM_PAUSE_MAX_NS, waits only for the current examination, however many others want to
     * examine.
     */
    int (*begin)(struct ng_board *board, enum ng_incident_level level, enum ng_claim_cause cause);
    /* `in_vain`: nothing was found; else an incident resulted, or the result no longer matters,
     * which does not hold back others. */
    void (*finish)(struct ng_board *board, enum ng_incident_level level, bool in_vain);

    /* Append every visible process of the job, including this one, and seal the view. 0 or -errno.
     * A note in the view names what could not be read. */
    int (*view)(struct ng_board *board, struct ng_view *view);

    /* The same for this host only; never waits. */
    int (*view_host)(struct ng_board *board, struct ng_view *view);

    /* Visit the black box of every other process of the job on this host that lives and has not
     * begun to leave. A box is valid until the next call of any of these functions. NULL: no other
     * boxes are visible. */
    void (*each)(struct ng_board *board, void (*visit)(void *context, const struct ng_box *box),
                 void *context);

    /* Signal the process of a box that `each` visits, and never another one that has reused its
     * pid. 0; -ESRCH: it has ended, or is not visible in this pid namespace; -EPERM: it now belongs
     * to another user, or to another run; or -errno. NULL: as for `each`. */
    int (*signal)(struct ng_board *board, const struct ng_box *box, int signal_number);

    /* The policy (enum ng_on_timeout plus 1) by which a verdict has ended a rank of this host since
     * this process started, and when that began; 0: none. As of the latest `wait`. NULL: as for
     * `each`. */
    uint32_t (*given_up)(struct ng_board *board, int64_t *ret_since_mono_ns);

    /*
     * If other runs with the job's name live on this host, or did during the life of this process,
     * and have the same evidence folder: 0, and a name for this run, the same for all of its
     * processes. -ENOENT: there are none. Never waits. NULL: there never are other runs.
     */
    int (*apart)(struct ng_board *board, char ret_name[NG_BOARD_RUN_NAME_BYTES]);

    /*
     * Declare groups to be one and the same group under different ids: `group_id`, `other_ids`.
     * From then on incidents of one part are delivered to the others, unless the board knows that
     * they belong to different runs of the job. Waits like `view`.
     */
    void (*unite)(struct ng_board *board, uint64_t group_id, const uint64_t *other_ids,
                  uint32_t count);

    /*
     * Claim an incident; epoch, source, state and claimant are filled in. 0: *ret_incident is ours.
     * -EEXIST: *ret_incident covers it, and its claimant lives or it outlives its claimant: the
     * same operation at this level or above, or any timeout that is not judged yet. Another -errno:
     * the state is unknown.
     */
    int (*claim)(struct ng_board *board, const struct ng_incident *wanted,
                 struct ng_incident *ret_incident);

    /* Publish the verdict on an incident that we claimed: state JUDGED and `line`. 0 or -errno. */
    int (*publish)(struct ng_board *board, const struct ng_incident *incident,
                   const struct ng_verdict *verdict);

    /*
     * The incident or command of a source with the smallest epoch above `epoch`, among those since
     * this process joined: an incident never ends a later incarnation of a job with the same name.
     * 0, or -ENOENT.
     */
    int (*next)(struct ng_board *board, enum ng_incident_source source, uint64_t epoch,
                struct ng_news *ret_news);

    /* Read an incident again, by its source and epoch. 0, or -ENOENT. */
    int (*get)(struct ng_board *board, struct ng_incident *incident);

    /* Is the claimant of this incident alive? If not, everything that it has written about the
     * incident is available to `get`. */
    bool (*claimant_alive)(struct ng_board *board, const struct ng_incident *incident);

    /* This process has written its dump for an incident. */
    void (*dumped)(struct ng_board *board, const struct ng_incident *incident);

    /* Number of living processes, except this one, whose dump for it is not written yet. */
    uint32_t (*dumps_missing)(struct ng_board *board, const struct ng_incident *incident);

    /* The documents of a verdict reached on another host; the caller frees their arena. 0; -ENOENT:
     * it was reached here, or there are none; or -errno. */
    int (*read_verdict)(struct ng_board *board, const struct ng_incident *incident,
                        struct ng_documents *ret_documents);

    /* The id of the group that other ranks joined under `joined_id`: core/view/grow_id.h. 0;
     * -ENOENT: not published yet. Never waits. */
    int (*grown)(struct ng_board *board, uint64_t joined_id, uint64_t *ret_id);

    /*
     * Agreement across hosts (core/check/lockstep_check.h): publish this process's state in the
     * hash logs to other hosts, and write theirs into the hash logs, until no call waits any more;
     * this wakes the incident thread. `changed`: there is more to publish. 0, or -EIO: the store is
     * unavailable at the moment. Never waits. NULL: there are no other hosts.
     */
    int (*agree)(struct ng_board *board, bool changed);

    /*
     * Put an entry if its key is free. 0, also if the same process has put the same entry before;
     * -EEXIST: there is another one, of a process that lives or has ended just now; -ENOTUNIQ:
     * there is one that may be of this run or of another; -ENOSPC: no room, or too many entries of
     * this process; -EIO: the store does not answer at the moment; or -errno.
     */
    int (*put)(struct ng_board *board, const struct ng_board_entry *entry);

    /* Read the entry of `key`: *ret_bytes bytes in ret_data, which has room for NG_BOARD_VALUE_MAX.
     * 0; -ENOENT; -ENOTUNIQ, -EIO, -errno as above. -EXDEV: there is one that may be of this run,
     * but other words of its launcher came with it; they are in ret_data. */
    int (*fetch)(struct ng_board *board, const char *key, void *ret_data, size_t *ret_bytes);

    /* Which of the keys "<prefix><number>" exist, of entries with a lifetime of their own, for
     * `count` numbers from `first` (up to NG_BOARD_HAVE_MAX): bit i of *ret_there is set if first +
     * i does. 0, -EIO, -errno. */
    int (*have)(struct ng_board *board, const char *prefix, uint32_t first, uint32_t count,
                uint64_t *ret_there);

    /* Remove our entry, which is no longer needed; does nothing if it expires soon anyway. */
    void (*forget)(struct ng_board *board, const char *key);

    /* This process leaves. If it was the last and there was no incident, nothing stays behind. */
    void (*leave)(struct ng_board *board);

    /* The process ends, and the incident thread has to come to `leave` soon: what waits for a store
     * returns -EIO at once from now on, except for `leave`. NULL: nothing waits. Any thread. */
    void (*hurry)(struct ng_board *board);

    /* In a forked child, which does not take part: close what was inherited. Async-signal-safe; the
     * board must not be used afterwards. */
    void (*abandon)(struct ng_board *board);
};

struct ng_board {
    const struct ng_board_ops *ops;
};

#endif
