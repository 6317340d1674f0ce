/*
 * What is not known about a job in which nothing is wrong.
 *
 * Linear in members and groups.
 */
#include "tools/judge/health_doubts.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/util/macros.h"
#include "core/util/text.h"

#define GROUPS_NAMED  4    /* groups with missing ranks that are listed individually */
#define RANKS_BYTES   160  /* of the ranks in it */
#define SILENT_LISTED 1024 /* ranks that ended without a word */

/* Have all ranks of the group been in it, and is it still in use? For a group being created, a
 * rank seen elsewhere has not arrived yet, so only the number of ranks shows whether others are
 * missing. */
static bool should_be_whole(const struct ng_view *view, const struct ng_view_group *group,
                            const struct ng_view_member *members, uint32_t count, bool one_each)
{
    bool creating = false;

    for (uint32_t i = 0; i < count; i++) {
        if (members[i].state == NG_GROUP_READY || members[i].state == NG_GROUP_FINALIZED)
            return true;
        creating |= members[i].state == NG_GROUP_CREATING;
    }
    return creating && one_each && view->process_count < (uint32_t)group->nranks;
}

/* "1-3,7": the ranks without a member; the members are in order of their ranks. How many. */
static uint32_t find_gaps(const struct ng_view_group *group, const struct ng_view_member *members,
                          uint32_t count, struct ng_text *ranks)
{
    uint32_t missing = 0;
    int next = 0;

    for (uint32_t i = 0; i <= count; i++) {
        int rank = i < count ? members[i].group_rank : group->nranks;
        if (rank > next) {
            const char *comma = missing ? "," : "";
            missing += (uint32_t)(rank - next);
            if (ranks->used + 32 > ranks->bytes)
                ng_text_add(ranks, "%s", ranks->text[ranks->used - 1] == '.' ? "" : ",...");
            else if (rank - next == 1)
                ng_text_add(ranks, "%s%d", comma, next);
            else
                ng_text_add(ranks, "%s%d-%d", comma, next, rank - 1);
        }
        next = rank >= next ? rank + 1 : next;
    }
    return missing;
}

static int add_unseen(const struct ng_view *view, struct ng_verdict *verdict)
{
    uint32_t groups = 0;
    bool one_each = true;

    for (uint32_t i = 0; i < view->process_count; i++)
        one_each &= !view->processes[i].drives_several;
    for (uint32_t g = 0; g < view->group_count; g++) {
        const struct ng_view_group *group = &view->groups[g];
        char text[RANKS_BYTES] = "";
        struct ng_text ranks = {text, 0, sizeof(text)};
        uint32_t count;
        const struct ng_view_member *members = ng_view_members(view, g, &count);
        if (group->nranks <= 0 || !count || !should_be_whole(view, group, members, count, one_each))
            continue;
        uint32_t missing = find_gaps(group, members, count, &ranks);
        if (!missing || ++groups > GROUPS_NAMED)
            continue;
        const char *name = group->name[0] ? group->name : "";
        int error = ng_verdict_add_missing_evidence(
            verdict, "no evidence of group rank%s %s of group %s%s%016" PRIx64 "%s",
            missing == 1 ? "" : "s", text, name, *name ? " (id " : "", group->id, *name ? ")" : "");
        if (error)
            return error;
    }
    if (groups > GROUPS_NAMED)
        return ng_verdict_add_missing_evidence(verdict, "no evidence of ranks of %u more group%s",
                                               groups - GROUPS_NAMED,
                                               groups - GROUPS_NAMED == 1 ? "" : "s");
    return 0;
}

static int add_notes(const struct ng_view *view, struct ng_verdict *verdict)
{
    uint32_t count = verdict->missing_evidence_count;

    if (!view->note_count)
        return 0;
    char **lines =
        ng_arena_alloc(&verdict->arena, ((size_t)count + view->note_count) * sizeof(*lines));
    if (!lines)
        return -ENOMEM;
    if (count)
        memcpy(lines, verdict->missing_evidence, count * sizeof(*lines));
    for (uint32_t i = 0; i < view->note_count; i++) {
        /* It is missing only if memory was short. */
        lines[count] = view->notes[i] ? ng_arena_strdup(&verdict->arena, view->notes[i]) : NULL;
        if (!lines[count++])
            return -ENOMEM;
    }
    verdict->missing_evidence = lines;
    verdict->missing_evidence_count = count;
    return 0;
}

static bool leaves_open(const struct ng_view *view, const struct ng_view_process *process)
{
    for (uint32_t i = 0; i < process->member_count; i++)
        if (view->members[view->by_process[process->first_member + i]].state == NG_GROUP_READY)
            return true;
    return false;
}

static int compare_ranks(const void *left, const void *right)
{
    int a = *(const int *)left, b = *(const int *)right;

    return NG_ORDER(a, b);
}

void ng_health_doubts_list_silent(const struct ng_view *view, char *ret_ranks, size_t bytes)
{
    int ranks[SILENT_LISTED];
    uint32_t count = 0;

    ret_ranks[0] = '\0';
    for (uint32_t i = 0; i < view->process_count && count < SILENT_LISTED; i++)
        if (view->processes[i].life == NG_LIFE_DEAD && leaves_open(view, &view->processes[i]))
            ranks[count++] = view->processes[i].rank;
    qsort(ranks, count, sizeof(ranks[0]), compare_ranks);
    if (count)
        ng_text_ranks(ranks, count, ret_ranks, bytes);
}

int ng_health_doubts_add(const struct ng_view *view, const char *silent, struct ng_verdict *verdict)
{
    int error = add_unseen(view, verdict) ?: add_notes(view, verdict);
    if (!error && silent[0])
        error = ng_verdict_add_missing_evidence(
            verdict,
            "how %s %s ended: killed, crashed or _exit, between calls and with "
            "communicators open",
            ng_text_rank_noun(silent), silent);
    if (verdict->missing_evidence_count)
        verdict->confidence = NG_CONFIDENCE_LIKELY;
    return error;
}
