/*
 * trace.json: the job as a timeline that Perfetto and chrome://tracing open.
 *
 * Called by the guard's threads at an incident and by the command; no malloc, no lock. One JSON
 * object in the Chrome trace event format, with these members:
 *
 *   traceEvents
 *     a process per rank       "rank 3 (host:pid)", in order of ranks; its labels are the program
 *                              that it runs and the state of its life. Its number is not a system
 *                              pid, since pids of several hosts collide
 *     a track per              the verdict, if it names or concerns the rank
 *                              thread that calls NCCL: an instant for each call, and a slice for
 *                              the call that it is inside
 *                              group and stream: a slice for each operation, from the time that the
 *                              device reached it to the time that its end was seen; an operation in
 *                              flight ends with the view, and those queued behind it are instants
 *     flow arrows              from the awaited rank to the waiting rank: round a deadlock step by
 *                              step, and from the first culprit to every rank that it blocks
 *     one global instant       the verdict
 *   displayTimeUnit            "ms"
 *   otherData
 *     schema                   "ncclguard.trace/1"
 *     job, verdict, confidence, guard_version
 *     origin_unix_ns           Unix time of timestamp 0, as decimal string
 *     records_left_out         old calls omitted for lack of room
 *     clocks                   array of {"host", "processes", "samples", "offset_us", "scatter_us",
 *                              "applied"}: see core/view/clock_sync.h
 *
 * Timestamps are microseconds since the oldest call that is drawn, on one clock for all hosts. The
 * arguments of an operation: seq, op, count, dtype, redop, root or peer, group, group_id, state,
 * record, entered_us; result, if NCCL returned an error; bounds: true if begin and end were seen
 * together, so that it ran at some time between the two; and duration_us, if measured: how long the
 * device took for all calls of its NCCL group together. The slice is then no longer than this, and
 * ends when the end was seen. Unknown arguments are omitted.
 */
#ifndef NCCLGUARD_CORE_REPORT_TRACE_H
#define NCCLGUARD_CORE_REPORT_TRACE_H

#include <stdint.h>

#include "core/verdict/verdict.h"
#include "core/view/view.h"

#define NG_TRACE_NAME   "trace.json"
#define NG_TRACE_SCHEMA "ncclguard.trace/1"

/* Records in one file: about 50 MB. */
#define NG_TRACE_RECORDS_MAX 100000u

/* Writes a sealed view and its verdict (NULL: none). 0, -ENOMEM, or -errno of writing to `fd`. */
int ng_trace_write(const struct ng_view *view, const struct ng_verdict *verdict,
                   uint32_t records_max, int fd);

/* The same as file NG_TRACE_NAME in `folder`, which is either complete or absent. 0 or -errno. */
int ng_trace_save(const struct ng_view *view, const struct ng_verdict *verdict, const char *folder);

#endif
