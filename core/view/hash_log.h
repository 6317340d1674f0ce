/*
 * Hash logs: the rolling hash of a group after each of several collectives, to compare two ranks
 * that are in different collectives.
 *
 * Written by the calling thread at each collective; read by other processes at any time. A word
 * holds 40 bits of the hash and the lower 24 bits of the collective's number, so a reader never
 * mistakes the hash of one collective for that of another. The log keeps words of the newest
 * collectives, and of the newest two multiples of each power of two from 16 up. So two ranks that
 * make progress, and whose calls are not further apart than 2^20, eventually have a collective in
 * common, however rarely they are read. No lock, no system call: one store, and a few more at every
 * sixteenth collective.
 */
#ifndef NCCLGUARD_CORE_VIEW_HASH_LOG_H
#define NCCLGUARD_CORE_VIEW_HASH_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/disagreement.h"
#include "core/recorder/box.h"
#include "core/recorder/signature.h"

#define NG_HASH_LOG_NUMBER UINT64_C(0xffffff) /* the bits of a word that hold the number */

/* A word: the number and the hash. The multiplication makes a difference in the lowest bits of the
 * hash alone (as after a different count) visible in the upper bits, too. */
static inline uint64_t ng_hash_log_word(uint64_t number, uint64_t hash)
{
    return (hash * NG_SIGNATURE_FACTOR & ~NG_HASH_LOG_NUMBER) | (number & NG_HASH_LOG_NUMBER);
}

/* What a rank does so that it is compared with ranks of other hosts, too. */
enum ng_hash_log_across {
    NG_HASH_LOG_SILENT, /* nothing: another rank of its host does it */
    NG_HASH_LOG_TELLS,  /* rank 0: publishes */
    NG_HASH_LOG_ASKS,   /* the lowest rank of the group on its host: reads */
};

/* Every sixteenth collective. */
void ng_hash_log_mark(struct ng_box_hash_log *hash_log, uint64_t seq, uint64_t hash);

/* Adds the hash that the group has after collective `seq`. The thread that calls on the
 * communicator. */
static inline __attribute__((always_inline)) void ng_hash_log_add(struct ng_box_hash_log *hash_log,
                                                                  uint64_t seq, uint64_t hash)
{
    NG_STORE(hash_log->newest[seq % NG_HASH_LOG_NEWEST], ng_hash_log_word(seq, hash));
    if (__builtin_expect(seq % NG_HASH_LOG_NEWEST == 0, 0))
        ng_hash_log_mark(hash_log, seq, hash);
}

/* Collective `seq` is captured into a CUDA graph: from here on, ranks may number their calls
 * differently, since a discarded capture never runs as a collective. */
static inline void ng_hash_log_capture(struct ng_box_hash_log *hash_log, uint64_t seq)
{
    uint64_t first = NG_LOAD(hash_log->captured);

    if (!first || seq < first)
        NG_STORE(hash_log->captured, seq);
    /* Must be visible before the call is recorded as accepted by NCCL. */
    atomic_thread_fence(memory_order_release);
}

/* All hosts have reached collective `seq` with the same call, says the lowest rank of a host in its
 * hash log: wake the ranks of its host that sleep until it does. Any thread. */
void ng_hash_log_agree(struct ng_box_hash_log *hash_log, uint64_t seq);

/* Wake them: they must look again. Any thread. */
void ng_hash_log_wake(const struct ng_box_hash_log *hash_log);

/* A copy of one rank's hash log. */
struct ng_hash_log {
    uint64_t entered; /* the newest collective that the hash log may contain */
    uint64_t
        last; /* the newest that counts: NCCL accepted it, and it was not captured into a graph */
    uint64_t newest[NG_HASH_LOG_NEWEST];
    uint64_t marks[NG_HASH_LOG_LEVELS][2];
};

/* Copies the hash log of a box's slot; NCCL accepted its collectives up to `taken`. Any thread. */
void ng_hash_log_copy(const struct ng_box_hash_log *hash_log, uint64_t taken, uint64_t entered,
                      struct ng_hash_log *ret_hash_log);

/* The word of the rolling hash after `seq`; 0 not known. */
uint64_t ng_hash_log_at(const struct ng_hash_log *hash_log, uint64_t seq);

/* The log that is so far ahead that it no longer contains the newest collective of the other:
 * core/view/recall.h may know it. NULL: neither, or the other log does not contain that collective
 * either, as after a graph. Pure. */
const struct ng_hash_log *ng_hash_log_ahead(const struct ng_hash_log *a,
                                            const struct ng_hash_log *b);

/*
 * Have two ranks made different calls? Only calls that both certainly made count: false means that
 * they are alike, or that the logs do not say. Pure.
 */
bool ng_hash_log_differ(const struct ng_hash_log *a, const struct ng_hash_log *b,
                        struct ng_hash_log_difference *ret_difference);

#endif
