/*
 * Do the ranks of a host call the same? Their rolling hashes are compared once a second, so that a
 * rank that passed something else is told of while its collective is pending, or after it has mixed
 * data without a word.
 *
 * Beside the life of a call. The incident thread. Blocks nobody, and reads the black boxes of the
 * neighbours alone: each rank compares itself with the next one of its group on this host, so that
 * together they compare all.
 */
#ifndef NCCLGUARD_CORE_CHECK_SIGNATURE_COMPARE_H
#define NCCLGUARD_CORE_CHECK_SIGNATURE_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/board.h"
#include "core/nccl/disagreement.h"

/* Compare, if it is time, and raise an alarm for what is found; of a group again, ever more seldom,
 * until a verdict has told of it. `board` NULL: with what this process has itself. */
void ng_signature_compare_tend(struct ng_board *board, int64_t now_mono_ns);

/* The store found that ranks of different hosts differ: to be told with the next
 * ng_signature_compare_tend. The store's thread. */
void ng_signature_compare_found(const struct ng_disagreement *disagreement);

/* Ranks were found to differ: an alarm at this level, and for some rounds no other for the group:
 * it may be dropped. The incident thread. */
void ng_signature_compare_raise(const struct ng_disagreement *disagreement,
                                enum ng_incident_level level);

/* A verdict has told of this group: that is enough. */
void ng_signature_compare_told(uint64_t group_id);
bool ng_signature_compare_is_told(uint64_t group_id);

/* In a forked child. */
void ng_signature_compare_after_fork(void);

#endif
