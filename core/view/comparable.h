/*
 * Which communicators can be compared by their rolling hashes, and which hashes are compared.
 *
 * Not on the path of a call. Reads black boxes of any process; core/check/signature_compare.h
 * compares within a host, the store across hosts.
 */
#ifndef NCCLGUARD_CORE_VIEW_COMPARABLE_H
#define NCCLGUARD_CORE_VIEW_COMPARABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/recorder/box.h"
#include "core/view/hash_log.h"

/* Does the slot hold a live communicator of this group, even one that is still being created? */
bool ng_comparable_is_there(const struct ng_box_group *group, uint64_t id);

/* Has its creation finished, does it have other ranks, and is its own rank known? */
bool ng_comparable_is_ready(const struct ng_box_group *group);

/* The hash log of a slot of a box, limited to calls that NCCL has certainly accepted, at
 * `now_mono_ns` of its host's clock. False: the slot's group cannot be compared. Any thread. */
bool ng_comparable_hash_log(const struct ng_box *box, uint32_t slot, int64_t now_mono_ns,
                            struct ng_hash_log *ret_hash_log);

/* Does the slot hold a communicator that can be compared, is it the only one of its id and rank in
 * this process, and does it have the same size as all others of its id? If NCCL_COMM_ID is set, all
 * unique ids are the same. Any thread. */
bool ng_comparable_is_clear(const struct ng_box *own_box, uint32_t slot);

/* Did rank 0 publish turn `turn` (each turn has a different number) after the communicator in this
 * slot was created? Entries that an earlier communicator of the same id left on the store are never
 * published again. The store's thread. */
bool ng_comparable_is_news(const struct ng_box *own_box, uint32_t slot, uint64_t turn);

#endif
