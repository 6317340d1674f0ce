/*
 * Does a rank make the call that it usually made after the same preceding calls? Most programs
 * repeat the same calls, so among ranks that wait for each other, the one that deviates from its
 * own earlier rounds is probably the culprit.
 *
 * Pure.
 */
#ifndef NCCLGUARD_CORE_VERDICT_USUAL_H
#define NCCLGUARD_CORE_VERDICT_USUAL_H

#include "core/view/view_index.h"

/* The number of newest records of a member that are examined. */
#define NG_USUAL_RECORDS 24u

/*
 * Counts how often the rank deviated, from `before` calls before its oldest unfinished call on;
 * counted are the calls, on any communicator, of the thread that is stuck in member `member`. -1:
 * its records are not sufficient. Memory from `arena`. 0 or -ENOMEM.
 */
int ng_usual_look(const struct ng_view_index *processes, uint32_t member, uint32_t before,
                  struct ng_arena *arena, int *ret_departures);

/* Does one thread make all calls of `member`, and another one the call that `stuck`, of the same
 * process, is stuck in? Then the first thread may be free to go on. False: their threads are not
 * known. */
bool ng_usual_is_of_another_thread(const struct ng_view_member *member,
                                   const struct ng_view_member *stuck);

#endif
