/*
 * A rank's earlier calls: hash logs go back sixteen collectives, records further.
 *
 * If one rank waits inside a call while the others' sends fit into buffers, they run ahead of it,
 * and their hash logs (core/view/hash_log.h) soon no longer contain the collective that it is in.
 */
#ifndef NCCLGUARD_CORE_VIEW_RECALL_H
#define NCCLGUARD_CORE_VIEW_RECALL_H

#include <stdint.h>

#include "core/view/hash_log.h"

/* Reads at most this many of the newest records, so that no black box, however large, delays a
 * thread. */
#define NG_RECALL_LOOKS (1u << 16)

/*
 * Puts collective `seq` of the group in `slot`, and the fifteen before it, into the hash log, as
 * far as the records of the box have them and each follows from the one before. They overwrite the
 * newest words of the log; its marks stay. As with a hash log, the result is valid only as long as
 * the slot holds the same group. Any thread. Returns the number of records that it has read.
 */
uint32_t ng_recall(const struct ng_box *box, uint32_t slot, uint64_t seq,
                   struct ng_hash_log *hash_log);

/* The operation of that collective; NG_OP_NONE: no longer known. Any thread. */
enum ng_op ng_recall_op(const struct ng_box *box, uint32_t slot, uint64_t seq);

#endif
