/*
 * A verdict from old evidence.
 *
 * Used by `ncclguard analyze`. What counts as stuck, and who counts as alive, is decided here; the
 * culprit is determined only by the verdict engine.
 */
#include "tools/judge/postmortem.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/recorder/box.h"
#include "core/util/clock.h"
#include "core/util/text.h"

/* Dumps do not contain the job's threshold for stuck; black boxes do. */
#define STALLED_DEFAULT_NS (5 * NG_S)
#define UNUSUAL_NS         NG_S /* beside stuck work, waits of this length are not accidental */
/* The heartbeat of a black box is at least this recent at its process's end. */
#define TOGETHER_NS (2 * NG_S)
/* Clocks of different hosts differ by less than this. */
#define CLOCKS_APART_NS NG_S
/* Work has been pending this long, and a rank that it needs is gone: the incident thread's
 * threshold. */
#define DEATH_STALL_NS (200 * NG_MS)
#define GROUPS_NAMED   4    /* groups with missing ranks that are listed individually */
#define RANKS_BYTES    160  /* of the ranks in it */
#define SILENT_LISTED  1024 /* ranks that ended without a word */

/* For how long work must be pending to be stuck. */
static int64_t threshold_of(const struct ng_postmortem *postmortem)
{
    return postmortem->stalled_ns ? postmortem->stalled_ns : STALLED_DEFAULT_NS;
}

/* As core/verdict/victims.h has it. */
static int64_t long_wait_of(const struct ng_postmortem *postmortem)
{
    return threshold_of(postmortem) / 2;
}

/* How the view was changed to show the job just before its end. */
struct look_back {
    bool ended;                     /* every process had ended, so the view was changed */
    const struct ng_incident *told; /* a guard's verdict on what was still stuck then; NULL none */
    bool first_seen; /* it is known which process ended first, and in a way unlike any other */
    const struct ng_view_process *gave_up; /* that process, if its own work was stuck; NULL none */
    bool death_told;                       /* and that verdict was that ranks had died, */
    bool dead_named;                       /* one of which is a process of the view */
    bool difference_told;                  /* or that their calls differed */
};

/* --- missing evidence --- */

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

    return (a > b) - (a < b);
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
 * A healthy verdict lists the ranks of its groups without evidence, the notes of the view, and the
 * ranks `silent` of list_silent; if there are any, it is at most likely: the rank for which others
 * wait does not show their wait, and one that crashed was not healthy, though nobody waited for it.
 * The engine lists only what is missing for the wait that it reports. Linear in members and groups.
 */
static int doubt_health(const struct ng_view *view, const char *silent, struct ng_verdict *verdict)
{
    int error = add_unseen(view, verdict);

    if (!error)
        error = add_notes(view, verdict);
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

/* --- verdicts of the guards while the job ran --- */

static bool is_stuck_in(const struct ng_view *view, const struct ng_incident *incident)
{
    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct ng_view_member *member = &view->members[i];
        if (member->pending_record && view->groups[member->group].id == incident->group_id &&
            member->pending_seq == incident->seq)
            return true;
    }
    for (uint32_t i = 0; i < view->call_count; i++)
        if (view->calls[i].group_id == incident->group_id && view->calls[i].seq == incident->seq &&
            view->calls[i].op == (enum ng_op)incident->op)
            return true;
    return false;
}

/* The newest verdict on an operation in which the ranks still were according to their last
 * evidence. */
static const struct ng_incident *find_told(const struct ng_view *view,
                                           const struct ng_postmortem *postmortem)
{
    for (size_t i = 0; i < postmortem->told_count; i++)
        if (is_stuck_in(view, &postmortem->told[i]))
            return &postmortem->told[i];
    return NULL;
}

/* Is it the process that a guard has named? By host and process id; if several are named, only
 * their ranks are known. */
static bool is_named(const struct ng_incident *told, const struct ng_view_process *process)
{
    char name[128];

    if (process->pid <= 0)
        return false;
    if (process->host[0])
        snprintf(name, sizeof(name), "(host %s, pid %d)", process->host, process->pid);
    else
        snprintf(name, sizeof(name), "(pid %d)", process->pid);
    return strstr(told->line, name) != NULL;
}

/* --- the state just before the end --- */

/* When the last of the dead processes gave its last sign of life, by the clocks of their hosts; 0
 * not known for all. */
static int64_t last_sign_unix_ns(const struct ng_view *view)
{
    int64_t last_ns = 0;

    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        if (process->life != NG_LIFE_DEAD)
            continue;
        if (process->moment_unix_ns <= 0)
            return 0;
        if (process->moment_unix_ns > last_ns)
            last_ns = process->moment_unix_ns;
    }
    return last_ns;
}

/*
 * How long ago the last sign of life was. Not how long ago it was found dead, which is the same for
 * all if nothing checked before; and not by ages, if there are clocks: each dump has ages relative
 * to its own moment.
 */
static int64_t sign_age_ns(const struct ng_view_process *process, int64_t last_unix_ns)
{
    if (last_unix_ns)
        return last_unix_ns - process->moment_unix_ns;
    return process->alive_age_ns ? process->alive_age_ns : process->life_age_ns;
}

/* By a signal with which launchers end the rest of a job, or with an exit status that reports
 * one. */
static bool is_told_to_end(int exit_status)
{
    int number = exit_status - (exit_status < NG_EXIT_STATUS_SIGNAL ? 128 : NG_EXIT_STATUS_SIGNAL);

    return number == SIGTERM || number == SIGINT || number == SIGHUP;
}

/* May it be the cause of the others' end? */
static bool may_be_first(const struct ng_view_process *process)
{
    bool failed = process->life == NG_LIFE_EXITED
                      ? process->exit_status > 0 && process->exit_status < NG_EXIT_STATUS_SIGNAL
                      : process->exit_status >= NG_EXIT_STATUS_SIGNAL;

    return failed && !is_told_to_end(process->exit_status);
}

/*
 * The rank that crashed or failed before its launcher began to end the others: it ended before all
 * of them, and in another way than any. That is known if one observer saw all ends: by the clock of
 * one host. NULL: not known.
 */
static struct ng_view_process *find_first(const struct ng_view *view)
{
    struct ng_view_process *first = NULL;

    for (uint32_t i = 0; i < view->process_count; i++) {
        struct ng_view_process *process = &view->processes[i];
        if (process->life != NG_LIFE_DEAD && process->life != NG_LIFE_EXITED)
            return NULL;
        if (!first || process->moment_unix_ns < first->moment_unix_ns)
            first = process;
    }
    if (!first || !may_be_first(first) || view->process_count < 2)
        return NULL;
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        if (process != first &&
            (process->moment_unix_ns <= first->moment_unix_ns ||
             strcmp(process->host, first->host) != 0 ||
             process->exit_status == first->exit_status ||
             (process->life == NG_LIFE_DEAD && process->exit_status < NG_EXIT_STATUS_SIGNAL)))
            return NULL;
    }
    return first;
}

/*
 * Did it end because its own work was stuck, as frameworks' watchdogs end their rank? Then what it
 * waited for is the cause, and its end is not.
 */
static bool has_given_up(const struct ng_view *view, const struct ng_view_process *process,
                         int64_t stalled_ns)
{
    for (uint32_t i = 0; i < process->member_count; i++) {
        const struct ng_view_member *member =
            &view->members[view->by_process[process->first_member + i]];
        if (member->pending_record && member->pending_age_ns >= stalled_ns)
            return true;
    }
    for (uint32_t i = 0; i < view->call_count; i++)
        if (&view->processes[view->calls[i].process] == process &&
            view->calls[i].age_ns >= stalled_ns)
            return true;
    return false;
}

static const struct ng_view_member *member_of(const struct ng_view *view, uint32_t group,
                                              const struct ng_view_process *process)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    for (uint32_t i = 0; i < count; i++)
        if (&view->processes[members[i].process] == process)
            return &members[i];
    return NULL;
}

/* The call that a member made and `first` did not reach; else the newest that was not seen to
 * finish. NULL: none. */
static const struct ng_view_record *waits_in(const struct ng_view_member *member,
                                             const struct ng_view_member *first)
{
    if (first && member->entered > first->entered)
        return ng_view_collective(member, first->entered + 1);
    for (uint32_t k = member->record_count; k > 0 && first; k--)
        if (!ng_view_record_is_retired(&member->records[k - 1]))
            return &member->records[k - 1];
    return NULL;
}

/* No process lived long enough to see that its work does not complete, nor that earlier work
 * did. */
static void note_pending(struct ng_view *view, const struct ng_view_process *first)
{
    for (uint32_t i = 0; i < view->member_count; i++) {
        struct ng_view_member *member = &view->members[i];
        if (&view->processes[member->process] == first)
            continue;
        const struct ng_view_record *record =
            waits_in(member, member_of(view, member->group, first));
        if (!record || record->entered_age_ns <= 0)
            continue;
        member->pending_record = record->id;
        member->pending_seq = ng_view_record_is_p2p(record) ? 0 : record->coll_seq;
        member->pending_age_ns = record->entered_age_ns;
    }
}

/* Has every process ended, and none by its guard? */
static bool has_ended(const struct ng_view *view)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].life != NG_LIFE_DEAD && view->processes[i].life != NG_LIFE_EXITED)
            return false;
    return true;
}

/*
 * A program that gives up may abort its communicators before it ends, so that nothing is pending
 * any more: what it was stuck in is as it was before that.
 */
static void undo_aborts(struct ng_view *view)
{
    for (uint32_t i = 0; i < view->member_count; i++) {
        struct ng_view_member *member = &view->members[i];
        int64_t waited_ns;
        const struct ng_view_record *record = ng_view_aborted_wait(member, &waited_ns);
        if (!record)
            continue;
        member->state = NG_GROUP_READY;
        member->records[record - member->records].state = NG_RECORD_STARTED;
        member->pending_record = record->id;
        member->pending_seq = record->coll_seq;
        member->pending_age_ns = waited_ns;
        member->pending_started = record->started_age_ns > 0;
    }
}

/* By a signal, or by itself while its own work was stuck. */
static bool has_ended_in_vain(const struct ng_view *view, const struct ng_view_process *process,
                              int64_t stalled_ns)
{
    return process->life == NG_LIFE_DEAD ||
           (process->life == NG_LIFE_EXITED && has_given_up(view, process, stalled_ns));
}

/* The process of which one observer saw that it ended first, and whether that was because of its
 * own wait. A verdict that a guard reached on what is still stuck says more than another end. */
static const struct ng_view_process *find_cause(struct ng_view *view, int64_t stalled_ns,
                                                struct look_back *back)
{
    const struct ng_view_process *first = find_first(view);

    if (first && has_given_up(view, first, stalled_ns)) {
        back->gave_up = first;
        return first;
    }
    if (back->told)
        return NULL;
    if (first)
        note_pending(view, first);
    return first;
}

/*
 * A job that was killed from outside (a batch system's SIGKILL) has only dead ranks, and dead ranks
 * do not wait. The state just before matters: the ranks of the last wave of ends count as alive. A
 * rank that died earlier stays dead, and so does one that a guard reported dead.
 */
static struct look_back look_before_the_end(struct ng_view *view,
                                            const struct ng_postmortem *postmortem)
{
    struct look_back back = {0};
    int64_t last_unix_ns = last_sign_unix_ns(view), stalled_ns = long_wait_of(postmortem);
    const struct ng_view_process *last = NULL;

    back.ended = has_ended(view);
    if (back.ended)
        undo_aborts(view);
    back.told = find_told(view, postmortem);
    back.death_told = back.told && back.told->kind == NG_KIND_DEAD_RANK;
    back.difference_told = back.told && back.told->kind == NG_KIND_MISMATCH;
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        if (back.ended && has_ended_in_vain(view, process, stalled_ns) &&
            (!last || sign_age_ns(process, last_unix_ns) < sign_age_ns(last, last_unix_ns)))
            last = process;
    }
    back.ended = last != NULL;
    if (!last)
        return back;
    const struct ng_view_process *first = find_cause(view, stalled_ns, &back);
    back.first_seen = first != NULL;
    int64_t last_ns = sign_age_ns(last, last_unix_ns);
    for (uint32_t i = 0; i < view->process_count; i++) {
        struct ng_view_process *process = &view->processes[i];
        int64_t apart_ns = TOGETHER_NS + (strcmp(process->host, last->host) ? CLOCKS_APART_NS : 0);
        bool named = back.death_told && is_named(back.told, process);
        back.dead_named |= named;
        bool victim = first ? back.gave_up || (process != first && process->life == NG_LIFE_DEAD)
                            : has_ended_in_vain(view, process, stalled_ns) &&
                                  sign_age_ns(process, last_unix_ns) - last_ns <= apart_ns;
        if (!victim || named)
            continue;
        if (!first && process->life == NG_LIFE_EXITED)
            back.gave_up = process;
        process->life = NG_LIFE_ENDED_BY_GUARD;
    }
    return back;
}

/* Whether there was an incident, whatever the clock says: a death among live processes, or the
 * guard ended the job. */
static bool ended_badly(const struct ng_view *view)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].life == NG_LIFE_DEAD ||
            view->processes[i].life == NG_LIFE_ENDED_BY_GUARD)
            return true;
    return false;
}

static bool has_nan(const struct ng_view *view)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].nan.age_ns)
            return true;
    return false;
}

static bool can_wait(const struct ng_view *view, uint32_t process, bool victims)
{
    enum ng_life life = view->processes[process].life;

    return !ng_life_is_gone(life) && (victims || life != NG_LIFE_ENDED_BY_GUARD);
}

int64_t ng_postmortem_oldest_wait(const struct ng_view *view, bool victims)
{
    int64_t oldest = 0;

    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct ng_view_member *member = &view->members[i];
        if (member->pending_record && member->pending_age_ns > oldest &&
            can_wait(view, member->process, victims))
            oldest = member->pending_age_ns;
    }
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
    for (uint32_t i = 0; i < view->member_count; i++)
        if (view->members[i].cuda_error)
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

/* Ranks waited, all of them have ended since, and the order of their ends is not known: so neither
 * is what they waited for. */
static int doubt_waiting(const struct look_back *back, struct ng_verdict *verdict)
{
    verdict->kind = NG_KIND_UNKNOWN;
    verdict->confidence = NG_CONFIDENCE_UNKNOWN;
    verdict->culprit_count = verdict->cycle_count = verdict->call_count = 0;
    if (back->told)
        return ng_verdict_add_missing_evidence(verdict, "which rank ended first; a guard said: %s",
                                               back->told->line);
    return ng_verdict_add_missing_evidence(
        verdict, "which rank ended first: their last signs of life are too close to each other");
}

/* Watchdogs of frameworks end their rank by SIGABRT. Any other end may have a cause of its own. */
static int doubt_end(const struct ng_view_process *gave_up, struct ng_verdict *verdict)
{
    int status = gave_up->exit_status;
    bool by_signal = status >= NG_EXIT_STATUS_SIGNAL;

    if (status == NG_EXIT_STATUS_SIGNAL + SIGABRT)
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
static int restore_difference(const struct look_back *back, struct ng_verdict *verdict)
{
    verdict->kind = NG_KIND_MISMATCH;
    verdict->confidence = NG_CONFIDENCE_LIKELY;
    verdict->culprit_count = verdict->cycle_count = verdict->call_count = 0;
    return ng_verdict_add_missing_evidence(
        verdict, "records of the calls that differ; a guard said: %s", back->told->line);
}

/*
 * Nothing was stuck for long. But a rank that waits for one that has ended waits for ever, and all
 * of them may have ended before they had waited for long.
 */
static int judge_ends(const struct ng_view *view, const struct look_back *back,
                      struct ng_verdict *verdict)
{
    struct ng_verdict_query query = {.stalled_ns = DEATH_STALL_NS};
    struct ng_verdict second;
    bool gone = back->ended;

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
    bool doubtful = back->ended && is_about_waiting(&second);
    if (!named && !doubtful) {
        ng_verdict_fini(&second);
        return 0;
    }
    ng_verdict_fini(verdict);
    *verdict = second;
    return named ? 0 : doubt_waiting(back, verdict);
}

/* The verdict at the threshold of the evidence, or at the requested one. */
static int judge(const struct ng_view *view, const struct ng_postmortem *postmortem,
                 const struct look_back *back, struct ng_verdict_query *query,
                 struct ng_verdict *ret_verdict)
{
    bool incident = postmortem->incident || back->told || back->first_seen ||
                    (!back->ended && ended_badly(view));
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
        error = judge_ends(view, back, ret_verdict);
    if (error)
        return error;
    if (back->difference_told &&
        (is_about_waiting(ret_verdict) || ret_verdict->kind == NG_KIND_DEAD_RANK ||
         ret_verdict->kind == NG_KIND_LEFT_EARLY))
        return restore_difference(back, ret_verdict);
    /* The rank that died is one of several, and counted as a live one that never arrived. */
    if (back->ended && back->death_told && !back->dead_named && is_about_waiting(ret_verdict))
        return doubt_waiting(back, ret_verdict);
    return 0;
}

int ng_postmortem_judge(struct ng_view *view, const struct ng_postmortem *postmortem,
                        struct ng_verdict *ret_verdict)
{
    struct ng_verdict_query query = {0};
    char silent[RANKS_BYTES];

    list_silent(view, silent, sizeof(silent));
    struct look_back back = look_before_the_end(view, postmortem);
    int error = judge(view, postmortem, &back, &query, ret_verdict);
    /* No rank need have waited for it: the operations in flight then were ordinary. */
    if (!error && has_nan(view) && ng_postmortem_is_ordinary(view, postmortem, ret_verdict)) {
        ng_verdict_fini(ret_verdict);
        query.nan = true;
        error = ng_verdict_reach(view, &query, ret_verdict);
    }
    if (!error && back.ended && ret_verdict->kind == NG_KIND_HEALTHY) {
        ng_verdict_fini(ret_verdict);
        query.crashes = true;
        error = ng_verdict_reach(view, &query, ret_verdict);
    }
    if (error)
        return error;
    /* Only heartbeats are known: a rank that was frozen, and killed with the others, looks the
     * same. */
    if (back.ended && !back.first_seen && ret_verdict->kind == NG_KIND_DEAD_RANK &&
        ret_verdict->confidence == NG_CONFIDENCE_CERTAIN &&
        !(back.dead_named && strstr(back.told->line, "; certain")))
        ret_verdict->confidence = NG_CONFIDENCE_LIKELY;
    if (back.gave_up && ret_verdict->kind != NG_KIND_HEALTHY)
        return doubt_end(back.gave_up, ret_verdict);
    if (ret_verdict->kind != NG_KIND_HEALTHY)
        return 0;
    error = doubt_health(view, silent, ret_verdict);
    if (!error && back.ended && ng_postmortem_oldest_wait(view, true) > 0) {
        ret_verdict->confidence = NG_CONFIDENCE_LIKELY;
        error = ng_verdict_add_missing_evidence(ret_verdict,
                                                "which rank ended first, while work was in flight");
    }
    return error;
}
