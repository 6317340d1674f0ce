/*
 * Calls that differ, whether or not anything is stuck.
 *
 * Pure.
 */
#include <errno.h>

#include "core/verdict/culprits.h"
#include "core/verdict/divergence.h"
#include "core/verdict/explain.h"
#include "core/verdict/verdict_parts.h"
#include "core/view/signature.h"

/* Names the culprits of a difference of which no records are left, as far as the two ranks know
 * it. */
static int blame_unrecorded(struct ng_verdict_builder *builder, uint32_t group,
                            const struct ng_disagreement *disagreement)
{
    struct ng_verdict *verdict = builder->verdict;
    const struct ng_view_member *members[2];

    verdict->kind = NG_KIND_MISMATCH;
    verdict->confidence = NG_CONFIDENCE_UNKNOWN;
    verdict->seq = disagreement->difference.seq;
    for (int i = 0; i < 2; i++)
        members[i] = ng_view_member(builder->view, group, disagreement->ranks[i]);
    for (int i = 0; i < 2; i++) {
        struct ng_culprit *culprit =
            ng_verdict_builder_add_culprit(builder, members[i], disagreement->ranks[i]);
        ng_explain_disagreement(disagreement, disagreement->ranks[1 - i], culprit);
    }
    return builder->error;
}

int ng_verdict_builder_disagreement(struct ng_verdict_builder *builder,
                                    const struct ng_disagreement *disagreement)
{
    uint32_t group = ng_view_find_group(builder->view, disagreement->group_id);
    uint64_t last = disagreement->difference.seq;
    struct ng_wait wait = {.type = NG_WAIT_COLLECTIVE, .group = group, .seq = last};
    struct ng_mismatch mismatch;
    struct ng_divergence divergence;

    if (group == UINT32_MAX)
        return 0;
    int error = ng_view_index_find(builder->view, &builder->scratch, &builder->processes);
    if (error)
        return error;
    ng_verdict_builder_set_group(builder, group);
    if (ng_mismatch_find(builder->view, group, last, &mismatch))
        error = ng_culprits_mismatch(builder, &wait, &mismatch);
    else if (ng_divergence_find(builder->view, group, last, &builder->scratch, &divergence))
        error = ng_culprits_parted(builder, &wait, &divergence);
    else
        error = blame_unrecorded(builder, group, disagreement);
    ng_verdict_builder_sort_culprits(builder->verdict->culprits, builder->verdict->culprit_count);
    return error ? error : ng_verdict_builder_list_waiting_in(builder, group);
}
