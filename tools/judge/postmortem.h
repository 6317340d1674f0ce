/*
 * A verdict from old evidence: its clock has stopped, and the job may have been killed since.
 */
#ifndef NCCLGUARD_TOOLS_JUDGE_POSTMORTEM_H
#define NCCLGUARD_TOOLS_JUDGE_POSTMORTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/verdict/verdict.h"

/* Age of the oldest work or call of processes that are not gone; 0 none. `victims`: also of those
 * that the guard ended. */
int64_t ng_postmortem_oldest_wait(const struct ng_view *view, bool victims);

struct ng_postmortem {
    int64_t asked_ns;   /* the user's threshold for stuck; 0 not given */
    int64_t stalled_ns; /* the job's threshold for stuck; 0 not known */
    bool incident;      /* there was an incident, whatever the ages are */
    /* Verdicts of the guards while the job ran, the newest first; owned by the caller. */
    const struct ng_incident *told;
    size_t told_count;
};

/* Is nothing stuck, or nothing for longer than calls may take, and has no device failed? Then other
 * findings in the evidence take precedence over `verdict`. */
bool ng_postmortem_is_ordinary(const struct ng_view *view, const struct ng_postmortem *postmortem,
                               const struct ng_verdict *verdict);

/*
 * Judge a sealed view, whose processes may be treated as they were just before the end. A healthy
 * verdict is certain only if every rank of every group is in the evidence, and none was killed or
 * crashed as far as is known; else it lists what is not known. 0 or -ENOMEM. Free `verdict` with
 * ng_verdict_fini.
 */
int ng_postmortem_judge(struct ng_view *view, const struct ng_postmortem *postmortem,
                        struct ng_verdict *ret_verdict);

#endif
