/*
 * Ranks that ended because their own work was stuck.
 *
 * Pure. Linear in members, calls and processes, and in the records of members that waited.
 */
#include "core/verdict/victims.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

#include "core/config/config.h"
#include "core/util/macros.h"
#include "core/util/text.h"

bool ng_victims_is_abort(int exit_status)
{
    return exit_status == NG_EXIT_STATUS_SIGNAL + SIGABRT;
}

bool ng_victims_is_crash(int exit_status)
{
    int number = exit_status - NG_EXIT_STATUS_SIGNAL;

    return number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL;
}

/* Each watchdog measures separately, and publishes an age up to 100 ms before it is read. */
#define SKEW_NS (200 * NG_MS)

/* Nobody gives up by it: the kernel or an operator ended the process, or a fault of its own. */
static bool is_other_signal(int exit_status)
{
    return exit_status > NG_EXIT_STATUS_SIGNAL && exit_status < NG_EXIT_STATUS_SILENT &&
           !ng_victims_is_abort(exit_status);
}

/* Times come from other processes, and from files: whatever they are, these do not overflow. */
static int64_t minus(int64_t left_ns, int64_t right_ns)
{
    int64_t result_ns;

    if (!__builtin_sub_overflow(left_ns, right_ns, &result_ns))
        return result_ns;
    return left_ns < right_ns ? INT64_MIN : INT64_MAX;
}

static int64_t twice(int64_t ns)
{
    int64_t result_ns;

    if (!__builtin_mul_overflow(ns, 2, &result_ns))
        return result_ns;
    return ns < 0 ? INT64_MIN : INT64_MAX;
}

/*
 * When a wait is suspect. All ranks of a job have the same settings; not all of them have told
 * them, and older releases did not record that of cold calls. `cold`: NCCL may make or connect
 * communicators in it.
 */
static int64_t suspect_of(const struct ng_view *view, bool cold)
{
    int64_t suspect_ns = 0, cold_ns = 0;

    for (uint32_t i = 0; i < view->process_count && !(suspect_ns && cold_ns); i++) {
        if (!suspect_ns)
            suspect_ns = view->processes[i].suspect_ns;
        if (!cold_ns)
            cold_ns = view->processes[i].cold_suspect_ns;
    }
    if (!suspect_ns)
        suspect_ns = NG_SUSPECT_DEFAULT_NS;
    if (!cold)
        return suspect_ns;
    if (cold_ns)
        return cold_ns;
    return suspect_ns < NG_COLD_SUSPECT_DEFAULT_NS ? NG_COLD_SUSPECT_DEFAULT_NS : suspect_ns;
}

/*
 * Does the work of this member last long enough to be suspect, and ten times as long as all but one
 * in a hundred before it? As in the watchdog, it lasts from when it is the oldest: a program may
 * run ahead of its device.
 */
static bool is_suspect(const struct ng_view *view, const struct ng_view_member *member,
                       uint64_t seq, int64_t waited_ns, bool cold)
{
    int64_t since_ns = INT64_MAX;
    uint32_t count = 0, longer = 0;

    if (waited_ns < suspect_of(view, cold || seq == 1))
        return false;
    NG_EACH (record, member->records, member->record_count) {
        if (!record->completed_age_ns)
            continue;
        since_ns = NG_MIN(since_ns, record->entered_age_ns);
        if (record->coll_seq != 1) { /* NCCL connected the ranks in it */
            count++;
            longer += minus(since_ns, record->completed_age_ns) > waited_ns / 10;
        }
        since_ns = record->completed_age_ns;
    }
    return longer <= count / 100;
}

/* May NCCL make, connect or end communicators in the call? */
static bool is_cold_call(const struct ng_view *view, const struct ng_view_call *call)
{
    const struct ng_view_process *process = &view->processes[call->process];

    for (uint32_t i = 0; i < process->member_count; i++)
        if (view->members[view->by_process[process->first_member + i]].state == NG_GROUP_CREATING)
            return true;
    return ng_op_is_init(call->op) || call->seq == 1;
}

/* A process that ended after it had been stuck for long is as if the guard had ended it. */
static void revive(struct ng_view_process *process)
{
    if (ng_life_has_ended_by_itself(process->life))
        process->life = NG_LIFE_ENDED_BY_GUARD;
}

int ng_victims_find(const struct ng_view *view, const struct ng_verdict *verdict,
                    struct ng_arena *arena, struct ng_view *ret_past,
                    struct ng_victims *ret_victims)
{
    struct ng_view_process *past = ng_arena_alloc(arena, (view->process_count + 1) * sizeof(*past));
    int *unknown = ng_arena_alloc(arena, (verdict->culprit_count + 1) * sizeof(*unknown));
    uint32_t unknown_count = 0;

    *ret_victims = (struct ng_victims){0};
    if (!past || !unknown)
        return -ENOMEM;
    memcpy(past, view->processes, view->process_count * sizeof(*past));
    *ret_past = *view;
    ret_past->processes = past;
    NG_EACH (member, view->members, view->member_count) {
        int64_t waited_ns = member->pending_age_ns;
        const struct ng_view_record *aborted =
            member->pending_record ? NULL : ng_view_aborted_wait(member, &waited_ns);
        uint64_t seq = aborted ? aborted->coll_seq : member->pending_seq;
        if ((member->pending_record || aborted) &&
            is_suspect(view, member, seq, twice(waited_ns), false))
            revive(&past[member->process]);
    }
    for (uint32_t i = 0; i < view->call_count; i++)
        if (twice(view->calls[i].age_ns) >= suspect_of(view, is_cold_call(view, &view->calls[i])))
            revive(&past[view->calls[i].process]);
    for (uint32_t c = 0; c < verdict->culprit_count; c++)
        for (uint32_t i = 0; i < view->process_count; i++) {
            const struct ng_culprit *culprit = &verdict->culprits[c];
            if (!ng_culprit_is_of(culprit, &past[i]) || past[i].life == view->processes[i].life)
                continue;
            ret_victims->gave_up_ns = NG_MAX(ret_victims->gave_up_ns, culprit->gone_ns);
            ret_victims->killed |= is_other_signal(past[i].exit_status);
            if (!ng_victims_is_abort(past[i].exit_status))
                unknown[unknown_count++] = culprit->rank;
        }
    if (unknown_count)
        ng_text_ranks(unknown, unknown_count, ret_victims->unknown, sizeof(ret_victims->unknown));
    /* A launcher ends the others when the first rank has ended. */
    for (uint32_t i = 0; i < view->process_count; i++)
        if (ng_life_has_ended_by_itself(past[i].life) &&
            past[i].life_age_ns < ret_victims->gave_up_ns)
            past[i].life = NG_LIFE_ENDED_BY_GUARD;
    return 0;
}

/* Is it in a call of its group, as far as its own process says? */
static bool is_in_call(const struct ng_wait_graph *waits, const struct ng_view *view,
                       uint32_t member)
{
    return waits->held[member] || waits->wait_of_member[member] >= 0 ||
           view->members[member].pending_record || view->members[member].state == NG_GROUP_CREATING;
}

/* Was its work, or a call of its process, suspect so long ago? */
static bool has_waited(const struct ng_view *view, const struct ng_view_member *member,
                       int64_t ago_ns, bool cold)
{
    if (member->pending_record)
        return is_suspect(view, member, member->pending_seq, minus(member->pending_age_ns, ago_ns),
                          cold);
    return NG_ANY(one, view->calls, view->call_count,
                  one->process == member->process &&
                      minus(one->age_ns, ago_ns) >= suspect_of(view, cold));
}

bool ng_victims_shared_wait(const struct ng_victims *victims,
                            const struct ng_verdict_builder *builder)
{
    const struct ng_view *view = builder->view;
    bool cold = builder->verdict->all_came || builder->verdict->seq == 1;

    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct ng_view_member *member = &view->members[i];
        /* Of a process that has ended, the clock stopped at its end. */
        int64_t since_ns = minus(
            minus(victims->gave_up_ns, view->processes[member->process].life_age_ns), SKEW_NS);
        if (view->groups[member->group].id == builder->verdict->group_id &&
            is_in_call(&builder->waits, view, i) && !has_waited(view, member, since_ns, cold))
            return false;
    }
    return !victims->killed;
}

int ng_victims_tell(const struct ng_victims *victims, const struct ng_verdict *first,
                    struct ng_verdict *verdict)
{
    verdict->gave_up_ns = victims->gave_up_ns;
    verdict->end_is_certain = first->confidence == NG_CONFIDENCE_CERTAIN || first->end_is_certain;
    if (!victims->unknown[0])
        return 0;
    if (verdict->confidence == NG_CONFIDENCE_CERTAIN)
        verdict->confidence = NG_CONFIDENCE_LIKELY;
    return ng_verdict_add_missing_evidence(verdict, "why %s %s, which had waited for long, ended",
                                           ng_text_rank_noun(victims->unknown), victims->unknown);
}

int ng_victims_doubt_death(struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    struct ng_verdict *verdict = builder->verdict;
    int *late = ng_arena_alloc(&builder->scratch, (wait->absentee_count + 1) * sizeof(*late));
    uint32_t late_count = 0;
    char ranks[64];

    if (!late)
        return -ENOMEM;
    NG_EACH (absentee, wait->absentees, wait->absentee_count) {
        enum ng_cause cause = ng_wait_cause_of_absentee(builder, wait, absentee);
        if (cause == NG_CAUSE_DEAD &&
            (!absentee->came ||
             ng_victims_is_crash(
                 ng_verdict_builder_process_of(builder, absentee->member)->exit_status)))
            return 0;
        if ((cause == NG_CAUSE_MISSING || cause == NG_CAUSE_STOPPED) && !absentee->came &&
            absentee->member)
            late[late_count++] =
                builder->processes.ranks[absentee->member - builder->view->members];
    }
    if (!late_count || wait->type != NG_WAIT_COLLECTIVE)
        return 0;
    verdict->end_is_certain |= verdict->confidence == NG_CONFIDENCE_CERTAIN;
    verdict->confidence = NG_CONFIDENCE_LIKELY;
    ng_text_ranks(late, late_count, ranks, sizeof(ranks));
    return ng_verdict_add_missing_evidence(
        verdict, "whether %s %s, which %s not made the call either, would have come",
        ng_text_rank_noun(ranks), ranks, late_count == 1 ? "has" : "have");
}
