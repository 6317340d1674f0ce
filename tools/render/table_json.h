/*
 * A job as one JSON object, for programs: `ncclguard top --json`.
 *
 * First the members of a verdict, as core/report/report.h has them: schema "ncclguard.verdict/1",
 * the job, when it was seen, kind, culprits and so on. Then the table, schema "ncclguard.top/1";
 * fields may be added within it. Ids are strings of 16 hex digits. What is not known is -1 (ranks,
 * devices), 0 (pids, ages, sizes, versions) or null.
 *
 *   table_schema  "ncclguard.top/1"
 *   hosts         array of string
 *   ranks         {"seen": int, "expected": int}
 *   processes     array of, in order of rank
 *     rank, local_rank, world_size   global rank; as the launcher set
 *     host, pid, program
 *     uid            identifies the process
 *     life           "running", "stopped" (alive, but frozen), "exited", "dead" (killed or
 *                    crashed), "ended_by_guard", "lost" (its host is silent), "unknown"
 *     exit_status    int if it exited and reported it; else null
 *     signal         int if it is dead and the kernel reported the signal; else null
 *     life_age_ms    since its life ended, or since its last sign of life
 *     devices        array of {"device": int, "pci_id": string or null}: those of its groups
 *     memory         device memory, if the guard tracks it: {"segments", "bytes",
 *                    "kinds": {name: {"segments", "bytes"}}, "registered_segments",
 *                    "registered_bytes"}; the last two sum over its communicators (memory
 *                    registered with two counts twice); null: not tracked, or not known
 *     calls          array of {"tid", "op", "group": id or null, "seq", "age_ms"}: NCCL calls
 *                    that its threads are inside
 *   groups        array of
 *     id, name, parent (id or null), size, nccl_version (as ncclGetVersion returns it)
 *     color          of the split that created it; null: created otherwise
 *     created_by     "CommInitRank", "CommSplit" …; null not known
 *     created_age_ms since the first of its members began to create it
 *     ended          true: all members seen have ended it
 *     front          the furthest collective that any member has entered, from 1
 *     same_members_as  id of the first group with the same processes and devices in the same order;
 *                    null: it is the first
 *     timeout_ms, policy   as of the members that use the group; null: not known, or they differ:
 *                    deadlines_differ, policies_differ
 *     missing        array of int: group ranks not seen (the first 65,536)
 *     straggler      the rank that repeatedly arrives last (core/verdict/straggler.h); null: none
 *       rank, group_rank, last (it arrived last in so many), samples (of so many measured
 *       collectives), wait_ns (of the others for it, each time: median), total_wait_ns,
 *       confidence, why
 *     registration   what the guard has registered, over all members: {"segments",
 *                    "segment_bytes", "bytes", "registered_bytes" (of sends and receives: all,
 *                    and those in registered memory), "share" (0 to 1), "made", "ended", "failed",
 *                    "deferred", "spent_ns", "closed" (no more registrations)}; null: nothing, or
 *                    not known
 *     members        array of, in order of group rank; a rank that recreated its communicator has
 *                    several, the newest first
 *       group_rank, rank (global), host, pid, device, pci_id
 *       process      index in `processes`
 *       state        "creating", "ready", "finalized", "destroyed", "aborted", "failed"
 *       created_age_ms, ended_age_ms
 *       entered, scheduled, started, completed   collectives, from 1
 *       behind       collectives behind `front`; behind_ms: since a rank first passed this one
 *       in           what it has been in for the longest: {"op", "seq", "age_ms", "phase": "call"
 *                    (a thread is inside it), "group" (its ncclGroupEnd has not come), "queued" (on
 *                    the stream) or "device"}; null: nothing
 *       suspended    true: its deadlines are suspended, by a command or by its program
 *       timeout_ms   deadline of its oldest pending operation, else of its collectives; null: none,
 *                    or not known
 *       policy       what that deadline leads to: "log", "abort", "teardown", "kill"; null not
 *                    known
 *       last         {"op", "count", "dtype", "redop", "root"} of collective `entered`; null
 *       rolling_hash of all collectives up to `entered`: 16 hex digits; null
 *       p2p_entered, p2p_completed   sends and receives
 *       p2p_pending  array of {"op": "Send" or "Recv", "peer" (group rank), "peer_rank" (global),
 *                    "ordinal" (its number to that peer, from 1), "state", "age_ms"}
 *       registration as of the group
 *       async_error  "ncclRemoteError" …; null none
 *       cuda_error   in words; null none
 *   notes         array of string: what could not be read
 */
#ifndef NCCLGUARD_TOOLS_RENDER_TABLE_JSON_H
#define NCCLGUARD_TOOLS_RENDER_TABLE_JSON_H

#include "tools/render/table.h"

#define NG_TABLE_SCHEMA "ncclguard.top/1"

/* Write it. 0, or the first -errno. */
int ng_table_write_json(const struct ng_table *table, int fd);

#endif
