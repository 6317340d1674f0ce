/*
 * What a rank called a while ago: hash logs go back sixteen collectives, records further.
 *
 * Where one rank waits inside a call and the others' sends fit into buffers, they run ahead of it,
 * and their hash logs (core/view/hash_log.h) soon no longer tell of the collective that it is at.
 */
#ifndef NCCLGUARD_CORE_VIEW_RECALL_H
#define NCCLGUARD_CORE_VIEW_RECALL_H

#include <stdint.h>

#include "core/view/hash_log.h"

/* The newest records, at most: no black box of any size holds a thread up. */
#define NG_RECALL_LOOKS (1u << 16)

/*
 * Puts collective `seq` of the group in `slot`, and the fifteen before it, into the hash log, as
 * far as the records of the box have them, and each follows from the one before; the newest go from
 * it, what else it tells stays. What the records say counts for as long as the group is the same,
 * as with a hash log. Any thread. Returns how many records it has looked at.
 */
uint32_t ng_recall(const struct ng_box *box, uint32_t slot, uint64_t seq,
                   struct ng_hash_log *hash_log);

/* The operation of that collective; NG_OP_NONE: it is not known any more. Any thread. */
enum ng_op ng_recall_op(const struct ng_box *box, uint32_t slot, uint64_t seq);

#endif
