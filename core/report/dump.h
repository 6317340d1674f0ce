/*
 * rank_<r>.json: everything that one process recorded about itself, in a file that outlives its
 * black box.
 *
 * Called by the guard's threads; no malloc, no lock. The verdict engine can reach the verdict again
 * from these files alone: tools/ingest/read_dump.c rebuilds the view. Schema "ncclguard.rank/1",
 * one object:
 *
 *   schema           "ncclguard.rank/1"
 *   guard_version    version of the writer
 *   job              job name, "" not known
 *   written_unix_ns  when the file was written; ages below are as of the view, moments before
 *   on_request       true: written on request, so nothing need be wrong; false: there was an
 *                    incident
 *   rank             the process's lowest global rank, as in the file name; -1 not known
 *   process          one object: struct ng_view_process
 *     rank, world_size, local_rank    from the launcher; -1 not known
 *     pid                 int
 *     uid                 16 hex digits: distinguishes it from all others; all zero: not known
 *     host, program       strings
 *     error_text          NCCL's message for its first asynchronous error; "" none, or not known
 *     source              the file that it was read from
 *     memory              device memory, array of {"kind", "segments", "bytes"} in order of enum
 *                         ng_segment_kind; null: not tracked (NCCLGUARD_REGISTER)
 *     life                name of ng_dump_life_name, and life_number: enum ng_life
 *     exit_status         int. Life "exited": the status that it reported; -1 not reported, -2
 *                         became another program. Life "dead": 256 plus the signal that ended it,
 *                         or 512 plus the status with which it ended unreported; 0 not known
 *     quiet_ns            time since its last message, with no answer since; 0 it answers
 *     watchdog_stuck_ns   time since its watchdog last made a round; 0 not stuck, or not known
 *     watchdog_in         what the watchdog is blocked in; "" not known
 *     nan                 struct ng_view_nan, the first NaN in what it sends: age_ns, group_id (16
 *                         hex digits), seq (0: a send), op, op_number, dtype, dtype_number,
 *                         elements: how many are sent, bad: how many of them are NaN, element:
 *                         index of the first, bits of it as 16 hex digits, held: it does not leave
 *                         the rank; null: none
 *     devices_age_ns      time since the driver was last asked about its devices; as long as its
 *                         host is up: not yet; 0 it is not asked
 *     device_errors       what it knows of them, array of {"pci", "what", "number", "count",
 *                         "age_ns"}: struct ng_device_error, as in verdict.json
 *                         (core/report/report.h)
 *     suspect_ns          its NCCLGUARD_SUSPECT; 0 not known, or none
 *     cold_suspect_ns     its NCCLGUARD_COLD_SUSPECT; 0 not known, or none
 *     life_age_ns         time since its life ended; 0 unknown or alive
 *     alive_age_ns        life "dead": time since its last sign of life; 0 not known
 *     moment_mono_ns, moment_unix_ns  when ages are 0, by the two clocks of its host; 0 not known
 *     nccl_variables      the NCCL variables that it had set, as NAME=VALUE; "" none, or not known
 *     settings            the guard's options as they hold, array of {"name", "value", "from"}:
 *                         "default", "environment" or "launcher"; empty: not known
 *     environment         variables of NCCL, CUDA and the launcher that it had set, array of
 *                         {"name", "value"}, and environment_left_out: how many more there were. A
 *                         value that may be a secret is "***", a long one is cut and ends in "..."
 *   faults           array of struct ng_view_fault: what NCCLGUARD_FAULT injected; absent: nothing
 *     fault               as the user wrote it
 *     times               how often
 *     rank, op, op_number, group_id, seq    of the first
 *     first_age_ns, last_age_ns             int
 *   calls            array of struct ng_view_call: NCCL calls that its threads are inside
 *     tid                 int
 *     op, op_number       name and number of core/nccl/op.def
 *     group_id            16 hex digits; all zero: none
 *     group_rank          in that group; -1 not known
 *     seq, record_id      counts; 0 none
 *     age_ns              int
 *   calling_threads  array: live threads that have called NCCL
 *     tid                 int
 *     name                when it made its first call; "" not known
 *   durations        array of struct ng_view_duration: how long the device took for operations that
 *                    were measured (NCCLGUARD_TIMING), since the process began
 *     group_id            16 hex digits
 *     op, op_number       "GroupEnd": several calls of one NCCL group, launched together
 *     size_class          of up to 2^size_class bytes
 *     count, sum_ns, min_ns, max_ns
 *     histogram           array of counts: the first shorter than 1 microsecond, each next one up
 *                         to twice as long, the last all that took longer
 *   members          array of struct ng_view_member: one per communicator handle
 *     rank                global, as in messages (derived: the reader computes it again)
 *     group_rank, device  int; -1 not known
 *     pci_id              of the device, "0000:1b:00.0"; "" not known
 *     group_id, parent_id 16 hex digits; all zero: none
 *     joined_id, excluded the id that joining ranks use for a grown group, and which ranks a shrink
 *                         excluded, as 16 hex digits: core/view/grow_id.h; all zero: none
 *     group_name          string
 *     nranks, nccl_version    of the group
 *     state               name of ng_dump_group_state_name, and state_number: enum ng_group_state
 *     created_by          name of the operation that made it, null not known, and
 *                         created_by_number
 *     created_age_ns, ended_age_ns    how long ago; 0 not known, or it has not ended
 *     async_error         ncclResult_t; 0 none
 *     error_age_ns        time since the guard learned of it; 0 none, or not known
 *     cuda_error          CUresult with which its device failed permanently; 0 none
 *     creator_tid         thread that called for its creation; 0 not known
 *     color               of a split; otherwise -1
 *     ordinal             which split, shrink or grow of its parent it is; 0 none
 *     derived             how many splits, shrinks and grows were called on it
 *     host_calls          object, absent before the first: how often each call of class HOST
 *                         (core/nccl/op.def) was made, by its name; batch_op_number, batch_tid: of
 *                         the newest in an NCCL group that is not over, and its thread;
 *                         batch_open: that thread has not begun to close the NCCL group
 *     entered, scheduled, started, completed, p2p_entered, p2p_completed   counts
 *     rolling_hash        16 hex digits: of all its collectives up to `entered`, as defined in
 *                         core/recorder/signature.h; all zero: not known
 *     last                object: signature of collective `entered`, see below
 *     registration        struct ng_view_registration, what the guard has registered with it;
 *                         null: nothing, or not known
 *     timeout_ns          deadline of its collectives; 0 none, or not known
 *     policy              what that deadline leads to: "log", "abort", "teardown" or "kill"; null
 *                         not known; and policy_number: enum ng_on_timeout plus 1
 *     rests               its clock is suspended: nothing becomes suspect, no deadline passes
 *     coll_joined, p2p_joined    collectives, and sends and receives, beyond the first of their
 *                         closed NCCL group
 *     groups_closed       how many such groups had two or more calls
 *     pending_seq, pending_record, pending_age_ns, pending_started (bool)
 *                         the oldest operation in flight
 *     pending_vague       true: the operation is the replay of a CUDA graph, and is in pending_seq
 *                         or a later call; otherwise absent
 *     pending_inferred    true: pending_started was not seen, but the device has finished the work
 *                         before it on its stream; otherwise absent
 *     pending_unwatched   true: the watchdog hangs since it saw the operation in flight, which the
 *                         device may have finished; otherwise absent
 *     counted_seq, counted_left    by NCCL's own counters on the device: the newest collective that
 *                         is finished (0 none), and how many launches are not; absent: not known
 *     kernel_runs         bool, by NCCL's progress counters (NCCL_PROGRESS_COUNTERS=1, NCCL 2.32):
 *                         the kernel of the next collective runs, or has not begun; absent: not
 *                         known
 *     connections_age_ns, connections    time since NCCL's connections were looked at, and an array
 *                         of what they showed: struct ng_edge (core/recorder/edges.h); absent: not
 *                         known
 *       peer                  rank in the group
 *       sends, moves          bool: to the peer; it went on while it was looked at (derived)
 *       flags                 NG_EDGE_* bits
 *       channels, begun, taken, held    counts of channels
 *       channel, base, posted, consumed, queued    of one of them
 *     records             array, oldest first: struct ng_view_record
 *       id                    int
 *       state                 name of ng_dump_record_state_name
 *       state_number          enum ng_record_state
 *       op ... count            its signature, see below
 *       coll_seq, p2p_seq, peer_ordinal, entered_age_ns, started_age_ns, completed_age_ns,
 *       work_previous, flags    as in struct ng_view_record
 *       op_id                 which call on the communicator it is, from 1 (derived)
 *       retired               bool: the watchdog does not wait for it (derived)
 *       stream                16 hex digits: its CUDA stream; all zero: the default one
 *       caller                16 hex digits: return address in the program
 *       tid                   thread that called
 *       result, result_number name and number of the ncclResult_t of the host call
 *       rolling_hash          16 hex digits: of the group after this collective; all zero: not
 *                             known
 *       duration_ns           how long the device took for the operation, all calls of an NCCL
 *                             group together: in the last of them. 0 not measured
 *       graph, replay, graph_position, graph_calls
 *                             of a replayed call: the executable CUDA graph, from 1, its launch,
 *                             the call in it, both from 1, and how many it has; otherwise absent
 *       frames                where it was called (NCCLGUARD_STACKS=call; otherwise absent),
 *                             innermost first, starting at the caller of NCCL: Python frames, if
 *                             there are any, then native ones
 *         name                  of the function; null not known
 *         name_offset           from the function's start
 *         file                  path of the program or library; null: none, or not known
 *         offset                return address, relative to the file, or in memory if there is no
 *                               file. Python: of the instruction in its code object's bytes
 *         line                  of a Python frame, for which file and name are the source file and
 *                               the qualified name; 0 not known; otherwise absent
 *       frames_whole          bool: up to the function that the thread began with
 *       frames_python_cut     true: there were more Python frames; otherwise absent
 *     composed            array: what sends and receives form together (derived),
 *                         core/view/p2p_patterns.h
 *       op, op_number         AlltoAll, AllToAllv, Gather or Scatter
 *       root                  of a gather or scatter; otherwise -1
 *       sent, received        elements
 *       records               ids of the parts
 *     samples             array, oldest first: struct ng_view_sample, measured collectives in which
 *                         every rank waits for every other, so that ranks can be compared
 *       seq                   of its last collective
 *       calls                 in the operation
 *       duration_ns           int
 *   modules          array, if there are frames: the files that contain them
 *     path                string
 *     build_id            hex digits; "" none
 *   ras              array of struct ng_view_ras (core/view/ras.h), by group and rank: what NCCL's
 *                    RAS said to this process of ranks that have no guard, or report to none here;
 *                    absent: it was not asked, or said nothing
 *     group_id, group_rank    16 hex digits, and the rank in that group
 *     age_ns                  since RAS was asked
 *     pid, host               as RAS has them: its address; 0 and "" not known
 *     state                   name of ng_ras_state_name
 *     counts                  bool: launched and others are known
 *     launched, others        collectives that it, and the asking rank, had launched
 *     behind, waits           bool
 *   notes            array of strings: evidence that could not be read; notes that do not concern
 *                    one process are repeated in the dumps of all processes of the same view
 *   stacks           its host stacks: see core/report/stacks_format.h; absent if none were taken
 *
 * An absent field, as in dumps of older versions, is not known.
 *
 * A signature has op, op_number, dtype, dtype_number, redop, redop_number, root and count. A name
 * is null if the operation has no such field (number -1) and "unknown" or "custom" for a number
 * that this version does not know; the numbers are authoritative. Unsigned 64-bit numbers above
 * INT64_MAX, which JSON parsers reject, are written as a decimal string.
 */
#ifndef NCCLGUARD_CORE_REPORT_DUMP_H
#define NCCLGUARD_CORE_REPORT_DUMP_H

#include <stddef.h>
#include <stdint.h>

#include "core/view/view.h"

#define NG_DUMP_SCHEMA "ncclguard.rank/1"

/* The names used in a dump; "unknown" for a number without a name. Never NULL. */
const char *ng_dump_life_name(enum ng_life life);
const char *ng_dump_group_state_name(enum ng_group_state state);
const char *ng_dump_record_state_name(enum ng_record_state state);

/* The lowest global rank of process `process` of a sealed view, used to name its files; -1 not
 * known. */
int ng_dump_rank(const struct ng_view *view, uint32_t process);

/* File name of the process's dump: "rank_3.json", or "rank_unknown_<pid>.json". */
void ng_dump_name(const struct ng_view *view, uint32_t process, char *ret_name, size_t bytes);

/* Writes the dump of process `process` (its index) of a sealed view. 0, or -errno of writing to
 * `fd`. */
int ng_dump_write_process(const struct ng_view *view, uint32_t process, int fd);

/* The same as a file in `folder`, which is either complete or absent. 0, or -errno; -EINVAL: there
 * is no such process. */
int ng_dump_save_process(const struct ng_view *view, uint32_t process, const char *folder);

#endif
