/*
 * The pattern that the sends and receives in which ranks are stuck form together.
 *
 * Pure.
 */
#include "core/verdict/verdict_parts.h"
#include "core/view/p2p_patterns.h"

/* The index of the work that a member is stuck in; NG_P2P_PATTERN_NONE: not known. */
static uint32_t stuck_work(const struct ng_view_member *member,
                           const struct ng_p2p_pattern *pattern)
{
    for (uint32_t i = 0; i < member->record_count; i++) {
        const struct ng_view_record *record = &member->records[i];
        if (member->pending_record
                ? record->id == member->pending_record
                : ng_view_record_is_p2p(record) && !ng_view_record_is_retired(record))
            return pattern->work_of[i];
    }
    return NG_P2P_PATTERN_NONE;
}

/* Adds the operation of one more rank to `*op`, initially NG_OP_NONE. False: no common name
 * remains. */
static bool agree_on(enum ng_op *op, enum ng_op another)
{
    bool exchange = *op == NG_OP_AlltoAll || *op == NG_OP_AllToAllv;

    if (*op == NG_OP_NONE || *op == another) {
        *op = another;
        return another != NG_OP_NONE;
    }
    /* Counts that are equal on one rank need not be equal on all. */
    *op = NG_OP_AllToAllv;
    return exchange && (another == NG_OP_AlltoAll || another == NG_OP_AllToAllv);
}

/* Names what the sends and receives of a wait form, only if that is known of all waiting ranks. */
int ng_verdict_builder_name_composed(struct ng_verdict_builder *builder, uint32_t index)
{
    struct ng_wait *wait = &builder->waits.waits[index];
    struct ng_p2p_pattern_search *search;
    struct ng_p2p_pattern pattern;
    enum ng_op op = NG_OP_NONE;
    uint32_t count;

    if (wait->type != NG_WAIT_P2P || wait->blind)
        return 0;
    const struct ng_view_member *members = ng_view_members(builder->view, wait->group, &count);
    int error = ng_p2p_pattern_begin(builder->view, wait->group, &builder->scratch, &search);
    for (uint32_t i = 0; i < count && !error; i++) {
        if (builder->waits.wait_of_member[&members[i] - builder->view->members] != (int32_t)index)
            continue;
        error = ng_p2p_pattern_next(search, &members[i], &pattern);
        uint32_t work = error ? NG_P2P_PATTERN_NONE : stuck_work(&members[i], &pattern);
        if (work == NG_P2P_PATTERN_NONE || !agree_on(&op, pattern.works[work].op))
            return error;
    }
    wait->pattern = op;
    return error;
}
