/*
 * Hash logs as C++ tests can write and copy them: their headers have atomics that C++17 cannot
 * read.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_VIEW_HASH_LOG_WRITER_H
#define NCCLGUARD_TESTS_UNIT_CORE_VIEW_HASH_LOG_WRITER_H

#include <stdbool.h>
#include <stdint.h>

struct hashed_rank; /* one rank of one group: its collectives so far */

struct hashed_rank *hashed_rank_new(void);
void hashed_rank_free(struct hashed_rank *rank);

/* It enters a collective; `state`: 'e' no more than that, 't' NCCL takes it, 'r' NCCL refuses it,
 * and it did not happen, 'c' it goes into a graph. */
void hashed_rank_call(struct hashed_rank *rank, uint32_t op, uint64_t count, int dtype, int redop,
                      int root, char state);

/* ng_hash_log_differ of both as they are now. */
bool hashed_ranks_differ(const struct hashed_rank *a, const struct hashed_rank *b,
                         uint64_t *ret_after, uint64_t *ret_seq);

#endif
