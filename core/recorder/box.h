/*
 * The black box: what one process tells about itself, in a file that outlives it.
 *
 * Layout, version 1. The file is mapped shared by its process, and read, never mapped, by anybody
 * with the rights (mode 0600): a neighbour, `ncclguard analyze`, after SIGKILL, during SIGSTOP. All
 * numbers are the host's byte order; offsets in the header, so that a reader needs no constant of
 * the writer's but this file.
 *
 *   header     one page: who, since when, how it lives
 *   groups     group_capacity slots: one per communicator handle
 *   threads    thread_capacity slots: the NCCL call that a thread is inside
 *   records    record_capacity slots: the newest calls, slot = id % capacity
 *   durations  duration_capacity slots: measured times of each group, operation and size
 *   samples    sample_capacity slots: the newest measured collectives, slot = number % capacity
 *   faults     fault_capacity slots: the faults of NCCLGUARD_FAULT; none where it is not set
 *   registrations  registration_capacity slots, or none: of the group in the same slot of groups
 *   frames     frames_capacity slots, as many as records, or none: where each call was made
 *   modules    module_capacity slots: the program's files, and
 *   places     place_capacity slots: what is known of the addresses in frames
 *   hash logs     trail_capacity slots: rolling hashes of the group in the same slot:
 * core/view/hash_log.h python     python_capacity slots, as many as records, or none: the same in
 * Python, codes      code_capacity slots: the code objects that occur in them, and lines
 * lines_capacity bytes: their line tables: core/recorder/python_code.h
 *
 * Writers: the program's threads (threads, records, frames, python, codes, lines, faults,
 * registrations, `entered` and `scheduled` of groups), the watchdog (states, `started`,
 * `completed`, ages, `cuda_error`, durations, samples, `memory`), and another thread of the guard
 * (frames, modules, places). Every shared field is atomic and is read and written relaxed; a slot
 * is valid when its own guard word says so (record.id_state, group.state, thread.tid,
 * duration.group_id, sample.number, fault.times, registrations.generation, frames.id_state,
 * python.id_state, code.complete, and of modules and places
 * the header's counts), which is written last with release. Readers copy a slot and check the guard
 * word before and after. A field may be added in reserved bytes, where zero means "not known",
 * within a version, and a table whose place the header tells in bytes that were unused; any other
 * change is a new version.
 */
#ifndef NCCLGUARD_CORE_RECORDER_BOX_H
#define NCCLGUARD_CORE_RECORDER_BOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/op.h"
#include "core/util/descriptor.h"

#define NG_BOX_MAGIC   UINT64_C(0x31584f424743434e) /* "NCCGBOX1" */
#define NG_BOX_VERSION 1
/* Files of black boxes are named NG_BOX_PREFIX + pid + "-" + start ticks, and where there is one of
 * that name already, "-" + a number from 2: a process that became another program has one for each.
 */
#define NG_BOX_PREFIX "box-"

/* How the process lives, as it says itself; what it cannot say (killed, stopped) its neighbours
 * see. */
enum ng_box_life {
    NG_BOX_RUNNING = 1,
    NG_BOX_EXITED = 2,         /* left through exit() or return from main; exit_status is known */
    NG_BOX_ENDED_BY_GUARD = 3, /* by policy, after the dumps */
    NG_BOX_EXECED = 4,         /* became another program, which has told so */
};

/* exit_status of those who leave without telling any; what a program tells is from 0 to 255. */
#define NG_EXIT_STATUS_NOT_TOLD (-1) /* quick_exit */
#define NG_EXIT_STATUS_EXEC     (-2) /* became another program */
/* And, as the kernel tells of those who could not tell it themselves, 0 where it does not: */
#define NG_EXIT_STATUS_SIGNAL 256 /* and the number of the signal that ended it */
#define NG_EXIT_STATUS_SILENT 512 /* and what it ended with, by _exit */

#define NG_BOX_FRAME_BYTES 128

/* NCCL's own variables that the process has: core/config/variables.h. */
#define NG_BOX_VARIABLES_BYTES 320

/* Kinds of memory that there is room for. */
#define NG_BOX_MEMORY_KINDS 8

/* The first numbers that are none in what this process was to send: core/check/nan.h. */
struct ng_box_nan {
    _Atomic int64_t found_mono_ns;  /* guard word; 0 none were */
    _Atomic uint64_t group_id, seq; /* of the call; seq 0: a send */
    _Atomic uint32_t op;
    _Atomic int32_t dtype;
    _Atomic uint64_t elements, bad; /* that it was to send, and those that are none */
    _Atomic uint64_t element, bits; /* the first of these, and what it is */
    _Atomic uint32_t held;  /* the call does not get to the device: the process is ended for it */
    _Atomic uint32_t calls; /* in which any were found so far */
};

struct ng_box_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint32_t group_bytes, group_capacity;
    uint32_t thread_bytes, thread_capacity;
    uint32_t record_bytes, record_capacity;
    uint64_t groups_offset, threads_offset, records_offset, total_bytes;

    /* Who. Written once, before the file gets its name. */
    int32_t rank, world_size, local_rank; /* from the launcher; -1 not known */
    int32_t pid;
    uint64_t start_ticks;   /* field 22 of /proc/PID/stat: tells a reused pid */
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid */
    char boot_id[40];       /* /proc/sys/kernel/random/boot_id */
    char host[64];
    char job[128];
    char program[64];
    char guard_version[16];
    char run_id[64];                        /* of the `ncclguard run` above the process; "" none */
    int64_t origin_mono_ns, origin_unix_ns; /* one instant in both clocks */
    int64_t timeout_ns, suspect_ns, init_timeout_ns;

    /* How it goes. */
    _Atomic uint32_t life; /* enum ng_box_life */
    _Atomic int32_t exit_status;
    _Atomic int64_t life_mono_ns;      /* when `life` changed */
    _Atomic int64_t heartbeat_mono_ns; /* the guard's threads are alive; at least once a second */
    _Atomic int64_t watchdog_mono_ns;  /* the watchdog's last round */
    _Atomic uint64_t record_next;      /* id that the next record gets; ids start at 1 */
    _Atomic uint32_t group_used;       /* slots that were ever used: readers stop there */
    _Atomic uint32_t thread_used;
    _Atomic uint64_t records_lost;              /* no event could be had: completion not observed */
    _Atomic uint64_t groups_lost, threads_lost; /* no slot */
    _Atomic uint64_t dump_epoch;       /* newest incident whose dump of this process is written */
    _Atomic int64_t published_mono_ns; /* its progress reached the board across hosts; 0 never */
    _Atomic uint64_t board_slot;       /* its place there; 0 none */
    /* Its guard holds its threads still to look at their stacks, until then at most: the kernel
     * calls them stopped, but it is not. 0 never */
    _Atomic int64_t held_until_mono_ns;

    /* Measured durations: core/recorder/durations.h. 0 the writer has none. */
    uint64_t durations_offset, samples_offset;
    uint32_t duration_bytes, duration_capacity;
    uint32_t sample_bytes, sample_capacity;
    _Atomic uint64_t sample_next;    /* number that the next sample gets; numbers start at 1 */
    _Atomic uint64_t durations_lost; /* measured, but the table had no room for their kind */
    /* core/incident/monitor.h: the watchdog has made no round since then, in its process's own
     * time; and what it is in, as text in the bytes of the words. 0 it goes round. Text first. */
    _Atomic int64_t watchdog_stuck_mono_ns;
    _Atomic uint64_t watchdog_in[NG_BOX_FRAME_BYTES / 8];
    /* What NCCL said of the first asynchronous error of a communicator (its group's `async_error`):
     * complete once the size of it is there; 0 none */
    _Atomic uint32_t error_text_bytes;
    char error_text[196];
    /* Injected faults: core/recorder/fault_log.h. 0 none */
    uint64_t faults_offset;
    uint32_t fault_bytes, fault_capacity;

    /* Where calls were made: core/unwind/frame_table.h. 0 the writer was not asked for that. */
    uint64_t frames_offset, modules_offset, places_offset;
    uint32_t frames_bytes, frames_capacity;
    uint32_t module_bytes, module_capacity;
    uint32_t place_bytes, place_capacity;
    _Atomic uint32_t module_used, place_used;   /* complete slots */
    _Atomic uint64_t modules_lost, places_lost; /* no slot */

    /* Which of core/config/variables.def were set, written once, before the file gets its name; ""
     * none, or not told. */
    char nccl_variables[NG_BOX_VARIABLES_BYTES];

    /* core/view/hash_log.h. 0 the writer has none. */
    uint64_t trails_offset;
    uint32_t trail_bytes, trail_capacity;

    /* Device memory of the process, by enum ng_segment_kind, as the watchdog found it last; as many
     * kinds as there are. 0 nobody follows it. */
    _Atomic uint32_t memory_kinds;
    uint32_t registration_bytes, registration_capacity;
    uint64_t registrations_offset; /* 0 none */
    struct {
        _Atomic uint64_t segments, bytes;
    } memory[NG_BOX_MEMORY_KINDS];

    /* Where calls were made in Python: core/recorder/python_code.h. 0 there is no Python, or nobody
     * asked. */
    uint64_t python_offset, codes_offset, lines_offset;
    uint32_t python_bytes, python_capacity;
    uint32_t code_bytes, code_capacity;
    uint32_t lines_capacity;
    _Atomic uint32_t code_used, lines_used; /* slots and bytes that were given out */
    _Atomic uint64_t codes_lost;            /* no slot */

    struct ng_box_nan nan;

    /* For others to end what cannot end itself: one more than the mildest enum ng_on_timeout that a
     * deadline may lead to here, by configuration or any rule. 0 not known: nobody ends it. */
    _Atomic uint32_t mildest_policy;
    uint32_t takes_errors; /* 1: its calls return errors first, and it may go on:
                              NCCLGUARD_BLOCKING_WAIT */
    /* A verdict ends it: the policy that is carried out, likewise, since when. 0 none does */
    _Atomic uint32_t ending_policy;
    _Atomic int64_t ending_mono_ns;
    /* 1: it cannot read the folder of its job (another user by now, a chroot), and so hears of
     * nothing there */
    _Atomic uint32_t cut_off;
    /* Of the launcher's own words for its run (core/config/launch.h), written once, before the file
     * gets its name; 0 it has none, or not told. */
    uint64_t launch_run;
    /* Of the path of the folder that its evidence goes to, likewise. */
    uint64_t evidence_folder;
    /* Of a process that could not tell its end: when the `ncclguard run` above it saw it end, and
     * how, NG_EXIT_STATUS_SIGNAL or _SILENT; 0 not known. The time last; 0 nobody saw it */
    _Atomic int32_t seen_end;
    _Atomic int64_t seen_end_mono_ns;
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

/* Why the clock of a group rests. */
enum ng_rest {
    NG_REST_NONE = 0,
    NG_REST_OWN = 1,         /* its program is in a phase, or a person has suspended it */
    NG_REST_WITH_OTHERS = 2, /* only since another rank's rests: no reason for others to do so */
};

/* What a collective says of itself: the fields that ranks must agree on, and those that help to
 * tell. */
struct ng_signature {
    uint32_t op; /* enum ng_op; 0 none */
    int32_t dtype, redop, root;
    uint64_t count;
};

/* A group's name with its end. */
#define NG_BOX_NAME_BYTES 64

/* One communicator handle of this process. 384 bytes. */
struct ng_box_group {
    _Atomic uint32_t state;             /* guard word, enum ng_group_state */
    _Atomic uint32_t generation;        /* grows with each reuse of the slot */
    _Atomic uint64_t id;                /* the same on all ranks: core/nccl/group_id.h */
    _Atomic uint64_t parent_id;         /* 0 none */
    _Atomic int32_t nranks, group_rank; /* -1 not known yet */
    _Atomic int32_t device;             /* CUDA ordinal, -1 unknown */
    _Atomic int32_t nccl_version;
    _Atomic int32_t color;    /* of a split; -1 else */
    _Atomic uint32_t ordinal; /* which split, shrink or grow of the parent, from 1; 0 not one */
    _Atomic uint32_t
        derived; /* splits, shrinks and grows called on this communicator, in any state */
    _Atomic uint32_t created_by; /* enum ng_op */
    _Atomic int32_t async_error; /* ncclResult_t last seen; 0 none */
    _Atomic uint64_t handle;     /* ncclComm_t */
    _Atomic int64_t created_mono_ns, ended_mono_ns;
    /* ncclConfig_t.commName, or what the program or a rule (core/comm/rules.h) calls it, maybe
     * later; "" none. Text in the bytes of the words, ended: ng_box_write_name. */
    _Atomic uint64_t name[8];

    /* Progress. Collectives count from 1; 0 none yet. */
    _Atomic uint64_t entered, scheduled, started, completed;
    _Atomic int64_t completed_mono_ns;
    _Atomic uint64_t
        entered_record; /* id of the record of collective `entered`; 0: no records, then these: */
    _Atomic uint64_t last_call; /* operation, data type and root: ng_box_pack_call */
    _Atomic uint64_t last_count;
    _Atomic int32_t last_redop;
    _Atomic uint64_t p2p_entered, p2p_completed;

    /* The oldest work that has not finished, as the watchdog sees it; pending_record 0: none. */
    _Atomic uint64_t pending_record;
    _Atomic uint64_t pending_seq;     /* its collective sequence; 0 point-to-point only */
    _Atomic int64_t pending_age_ns;   /* credited: without time in which the guard did not run */
    _Atomic uint32_t pending_started; /* 1: the device has reached it */
    _Atomic uint32_t pending_works;   /* works in flight on this communicator */

    _Atomic int32_t cuda_error;   /* CUresult that ended the watching of its device; 0 none */
    _Atomic uint32_t creator_tid; /* thread that called for its creation; 0 not known */
    /* Of the signatures of all collectives up to `entered`, in order: core/recorder/signature.h. 0
     * none. */
    _Atomic uint64_t rolling_hash;
    /* Of the device, "0000:1b:00.0", as text in the bytes of the words; 0 not known. */
    _Atomic uint64_t pci_id[2];
    /* core/view/grow_id.h: what those who join it call the group, told by the rank that invited
     * them, and by those themselves; its id until the right one was learned; who was left out. 0
     * none */
    _Atomic uint64_t joined_id, former_id, excluded;
    /* Of closed NCCL groups: collectives, and sends and receives, beyond the first of their group,
     * and groups of two or more calls. Those of each stream are a group for themselves. */
    _Atomic uint64_t coll_joined, p2p_joined, groups_closed;
    /* core/comm/deadline.h: deadline of the oldest work, extensions included, else that of
     * collectives; -1 none; 0 not known: the header has that of all groups. */
    _Atomic int64_t timeout_ns;
    _Atomic uint32_t rests; /* its clock rests: enum ng_rest */
    /* The oldest work is a replay of a CUDA graph of which another launch is queued behind: it is
     * in pending_seq, or in a later call of that replay. */
    _Atomic uint32_t pending_vague;
    _Atomic int64_t error_mono_ns; /* when async_error was learned; 0 none */
    uint8_t reserved[8];
};
#define NG_BOX_GROUP_BYTES 384

/* The tracked NCCL call that a thread is inside. 64 bytes. */
struct ng_box_thread {
    _Atomic uint32_t tid;         /* guard word; 0 free */
    _Atomic uint32_t op;          /* enum ng_op; 0: not inside a call */
    _Atomic uint32_t group_slot;  /* of the group table; UINT32_MAX none */
    _Atomic uint32_t group_depth; /* open ncclGroupStart of this thread */
    _Atomic int64_t since_mono_ns;
    _Atomic uint64_t record_id;
    _Atomic uint64_t seq; /* collective sequence in the group; 0 none */
    /* Its name when it made its first call, as text in the bytes of the words; 0 not known. */
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
        6, /* went into a CUDA graph, and did not happen: its replays have records of their own */
    NG_RECORD_UNWATCHED = 7, /* on the stream, but no event could be had: completion not observed */
};

#define NG_RECORD_IN_GROUP 1u /* made between ncclGroupStart and ncclGroupEnd */
#define NG_RECORD_IN_PLACE 2u
#define NG_RECORD_P2P      4u
#define NG_RECORD_INVALID  16u /* its arguments were not valid: core/check/arguments.h */
#define NG_RECORD_BLOCKED  8u  /* seen inside the host call for longer than the suspect time */
#define NG_RECORD_REPLAYED                                                                         \
    32u /* came with the launch of a CUDA graph: graph, replay and position tell which */

/* One call. 192 bytes. */
struct ng_box_record {
    _Atomic uint64_t id_state; /* guard word: id << 8 | enum ng_record_state */
    _Atomic uint64_t group_id;
    _Atomic uint32_t group_slot;
    _Atomic uint32_t op;
    _Atomic uint64_t coll_seq; /* of the group, from 1; the last one before a point-to-point call */
    _Atomic uint64_t p2p_seq;  /* likewise for point-to-point */
    _Atomic uint64_t count;
    _Atomic int32_t dtype, redop;
    _Atomic int32_t root;   /* root or peer; -1 none */
    _Atomic int32_t result; /* ncclResult_t of the host call */
    _Atomic uint64_t
        peer_ordinal; /* which send to, or receive from, this peer, from 1; 0 a collective */
    _Atomic uint64_t send_buffer, recv_buffer, stream, caller;
    _Atomic int64_t entered_mono_ns;
    _Atomic int64_t started_mono_ns, completed_mono_ns; /* when the watchdog saw it; 0 not yet */
    _Atomic uint32_t tid;
    _Atomic uint32_t flags;         /* NG_RECORD_* bits */
    _Atomic uint64_t work_previous; /* id of the previous record of the same work; 0 none */
    _Atomic uint64_t rolling_hash;  /* of the group after this collective; 0 point-to-point */
    /* How long the device took for its work, all calls of an NCCL group together: in the record
     * that closes it. 0 not measured, or not yet */
    _Atomic int64_t duration_ns;
    /* Of NG_RECORD_REPLAYED, and without meaning else: core/device/graph.h. */
    _Atomic uint64_t graph;  /* which executable graph with collectives of this process, from 1 */
    _Atomic uint64_t replay; /* which launch of it, from 1 */
    _Atomic uint32_t graph_position, graph_calls; /* which of its calls, from 1; how many it has */
    uint8_t reserved[8];
};
#define NG_BOX_RECORD_BYTES 192

/*
 * Measured durations of one group, one operation and one size. Figures of a slot are written one by
 * one: a reader may see a count that is one ahead of its sum. 176 bytes.
 */
#define NG_DURATION_BUCKETS 28
struct ng_box_duration {
    _Atomic uint64_t group_id;   /* guard word; 0 free */
    _Atomic uint32_t op;         /* enum ng_op; NG_OP_GroupEnd: several calls of one NCCL group */
    _Atomic uint32_t size_class; /* up to 2^size_class bytes, and more than half of that */
    _Atomic uint64_t count, sum_ns, min_ns, max_ns;
    /* Of those shorter than 2^k microseconds, and not in a bucket before; the last has the rest. */
    _Atomic uint32_t histogram[NG_DURATION_BUCKETS];
    _Atomic int64_t newest_mono_ns; /* of its measurements; 0 not known */
    uint8_t reserved[8];
};
#define NG_BOX_DURATION_BYTES 176

/* One measured work in which every rank of the group waits for every other. 48 bytes. */
struct ng_box_sample {
    _Atomic uint64_t number; /* guard word; 0 free, or being written */
    _Atomic uint64_t group_id;
    _Atomic uint64_t seq; /* its last collective */
    _Atomic int64_t duration_ns;
    _Atomic uint32_t calls; /* in the work: those of an NCCL group are one */
    _Atomic uint32_t group_slot;
    uint8_t reserved[8];
};
#define NG_BOX_SAMPLE_BYTES 48

/* One fault that NCCLGUARD_FAULT asks for, and what is known of its happening. 256 bytes. */
#define NG_BOX_FAULT_TEXT 128
struct ng_box_fault {
    _Atomic uint64_t times; /* guard word: that it has happened; 0 not yet */
    _Atomic int64_t first_mono_ns, last_mono_ns;
    /* The call that it happened to, the newest. */
    _Atomic uint64_t group_id;    /* 0 none, or not made yet */
    _Atomic uint64_t seq;         /* collective; 0 none */
    _Atomic uint32_t op;          /* enum ng_op */
    _Atomic int32_t rank;         /* -1 not known */
    char text[NG_BOX_FAULT_TEXT]; /* as it was asked for; written once, before any can happen */
    uint8_t reserved[80];
};
#define NG_BOX_FAULT_BYTES 256

/* What the guard has registered with the communicator that has the same slot of the group table:
 * core/registration/registrations.h. 96 bytes. */
struct ng_box_registrations {
    _Atomic uint32_t generation; /* guard word: of that group; 0 free, or another one's now */
    _Atomic uint32_t closed;     /* 1: no more on this communicator */
    _Atomic uint64_t segments, segment_bytes; /* registered now */
    _Atomic uint64_t bytes, registered_bytes; /* of sends and receives: all, and those within */
    _Atomic uint64_t made, ended, failed, deferred;
    _Atomic uint64_t spent_ns; /* of the program's threads, in NCCL's register and deregister */
    uint8_t reserved[16];
};
#define NG_BOX_REGISTRATIONS_BYTES 96

enum ng_frames_state {
    NG_FRAMES_WRITING = 1,
    NG_FRAMES_PART = 2,  /* the guard knows no more yet */
    NG_FRAMES_WHOLE = 3, /* up to the function that the thread began with */
    NG_FRAMES_CUT = 4,   /* there are more than have room, or more than can be followed */
};

/* Innermost frames of the program's thread that made a call, from the caller of the NCCL function.
 * 136 bytes. */
#define NG_BOX_FRAMES 16
struct ng_box_frames {
    _Atomic uint64_t id_state; /* guard word: id of the record << 8 | enum ng_frames_state */
    /* Return addresses; where a signal came in between, that of the interrupted instruction plus 1,
     * so that one less always lies in the code. 0 behind the last. */
    _Atomic uint64_t address[NG_BOX_FRAMES];
};
#define NG_BOX_FRAMES_BYTES 136

/* A file of the program in memory: itself, or a library. Written once. 512 bytes. */
#define NG_BOX_PATH_BYTES 440
struct ng_box_module {
    uint64_t start, end;     /* where it lies in memory */
    uint64_t bias;           /* address in memory minus address in the file */
    uint32_t build_id_bytes; /* 0 none */
    uint8_t build_id[32];    /* of those that are longer, the first */
    uint8_t reserved[12];
    char path[NG_BOX_PATH_BYTES];
};
#define NG_BOX_MODULE_BYTES 512

/* One address that occurs in frames. 256 bytes. */
#define NG_BOX_FRAME_NAME_BYTES 216
struct ng_box_place {
    uint64_t address; /* written once */
    uint32_t module;  /* index; UINT32_MAX: code that was made at run time, or no room for it */
    /* Of the name, which may come later, and a better one after it: 0 there is none, odd: it is
     * being written. */
    _Atomic uint32_t name_version;
    _Atomic int64_t gone_mono_ns; /* no longer this code since then at the latest; 0 it still is */
    _Atomic uint64_t name_offset; /* of the address from the function's start */
    _Atomic uint64_t name[NG_BOX_FRAME_NAME_BYTES / 8]; /* text in the bytes of the words, ended */
    uint8_t reserved[8];
};
#define NG_BOX_FRAME_ROW_BYTES 256

/* Innermost frames of Python of the program's thread that made a call. 72 bytes. */
#define NG_BOX_PYTHON_FRAMES 8
struct ng_box_python {
    _Atomic uint64_t id_state; /* guard word, as that of frames: WRITING, WHOLE or CUT */
    /* Index of the code object plus 1, UINT32_MAX no room for it, in the upper half; where in its
     * bytes, in the lower one. 0 behind the last. */
    _Atomic uint64_t frame[NG_BOX_PYTHON_FRAMES];
};
#define NG_BOX_PYTHON_BYTES 72

/* A code object of Python, or all those that are alike in what is told here. Written once. 384
 * bytes. */
#define NG_BOX_CODE_FILE_BYTES 200
#define NG_BOX_CODE_NAME_BYTES 144
struct ng_box_code {
    _Atomic uint32_t complete; /* guard word: 1 */
    int32_t first_line;
    uint32_t file_bytes,
        name_bytes; /* of the two texts, UTF-8 without an end; "..." and the last of a longer one */
    uint32_t lines_bytes;          /* of its line table */
    uint32_t lines_kept, lines_at; /* of them, the first, and where they are in `lines` */
    uint32_t hash;                 /* of all this */
    char file[NG_BOX_CODE_FILE_BYTES];
    char name[NG_BOX_CODE_NAME_BYTES]; /* the qualified one */
    uint8_t reserved[8];
};
#define NG_BOX_CODE_BYTES 384

/* Words of core/view/hash_log.h: a rolling hash, and after which collective. 512 bytes. */
#define NG_HASH_LOG_NEWEST 16u /* a power of two */
#define NG_HASH_LOG_LEVELS 18u
struct ng_box_hash_log {
    _Atomic uint64_t
        newest[NG_HASH_LOG_NEWEST]; /* of the newest collectives, by seq % NG_HASH_LOG_NEWEST */
    /* Of the newest two multiples of 16, 32, 64 … */
    _Atomic uint64_t marks[NG_HASH_LOG_LEVELS][2];
    _Atomic uint64_t captured; /* the first collective that went into a CUDA graph; 0 none */
    _Atomic uint64_t refused;  /* collectives that core/check/lockstep_check.h has turned down */
    _Atomic uint64_t heard;    /* of what rank 0 has told, the turn that was heard first; 0 none */
    _Atomic uint32_t across;   /* enum ng_hash_log_across */
    _Atomic uint32_t
        shared; /* 1: another communicator of this process had the same id while this one lived */
    /* Agreeing across hosts (core/check/lockstep_check.h). Of each rank: */
    _Atomic uint64_t
        passed; /* the newest collective that it made without asking, as in an NCCL group */
    _Atomic uint64_t unasked; /* from this collective on nobody waits: some rank's go into a CUDA
                                 graph; 0 none */
    /* Where it is the lowest of its host: */
    _Atomic uint64_t
        here; /* the newest collective that all ranks of the host have come to, alike */
    _Atomic uint64_t agreed; /* likewise of all hosts */
    _Atomic uint64_t
        apart; /* a collective that another host has come to, but not alike; 0 none … */
    _Atomic uint32_t apart_after;   /* … after so many had been turned down */
    _Atomic uint32_t apart_rank;    /* the lowest rank there */
    _Atomic uint32_t given_up;      /* collectives that another host has turned down */
    _Atomic uint32_t given_up_rank; /* a rank that the reason has to do with */
    _Atomic uint32_t here_count;    /* ranks of the host; 0: this one does not speak for it */
    _Atomic uint32_t whole;         /* of each rank: 1: the host has all ranks of the group */
};
#define NG_BOX_TRAIL_BYTES 512

_Static_assert(sizeof(struct ng_box_header) <= NG_BOX_HEADER_BYTES, "header fits its page");
_Static_assert(sizeof(struct ng_box_group) == NG_BOX_GROUP_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_thread) == NG_BOX_THREAD_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_record) == NG_BOX_RECORD_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_duration) == NG_BOX_DURATION_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_hash_log) == NG_BOX_TRAIL_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_sample) == NG_BOX_SAMPLE_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_fault) == NG_BOX_FAULT_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_registrations) == NG_BOX_REGISTRATIONS_BYTES,
               "layout version 1");
_Static_assert(sizeof(struct ng_box_frames) == NG_BOX_FRAMES_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_module) == NG_BOX_MODULE_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_place) == NG_BOX_FRAME_ROW_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_python) == NG_BOX_PYTHON_BYTES, "layout version 1");
_Static_assert(sizeof(struct ng_box_code) == NG_BOX_CODE_BYTES, "layout version 1");

/* Is the process stopped, whose first thread is in `state` (of /proc/PID/stat), which was asked for
 * at `before_mono_ns` or later? Any thread. */
bool ng_box_shows_stopped(const struct ng_box_header *header, char state, int64_t before_mono_ns);

/* A black box: of this process, mapped; or of another, possibly damaged, as a copy of what was read
 * last. */
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
    struct ng_box_place *places;
    struct ng_box_hash_log *hash_logs;
    struct ng_box_python *python;
    struct ng_box_code *codes;
    uint8_t *lines;
    uint32_t group_capacity, thread_capacity, record_capacity;
    uint32_t duration_capacity, sample_capacity; /* 0: of a writer that measured nothing */
    uint32_t fault_capacity;                     /* 0: of one that injects nothing */
    uint32_t registration_capacity;              /* 0: of one that registers nothing */
    uint32_t frames_capacity, module_capacity, place_capacity; /* 0: calls have no frames */
    uint32_t trail_capacity;                                   /* 0: of a writer that has none */
    uint32_t python_capacity, code_capacity, lines_capacity; /* 0: calls have no frames of Python */
    uint32_t groups_reserved;                                /* slots whose pages exist for sure */
    size_t map_bytes;
    uint64_t inode;            /* of its file; 0 none */
    char name[64];             /* of its file, without the folder; "" none, or not ours to write */
    struct ng_descriptor file; /* none: memory of this process only */
    bool is_copy;              /* of another: ng_box_read */
};

#define NG_BOX_NONE ((struct ng_box){.file = {.fd = -1}})

/* What a process knows of itself when its box is made. */
struct ng_box_identity {
    int rank, world_size, local_rank;
    const char *job;
    const char *run_id;          /* of the `ncclguard run` above the process; NULL none */
    uint64_t launch_run;         /* of the launcher; 0 none */
    const char *evidence_folder; /* its path; NULL none */
    int64_t timeout_ns, suspect_ns, init_timeout_ns;
    uint32_t faults;         /* that are to be injected */
    bool with_registrations; /* keeps what is registered */
    bool with_frames;        /* keeps where each call was made */
    bool with_python;        /* in Python too */
};

/*
 * Make this process's box in `folder` (exists, 0700) with `records` records; the file appears under
 * its name complete and locked (an open-file-description lock that the kernel drops at death).
 * `folder` NULL, or no room there: the box lives in private memory and the reason is returned as a
 * negative errno with *ret_box usable. -ENOMEM: no box at all.
 */
int ng_box_create(const char *folder, const struct ng_box_identity *identity, uint32_t records,
                  struct ng_box *ret_box);

/*
 * Open another process's box (or a saved copy), and read its header. Sizes and offsets are checked
 * against the file: -EBADMSG not a black box, -EPROTO another layout version, -EIO cut off, or
 * -errno.
 */
int ng_box_open(const char *path, struct ng_box *ret_box);

/* What can be read of a box, beside its header. */
enum ng_box_part {
    NG_BOX_GROUPS = 1, /* and their hash logs */
    NG_BOX_THREADS = 2,
    NG_BOX_RECORDS = 4,
    NG_BOX_REST = 8,
    NG_BOX_ALL = 15,
};

/*
 * Read the header of another process's box, and `parts`, as they are now; nothing to do for one's
 * own. Any file is survived, whatever is done to it: what cannot be read any more stays as it was
 * read last. 0; -EIO it was cut off, or is no longer that box; -EBADF the program has closed the
 * descriptor. One thread at a time, which also is the only one to use the copy.
 */
int ng_box_read(const struct ng_box *box, unsigned parts);

/* Give the memory back that records and the rest of a copy have; they are there again when they are
 * read again. */
void ng_box_forget(const struct ng_box *box);

/* Give all memory back; `unlink_path` NULL keeps the file. */
void ng_box_close(struct ng_box *box, const char *unlink_path);

/* File name (without folder) of the first box of a process. */
void ng_box_name(int pid, uint64_t start_ticks, char *ret_name, size_t bytes);

/*
 * The box in this file is of a program that this process was before an exec: write so into it. 0 or
 * -errno.
 */
int ng_box_mark_execed(const char *path);

/* The process of this box was seen to end, which it has not told itself: write so into it. 0 or
 * -errno. */
int ng_box_mark_ended(const char *path, int64_t when_mono_ns, int status);

/* Pages of the group table are reserved in steps, so that a full shared memory is an error, not
 * SIGBUS. Makes slot `index` usable: 0, or -errno. Serialised by the caller. */
int ng_box_reserve_group(struct ng_box *box, uint32_t index);

/*
 * Tells the process, and the program that it runs, from every other on any host, at any time; a box
 * and its saved copy have the same. Never 0.
 */
uint64_t ng_box_uid(const struct ng_box_header *header);

/* Shared fields are read and written like this, but for guard words. */
#define NG_LOAD(field)         atomic_load_explicit(&(field), memory_order_relaxed)
#define NG_STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

/* A name may be changed while somebody reads it: he may then see parts of both. `name` is cut to
 * NG_BOX_NAME_BYTES - 1. */
void ng_box_write_name(struct ng_box_group *group, const char *name);

/* Always ended. */
void ng_box_read_name(const struct ng_box_group *group, char ret_name[NG_BOX_NAME_BYTES]);

static inline uint64_t ng_box_pack_call(uint32_t op, int dtype, int root)
{
    return (uint64_t)(uint32_t)root << 32 | (uint64_t)(uint16_t)dtype << 16 | (uint16_t)op;
}

/* id % capacity; ids that fit 32 bits, the first four thousand million, take the short division. */
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
