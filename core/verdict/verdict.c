/*
 * The verdict engine.
 *
 * Pure. The explanation is long because everything else serves this part.
 *
 * A stall is modelled as *waits* (core/verdict/wait_graph.h): operations in which ranks are stuck,
 * each with its absentees, the ranks that it needs and that have not joined it. Most waits are
 * victims: their absentees are themselves stuck in another wait. The reason of a stall is a wait
 * that has an independent cause, at which every chain of victims ends: an absentee that is dead,
 * lost or frozen, that has left, or that is alive and in no wait at all; ranks that passed
 * different arguments; or no absentee and a device that does not finish. If no wait has such a
 * cause, the chains may form a cycle: an order deadlock (core/verdict/cycle.h), which is certain
 * even if other facts are not known. But a cycle between a split of a communicator and another call
 * on it is a wrong call by the smaller side.
 *
 * If several waits have causes, a cause that cannot be a consequence of another has precedence. A
 * death explains a missing call, and a mismatch explains a rank that ran out of step and left, but
 * not the reverse. Among equals, the oldest has precedence. However, a process that died after an
 * awaited rank had ended normally is a victim: a launcher ends the other processes when one leaves
 * with an error. And a rank that ended after it had itself been stuck for long is a victim of what
 * it waited for (core/verdict/victims.h).
 *
 * The verdict states what is not known: a rank without evidence is listed as missing evidence,
 * never as a culprit, except in the creation of a communicator, where not having joined is itself
 * the evidence. A host that sends no messages may be down or cut off: its ranks count as dead, but
 * never with certainty. Calls that diverged before all records (core/verdict/divergence.h) are a
 * cause only of a stall soon after.
 *
 * An error that NCCL reports becomes the verdict only if nothing else explains it: if a peer is
 * gone, NCCL immediately reports this to the ranks that exchange data with it across hosts. A rank
 * that then leaves is a victim, even if the others wait only for that rank: the operation that it
 * was in when it left is a wait, too, and has the cause.
 */
#include "core/verdict/verdict.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/verdict/culprits.h"
#include "core/verdict/cycle.h"
#include "core/verdict/explain.h"
#include "core/verdict/verdict_builder.h"
#include "core/verdict/verdict_parts.h"
#include "core/verdict/victims.h"

/* If NCCL reports that a peer is gone, work pending for this long counts as stalled, as after a
 * death (core/incident/deaths.c). */
#define FAILED_STALL_NS (200 * NG_MS)

const char *ng_confidence_name(enum ng_confidence confidence)
{
    return confidence == NG_CONFIDENCE_CERTAIN  ? "certain"
           : confidence == NG_CONFIDENCE_LIKELY ? "likely"
                                                : "unknown";
}

void ng_verdict_fini(struct ng_verdict *verdict)
{
    ng_arena_reset(&verdict->arena);
    memset(verdict, 0, sizeof(*verdict));
}

/* The record of a replayed call that was recalled, after which other records may have been written:
 * core/device/graph.h. */
static const struct ng_view_record *recalled(const struct ng_view_member *member, uint64_t seq)
{
    for (uint32_t i = member->record_count; i > 0; i--) {
        const struct ng_view_record *record = &member->records[i - 1];
        if (record->graph && record->coll_seq == seq && !ng_view_record_is_p2p(record))
            return record;
    }
    return NULL;
}

/* Adds the replay of a CUDA graph that the waiting ranks of a collective are in. */
static void tell_replay(struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    struct ng_verdict *verdict = builder->verdict;
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(builder->view, wait->group, &count);

    for (uint32_t i = 0; i < count && wait->seq && !verdict->graph; i++) {
        if (!members[i].pending_record || members[i].pending_seq != wait->seq)
            continue;
        const struct ng_view_record *record =
            ng_view_collective(&members[i], wait->seq) ?: recalled(&members[i], wait->seq);
        if (!record || !record->graph)
            continue;
        verdict->graph = record->graph;
        verdict->replay = record->replay;
        verdict->graph_position = members[i].pending_vague ? 0 : record->graph_position;
        verdict->graph_calls = record->graph_calls;
    }
}

static void tell_of(struct ng_verdict_builder *builder, uint32_t index)
{
    const struct ng_wait *wait = &builder->waits.waits[index];

    ng_verdict_builder_set_group(builder, wait->group);
    builder->verdict->seq = wait->seq;
    builder->verdict->op = wait->op;
    builder->verdict->pattern = wait->pattern;
    builder->verdict->cold = wait->cold;
    builder->verdict->stalled_ns = wait->age_ns;
    tell_replay(builder, wait);
}

/* Is a member's oldest operation in flight a call of an NCCL group? */
static bool is_in_nccl_group(const struct ng_view_member *member)
{
    const struct ng_view_record *record = ng_view_pending_record(member);

    return record && record->flags & NG_RECORD_IN_GROUP;
}

/*
 * All ranks made the call of wait *best. The calls of an NCCL group seem to end together, so this
 * one may have finished long ago: if it names nobody, another call of the same rank that does is
 * reported instead.
 */
static int judge_device(struct ng_verdict_builder *builder, uint32_t *best)
{
    const struct ng_wait_graph *waits = &builder->waits;
    const struct ng_view_member *members = builder->view->members;
    uint32_t first = *best;
    int error = ng_culprits_device(builder, &waits->waits[first]);
    bool again = false;

    for (uint32_t i = 0; i < builder->view->member_count; i++) {
        if (waits->wait_of_member[i] != (int32_t)first || !is_in_nccl_group(&members[i]))
            continue;
        uint32_t process = members[i].process;
        for (uint32_t k = waits->stuck_first[process]; k < waits->stuck_first[process + 1]; k++) {
            uint32_t other = waits->stuck[k], wait = (uint32_t)waits->wait_of_member[other];
            if (error || builder->verdict->culprit_count)
                return error;
            if (wait == first || builder->causes[wait] != NG_CAUSE_DEVICE ||
                waits->waits[wait].on_host || !is_in_nccl_group(&members[other]) ||
                !ng_same_actor(builder->view, &members[i], &members[other]))
                continue;
            error = ng_culprits_device(builder, &waits->waits[wait]);
            again = true;
            if (builder->verdict->culprit_count) {
                *best = wait;
                tell_of(builder, wait);
            }
        }
    }
    if (again && !error && !builder->verdict->culprit_count)
        error = ng_culprits_device(builder, &waits->waits[first]);
    return error;
}

/*
 * No wait has an evident cause. Either ranks wait for each other in a cycle, which is a reason even
 * if other facts are not known; or no rank is absent at the end of the chains; or the reason is not
 * known.
 */
static int judge_order(struct ng_verdict_builder *builder, uint32_t *best, enum ng_cause cause)
{
    struct ng_verdict *verdict = builder->verdict;
    struct ng_cycle cycle;

    int error = ng_cycle_find(builder->view, &builder->waits, &builder->scratch, &cycle);
    if (error)
        return error;
    if (ng_culprits_is_stray(&builder->waits, &cycle))
        return ng_culprits_stray(builder, &cycle, best);
    if (cycle.count) {
        error = ng_culprits_order(builder, &cycle, best);
        if (cause == NG_CAUSE_UNSEEN || cause == NG_CAUSE_OUTSIDE)
            verdict->confidence = NG_CONFIDENCE_LIKELY;
        return error;
    }
    if (cause == NG_CAUSE_OUTSIDE) {
        tell_of(builder, *best);
        return ng_culprits_outside(builder, &builder->waits.waits[*best]);
    }
    if (cause == NG_CAUSE_ELSEWHERE)
        for (uint32_t w = 0; w < builder->waits.count; w++)
            if (builder->waits.waits[w].served && !builder->waits.waits[w].blind) {
                *best = w;
                cause = NG_CAUSE_DEVICE;
                break;
            }
    tell_of(builder, *best);
    const struct ng_wait *wait = &builder->waits.waits[*best];
    verdict->all_came =
        !wait->absentee_count && (wait->type == NG_WAIT_CREATE || wait->type == NG_WAIT_END ||
                                  wait->type == NG_WAIT_HOST || wait->on_host);
    if (cause == NG_CAUSE_DEVICE && !wait->on_host)
        return judge_device(builder, best);
    verdict->kind = NG_KIND_UNKNOWN;
    verdict->confidence = NG_CONFIDENCE_UNKNOWN;
    return 0;
}

static int judge_wait(struct ng_verdict_builder *builder, uint32_t *best, enum ng_cause cause,
                      const struct ng_reason *reason)
{
    const struct ng_wait *wait = &builder->waits.waits[*best];

    tell_of(builder, *best);
    switch (cause) {
    case NG_CAUSE_DEAD:
    case NG_CAUSE_LEFT:
    case NG_CAUSE_STOPPED:
    case NG_CAUSE_FAULT:
    case NG_CAUSE_MISSING:
        return ng_culprits_absentees(builder, wait, cause);
    case NG_CAUSE_SURPLUS:
        return ng_culprits_surplus(builder, wait);
    case NG_CAUSE_VARIABLE:
    case NG_CAUSE_MISMATCH:
        return reason->by_init ? ng_culprits_init(builder, &reason->init)
                               : ng_culprits_mismatch(builder, wait, &reason->mismatch);
    case NG_CAUSE_PARTED:
        return ng_culprits_parted(builder, wait, &reason->divergence);
    case NG_CAUSE_DEVICE:
    case NG_CAUSE_ELSEWHERE:
    case NG_CAUSE_UNSEEN:
    case NG_CAUSE_OUTSIDE:
        return judge_order(builder, best, cause);
    }
    return 0;
}

/*
 * Of two waits with causes of the same kind, the older is reported. If they are about equally old,
 * it is the one whose call was made first, which the culprit should have made next.
 */
static bool comes_first(const struct ng_wait *a, const struct ng_wait *b)
{
    int64_t between_ns = a->age_ns - b->age_ns;

    if (between_ns < NG_VERDICT_BUILDER_SAME_AGE_NS &&
        between_ns > -NG_VERDICT_BUILDER_SAME_AGE_NS && a->entered_age_ns && b->entered_age_ns)
        return a->entered_age_ns > b->entered_age_ns;
    return between_ns > 0;
}

/* May the cause be a new end of a process? */
static bool is_of_end(const struct ng_wait *wait, enum ng_cause cause)
{
    return !wait->of_leavers && cause >= NG_CAUSE_LEFT;
}

/* Is wait `a` to be reported rather than `b`? */
static bool is_better(const struct ng_verdict_builder *builder, uint32_t a, uint32_t b)
{
    const struct ng_wait *waits = builder->waits.waits;
    const enum ng_cause *causes = builder->causes;

    if (builder->ends && is_of_end(&waits[a], causes[a]) != is_of_end(&waits[b], causes[b]))
        return is_of_end(&waits[a], causes[a]);
    if (causes[a] == causes[b] && waits[a].from_memory != waits[b].from_memory)
        return waits[b].from_memory;
    return causes[a] > causes[b] || (causes[a] == causes[b] && comes_first(&waits[a], &waits[b]));
}

/* Finds the wait to report, and the reason why it does not end. */
static int find_best(struct ng_verdict_builder *builder, uint32_t *ret_best,
                     struct ng_reason *ret_reason)
{
    uint32_t best = 0;

    builder->causes =
        ng_arena_alloc(&builder->scratch, (builder->waits.count + 1) * sizeof(*builder->causes));
    if (!builder->causes)
        return -ENOMEM;
    ng_wait_cause_find_leaver(builder);
    for (uint32_t i = 0; i < builder->waits.count; i++) {
        struct ng_wait *wait = &builder->waits.waits[i];
        struct ng_reason reason = {0};
        wait->op = ng_wait_op(builder->view, wait);
        builder->causes[i] = ng_wait_cause_of(builder, wait, &reason);
        if (i == 0 || is_better(builder, i, best)) {
            best = i;
            *ret_reason = reason;
        }
    }
    *ret_best = best;
    return 0;
}

/* What is known of processes that did not answer is old: they may have ended since. */
static void doubt_the_quiet(struct ng_verdict *verdict)
{
    NG_EACH (culprit, verdict->culprits, verdict->culprit_count) {
        if (!culprit->quiet_ns)
            continue;
        ng_explain_quiet(culprit);
        if (verdict->confidence == NG_CONFIDENCE_CERTAIN)
            verdict->confidence = NG_CONFIDENCE_LIKELY;
    }
}

static bool is_about_end(const struct ng_verdict *verdict)
{
    return verdict->kind == NG_KIND_DEAD_RANK || verdict->kind == NG_KIND_LEFT_EARLY;
}

static int judge_all(struct ng_verdict_builder *builder)
{
    struct ng_verdict *verdict = builder->verdict;
    struct ng_reason reason = {0};
    uint32_t best;

    int error = ng_view_index_find(builder->view, &builder->scratch, &builder->processes)
                    ?: find_best(builder, &best, &reason);
    if (error)
        return error;
    enum ng_cause cause = builder->causes[best];
    error = ng_verdict_builder_name_composed(builder, best)
                ?: judge_wait(builder, &best, cause, &reason);
    if (!error && (cause == NG_CAUSE_MISSING || cause == NG_CAUSE_FAULT ||
                   cause == NG_CAUSE_STOPPED || cause == NG_CAUSE_DEAD))
        error = ng_culprits_others(builder, best, cause);
    if (!error && (is_about_end(verdict) || verdict->kind == NG_KIND_STOPPED_RANK))
        error = ng_culprits_of_processes(builder);
    if (!error && verdict->kind == NG_KIND_GPU_STALL)
        error = ng_culprits_driver(builder, &builder->waits.waits[best]);
    ng_verdict_builder_sort_culprits(verdict->culprits, verdict->culprit_count);
    doubt_the_quiet(verdict);
    if (cause == NG_CAUSE_MISSING ||
        (cause == NG_CAUSE_SURPLUS && builder->waits.waits[best].from_memory))
        ng_verdict_builder_tell_unwatched(builder, &builder->waits.waits[best]);
    error = error ?: ng_verdict_builder_list_waiting(builder);
    if (!error)
        error =
            ng_verdict_builder_list_missing_evidence(builder, &builder->waits.waits[best], &reason);
    /* Other ranks may be absent besides the named ones; that their evidence is missing makes the
     * verdict less certain. */
    if (!error && verdict->missing_evidence_count && verdict->kind == NG_KIND_MISSING_RANK &&
        verdict->confidence == NG_CONFIDENCE_CERTAIN)
        verdict->confidence = NG_CONFIDENCE_LIKELY;
    return error || cause != NG_CAUSE_DEAD
               ? error
               : ng_victims_doubt_death(builder, &builder->waits.waits[best]);
}

static void start(const struct ng_view *view, struct ng_verdict *ret_verdict)
{
    *ret_verdict = (struct ng_verdict){.kind = NG_KIND_HEALTHY,
                                       .confidence = NG_CONFIDENCE_CERTAIN,
                                       .detected_by = -1,
                                       .action = "none"};
    snprintf(ret_verdict->job, sizeof(ret_verdict->job), "%s", view->job);
}

/*
 * NCCL reports a remote error as soon as a peer on another host is gone, when ranks have not waited
 * for long yet: the reason why they wait is also the reason for the error.
 */
static int judge_what_failed(const struct ng_view *view, struct ng_verdict *verdict)
{
    struct ng_verdict_builder builder = {.view = view, .verdict = verdict};

    int error = ng_wait_graph_find(view, FAILED_STALL_NS, &builder.scratch, &builder.waits);
    if (!error && builder.waits.count)
        error = judge_all(&builder);
    ng_arena_reset(&builder.scratch);
    if (!error && !is_about_end(verdict) && verdict->kind != NG_KIND_MISMATCH) {
        ng_verdict_fini(verdict);
        start(view, verdict);
    }
    return error;
}

/* Is there a cause, or a call that hangs on all ranks, from before any of the victims ended? */
static bool is_of_the_living(const struct ng_verdict_builder *builder,
                             const struct ng_victims *victims)
{
    const struct ng_verdict *verdict = builder->verdict;

    if (verdict->kind == NG_KIND_GPU_STALL || verdict->all_came)
        return ng_victims_shared_wait(victims, builder);
    return verdict->kind != NG_KIND_HEALTHY && verdict->kind != NG_KIND_UNKNOWN &&
           !is_about_end(verdict);
}

/*
 * A rank that has ended may be a victim: then the cause is what it waited for, if that is known. If
 * it is not, because the awaited ranks have come since, the others wait for the one that ended.
 */
static int judge_victims(struct ng_verdict_builder *builder, int64_t stalled_ns)
{
    struct ng_verdict second, *verdict = builder->verdict;
    struct ng_view past;
    struct ng_verdict_builder again = {.view = &past, .verdict = &second, .ends = builder->ends};
    struct ng_victims victims;

    int error = ng_victims_find(builder->view, verdict, &builder->scratch, &past, &victims);
    if (error || !victims.gave_up_ns)
        return error;
    start(&past, &second);
    error = ng_wait_graph_find(&past, stalled_ns, &again.scratch, &again.waits);
    if (!error && again.waits.count)
        error = judge_all(&again);
    if (!error && is_of_the_living(&again, &victims)) {
        error = ng_victims_tell(&victims, verdict, &second);
        ng_verdict_fini(verdict);
        *verdict = second;
    } else {
        ng_verdict_fini(&second);
    }
    ng_arena_reset(&again.scratch);
    return error;
}

/* Reaches a verdict on whatever is wrong with the job. */
static int judge_job(struct ng_verdict_builder *builder, const struct ng_verdict_query *query)
{
    int error =
        ng_wait_graph_find(builder->view, query->stalled_ns, &builder->scratch, &builder->waits);

    if (!error && builder->waits.count)
        error = judge_all(builder);
    if (!error && is_about_end(builder->verdict) && !builder->verdict->may_be_gone)
        error = judge_victims(builder, query->stalled_ns);
    if (!error && builder->verdict->kind == NG_KIND_HEALTHY &&
        ng_verdict_builder_has_error_of_gone(builder))
        error = judge_what_failed(builder->view, builder->verdict);
    error = error ?: ng_verdict_builder_errors(builder);
    error = error ?: ng_verdict_builder_nan(builder, query->nan);
    error = error ?: ng_verdict_builder_watchdogs(builder, query->watchdog);
    if (!error && query->crashes && builder->verdict->kind == NG_KIND_HEALTHY)
        error = ng_verdict_builder_crashes(builder);
    return error;
}

int ng_verdict_reach(const struct ng_view *view, const struct ng_verdict_query *query,
                     struct ng_verdict *ret_verdict)
{
    struct ng_verdict *verdict = ret_verdict;
    struct ng_verdict_builder builder = {.view = view, .verdict = verdict, .ends = query->ends};

    start(view, verdict);
    int error = query->disagreement.group_id
                    ? ng_verdict_builder_disagreement(&builder, &query->disagreement)
                    : judge_job(&builder, query);
    if (!error && verdict->kind != NG_KIND_HEALTHY)
        ng_verdict_builder_tell_arguments(&builder);
    if (!error && verdict->kind != NG_KIND_HEALTHY)
        error = ng_verdict_builder_devices(&builder);
    error = error ?: ng_verdict_builder_list_rehearsal(&builder);
    error = error ?: ng_verdict_add_calls(view, verdict);
    ng_arena_reset(&builder.scratch);
    if (error)
        ng_verdict_fini(verdict);
    return error;
}
