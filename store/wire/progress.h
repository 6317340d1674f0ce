/*
 * One process of a view in a few bytes: what it tells the ranks of other hosts.
 *
 * Pure, without malloc. Layout, version 1. A number is a varint: 7 bits a byte, lowest first, the
 * top bit says that more follow; a signed one is folded first (0, -1, 1, -2 … become 0, 1, 2, 3 …).
 * "Fixed" is 8 bytes, lowest first. A text is a number n and then: n 0: ""; n even: n / 2 bytes
 * follow; n odd: the same as text (n - 1) / 2 of this blob, counted from 0 where bytes followed,
 * the first NG_PROGRESS_TEXTS of them. A plain text is one with n even that is not counted: what a
 * block has grown by has no other, since not every reader knows of it. A block is a number, its
 * bytes, and then so many bytes.
 *
 *   "NGPR", version (a number)
 *
 *   block     struct ng_progress_head: uid fixed, label fixed, written_unix_ns signed, reason,
 *             life, exit_status signed, life_age_ns signed, rank, world_size, local_rank, pid
 * signed, host, program, bits (1 watchdog, 2 error_text, 4 nccl_variables, 8 failures, 16 memory,
 * 32 nan, 64 alive_age_ns), then what the first three say: watchdog_stuck_ns signed, watchdog_in;
 * error_text; nccl_variables, plain; then how many injected faults (core/recorder/fault_log.h), and
 * for each: fault (plain), times, rank signed, op, group id fixed, seq, first_age_ns signed,
 * last_age_ns signed; then, where the bits say memory, how many kinds of it
 * (core/util/memory_map.h), and for each: segments, bytes; then, where they say nan, of struct
 * ng_view_nan: age_ns signed, group_id fixed, seq, op, dtype signed, elements, bad, element, bits
 *             fixed, held; then, where they say so, alive_age_ns signed
 *
 *   text      struct ng_view_process.source
 *
 *   number    how many groups, then their ids fixed, then as many blocks: parent, nranks signed,
 *             nccl_version signed, name. parent: 0 none; 1 and then fixed; else 2 + index here
 *
 *   number    how many members, then for each
 *     block   bits (1 rolling hash, 2 signature, 4 pending, 8 pending_started, 16 deadline, 32 what
 *             NCCL groups joined, 64 grown, 128 samples, 256 rests, 512 unlike its group, 1024
 * registration, 2048 pending_vague, 4096 error), group (index), group_rank, device signed, state,
 * async_error, cuda_error signed, creator_tid, ordinal, derived, entered, signed differences
 * entered - scheduled, scheduled - started, started - completed, then p2p_entered, signed
 * p2p_entered - p2p_completed, color signed, created_by, created_age_ns, ended_age_ns signed,
 * pci_id; by its bits: rolling hash fixed; signature; pending_seq, pending_record, pending_age_ns
 * signed; timeout_ns signed; coll_joined, p2p_joined, groups_closed; joined_id, excluded (both like
 * a parent); how many samples, then for each the signed difference of its seq to the one before,
 *             calls, duration_ns; nranks, nccl_version signed; of struct ng_view_registration
 * closed (1), segments, segment_bytes, bytes, registered_bytes, made, ended, failed, deferred,
 *             spent_ns; error_age_ns signed
 *     number  how many records, then as many blocks, where "before" is the record before in the
 *             blob, at first one of zeros: bits (1 signature, 2 caller, 4 tid as before, 8 rolling
 *             hash, 16 started, 32 completed, 64 another stream, 128 joined, 256 measured, 512
 *             replayed), signed differences id, coll_seq, p2p_seq, entered_age_ns to before; state,
 * peer_ordinal, flags, result signed, then what the bits say: signature; caller; tid; rolling hash
 *             fixed; signed entered_age_ns - started_age_ns, entered_age_ns - completed_age_ns;
 *             stream; signed id - work_previous; duration_ns; signed differences graph, replay to
 *             before, graph_position, graph_calls
 *
 *   number    how many calls, then as many blocks: tid, op, group_id (like a parent), group_rank
 *             signed, seq, record_id, age_ns signed
 *
 *   number    where the head says 8: how many communicators could not be made, the newest, then as
 *             many blocks: group_id fixed, group_rank, nranks, nccl_version, device signed, pci_id,
 *             created_by, created_age_ns, ended_age_ns signed
 *
 * A signature is: op, dtype, redop, root signed, count. Whatever follows the known fields of a
 * block, or these, is of a later writer and is skipped; anything else that changes is a new
 * version.
 */
#ifndef NCCLGUARD_STORE_WIRE_PROGRESS_H
#define NCCLGUARD_STORE_WIRE_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "core/view/view.h"

#define NG_PROGRESS_VERSION   1
#define NG_PROGRESS_TEXTS     64u
#define NG_PROGRESS_BYTES_MAX (4u << 20) /* longer ones are not ours */

/* Measured durations of a member that are told: the newest. */
#define NG_PROGRESS_SAMPLES 16u

/* Records that are enough while all goes well, and for a verdict. */
#define NG_PROGRESS_RECORDS_PEACE   16u
#define NG_PROGRESS_RECORDS_SUSPECT 512u

enum ng_progress_reason {
    NG_PROGRESS_BY_ITSELF = 0,
    NG_PROGRESS_BY_NEIGHBOUR = 1, /* a process of its host tells, since it cannot */
};

/* How much of it, and what only the caller knows. */
struct ng_progress_limits {
    uint32_t records; /* of the process: all that are not finished, oldest first, then the newest */
    uint64_t label;   /* of the incarnation of the job; 0 not known */
    int64_t written_unix_ns; /* now */
    enum ng_progress_reason reason;
};

/* What can be had without the rest. */
struct ng_progress_head {
    uint64_t uid, label;
    int64_t written_unix_ns; /* ages are as of then */
    enum ng_progress_reason reason;
    enum ng_life life;
    int exit_status;
    int64_t life_age_ns, alive_age_ns;
    int rank, world_size, local_rank, pid;
    char host[64], program[64];
    int64_t watchdog_stuck_ns; /* as in struct ng_view_process */
    char watchdog_in[128], error_text[196];
    char nccl_variables[NG_BOX_VARIABLES_BYTES];
    uint32_t memory_kinds;
    struct ng_memory_sum memory[NG_BOX_MEMORY_KINDS];
    struct ng_view_nan nan;
};

/*
 * Process `process` (its index) of a view, sealed or not, with members, calls and records. The
 * bytes belong to `arena`. 0; -EINVAL: no such process; -EMSGSIZE: more than NG_PROGRESS_BYTES_MAX;
 * -ENOMEM. `self`, and what ng_view_seal finds out, are not told.
 */
int ng_progress_encode(const struct ng_view *view, uint32_t process,
                       const struct ng_progress_limits *limits, struct ng_arena *arena,
                       const void **ret_data, size_t *ret_bytes);

/*
 * Append the process to a view that is not sealed yet; its index there. Ages are as they were when
 * it was written: see ng_progress_age; none is negative, or so large that a sum of two of them
 * would not fit. Calls and records of operations that this version does not know are left out.
 * -EBADMSG: not such a blob, cut off or damaged, -EPROTO: of a newer version: nothing is appended.
 * -ENOMEM: a part of it may be.
 */
int ng_progress_decode(struct ng_view *view, const void *data, size_t bytes, uint32_t *ret_process);

/* The head alone: 0, -EBADMSG or -EPROTO as above. The rest is not looked at. */
int ng_progress_peek(const void *data, size_t bytes, struct ng_progress_head *ret_head);

/*
 * So long ago it was written: let a process of a view that is not sealed yet, with its calls,
 * members and records, be `by_ns` older. What belongs to a process that has ended stays as old as
 * it was at its end.
 */
void ng_progress_age(struct ng_view *view, uint32_t process, int64_t by_ns);

#endif
