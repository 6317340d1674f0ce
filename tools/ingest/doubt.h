/*
 * What a verdict from evidence does not know: ranks that nobody told of, and what could not be
 * read.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_DOUBT_H
#define NCCLGUARD_TOOLS_INGEST_DOUBT_H

#include "core/verdict/verdict.h"

/* One more phrase to the missing evidence. 0 or -ENOMEM. */
__attribute__((format(printf, 2, 3))) int ng_doubt_add(struct ng_verdict *verdict,
                                                       const char *format, ...);

/*
 * A healthy verdict on a sealed view lists the ranks of its groups that nobody told of, and the
 * notes of the view; where there are any, it is likely at most: the rank that others wait for knows
 * of no wait. 0 or -ENOMEM.
 */
int ng_doubt_health(const struct ng_view *view, struct ng_verdict *verdict);

#endif
