/*
 * The black box: the state of one process, in a file that outlives the process.
 *
 * Layout, version 1. The file is mapped shared by its process. Others with access rights (mode
 * 0600) read it, and never load from a mapping: a neighbour, `ncclguard analyze`, after SIGKILL,
 * during SIGSTOP. All numbers are in the host's byte order. Offsets are in the header, so that a
 * reader needs no constants of the writer except this file.
 *
 *   header         one page: identity, times, state of the process
 *   groups         group_capacity slots: one per communicator handle
 *   threads        thread_capacity slots: the NCCL call that a thread is inside
 *   records        record_capacity slots: the newest calls, slot = id % capacity; and behind them
 *                  kept_capacity slots: older ones that may still matter (core/recorder/kept.h)
 *   durations      duration_capacity slots: measured times of each group, operation and size
 *   samples        sample_capacity slots: the newest measured collectives,
 *                  slot = number % capacity
 *   faults         fault_capacity slots: the faults of NCCLGUARD_FAULT; none if it is not set
 *   registrations  registration_capacity slots, or none: of the group in the same slot of groups
 *   frames         frames_capacity slots, as many as records, or none: where each call was made;
 *                  and behind them one for each kept record
 *   modules        module_capacity slots: the program's files, and
 *   addresses      address_capacity slots: what is known of the addresses in frames
 *   hash logs      hash_log_capacity slots: rolling hashes of the group in the same slot:
 *                  core/view/hash_log.h
 *   host calls     host_calls_capacity slots: calls of class HOST of the group in the same slot
 *   edges          edges_capacity slots: NCCL's connections, as last looked at:
 *                  core/recorder/edges.h
 *   settings       settings_bytes bytes of text, written once, before the file gets its name:
 *                  core/config/settings.h
 *   python         python_capacity slots, as many as records, or none: where each call was made,
 *                  in Python; and likewise behind them,
 *   codes          code_capacity slots: the code objects that occur there, and
 *   lines          lines_capacity bytes: their line tables: core/recorder/python_code.h
 *
 * Writers: the program's threads (threads, records, frames, python, codes, lines, faults,
 * registrations, `entered` and `scheduled` of groups), the watchdog (states, `started`,
 * `completed`, ages, `cuda_error`, durations, samples, `memory`), and another thread of the guard
 * (frames, modules, addresses, device_errors). Every shared field is atomic and is read and written
 * relaxed. A slot is valid if its own guard word says so; the guard word is written last, with
 * release. Guard words: record.id_state, group.state, thread.tid, duration.group_id, sample.number,
 * fault.times, registrations.generation, frames.id_state, python.id_state, code.complete,
 * edges.guard, device_errors.guard, and for modules and addresses the header's counts. Readers copy
 * a slot and check the guard word before and after.
 *
 * Within a version, a field may be added in reserved bytes, where zero means "not known", and a
 * table may be added whose place the header states in formerly unused bytes; any other change is a
 * new version.
 */
#ifndef NCCLGUARD_CORE_RECORDER_BOX_H
#define NCCLGUARD_CORE_RECORDER_BOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/config/settable.h"
#include "core/nccl/op.h"
#include "core/recorder/exit_status.h"
#include "core/util/descriptor.h"

#define NG_BOX_MAGIC   UINT64_C(0x31584f424743434e) /* "NCCGBOX1" */
#define NG_BOX_VERSION 1
/* Files of black boxes are named NG_BOX_PREFIX + pid + "-" + start ticks; if that name exists
 * already, plus "-" and a number from 2: a process that became another program has one box for each
 * program. */
#define NG_BOX_PREFIX "box-"

/* The state of the process, as written by itself; neighbours detect what it cannot write (killed,
 * stopped). */
enum ng_box_life {
    NG_BOX_RUNNING = 1,
    NG_BOX_EXITED = 2,         /* left through exit() or return from main; exit_status is known */
    NG_BOX_ENDED_BY_GUARD = 3, /* by policy, after the dumps */
    NG_BOX_EXECED = 4,         /* became another program, which has recorded this */
};

#define NG_BOX_FRAME_BYTES 128

/* NCCL's own variables of the process: core/config/nccl_variables.h. */
#define NG_BOX_VARIABLES_BYTES 320

/* Room for options that commands change: core/config/settable.h. */
#define NG_BOX_SETTABLES 8

/* Room for kinds of memory. */
#define NG_BOX_MEMORY_KINDS 8

/* The first NaN found in data that this process was to send: core/check/nan.h. */
struct ng_box_nan {
    _Atomic int64_t found_mono_ns;  /* guard word; 0 none found */
    _Atomic uint64_t group_id, seq; /* of the call; seq 0: a send */
    _Atomic uint32_t op;
    _Atomic int32_t dtype;
    _Atomic uint64_t elements, bad; /* elements that it was to send, and bad ones among them */
    _Atomic uint64_t element, bits; /* index and bits of the first bad one */
    _Atomic uint32_t held;  /* the call does not reach the device: the process is ended for it */
    _Atomic uint32_t calls; /* calls in which any were found so far */
};

/* What the driver knows of a device: core/recorder/device_errors.h. 40 bytes. */
#define NG_BOX_DEVICE_ERRORS 8
struct ng_box_device_error {
    _Atomic uint64_t guard;     /* guard word: kind << 32 | number; 0 free */
    _Atomic uint64_t pci_id[2]; /* text in the bytes of the words */
    _Atomic uint64_t count;
    _Atomic int64_t seen_mono_ns;
};

struct ng_box_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint32_t group_bytes, group_capacity;
    uint32_t thread_bytes, thread_capacity;
    uint32_t record_bytes, record_capacity;
    uint64_t groups_offset, threads_offset, records_offset, total_bytes;

    /* Identity. Written once, before the file gets its name. */
    int32_t rank, world_size, local_rank; /* from the launcher; -1 not known */
    int32_t pid;
    uint64_t start_ticks;   /* field 22 of /proc/PID/stat: reveals a reused pid */
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid */
    char boot_id[40];       /* /proc/sys/kernel/random/boot_id */
    char host[64];
    char job[128];
    char program[64];
    char guard_version[16];
    char run_id[64]; /* of the `ncclguard run` that started the process; "" none */
    int64_t origin_mono_ns, origin_unix_ns; /* one instant in both clocks */
    int64_t timeout_ns, suspect_ns, init_timeout_ns;

    /* State. */
    _Atomic uint32_t life; /* enum ng_box_life */
    _Atomic int32_t exit_status;
    _Atomic int64_t life_mono_ns;      /* when `life` changed */
    _Atomic int64_t heartbeat_mono_ns; /* the guard's threads are alive; at least once a second */
    _Atomic int64_t watchdog_mono_ns;  /* the watchdog's last round */
    _Atomic uint64_t record_next;      /* id that the next record gets; ids start at 1 */
    _Atomic uint32_t group_used;       /* number of slots ever used: readers stop there */
    _Atomic uint32_t thread_used;
    _Atomic uint64_t records_lost; /* no event was available: completion not observed */
    _Atomic uint64_t groups_lost, threads_lost; /* no slot */
    _Atomic uint64_t dump_epoch;       /* newest incident whose dump of this process is written */
    _Atomic int64_t published_mono_ns; /* its progress reached the board across hosts; 0 never */
    _Atomic uint64_t board_slot;       /* its slot there; 0 none */
    /* Its guard stops its threads to read their stacks, until then at most: the kernel reports them
     * as stopped, but the process is not. 0 never */
    _Atomic int64_t held_until_mono_ns;

    /* Measured durations: core/recorder/durations.h. 0 the writer has none. */
    uint64_t durations_offset, samples_offset;
    uint32_t duration_bytes, duration_capacity;
    uint32_t sample_bytes, sample_capacity;
    _Atomic uint64_t sample_next;    /* number that the next sample gets; numbers start at 1 */
    _Atomic uint64_t durations_lost; /* measured, but the table had no room for their kind */
    /* core/incident/monitor.h: since when the watchdog has made no round, in its process's own
     * time; and what it is blocked in, as text in the bytes of the words. 0 it makes rounds. The
     * text is written first. */
    _Atomic int64_t watchdog_stuck_mono_ns;
    _Atomic uint64_t watchdog_in[NG_BOX_FRAME_BYTES / 8];
    /* NCCL's text for the first asynchronous error of a communicator (its group's `async_error`):
     * complete once its size is set; 0 none */
    _Atomic uint32_t error_text_bytes;
    char error_text[196];
    /* Injected faults: core/recorder/fault_log.h. 0 none */
    uint64_t faults_offset;
    uint32_t fault_bytes, fault_capacity;

    /* Where calls were made: core/unwind/frame_table.h. 0 not configured. */
    uint64_t frames_offset, modules_offset, addresses_offset;
    uint32_t frames_bytes, frames_capacity;
    uint32_t module_bytes, module_capacity;
    uint32_t address_bytes, address_capacity;
    _Atomic uint32_t module_used, address_used;    /* complete slots */
    _Atomic uint64_t modules_lost, addresses_lost; /* no slot */

    /* Variables of core/config/nccl_variables.def that were set; written once, before the file gets
     * its name; "" none, or not known. */
    char nccl_variables[NG_BOX_VARIABLES_BYTES];

    /* core/view/hash_log.h. 0 the writer has none. */
    uint64_t hash_logs_offset;
    uint32_t hash_log_bytes, hash_log_capacity;

    /* Device memory of the process, by enum ng_segment_kind, as the watchdog last saw it;
     * memory_kinds is the number of kinds. 0 not tracked. */
    _Atomic uint32_t memory_kinds;
    uint32_t registration_bytes, registration_capacity;
    uint64_t registrations_offset; /* 0 none */
    struct {
        _Atomic uint64_t segments, bytes;
    } memory[NG_BOX_MEMORY_KINDS];

    /* Where calls were made in Python: core/recorder/python_code.h. 0 no Python, or not
     * configured. */
    uint64_t python_offset, codes_offset, lines_offset;
    uint32_t python_bytes, python_capacity;
    uint32_t code_bytes, code_capacity;
    uint32_t lines_capacity;
    _Atomic uint32_t code_used, lines_used; /* slots and bytes in use */
    _Atomic uint64_t codes_lost;            /* no slot */

    struct ng_box_nan nan;

    /* Lets other processes end one that cannot end itself: the mildest enum ng_on_timeout that a
     * deadline may lead to here, by configuration or any rule, plus 1. 0 not known: it is not
     * ended. */
    _Atomic uint32_t mildest_policy;
    uint32_t takes_errors; /* 1: its calls return errors first, and it may continue:
                              NCCLGUARD_BLOCKING_WAIT */
    /* A verdict ends it: the policy that is applied, plus 1, and since when. 0 none */
    _Atomic uint32_t ending_policy;
    _Atomic int64_t ending_mono_ns;
    /* 1: it can no longer read the folder of its job (changed user, a chroot), and so receives
     * nothing from there */
    _Atomic uint32_t cut_off;
    /* Hash of the launcher's own identity of its run (core/config/launch.h), written once, before
     * the file gets its name; 0 none, or not known. */
    uint64_t launch_run;
    /* Hash of the path of its evidence folder, likewise. */
    uint64_t evidence_folder;
    /* For a process that could not record its end: when the `ncclguard run` that started it saw it
     * end, and how, NG_EXIT_STATUS_SIGNAL or _SILENT; 0 not known. The time is written last; 0 not
     * seen */
    _Atomic int32_t seen_end;
    _Atomic int64_t seen_end_mono_ns;
    /* Its NCCLGUARD_COLD_SUSPECT, written with the identity; 0 not known, or none. */
    int64_t cold_suspect_ns;
    /* struct ng_box_host_calls. 0 the writer has none. */
    uint64_t host_calls_offset;
    uint32_t host_calls_bytes, host_calls_capacity;
    uint32_t kept_capacity; /* core/recorder/kept.h. 0 the writer keeps none */
    /* core/recorder/edges.h. 0 the writer has none. */
    uint64_t edges_offset;
    uint32_t edges_bytes, edges_capacity;
    /* Options and environment, core/config/settings.h. 0 the writer has none. */
    uint64_t settings_offset;
    uint32_t settings_bytes;
    /* What commands have changed of them since: struct ng_settable_values. */
    _Atomic uint8_t set[NG_BOX_SETTABLES];
    /* When the driver was last asked about the devices, NG_DEVICE_WATCHED_NS not yet; 0 it is not
     * asked. Written after the errors. */
    _Atomic int64_t devices_looked_mono_ns;
    struct ng_box_device_error device_errors[NG_BOX_DEVICE_ERRORS];
};
#define NG_BOX_HEADER_BYTES 4096

enum ng_group_state {
    NG_GROUP_FREE = 0,
    NG_GROUP_CREATING = 1,
    NG_GROUP_READY = 2,
    NG_GROUP_FINALIZED = 3, /* ncclCommFinalize was called */
    NG_GROUP_DESTROYED = 4,
    NG_GROUP_ABORTED = 5,
    NG_GROUP_FAILED = 6, /* creation failed */
};

/* The communicator is being made, or may be called. */
static inline bool ng_group_state_is_open(uint32_t state)
{
    return state == NG_GROUP_CREATING || state == NG_GROUP_READY;
}

/* It exists: open, or finalized but not freed. */
static inline bool ng_group_state_is_alive(uint32_t state)
{
    return ng_group_state_is_open(state) || state == NG_GROUP_FINALIZED;
}

/* Its program has freed it. */
static inline bool ng_group_state_is_freed(uint32_t state)
{
    return state == NG_GROUP_DESTROYED || state == NG_GROUP_ABORTED;
}

/* It is freed, or could not be made. */
static inline bool ng_group_state_is_over(uint32_t state)
{
    return ng_group_state_is_freed(state) || state == NG_GROUP_FAILED;
}

/* Whether the device has reached the oldest work of a group. */
enum ng_start {
    NG_START_NONE = 0,
    NG_START_SEEN = 1,
    /* It has finished the work before it on its stream, and nothing else tells
     * (core/device/burst.h). */
    NG_START_INFERRED = 2,
};

/* Why the clock of a group is suspended. */
enum ng_rest {
    NG_REST_NONE = 0,
    NG_REST_OWN = 1, /* its program is in a phase, or an operator has suspended it */
    NG_REST_WITH_OTHERS =
        2, /* only because another rank's is: no reason for further ranks to suspend theirs */
};

/* The description of a collective: the fields that ranks must agree on, and those that help to
 * explain a difference. */
struct ng_signature {
    uint32_t op; /* enum ng_op; 0 none */
    int32_t dtype, redop, root;
    uint64_t count;
};

/* A group's name with its NUL. */
#define NG_BOX_NAME_BYTES 64

/* It is a replay of a CUDA graph that has another launch queued behind it: the device is in
 * pending_seq, or in a later call of that replay. */
#define NG_PENDING_VAGUE 1u
/* The watchdog hangs since it saw this work in flight, and its age runs on: the device may have
 * finished it. */
#define NG_PENDING_UNWATCHED 2u

/* One communicator handle of this process. 384 bytes. */
struct ng_box_group {
    _Atomic uint32_t state;             /* guard word, enum ng_group_state */
    _Atomic uint32_t generation;        /* grows with each reuse of the slot */
    _Atomic uint64_t id;                /* the same on all ranks: core/nccl/group_id.h */
    _Atomic uint64_t parent_id;         /* 0 none */
    _Atomic int32_t nranks, group_rank; /* -1 not known yet */
    _Atomic int32_t device;             /* CUDA ordinal, -1 unknown */
    _Atomic int32_t nccl_version;
    _Atomic int32_t color; /* of a split; -1 else */
    _Atomic uint32_t
        ordinal; /* number of the split, shrink or grow of the parent, from 1; 0 neither */
    _Atomic uint32_t
        derived; /* splits, shrinks and grows called on this communicator, in any state */
    _Atomic uint32_t created_by; /* enum ng_op */
    _Atomic int32_t async_error; /* ncclResult_t last seen; 0 none */
    /* What a deadline of its collectives leads to: enum ng_on_timeout plus 1; 0 not known. */
    _Atomic uint32_t policy;
    _Atomic uint64_t handle; /* ncclComm_t */
    _Atomic int64_t created_mono_ns, ended_mono_ns;
    /* ncclConfig_t.commName, or the name that the program or a rule (core/comm/rules.h) gives it,
     * maybe later; "" none. NUL-terminated text in the bytes of the words: ng_box_write_name. */
    _Atomic uint64_t name[8];

    /* Progress. Collectives count from 1; 0 none yet. */
    _Atomic uint64_t entered, scheduled, started, completed;
    _Atomic int64_t completed_mono_ns;
    _Atomic uint64_t
        entered_record; /* id of the record of collective `entered`; 0: no records, use these: */
    _Atomic uint64_t last_call; /* operation, data type and root: ng_box_pack_call */
    _Atomic uint64_t last_count;
    _Atomic int32_t last_redop;
    _Atomic uint64_t p2p_entered, p2p_completed;

    /* The oldest work that has not finished, as the watchdog sees it; pending_record 0: none. */
    _Atomic uint64_t pending_record;
    _Atomic uint64_t pending_seq;     /* its collective sequence; 0 point-to-point only */
    _Atomic int64_t pending_age_ns;   /* credited: without time in which the guard did not run */
    _Atomic uint32_t pending_started; /* enum ng_start: has the device reached it? */
    _Atomic uint32_t pending_works;   /* works in flight on this communicator */

    _Atomic int32_t cuda_error;   /* CUresult that ended the observation of its device; 0 none */
    _Atomic uint32_t creator_tid; /* thread that called the creating function; 0 not known */
    /* Over the signatures of all collectives up to `entered`, in order: core/recorder/signature.h.
     * 0 none. */
    _Atomic uint64_t rolling_hash;
    /* PCI id of the device, "0000:1b:00.0", as text in the bytes of the words; 0 not known. */
    _Atomic uint64_t pci_id[2];
    /* core/view/grow_id.h: the id that joining ranks have for the group, written by the rank that
     * invited them and by those ranks; its id until the right one was learned; the excluded ranks.
     * 0 none */
    _Atomic uint64_t joined_id, former_id, excluded;
    /* Of closed NCCL groups: collectives, and sends and receives, beyond the first of their group;
     * and groups of two or more calls. The calls of each stream count as a separate group. */
    _Atomic uint64_t coll_joined, p2p_joined, groups_closed;
    /* core/comm/deadline.h: deadline of the oldest work, extensions included, else the deadline of
     * collectives; -1 none; 0 not known: use the one in the header. */
    _Atomic int64_t timeout_ns;
    _Atomic uint32_t rests;         /* why its clock is suspended: enum ng_rest */
    _Atomic uint32_t pending_doubt; /* what is not known of the oldest work: NG_PENDING_* bits */
    _Atomic int64_t error_mono_ns;  /* when the guard learned that NCCL or CUDA had failed:
                                     * async_error, or a permanent cuda_error; 0 none */
    /* How far the device is by NCCL's own counters, when they were last read
     * (core/device/launch_counters.h): ng_box_counted. 0 not known, or it had finished. */
    _Atomic uint64_t counted;
};
#define NG_BOX_GROUP_BYTES 384
#define NG_BOX_GROUPS_MAX  4096u /* slots that writers make */

/* The kernel of a communicator's oldest collective, by NCCL's progress counters. */
enum ng_kernel { NG_KERNEL_UNKNOWN, NG_KERNEL_NOT_BEGUN, NG_KERNEL_RUNS };

/* As of the moment when `pending` was the record of the oldest work: collective `finished` (0 none)
 * and all before it are finished, and the last `left` launches, at least one, are not. */
#define NG_BOX_LEFT_MAX 0x1fffu
static inline uint64_t ng_box_counted(uint64_t pending, uint64_t finished, uint64_t left,
                                      enum ng_kernel kernel)
{
    return pending << 48 | (finished & UINT32_MAX) << 16 |
           (left < NG_BOX_LEFT_MAX ? left : NG_BOX_LEFT_MAX) << 3 | (uint64_t)kernel << 1 | 1;
}

/* What is in a word; false: not known, or `pending` is no longer the oldest. `entered`: the newest
 * collective that was called. */
static inline bool ng_box_read_counted(uint64_t counted, uint64_t pending, uint64_t entered,
                                       uint64_t *ret_finished, uint32_t *ret_left,
                                       uint8_t *ret_kernel)
{
    if (!counted || counted >> 48 != (pending & UINT16_MAX))
        return false;
    *ret_finished = entered - (uint32_t)(entered - (counted >> 16 & UINT32_MAX));
    *ret_left = counted >> 3 & NG_BOX_LEFT_MAX;
    *ret_kernel = counted >> 1 & 3;
    return true;
}

/* The tracked NCCL call that a thread is inside. 64 bytes. */
struct ng_box_thread {
    _Atomic uint32_t tid;         /* guard word; 0 free */
    _Atomic uint32_t op;          /* enum ng_op; 0: not inside a call */
    _Atomic uint32_t group_slot;  /* of the group table; UINT32_MAX none */
    _Atomic uint32_t group_depth; /* open ncclGroupStart of this thread */
    _Atomic int64_t since_mono_ns;
    _Atomic uint64_t record_id;
    _Atomic uint64_t seq; /* collective sequence in the group; 0 none */
    /* The thread's name at its first call, as text in the bytes of the words; 0 not known. */
    _Atomic uint64_t name[2];
    uint8_t reserved[8];
};
#define NG_BOX_THREAD_BYTES 64

enum ng_record_state {
    NG_RECORD_WRITING = 0,
    NG_RECORD_ENTERED = 1,   /* the host call has not returned, or its group is still open */
    NG_RECORD_SCHEDULED = 2, /* on the stream */
    NG_RECORD_STARTED = 3,   /* the device has reached it */
    NG_RECORD_COMPLETED = 4,
    NG_RECORD_FAILED = 5, /* NCCL returned an error; see result */
    NG_RECORD_CAPTURED =
        6, /* captured into a CUDA graph, not executed: its replays have records of their own */
    NG_RECORD_UNWATCHED =
        7, /* on the stream, but no event was available: completion not observed */
};

#define NG_RECORD_IN_GROUP 1u /* made between ncclGroupStart and ncclGroupEnd */
#define NG_RECORD_IN_PLACE 2u
#define NG_RECORD_P2P      4u
#define NG_RECORD_INVALID  16u /* its arguments were not valid: core/check/arguments.h */
#define NG_RECORD_BLOCKED  8u  /* seen inside the host call for longer than the suspect time */
#define NG_RECORD_REPLAYED                                                                         \
    32u /* made by the launch of a CUDA graph: see graph, replay and graph_position */

/* One call. 192 bytes. */
struct ng_box_record {
    _Atomic uint64_t id_state; /* guard word: id << 8 | enum ng_record_state */
    _Atomic uint64_t group_id;
    _Atomic uint32_t group_slot;
    _Atomic uint32_t op;
    _Atomic uint64_t coll_seq; /* of the group, from 1; the last one before a point-to-point call */
    _Atomic uint64_t p2p_seq;  /* the same for point-to-point */
    _Atomic uint64_t count;
    union {
        struct {
            _Atomic int32_t dtype, redop;
        };
        _Atomic uint64_t type; /* both: ng_signature_pair */
    };
    union {
        struct {
            _Atomic int32_t root;   /* root or peer; -1 none */
            _Atomic int32_t result; /* ncclResult_t of the host call */
        };
        _Atomic uint64_t root_of_new; /* both, of a call that has no result yet: 0 */
    };
    _Atomic uint64_t peer_ordinal; /* number of the send to, or receive from, this peer, from 1; 0 a
                                      collective */
    _Atomic uint64_t send_buffer, recv_buffer, stream, caller;
    _Atomic int64_t entered_mono_ns;
    _Atomic int64_t started_mono_ns, completed_mono_ns; /* when the watchdog saw it; 0 not yet */
    _Atomic uint32_t tid;
    _Atomic uint32_t flags;         /* NG_RECORD_* bits */
    _Atomic uint64_t work_previous; /* id of the previous record of the same work; 0 none */
    _Atomic uint64_t rolling_hash;  /* of the group after this collective; 0 point-to-point */
    /* How long the device took for its work, all calls of an NCCL group together: in the record
     * that closes the group. 0 not measured, or not yet */
    _Atomic int64_t duration_ns;
    /* Only for NG_RECORD_REPLAYED, else undefined: core/device/graph.h. */
    _Atomic uint64_t
        graph; /* number of the executable graph with collectives in this process, from 1 */
    _Atomic uint64_t replay; /* number of its launch, from 1 */
    _Atomic uint32_t graph_position,
        graph_calls; /* number of the call in it, from 1; how many it has */
    uint8_t reserved[8];
};
#define NG_BOX_RECORD_BYTES 192

/*
 * Measured durations of one group, one operation and one size. The figures of a slot are written
 * one by one: a reader may see a count one ahead of its sum. 176 bytes.
 */
#define NG_DURATION_BUCKETS 28
struct ng_box_duration {
    _Atomic uint64_t group_id;   /* guard word; 0 free */
    _Atomic uint32_t op;         /* enum ng_op; NG_OP_GroupEnd: several calls of one NCCL group */
    _Atomic uint32_t size_class; /* up to 2^size_class bytes, and more than half of that */
    _Atomic uint64_t count, sum_ns, min_ns, max_ns;
    /* Bucket k counts durations shorter than 2^k microseconds and not in an earlier bucket; the
     * last has the rest. */
    _Atomic uint32_t histogram[NG_DURATION_BUCKETS];
    _Atomic int64_t newest_mono_ns; /* its newest measurement; 0 not known */
    uint8_t reserved[8];
};
#define NG_BOX_DURATION_BYTES 176

/* One measured work in which every rank of the group waits for all others. 48 bytes. */
struct ng_box_sample {
    _Atomic uint64_t number; /* guard word; 0 free, or being written */
    _Atomic uint64_t group_id;
    _Atomic uint64_t seq; /* its last collective */
    _Atomic int64_t duration_ns;
    _Atomic uint32_t calls; /* calls in the work: those of an NCCL group are one work */
    _Atomic uint32_t group_slot;
    uint8_t reserved[8];
};
#define NG_BOX_SAMPLE_BYTES 48

/* One fault of NCCLGUARD_FAULT, and its occurrences. 256 bytes. */
#define NG_BOX_FAULT_TEXT 128
struct ng_box_fault {
    _Atomic uint64_t times; /* guard word: how often it has happened; 0 not yet */
    _Atomic int64_t first_mono_ns, last_mono_ns;
    /* The newest call that it happened to. */
    _Atomic uint64_t group_id;    /* 0 none, or not made yet */
    _Atomic uint64_t seq;         /* collective; 0 none */
    _Atomic uint32_t op;          /* enum ng_op */
    _Atomic int32_t rank;         /* -1 not known */
    char text[NG_BOX_FAULT_TEXT]; /* as configured; written once, before any can happen */
    uint8_t reserved[80];
};
#define NG_BOX_FAULT_BYTES 256

/* What the guard has registered with the communicator in the same slot of the group table:
 * core/registration/registrations.h. 96 bytes. */
struct ng_box_registrations {
    _Atomic uint32_t
        generation; /* guard word: that of the group; 0 free, or now used for another group */
    _Atomic uint32_t closed; /* 1: nothing more is registered on this communicator */
    _Atomic uint64_t segments, segment_bytes; /* registered now */
    _Atomic uint64_t bytes,
        registered_bytes; /* of sends and receives: all, and those in registered buffers */
    _Atomic uint64_t made, ended, failed, deferred;
    _Atomic uint64_t spent_ns; /* time of the program's threads in NCCL's register and deregister */
    uint8_t reserved[16];
};
#define NG_BOX_REGISTRATIONS_BYTES 96

/* Its counts, as struct ng_view_registration has them, too. */
#define NG_REGISTRATION_COUNTS(DO)                                                                 \
    DO(segments)                                                                                   \
    DO(segment_bytes)                                                                              \
    DO(bytes) DO(registered_bytes) DO(made) DO(ended) DO(failed) DO(deferred) DO(spent_ns)

enum ng_frames_state {
    NG_FRAMES_WRITING = 1,
    NG_FRAMES_PART = 2,  /* more frames are not known yet */
    NG_FRAMES_WHOLE = 3, /* up to the function that the thread began with */
    NG_FRAMES_CUT = 4,   /* there are more than fit, or more than can be walked */
};

/* Innermost frames of the program's thread that made a call, from the caller of the NCCL function.
 * 136 bytes. */
#define NG_BOX_FRAMES 16
struct ng_box_frames {
    _Atomic uint64_t id_state; /* guard word: id of the record << 8 | enum ng_frames_state */
    /* Return addresses; at a signal frame, the address of the interrupted instruction plus 1, so
     * that the address minus 1 always lies in the code. 0 after the last. */
    _Atomic uint64_t address[NG_BOX_FRAMES];
};
#define NG_BOX_FRAMES_BYTES 136

/* A file of the program in memory: itself, or a library. Written once. 512 bytes. */
#define NG_BOX_PATH_BYTES 440
struct ng_box_module {
    uint64_t start, end;     /* its range in memory */
    uint64_t bias;           /* address in memory minus address in the file */
    uint32_t build_id_bytes; /* 0 none */
    uint8_t build_id[32];    /* longer ones are cut */
    uint8_t reserved[12];
    char path[NG_BOX_PATH_BYTES];
};
#define NG_BOX_MODULE_BYTES 512

/* One address that occurs in frames. 256 bytes. */
#define NG_BOX_FRAME_NAME_BYTES 216
struct ng_box_address {
    uint64_t address; /* written once */
    uint32_t module;  /* index; UINT32_MAX: code generated at run time, or no room for its file */
    /* Version of the name, which may be set later and replaced by a better one: 0 none, odd: being
     * written. */
    _Atomic uint32_t name_version;
    _Atomic int64_t
        gone_mono_ns; /* since when, at the latest, the code is no longer there; 0 it still is */
    _Atomic uint64_t name_offset; /* offset of the address from the function's start */
    _Atomic uint64_t
        name[NG_BOX_FRAME_NAME_BYTES / 8]; /* text in the bytes of the words, NUL-terminated */
    uint8_t reserved[8];
};
#define NG_BOX_ADDRESS_BYTES 256

/* Innermost Python frames of the program's thread that made a call. 72 bytes. */
#define NG_BOX_PYTHON_FRAMES 8
struct ng_box_python {
    _Atomic uint64_t id_state; /* guard word, as that of frames: WRITING, WHOLE or CUT */
    /* Upper half: index of the code object plus 1, UINT32_MAX no room for it. Lower half: offset in
     * its bytes. 0 after the last. */
    _Atomic uint64_t frame[NG_BOX_PYTHON_FRAMES];
};
#define NG_BOX_PYTHON_BYTES 72

/* A Python code object, or all those for which the fields below are equal. Written once. 384
 * bytes. */
#define NG_BOX_CODE_FILE_BYTES 200
#define NG_BOX_CODE_NAME_BYTES 144
struct ng_box_code {
    _Atomic uint32_t complete; /* guard word: 1 */
    int32_t first_line;
    uint32_t file_bytes,
        name_bytes; /* of the two texts, UTF-8 without NUL; of a longer one "..." and its end */
    uint32_t lines_bytes; /* of its line table */
    uint32_t lines_kept,
        lines_at;  /* the bytes that are kept, the first ones, and their offset in `lines` */
    uint32_t hash; /* of all these fields */
    char file[NG_BOX_CODE_FILE_BYTES];
    char name[NG_BOX_CODE_NAME_BYTES]; /* the qualified name */
    uint8_t reserved[8];
};
#define NG_BOX_CODE_BYTES 384

/* Words as in core/view/hash_log.h: a rolling hash, and the collective that it follows. 512
 * bytes. */
#define NG_HASH_LOG_NEWEST 16u /* a power of two */
#define NG_HASH_LOG_LEVELS 18u
struct ng_box_hash_log {
    _Atomic uint64_t
        newest[NG_HASH_LOG_NEWEST]; /* of the newest collectives, by seq % NG_HASH_LOG_NEWEST */
    /* Of the newest two multiples of 16, 32, 64 … */
    _Atomic uint64_t marks[NG_HASH_LOG_LEVELS][2];
    _Atomic uint64_t captured; /* the first collective that went into a CUDA graph; 0 none */
    _Atomic uint64_t refused;  /* collectives that core/check/lockstep_check.h has rejected */
    _Atomic uint64_t
        heard; /* of what rank 0 has published, the first turn that was received; 0 none */
    _Atomic uint32_t across; /* enum ng_hash_log_across */
    _Atomic uint32_t
        shared; /* 1: another communicator of this process had the same id while this one lived */
    /* Agreement across hosts (core/check/lockstep_check.h). Of each rank: */
    _Atomic uint64_t
        passed; /* the newest collective that it made without the check, as in an NCCL group */
    _Atomic uint64_t unasked; /* no rank waits from this collective on: a rank captures its calls
                                 into a CUDA graph; 0 none */
    /* If it is the lowest rank of its host: */
    _Atomic uint64_t
        here; /* the newest collective that all ranks of the host have reached with the same call */
    _Atomic uint64_t agreed; /* the same for all hosts */
    _Atomic uint64_t
        apart; /* a collective that another host has reached with another call; 0 none … */
    _Atomic uint32_t apart_after;   /* … after so many had been rejected */
    _Atomic uint32_t apart_rank;    /* the lowest rank there */
    _Atomic uint32_t given_up;      /* collectives that another host has rejected */
    _Atomic uint32_t given_up_rank; /* a rank involved in the reason */
    _Atomic uint32_t here_count;    /* ranks of the host; 0: this rank does not represent it */
    _Atomic uint32_t whole;         /* set by each rank; 1: the host has all ranks of the group */
};
#define NG_BOX_HASH_LOG_BYTES 512

/* The calls of class HOST (core/nccl/op.def) on one communicator. 48 bytes. */
struct ng_box_host_calls {
    _Atomic uint32_t entered[NG_OP_JOINT_CALLS]; /* by ng_op_joint_call */
    /* The newest that was made inside an NCCL group, until that group is over: enum ng_op, and the
     * thread. 0 none */
    _Atomic uint32_t op, tid;
    _Atomic uint32_t open; /* 1: the thread has not begun to close the group */
    uint8_t reserved[12];
};
#define NG_BOX_HOST_CALLS_BYTES 48

/* Of one communicator: struct ng_edge in the bits of words. 608 bytes. */
#define NG_BOX_EDGES 24
struct ng_box_edges {
    /* guard word: its slot of the group table plus 1, the lower half of its generation, and a
     * number of the look; 0 free */
    _Atomic uint64_t guard;
    _Atomic uint64_t pending_record; /* the oldest then */
    _Atomic int64_t looked_mono_ns;
    _Atomic uint32_t count;
    _Atomic uint32_t reserved;
    _Atomic uint64_t words[NG_BOX_EDGES][3];
};
#define NG_BOX_EDGES_BYTES 608

_Static_assert(NG_SETTABLES <= NG_BOX_SETTABLES, "one for each");
_Static_assert(sizeof(struct ng_box_header) <= NG_BOX_HEADER_BYTES, "header fits its page");
_Static_assert(sizeof(struct ng_box_group) == NG_BOX_GROUP_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_thread) == NG_BOX_THREAD_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_host_calls) == NG_BOX_HOST_CALLS_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_record) == NG_BOX_RECORD_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_duration) == NG_BOX_DURATION_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_hash_log) == NG_BOX_HASH_LOG_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_sample) == NG_BOX_SAMPLE_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_fault) == NG_BOX_FAULT_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_registrations) == NG_BOX_REGISTRATIONS_BYTES,
               "layout version 1");
_Static_assert(sizeof(struct ng_box_frames) == NG_BOX_FRAMES_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_module) == NG_BOX_MODULE_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_address) == NG_BOX_ADDRESS_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_python) == NG_BOX_PYTHON_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_code) == NG_BOX_CODE_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_edges) == NG_BOX_EDGES_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_device_error) == 40, "layout version 1");

/* A black box: of this process, mapped; or of another, possibly damaged, as a copy of the latest
 * read. */
struct ng_box {
    struct ng_box_header *header;
    struct ng_box_group *groups;
    struct ng_box_thread *threads;
    struct ng_box_record *records;
    struct ng_box_duration *durations;
    struct ng_box_sample *samples;
    struct ng_box_fault *faults;
    struct ng_box_registrations *registrations;
    struct ng_box_frames *frames;
    struct ng_box_module *modules;
    struct ng_box_address *addresses;
    struct ng_box_hash_log *hash_logs;
    struct ng_box_host_calls *host_calls;
    struct ng_box_python *python;
    struct ng_box_code *codes;
    struct ng_box_edges *edges;
    uint8_t *lines;
    char *settings;
    uint32_t group_capacity, thread_capacity, record_capacity;
    uint32_t kept_capacity;                      /* 0: the writer keeps no records */
    uint32_t duration_capacity, sample_capacity; /* 0: the writer measured nothing */
    uint32_t fault_capacity;                     /* 0: no faults are injected */
    uint32_t registration_capacity;              /* 0: nothing is registered */
    uint32_t frames_capacity, module_capacity, address_capacity;     /* 0: calls have no frames */
    uint32_t hash_log_capacity, host_calls_capacity, edges_capacity; /* 0: the writer has none */
    uint32_t python_capacity, code_capacity, lines_capacity; /* 0: calls have no Python frames */
    uint32_t settings_bytes;                                 /* 0: the writer has none */
    uint32_t groups_reserved;                                /* slots whose pages certainly exist */
    size_t map_bytes;
    uint64_t inode; /* of its file; 0 none */
    char name[64];  /* of its file, without the folder; "" none, or not writable for us */
    struct ng_descriptor file; /* none: the box is private memory of this process */
    bool is_copy;              /* of another process: ng_box_read */
};

#define NG_BOX_NONE ((struct ng_box){.file = {.fd = -1}})

struct ng_settings_source;

/* What is known about a process when its box is made. */
struct ng_box_identity {
    int rank, world_size, local_rank;
    const char *job;
    const char *run_id;          /* of the `ncclguard run` that started the process; NULL none */
    uint64_t launch_run;         /* of the launcher; 0 none */
    const char *evidence_folder; /* its path; NULL none */
    int64_t timeout_ns, suspect_ns, cold_suspect_ns, init_timeout_ns;
    uint32_t faults;                           /* number of faults to inject */
    bool with_registrations;                   /* has a table of registrations */
    bool with_frames;                          /* records where each call was made */
    bool with_python;                          /* in Python too */
    const struct ng_settings_source *settings; /* NULL none */
};

/*
 * Make this process's box in `folder` (exists, 0700) with `records` records. The file appears under
 * its name only when complete and locked (an open-file-description lock that the kernel drops at
 * death). `folder` NULL, or no room there: the box is private memory, and the reason is returned as
 * a negative errno with *ret_box usable. -ENOMEM: no box at all.
 */
int ng_box_create(const char *folder, const struct ng_box_identity *identity, uint32_t records,
                  struct ng_box *ret_box);

/*
 * Open another process's box (or a saved copy), and read its header. Sizes and offsets are checked
 * against the file: -EBADMSG not a black box, -EPROTO another layout version, -EIO cut off, or
 * -errno.
 */
int ng_box_open(const char *path, struct ng_box *ret_box);

/* Does this error of ng_box_open stay: is the file gone, or no black box that this release can
 * read? Others may pass, as for want of a descriptor or of memory. */
bool ng_box_is_unreadable(int error);

/* The parts of a box that can be read, besides its header. */
enum ng_box_part {
    NG_BOX_GROUPS = 1, /* and their hash logs */
    NG_BOX_THREADS = 2,
    NG_BOX_RECORDS = 4,
    NG_BOX_REST = 8,
    NG_BOX_ALL = 15,
};

/*
 * Read the current header and `parts` of another process's box; does nothing for one's own. Safe
 * for any file, whatever happens to it: what can no longer be read keeps its latest contents. 0;
 * -EIO it was truncated, or is no longer that box; -EBADF the program has closed the descriptor.
 * One thread at a time, which is also the only one to use the copy.
 */
int ng_box_read(const struct ng_box *box, unsigned parts);

/* Is the process stopped, given the `state` of its first thread (from /proc/PID/stat), read at
 * `before_mono_ns` or later? Reads the header again if its own guard may be what holds it. As for
 * ng_box_read. */
bool ng_box_shows_stopped(const struct ng_box *box, char state, int64_t before_mono_ns);

/*
 * Map the bytes of another process's file that the copy has at `part`, read-only, until
 * ng_box_unmap_part. NULL: they cannot be mapped. They must never be loaded from, since a truncated
 * file raises SIGBUS; system calls return EFAULT then.
 */
const void *ng_box_map_part(const struct ng_box *box, const void *part, size_t bytes);
void ng_box_unmap_part(const void *mapped, size_t bytes);

/* Release the memory of a copy except its header; the next read allocates it again. */
void ng_box_forget(const struct ng_box *box);

/* Release all memory; `unlink_path` NULL keeps the file. */
void ng_box_close(struct ng_box *box, const char *unlink_path);

/* File name (without folder) of the first box of a process. */
void ng_box_name(int pid, uint64_t start_ticks, char *ret_name, size_t bytes);

/*
 * Mark the box in this file as that of a program that this process ran before an exec. 0 or -errno.
 */
int ng_box_mark_execed(const char *path);

struct ng_loaded;

/*
 * Leave a box in `folder` (made if missing) for a process that has ended without one, which was
 * `loaded`, and was seen to end then and so. 0 or -errno. *ret_path is the box's.
 */
int ng_box_leave(const char *folder, const struct ng_loaded *loaded, const char *run_id, int pid,
                 uint64_t start_ticks, int64_t when_mono_ns, int status, char *ret_path,
                 size_t bytes);

/* Record in this box that its process was seen to end, which it has not recorded itself. 0 or
 * -errno. */
int ng_box_mark_ended(const char *path, int64_t when_mono_ns, int status);

/* Pages of the group table are reserved in steps, so that a full shared memory is an error, not
 * SIGBUS. Makes slot `index` usable: 0, or -errno. Serialised by the caller. */
int ng_box_reserve_group(struct ng_box *box, uint32_t index);

/*
 * Identifies the process and the program that it runs, across all hosts and times; a box and its
 * saved copy have the same. Never 0.
 */
uint64_t ng_box_uid(const struct ng_box_header *header);

/* Of a process that was started by hand: the same for all below one `ncclguard run`, else its uid.
 * 0: it has a launcher. */
uint64_t ng_box_run_word(const struct ng_box_header *header);

/* Access to shared fields, except guard words. */
#define NG_LOAD(field)         atomic_load_explicit(&(field), memory_order_relaxed)
#define NG_STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

/* A name may change during a read: the reader may then see parts of both. `name` is cut to
 * NG_BOX_NAME_BYTES - 1. */
void ng_box_write_name(struct ng_box_group *group, const char *name);

/* Always NUL-terminated. */
void ng_box_read_name(const struct ng_box_group *group, char ret_name[NG_BOX_NAME_BYTES]);

static inline uint64_t ng_box_pack_call(uint32_t op, int dtype, int root)
{
    return (uint64_t)(uint32_t)root << 32 | (uint64_t)(uint16_t)dtype << 16 | (uint16_t)op;
}

/* id % capacity; ids below 2^32 use the short division. */
static inline uint32_t ng_record_slot(uint64_t id, uint32_t capacity)
{
    return __builtin_expect(id >> 32 == 0, 1) ? (uint32_t)id % capacity : (uint32_t)(id % capacity);
}

static inline uint64_t ng_record_id(uint64_t id_state)
{
    return id_state >> 8;
}

static inline enum ng_record_state ng_record_state(uint64_t id_state)
{
    return (enum ng_record_state)(id_state & 0xff);
}

#endif
