/*
 * Every collective to which ranks passed something different.
 *
 * Used by `ncclguard analyze`. The histories show which collectives differ; the verdict engine's
 * own code determines who deviates, and how, so that both never contradict each other.
 */
#include "tools/ingest/mismatches.h"

#include <errno.h>
#include <string.h>

#include "core/verdict/explain.h"

void ng_mismatches_fini(struct ng_mismatches *mismatches)
{
    ng_arena_reset(&mismatches->arena);
    *mismatches = (struct ng_mismatches){0};
}

/*
 * PyTorch gathers and scatters tensors of unequal size under the same name, through other
 * operations. If only counts differ, and all ranks have completed it, that is the case.
 */
static bool is_uneven(const struct ng_view *view, uint32_t group,
                      const struct ng_mismatch *mismatch)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);
    struct ng_signature signature;

    if (mismatch->expected.op != NG_OP_AllGather && mismatch->expected.op != NG_OP_ReduceScatter)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (view->processes[members[i].process].pid || members[i].completed < mismatch->seq)
            return false;
        if (ng_signature_at(&members[i], mismatch->seq, &signature) &&
            (ng_signature_differ(&signature, &mismatch->expected) & ~NG_F_COUNT))
            return false;
    }
    return true;
}

static int list_culprits(const struct ng_view *view, const struct ng_mismatch *mismatch,
                         struct ng_arena *arena, struct ng_mismatch_report *report)
{
    uint32_t count, room = mismatch->undecided ? mismatch->known : mismatch->differing;
    const struct ng_view_member *members = ng_view_members(view, report->group, &count);
    struct ng_signature signature;

    report->culprits = ng_arena_alloc(arena, ((size_t)room + 1) * sizeof(*report->culprits));
    if (!report->culprits)
        return -ENOMEM;
    for (uint32_t i = 0; i < count && report->culprit_count < room; i++) {
        if ((i > 0 && members[i - 1].group_rank == members[i].group_rank) ||
            !ng_mismatch_call_at(view, &members[i], mismatch->seq, &signature) ||
            (!mismatch->undecided && !ng_signature_differ(&signature, &mismatch->expected)))
            continue;
        struct ng_mismatch_culprit *culprit = &report->culprits[report->culprit_count++];
        culprit->rank = ng_view_rank(view, &members[i]);
        culprit->group_rank = members[i].group_rank;
        culprit->process = members[i].process;
        ng_explain_mismatch(mismatch, &signature, culprit->why, sizeof(culprit->why));
    }
    return 0;
}

int ng_mismatches_find(const struct ng_view *view, const struct ng_histories *histories,
                       struct ng_mismatches *ret_mismatches)
{
    struct ng_mismatches found = {.left_out = histories->differences_left_out};
    size_t room = histories->difference_count;
    int error = 0;

    found.reports = ng_arena_alloc(&found.arena, (room + 1) * sizeof(*found.reports));
    if (!found.reports)
        error = -ENOMEM;
    for (size_t i = 0; !error && i < room; i++) {
        const struct ng_difference *difference = &histories->differences[i];
        struct ng_mismatch mismatch;
        if (!ng_mismatch_at(view, difference->group, difference->seq, &mismatch) ||
            is_uneven(view, difference->group, &mismatch))
            continue;
        struct ng_mismatch_report *report = &found.reports[found.count++];
        *report = (struct ng_mismatch_report){
            .group = difference->group,
            .seq = difference->seq,
            .last_seq = difference->last_seq,
            .count = difference->count,
            .op = (enum ng_op)mismatch.expected.op,
            .confidence = ng_mismatch_confidence(&mismatch),
        };
        error = list_culprits(view, &mismatch, &found.arena, report);
    }
    if (error) {
        ng_mismatches_fini(&found);
        return error;
    }
    *ret_mismatches = found;
    return 0;
}

int ng_mismatches_blame(const struct ng_mismatches *mismatches, const struct ng_view *view,
                        struct ng_verdict *verdict)
{
    const struct ng_mismatch_report *report = &mismatches->reports[0];
    const struct ng_view_group *group = &view->groups[report->group];
    struct ng_culprit *culprits =
        ng_arena_alloc(&verdict->arena, ((size_t)report->culprit_count + 1) * sizeof(*culprits));

    if (!culprits)
        return -ENOMEM;
    for (uint32_t i = 0; i < report->culprit_count; i++) {
        const struct ng_mismatch_culprit *from = &report->culprits[i];
        const struct ng_view_process *process = &view->processes[from->process];
        culprits[i] = (struct ng_culprit){.rank = from->rank,
                                          .group_rank = from->group_rank,
                                          .pid = process->pid,
                                          .life = process->life};
        memcpy(culprits[i].host, process->host, sizeof(culprits[i].host));
        memcpy(culprits[i].why, from->why, sizeof(from->why));
    }
    verdict->culprits = culprits;
    verdict->culprit_count = report->culprit_count;
    verdict->kind = NG_KIND_MISMATCH;
    verdict->confidence = report->confidence;
    verdict->group_id = group->id;
    verdict->group_nranks = group->nranks;
    memcpy(verdict->group_name, group->name, sizeof(verdict->group_name));
    verdict->seq = report->seq;
    verdict->op = report->op;
    return 0;
}
