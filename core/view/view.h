/*
 * What is known of a job at one moment: the verdict engine's only input.
 *
 * Built from black boxes on one host, from the board across hosts, or from dumps long afterwards;
 * the engine does not see a difference. Plain data; pointers refer only to its own arena. One owner
 * at a time.
 */
#ifndef NCCLGUARD_CORE_VIEW_VIEW_H
#define NCCLGUARD_CORE_VIEW_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/config/settable.h"
#include "core/recorder/box.h"
#include "core/recorder/device_errors.h"
#include "core/recorder/durations.h"
#include "core/recorder/edges.h"
#include "core/recorder/fault_log.h"
#include "core/util/arena.h"
#include "core/util/memory_map.h"
#include "core/view/ras.h"

enum ng_life {
    NG_LIFE_UNKNOWN,
    NG_LIFE_RUNNING,
    NG_LIFE_STOPPED, /* alive, but frozen: SIGSTOP, a debugger, or its guard no longer runs */
    NG_LIFE_EXITED,  /* through exit() or return from main, or became another program */
    NG_LIFE_DEAD,    /* killed, crashed or _exit: it could not report which */
    NG_LIFE_ENDED_BY_GUARD, /* by policy: a victim, not a cause */
    NG_LIFE_LOST, /* on another host, with no message for longer than its time to live: the host is
                     down or cut off, or the process is gone or frozen and no other process there
                     reports it */
};

/* It has ended, and not by the guard. */
static inline bool ng_life_has_ended_by_itself(enum ng_life life)
{
    return life == NG_LIFE_DEAD || life == NG_LIFE_EXITED;
}

/* It has ended, or its host is gone, so it waits for no rank. A process that the guard ended is a
 * victim, which did wait. */
static inline bool ng_life_is_gone(enum ng_life life)
{
    return ng_life_has_ended_by_itself(life) || life == NG_LIFE_LOST;
}

/* Have others asked for the end: by a signal with which launchers end the rest of a job, or with an
 * exit status that reports one? */
bool ng_told_to_end(int exit_status);

/* It has ended, whoever ended it. */
static inline bool ng_life_has_ended(enum ng_life life)
{
    return ng_life_has_ended_by_itself(life) || life == NG_LIFE_ENDED_BY_GUARD;
}

/* The first NaN in what a process was to send, as in its black box (core/recorder/box.h). */
struct ng_view_nan {
    int64_t age_ns; /* since it was found; 0: none was */
    uint64_t group_id, seq;
    enum ng_op op;
    int dtype;
    uint64_t elements, bad, element, bits;
    bool held;
};

/* One process. */
struct ng_view_process {
    int rank; /* global, from the launcher; -1 not known */
    int world_size;
    int pid;
    char host[64];
    char source[128]; /* file name it was read from, for messages */
    bool self;        /* the process that builds the view */
    bool cut_off;     /* it cannot read the folder of its job, nor write a dump there */
    enum ng_life life;
    int exit_status;      /* of NG_LIFE_EXITED and NG_LIFE_DEAD; or NG_EXIT_STATUS_… */
    int64_t life_age_ns;  /* time since its life ended, or since its last message (LOST); 0 unknown
                             or alive */
    int64_t alive_age_ns; /* DEAD: time since its last sign of life, before which it did not end; 0
                             not known, or another life */
    /* Time since its watchdog last made a round; 0: it is not stuck, or not known. */
    int64_t watchdog_stuck_ns;
    int64_t watched_age_ns;  /* of a black box that is read here: time since its watchdog began its
                                last round; 0 not known */
    char watchdog_in[128];   /* what the watchdog is blocked in; "" not known */
    int64_t suspect_ns;      /* its NCCLGUARD_SUSPECT; 0 not known, or none */
    int64_t cold_suspect_ns; /* its NCCLGUARD_COLD_SUSPECT, likewise */
    int64_t quiet_ns; /* RUNNING as far as is known, but it did not answer the latest request: time
                         since its last message; 0: it answers */
    uint64_t uid;     /* distinguishes it from every other process of any host; 0 not known */
    /* Of a process that was started by hand: the same for all below one `ncclguard run`, as far as
     * is known, else its uid. 0: it has a launcher, or the evidence does not tell. Where it
     * differs, and no communicator is in common, processes may be of two runs of one name. */
    uint64_t run_word;
    /* The moment of age 0 on the two clocks of its host; for a process that ended, its end. 0 not
     * known */
    int64_t moment_mono_ns, moment_unix_ns;
    int local_rank; /* from the launcher; -1 not known */
    char program[64];
    char error_text[196]; /* NCCL's message for its first asynchronous error; "" none, or not known
                           */
    char nccl_variables[NG_BOX_VARIABLES_BYTES]; /* as in its black box
                                                    (core/config/nccl_variables.h) */
    /* Its options and environment (core/config/settings.h), with what commands have set; without
     * the rest where that is not known. NULL nothing is known. */
    const char *settings;
    struct ng_settable_values set; /* what commands have set of them, as far as is known */
    uint32_t member_count;
    uint32_t first_member; /* in ng_view.by_process (set by ng_view_seal, as is member_count) */
    /* Its device memory, by enum ng_segment_kind: as many kinds as it knows. 0: not tracked, or not
     * known. */
    uint32_t memory_kinds;
    struct ng_memory_sum memory[NG_BOX_MEMORY_KINDS];
    struct ng_view_nan nan;
    /* What the driver knows of its devices, as in its black box (core/recorder/device_errors.h). */
    /* Since it was last asked; as long as its host is up: not yet; 0 it is not, or not known. */
    int64_t devices_age_ns;
    uint32_t device_error_count;
    struct ng_device_error device_errors[NG_DEVICE_ERRORS_MAX];
    /* The black box has all of its calls from this record on; older ones outlasted others
     * (core/recorder/kept.h), which may lie between them. 0 not known */
    uint64_t ring_first;
    bool rank_collides;  /* other processes have the same rank, so ng_view_seal set it to -1 */
    bool drives_several; /* more than one rank of a group: several devices (set by ng_view_seal) */
};

/* A tracked NCCL call that a thread of a process is inside. */
struct ng_view_call {
    uint32_t process;
    uint32_t tid;
    enum ng_op op;
    uint64_t group_id; /* 0 none */
    int group_rank;    /* in that group; -1 not known */
    uint64_t seq;      /* collective sequence of the call; 0 none */
    uint64_t record_id;
    int64_t age_ns;
};

/* A live thread that has called NCCL; not available from the board. */
struct ng_view_thread {
    uint32_t process;
    uint32_t tid;
    char name[16]; /* when it made its first call; "" not known */
};

/* A file of the program in memory: itself, or a library. */
struct ng_view_module {
    const char *path;
    const char *build_id; /* hex digits; "" none, or not known */
};

/* A frame of a call: a return address or, for code that a signal interrupted, the interrupted
 * address plus one. */
struct ng_view_frame {
    const struct ng_view_module *module; /* NULL none, or not known */
    uint64_t offset;                     /* in the file; in memory if there is no file */
    const char *name;                    /* of the function; NULL not known */
    uint64_t name_offset;                /* from its start */
    /* For Python: `module` is the source file, `name` the qualified name, `offset` is in the code
     * object. */
    bool is_python;
    int32_t line;       /* from 1; 0 not known */
    const char *source; /* of a native frame with a line: its source file; NULL not known */
};
#define NG_VIEW_FRAMES (NG_BOX_FRAMES + NG_BOX_PYTHON_FRAMES)

/* The stack of a call site; many calls share one. */
struct ng_view_call_stack {
    uint32_t process;
    uint32_t count;
    bool whole;      /* up to the function that the thread began with */
    bool python_cut; /* there are more Python frames */
    /* Python frames first, then native ones, each innermost first; the first of either kind called
     * NCCL. Up to NG_VIEW_FRAMES. */
    const struct ng_view_frame *frames;
};

/* One recorded call of a member. */
struct ng_view_record {
    uint64_t id;
    enum ng_record_state state;
    struct ng_signature signature;
    uint64_t coll_seq; /* of a send or receive: the last one before */
    uint64_t p2p_seq;
    uint64_t peer_ordinal; /* of a send or receive; 0 not known, or a collective */
    int64_t entered_age_ns;
    int64_t
        started_age_ns; /* since the watchdog saw it begin on the device; 0 not yet, or not known */
    int64_t completed_age_ns; /* since the watchdog saw its end; 0 not yet, or not known */
    uint64_t stream;
    uint64_t work_previous; /* id of the one before it in the same NCCL group, on the same
                               communicator and stream; 0 none */
    uint64_t caller;
    uint32_t flags;        /* NG_RECORD_* bits */
    uint32_t tid;          /* of the thread that called; 0 not known */
    int result;            /* ncclResult_t of the host call */
    uint64_t rolling_hash; /* of the group after this collective; 0 not known */
    int64_t duration_ns;   /* as in its black box (core/recorder/box.h); 0 not measured */
    uint32_t call_stack;   /* index in ng_view.call_stacks, plus 1; 0 not known */
    /* For NG_RECORD_REPLAYED, as in its black box (core/recorder/box.h); otherwise 0. */
    uint64_t graph, replay;
    uint32_t graph_position, graph_calls;
};

/* How long the device took for a collective, or several of one NCCL group, in which every rank
 * waits for every other. */
struct ng_view_sample {
    uint64_t seq;   /* of its last collective */
    uint32_t calls; /* in the operation */
    int64_t duration_ns;
};

/* The number of newest samples kept for a member. */
#define NG_VIEW_SAMPLES 64u

/* Measured durations of one group, operation and size, as one process has them. */
struct ng_view_duration {
    uint32_t process;
    struct ng_duration duration;
};

/* A fault that NCCLGUARD_FAULT has injected into a process, with its times turned into ages. */
struct ng_view_fault {
    uint32_t process;
    struct ng_logged_fault fault; /* its times are 0 here */
    int64_t first_age_ns, last_age_ns;
};

/* Sends and receives are counted separately from collectives, and their records may be
 * interleaved. */
static inline bool ng_view_record_is_p2p(const struct ng_view_record *record)
{
    uint32_t op = record->signature.op;

    return op < NG_OP_LIMIT && ng_op_table[op].op_class == NG_CLASS_P2P;
}

/* The call's number on the communicator, from 1. */
static inline uint64_t ng_view_record_op_id(const struct ng_view_record *record)
{
    return record->coll_seq + record->p2p_seq;
}

/* Does it count among the group's calls? It does if NCCL accepted it and submitted it to the
 * device. A call that was only captured into a graph does not: its replays count instead. */
static inline bool ng_view_record_counts(const struct ng_view_record *record)
{
    return record->state != NG_RECORD_FAILED && record->state != NG_RECORD_CAPTURED;
}

/* True if the watchdog no longer waits for it, or never did. */
static inline bool ng_view_record_is_retired(const struct ng_view_record *record)
{
    return record->state != NG_RECORD_ENTERED && record->state != NG_RECORD_SCHEDULED &&
           record->state != NG_RECORD_STARTED;
}

/* What the guard has registered with a communicator, as in its black box (core/recorder/box.h). */
struct ng_view_registration {
    bool known; /* false: nothing was ever registered on it, or not known */
    bool closed;
    uint64_t segments, segment_bytes;
    uint64_t bytes, registered_bytes;
    uint64_t made, ended, failed, deferred;
    uint64_t spent_ns;
};

/* The calls of class HOST on a communicator, as in its black box (core/recorder/box.h). */
struct ng_view_host_calls {
    uint32_t entered[NG_OP_JOINT_CALLS];
    uint32_t op, tid;
    bool open;
};

/* One rank of one group, as reported by its own process. */
struct ng_view_member {
    uint32_t process;
    uint32_t group; /* index in ng_view.groups */
    int group_rank;
    int device;
    int nranks, nccl_version; /* as its own process reported; 0 not known, or the same as for the
                                 whole group */
    enum ng_group_state state;
    int async_error;
    int cuda_error;       /* CUresult with which its device failed permanently; 0 none */
    uint32_t creator_tid; /* thread that called for its creation; 0 not known */
    uint32_t ordinal;     /* which split, shrink or grow of the parent made it, from 1; 0 none */
    uint32_t derived;     /* splits, shrinks and grows called on this communicator so far */
    uint64_t entered, scheduled, started, completed; /* collectives, from 1 */
    uint64_t p2p_entered, p2p_completed;
    struct ng_view_host_calls host_calls;
    int color;                    /* of a split; otherwise -1 */
    uint32_t created_by;          /* enum ng_op */
    int64_t created_age_ns;       /* 0 not known */
    int64_t ended_age_ns;         /* destroyed or aborted; 0: still in use, or not known */
    int64_t error_age_ns;         /* since the guard learned async_error or a permanent cuda_error;
                                   * 0 none, or not known */
    char pci_id[16];              /* of the device; "" not known */
    uint64_t joined_id, excluded; /* as in its black box (core/recorder/box.h); 0 none */
    uint64_t rolling_hash;        /* of all collectives up to `entered`; 0 not known */
    struct ng_signature last;     /* of collective `entered` */
    int64_t timeout_ns;           /* deadline of its collectives; 0 none, or not known */
    bool rests;                   /* its clock is suspended, by its program or by an operator */
    uint8_t policy; /* what that deadline leads to: enum ng_on_timeout plus 1; 0 not known */
    /* Counts over closed NCCL groups: collectives, and sends and receives, beyond the first of
     * their group; and groups of two or more calls. The calls on each stream count as a group of
     * their own. */
    uint64_t coll_joined, p2p_joined, groups_closed;
    uint64_t pending_seq;    /* oldest collective in flight; 0 none */
    uint64_t pending_record; /* oldest operation in flight; 0 none */
    int64_t pending_age_ns;  /* its credited age */
    bool pending_started;
    struct ng_view_registration registration;
    bool pending_vague;     /* as in its black box (core/recorder/box.h) */
    bool pending_inferred;  /* pending_started, by NG_START_INFERRED */
    bool pending_unwatched; /* as in its black box: its device may have finished the operation */
    /* By NCCL's own counters: collective `counted_seq` (0 none) is finished, and the last
     * `counted_left` launches are not. */
    bool counted;
    uint8_t kernel; /* enum ng_kernel, of the collective after it */
    uint64_t counted_seq;
    uint32_t counted_left;
    /* NCCL's connections when they were last looked at, while that operation was the oldest. */
    uint32_t edge_count; /* 0 not known */
    struct ng_edge *edges;
    int64_t edges_age_ns; /* since then */
    struct ng_view_record
        *records; /* those of this member that the ring still holds, oldest first */
    uint32_t record_count;
    uint32_t sample_count;
    struct ng_view_sample *samples; /* oldest first */
};

/* A rank to which NCCL reported that the communicator cannot be created. */
struct ng_view_failure {
    uint64_t group_id;
    struct ng_view_member member; /* `group` is not set yet */
};

struct ng_view_group {
    uint64_t id, parent_id;
    char name[64];
    int nranks;
    int nccl_version;
    uint32_t member_count; /* members that reported; up to nranks */
};

/* Readers clamp the ages in files of other processes to this, so that the sum of two ages cannot
 * overflow. */
#define NG_VIEW_AGE_MAX_NS (INT64_MAX / 2)

static inline int64_t ng_view_age(int64_t ns)
{
    return ns < 0 ? 0 : ns < NG_VIEW_AGE_MAX_NS ? ns : NG_VIEW_AGE_MAX_NS;
}

/* Groups that claim more ranks are damaged. */
#define NG_VIEW_NRANKS_MAX (1 << 24)

struct ng_view {
    struct ng_arena arena;
    struct ng_view_process *processes;
    struct ng_view_group *groups;
    struct ng_view_member *members; /* sorted by group, then group rank, newest handle first */
    struct ng_view_call *calls;
    struct ng_view_thread *threads;
    struct ng_view_duration *durations;
    struct ng_view_fault *faults;
    struct ng_view_call_stack *call_stacks;
    uint32_t call_stack_count, call_stack_room;
    uint32_t *call_stack_slots; /* hash table by content: index + 1; 0 free */
    uint32_t call_stack_slot_count;
    uint32_t process_count, group_count, member_count, call_count, thread_count, duration_count,
        fault_count;
    uint32_t process_room, group_room, member_room, call_room, thread_room, duration_room,
        fault_room;
    /* Communicators that could not be created. ng_view_seal turns one into a member if other ranks
     * are still creating the same group, since this may be the reason. */
    struct ng_view_failure *failures;
    uint32_t failure_count, failure_room;
    uint32_t *by_process;  /* indices of members, sorted by process; NULL before ng_view_seal */
    uint32_t *group_slots; /* group index + 1 by hash of the id; the table size is a power of two */
    uint32_t group_slot_count;
    char job[128];
    bool on_request; /* taken on request: nothing need be wrong */
    /* What NCCL's RAS said of ranks that have no member here, by group id and rank:
     * core/view/ras.h. */
    struct ng_view_ras *ras;
    uint32_t ras_count, ras_room;
    /* One line each, for the user: "box-12-34: cut off after 8192 bytes". */
    char **notes;
    uint32_t note_count, note_room;
    /* The host stacks of the process whose `self` is set; NULL not taken. Owned by the caller. */
    const struct ng_stacks *stacks;
};

/* Initialises an empty view; cannot fail. */
void ng_view_init(struct ng_view *view);

/* Frees everything. */
void ng_view_fini(struct ng_view *view);

/*
 * Append. The returned element is zeroed (ids and ranks are set as passed) and stays valid until
 * the next append of its kind. NULL: out of memory.
 */
struct ng_view_process *ng_view_add_process(struct ng_view *view);
/* Make the `settings` of a process tell what it has in `set`. 0 or -ENOMEM. */
int ng_view_apply_set(struct ng_view *view, uint32_t process);
/* The group of this id, added if it is new; UINT32_MAX: out of memory. */
uint32_t ng_view_intern_group(struct ng_view *view, uint64_t id);
/* The same with the data that one of its ranks reports; fields that this rank does not know yet
 * keep the values that other ranks reported. */
uint32_t ng_view_tell_group(struct ng_view *view, const struct ng_view_group *told);
struct ng_view_member *ng_view_add_member(struct ng_view *view, uint32_t process, uint32_t group,
                                          int group_rank);
struct ng_view_failure *ng_view_add_failure(struct ng_view *view, uint32_t process,
                                            uint64_t group_id, int group_rank);
struct ng_view_call *ng_view_add_call(struct ng_view *view, uint32_t process);
struct ng_view_thread *ng_view_add_thread(struct ng_view *view, uint32_t process, uint32_t tid);
struct ng_view_duration *ng_view_add_duration(struct ng_view *view, uint32_t process,
                                              const struct ng_duration *duration);
struct ng_view_fault *ng_view_add_fault(struct ng_view *view, uint32_t process,
                                        const struct ng_logged_fault *fault);
/* Both texts are copied. NULL: out of memory. */
const struct ng_view_module *ng_view_add_module(struct ng_view *view, const char *path,
                                                const char *build_id);
/* Its index plus 1, added if it is new: frames are copied, the names in them are not. 0: out of
 * memory. */
uint32_t ng_view_intern_call_stack(struct ng_view *view, const struct ng_view_call_stack *stack);
/* The same with a stack of another view, for process `process`; the other view is not referenced
 * afterwards. */
uint32_t ng_view_copy_call_stack(struct ng_view *view, const struct ng_view_call_stack *from,
                                 uint32_t process);
/* The call stack of a record of this view; NULL not known. */
static inline const struct ng_view_call_stack *
ng_view_call_stack(const struct ng_view *view, const struct ng_view_record *record)
{
    return record->call_stack ? &view->call_stacks[record->call_stack - 1] : NULL;
}
/* Adds a sample, newer than those before, to a member; beyond NG_VIEW_SAMPLES the oldest is
 * dropped. False: out of memory. */
bool ng_view_add_sample(struct ng_view *view, struct ng_view_member *member,
                        const struct ng_view_sample *sample);
/* Sets what a member's connections showed. False: out of memory. */
bool ng_view_set_edges(struct ng_view *view, struct ng_view_member *member,
                       const struct ng_edge *edges, uint32_t count, int64_t age_ns);
__attribute__((format(printf, 2, 3))) void ng_view_note(struct ng_view *view, const char *format,
                                                        ...);

/*
 * Appends a process with everything in its `box`, as of `now_mono_ns` on the box's host clock. If
 * the process died, its ages are as of its death. `life` is what the caller found out about the
 * process; the box's own state (exited, ended by guard) overrides RUNNING. Damaged slots are
 * skipped with a note. 0 or -ENOMEM.
 */
int ng_view_add_box(struct ng_view *view, const struct ng_box *box, enum ng_life life,
                    int64_t now_mono_ns, const char *source);

/* Adds the call stacks of the records of process `process` from its box. 0 or -ENOMEM. Part of
 * ng_view_add_box. */
int ng_view_add_call_stacks(struct ng_view *view, const struct ng_box *box, uint32_t process,
                            int64_t now_mono_ns);

/* Merges groups that members know by different ids (core/view/grow_id.h), sorts the members, and
 * counts them in their groups and processes. Call once, after the last append. */
void ng_view_seal(struct ng_view *view);

/* The group of this id; UINT32_MAX: there is none. */
uint32_t ng_view_find_group(const struct ng_view *view, uint64_t id);

/* Gives group `from`, its members and the calls on it another id. If a group of that id already
 * exists, they move to that group, and the last group takes the index of `from`. Only before the
 * view is sealed. */
void ng_view_rename_group(struct ng_view *view, uint32_t from, uint64_t id);

/*
 * The group of lowest index that has the same members as `group` in the same order: the same
 * devices of the same processes. Returns `group` itself if there is none, or if not all of its
 * members are known. Needs a sealed view.
 */
uint32_t ng_view_same_members(const struct ng_view *view, uint32_t group);

/*
 * The global rank to name for a member: that of its process; or, if the launcher gave none or the
 * process drives several devices, the rank of that device in the largest group.
 */
int ng_view_rank(const struct ng_view *view, const struct ng_view_member *member);

/* Among the sorted members of one group: the one with this group rank, newest handle; NULL if none
 * reported. */
const struct ng_view_member *ng_view_member_among(const struct ng_view_member *members,
                                                  uint32_t count, int group_rank);

/* The same of a whole group. */
const struct ng_view_member *ng_view_member(const struct ng_view *view, uint32_t group,
                                            int group_rank);

/* The record of a member's collective `seq`; NULL not recorded. */
const struct ng_view_record *ng_view_collective(const struct ng_view_member *member, uint64_t seq);

/* The record of a member's oldest operation in flight; NULL none, or not recorded. */
const struct ng_view_record *ng_view_pending_record(const struct ng_view_member *member);

/* The collective that a member was in when its program aborted the communicator, and for how long,
 * if the process ended within seconds of that; NULL none. */
const struct ng_view_record *ng_view_aborted_wait(const struct ng_view_member *member,
                                                  int64_t *ret_waited_ns);

/* First member of a group (they are contiguous, in order of group rank), and their number. NULL:
 * none. */
const struct ng_view_member *ng_view_members(const struct ng_view *view, uint32_t group,
                                             uint32_t *ret_count);

#endif
