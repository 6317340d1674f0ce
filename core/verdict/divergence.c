/*
 * Finds where the calls of a group diverged, by rolling hashes.
 *
 * Pure. Ranks are compared at one collective: the newest of those at which most ranks know the
 * hash. From there, one rank of each side shows how far back the difference goes.
 */
#include "core/verdict/divergence.h"

#include "core/util/macros.h"
#include "core/view/signature.h"

/* The range of collectives of which a member knows the hash; there may be gaps. */
struct span {
    const struct ng_view_member *member;
    uint64_t from, to; /* 0 none */
    uint64_t hash;     /* at the collective at which the ranks are compared */
};

uint64_t ng_rolling_hash_at(const struct ng_view_member *member, uint64_t seq)
{
    const struct ng_view_record *record = ng_view_collective(member, seq);

    if (record && record->rolling_hash)
        return record->rolling_hash;
    return member->entered == seq ? member->rolling_hash : 0;
}

static struct span span_of(const struct ng_view_member *member, uint64_t last)
{
    struct span span = {.member = member};

    for (uint32_t i = 0; i <= member->record_count; i++) {
        bool newest = i == member->record_count;
        const struct ng_view_record *record = newest ? NULL : &member->records[i];
        uint64_t seq = newest ? member->entered : record->coll_seq;
        bool known = newest ? member->rolling_hash != 0
                            : record->rolling_hash && !ng_view_record_is_p2p(record) &&
                                  ng_view_record_counts(record);
        if (!known || !seq || seq > last)
            continue;
        span.from = !span.from || seq < span.from ? seq : span.from;
        span.to = seq > span.to ? seq : span.to;
    }
    return span;
}

/* The newest of the collectives that most spans cover; 0: none is covered by two. */
static uint64_t most_covered(const struct span *spans, uint32_t count, struct ng_arena *arena)
{
    uint64_t *from = ng_arena_alloc(arena, (count + 1) * sizeof(*from));
    uint64_t *to = ng_arena_alloc(arena, (count + 1) * sizeof(*to));
    uint32_t begun = 0, most = 1;
    uint64_t found = 0;

    if (!from || !to)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        from[i] = spans[i].from;
        to[i] = spans[i].to;
    }
    NG_SORT(from, count, *a < *b);
    NG_SORT(to, count, *a < *b);
    /* A range that most spans cover ends where the first of these spans ends. */
    for (uint32_t ended = 0; ended < count; ended++) {
        while (begun < count && from[begun] <= to[ended])
            begun++;
        if (ended > 0 && to[ended] == to[ended - 1])
            continue;
        if (begun - ended > 1 && begun - ended >= most) {
            most = begun - ended;
            found = to[ended];
        }
    }
    return found;
}

/* Boyer-Moore majority vote. False: all are alike. */
static bool take_sides(struct span *spans, uint32_t count, struct ng_divergence *divergence)
{
    uint32_t votes = 0, known = 0, agree = 0;

    for (uint32_t i = 0; i < count; i++) {
        spans[i].hash = ng_rolling_hash_at(spans[i].member, divergence->compared);
        if (!spans[i].hash)
            continue;
        known++;
        if (votes == 0)
            divergence->expected = spans[i].hash;
        votes += votes == 0 || spans[i].hash == divergence->expected ? 1 : -1u;
    }
    for (uint32_t i = 0; i < count; i++)
        agree += spans[i].hash && spans[i].hash == divergence->expected;
    divergence->undecided = agree * 2 <= known;
    return agree < known;
}

/* How far back one rank of each side knows of a difference. False: there is none in the calls that
 * count. */
static bool look_back(const struct span *a, const struct span *b, struct ng_divergence *divergence)
{
    uint64_t oldest = a->from > b->from ? a->from : b->from;
    uint64_t records = (uint64_t)a->member->record_count + b->member->record_count + 1;
    struct ng_signature theirs, others;

    /* Each has consecutive collectives; a range larger than both have recorded means damaged
     * evidence. */
    if (divergence->compared - oldest > records)
        oldest = divergence->compared - records;
    for (uint64_t seq = oldest; seq <= divergence->compared; seq++) {
        uint64_t hash_a = ng_rolling_hash_at(a->member, seq);
        uint64_t hash_b = ng_rolling_hash_at(b->member, seq);
        if (!hash_a || !hash_b)
            continue;
        if (hash_a == hash_b && !divergence->seq) {
            divergence->after = seq;
            continue;
        }
        bool alike = ng_signature_at(a->member, seq, &theirs) &&
                     ng_signature_at(b->member, seq, &others) &&
                     !ng_signature_differ(&theirs, &others);
        /* The difference came before this collective, and is not in a field that may differ. */
        if (!divergence->seq && (!alike || divergence->after + 1 == seq))
            return false;
        if (!divergence->seq)
            divergence->seq = seq;
        divergence->matched += alike;
    }
    return divergence->seq != 0;
}

bool ng_divergence_find(const struct ng_view *view, uint32_t group, uint64_t last,
                        struct ng_arena *arena, struct ng_divergence *ret_parting)
{
    uint32_t count, used = 0;
    const struct ng_view_member *members = ng_view_members(view, group, &count);
    struct span *spans = ng_arena_alloc(arena, (count + 1) * sizeof(*spans));
    const struct span *side = NULL, *other = NULL;
    struct ng_divergence divergence = {0};

    for (uint32_t i = 0; spans && i < count; i++) {
        /* One member per group rank: the newest handle. */
        if (i > 0 && members[i - 1].group_rank == members[i].group_rank)
            continue;
        spans[used] = span_of(&members[i], last);
        used += spans[used].from != 0;
    }
    if (used < 2)
        return false;
    divergence.compared = most_covered(spans, used, arena);
    if (!divergence.compared || !take_sides(spans, used, &divergence))
        return false;
    for (uint32_t i = 0; i < used; i++) {
        const struct span **oldest = spans[i].hash == divergence.expected ? &side : &other;
        if (spans[i].hash && (!*oldest || spans[i].from < (*oldest)->from))
            *oldest = &spans[i];
    }
    if (!side || !other || !look_back(side, other, &divergence))
        return false;
    *ret_parting = divergence;
    return true;
}
