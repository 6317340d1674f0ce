/*
 * Signatures of collectives: whether they are equal, and which ranks deviate.
 *
 * Pure. NCCL itself never compares them: ranks that differ hang or mix data.
 */
#include "core/view/signature.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/nccl/nccl.h"
#include "core/util/macros.h"

/* How many earlier collectives of a group are searched for what usually comes next. */
#define HISTORY 256u

/* Longer sequences of preceding calls prove no more, and more members know nothing new. */
#define CONTEXT 32u
#define ASKED   8u

uint32_t ng_signature_differ(const struct ng_signature *a, const struct ng_signature *b)
{
    if (a->op != b->op)
        return NG_F_OP;
    uint32_t fields = a->op < NG_OP_LIMIT ? ng_op_table[a->op].fields : 0, differ = 0;
    if ((fields & NG_F_COUNT) && a->count != b->count)
        differ |= NG_F_COUNT;
    /* -1: not known, as in evidence without this field. */
    if ((fields & NG_F_DTYPE) && a->dtype != b->dtype && a->dtype >= 0 && b->dtype >= 0)
        differ |= NG_F_DTYPE;
    /* Reductions beyond the built-in ones are handles, which each rank numbers independently. */
    bool custom = a->redop > 4 && b->redop > 4;
    if ((fields & NG_F_REDOP) && a->redop != b->redop && !custom && a->redop >= 0 && b->redop >= 0)
        differ |= NG_F_REDOP;
    if ((fields & NG_F_ROOT) && a->root != b->root && a->root >= 0 && b->root >= 0)
        differ |= NG_F_ROOT;
    return differ;
}

bool ng_signature_at(const struct ng_view_member *member, uint64_t seq,
                     struct ng_signature *ret_signature)
{
    const struct ng_view_record *found = ng_view_collective(member, seq);

    if (found) {
        *ret_signature = found->signature;
        return true;
    }
    if (member->entered == seq && member->last.op) {
        *ret_signature = member->last;
        return true;
    }
    return false;
}

void ng_signature_text(const struct ng_signature *signature, char *ret_text, size_t bytes)
{
    uint32_t fields = signature->op < NG_OP_LIMIT ? ng_op_table[signature->op].fields : 0;
    char count[40] = "", root[24] = "";

    if (signature->redop < 0)
        fields &= ~NG_F_REDOP;
    if (signature->root < 0)
        fields &= ~NG_F_ROOT;

    if (fields & NG_F_COUNT)
        snprintf(count, sizeof(count), "count %" PRIu64 ", ", signature->count);
    if (fields & NG_F_ROOT)
        snprintf(root, sizeof(root), ", root %d", signature->root);
    snprintf(ret_text, bytes, "%s(%s%s%s%s%s)", ng_op_name(signature->op), count,
             ng_dtype_name(signature->dtype), fields & NG_F_REDOP ? ", " : "",
             fields & NG_F_REDOP ? ng_redop_name(signature->redop) : "", root);
}

/* One member per group rank: the newest handle. */
static bool shadowed(const struct ng_view_member *members, uint32_t i)
{
    return i > 0 && members[i - 1].group_rank == members[i].group_rank;
}

/* The number of calls immediately before two collectives of a member that are alike. */
static uint32_t context(const struct ng_view_member *member, uint64_t a, uint64_t b)
{
    struct ng_signature before_a, before_b;
    uint32_t length = 0;

    while (length < CONTEXT && length + 1 < a &&
           ng_signature_at(member, a - 1 - length, &before_a) &&
           ng_signature_at(member, b - 1 - length, &before_b) &&
           !ng_signature_differ(&before_a, &before_b))
        length++;
    return length;
}

/* Which of the two signatures followed the longest earlier occurrence of the calls before `seq`.
 * False: both, or neither. */
static bool usual_after_row(const struct ng_view_member *member, uint64_t seq,
                            const struct ng_signature *a, const struct ng_signature *b, bool *ret_a)
{
    uint32_t longest_a = 0, longest_b = 0;
    struct ng_signature then;

    for (uint64_t at = seq - 1; at > 1 && seq - at < HISTORY && ng_signature_at(member, at, &then);
         at--) {
        uint32_t *longest = !ng_signature_differ(&then, a)   ? &longest_a
                            : !ng_signature_differ(&then, b) ? &longest_b
                                                             : NULL;
        uint32_t length = longest ? context(member, at, seq) : 0;
        if (longest && length > *longest)
            *longest = length;
    }
    *ret_a = longest_a > longest_b;
    return longest_a != longest_b;
}

/*
 * Which of the two signatures usually followed the calls before `seq`. The longest earlier
 * occurrence of these calls decides; otherwise the newest earlier position in any member's history
 * with the same preceding call; otherwise frequency.
 */
static bool usual(const struct ng_view_member *members, uint32_t count, uint64_t seq,
                  const struct ng_signature *a, const struct ng_signature *b, bool *ret_a)
{
    uint32_t seen_a = 0, seen_b = 0, asked = 0;

    for (uint32_t i = 0; i < count && asked < ASKED && seq > 1; i++)
        if (!shadowed(members, i) && ++asked && usual_after_row(&members[i], seq, a, b, ret_a))
            return true;
    for (uint32_t i = 0; i < count; i++) {
        struct ng_signature before, other, then;
        if (shadowed(members, i) || seq < 2)
            continue;
        bool have_before = ng_signature_at(&members[i], seq - 1, &before);
        for (uint64_t at = seq - 1; at > 1 && seq - at < HISTORY; at--) {
            if (!ng_signature_at(&members[i], at, &then))
                break;
            bool is_a = !ng_signature_differ(&then, a), is_b = !ng_signature_differ(&then, b);
            if (have_before && is_a != is_b && ng_signature_at(&members[i], at - 1, &other) &&
                !ng_signature_differ(&other, &before)) {
                *ret_a = is_a;
                return true;
            }
            seen_a += is_a;
            seen_b += is_b;
        }
        if (ng_signature_at(&members[i], 1, &then)) {
            seen_a += !ng_signature_differ(&then, a);
            seen_b += !ng_signature_differ(&then, b);
        }
    }
    if (seen_a == seen_b)
        return false;
    *ret_a = seen_a > seen_b;
    return true;
}

/* NCCL itself finds other errors in the arguments of a collective. */
bool ng_mismatch_call_at(const struct ng_view *view, const struct ng_view_member *member,
                         uint64_t seq, struct ng_signature *ret_signature)
{
    const struct ng_view_record *last =
        member->record_count ? &member->records[member->record_count - 1] : NULL;

    if (ng_signature_at(member, seq, ret_signature))
        return true;
    if (!last || member->entered + 1 != seq || last->coll_seq != seq ||
        last->state != NG_RECORD_FAILED || last->result != NG_NCCL_INVALID_USAGE ||
        ng_view_record_is_p2p(last) || !ng_life_has_ended(view->processes[member->process].life))
        return false;
    *ret_signature = last->signature;
    return true;
}

/* Do members of the group differ at `seq`, and if so, which are in the majority? */
static bool differ_at(const struct ng_view *view, uint32_t group, uint64_t seq,
                      struct ng_mismatch *ret_mismatch)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);
    struct ng_signature candidate = {0}, other = {0}, signature;
    uint32_t votes = 0, known = 0, for_candidate = 0, for_other = 0;

    /* Boyer-Moore majority vote: the candidate is the majority if there is one. */
    for (uint32_t i = 0; i < count; i++) {
        if (shadowed(members, i) || !ng_mismatch_call_at(view, &members[i], seq, &signature))
            continue;
        known++;
        if (votes == 0) {
            candidate = signature;
            votes = 1;
        } else if (!ng_signature_differ(&candidate, &signature)) {
            votes++;
        } else {
            votes--;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (shadowed(members, i) || !ng_mismatch_call_at(view, &members[i], seq, &signature))
            continue;
        if (!ng_signature_differ(&candidate, &signature)) {
            for_candidate++;
        } else if (for_other == 0 || !ng_signature_differ(&other, &signature)) {
            other = signature;
            for_other++;
        }
    }
    if (for_candidate == known)
        return false;
    *ret_mismatch = (struct ng_mismatch){.seq = seq, .known = known, .expected = candidate};
    if (for_candidate * 2 <= known) {
        bool candidate_usual;
        if (for_candidate + for_other == known &&
            usual(members, count, seq, &candidate, &other, &candidate_usual)) {
            ret_mismatch->by_history = true;
            if (!candidate_usual) {
                ret_mismatch->expected = other;
                for_candidate = for_other;
            }
        } else {
            ret_mismatch->undecided = true;
        }
    }
    ret_mismatch->differing = known - for_candidate;
    int64_t nranks = view->groups[group].nranks;
    ret_mismatch->is_open = known < nranks && 2 * (int64_t)for_candidate <= nranks;
    return true;
}

/*
 * The collectives of which at least two members may have evidence. False: there are none.
 *
 * Each member has consecutive collectives, so a range larger than all have recorded together means
 * damaged evidence: only its newest part is examined.
 */
static bool comparable(const struct ng_view_member *members, uint32_t count, uint64_t last,
                       uint64_t *ret_first, uint64_t *ret_last)
{
    uint64_t oldest = UINT64_MAX, second_oldest = UINT64_MAX, newest = 0, second_newest = 0,
             records = 0;

    NG_EACH (member, members, count) {
        uint64_t from = member->last.op ? member->entered : 0, to = from;
        for (uint32_t k = 0; k < member->record_count; k++)
            if (!ng_view_record_is_p2p(&member->records[k]) && member->records[k].coll_seq) {
                uint64_t seq = member->records[k].coll_seq;
                from = !from || seq < from ? seq : from;
                to = seq > to ? seq : to;
            }
        records += member->record_count + 1;
        if (!from)
            continue;
        second_oldest = from < oldest ? oldest : from < second_oldest ? from : second_oldest;
        oldest = from < oldest ? from : oldest;
        second_newest = to > newest ? newest : to > second_newest ? to : second_newest;
        newest = to > newest ? to : newest;
    }
    second_newest = NG_MIN(second_newest, last);
    if (!second_newest || second_oldest > second_newest)
        return false;
    *ret_first = second_newest - second_oldest > records ? second_newest - records : second_oldest;
    *ret_last = second_newest;
    return true;
}

bool ng_mismatch_at(const struct ng_view *view, uint32_t group, uint64_t seq,
                    struct ng_mismatch *ret_mismatch)
{
    return differ_at(view, group, seq, ret_mismatch);
}

bool ng_mismatch_find(const struct ng_view *view, uint32_t group, uint64_t last,
                      struct ng_mismatch *ret_mismatch)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);
    uint64_t first;

    if (count < 2 || !comparable(members, count, last, &first, &last))
        return false;
    for (uint64_t left = last - first + 1, seq = first; left > 0; left--, seq++)
        if (differ_at(view, group, seq, ret_mismatch))
            return true;
    return false;
}
