/*
 * Ranks of one process as core sees them, each with a copy of NCCL of its own, on a device that
 * does everything at once. No thread of the guard runs: a test says when it looks. C, for core's
 * headers with atomics.
 */
#ifndef NCCLGUARD_TESTS_UNIT_CORE_MADE_RANKS_H
#define NCCLGUARD_TESTS_UNIT_CORE_MADE_RANKS_H

#include <stdbool.h>
#include <stdint.h>

__BEGIN_DECLS

#define MADE_RANKS        8 /* at the most: as many copies of NCCL */
#define MADE_RANK_STREAMS 4 /* of each */

/* A guard with so many records; all that was made before is forgotten. Replays are seen where
 * `graphs` says so. */
void made_ranks_begin(int64_t records, bool arguments, bool graphs);

/* A rank creates a communicator in two steps, and waits for the others between them. `handle`: what
 * NCCL writes; NULL: none. NCCL reports the communicator's size and the rank in it. */
struct made_making {
    int rank;            /* the library */
    void *parent;        /* NULL: by the unique id */
    const char *id;      /* 128 bytes */
    int color;           /* of a split */
    const int *excluded; /* of a shrink; NULL a split */
    int excluded_count;
    void *handle;
    int nranks, group_rank;
};
void made_rank_begins_making(const struct made_making *making);
void made_rank_ends_making(int rank);
void made_rank_ends(int rank, void *comm, bool aborts);

/* A collective, send or receive; `result` is NCCL's answer. `inside` runs meanwhile, NULL nothing.
 */
struct made_rank_call {
    int rank;
    void *comm;
    unsigned op;
    uint64_t count;
    int dtype, redop, root;
    unsigned stream;
    bool in_place;
    int result;
    void (*inside)(void *argument);
    void *argument;
};
void made_rank_calls(const struct made_rank_call *call);
void made_rank_opens_group(int rank);
void made_rank_closes_group(int rank, int result);
void made_rank_simulates_group(int rank);

/* CUDA graphs: what was captured on the stream is graph `graph` from the end on, of which an
 * executable one is made. */
void made_rank_begins_capture(int rank, unsigned stream);
unsigned made_rank_ends_capture(int rank, unsigned stream);
void made_rank_adds_child(unsigned graph, int rank,
                          unsigned stream); /* to what is captured on the stream */
void made_rank_launches(unsigned graph, int rank, unsigned stream);
void made_rank_updates(unsigned graph, unsigned from); /* its executable one is as that of `from` */
void made_rank_sets_child(unsigned graph,
                          unsigned from); /* likewise, of one that is a child and no more */
void made_rank_forgets(unsigned graph);

/* The device holds on to what it is given from now on, or ends it; the watchdog makes a round. */
void made_ranks_hold(bool hold);
void made_ranks_watch(void);

/* The rolling hashes are compared, as it is now, or, where `later`, as if it were two seconds
 * later. */
void made_ranks_compare(bool later);
/* What a rank tells of a communicator is copied, and compared with what it was told before: the
 * copy is `place`. */
void made_rank_tells(const void *comm, unsigned place);
bool made_rank_differs(const void *comm, unsigned place);
#define MADE_TOLD 16

/* Alarms since made_ranks_begin, or the last of these questions; the first of them. */
struct made_alarm {
    unsigned count;
    uint64_t group_id, after, seq;
    int ranks[2];
};
struct made_alarm made_ranks_alarm(void);
unsigned made_ranks_objections(void); /* calls whose arguments were found invalid, likewise */

/* What a verdict would say of all records: the first call in which ranks of the group of one of
 * these communicators differ; and of which. */
struct made_mismatch {
    bool found;
    unsigned comm;
    uint64_t seq;
};
struct made_mismatch made_ranks_mismatch(void *const *comms, unsigned count);

struct made_standing {
    uint64_t id, entered, scheduled, rolling_hash;
};
struct made_standing made_rank_standing(const void *comm);

__END_DECLS

#endif
