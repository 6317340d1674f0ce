/*
 * The verdict on a job at this moment, for commands that look at a running job.
 */
#ifndef NCCLGUARD_TOOLS_PRESENT_H
#define NCCLGUARD_TOOLS_PRESENT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/clock.h"
#include "core/verdict.h"
#include "core/view.h"

/* As the library has it: NCCLGUARD_SUSPECT. */
#define NG_PRESENT_SUSPECT_NS (5 * NG_S)

/* It has ended, or its host is gone: it waits for nobody. Whom the guard ended is a victim, which
 * did wait. */
bool ng_present_is_gone(enum ng_life life);

/* Age of the oldest work or call of those who are not gone; 0 none. `victims`: of those, too, whom
 * the guard ended. */
int64_t ng_present_oldest_wait(const struct ng_view *view, bool victims);

/*
 * What the guard would say now of a sealed view: of work that is old enough to be suspect (or as
 * old as `asked_ns`, where that is not 0), or of a death that holds others up, without waiting so
 * long. Its time is now, nobody detected it, and nothing is done about it. 0, and the caller ends
 * it with ng_verdict_fini, or -ENOMEM.
 */
int ng_present_judge(const struct ng_view *view, int64_t asked_ns, int64_t suspect_ns,
                     struct ng_verdict *ret_verdict);

#endif
