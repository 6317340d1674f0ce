/*
 * Matches what NCCL's RAS says with the groups of a view.
 *
 * Pure.
 */
#include "core/view/ras.h"

#include <errno.h>
#include <string.h>

#include "core/util/macros.h"
#include "core/util/text.h"
#include "core/view/view.h"

/* Elements of an answer that are looked through for ranks that wait elsewhere. Beyond it, nobody is
 * called late by its counts. */
#define LOOKS_MAX   (1u << 22)
#define RANKS_BYTES 128

static const char *const state_names[NG_RAS_STATES] = {
    [NG_RAS_MEMBER] = "member",       [NG_RAS_ENDING] = "ending",
    [NG_RAS_NO_MEMBER] = "no_member", [NG_RAS_UNREACHABLE] = "unreachable",
    [NG_RAS_DEAD] = "dead",
};

const char *ng_ras_state_name(enum ng_ras_state state)
{
    return state < NG_RAS_STATES ? state_names[state] : "";
}

enum ng_ras_state ng_ras_state_of(const char *name)
{
    unsigned state = 0;

    while (state < NG_RAS_STATES && (!name || strcmp(name, state_names[state]) != 0))
        state++;
    return (enum ng_ras_state)state;
}

void ng_ras_copy_host(const char *text, uint32_t bytes, char ret_host[NG_RAS_HOST_BYTES])
{
    ret_host[0] = '\0';
    for (uint32_t i = 0; i < bytes; i++)
        if (bytes >= NG_RAS_HOST_BYTES || !text[i] || !strchr("0123456789abcdefABCDEF.:%", text[i]))
            return;
    memcpy(ret_host, text, bytes);
    ret_host[bytes] = '\0';
}

/* ---- Words in a view ---- */

static int compare(const struct ng_view_ras *word, uint64_t group_id, int rank)
{
    return NG_ORDER(word->group_id, group_id) ?: NG_ORDER(word->rank.rank, rank);
}

/* The first word that does not come before this group and rank. */
static uint32_t lower_bound(const struct ng_view *view, uint64_t group_id, int rank)
{
    return NG_FIRST_INDEX(view->ras_count, i, compare(&view->ras[i], group_id, rank) < 0);
}

bool ng_view_add_ras(struct ng_view *view, const struct ng_view_ras *word)
{
    uint32_t at = lower_bound(view, word->group_id, word->rank.rank);

    if (at < view->ras_count && compare(&view->ras[at], word->group_id, word->rank.rank) == 0) {
        if (word->age_ns <= view->ras[at].age_ns)
            view->ras[at] = *word;
        return true;
    }
    if (!NG_ARENA_APPEND(&view->arena, view->ras, view->ras_count, view->ras_room))
        return false;
    memmove(&view->ras[at + 1], &view->ras[at], (view->ras_count - 1 - at) * sizeof(*view->ras));
    view->ras[at] = *word;
    return true;
}

const struct ng_view_ras *ng_view_find_ras(const struct ng_view *view, uint64_t group_id, int rank)
{
    uint32_t at = lower_bound(view, group_id, rank);

    return at < view->ras_count && compare(&view->ras[at], group_id, rank) == 0 ? &view->ras[at]
                                                                                : NULL;
}

/* ---- Whose communicator it is ---- */

static const struct ng_ras_rank *rank_of(const struct ng_ras_communicator *communicator, int rank)
{
    uint32_t at = NG_FIRST_INDEX(communicator->rank_count, i, communicator->ranks[i].rank < rank);

    return at < communicator->rank_count && communicator->ranks[at].rank == rank
               ? &communicator->ranks[at]
               : NULL;
}

/* Could it be this group, by its size and the processes of its ranks? A text has too few of them,
 * so it needs the hash. */
static bool fits(const struct ng_ras_communicator *communicator, const struct ng_view *view,
                 uint32_t group, uint64_t hash)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);
    bool same_hash = hash && hash == communicator->hash;

    if (communicator->size != view->groups[group].nranks || (communicator->partial && !same_hash))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const struct ng_view_process *process = &view->processes[members[i].process];
        const struct ng_ras_rank *rank = rank_of(communicator, members[i].group_rank);
        if (rank && rank->pid && rank->pid != process->pid)
            return false;
        if (process->self && !communicator->partial && (!rank || rank->pid != process->pid))
            return false;
    }
    return true;
}

/*
 * By the counts of other communicators: does this rank's process wait there, for a rank that is
 * behind or out of reach? Then it is not known whom its own communicator waits for in the end; nor
 * where its process is not known, or may be among those that a text does not list. `*looks` is what
 * may still be looked at.
 */
static bool waits_elsewhere(const struct ng_ras_answer *answer,
                            const struct ng_ras_communicator *not_this,
                            const struct ng_ras_rank *late, uint32_t *looks)
{
    NG_EACH (other, answer->communicators, answer->count) {
        const struct ng_ras_rank *there = NULL;
        uint64_t least = UINT64_MAX;
        bool cut = false;
        if (other == not_this)
            continue;
        if (!late->pid || other->rank_count > *looks)
            return true;
        *looks -= other->rank_count;
        NG_EACH (rank, other->ranks, other->rank_count) {
            if (rank->pid && rank->pid == late->pid && strcmp(rank->host, late->host) == 0 &&
                rank->state == NG_RAS_MEMBER)
                there = rank;
            cut |= ng_ras_is_out_of_reach(rank);
            if (rank->counts && rank->launched < least)
                least = rank->launched;
        }
        if (there && (cut || (there->counts && there->launched > least)))
            return true;
        if (!there && other->partial && (cut || !other->counts || least < other->launched))
            return true;
    }
    return false;
}

/* ---- Words ---- */

struct matching {
    const struct ng_ras_answer *answer;
    struct ng_view *view;
    int64_t age_ns;
    uint32_t looks;
};

/* What the communicator says of this rank. False: nothing. */
static bool describe(const struct ng_ras_communicator *communicator, int rank,
                     struct ng_ras_rank *ret_rank)
{
    const struct ng_ras_rank *listed = rank_of(communicator, rank);

    if (!listed && !(communicator->partial && communicator->counts))
        return false;
    *ret_rank = listed ? *listed
                       : (struct ng_ras_rank){.rank = rank,
                                              .state = NG_RAS_MEMBER,
                                              .counts = true,
                                              .launched = communicator->launched};
    return true;
}

/* Our own rank in the group at hand. */
struct asking {
    struct ng_ras_rank rank;
    bool waits;     /* in a collective */
    uint64_t ahead; /* collectives that it called behind the one in which it waits */
};

/* A rank without evidence. `alone`: this communicator alone fits the group. */
static int add_word(struct matching *matching, uint32_t group,
                    const struct ng_ras_communicator *chosen, const struct asking *asking,
                    const bool *fitting, bool alone, int rank)
{
    const struct ng_ras_answer *answer = matching->answer;
    struct ng_view_ras word = {.group_id = matching->view->groups[group].id,
                               .age_ns = matching->age_ns};
    struct ng_ras_rank same;

    if (!describe(chosen, rank, &word.rank))
        return 0;
    for (uint32_t c = 0; c < answer->count && !alone; c++)
        if (fitting[c] &&
            (!describe(&answer->communicators[c], rank, &same) || same.state != word.rank.state ||
             same.pid != word.rank.pid || strcmp(same.host, word.rank.host) != 0))
            return 0;
    word.rank.counts &= alone && asking->rank.counts;
    if (word.rank.counts) {
        word.others = asking->rank.launched;
        /* Of those that it called later, RAS may count fewer. */
        word.behind = word.rank.state == NG_RAS_MEMBER && asking->waits &&
                      word.others > word.rank.launched &&
                      word.others - word.rank.launched > asking->ahead;
    }
    word.waits = word.behind && waits_elsewhere(answer, chosen, &word.rank, &matching->looks);
    return ng_view_add_ras(matching->view, &word) ? 0 : -ENOMEM;
}

/* RAS says that ranks are out of reach, whose own guards report to us. */
static int note_contradictions(struct ng_view *view, uint32_t group,
                               const struct ng_ras_communicator *communicator)
{
    uint32_t count, found = 0;
    const struct ng_view_member *members = ng_view_members(view, group, &count);
    int *ranks = ng_arena_alloc(&view->arena, (count + 1) * sizeof(*ranks));
    char text[RANKS_BYTES];

    if (!ranks)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        const struct ng_view_process *process = &view->processes[members[i].process];
        const struct ng_ras_rank *rank = rank_of(communicator, members[i].group_rank);
        if (rank && ng_ras_is_out_of_reach(rank) && process->life == NG_LIFE_RUNNING &&
            !process->quiet_ns)
            ranks[found++] = rank->rank;
    }
    if (!found)
        return 0;
    ng_text_ranks(ranks, found, text, sizeof(text));
    ng_view_note(view, "NCCL's RAS says that group %s %s %s out of its reach, but %s",
                 found == 1 ? "rank" : "ranks", text, found == 1 ? "is" : "are",
                 found == 1 ? "the guard of that rank reports" : "their guards report");
    return 0;
}

static int match_group(struct matching *matching, uint32_t group, uint64_t hash, bool *fitting)
{
    const struct ng_ras_answer *answer = matching->answer;
    const struct ng_ras_communicator *chosen = NULL;
    const struct ng_view_member *self = NULL;
    struct ng_view *view = matching->view;
    uint32_t count, fit = 0;
    int error = 0;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    for (uint32_t i = 0; i < count; i++)
        if (view->processes[members[i].process].self && members[i].pending_record &&
            (!self || !self->pending_seq))
            self = &members[i];
    if (!self)
        return 0;
    struct asking asking = {
        .waits = self->pending_seq != 0,
        .ahead = self->entered > self->pending_seq ? self->entered - self->pending_seq : 0};
    for (uint32_t c = 0; c < answer->count; c++) {
        const struct ng_ras_communicator *communicator = &answer->communicators[c];
        fitting[c] = fits(communicator, view, group, hash);
        if (fitting[c] && (fit++ == 0 || (hash && communicator->hash == hash)))
            chosen = communicator;
    }
    if (chosen && hash && chosen->hash == hash)
        fit = 1;
    if (!chosen || !describe(chosen, self->group_rank, &asking.rank))
        return 0;
    error = note_contradictions(view, group, chosen);
    for (int rank = 0; rank < view->groups[group].nranks && !error; rank++)
        if (!ng_view_member_among(members, count, rank))
            error = add_word(matching, group, chosen, &asking, fitting, fit == 1, rank);
    return error;
}

/* Is none of the hashes of our communicators in the answer, though some are known? */
static bool is_of_others(const struct ng_ras_answer *answer, const struct ng_ras_known *known,
                         uint32_t count)
{
    bool any = false;

    for (uint32_t i = 0; i < count; i++) {
        if (!known[i].hash)
            continue;
        any = true;
        NG_EACH (communicator, answer->communicators, answer->count)
            if (communicator->hash == known[i].hash)
                return false;
    }
    return any;
}

int ng_ras_match(const struct ng_ras_answer *answer, const struct ng_ras_known *known,
                 uint32_t count, int64_t age_ns, struct ng_view *view)
{
    struct matching matching = {
        .answer = answer, .view = view, .age_ns = age_ns, .looks = LOOKS_MAX};
    bool *fitting = ng_arena_alloc(&view->arena, answer->count + 1);
    int error = fitting ? 0 : -ENOMEM;

    if (is_of_others(answer, known, count))
        return 0;
    for (uint32_t i = 0; i < count && !error; i++) {
        uint32_t group = ng_view_find_group(view, known[i].group_id);
        if (group != UINT32_MAX)
            error = match_group(&matching, group, known[i].hash, fitting);
    }
    return error;
}
