/*
 * RAS's text, as `VERBOSE STATUS` of NCCL 2.24 and newer writes it.
 *
 * Pure. The text is for people: ranks that agree with most are not listed, so a communicator read
 * from it is partial. Every line that says something of a rank becomes a remark; the remarks are
 * sorted by communicator and rank, and those on one rank make up what is known of it. Lines that
 * are not known are skipped.
 */
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>

#include "core/util/macros.h"
#include "store/ras/ras_parts.h"

#define DEAD_MAX 256

enum about { ABOUT_COMMUNICATOR, ABOUT_STATE, ABOUT_COUNT };

struct remark {
    uint64_t hash;
    uint32_t row, number; /* of the table, and in it */
    int rank;             /* -1: of all that are not listed */
    enum about about;
    enum ng_ras_state state;
    bool vague;      /* ABOUT_COMMUNICATOR: the counts of those that are not listed are not known */
    uint64_t counts; /* the rank's; of a communicator the others' */
    int pid;
    char host[NG_RAS_HOST_BYTES];
};

enum section {
    SECTION_OTHER,
    SECTION_TABLE,
    SECTION_DEAD,
    SECTION_INCOMPLETE,
    SECTION_STATE,
    SECTION_COUNT,
};

/* A process that RAS has given up. */
struct dead {
    int pid;
    char host[NG_RAS_HOST_BYTES];
};

struct reading {
    struct ng_arena *arena;
    int *sizes; /* ranks of each communicator of a row of the table */
    uint32_t row_count, row_room;
    struct remark *remarks;
    uint32_t remark_count, remark_room;
    struct dead *dead;
    uint32_t dead_count, dead_room;
    enum section section;
    bool in_communicator;
    struct remark current; /* communicator, and what ranks in its list share */
    /* Of a list of counts: sets of ranks that are not listed, and the last of them. */
    bool open; /* the last set may yet be listed */
    uint32_t unlisted;
    uint64_t last, shared;
};

/* ---- A line ---- */

/* Skip `text` at the start. */
static bool take(struct ng_ras_input *in, const char *text)
{
    size_t length = strlen(text);

    if ((size_t)(in->end - in->at) < length || memcmp(in->at, text, length) != 0)
        return false;
    in->at += length;
    return true;
}

static void skip_spaces(struct ng_ras_input *in)
{
    while (in->at < in->end && *in->at == ' ')
        in->at++;
}

static bool take_number(struct ng_ras_input *in, uint64_t max, uint64_t *ret_value)
{
    const char *first = in->at;
    uint64_t value = 0;

    for (; in->at < in->end && *in->at >= '0' && *in->at <= '9'; in->at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*in->at - '0'), &value))
            return false;
    *ret_value = value;
    return in->at > first && value <= max;
}

static bool take_hash(struct ng_ras_input *in, uint64_t *ret_hash)
{
    unsigned digits = 0;
    uint64_t hash = 0;

    for (; in->at < in->end && digits < 16; in->at++, digits++) {
        const char *digit = memchr("0123456789abcdef", *in->at, 16);
        if (!digit)
            break;
        hash = hash << 4 | (uint64_t)(digit - "0123456789abcdef");
    }
    *ret_hash = hash;
    return digits == 16;
}

/* The rest behind `text`, wherever that is in the line. */
static bool find(struct ng_ras_input *in, const char *text)
{
    size_t length = strlen(text);

    for (struct ng_ras_input rest = *in; rest.at < rest.end; rest.at++)
        if ((size_t)(rest.end - rest.at) >= length && memcmp(rest.at, text, length) == 0) {
            in->at = rest.at + length;
            return true;
        }
    return false;
}

/* "rocess 123 on node 10.0.0.1", perhaps with more behind it. */
static void read_process(struct ng_ras_input in, int *ret_pid, char ret_host[NG_RAS_HOST_BYTES])
{
    uint64_t pid;

    *ret_pid = 0;
    ret_host[0] = '\0';
    if (!find(&in, "rocess ") || !take_number(&in, INT_MAX, &pid) || !take(&in, " on node "))
        return;
    *ret_pid = (int)pid;
    const char *host = in.at;
    while (in.at < in.end && *in.at != ' ')
        in.at++;
    if (in.at - host < NG_RAS_HOST_BYTES)
        ng_ras_copy_host(host, (uint32_t)(in.at - host), ret_host);
}

/* ---- Remarks ---- */

static int add(struct reading *reading, const struct remark *remark)
{
    if (reading->remark_count == NG_RAS_LISTED_MAX)
        return -EBADMSG;
    struct remark *added = NG_ARENA_APPEND(reading->arena, reading->remarks, reading->remark_count,
                                           reading->remark_room);
    if (!added)
        return -ENOMEM;
    *added = *remark;
    return 0;
}

static int add_rank(struct reading *reading, uint64_t rank, struct ng_ras_input rest)
{
    struct remark remark = reading->current;

    if (!reading->in_communicator ||
        (reading->section != SECTION_INCOMPLETE && reading->section != SECTION_STATE &&
         reading->section != SECTION_COUNT))
        return 0;
    remark.rank = (int)rank;
    remark.about = reading->section == SECTION_COUNT ? ABOUT_COUNT : ABOUT_STATE;
    /* Modulo 2^64, as everything that is added to it. */
    if (remark.about == ABOUT_COUNT)
        remark.counts = reading->last - reading->shared;
    read_process(rest, &remark.pid, remark.host);
    return add(reading, &remark);
}

/* The last set of a list of counts is complete. Without a rank of its own it is that of all ranks
 * that are not listed, if it is the only such set. */
static void close_set(struct reading *reading)
{
    if (!reading->open)
        return;
    reading->open = false;
    reading->unlisted++;
    reading->shared = reading->last;
}

/* The list of counts of one operation is complete. */
static int close_counts(struct reading *reading)
{
    struct remark remark = reading->current;

    if (reading->section != SECTION_COUNT)
        return 0;
    close_set(reading);
    remark.rank = -1;
    remark.about = ABOUT_COMMUNICATOR;
    remark.counts = reading->shared;
    remark.vague = reading->unlisted > 1;
    return add(reading, &remark);
}

static enum ng_ras_state state_of(struct ng_ras_input in)
{
    return take(&in, "NOCOMM") || take(&in, "UNKNOWN")   ? NG_RAS_NO_MEMBER
           : take(&in, "FINALIZE") || take(&in, "ABORT") ? NG_RAS_ENDING
                                                         : NG_RAS_MEMBER;
}

static bool take_launched(struct ng_ras_input *in, const char *verb, uint64_t *ret_count)
{
    struct ng_ras_input none = *in;

    if (!take(in, " "))
        return false;
    if (!take(in, verb))
        return false;
    if (take(in, " launched up to operation "))
        return take_number(in, UINT64_MAX, ret_count);
    *ret_count = 0;
    *in = none;
    return take(in, " ") && take(in, verb) && take(in, " not launched any operations");
}

/* "#0-1 (0123456789abcdef) MISMATCH" */
static int begin_communicator(struct reading *reading, struct ng_ras_input in)
{
    uint64_t row, number;
    struct remark remark = {.rank = -1, .about = ABOUT_COMMUNICATOR};

    if (!take_number(&in, INT_MAX, &row) || !take(&in, "-") ||
        !take_number(&in, INT_MAX, &number) || !take(&in, " (") || !take_hash(&in, &remark.hash) ||
        !take(&in, ") ") || row >= reading->row_count)
        return -EBADMSG;
    remark.row = (uint32_t)row;
    remark.number = (uint32_t)number;
    reading->current = remark;
    reading->in_communicator = true;
    reading->section = take(&in, "INCOMPLETE") ? SECTION_INCOMPLETE : SECTION_OTHER;
    if (reading->section == SECTION_INCOMPLETE)
        reading->current.state = NG_RAS_UNREACHABLE;
    return add(reading, &remark);
}

/* A row of the table of communicators. */
static int read_row(struct reading *reading, struct ng_ras_input in)
{
    uint64_t values[6];

    for (unsigned i = 0; i < 5; i++) {
        skip_spaces(&in);
        if (!take_number(&in, INT_MAX, &values[i]))
            return -EBADMSG;
        /* Ranks per node: 7-8 */
        if (i == 3 && take(&in, "-") && !take_number(&in, INT_MAX, &values[5]))
            return -EBADMSG;
    }
    if (values[0] != reading->row_count || values[4] < 1 || values[4] > NG_RAS_RANKS_MAX)
        return -EBADMSG;
    int *added =
        NG_ARENA_APPEND(reading->arena, reading->sizes, reading->row_count, reading->row_room);
    if (!added)
        return -ENOMEM;
    *added = (int)values[4];
    return 0;
}

/* "Rank 3 -- …", "Rank 3 has status …", "Rank 3 has launched up to operation 19 -- …" */
static int read_rank(struct reading *reading, struct ng_ras_input in)
{
    uint64_t rank, count;

    if (!take_number(&in, NG_RAS_RANKS_MAX, &rank))
        return 0;
    struct ng_ras_input rest = in;
    if (take(&rest, " --")) {
        reading->open = false;
    } else if (take(&rest, " has status ")) {
        if (reading->section != SECTION_STATE)
            return 0;
        reading->current.state = state_of(rest);
    } else if (take_launched(&rest, "has", &count)) {
        if (reading->section != SECTION_COUNT)
            return 0;
        close_set(reading);
        reading->last = count;
    } else {
        return 0;
    }
    return add_rank(reading, rank, in);
}

/* "12 ranks have status …", "12 ranks have launched up to operation 19" */
static void read_set(struct reading *reading, struct ng_ras_input in)
{
    uint64_t count;

    if (take(&in, " ranks have status ")) {
        reading->current.state = state_of(in);
    } else if (take(&in, " ranks") && take_launched(&in, "have", &count) &&
               reading->section == SECTION_COUNT) {
        close_set(reading);
        reading->open = true;
        reading->last = count;
    }
}

/* Of 2.24 and 2.25: "The missing ranks: 3,5" */
static int read_missing(struct reading *reading, struct ng_ras_input in)
{
    uint64_t rank;
    int error = 0;

    if (!find(&in, ": "))
        return 0;
    while (!error && take_number(&in, NG_RAS_RANKS_MAX, &rank)) {
        error = add_rank(reading, rank, (struct ng_ras_input){in.at, in.at});
        if (!take(&in, ","))
            break;
    }
    return error;
}

static int read_dead(struct reading *reading, struct ng_ras_input in)
{
    /* The others stay out of reach: every rank is compared with all of these. */
    if (reading->dead_count == DEAD_MAX)
        return 0;
    struct dead *dead =
        NG_ARENA_APPEND(reading->arena, reading->dead, reading->dead_count, reading->dead_room);

    if (!dead)
        return -ENOMEM;
    read_process(in, &dead->pid, dead->host);
    return 0;
}

static int read_line(struct reading *reading, struct ng_ras_input in)
{
    struct ng_ras_input line = in;
    uint64_t number;
    int error;

    if (take(&in, "Group ")) {
        reading->section = SECTION_TABLE;
        return 0;
    }
    if (reading->section == SECTION_TABLE) {
        skip_spaces(&in);
        if (in.at < in.end && *in.at >= '0' && *in.at <= '9')
            return read_row(reading, in);
        if (in.at == in.end)
            reading->section = SECTION_OTHER;
        return 0;
    }
    if (take(&in, "#")) {
        error = close_counts(reading);
        return error ?: begin_communicator(reading, in);
    }
    if (!take(&in, "  ")) {
        error = close_counts(reading);
        /* An empty line is also between the counts of two operations. */
        if (in.at < in.end) {
            reading->in_communicator = false;
            reading->section = take(&in, "DEAD") ? SECTION_DEAD : SECTION_OTHER;
        } else if (reading->section == SECTION_COUNT) {
            reading->section = SECTION_OTHER;
        }
        return error;
    }
    if (reading->section == SECTION_DEAD)
        return take(&in, "Process ") ? read_dead(reading, line) : 0;
    if (!reading->in_communicator)
        return 0;
    if (take(&in, "Communicator ranks have different ")) {
        error = close_counts(reading);
        reading->section = find(&in, "operation counts") ? SECTION_COUNT : SECTION_STATE;
        reading->open = false;
        reading->unlisted = 0;
        reading->shared = 0;
        return error;
    }
    if (take(&in, "Rank "))
        return read_rank(reading, in);
    if (take(&in, "The missing rank"))
        return read_missing(reading, in);
    if (take_number(&in, INT_MAX, &number))
        read_set(reading, in);
    return 0;
}

/* ---- All remarks together ---- */

static int compare(const struct remark *a, const struct remark *b)
{
    return NG_ORDER(a->row, b->row) ?: NG_ORDER(a->number, b->number) ?: NG_ORDER(a->rank, b->rank);
}

static void sift(struct remark *remarks, uint32_t at, uint32_t count)
{
    struct remark moved = remarks[at];

    for (uint32_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && compare(&remarks[child], &remarks[child + 1]) < 0)
            child++;
        if (compare(&moved, &remarks[child]) >= 0)
            break;
        remarks[at] = remarks[child];
    }
    remarks[at] = moved;
}

/* A heap sort: in place, and qsort() may call malloc. */
static void sort(struct remark *remarks, uint32_t count)
{
    for (uint32_t i = count / 2; i > 0; i--)
        sift(remarks, i - 1, count);
    for (uint32_t left = count; left > 1; left--) {
        struct remark last = remarks[left - 1];
        remarks[left - 1] = remarks[0];
        remarks[0] = last;
        sift(remarks, 0, left - 1);
    }
}

static bool is_dead(const struct reading *reading, const struct ng_ras_rank *rank)
{
    return rank->pid && NG_ANY(one, reading->dead, reading->dead_count,
                               one->pid == rank->pid && strcmp(one->host, rank->host) == 0);
}

static void add_to_rank(const struct remark *remark, struct ng_ras_rank *rank)
{
    rank->rank = remark->rank;
    if (remark->about == ABOUT_STATE && remark->state > rank->state)
        rank->state = remark->state;
    if (remark->about == ABOUT_COUNT)
        rank->launched += remark->counts;
    if (remark->pid) {
        rank->pid = remark->pid;
        memcpy(rank->host, remark->host, sizeof(rank->host));
    }
}

/* The remarks from *at on that are of one communicator. */
static int gather(struct reading *reading, uint32_t *at, struct ng_ras_answer *answer)
{
    const struct remark *first = &reading->remarks[*at];
    struct ng_ras_communicator communicator = {
        .hash = first->hash, .size = reading->sizes[first->row], .partial = true, .counts = true};
    uint32_t room = 0;

    for (; *at < reading->remark_count; ++*at) {
        const struct remark *remark = &reading->remarks[*at];
        struct ng_ras_rank *rank =
            communicator.rank_count ? &communicator.ranks[communicator.rank_count - 1] : NULL;
        if (remark->row != first->row || remark->number != first->number)
            break;
        if (remark->hash != first->hash || remark->rank >= communicator.size)
            return -EBADMSG;
        if (remark->rank < 0) {
            communicator.launched += remark->counts;
            communicator.counts &= !remark->vague;
            continue;
        }
        if (!rank || rank->rank != remark->rank)
            rank =
                NG_ARENA_APPEND(&answer->arena, communicator.ranks, communicator.rank_count, room);
        if (!rank)
            return -ENOMEM;
        add_to_rank(remark, rank);
    }
    NG_EACH (rank, communicator.ranks, communicator.rank_count) {
        rank->launched += communicator.launched;
        rank->counts = communicator.counts && rank->state <= NG_RAS_ENDING;
        if (rank->state == NG_RAS_UNREACHABLE && is_dead(reading, rank))
            rank->state = NG_RAS_DEAD;
    }
    struct ng_ras_communicator *added =
        NG_ARENA_APPEND(&answer->arena, answer->communicators, answer->count, answer->room);
    if (!added)
        return -ENOMEM;
    *added = communicator;
    return 0;
}

int ng_ras_text_read(struct ng_ras_input in, struct ng_ras_answer *answer)
{
    struct reading reading = {.arena = &answer->arena};
    bool complete = false;
    int error = 0;

    if (!take(&in, "NCCL version "))
        return -EBADMSG;
    while (in.at < in.end && !error) {
        const char *end = memchr(in.at, '\n', (size_t)(in.end - in.at));
        struct ng_ras_input line = {in.at, end ? end : in.end};
        struct ng_ras_input copy = line;
        /* The last heading; without it the answer was cut off. */
        complete |= take(&copy, "Warnings") && end;
        error = read_line(&reading, line);
        in.at = end ? end + 1 : in.end;
    }
    error = error ?: close_counts(&reading);
    if (!error && !complete)
        error = -EBADMSG;
    if (!error)
        sort(reading.remarks, reading.remark_count);
    for (uint32_t at = 0; at < reading.remark_count && !error;)
        error = gather(&reading, &at, answer);
    return error;
}
