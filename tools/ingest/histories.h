/*
 * What the ranks of each group called, told once for all of them.
 *
 * Ranks of a group call the same, so that one history of it says what all of them did; of a rank
 * only the calls that deviate are kept. So the memory that thousands of ranks need does not grow
 * with their records, and calls that differ are found without comparing every rank with every
 * other.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_HISTORIES_H
#define NCCLGUARD_TOOLS_INGEST_HISTORIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util/arena.h"
#include "core/view/view.h"

/* A call of one rank that is not what the history of its group says. */
struct ng_deviation {
    uint64_t seq;
    uint32_t signature; /* number of it; 0: what it called is not known */
};

/* The part of one member of the view, which has the same index there until the view is sealed. */
struct ng_told {
    uint64_t from, to;               /* collectives of which it tells; 0 none */
    struct ng_deviation *deviations; /* in order of seq */
    uint32_t deviation_count, deviation_room;
    bool cut;    /* it deviates so often that no more was kept; `to` says how far */
    bool parted; /* its rolling hash once was not that of others after the same collective */
};

/*
 * A collective of a group in which ranks differ, as the same ranks do in those after it. A rank
 * that made one call too many or too few differs from then on: that is one difference.
 */
struct ng_difference {
    uint32_t group;    /* index in the view */
    uint64_t seq;      /* the first one */
    uint64_t last_seq; /* the last one that is known */
    uint64_t count;    /* of collectives that differ */
    bool undecided;    /* no side is larger than half */
    uint64_t side;     /* the reader's own: which ranks */
};

struct ng_histories {
    struct ng_arena arena;
    struct ng_history_chunk **chunks; /* by group and number; a power of two of places */
    struct ng_history_chunk *last;    /* that was looked at */
    size_t chunk_count, chunk_places;
    struct ng_signature *signatures; /* by their numbers, from 1 */
    uint32_t *signature_places;
    uint32_t signature_count, signature_room, signature_place_count;
    struct ng_told *told; /* by member */
    uint32_t told_count;
    struct ng_difference *differences; /* in order of group, then seq */
    uint32_t difference_count, difference_room;
    uint64_t differences_left_out; /* there were more than anybody reads */
};

/* Nothing to fail. One thread at a time. */
void ng_histories_init(struct ng_histories *histories);
void ng_histories_fini(struct ng_histories *histories);

/* Take what all records of member `index` of the view say, whose records are `from`'s. 0 or
 * -ENOMEM. */
int ng_histories_tell(struct ng_histories *histories, const struct ng_view *view, uint32_t index,
                      const struct ng_view_member *from);

/* What member `index` passed to collective `seq`; false: that is not known. */
bool ng_histories_at(struct ng_histories *histories, const struct ng_view *view, uint32_t index,
                     uint64_t seq, struct ng_signature *ret_signature);

/* Of the handles that a rank has of one group, the one that counts. */
bool ng_histories_counts(const struct ng_view_member *member, const struct ng_view_member *other);

/*
 * Find all differences, once all members have told: `differences`. Of a view that is not sealed
 * yet. `counts` says of each member whether it counts. 0 or -ENOMEM.
 */
int ng_histories_compare(struct ng_histories *histories, const struct ng_view *view,
                         const bool *counts);

#endif
