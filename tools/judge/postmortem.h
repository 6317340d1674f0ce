/*
 * A verdict long after: evidence has no clock that runs on, and the job may have been killed since.
 */
#ifndef NCCLGUARD_TOOLS_JUDGE_POSTMORTEM_H
#define NCCLGUARD_TOOLS_JUDGE_POSTMORTEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/verdict/verdict.h"

struct ng_postmortem {
    int64_t asked_ns;   /* what the user calls stuck; 0 not said */
    int64_t stalled_ns; /* what the job called stuck; 0 not known */
    bool incident;      /* there was one, whatever the ages say */
    /* What the guards judged while the job ran, the newest first; the caller's. */
    const struct ng_incident *told;
    size_t told_count;
};

/* Is nothing stuck, or nothing for longer than calls may take, and no device has failed? Then what
 * else the evidence tells comes before `verdict`. */
bool ng_postmortem_is_ordinary(const struct ng_view *view, const struct ng_postmortem *postmortem,
                               const struct ng_verdict *verdict);

/*
 * Judge a sealed view, whose processes may be taken for what they were just before the end. A
 * healthy verdict is certain only where every rank of every group has told of itself; else it says
 * what is missing. 0 or -ENOMEM. `verdict` is freed with ng_verdict_fini.
 */
int ng_postmortem_judge(struct ng_view *view, const struct ng_postmortem *postmortem,
                        struct ng_verdict *ret_verdict);

#endif
