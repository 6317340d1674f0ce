/*
 * Members of the view that a dump has under their own names, in its order: core/report/dump.c
 * writes them from these lists, and tools/ingest/read_dump.c reads them.
 *
 * Each list applies F(kind, member). The kinds, with what a reader takes for a member that is
 * missing, of another type or out of bounds, as in a dump of an older version:
 *   u8, u16, u32   up to that many bits; 0
 *   uint           64 bits, as a decimal string above INT64_MAX; 0
 *   hex            64 bits, as 16 digits; 0
 *   age            nanoseconds, not negative; 0
 *   size           an int, not negative; 0
 *   rank           of a process, or a device; -1
 *   code           any int, as libraries return it; 0
 *   option         any int; -1
 *   flag           bool; false
 *   op, dtype, redop, result   as in core/nccl/op.h, by name and number
 */
#ifndef NCCLGUARD_CORE_REPORT_DUMP_FIELDS_H
#define NCCLGUARD_CORE_REPORT_DUMP_FIELDS_H

/* The members of a line belong together. */
/* clang-format off */

/* struct ng_view_process */
#define NG_DUMP_PROCESS_IDS(F)                                                                     \
    F(rank, rank) F(rank, world_size) F(rank, local_rank) F(size, pid) F(hex, uid)
#define NG_DUMP_PROCESS_STATE(F) F(code, exit_status) F(age, quiet_ns) F(age, watchdog_stuck_ns)
#define NG_DUMP_PROCESS_TIMES(F)                                                                   \
    F(age, suspect_ns) F(age, cold_suspect_ns)                                                     \
    F(age, life_age_ns) F(age, alive_age_ns) F(age, moment_mono_ns) F(age, moment_unix_ns)

#define NG_DUMP_NAN(F) /* struct ng_view_nan */                                                    \
    F(age, age_ns) F(hex, group_id) F(uint, seq) F(op, op) F(dtype, dtype)                         \
    F(uint, elements) F(uint, bad) F(uint, element) F(hex, bits) F(flag, held)

#define NG_DUMP_CALL(F) /* struct ng_view_call */                                                  \
    F(u32, tid) F(op, op) F(hex, group_id) F(rank, group_rank)                                     \
    F(uint, seq) F(uint, record_id) F(age, age_ns)

#define NG_DUMP_DURATION(F) /* struct ng_duration */                                               \
    F(hex, group_id) F(op, op) F(u32, size_class)                                                  \
    F(uint, count) F(uint, sum_ns) F(uint, min_ns) F(uint, max_ns)

#define NG_DUMP_FAULT(F) /* struct ng_logged_fault */                                              \
    F(uint, times) F(rank, rank) F(op, op) F(hex, group_id) F(uint, seq)

#define NG_DUMP_SIGNATURE(F) /* struct ng_signature */                                             \
    F(op, op) F(dtype, dtype) F(redop, redop) F(option, root) F(uint, count)

/* struct ng_view_record */
#define NG_DUMP_RECORD_NUMBERS(F) F(uint, coll_seq) F(uint, p2p_seq) F(uint, peer_ordinal)
#define NG_DUMP_RECORD(F)                                                                          \
    F(age, entered_age_ns) F(age, started_age_ns) F(age, completed_age_ns)                         \
    F(hex, stream) F(uint, work_previous) F(hex, caller) F(u32, flags) F(u32, tid)                 \
    F(result, result) F(hex, rolling_hash) F(age, duration_ns)
#define NG_DUMP_RECORD_REPLAY(F)                                                                   \
    F(uint, graph) F(uint, replay) F(u32, graph_position) F(u32, graph_calls)

#define NG_DUMP_SAMPLE(F) /* struct ng_view_sample */                                              \
    F(uint, seq) F(u32, calls) F(age, duration_ns)

#define NG_DUMP_EDGE(F) /* struct ng_edge, but for its peer */                                     \
    F(u8, flags) F(u8, channels) F(u8, begun) F(u8, taken) F(u8, held)                             \
    F(u8, channel) F(u32, base) F(u16, posted) F(u16, consumed) F(u8, queued)

/* struct ng_view_member */
#define NG_DUMP_MEMBER_STATE(F)                                                                    \
    F(age, created_age_ns) F(age, ended_age_ns)                                                    \
    F(code, async_error) F(age, error_age_ns) F(code, cuda_error)                                  \
    F(u32, creator_tid) F(option, color) F(u32, ordinal) F(u32, derived)                           \
    F(uint, entered) F(uint, scheduled) F(uint, started) F(uint, completed)                        \
    F(uint, p2p_entered) F(uint, p2p_completed) F(hex, rolling_hash)
#define NG_DUMP_MEMBER_PENDING(F)                                                                  \
    F(flag, rests) F(uint, coll_joined) F(uint, p2p_joined) F(uint, groups_closed)                 \
    F(uint, pending_seq) F(uint, pending_record) F(age, pending_age_ns) F(flag, pending_started)
/* Bools that are written only if they are true. */
#define NG_DUMP_MEMBER_FLAGS(F) F(pending_vague) F(pending_inferred) F(pending_unwatched)

/* clang-format on */

#endif
