/*
 * The roll call of those who wait inside NCCL for others: who has come, who has not, and where
 * those are instead.
 *
 * Told while a communicator is made, or while the first collective of a cold one connects its
 * ranks, long before a deadline.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_ROLL_CALL_H
#define NCCLGUARD_CORE_INCIDENT_ROLL_CALL_H

#include <stdint.h>

#include "core/nccl/board.h"
#include "core/util/log.h"
#include "core/verdict/wait_graph.h"
#include "core/view/view_index.h"

/* Longer rolls are cut at their end. */
#define NG_ROLL_CALL_LINE_BYTES 900u

/*
 * The line for wait `wait`: making, or first collective. Sets of ranks are those of the group,
 * folded
 * ("0-2,5,7-63") and bounded in length. *ret_level: how it is to be logged; where all have come and
 * agree, it is no warning in the first half minute. Pure; memory from `arena`. 0 or -ENOMEM.
 */
int ng_roll_call_line(const struct ng_view_index *processes, const struct ng_wait_graph *waits,
                      uint32_t wait, struct ng_arena *arena, char ret_line[NG_ROLL_CALL_LINE_BYTES],
                      enum ng_log_level *ret_level);

/*
 * Tell it where it is due: once a thread of this process has waited for the suspect time, and every
 * ten seconds from then on; of all ranks that wait in the same, one tells. `look`: what can be seen
 * of the job. Incident thread, in every round; waits no longer than the board's calls do.
 */
void ng_roll_call_tend(struct ng_board *board, int (*look)(struct ng_view *ret_view));

/* In a forked child. */
void ng_roll_call_after_fork(void);

#endif
