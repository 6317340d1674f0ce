/*
 * What is not known about a job in which nothing is wrong.
 *
 * The engine lists only what is missing for the wait that it reports.
 */
#ifndef NCCLGUARD_TOOLS_JUDGE_HEALTH_DOUBTS_H
#define NCCLGUARD_TOOLS_JUDGE_HEALTH_DOUBTS_H

#include <stddef.h>

#include "core/verdict/verdict.h"

/* "1-3,7": the ranks that ended without a word and left communicators open; "" none. */
void ng_health_doubts_list_silent(const struct ng_view *view, char *ret_ranks, size_t bytes);

/*
 * Adds to a healthy verdict the ranks of its groups without evidence, the notes of the view, and
 * the ranks `silent`, as listed before the view was changed; if there are any, it is at most
 * likely: the rank for which others wait does not show their wait, and one that crashed was not
 * healthy, though nobody waited for it. 0 or -ENOMEM.
 */
int ng_health_doubts_add(const struct ng_view *view, const char *silent,
                         struct ng_verdict *verdict);

#endif
