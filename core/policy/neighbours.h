/*
 * Ends ranks of this host that a verdict ends and that cannot end themselves.
 *
 * Incident thread, right before it ends its own process.
 */
#ifndef NCCLGUARD_CORE_POLICY_NEIGHBOURS_H
#define NCCLGUARD_CORE_POLICY_NEIGHBOURS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/recorder/box.h"

/*
 * End ranks that existed when the incident began, at `began_mono_ns`: stopped ranks at once, and
 * ranks that have not begun to end themselves after 2 s. They get SIGABRT, with SIGCONT if they are
 * stopped, and a second later SIGKILL. Never ends a rank whose own policy is milder than
 * `teardown`, a running rank that takes errors instead (NCCLGUARD_BLOCKING_WAIT), or a rank of
 * another user. If the others have not been `told` the verdict, they may be about to reach it: then
 * only stopped ranks are ended, once no other rank runs, within a second. `own` already says that
 * this process ends (ending_policy). Returns earlier if there is no such rank, or if an earlier
 * rank of this host does the job. Each ended rank is named in the log.
 */
void ng_neighbours_end(struct ng_board *board, const struct ng_box *own, int64_t began_mono_ns,
                       bool told);

#endif
