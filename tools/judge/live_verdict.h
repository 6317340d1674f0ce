/*
 * The verdict on a job at this moment, for commands that look at a running job.
 */
#ifndef NCCLGUARD_TOOLS_JUDGE_LIVE_VERDICT_H
#define NCCLGUARD_TOOLS_JUDGE_LIVE_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "core/verdict/verdict.h"
#include "core/view/view.h"

/* It has ended, or its host is gone: it waits for nobody. Whom the guard ended is a victim, which
 * did wait. */
bool ng_live_verdict_is_gone(enum ng_life life);

/* Does none of its processes run any more? False where there is none. */
bool ng_live_verdict_is_over(const struct ng_view *view);

/* Age of the oldest work or call of those who are not gone; 0 none. `victims`: of those, too, whom
 * the guard ended. */
int64_t ng_live_verdict_oldest_wait(const struct ng_view *view, bool victims);

/*
 * What the guard would say now of a sealed view: of work that is old enough to be suspect (or as
 * old as `asked_ns`, where that is not 0), or of a rank that is gone or frozen and holds others up,
 * without waiting so long. That nothing is wrong is only likely while work is pending for longer
 * than is usual. Where none of its processes runs any more: what held them up when they ended. Its
 * time is now, nobody detected it, and nothing is done about it. 0, and the caller ends it with
 * ng_verdict_fini, or -ENOMEM. The view is as before.
 */
int ng_live_verdict_judge(struct ng_view *view, int64_t asked_ns, int64_t suspect_ns,
                          struct ng_verdict *ret_verdict);

/*
 * The verdict in one line, as ng_report_line: where nothing is stuck, also what would count as
 * that, `stuck_ns` (0: not mentioned). Work that is pending for less may be about to be told of.
 */
void ng_live_verdict_line(const struct ng_verdict *verdict, int64_t stuck_ns, char *ret_line,
                          size_t bytes);

/*
 * Must `verdict`, the content of a verdict.json (NULL: none), stay when the job is judged again?
 * True where a guard acted on it. Also where the job is `over` and a guard, which saw all hosts,
 * found that a rank was gone or that calls differed: how the job ended follows from that.
 */
bool ng_live_verdict_verdict_stays(const json_t *verdict, bool over);

#endif
