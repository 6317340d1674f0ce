/*
 * A verdict long after: evidence has no clock that runs on, and the job may have been killed since.
 */
#ifndef NCCLGUARD_TOOLS_HINDSIGHT_H
#define NCCLGUARD_TOOLS_HINDSIGHT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/verdict.h"

struct ng_hindsight {
    int64_t asked_ns;   /* what the user calls stuck; 0 not said */
    int64_t stalled_ns; /* what the job called stuck; 0 not known */
    bool incident;      /* there was one, whatever the ages say */
};

/* Judge a sealed view, whose processes may be taken for what they were just before the end. 0 or
 * -ENOMEM. `verdict` is freed with ng_verdict_fini. */
int ng_hindsight_judge(struct ng_view *view, const struct ng_hindsight *hindsight,
                       struct ng_verdict *ret_verdict);

#endif
