/*
 * A rank that writes a hash log as core/call/call.c does.
 */
#include "tests/unit/core/view/hash_log_writer.h"

#include <stdlib.h>

#include "core/recorder/signature.h"
#include "core/view/hash_log.h"

struct hashed_rank {
    struct ng_box_hash_log hash_log;
    uint64_t entered, taken, hash;
};

struct hashed_rank *hashed_rank_new(void)
{
    return calloc(1, sizeof(struct hashed_rank));
}

void hashed_rank_free(struct hashed_rank *rank)
{
    free(rank);
}

void hashed_rank_call(struct hashed_rank *rank, uint32_t op, uint64_t count, int dtype, int redop,
                      int root, char state)
{
    struct ng_signature signature = {op, dtype, redop, root, count};
    uint64_t before = rank->hash;

    rank->hash = ng_signature_roll(rank->hash, &signature);
    rank->entered++;
    ng_hash_log_add(&rank->hash_log, rank->entered, rank->hash);
    if (state == 'c')
        ng_hash_log_capture(&rank->hash_log, rank->entered);
    if (state == 't' || state == 'c')
        rank->taken = rank->entered;
    if (state == 'r') {
        rank->entered--;
        rank->hash = before;
    }
}

bool hashed_ranks_differ(const struct hashed_rank *a, const struct hashed_rank *b,
                         uint64_t *ret_after, uint64_t *ret_seq)
{
    struct ng_hash_log_difference difference = {0};
    struct ng_hash_log log_a, log_b;

    ng_hash_log_copy(&a->hash_log, a->taken, a->entered, &log_a);
    ng_hash_log_copy(&b->hash_log, b->taken, b->entered, &log_b);
    bool differ = ng_hash_log_differ(&log_a, &log_b, &difference);
    *ret_after = difference.after;
    *ret_seq = difference.seq;
    return differ;
}
