/*
 * Ranks of this host that a verdict ends, and that cannot end themselves.
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
 * End the ranks that were there when the incident began, at `began_mono_ns`, and are stopped, at
 * once, and those that have not begun to end themselves 2 s later: by SIGABRT, where they are
 * stopped together with SIGCONT, and a second later SIGKILL. Never one whose own policy is milder
 * than `teardown`, nor one that takes errors instead (NCCLGUARD_BLOCKING_WAIT) and runs, nor
 * another user's. Where the others have not been `told` the verdict, they may be about to find it:
 * then those that are stopped are ended once no other runs, within a second, and nobody else. `own`
 * says already that this process ends (ending_policy). Returns earlier where there is none, or
 * where a rank that comes before this one sees to it. Each is named in the log.
 */
void ng_neighbours_end(struct ng_board *board, const struct ng_box *own, int64_t began_mono_ns,
                       bool told);

#endif
