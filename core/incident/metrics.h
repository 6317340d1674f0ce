/*
 * NCCLGUARD_METRICS: the counters of this process, per group, in Prometheus' text format 0.0.4,
 * which node_exporter's textfile collector reads including the types.
 *
 * Every sample has the labels nccl_job and rank, so that the files of all ranks of a host may share
 * one folder; samples of a group also have its id (`group`) and the rank in it (`group_rank`):
 *
 *   ncclguard_process                1; host, pid, program, version
 *   ncclguard_group                  1; name, nranks, device
 *   ncclguard_operations_total       operations that ended, by op
 *   ncclguard_moved_bytes_total      their bytes, as the callers passed them, by op
 *   ncclguard_uncounted_total        operations whose records were overwritten before they ended
 *   ncclguard_last_collective        sequence number, by state: entered, started, completed
 *   ncclguard_last_send_recv         the same for sends and receives: entered, completed
 *   ncclguard_pending_seconds        how long the oldest work has been due; 0 none is in flight
 *   ncclguard_pending_works          works in flight
 *   ncclguard_stalls_total           alarms, by level: suspect, timeout
 *   ncclguard_straggler_wait_seconds how long the others wait, each time, for the rank that is
 *                                    repeatedly last (`straggler`); only if there is one
 *   ncclguard_verdict_info           1; the last verdict: kind, culprits ("2", "4-6,9"; "" none),
 *                                    level: suspect, timeout; only if there was one
 *   ncclguard_duration_seconds       histogram of measured times, by op and size (up to this many
 *                                    bytes)
 *   ncclguard_lost_total             what: records, groups, threads, completions, durations
 *
 * A group stays in the file for a while after its communicator has ended.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_METRICS_H
#define NCCLGUARD_CORE_INCIDENT_METRICS_H

#include <stdbool.h>

#include "core/nccl/verdict_kind.h"

/* Write all metrics to `fd`. 0 or -errno. Any guard thread; waits only for the disk. */
int ng_metrics_write(int fd);

/* Write all metrics to a file that is either complete or absent, readable by all users. 0 or
 * -errno. */
int ng_metrics_save(const char *path);

/* Keep the line of a verdict that was reached, or is acted on (`timeout`), as ng_report_line writes
 * it. Incident thread. */
void ng_metrics_keep_verdict(enum ng_verdict_kind kind, const char *line, bool timeout);

#endif
