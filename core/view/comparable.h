/*
 * Which communicators can be compared by their rolling hashes, and what is compared.
 *
 * Beside the life of a call. Reads black boxes of any process; core/check/signature_compare.h
 * compares within a host, the store across hosts.
 */
#ifndef NCCLGUARD_CORE_VIEW_COMPARABLE_H
#define NCCLGUARD_CORE_VIEW_COMPARABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/recorder/box.h"
#include "core/view/hash_log.h"

/* Does a communicator of this group live in the slot, be it in the making? */
bool ng_comparable_is_there(const struct ng_box_group *group, uint64_t id);

/* Is it made, has it other ranks, and is it known which one this is? */
bool ng_comparable_is_ready(const struct ng_box_group *group);

/* What a slot of a box tells of the calls that NCCL took for sure, at `now_mono_ns` of its host's
 * clock. False: the slot is of no group that can be compared. Any thread. */
bool ng_comparable_hash_log(const struct ng_box *box, uint32_t slot, int64_t now_mono_ns,
                            struct ng_hash_log *ret_trail);

/* Does a communicator live in the slot that is compared, and is it the only one of its id and rank
 * in this process, and of one size with all others of its id? Where NCCL_COMM_ID is set, all unique
 * ids are the same. Any thread. */
bool ng_comparable_is_clear(const struct ng_box *own_box, uint32_t slot);

/* Was what rank 0 has told, in a turn of which each has another number, told since the communicator
 * in this slot was made? What an earlier one of the same id has left on the store is never told
 * again. The store's thread. */
bool ng_comparable_is_news(const struct ng_box *own_box, uint32_t slot, uint64_t turn);

#endif
