/*
 * Does a rank call what it called after the same calls before? Most programs go through the same
 * calls again and again, so of ranks that wait for each other the one that departs from its own
 * earlier rounds is likely the reason.
 *
 * Pure.
 */
#ifndef NCCLGUARD_CORE_VERDICT_USUAL_H
#define NCCLGUARD_CORE_VERDICT_USUAL_H

#include "core/view/view_index.h"

/* So many records of a member are looked at: the newest. */
#define NG_USUAL_RECORDS 24u

/*
 * How often it departed: in the calls from so many `before` the oldest that has not finished, made
 * by the thread that a member of this index is stuck in, on whatever communicators. -1: its records
 * tell too little. Memory from `arena`. 0 or -ENOMEM.
 */
int ng_usual_look(const struct ng_view_index *processes, uint32_t member, uint32_t before,
                  struct ng_arena *arena, int *ret_departures);

#endif
