/*
 * fr/rank_<r>: the evidence in the format of PyTorch's flight recorder, for `torchfrtrace`.
 *
 * Called by the guard's threads; no malloc, no lock. One file for each global rank, even if one
 * process drives several devices. Format version "2.10" (PyTorch 2.11): a pickle
 * (core/util/pickle.h) of one dictionary:
 *
 *   version           "2.10"
 *   comm_lib_version  "2.28.9"
 *   time_dumped_ns    Unix time that the evidence is as of; for a process that ended, its end. (A
 *                     copied file has a new modification time.) Not in PyTorch's format
 *   on_request        True: written on request, so nothing need be wrong; absent: there was an
 *                     incident. Not in PyTorch's format
 *   pg_config         {name: {"name", "desc", "ranks"}}: the process groups of the entries. Ranks
 *                     are global, as text: "[0, 1]"; for a group of several hosts, the ranks that
 *                     this host knows, unless it is the whole job in order. desc is the
 *                     communicator's name, "undefined" if it has none
 *   entries           list, oldest first; see below
 *   pg_status         {pg_id as text: {"last_enqueued_collective", "last_started_collective",
 *                     "last_completed_collective"}}, as collective_seq_id; -1 none
 *   nccl_comm_state   {communicator's id: {the contents of its black box, all as text}}
 *
 * An entry is one call that NCCL accepted:
 *
 *   record_id         counts the rank's entries, from 0, including those that the ring has dropped
 *   pg_id             which communicator of the file, from 0
 *   process_group     (name, desc)
 *   collective_seq_id which launch of collectives on the communicator, from 1; 0 for a send or
 *                     receive
 *   p2p_seq_id        which launch of sends and receives; for a collective: the last one before
 *   op_id             which call on the communicator, from 1
 *   profiling_name    a name of ng_flight_ops; "nccl:send 0->1" with ranks within the process group
 *   state             "scheduled" (also if the call has not returned or was not observed),
 *                     "started", "completed". A call captured into a graph is no entry; its replays
 *                     are
 *   input_sizes, output_sizes    list of lists; [[]] for a side that the call does not have on this
 *                     rank. In-place calls name their buffer on both sides
 *   input_dtypes, output_dtypes  PyTorch's names; [] for such a side
 *   is_p2p, retired   bool; retired: the watchdog no longer waits for it
 *   time_created_ns, time_discovered_started_ns, time_discovered_completed_ns    Unix time; the
 *                     latter two None if it has not happened
 *   duration_ms       float, only if measured (NCCLGUARD_TIMING): how long the device took for the
 *                     launch; for an NCCL group, in its closing entry
 *   timeout_ms, thread_id, thread_name
 *   frames            list of {"name", "filename", "line"}, innermost first, only with
 *                     NCCLGUARD_STACKS=call: function, or address in the file if its name is not
 *                     known; program or library; 0
 *
 * Two or more calls of one NCCL group are one launch: they share their sequence numbers and are
 * followed by "nccl:coalesced", which has the same numbers. A group of one call is a plain call:
 * PyTorch itself wraps every call so.
 *
 * The analyzer iterates over the ranks' entries and pairs those of one process group that have the
 * same collective_seq_id. It handles consecutive entries of a process group that have the same
 * sequence number differently, and goes wrong if the first file that it lists is not that of the
 * lowest rank, and whenever a receive comes first. So each call of an NCCL group is written into a
 * process group of its own; for a communicator with the id ID they are
 *
 *   ID, ID/2, ID/3 …    the first, second, third collective of an NCCL group; nearly all are ID
 *   ID/A>B, ID/A>B/2 …  what rank A sends to rank B, both group ranks; the group has only these
 *                       two. What a rank receives from itself is ID/A<A
 *   ID/p2p              collectives composed of sends and receives (core/view/p2p_patterns.h)
 *   ID/end              "nccl:coalesced"; the group has only this rank
 */
#ifndef NCCLGUARD_CORE_REPORT_FLIGHT_H
#define NCCLGUARD_CORE_REPORT_FLIGHT_H

#include "core/view/view.h"

#define NG_FLIGHT_FOLDER  "fr"
#define NG_FLIGHT_VERSION "2.10"

/* How many elements a side of a call has, in terms of its count. */
enum ng_flight_size {
    NG_FLIGHT_ABSENT,
    NG_FLIGHT_COUNT,
    NG_FLIGHT_TIMES_RANKS,
    NG_FLIGHT_AT_ROOT_TIMES_RANKS, /* absent elsewhere */
};

/* PyTorch's name for an operation; NULL: the operation is never an entry. */
struct ng_flight_op {
    const char *name;
    enum ng_flight_size input, output;
};

/*
 * Indexed by enum ng_op. If PyTorch has several names for an operation (in place, out of place, of
 * one tensor), this is the plain one, so that ranks that differ only in this agree.
 * AllReduceWithBias, which PyTorch does not have, is written as an all-reduce.
 */
extern const struct ng_flight_op ng_flight_ops[NG_OP_LIMIT];

/* Writes the file of global rank `rank` of process `process` to `fd`. 0, -ENOMEM or -errno of
 * writing. */
int ng_flight_write(const struct ng_view *view, uint32_t process, int rank, int fd);

/*
 * Writes one file in `folder`/fr for each rank of process `process` of a sealed view; each is
 * either complete or absent. Writes nothing for a process whose ranks are not known. `folder` must
 * exist. 0, or -errno; -EINVAL: there is no such process.
 */
int ng_flight_save_process(const struct ng_view *view, uint32_t process, const char *folder);

#endif
