/*
 * The arguments of the operation of a verdict, and its deadline.
 *
 * Pure. Only arguments that all known ranks passed alike; differences are reported by the reason.
 */

#include "core/util/macros.h"
#include "core/verdict/verdict_parts.h"
#include "core/view/signature.h"

/* The call of one member in the verdict's operation; false: not known, or it has none. */
static bool call_of(const struct ng_view_member *member, const struct ng_verdict *verdict,
                    struct ng_signature *ret_signature)
{
    if (verdict->seq)
        return ng_signature_at(member, verdict->seq, ret_signature) &&
               ret_signature->op == (uint32_t)verdict->op;
    const struct ng_view_record *record = ng_view_pending_record(member);
    if (!record)
        return false;
    *ret_signature = record->signature;
    return record->signature.op == (uint32_t)verdict->op;
}

/* Does the operation have an element count that means the same on each rank? */
static bool has_count(enum ng_op op)
{
    return ng_op_table[op].op_class == NG_CLASS_P2P || ng_op_table[op].fields & NG_F_COUNT;
}

static void tell_arguments(const struct ng_view_member *members, uint32_t count,
                           struct ng_verdict *verdict)
{
    struct ng_signature first = {0}, other = {0};
    uint32_t i = 0;

    while (i < count && !call_of(&members[i], verdict, &first))
        i++;
    if (i == count || (!has_count(verdict->op) && !(ng_op_table[verdict->op].fields & NG_F_DTYPE)))
        return;
    bool same_count = has_count(verdict->op);
    for (i++; i < count; i++) {
        if (!call_of(&members[i], verdict, &other))
            continue;
        same_count &= other.count == first.count;
        if (other.dtype != first.dtype)
            first.dtype = -1;
    }
    verdict->count_known = same_count;
    verdict->count = same_count ? first.count : 0;
    if (ng_dtype_bytes(first.dtype))
        verdict->dtype = ng_dtype_name(first.dtype);
}

void ng_verdict_builder_tell_arguments(struct ng_verdict_builder *builder)
{
    struct ng_verdict *verdict = builder->verdict;
    uint32_t group =
        verdict->group_id ? ng_view_find_group(builder->view, verdict->group_id) : UINT32_MAX;
    uint32_t count;

    if (group == UINT32_MAX || verdict->op <= NG_OP_NONE || verdict->op >= NG_OP_LIMIT)
        return;
    const struct ng_view_member *members = ng_view_members(builder->view, group, &count);
    if (!verdict->pattern)
        tell_arguments(members, count, verdict);
    /* The shortest deadline passes first. */
    NG_EACH (member, members, count) {
        bool waits = (member->pending_record && member->pending_seq == verdict->seq) ||
                     (verdict->seq && member->entered == verdict->seq &&
                      member->entered > member->scheduled);
        if (waits && member->timeout_ns > 0 &&
            (!verdict->deadline_ns || member->timeout_ns < verdict->deadline_ns))
            verdict->deadline_ns = member->timeout_ns;
    }
}
