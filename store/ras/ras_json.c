/*
 * RAS's JSON.
 *
 * Pure. No general reader: a comma counts as a space, because NCCL 2.28.7 to 2.28.9 leave one out
 * in each rank that is missing, and members that are not known are skipped.
 */
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "core/util/macros.h"
#include "store/ras/ras_parts.h"

#define DEPTH_MAX 16

/* A string between its quotes, as it is written; none of those that are used has an escape. */
struct word {
    const char *text;
    uint32_t bytes;
};

static char next(struct ng_ras_input *in)
{
    while (in->at < in->end && *in->at && strchr(" \t\r\n,", *in->at))
        in->at++;
    return in->at < in->end ? *in->at : '\0';
}

static bool take(struct ng_ras_input *in, char wanted)
{
    if (next(in) != wanted)
        return false;
    in->at++;
    return true;
}

static bool take_word(struct ng_ras_input *in, struct word *ret_word)
{
    if (!take(in, '"'))
        return false;
    const char *first = in->at;
    while (in->at < in->end && *in->at != '"')
        in->at += *in->at == '\\' && in->at + 1 < in->end ? 2 : 1;
    if (in->at >= in->end || in->at - first > INT_MAX)
        return false;
    *ret_word = (struct word){first, (uint32_t)(in->at - first)};
    in->at++;
    return true;
}

static bool is(const struct word *word, const char *text)
{
    return word->bytes == strlen(text) && memcmp(word->text, text, word->bytes) == 0;
}

/* Digits; false: none, or too many. */
static bool take_digits(struct ng_ras_input *in, unsigned base, uint64_t *ret_value)
{
    uint64_t value = 0;
    const char *first = in->at;

    for (; in->at < in->end; in->at++) {
        char c = *in->at;
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 16;
        if (digit >= base)
            break;
        if (__builtin_mul_overflow(value, base, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *ret_value = value;
    return in->at > first;
}

static bool take_int(struct ng_ras_input *in, int *ret_value)
{
    uint64_t value;
    bool negative = take(in, '-');

    if ((!negative && next(in) == '\0') || !take_digits(in, 10, &value) || value > INT_MAX)
        return false;
    *ret_value = negative ? -(int)value : (int)value;
    return true;
}

static bool take_bool(struct ng_ras_input *in, bool *ret_value)
{
    const char *text = next(in) == 't' ? "true" : "false";
    size_t length = strlen(text);

    if ((size_t)(in->end - in->at) < length || memcmp(in->at, text, length) != 0)
        return false;
    in->at += length;
    *ret_value = *text == 't';
    return true;
}

/* Any value. */
static bool skip(struct ng_ras_input *in)
{
    unsigned depth = 0;
    struct word word;

    do {
        char c = next(in);
        if (c == '{' || c == '[') {
            depth++;
            in->at++;
        } else if (c == '}' || c == ']') {
            if (depth == 0)
                return false;
            depth--;
            in->at++;
        } else if (c == '"') {
            if (!take_word(in, &word))
                return false;
            if (depth && next(in) == ':')
                in->at++;
        } else if (c && strchr("-0123456789tfn", c)) {
            while (in->at < in->end && *in->at && strchr("-+.0123456789eEtrufalsn", *in->at))
                in->at++;
        } else {
            return false;
        }
    } while (depth && depth <= DEPTH_MAX);
    return depth == 0;
}

/* The next key of an object that was entered. False: it has ended, or *error is set. */
static bool next_key(struct ng_ras_input *in, struct word *ret_key, int *error)
{
    if (*error || take(in, '}'))
        return false;
    if (take_word(in, ret_key) && take(in, ':'))
        return true;
    *error = -EBADMSG;
    return false;
}

/* The state as RAS has it, in the booleans of one object. */
struct status {
    bool finalizes, destroys, aborts, unresponsive, dead;
};

static int read_status(struct ng_ras_input *in, struct status *status)
{
    static const struct {
        const char *key;
        size_t at;
    } members[] = {{"finalize_called", offsetof(struct status, finalizes)},
                   {"destroy_flag", offsetof(struct status, destroys)},
                   {"abort_flag", offsetof(struct status, aborts)},
                   {"unresponsive", offsetof(struct status, unresponsive)},
                   {"considered_dead", offsetof(struct status, dead)}};
    int error = take(in, '{') ? 0 : -EBADMSG;
    struct word key;

    while (next_key(in, &key, &error)) {
        bool known = false;
        for (size_t i = 0; i < NG_COUNT(members); i++)
            if (is(&key, members[i].key)) {
                known = true;
                if (!take_bool(in, (bool *)((char *)status + members[i].at)))
                    error = -EBADMSG;
            }
        if (!known && !skip(in))
            error = -EBADMSG;
    }
    return error;
}

static int read_counts(struct ng_ras_input *in, struct ng_ras_rank *rank)
{
    int error = take(in, '{') ? 0 : -EBADMSG;
    struct word key;
    uint64_t count;

    while (next_key(in, &key, &error)) {
        next(in);
        if (!take_digits(in, 10, &count) ||
            __builtin_add_overflow(rank->launched, count, &rank->launched))
            error = -EBADMSG;
        rank->counts = true;
    }
    return error;
}

static int read_rank(struct ng_ras_input *in, bool missing, struct ng_ras_rank *ret_rank)
{
    struct ng_ras_rank rank = {.rank = -1};
    int error = take(in, '{') ? 0 : -EBADMSG;
    struct status status = {0};
    struct word key, host;

    while (next_key(in, &key, &error)) {
        bool good;
        if (is(&key, "rank")) {
            good = take_int(in, &rank.rank);
        } else if (is(&key, "pid")) {
            good = take_int(in, &rank.pid);
        } else if (is(&key, "host")) {
            good = take_word(in, &host);
            if (good)
                ng_ras_copy_host(host.text, host.bytes, rank.host);
        } else if (is(&key, "status")) {
            error = read_status(in, &status);
            good = !error;
        } else if (is(&key, "collective_counts")) {
            error = read_counts(in, &rank);
            good = !error;
        } else {
            good = skip(in);
        }
        if (!good)
            error = -EBADMSG;
    }
    if (rank.pid < 0)
        rank.pid = 0;
    if (missing)
        rank.state = status.dead           ? NG_RAS_DEAD
                     : status.unresponsive ? NG_RAS_UNREACHABLE
                                           : NG_RAS_NO_MEMBER;
    else if (status.finalizes || status.destroys || status.aborts)
        rank.state = NG_RAS_ENDING;
    rank.counts &= !missing;
    *ret_rank = rank;
    return error;
}

/* The ranks of one array, ascending. */
struct list {
    struct ng_ras_rank *ranks;
    uint32_t count, room;
};

/* `*left` is how many more ranks the answer may have. */
static int read_list(struct ng_ras_input *in, bool missing, struct ng_arena *arena, uint32_t *left,
                     struct list *list)
{
    if (!take(in, '['))
        return -EBADMSG;
    while (!take(in, ']')) {
        struct ng_ras_rank rank;
        int error = read_rank(in, missing, &rank);
        if (error)
            return error;
        int before = list->count ? list->ranks[list->count - 1].rank : -1;
        if (rank.rank <= before || (*left)-- == 0)
            return -EBADMSG;
        struct ng_ras_rank *added = NG_ARENA_APPEND(arena, list->ranks, list->count, list->room);
        if (!added)
            return -ENOMEM;
        *added = rank;
    }
    return 0;
}

/* One list of both, in which no rank is twice. */
static int unite(const struct list *present, const struct list *missing, struct ng_arena *arena,
                 struct ng_ras_communicator *communicator)
{
    uint32_t count = present->count + missing->count, p = 0, m = 0;

    communicator->ranks = ng_arena_alloc(arena, (count + 1) * sizeof(*communicator->ranks));
    if (!communicator->ranks)
        return -ENOMEM;
    while (p + m < count) {
        bool first = m == missing->count ||
                     (p < present->count && present->ranks[p].rank <= missing->ranks[m].rank);
        const struct ng_ras_rank *rank = first ? &present->ranks[p++] : &missing->ranks[m++];
        if (rank->rank >= communicator->size ||
            (p + m > 1 && rank->rank == communicator->ranks[p + m - 2].rank))
            return -EBADMSG;
        communicator->ranks[p + m - 1] = *rank;
    }
    communicator->rank_count = count;
    return 0;
}

static int read_communicator(struct ng_ras_input *in, uint32_t *left, struct ng_ras_answer *answer)
{
    struct ng_ras_communicator communicator = {0};
    int error = take(in, '{') ? 0 : -EBADMSG;
    struct list present = {0}, missing = {0};
    struct word key, hash;

    while (next_key(in, &key, &error)) {
        if (is(&key, "size")) {
            if (!take_int(in, &communicator.size))
                error = -EBADMSG;
        } else if (is(&key, "hash")) {
            struct ng_ras_input digits;
            if (!take_word(in, &hash) || hash.bytes < 3 || memcmp(hash.text, "0x", 2) != 0) {
                error = -EBADMSG;
                continue;
            }
            digits = (struct ng_ras_input){hash.text + 2, hash.text + hash.bytes};
            if (!take_digits(&digits, 16, &communicator.hash) || digits.at != digits.end)
                error = -EBADMSG;
        } else if (is(&key, "ranks")) {
            error = read_list(in, false, &answer->arena, left, &present);
        } else if (is(&key, "missing_ranks")) {
            error = read_list(in, true, &answer->arena, left, &missing);
        } else if (!skip(in)) {
            error = -EBADMSG;
        }
    }
    if (!error && (communicator.size < 1 || communicator.size > NG_RAS_RANKS_MAX))
        error = -EBADMSG;
    error = error ?: unite(&present, &missing, &answer->arena, &communicator);
    if (error)
        return error;
    struct ng_ras_communicator *added =
        NG_ARENA_APPEND(&answer->arena, answer->communicators, answer->count, answer->room);
    if (!added)
        return -ENOMEM;
    *added = communicator;
    return 0;
}

/* How many processes did not answer RAS itself in time. */
static int read_timeouts(struct ng_ras_input *in, uint64_t *ret_timeouts)
{
    int error = take(in, '{') ? 0 : -EBADMSG;
    struct word key;

    while (next_key(in, &key, &error)) {
        bool wanted = is(&key, "timeouts_count");
        next(in);
        if (wanted ? !take_digits(in, 10, ret_timeouts) : !skip(in))
            error = -EBADMSG;
    }
    return error;
}

/* Ranks may have been left out for want of time: nothing is known of them but that they exist. */
static void doubt_unreachable(struct ng_ras_answer *answer)
{
    for (uint32_t c = 0; c < answer->count; c++)
        NG_EACH (rank, answer->communicators[c].ranks, answer->communicators[c].rank_count)
            if (rank->state == NG_RAS_UNREACHABLE)
                rank->state = NG_RAS_MEMBER;
}

int ng_ras_json_read(struct ng_ras_input in, struct ng_ras_answer *answer)
{
    int error = take(&in, '{') ? 0 : -EBADMSG;
    uint32_t left = NG_RAS_LISTED_MAX;
    uint64_t timeouts = 0;
    struct word key;

    while (next_key(&in, &key, &error)) {
        if (is(&key, "ras")) {
            error = read_timeouts(&in, &timeouts);
            continue;
        }
        if (!is(&key, "communicators")) {
            if (!skip(&in))
                error = -EBADMSG;
            continue;
        }
        if (!take(&in, '['))
            error = -EBADMSG;
        while (!error && !take(&in, ']'))
            error = read_communicator(&in, &left, answer);
    }
    if (!error && timeouts)
        doubt_unreachable(answer);
    return error;
}
