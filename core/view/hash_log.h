/*
 * Hash logs: which rolling hash a group had after which collective, for comparing two ranks that
 * are not at the same one.
 *
 * Written by the calling thread with each collective; read by other processes at any moment. A word
 * has both, 40 bits of the hash and the lower 24 of the number, so that no reader ever takes the
 * hash of one collective for that of another. There are words of the newest collectives, and of the
 * newest two multiples of each power of two from 16: so two ranks that go on, and whose calls are
 * not further apart than 2^20, sooner or later have one in common, however seldom they are looked
 * at. No lock, no system call: one store, and every sixteenth time a few more.
 */
#ifndef NCCLGUARD_CORE_VIEW_HASH_LOG_H
#define NCCLGUARD_CORE_VIEW_HASH_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/disagreement.h"
#include "core/recorder/box.h"
#include "core/recorder/signature.h"

#define NG_HASH_LOG_NUMBER UINT64_C(0xffffff) /* the bits of a word that are the number's */

/* A word: the number, and the hash. What differs in its lowest bits alone, as after another count,
 * is to be seen in the upper ones, too. */
static inline uint64_t ng_hash_log_word(uint64_t number, uint64_t hash)
{
    return (hash * NG_SIGNATURE_FACTOR & ~NG_HASH_LOG_NUMBER) | (number & NG_HASH_LOG_NUMBER);
}

/* What a rank does so that ranks of other hosts are compared, too. */
enum ng_hash_log_across {
    NG_HASH_LOG_SILENT, /* nothing: another rank of its host does */
    NG_HASH_LOG_TELLS,  /* rank 0 */
    NG_HASH_LOG_ASKS,   /* the lowest rank of the group on its host */
};

/* Every sixteenth time. */
void ng_hash_log_mark(struct ng_box_hash_log *hash_log, uint64_t seq, uint64_t hash);

/* The group has this hash after collective `seq`. The thread that calls on the communicator. */
static inline __attribute__((always_inline)) void ng_hash_log_add(struct ng_box_hash_log *hash_log,
                                                                  uint64_t seq, uint64_t hash)
{
    NG_STORE(hash_log->newest[seq % NG_HASH_LOG_NEWEST], ng_hash_log_word(seq, hash));
    if (__builtin_expect(seq % NG_HASH_LOG_NEWEST == 0, 0))
        ng_hash_log_mark(hash_log, seq, hash);
}

/* Collective `seq` goes into a CUDA graph: from here on, ranks may number their calls differently,
 * since a capture that is thrown away was never a collective. */
static inline void ng_hash_log_capture(struct ng_box_hash_log *hash_log, uint64_t seq)
{
    uint64_t first = NG_LOAD(hash_log->captured);

    if (!first || seq < first)
        NG_STORE(hash_log->captured, seq);
    /* Before it is said that NCCL took it. */
    atomic_thread_fence(memory_order_release);
}

/* What one rank of a group tells of its collectives, copied. */
struct ng_hash_log {
    uint64_t entered; /* the newest collective that the hash log may tell of */
    uint64_t last;    /* the newest that counts: NCCL took it, and it went into no graph */
    uint64_t newest[NG_HASH_LOG_NEWEST];
    uint64_t marks[NG_HASH_LOG_LEVELS][2];
};

/* A slot of a box, of which collectives up to `taken` were taken by NCCL. Any thread. */
void ng_hash_log_copy(const struct ng_box_hash_log *hash_log, uint64_t taken, uint64_t entered,
                      struct ng_hash_log *ret_trail);

/* What tells of the rolling hash after `seq`; 0 not known. */
uint64_t ng_hash_log_at(const struct ng_hash_log *hash_log, uint64_t seq);

/* Which of both is so far ahead that it no longer tells of the newest collective of the other:
 * core/view/recall.h may know it. NULL: neither, or the other does not tell of that one either, as
 * behind a graph. Pure. */
const struct ng_hash_log *ng_hash_log_ahead(const struct ng_hash_log *a,
                                            const struct ng_hash_log *b);

/*
 * Have two ranks called something different? Only what both certainly called counts: false says
 * that they are alike, or that nothing can be told. Pure.
 */
bool ng_hash_log_differ(const struct ng_hash_log *a, const struct ng_hash_log *b,
                        struct ng_hash_log_difference *ret_difference);

#endif
