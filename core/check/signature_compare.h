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
#include "core/recorder/box.h"
#include "core/view/hash_log.h"

/* What a slot of a box tells of the calls that NCCL took for sure, at `now_mono_ns` of its host's
 * clock. False: the slot is of no group that can be compared. Any thread. */
bool ng_signature_compare_hash_log(const struct ng_box *box, uint32_t slot, int64_t now_mono_ns,
                                   struct ng_hash_log *ret_trail);

/* Does a communicator live in the slot that is compared, and is it the only one of its id and rank
 * in this process, and of one size with all others of its id? Where NCCL_COMM_ID is set, all unique
 * ids are the same. Any thread. */
bool ng_signature_compare_is_clear(const struct ng_box *own_box, uint32_t slot);

/* Was what rank 0 has told, in a turn of which each has another number, told since the communicator
 * in this slot was made? What an earlier one of the same id has left on the store is never told
 * again. The store's thread. */
bool ng_signature_compare_is_news(const struct ng_box *own_box, uint32_t slot, uint64_t turn);

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
