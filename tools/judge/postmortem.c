/*
 * A verdict from old evidence.
 *
 * Used by `ncclguard analyze`. What counts as stuck is decided here, and in
 * tools/judge/last_moment.c which ranks count as alive; the culprit is determined only by the
 * verdict engine.
 */
#include "tools/judge/postmortem.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/config/config.h"
#include "core/recorder/exit_status.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/text.h"
#include "core/verdict/victims.h"
#include "tools/judge/last_moment.h"

#define UNUSUAL_NS NG_S /* beside stuck work, waits of this length are not accidental */
/* Work has been pending this long, and a rank that it needs is gone: the incident thread's
 * threshold. */
#define DEATH_STALL_NS (200 * NG_MS)
#define GROUPS_NAMED   4    /* groups with missing ranks that are listed individually */
#define RANKS_BYTES    160  /* of the ranks in one of them, and of the silent ones */
#define SILENT_LISTED  1024 /* ranks that ended without a word */

/* For how long work must be pending to be stuck. */
static int64_t threshold_of(const struct ng_postmortem *postmortem)
{
    /* PyTorch's files do not contain the job's threshold for stuck. */
    return postmortem->stalled_ns ? postmortem->stalled_ns : NG_SUSPECT_DEFAULT_NS;
}

/* Whether there was an incident, whatever the clock says: a death among live processes, or the
 * guard ended the job. */
static bool ended_badly(const struct ng_view *view)
{
    return NG_ANY(process, view->processes, view->process_count,
                  process->life == NG_LIFE_DEAD || process->life == NG_LIFE_ENDED_BY_GUARD);
}

static bool has_nan(const struct ng_view *view)
{
    return NG_ANY(process, view->processes, view->process_count, process->nan.age_ns);
}

/* Did a watchdog stop its rounds before anything that is in flight began? Then a rank that seems to
 * wait was between two calls when the evidence was written. */
static bool was_unwatched_before(const struct ng_view *view, int64_t oldest_ns)
{
    return NG_ANY(process, view->processes, view->process_count,
                  process->watchdog_stuck_ns > oldest_ns);
}

static bool can_wait(const struct ng_view *view, uint32_t process, bool victims)
{
    enum ng_life life = view->processes[process].life;

    return !ng_life_is_gone(life) && (victims || life != NG_LIFE_ENDED_BY_GUARD);
}

int64_t ng_postmortem_oldest_wait(const struct ng_view *view, bool victims)
{
    int64_t oldest = 0;

    NG_EACH (member, view->members, view->member_count)
        if (member->pending_record && member->pending_age_ns > oldest &&
            can_wait(view, member->process, victims))
            oldest = member->pending_age_ns;
    for (uint32_t i = 0; i < view->call_count; i++)
        if (view->calls[i].age_ns > oldest && can_wait(view, view->calls[i].process, victims))
            oldest = view->calls[i].age_ns;
    return oldest;
}

bool ng_postmortem_is_ordinary(const struct ng_view *view, const struct ng_postmortem *postmortem,
                               const struct ng_verdict *verdict)
{
    int64_t oldest_ns = ng_postmortem_oldest_wait(view, true);

    if (verdict->kind == NG_KIND_HEALTHY)
        return true;
    if (NG_ANY(member, view->members, view->member_count, member->cuda_error))
        return false;
    return oldest_ns < UNUSUAL_NS &&
           (!postmortem->stalled_ns || oldest_ns < postmortem->stalled_ns) &&
           (verdict->kind == NG_KIND_GPU_STALL || verdict->kind == NG_KIND_MISSING_RANK ||
            verdict->kind == NG_KIND_UNKNOWN);
}

static bool is_about_end(const struct ng_verdict *verdict)
{
    return verdict->op < NG_OP_LIMIT && ng_op_table[verdict->op].op_class == NG_CLASS_END;
}

/* Does it depend on the threshold for stuck, and on who was alive? */
static bool is_about_waiting(const struct ng_verdict *verdict)
{
    return (verdict->kind == NG_KIND_MISSING_RANK || verdict->kind == NG_KIND_INIT_MISSING_RANK ||
            verdict->kind == NG_KIND_GPU_STALL || verdict->kind == NG_KIND_ORDER_DEADLOCK ||
            verdict->kind == NG_KIND_UNKNOWN) &&
           !is_about_end(verdict);
}

/*
 * Work may take long that all ranks have come to, the first on a communicator above all; and it may
 * have been done between the last look of a watchdog and the end of its process.
 */
static bool is_shared_for_a_short_time(const struct ng_view *view, const struct ng_verdict *verdict)
{
    return (verdict->kind == NG_KIND_GPU_STALL || verdict->all_came) &&
           ng_postmortem_oldest_wait(view, true) < UNUSUAL_NS;
}

/* Ranks waited, all of them have ended since, and the order of their ends is not known: so neither
 * is what they waited for. */
static int doubt_waiting(const struct ng_last_moment *moment, struct ng_verdict *verdict)
{
    verdict->kind = NG_KIND_UNKNOWN;
    verdict->confidence = NG_CONFIDENCE_UNKNOWN;
    verdict->culprit_count = verdict->cycle_count = verdict->call_count = 0;
    if (moment->told)
        return ng_verdict_add_missing_evidence(verdict, "which rank ended first; a guard said: %s",
                                               moment->told->line);
    return ng_verdict_add_missing_evidence(
        verdict, "which rank ended first: their last signs of life are too close to each other");
}

/* Watchdogs of frameworks end their rank by SIGABRT. Any other end may have a cause of its own. */
static int doubt_end(const struct ng_view_process *gave_up, struct ng_verdict *verdict)
{
    int status = gave_up->exit_status;
    bool by_signal = status >= NG_EXIT_STATUS_SIGNAL;

    if (ng_victims_is_abort(status))
        return 0;
    if (verdict->confidence == NG_CONFIDENCE_CERTAIN)
        verdict->confidence = NG_CONFIDENCE_LIKELY;
    return ng_verdict_add_missing_evidence(
        verdict, "why rank %d, which had waited for long, ended (%s %d)", gave_up->rank,
        by_signal ? "signal" : "exit status", by_signal ? status - NG_EXIT_STATUS_SIGNAL : status);
}

/*
 * The guard compared the calls of all ranks, including those of other hosts. A rank that ended in
 * such a call, or that waits in it, does so because of the difference.
 */
static int restore_difference(const struct ng_last_moment *moment, struct ng_verdict *verdict)
{
    verdict->kind = NG_KIND_MISMATCH;
    verdict->confidence = NG_CONFIDENCE_LIKELY;
    verdict->culprit_count = verdict->cycle_count = verdict->call_count = 0;
    return ng_verdict_add_missing_evidence(
        verdict, "records of the calls that differ; a guard said: %s", moment->told->line);
}

/*
 * Nothing was stuck for long. But a rank that waits for one that has ended waits for ever, and all
 * of them may have ended before they had waited for long.
 */
static int judge_ends(const struct ng_view *view, const struct ng_last_moment *moment,
                      struct ng_verdict *verdict)
{
    struct ng_verdict_query query = {.stalled_ns = DEATH_STALL_NS};
    struct ng_verdict second;
    bool gone = moment->ended;

    for (uint32_t i = 0; i < view->process_count && !gone; i++)
        gone = ng_life_is_gone(view->processes[i].life);
    if (!gone)
        return 0;
    int error = ng_verdict_reach(view, &query, &second);
    if (error)
        return error;
    /* A rank that leaves while others still tear down has done its part. */
    bool named = (second.kind == NG_KIND_DEAD_RANK || second.kind == NG_KIND_LEFT_EARLY) &&
                 !is_about_end(&second);
    bool doubtful =
        moment->ended && is_about_waiting(&second) && !is_shared_for_a_short_time(view, &second);
    if (!named && !doubtful) {
        ng_verdict_fini(&second);
        return 0;
    }
    ng_verdict_fini(verdict);
    *verdict = second;
    return named ? 0 : doubt_waiting(moment, verdict);
}

/* The verdict at the threshold of the evidence, or at the requested one. */
static int judge(const struct ng_view *view, const struct ng_postmortem *postmortem,
                 const struct ng_last_moment *moment, struct ng_verdict_query *query,
                 struct ng_verdict *ret_verdict)
{
    bool incident = postmortem->incident || moment->told || moment->first_seen ||
                    (!moment->ended && ended_badly(view));
    int64_t oldest_ns = ng_postmortem_oldest_wait(view, true);

    query->stalled_ns = threshold_of(postmortem);
    /*
     * As in the library: once something is stuck, half of the longest wait is the threshold, since
     * ranks do not arrive at the same moment; but a later operation may be the cause, if its wait
     * is unusual. And a death is detected long before the work that it holds up is old.
     */
    if (oldest_ns >= query->stalled_ns || incident)
        query->stalled_ns = oldest_ns / 2 < UNUSUAL_NS ? oldest_ns / 2 + 1 : UNUSUAL_NS;
    if (postmortem->asked_ns > 0)
        query->stalled_ns = postmortem->asked_ns;
    int error = ng_verdict_reach(view, query, ret_verdict);
    if (error || postmortem->asked_ns > 0)
        return error;
    if (ret_verdict->kind == NG_KIND_HEALTHY)
        error = judge_ends(view, moment, ret_verdict);
    if (error)
        return error;
    if (moment->difference_told &&
        (is_about_waiting(ret_verdict) || ret_verdict->kind == NG_KIND_DEAD_RANK ||
         ret_verdict->kind == NG_KIND_LEFT_EARLY))
        return restore_difference(moment, ret_verdict);
    /* The rank that died is one of several, and counted as a live one that never arrived. */
    if (moment->ended && moment->death_told && !moment->dead_named && is_about_waiting(ret_verdict))
        return doubt_waiting(moment, ret_verdict);
    return 0;
}

/* ---- What is not known about a job in which nothing is wrong ---- */

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

/* "1-3,7": the ranks that ended without a word and left communicators open; "" none. */
static void list_silent(const struct ng_view *view, char *ret_ranks, size_t bytes)
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

/*
 * Adds to a healthy verdict what the engine does not, as nobody waits: the ranks of its groups
 * without evidence, the notes of the view, and the ranks `silent`, as listed before the view was
 * changed; if there are any, it is at most likely: the rank for which others wait does not show
 * their wait, and one that crashed was not healthy, though nobody waited for it. 0 or -ENOMEM.
 */
static int add_doubts(const struct ng_view *view, const char *silent, struct ng_verdict *verdict)
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

/* ---- All of it ---- */

int ng_postmortem_judge(struct ng_view *view, const struct ng_postmortem *postmortem,
                        struct ng_verdict *ret_verdict)
{
    struct ng_verdict_query query = {0};
    char silent[RANKS_BYTES];

    list_silent(view, silent, sizeof(silent));
    /* What is long is as core/verdict/victims.h has it. */
    struct ng_last_moment moment =
        ng_last_moment_restore(view, postmortem, threshold_of(postmortem) / 2);
    int error = judge(view, postmortem, &moment, &query, ret_verdict);
    /* No rank need have waited for it: the operations in flight then were ordinary. */
    if (!error && has_nan(view) && ng_postmortem_is_ordinary(view, postmortem, ret_verdict)) {
        ng_verdict_fini(ret_verdict);
        query.nan = true;
        error = ng_verdict_reach(view, &query, ret_verdict);
    }
    if (!error && ret_verdict->kind == NG_KIND_MISSING_RANK &&
        was_unwatched_before(view, ng_postmortem_oldest_wait(view, true)) &&
        ng_postmortem_is_ordinary(view, postmortem, ret_verdict)) {
        ng_verdict_fini(ret_verdict);
        query.watchdog = true;
        error = ng_verdict_reach(view, &query, ret_verdict);
    }
    if (!error && moment.ended && ret_verdict->kind == NG_KIND_HEALTHY) {
        ng_verdict_fini(ret_verdict);
        query.crashes = true;
        error = ng_verdict_reach(view, &query, ret_verdict);
    }
    if (error)
        return error;
    /* Only heartbeats are known: a rank that was frozen, and killed with the others, looks the
     * same. */
    if (moment.ended && !moment.first_seen && ret_verdict->kind == NG_KIND_DEAD_RANK &&
        ret_verdict->confidence == NG_CONFIDENCE_CERTAIN &&
        !(moment.dead_named && strstr(moment.told->line, "; certain")))
        ret_verdict->confidence = NG_CONFIDENCE_LIKELY;
    if (moment.gave_up && ret_verdict->kind != NG_KIND_HEALTHY)
        return doubt_end(moment.gave_up, ret_verdict);
    if (ret_verdict->kind != NG_KIND_HEALTHY)
        return 0;
    error = add_doubts(view, silent, ret_verdict);
    if (!error && moment.ended && ng_postmortem_oldest_wait(view, true) > 0) {
        ret_verdict->confidence = NG_CONFIDENCE_LIKELY;
        error = ng_verdict_add_missing_evidence(ret_verdict,
                                                "which rank ended first, while work was in flight");
    }
    return error;
}
