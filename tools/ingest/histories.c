/*
 * The calls of each group, stored once for all of its ranks.
 *
 * Used by `ncclguard analyze`, by one thread. A history is divided into chunks, so that it may
 * begin anywhere and damaged evidence with implausible numbers needs no more memory than its own
 * size justifies. Signatures are numbers in a table, since programs repeat their calls.
 */
#include "tools/ingest/histories.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/recorder/signature.h"
#include "core/util/macros.h"
#include "core/view/signature.h"
#include "tools/base/grow.h"

#define CHUNK          128u /* collectives */
#define HASH_EVERY     16u  /* collectives; a rank's newest records always include one of these */
#define DEVIATIONS_MAX 512u /* of a member */
#define GAP_MAX        256u /* unknown collectives between two records of a member */
#define JOIN_WITHIN    64u  /* differences this close together may have one cause */
#define DIFFERENCES    4096u
#define SIDES_MAX      32u /* ranks beyond this many distinct signatures count as one more side */

struct ng_history_chunk {
    uint64_t number; /* of the chunk: seq / CHUNK */
    uint32_t group;
    uint32_t signatures[CHUNK]; /* signature numbers; 0 not known so far */
    uint64_t hashes[CHUNK / HASH_EVERY];
};

void ng_histories_init(struct ng_histories *histories)
{
    *histories = (struct ng_histories){0};
}

void ng_histories_fini(struct ng_histories *histories)
{
    for (uint32_t i = 0; i < histories->told_count; i++)
        free(histories->told[i].deviations);
    free(histories->told);
    free(histories->chunks);
    free(histories->signatures);
    free(histories->signature_places);
    free(histories->differences);
    ng_arena_reset(&histories->arena);
    ng_histories_init(histories);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* --- chunks --- */

static struct ng_history_chunk **chunk_place(const struct ng_histories *histories, uint32_t group,
                                             uint64_t number)
{
    size_t mask = histories->chunk_places - 1, at = mix(mix(0, group), number) & mask;

    while (histories->chunks[at] &&
           (histories->chunks[at]->group != group || histories->chunks[at]->number != number))
        at = (at + 1) & mask;
    return &histories->chunks[at];
}

static int make_chunk_places(struct ng_histories *histories)
{
    size_t before = histories->chunk_places, count = before ? before * 2 : 256;
    struct ng_history_chunk **old = histories->chunks;

    if (histories->chunk_count < before / 2)
        return 0;
    histories->chunks = calloc(count, sizeof(*histories->chunks));
    if (!histories->chunks) {
        histories->chunks = old;
        return -ENOMEM;
    }
    histories->chunk_places = count;
    for (size_t i = 0; i < before; i++)
        if (old[i])
            *chunk_place(histories, old[i]->group, old[i]->number) = old[i];
    free(old);
    return 0;
}

/* The chunk with this collective; NULL: none. */
static struct ng_history_chunk *find_chunk(struct ng_histories *histories, uint32_t group,
                                           uint64_t seq)
{
    struct ng_history_chunk *last = histories->last;

    if (last && last->group == group && last->number == seq / CHUNK)
        return last;
    if (!histories->chunk_places)
        return NULL;
    struct ng_history_chunk *found = *chunk_place(histories, group, seq / CHUNK);
    if (found)
        histories->last = found;
    return found;
}

static struct ng_history_chunk *make_chunk(struct ng_histories *histories, uint32_t group,
                                           uint64_t seq)
{
    struct ng_history_chunk *chunk = find_chunk(histories, group, seq);

    if (chunk)
        return chunk;
    if (make_chunk_places(histories) != 0)
        return NULL;
    chunk = ng_arena_alloc(&histories->arena, sizeof(*chunk));
    if (!chunk)
        return NULL;
    chunk->group = group;
    chunk->number = seq / CHUNK;
    *chunk_place(histories, group, chunk->number) = chunk;
    histories->chunk_count++;
    histories->last = chunk;
    return chunk;
}

/* --- signatures --- */

static uint32_t *signature_place(const struct ng_histories *histories,
                                 const struct ng_signature *signature)
{
    uint32_t mask = histories->signature_place_count - 1;
    uint64_t hash = mix(ng_signature_pair(signature->dtype, (uint32_t)signature->redop),
                        ng_signature_pair(signature->root, signature->op));
    uint32_t at = (uint32_t)mix(hash, signature->count) & mask;

    while (
        histories->signature_places[at] &&
        !ng_signature_is_equal(&histories->signatures[histories->signature_places[at]], signature))
        at = (at + 1) & mask;
    return &histories->signature_places[at];
}

static int make_signature_places(struct ng_histories *histories)
{
    uint32_t count = histories->signature_place_count ? histories->signature_place_count * 2 : 256;

    if (histories->signature_count < histories->signature_place_count / 2)
        return 0;
    uint32_t *places = calloc(count, sizeof(*places));
    struct ng_signature *bigger =
        reallocarray(histories->signatures, count, sizeof(*histories->signatures));
    if (bigger)
        histories->signatures = bigger;
    if (!places || !bigger) {
        free(places);
        return -ENOMEM;
    }
    free(histories->signature_places);
    histories->signature_places = places;
    histories->signature_place_count = count;
    for (uint32_t i = 1; i <= histories->signature_count; i++)
        *signature_place(histories, &histories->signatures[i]) = i;
    return 0;
}

/* Its number; 0 if memory is short. */
static uint32_t intern(struct ng_histories *histories, const struct ng_signature *signature)
{
    if (make_signature_places(histories) != 0)
        return 0;
    uint32_t *place = signature_place(histories, signature);
    if (!*place) {
        histories->signatures[++histories->signature_count] = *signature;
        *place = histories->signature_count;
    }
    return *place;
}

/* --- adding members --- */

static int deviate(struct ng_told *told, uint64_t seq, uint32_t signature)
{
    if (told->deviation_count == DEVIATIONS_MAX) {
        told->cut = true;
        return 0;
    }
    if (!NG_GROW(told->deviations, told->deviation_count, told->deviation_room))
        return -ENOMEM;
    told->deviations[told->deviation_count++] = (struct ng_deviation){seq, signature};
    return 0;
}

static struct ng_deviation *find_deviation(const struct ng_told *told, uint64_t seq)
{
    uint32_t low = NG_FIRST_INDEX(told->deviation_count, i, told->deviations[i].seq < seq);

    return low < told->deviation_count && told->deviations[low].seq == seq ? &told->deviations[low]
                                                                           : NULL;
}

/* The next collective of a member: extend its range, and note what is unknown in between. False: it
 * was added already, or arrives too late. */
static int advance(struct ng_told *told, uint64_t seq, bool *ret_take)
{
    *ret_take = true;
    if (!told->to || seq - told->to > GAP_MAX + 1) {
        /* The part before such a gap is not worth more than the part after it. */
        if (!told->to || seq > told->to) {
            told->from = seq;
            told->deviation_count = 0;
        }
    }
    if (told->to && seq <= told->to) {
        *ret_take = false;
        return 0;
    }
    int error = 0;
    for (uint64_t missing = told->to + 1; told->from != seq && missing < seq && !error; missing++)
        error = deviate(told, missing, 0);
    if (!told->cut)
        told->to = seq;
    return error;
}

/* Threads may have written a few records out of order: this one was considered missing. */
static int tell_late(struct ng_histories *histories, struct ng_told *told, uint32_t expected,
                     uint64_t seq, const struct ng_signature *signature)
{
    struct ng_deviation *deviation = find_deviation(told, seq);

    if (!deviation || deviation->signature)
        return 0;
    if (expected && ng_signature_is_equal(&histories->signatures[expected], signature)) {
        size_t index = (size_t)(deviation - told->deviations);
        memmove(deviation, deviation + 1, (told->deviation_count - index - 1) * sizeof(*deviation));
        told->deviation_count--;
        return 0;
    }
    deviation->signature = intern(histories, signature);
    return deviation->signature ? 0 : -ENOMEM;
}

static int tell_call(struct ng_histories *histories, struct ng_told *told, uint32_t group,
                     uint64_t seq, const struct ng_signature *signature, uint64_t hash)
{
    bool take;

    int error = advance(told, seq, &take);
    if (error || told->cut)
        return error;
    struct ng_history_chunk *chunk = make_chunk(histories, group, seq);
    if (!chunk)
        return -ENOMEM;
    uint32_t *expected = &chunk->signatures[seq % CHUNK];
    if (!take)
        return tell_late(histories, told, *expected, seq, signature);
    if (!*expected) {
        *expected = intern(histories, signature);
        if (!*expected)
            return -ENOMEM;
    } else if (!ng_signature_is_equal(&histories->signatures[*expected], signature)) {
        uint32_t number = intern(histories, signature);
        error = number ? deviate(told, seq, number) : -ENOMEM;
        if (told->cut)
            told->to = seq - 1;
    }
    if (hash && seq % HASH_EVERY == 0) {
        uint64_t *common = &chunk->hashes[seq % CHUNK / HASH_EVERY];
        if (!*common)
            *common = hash;
        told->parted |= *common != hash;
    }
    return error;
}

static int add_told(struct ng_histories *histories, uint32_t index)
{
    uint32_t count = histories->told_count;

    if (index < count)
        return 0;
    /* The arrays have power-of-two sizes: the room is the count rounded up. */
    if (!histories->told || (index & (index - 1)) == 0 || index > count) {
        size_t room = 16;
        while (room <= index)
            room *= 2;
        struct ng_told *bigger = reallocarray(histories->told, room, sizeof(*bigger));
        if (!bigger)
            return -ENOMEM;
        histories->told = bigger;
    }
    memset(histories->told + count, 0, (index + 1 - count) * sizeof(*histories->told));
    histories->told_count = index + 1;
    return 0;
}

int ng_histories_tell(struct ng_histories *histories, const struct ng_view *view, uint32_t index,
                      const struct ng_view_member *from)
{
    uint32_t group = view->members[index].group;
    int error = add_told(histories, index);

    for (uint32_t i = 0; !error && i < from->record_count; i++) {
        const struct ng_view_record *record = &from->records[i];
        struct ng_told *told = &histories->told[index];
        if (told->cut)
            break;
        if (record->coll_seq && record->coll_seq < UINT64_MAX / 2 && record->signature.op &&
            ng_view_record_counts(record) && !ng_view_record_is_p2p(record))
            error = tell_call(histories, told, group, record->coll_seq, &record->signature,
                              record->rolling_hash);
    }
    /* Without records, its last call is all that is known. */
    if (!error && !histories->told[index].to && from->entered && from->entered < UINT64_MAX / 2 &&
        from->last.op)
        error = tell_call(histories, &histories->told[index], group, from->entered, &from->last,
                          from->rolling_hash);
    return error;
}

bool ng_histories_at(struct ng_histories *histories, const struct ng_view *view, uint32_t index,
                     uint64_t seq, struct ng_signature *ret_signature)
{
    const struct ng_told *told = &histories->told[index];

    if (!told->to || seq < told->from || seq > told->to)
        return false;
    const struct ng_deviation *deviation = find_deviation(told, seq);
    uint32_t number = 0;
    if (deviation) {
        number = deviation->signature;
    } else {
        const struct ng_history_chunk *chunk =
            find_chunk(histories, view->members[index].group, seq);
        number = chunk ? chunk->signatures[seq % CHUNK] : 0;
    }
    if (!number)
        return false;
    *ret_signature = histories->signatures[number];
    return true;
}

/* --- comparing --- */

bool ng_histories_counts(const struct ng_view_member *member, const struct ng_view_member *other)
{
    bool ready = member->state == NG_GROUP_READY, other_ready = other->state == NG_GROUP_READY;

    if (ready != other_ready)
        return ready;
    if (member->state != other->state)
        return member->state < other->state;
    return member->entered >= other->entered;
}

/* Where the range of a member begins or ends, or where it deviates. */
struct mark {
    uint64_t seq, key;
    uint32_t signature; /* of a deviation */
};

/* Ranks that passed the same. */
struct side {
    uint32_t signature, count;
    uint64_t key; /* sum of the keys of its members: distinguishes sets of ranks */
};

/* The members of one group, while they are compared. */
struct comparison {
    struct ng_histories *histories;
    uint32_t group;
    uint32_t first_difference; /* of this group */
    struct mark *begins, *ends;
    size_t members, begun, ended;
    uint64_t key; /* sum over those whose range covers the current collective */
    struct mark *deviants;
    size_t deviants_count;
};

static int compare_marks(const void *left, const void *right)
{
    const struct mark *a = left, *b = right;
    return NG_ORDER(a->seq, b->seq);
}

static int note_difference(struct comparison *comparison, uint64_t seq, uint64_t side,
                           bool undecided)
{
    struct ng_histories *histories = comparison->histories;
    uint32_t first = comparison->first_difference;

    for (uint32_t i = histories->difference_count; i > first; i--) {
        struct ng_difference *difference = &histories->differences[i - 1];
        if (difference->side != side || seq - difference->last_seq > JOIN_WITHIN)
            continue;
        difference->last_seq = seq;
        difference->count++;
        return 0;
    }
    /* A verdict may report the first one of a group. */
    if (histories->difference_count > first && histories->difference_count >= DIFFERENCES) {
        histories->differences_left_out++;
        return 0;
    }
    if (!NG_GROW(histories->differences, histories->difference_count, histories->difference_room))
        return -ENOMEM;
    histories->differences[histories->difference_count++] =
        (struct ng_difference){.group = comparison->group,
                               .seq = seq,
                               .last_seq = seq,
                               .count = 1,
                               .undecided = undecided,
                               .side = side};
    return 0;
}

/* Put one rank, or all that do not deviate, on its side. */
static void take_side(const struct ng_histories *histories, struct side *sides, uint32_t *count,
                      struct side one)
{
    for (uint32_t i = 0; i < *count; i++) {
        if (sides[i].signature != one.signature &&
            ng_signature_differ(&histories->signatures[sides[i].signature],
                                &histories->signatures[one.signature]) &&
            i + 1 < SIDES_MAX)
            continue;
        sides[i].count += one.count;
        sides[i].key += one.key;
        return;
    }
    sides[(*count)++] = one;
}

/* The ranks that deviate at one collective: `deviants` of them. */
static int compare_at(struct comparison *comparison, const struct mark *deviants, size_t count)
{
    struct ng_histories *histories = comparison->histories;
    struct side sides[SIDES_MAX], rest = {0};
    uint64_t seq = deviants[0].seq;
    uint32_t sides_count = 0, known = 0, largest = 0;

    for (; comparison->begun < comparison->members &&
           comparison->begins[comparison->begun].seq <= seq;
         comparison->begun++)
        comparison->key += comparison->begins[comparison->begun].key;
    for (; comparison->ended < comparison->members && comparison->ends[comparison->ended].seq < seq;
         comparison->ended++)
        comparison->key -= comparison->ends[comparison->ended].key;
    rest.count = (uint32_t)(comparison->begun - comparison->ended - count);
    rest.key = comparison->key;
    for (size_t i = 0; i < count; i++)
        rest.key -= deviants[i].key;
    const struct ng_history_chunk *chunk = find_chunk(histories, comparison->group, seq);
    rest.signature = chunk ? chunk->signatures[seq % CHUNK] : 0;
    if (rest.count && rest.signature)
        take_side(histories, sides, &sides_count, rest);
    for (size_t i = 0; i < count; i++)
        if (deviants[i].signature)
            take_side(histories, sides, &sides_count,
                      (struct side){deviants[i].signature, 1, deviants[i].key});
    if (sides_count < 2)
        return 0;
    for (uint32_t i = 0; i < sides_count; i++) {
        known += sides[i].count;
        if (sides[i].count > sides[largest].count)
            largest = i;
    }
    uint64_t side = 0;
    for (uint32_t i = 0; i < sides_count; i++)
        side += i == largest ? 0 : sides[i].key;
    return note_difference(comparison, seq, side, sides[largest].count * 2 <= known);
}

static int compare_group(struct comparison *comparison)
{
    struct mark *deviants = comparison->deviants;
    size_t count = comparison->deviants_count;
    int error = 0;

    qsort(comparison->begins, comparison->members, sizeof(*comparison->begins), compare_marks);
    qsort(comparison->ends, comparison->members, sizeof(*comparison->ends), compare_marks);
    qsort(deviants, count, sizeof(*deviants), compare_marks);
    comparison->first_difference = comparison->histories->difference_count;
    for (size_t i = 0, end; i < count && !error; i = end) {
        for (end = i + 1; end < count && deviants[end].seq == deviants[i].seq;)
            end++;
        error = compare_at(comparison, &deviants[i], end - i);
    }
    return error;
}

/* For one group: the range of each member, and its deviations. */
static void collect(struct comparison *comparison, const struct ng_told *told, uint32_t index)
{
    uint64_t key = mix(mix(1, index), index);

    comparison->begins[comparison->members] = (struct mark){told->from, key, 0};
    comparison->ends[comparison->members++] = (struct mark){told->to, key, 0};
    NG_EACH (deviation, told->deviations, told->deviation_count)
        if (deviation->seq >= told->from && deviation->seq <= told->to)
            comparison->deviants[comparison->deviants_count++] =
                (struct mark){deviation->seq, key, deviation->signature};
}

/* Members in order of their groups: group g has order[first[g]] up to, not including, order[first[g
 * + 1]]. */
struct grouped {
    uint32_t *first, *order;
};

static int group_members(const struct ng_histories *histories, const struct ng_view *view,
                         const bool *counts, struct grouped *ret_grouped)
{
    uint32_t *first = calloc((size_t)view->group_count + 2, sizeof(*first));
    uint32_t *order = calloc((size_t)view->member_count + 1, sizeof(*order));

    *ret_grouped = (struct grouped){first, order};
    if (!first || !order)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->member_count; i++)
        if (counts[i] && i < histories->told_count && histories->told[i].to)
            first[view->members[i].group + 2]++;
    for (uint32_t g = 0; g < view->group_count; g++)
        first[g + 2] += first[g + 1];
    for (uint32_t i = 0; i < view->member_count; i++)
        if (counts[i] && i < histories->told_count && histories->told[i].to)
            order[first[view->members[i].group + 1]++] = i;
    return 0;
}

int ng_histories_compare(struct ng_histories *histories, const struct ng_view *view,
                         const bool *counts)
{
    size_t most_members = 0, deviations = 0;
    struct grouped grouped;
    struct comparison comparison = {.histories = histories};

    int error = group_members(histories, view, counts, &grouped);
    for (uint32_t i = 0; i < histories->told_count; i++)
        deviations += histories->told[i].deviation_count;
    for (uint32_t g = 0; !error && g < view->group_count; g++)
        if (grouped.first[g + 1] - grouped.first[g] > most_members)
            most_members = grouped.first[g + 1] - grouped.first[g];
    comparison.begins = calloc(most_members + 1, sizeof(*comparison.begins));
    comparison.ends = calloc(most_members + 1, sizeof(*comparison.ends));
    comparison.deviants = calloc(deviations + 1, sizeof(*comparison.deviants));
    if (!comparison.begins || !comparison.ends || !comparison.deviants)
        error = -ENOMEM;
    for (uint32_t g = 0; !error && g < view->group_count; g++) {
        comparison.group = g;
        comparison.members = comparison.deviants_count = comparison.begun = comparison.ended = 0;
        comparison.key = 0;
        for (uint32_t i = grouped.first[g]; i < grouped.first[g + 1]; i++)
            collect(&comparison, &histories->told[grouped.order[i]], grouped.order[i]);
        if (comparison.deviants_count)
            error = compare_group(&comparison);
    }
    free(comparison.begins);
    free(comparison.ends);
    free(comparison.deviants);
    free(grouped.first);
    free(grouped.order);
    return error;
}
