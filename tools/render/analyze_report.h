/*
 * What `ncclguard analyze` prints: the verdict, and other findings in the evidence.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_ANALYZE_REPORT_H
#define NCCLGUARD_TOOLS_RENDER_ANALYZE_REPORT_H

#include "core/verdict/verdict.h"
#include "core/view/view.h"
#include "tools/ingest/mismatches.h"

/*
 * For people: the verdict as ng_report_write_text writes it (`folder` as there), then what the
 * ranks were doing, mismatches and stragglers other than the one that it reports, what collectives
 * took, and what to look at next. 0, -ENOMEM, or -errno of writing to `fd`.
 */
int ng_analyze_write_text(const struct ng_view *view, const struct ng_verdict *verdict,
                          const struct ng_mismatches *mismatches, const char *folder, int fd);

/*
 * For programs: the members of core/report/report.h, and
 *
 *   findings           array, one for each independent mismatch, that of the verdict included:
 *     kind             "mismatch"
 *     group            {"id", "name", "nranks"} as in the verdict
 *     seq, last_seq    the first collective of the group that differs, and the last one known in
 *                      which the same ranks differ
 *     count            number of such collectives
 *     op, confidence   as in the verdict
 *     culprits         array of {"rank", "group_rank", "why"}
 *   findings_left_out  int: how many more there are
 *   stragglers         array, one for each group that has one, that of the verdict included, also
 *                      beside a hang:
 *     group            as above
 *     rank, group_rank of the rank that arrives last
 *     last, samples    it arrived last in so many of so many measured collectives
 *     wait_ns, total_wait_ns    how long the others waited for it each time (median), and in total
 *     confidence, why  as in the verdict
 *   durations          array, in order of group, operation and size: time on the device, over
 *                      all ranks that have measured it
 *     group            as above
 *     op               "GroupEnd": several calls of one NCCL group, launched together
 *     size_bytes       up to so many bytes, and more than half of that
 *     processes        how many have measured it
 *     count, mean_ns, min_ns, max_ns
 *     p50_ns, p99_ns   percentiles, rounded up to a power of two of microseconds
 *   registrations      array, one for each group with which the guard has registered buffers,
 *                      or intended to, over all ranks:
 *     group            as above
 *     segments, segment_bytes    registered now
 *     bytes, registered_bytes    of sends and receives: all, and those in
 *                              registered memory
 *     failed, spent_ns           failed calls of NCCL's register and deregister; time
 *                              spent in them
 *     closed           true: no more registrations with it
 *
 * 0, -ENOMEM, or -errno of writing to `fd`.
 */
int ng_analyze_write_json(const struct ng_view *view, const struct ng_verdict *verdict,
                          const struct ng_mismatches *mismatches, int fd);

#endif
