/*
 * trace.json: the job as a timeline that Perfetto and chrome://tracing open.
 *
 * Entered by the guard's threads at an incident and by the command; no malloc, no lock. One JSON
 * object in the Chrome trace event format. What is in it:
 *
 *   traceEvents
 *     a process per rank       "rank 3 (host:pid)", in order of ranks; what it is running, and how
 *                              it lives, as its labels. Its number is none of the system's, for
 *                              those of several hosts collide
 *     a track per              the verdict, where it names or concerns the rank
 *                              thread that calls NCCL: an instant for each call, and a slice for
 *                              the one that it is inside
 *                              group and stream: a slice for each operation, from when the device
 *                              reached it to when it was seen to end; one that is in flight ends
 *                              with the view, and those queued behind it are instants
 *     flow arrows              from whom the others wait for to who waits: round a deadlock step by
 *                              step, and from the first culprit to all that it holds up
 *     one global instant       the verdict
 *   displayTimeUnit            "ms"
 *   otherData
 *     schema                   "ncclguard.trace/1"
 *     job, verdict, confidence, guard_version
 *     origin_unix_ns           Unix time of timestamp 0, as decimal string
 *     records_left_out         of old calls, for which there was no room
 *     clocks                   array of {"host", "processes", "samples", "offset_us", "scatter_us",
 *                              "applied"}: see core/view/clock_sync.h
 *
 * Timestamps are microseconds since the oldest call that is drawn, on one clock for all hosts. The
 * arguments of an operation: seq, op, count, dtype, redop, root or peer, group, group_id, state,
 * record, entered_us, result where NCCL returned an error, bounds: true where begin and end were
 * seen together, and it ran at some time between the two; and duration_us, how long the device took
 * for it, all of its NCCL group together, where that was measured: the slice is then no longer than
 * that, and ends where it was seen to end. What is not known is left out.
 */
#ifndef NCCLGUARD_CORE_REPORT_TRACE_H
#define NCCLGUARD_CORE_REPORT_TRACE_H

#include <stdint.h>

#include "core/verdict/verdict.h"
#include "core/view/view.h"

#define NG_TRACE_NAME   "trace.json"
#define NG_TRACE_SCHEMA "ncclguard.trace/1"

/* Records in one file: some 50 MB. */
#define NG_TRACE_RECORDS_MAX 100000u

/* A sealed view, with what was made of it (NULL: nothing). 0, -ENOMEM, or -errno of writing to
 * `fd`. */
int ng_trace_write(const struct ng_view *view, const struct ng_verdict *verdict,
                   uint32_t records_max, int fd);

/* The same as NG_TRACE_NAME in `folder`: complete or not there. 0 or -errno. */
int ng_trace_save(const struct ng_view *view, const struct ng_verdict *verdict, const char *folder);

#endif
