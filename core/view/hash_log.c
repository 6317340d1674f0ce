/*
 * Hash logs: writing them, and comparing two of them.
 *
 * ng_hash_log_mark runs on the program's threads; ng_hash_log_agree and ng_hash_log_wake on any;
 * the rest is pure.
 */
#include "core/view/hash_log.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FIRST_LEVEL 4 /* 2^4: NG_HASH_LOG_NEWEST */

_Static_assert(NG_HASH_LOG_NEWEST == 1u << FIRST_LEVEL, "marks go on where the newest end");

/* A word has only 24 bits of the number, so the numbers of ranks further apart would be
 * ambiguous. */
#define APART_MAX (UINT64_C(1) << 22)

void ng_hash_log_mark(struct ng_box_hash_log *hash_log, uint64_t seq, uint64_t hash)
{
    for (unsigned level = 0; level < NG_HASH_LOG_LEVELS; level++) {
        uint64_t number = seq >> (level + FIRST_LEVEL);
        NG_STORE(hash_log->marks[level][number & 1], ng_hash_log_word(number, hash));
        if (number & 1)
            return;
    }
}

void ng_hash_log_wake(const struct ng_box_hash_log *hash_log)
{
    /* The lower half of the number: both supported architectures are little-endian. */
    syscall(SYS_futex, &hash_log->agreed, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void ng_hash_log_agree(struct ng_box_hash_log *hash_log, uint64_t seq)
{
    atomic_store(&hash_log->agreed, seq);
    ng_hash_log_wake(hash_log);
}

void ng_hash_log_copy(const struct ng_box_hash_log *hash_log, uint64_t taken, uint64_t entered,
                      struct ng_hash_log *ret_hash_log)
{
    for (unsigned i = 0; i < NG_HASH_LOG_NEWEST; i++)
        ret_hash_log->newest[i] = atomic_load_explicit(&hash_log->newest[i], memory_order_acquire);
    for (unsigned level = 0; level < NG_HASH_LOG_LEVELS; level++)
        for (unsigned i = 0; i < 2; i++)
            ret_hash_log->marks[level][i] =
                atomic_load_explicit(&hash_log->marks[level][i], memory_order_acquire);
    uint64_t captured = NG_LOAD(hash_log->captured);
    ret_hash_log->entered = entered;
    ret_hash_log->last = captured && captured <= taken ? captured - 1 : taken;
}

uint64_t ng_hash_log_at(const struct ng_hash_log *hash_log, uint64_t seq)
{
    uint64_t word = hash_log->newest[seq % NG_HASH_LOG_NEWEST];

    if ((word & NG_HASH_LOG_NUMBER) == (seq & NG_HASH_LOG_NUMBER))
        return word & ~NG_HASH_LOG_NUMBER;
    for (unsigned level = 0; level < NG_HASH_LOG_LEVELS; level++) {
        uint64_t number = seq >> (level + FIRST_LEVEL);
        if (number << (level + FIRST_LEVEL) != seq)
            break;
        word = hash_log->marks[level][number & 1];
        if ((word & NG_HASH_LOG_NUMBER) == (number & NG_HASH_LOG_NUMBER))
            return word & ~NG_HASH_LOG_NUMBER;
    }
    return 0;
}

static void compare_at(const struct ng_hash_log *a, const struct ng_hash_log *b, uint64_t seq,
                       struct ng_hash_log_difference *difference)
{
    uint64_t hash_a, hash_b;

    if (!seq || seq > a->last || seq > b->last || !(hash_a = ng_hash_log_at(a, seq)) ||
        !(hash_b = ng_hash_log_at(b, seq)))
        return;
    if (hash_a == hash_b)
        difference->after = seq > difference->after ? seq : difference->after;
    else if (!difference->seq || seq < difference->seq)
        difference->seq = seq;
}

const struct ng_hash_log *ng_hash_log_ahead(const struct ng_hash_log *a,
                                            const struct ng_hash_log *b)
{
    const struct ng_hash_log *behind = a->last < b->last ? a : b, *ahead = behind == a ? b : a;

    return behind->last && ng_hash_log_at(behind, behind->last) &&
                   !ng_hash_log_at(ahead, behind->last)
               ? ahead
               : NULL;
}

bool ng_hash_log_differ(const struct ng_hash_log *a, const struct ng_hash_log *b,
                        struct ng_hash_log_difference *ret_difference)
{
    struct ng_hash_log_difference difference = {0};
    uint64_t apart = a->entered > b->entered ? a->entered - b->entered : b->entered - a->entered;
    uint64_t last = a->last < b->last ? a->last : b->last;

    if (apart > APART_MAX)
        return false;
    for (uint64_t i = 0; i < 2 * NG_HASH_LOG_NEWEST && i < last; i++)
        compare_at(a, b, last - i, &difference);
    for (unsigned level = 0; level < NG_HASH_LOG_LEVELS; level++) {
        uint64_t number = last >> (level + FIRST_LEVEL);
        for (uint64_t i = 0; i < 3 && i < number; i++)
            compare_at(a, b, (number - i) << (level + FIRST_LEVEL), &difference);
    }
    /* Hashes that have diverged never become equal again, except by chance. */
    if (!difference.seq)
        return false;
    if (difference.after >= difference.seq)
        difference.after = 0;
    *ret_difference = difference;
    return true;
}
