/*
 * The calls of each group, stored once for all of its ranks.
 *
 * Ranks of a group make the same calls, so one history of the group describes all of them; for a
 * rank only the calls that deviate are stored. Memory for thousands of ranks therefore does not
 * grow with their records, and differing calls are found without comparing every rank with every
 * other.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_HISTORIES_H
#define NCCLGUARD_TOOLS_INGEST_HISTORIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util/arena.h"
#include "core/view/view.h"

/* A call of one rank that deviates from the history of its group. */
struct ng_deviation {
    uint64_t seq;
    uint32_t signature; /* number of its signature; 0: what it called is not known */
};

/* The part of one member of the view, which has the same index there until the view is sealed. */
struct ng_told {
    uint64_t from, to;               /* range of collectives that it covers; 0 none */
    struct ng_deviation *deviations; /* in order of seq */
    uint32_t deviation_count, deviation_room;
    bool cut;    /* it deviates so often that no more was stored; `to` says how far */
    bool parted; /* after some collective its rolling hash differed from that of other ranks */
};

/*
 * A collective in which ranks of a group differ, with the same ranks differing in those after it. A
 * rank that made one call too many or too few differs from then on: that is one difference.
 */
struct ng_difference {
    uint32_t group;    /* index in the view */
    uint64_t seq;      /* the first one */
    uint64_t last_seq; /* the last one that is known */
    uint64_t count;    /* number of collectives that differ */
    bool undecided;    /* no side is a majority */
    uint64_t side;     /* private to the reader: which ranks */
};

struct ng_histories {
    struct ng_arena arena;
    struct ng_history_chunk **chunks; /* by group and number; the size is a power of two */
    struct ng_history_chunk *last;    /* looked up last */
    size_t chunk_count, chunk_places;
    struct ng_signature *signatures; /* by their numbers, from 1 */
    uint32_t *signature_places;
    uint32_t signature_count, signature_room, signature_place_count;
    struct ng_told *told; /* by member */
    uint32_t told_count;
    struct ng_difference *differences; /* in order of group, then seq */
    uint32_t difference_count, difference_room;
    uint64_t differences_left_out; /* there were more than a reader needs */
};

/* Cannot fail. One thread at a time. */
void ng_histories_init(struct ng_histories *histories);
void ng_histories_fini(struct ng_histories *histories);

/* Add what the records of `from` say, as those of member `index` of the view. 0 or -ENOMEM. */
int ng_histories_tell(struct ng_histories *histories, const struct ng_view *view, uint32_t index,
                      const struct ng_view_member *from);

/* What member `index` passed to collective `seq`; false: not known. */
bool ng_histories_at(struct ng_histories *histories, const struct ng_view *view, uint32_t index,
                     uint64_t seq, struct ng_signature *ret_signature);

/* Of the handles that a rank has for one group, the one that counts. */
bool ng_histories_counts(const struct ng_view_member *member, const struct ng_view_member *other);

/*
 * Find all differences, once all members were added: `differences`. For a view that is not sealed
 * yet. `counts` says for each member whether it counts. 0 or -ENOMEM.
 */
int ng_histories_compare(struct ng_histories *histories, const struct ng_view *view,
                         const bool *counts);

#endif
