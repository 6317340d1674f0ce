/*
 * The verdict on a job at this moment, for commands that observe a running job.
 */
#ifndef NCCLGUARD_TOOLS_JUDGE_LIVE_VERDICT_H
#define NCCLGUARD_TOOLS_JUDGE_LIVE_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "core/verdict/verdict.h"
#include "core/view/view.h"

/* Have all its processes ended? False if there is none. */
bool ng_live_verdict_is_over(const struct ng_view *view);

/*
 * The verdict that the guard would reach now on a sealed view: on work that is old enough to be
 * suspect (or as old as `asked_ns`, if that is not 0), or on a rank that is gone or frozen and
 * holds others up, without the usual wait. A healthy verdict is only likely while work is pending
 * for longer than usual. If none of its processes runs any more: what held them up when they ended.
 * The verdict's time is now, it has no detecting rank, and no action follows. 0, and the caller
 * ends it with ng_verdict_fini, or -ENOMEM. The view is left unchanged.
 */
int ng_live_verdict_judge(struct ng_view *view, int64_t asked_ns, int64_t suspect_ns,
                          struct ng_verdict *ret_verdict);

/*
 * The verdict in one line, as ng_report_line: if nothing is stuck, also the threshold `stuck_ns`
 * (0: not mentioned). Work pending for less may be about to be reported.
 */
void ng_live_verdict_line(const struct ng_verdict *verdict, int64_t stuck_ns, char *ret_line,
                          size_t bytes);

/*
 * Must `verdict`, the content of a verdict.json (NULL: none), be kept when the job is judged again?
 * True if a guard acted on it. Also if the job is `over` and a guard, which saw all hosts, found
 * that a rank was gone or that calls differed, since the end of the job follows from that.
 */
bool ng_live_verdict_verdict_stays(const json_t *verdict, bool over);

#endif
