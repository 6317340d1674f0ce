/*
 * fr/rank_<r>: the evidence in the format of PyTorch's flight recorder, for `torchfrtrace`.
 *
 * Entered by the guard's threads; no malloc, no lock. One file for each global rank, also where one
 * process drives several devices. Format version "2.10" (PyTorch 2.11): a pickle
 * (core/util/pickle.h) of one dictionary:
 *
 *   version           "2.10"
 *   comm_lib_version  "2.28.9"
 *   time_dumped_ns    Unix time at which it was so: of a process that ended, its end. A file's own
 * time is new where it was copied. Ours alone on_request        True: somebody asked for it, and
 * nothing need be wrong; missing: there was an incident. Ours alone pg_config         {name:
 * {"name", "desc", "ranks"}}: the process groups of the entries. Ranks are global, as text: "[0,
 * 1]"; of a group of several hosts those that this host knows, unless it is the whole job in order.
 * desc is the communicator's name, "undefined" where it has none entries           list, oldest
 * first; see below pg_status         {pg_id as text: {"last_enqueued_collective",
 * "last_started_collective", "last_completed_collective"}}, in the numbers of collective_seq_id; -1
 * none nccl_comm_state   {communicator's id: {what the black box says of it, all as text}}
 *
 * An entry is one call that NCCL took:
 *
 *   record_id         counts the rank's entries, from 0, also those that the ring has forgotten
 *   pg_id             which communicator of the file, from 0
 *   process_group     (name, desc)
 *   collective_seq_id which launch of collectives on the communicator, from 1; 0 for a send or
 *                     receive
 *   p2p_seq_id        which launch of sends and receives; of a collective: the last one before
 *   op_id             which call on the communicator, from 1
 *   profiling_name    a name of ng_flight_ops; "nccl:send 0->1" with ranks within the process group
 *   state             "scheduled": also what has not returned, or was not observed; "started",
 *                     "completed". What was captured into a graph is no entry: its replays are
 *   input_sizes, output_sizes    list of lists; [[]] for a side that the call does not have on this
 *                     rank. In-place calls name their buffer on both sides
 *   input_dtypes, output_dtypes  PyTorch's names; [] for such a side
 *   is_p2p, retired   bool; retired: the watchdog no longer waits for it
 *   time_created_ns, time_discovered_started_ns, time_discovered_completed_ns    Unix time; the
 *                     latter None where it has not happened
 *   duration_ms       float, only where it was measured (NCCLGUARD_TIMING): how long the device
 * took for the launch; of a NCCL group, in its closing entry timeout_ms, thread_id, thread_name
 *   frames            list of {"name", "filename", "line"}, innermost first, only with
 *                     NCCLGUARD_STACKS=call: function, or address in the file where its name is not
 *                     known; program or library; 0
 *
 * Two and more calls of one NCCL group are one launch: they share their sequence numbers and are
 * followed by "nccl:coalesced", which has them too. A group of one call is a plain call: PyTorch
 * itself wraps every call so.
 *
 * The analyzer goes through the ranks' entries and pairs those of one process group that have the
 * same collective_seq_id. Of entries that follow each other in a process group with the same
 * sequence number it takes another way, which goes wrong when the first file that it lists is not
 * that of the lowest rank, and whenever a receive comes first. So each call of a NCCL group stands
 * in a process group of its own; of a communicator with the id ID they are
 *
 *   ID, ID/2, ID/3 …    the first, second, third collective of a NCCL group; nearly all are ID
 *   ID/A>B, ID/A>B/2 …  what rank A sends to rank B, group ranks both; the group has but these two.
 *                       What a rank receives from itself is ID/A<A
 *   ID/p2p              collectives composed of sends and receives (core/view/p2p_patterns.h)
 *   ID/end              "nccl:coalesced"; the group has but this rank
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

/* PyTorch's word for an operation; NULL: the operation is never an entry. */
struct ng_flight_op {
    const char *name;
    enum ng_flight_size input, output;
};

/*
 * Indexed by enum ng_op. Where PyTorch has several names (in place, out of place, of one tensor),
 * the plain one, so that ranks that differ only in that agree. AllReduceWithBias, which it does not
 * have, is an all-reduce.
 */
extern const struct ng_flight_op ng_flight_ops[NG_OP_LIMIT];

/* The file of global rank `rank` of process `process`, to `fd`. 0, -ENOMEM or -errno of writing. */
int ng_flight_write(const struct ng_view *view, uint32_t process, int rank, int fd);

/*
 * One file in `folder`/fr for each rank of process `process` of a sealed view, complete or not
 * there; nothing for a process whose ranks nobody knows. The folder `folder` exists. 0, or -errno;
 * -EINVAL when there is no such process.
 */
int ng_flight_save_process(const struct ng_view *view, uint32_t process, const char *folder);

#endif
