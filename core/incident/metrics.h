/*
 * NCCLGUARD_METRICS: what this process counts of each group, in Prometheus' text format 0.0.4,
 * which node_exporter's textfile collector reads with the types.
 *
 * Every sample has the labels nccl_job and rank, so that the files of all ranks of a host
 * may lie in one folder; those of a group its id (`group`) and the rank in it (`group_rank`):
 *
 *   ncclguard_process                1; host, pid, program, version
 *   ncclguard_group                  1; name, nranks, device
 *   ncclguard_operations_total       ended operations, by op
 *   ncclguard_moved_bytes_total      of those, as the callers passed them, by op
 *   ncclguard_uncounted_total        operations that ended when their records were overwritten
 *   ncclguard_last_collective        sequence number, by state: entered, started, completed
 *   ncclguard_last_send_recv         likewise of sends and receives: entered, completed
 *   ncclguard_pending_seconds        how long the oldest work has been due; 0 none is in flight
 *   ncclguard_pending_works          works in flight
 *   ncclguard_stalls_total           alarms, by level: suspect, timeout
 *   ncclguard_straggler_wait_seconds how long the others wait for the rank that comes last again
 * and again (`straggler`), each time; only where there is one ncclguard_verdict_info           1;
 * the last verdict: kind, culprits ("2", "4-6,9"; "" none), level: suspect, timeout; only where
 * there was one ncclguard_duration_seconds       histogram of measured times, by op and size (up to
 * so many bytes) ncclguard_lost_total             what: records, groups, threads, completions,
 * durations
 *
 * A group stays in the file for a while after its communicator's end.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_METRICS_H
#define NCCLGUARD_CORE_INCIDENT_METRICS_H

#include <stdbool.h>

#include "core/verdict/verdict.h"

/* All of it to `fd`. 0 or -errno. Any guard thread; waits for the disk alone. */
int ng_metrics_write(int fd);

/* The same as a file that is complete or not there, readable by everybody. 0 or -errno. */
int ng_metrics_save(const char *path);

/* A verdict was reached, or is acted on (`timeout`): its line, as ng_report_line writes it.
 * Incident thread. */
void ng_metrics_keep_verdict(enum ng_verdict_kind kind, const char *line, bool timeout);

/* In a forked child. */
void ng_metrics_after_fork(void);

#endif
