/*
 * The roll call while ranks wait inside NCCL for others: which ranks have arrived, which have not,
 * and where the missing ones are instead.
 *
 * Logged while a communicator is being created, or while the first collective of a cold one
 * connects its ranks, long before a deadline.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_ROLL_CALL_H
#define NCCLGUARD_CORE_INCIDENT_ROLL_CALL_H

#include <stdint.h>

#include "core/nccl/board.h"
#include "core/util/log.h"
#include "core/verdict/wait_graph.h"
#include "core/view/view_index.h"

/* Longer lines are cut off. */
#define NG_ROLL_CALL_LINE_BYTES 900u

/*
 * The line for wait `wait`: a creating call, or a first collective. Ranks are those of the group,
 * as ranges ("0-2,5,7-63") of bounded length. *ret_level: the log level; while all ranks have
 * arrived and agree, it is no warning for the first 30 s. Pure; memory from `arena`. 0 or -ENOMEM.
 */
int ng_roll_call_line(const struct ng_view_index *processes, const struct ng_wait_graph *waits,
                      uint32_t wait, struct ng_arena *arena, char ret_line[NG_ROLL_CALL_LINE_BYTES],
                      enum ng_log_level *ret_level);

/*
 * Log the roll call when it is due: once a thread of this process has waited for the suspect time,
 * and every ten seconds from then on; of all ranks in the same wait, one logs it. `look` takes a
 * view of the job. Incident thread, in every round; waits no longer than the board's calls do.
 */
void ng_roll_call_report(struct ng_board *board, int (*look)(struct ng_view *ret_view));

#endif
