/*
 * Hash logs as C++ tests can write and copy them: their headers have atomics that C++17 cannot
 * read.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_TRAIL_WRITER_H
#define NCCLGUARD_TESTS_UNIT_CORE_TRAIL_WRITER_H

#include <stdbool.h>
#include <stdint.h>

struct trail_rank; /* one rank of one group: its collectives so far */

struct trail_rank *trail_rank_new(void);
void trail_rank_free(struct trail_rank *rank);

/* It enters a collective; `state`: 'e' no more than that, 't' NCCL takes it, 'r' NCCL refuses it,
 * and it did not happen, 'c' it goes into a graph. */
void trail_rank_call(struct trail_rank *rank, uint32_t op, uint64_t count, int dtype, int redop,
                     int root, char state);

uint64_t trail_rank_entered(const struct trail_rank *rank);

/* ng_hash_log_differ of both as they are now. */
bool trail_ranks_differ(const struct trail_rank *a, const struct trail_rank *b, uint64_t *ret_after,
                        uint64_t *ret_seq);

#endif
