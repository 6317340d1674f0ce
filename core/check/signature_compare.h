/*
 * Checks that the ranks of a host make the same calls. Their rolling hashes are compared once a
 * second, so that a rank that passed other arguments is reported while its collective is pending,
 * or after it has silently mixed data.
 *
 * Incident thread, not in the path of a call. Blocks no rank, and reads only the black boxes of
 * neighbours: each rank compares itself with the next one of its group on this host, so that
 * together they compare all.
 */
#ifndef NCCLGUARD_CORE_CHECK_SIGNATURE_COMPARE_H
#define NCCLGUARD_CORE_CHECK_SIGNATURE_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/nccl/disagreement.h"

/* Compare, if due, and raise an alarm for a difference; repeated for the same group, less and less
 * often, until a verdict has reported it. `board` NULL: compare only within this process. */
void ng_signature_compare_run(struct ng_board *board, int64_t now_mono_ns);

/* The store found that ranks of different hosts differ: the next ng_signature_compare_run reports
 * it. The store's thread. */
void ng_signature_compare_found(const struct ng_disagreement *disagreement);

/* Ranks were found to differ: raise an alarm at this level, and no other for this group for some
 * rounds, since the alarm may be dropped. Incident thread. */
void ng_signature_compare_raise(const struct ng_disagreement *disagreement,
                                enum ng_incident_level level);

/* A verdict has reported this group: raise no more alarms for it. */
void ng_signature_compare_mark_reported(uint64_t group_id);
bool ng_signature_compare_is_reported(uint64_t group_id);

/* In a forked child. */
void ng_signature_compare_after_fork(void);

#endif
