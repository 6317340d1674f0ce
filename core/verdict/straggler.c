/*
 * Stragglers, from durations that all ranks of a group measured for the same collectives.
 *
 * Pure. Cost for a group: samples times the logarithm of the samples, for each rank.
 */
#include "core/verdict/straggler.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/view/signature.h"

#define CHANCE_MAX 0.001 /* probability of naming a rank if all are alike */

/* Larger values come from damaged evidence; sums of smaller ones cannot overflow. */
#define DURATION_MAX_NS (INT64_C(1000000) * NG_S)

/* The ranks of a group: one member each, the newest handle. */
struct ranks {
    const struct ng_view_member **members;
    uint32_t count;
};

/* One collective that all ranks measured. */
struct round {
    uint64_t seq;
    uint32_t last;   /* the rank that came last: index in `ranks` */
    int64_t wait_ns; /* how long the others waited for it, and how long they were in the collective:
                        medians */
    int64_t duration_ns;
};

/* Lists all ranks of the group. False: not every rank has measured something. */
static bool list_ranks(const struct ng_view *view, uint32_t group, struct ng_arena *arena,
                       struct ranks *ret_ranks)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);
    struct ranks ranks = {0};

    if (view->groups[group].nranks < 2 ||
        view->groups[group].member_count != (uint32_t)view->groups[group].nranks)
        return false;
    ranks.members = ng_arena_alloc(arena, (count + 1) * sizeof(*ranks.members));
    for (uint32_t i = 0; ranks.members && i < count; i++) {
        if (i > 0 && members[i - 1].group_rank == members[i].group_rank)
            continue;
        if (!members[i].sample_count)
            return false;
        ranks.members[ranks.count++] = &members[i];
    }
    *ret_ranks = ranks;
    return ranks.members != NULL;
}

/* Sorts `count` numbers and returns their median; of the middle two, the lower. */
static int64_t median_of(int64_t *values, uint32_t count)
{
    NG_SORT(values, count, *a < *b);
    return values[(count - 1) / 2];
}

/* The duration that this rank measured for the same operation; 0: none. *at: index of the last
 * match. */
static int64_t duration_of(const struct ng_view_member *member, const struct ng_view_sample *same,
                           uint32_t *at)
{
    /* They are mostly in order: continue from there, and wrap around once. */
    for (uint32_t tries = 0; tries < member->sample_count; tries++) {
        uint32_t i = (*at + tries) % member->sample_count;
        if (member->samples[i].seq == same->seq && member->samples[i].calls == same->calls) {
            *at = i;
            return member->samples[i].duration_ns;
        }
    }
    return 0;
}

/* Fills in the rank that came last. False: two ranks did, or the duration is too short for its
 * clock. */
static bool judge_round(const int64_t *durations, int64_t *others, uint32_t count,
                        struct round *round)
{
    uint32_t last = 0, used = 0;

    for (uint32_t i = 1; i < count; i++)
        if (durations[i] < durations[last])
            last = i;
    for (uint32_t i = 0; i < count; i++)
        if (i != last)
            others[used++] = durations[i];
    round->last = last;
    round->duration_ns = median_of(others, used);
    round->wait_ns = round->duration_ns - durations[last];
    return others[0] > durations[last];
}

/* The collectives that all ranks measured. */
static uint32_t find_rounds(const struct ranks *ranks, struct ng_arena *arena,
                            struct round *ret_rounds)
{
    int64_t *durations = ng_arena_alloc(arena, ranks->count * sizeof(*durations));
    int64_t *others = ng_arena_alloc(arena, ranks->count * sizeof(*others));
    uint32_t *at = ng_arena_alloc(arena, ranks->count * sizeof(*at));
    const struct ng_view_member *first = ranks->members[0];
    uint32_t count = 0;

    for (uint32_t s = 0; durations && others && at && s < first->sample_count; s++) {
        const struct ng_view_sample *sample = &first->samples[s];
        bool all = true;
        for (uint32_t i = 0; i < ranks->count && all; i++) {
            durations[i] = duration_of(ranks->members[i], sample, &at[i]);
            all = durations[i] > 0 && durations[i] <= DURATION_MAX_NS;
        }
        struct round round = {.seq = sample->seq};
        if (all && judge_round(durations, others, ranks->count, &round))
            ret_rounds[count++] = round;
    }
    return count;
}

/* An upper bound for the probability that any of `ranks` identical ranks comes last in `last` or
 * more of `samples`. */
static double chance_of(uint32_t ranks, uint32_t last, uint32_t samples)
{
    double one = 1.0 / ranks, other = 1.0 - one, sum = 0;

    for (uint32_t k = last; k <= samples; k++) {
        double term = ranks;
        for (uint32_t i = 0; i < k; i++)
            term *= one * (samples - i) / (k - i);
        for (uint32_t i = k; i < samples; i++)
            term *= other;
        sum += term;
    }
    return sum;
}

static uint32_t most_often_last(const struct round *rounds, uint32_t count, uint32_t *counts,
                                uint32_t ranks)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < count; i++)
        counts[rounds[i].last]++;
    for (uint32_t i = 1; i < ranks; i++)
        if (counts[i] > counts[most])
            most = i;
    return most;
}

static bool is_enough(const struct ng_straggler *straggler, uint32_t ranks)
{
    return straggler->samples >= NG_STRAGGLER_SAMPLES &&
           straggler->last * 2 >= straggler->samples &&
           straggler->wait_ns >= NG_STRAGGLER_WAIT_NS &&
           straggler->wait_ns >= straggler->duration_ns / 10 &&
           chance_of(ranks, straggler->last, straggler->samples) < CHANCE_MAX;
}

static void sum_up(const struct round *rounds, uint32_t count, uint32_t who, int64_t *values,
                   struct ng_straggler *straggler)
{
    uint32_t used = 0;

    straggler->first_seq = rounds[0].seq;
    for (uint32_t i = 0; i < count; i++) {
        straggler->first_seq =
            rounds[i].seq < straggler->first_seq ? rounds[i].seq : straggler->first_seq;
        straggler->last_seq =
            rounds[i].seq > straggler->last_seq ? rounds[i].seq : straggler->last_seq;
        if (rounds[i].last != who)
            continue;
        straggler->total_wait_ns += rounds[i].wait_ns;
        values[used++] = rounds[i].wait_ns;
    }
    straggler->wait_ns = median_of(values, used);
    used = 0;
    for (uint32_t i = 0; i < count; i++)
        if (rounds[i].last == who)
            values[used++] = rounds[i].duration_ns;
    straggler->duration_ns = median_of(values, used);
}

bool ng_straggler_find(const struct ng_view *view, uint32_t group, struct ng_arena *arena,
                       struct ng_straggler *ret_straggler)
{
    struct ranks ranks;
    struct round rounds[NG_VIEW_SAMPLES];
    int64_t values[NG_VIEW_SAMPLES];

    if (!list_ranks(view, group, arena, &ranks))
        return false;
    uint32_t *counts = ng_arena_alloc(arena, ranks.count * sizeof(*counts));
    uint32_t count = counts ? find_rounds(&ranks, arena, rounds) : 0;
    if (count < NG_STRAGGLER_SAMPLES)
        return false;
    uint32_t who = most_often_last(rounds, count, counts, ranks.count);
    struct ng_straggler straggler = {
        .group = group, .member = ranks.members[who], .last = counts[who], .samples = count};
    sum_up(rounds, count, who, values, &straggler);
    bool sure = count >= NG_STRAGGLER_SAMPLES_SURE && straggler.last * 10 >= count * 9;
    straggler.confidence = sure ? NG_CONFIDENCE_CERTAIN : NG_CONFIDENCE_LIKELY;
    if (!is_enough(&straggler, ranks.count))
        return false;
    *ret_straggler = straggler;
    return true;
}

/* "340 us", "12.3 ms", "2.1 s". No %f: the locale would choose the point. */
static const char *duration_text(int64_t ns, char *ret_text, size_t bytes)
{
    int64_t unit = ns < NG_S ? NG_MS : NG_S;

    if (ns < NG_MS)
        snprintf(ret_text, bytes, "%" PRId64 " us", ns / 1000);
    else
        snprintf(ret_text, bytes, "%" PRId64 ".%" PRId64 " %s", ns / unit, ns % unit * 10 / unit,
                 ns < NG_S ? "ms" : "s");
    return ret_text;
}

void ng_straggler_why(const struct ng_straggler *straggler, char *ret_why, size_t bytes)
{
    char wait[32], total[32], duration[32];

    snprintf(ret_why, bytes,
             "came last in %" PRIu32 " of %" PRIu32 " measured collectives (#%" PRIu64
             " to #%" PRIu64
             "): the others waited %s for it (median, of %s in the collective), %s altogether",
             straggler->last, straggler->samples, straggler->first_seq, straggler->last_seq,
             duration_text(straggler->wait_ns, wait, sizeof(wait)),
             duration_text(straggler->duration_ns, duration, sizeof(duration)),
             duration_text(straggler->total_wait_ns, total, sizeof(total)));
}

/* Makes this straggler the culprit of the verdict; all other ranks of its group wait for it. */
static int blame(const struct ng_view *view, const struct ng_straggler *straggler,
                 struct ng_verdict *verdict)
{
    const struct ng_view_member *member = straggler->member;
    const struct ng_view_process *process = &view->processes[member->process];
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, straggler->group, &count);
    struct ng_signature signature;
    struct ng_culprit *culprit = ng_arena_alloc(&verdict->arena, sizeof(*culprit));
    int *waiting = ng_arena_alloc(&verdict->arena, (count + 1) * sizeof(*waiting));

    if (!culprit || !waiting)
        return -ENOMEM;
    culprit->rank = ng_view_rank(view, member);
    culprit->group_rank = member->group_rank;
    culprit->pid = process->pid;
    culprit->life = process->life;
    snprintf(culprit->host, sizeof(culprit->host), "%s", process->host);
    ng_straggler_why(straggler, culprit->why, sizeof(culprit->why));
    verdict->kind = NG_KIND_STRAGGLER;
    verdict->confidence = straggler->confidence;
    verdict->group_id = view->groups[straggler->group].id;
    verdict->group_nranks = view->groups[straggler->group].nranks;
    memcpy(verdict->group_name, view->groups[straggler->group].name, sizeof(verdict->group_name));
    verdict->seq = straggler->last_seq;
    verdict->op = NG_OP_NONE;
    if (ng_signature_at(member, straggler->last_seq, &signature))
        verdict->op = (enum ng_op)signature.op;
    verdict->stalled_ns = straggler->wait_ns;
    verdict->culprits = culprit;
    verdict->culprit_count = 1;
    verdict->waiting = waiting;
    for (uint32_t i = 0; i < count; i++)
        if (members[i].group_rank != member->group_rank &&
            (i == 0 || members[i - 1].group_rank != members[i].group_rank))
            waiting[verdict->waiting_count++] = ng_view_rank(view, &members[i]);
    NG_SORT(waiting, verdict->waiting_count, *a < *b);
    return 0;
}

void ng_stragglers_find(const struct ng_view *view, struct ng_arena *arena,
                        struct ng_stragglers *ret_stragglers)
{
    struct ng_stragglers found = {0};
    struct ng_arena scratch = {0};
    uint32_t room = 0;

    for (uint32_t group = 0; group < view->group_count; group++) {
        struct ng_straggler straggler;
        bool any = ng_straggler_find(view, group, &scratch, &straggler);
        ng_arena_recycle(&scratch);
        if (!any)
            continue;
        struct ng_straggler *added = NG_ARENA_APPEND(arena, found.stragglers, found.count, room);
        if (!added)
            break;
        *added = straggler;
    }
    ng_arena_reset(&scratch);
    *ret_stragglers = found;
}

int ng_straggler_blame(const struct ng_view *view, struct ng_verdict *verdict)
{
    struct ng_arena arena = {0};
    struct ng_stragglers found;
    const struct ng_straggler *worst = NULL;

    if (verdict->kind != NG_KIND_HEALTHY)
        return 0;
    ng_stragglers_find(view, &arena, &found);
    for (uint32_t i = 0; i < found.count; i++)
        if (!worst || found.stragglers[i].total_wait_ns > worst->total_wait_ns)
            worst = &found.stragglers[i];
    int error = worst ? blame(view, worst, verdict) : 0;
    ng_arena_reset(&arena);
    return error;
}
