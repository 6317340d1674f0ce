/*
 * From an alarm to an incident that is claimed.
 *
 * All stuck ranks raise the same alarm at nearly the same time. One of them claims the incident on
 * the board; the claim is exclusive, and a claimant that dies loses it.
 */
#include "core/incident/incident_claim.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/check/signature_compare.h"
#include "core/comm/comm.h"
#include "core/comm/deadline.h"
#include "core/comm/rules_file.h"
#include "core/device/async.h"
#include "core/device/connections.h"
#include "core/device/driver_errors.h"
#include "core/device/launch_counters.h"
#include "core/incident/alarm_retry.h"
#include "core/incident/incident_response.h"
#include "core/incident/job_snapshot.h"
#include "core/incident/known_deaths.h"
#include "core/incident/ras_witness.h"
#include "core/policy/abort.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/verdict/affected_groups.h"
#include "core/watchdog/watchdog.h"

#define GONE_MARGIN_NS (2 * NG_S) /* for a query to the store and its answer */
/* By then the other processes of a host have reported that one of them is frozen. */
#define NEIGHBOURS_NS (3 * NG_S)
#define SLOW_TIMES                                                                                 \
    4 /* the suspect time: for this long, a call that is slow on the host is examined again */
#define LOOKS_AWAITED 2u
#define LOOKS_ANEW_NS (5 * NG_S)
#define LOOKS_LATE_NS (2 * NG_S)
#define OTHERS_NS     NG_S /* for the other ranks to reach a call that some have made differently */

_Static_assert(NG_INCIDENT_POLICY_LOG == NG_ON_TIMEOUT_LOG + 1, "board.h knows the mildest policy");

static NG_FORGOTTEN bool took_over; /* from a claimant that failed to deliver its verdict */
/* Other ranks' looks at connections, how often and when last. Incident thread. */
static NG_FORGOTTEN struct {
    unsigned waits;
    int64_t waited_mono_ns;
} looks_awaited;

/* The wait has no explanation but has made no progress either: the deadline applies all the
 * same. */
static void cannot_explain(struct ng_verdict *verdict, const struct ng_incident *wanted)
{
    verdict->kind = NG_KIND_UNKNOWN;
    verdict->confidence = NG_CONFIDENCE_UNKNOWN;
    verdict->group_id = wanted->group_id;
    verdict->seq = wanted->seq;
    verdict->op = (enum ng_op)wanted->op;
    verdict->stalled_ns = 2 * wanted->stalled_ns;
}

void ng_claim_end(enum ng_incident_level level, bool in_vain)
{
    if (ng_guard.board)
        ng_guard.board->ops->finish(ng_guard.board, level, in_vain);
}

/* Joining an incident means that everything before it is done. Unread entries, perhaps a command,
 * are handled first; this incident is then read as news. */
static void join_in_turn(struct ng_incident *incident)
{
    if (incident->epoch == ng_response_seen(incident->source) + 1)
        ng_claim_join(incident);
    else
        ng_wake_incident();
}

/* Claim an incident for what was judged and carry it out, or join the incident that covers it. */
void ng_claim_open(const struct ng_incident *wanted, struct ng_view *view,
                   struct ng_verdict *verdict)
{
    struct ng_board *board = ng_guard.board;
    struct ng_incident incident = *wanted;

    /* Named after the subject of the verdict: ranks can be stuck in different places for one
     * reason. */
    incident.group_id = verdict->group_id;
    incident.seq = verdict->seq;
    incident.op = verdict->op;
    incident.kind = ng_known_deaths_outdoing(verdict);
    ng_affected_groups_find(view, verdict, &incident.scope);
    /* Ranks with another unique id have no other way to learn of this. */
    if (board && verdict->other_id_count)
        board->ops->unite(board, verdict->group_id, verdict->other_ids, verdict->other_id_count);
    incident.claimant_rank = ng_snapshot_own_rank(view);
    incident.state = NG_INCIDENT_CLAIMED;
    struct ng_incident named = incident;
    int error = board ? board->ops->claim(board, &incident, &incident) : 0;
    if (error == -EEXIST && ng_response_is_own(&incident) &&
        incident.state == NG_INCIDENT_CLAIMED) {
        /* An earlier claim of this process, whose verdict the board did not accept. */
        named.supersedes = incident.epoch;
        incident = named;
        error = board->ops->claim(board, &incident, &incident);
    }
    if (error && error != -EEXIST) {
        ng_log(NG_LOG_WARN, "cannot claim the incident on the board (%s): acting alone",
               strerror(-error));
        error = 0;
    }
    /* What was reported before is not new for the next process to examine the job, either. */
    ng_claim_end(wanted->level, error == -EEXIST);
    if (!error)
        ng_response_lead(&incident, view, verdict);
    else if (incident.epoch > ng_response_seen(incident.source) &&
             incident.level == NG_INCIDENT_TIMEOUT && !ng_response_is_own(&incident))
        join_in_turn(&incident);
    /* A suspicion of another process: its line arrives as news from the board. */
}

/* Has another live rank of the group paused its clock? */
static bool others_rest(const struct ng_view *view, uint64_t group_id)
{
    for (uint32_t i = 0; group_id && i < view->member_count; i++) {
        const struct ng_view_member *member = &view->members[i];
        const struct ng_view_process *process = &view->processes[member->process];
        if (member->rests && view->groups[member->group].id == group_id && !process->self &&
            process->life == NG_LIFE_RUNNING)
            return true;
    }
    return false;
}

/* The policy for a deadline of a group, of which this process may know only what the view
 * contains. */
static enum ng_on_timeout choose_policy(const struct ng_view *view, uint64_t group_id,
                                        enum ng_op op)
{
    struct ng_rules_group known = {
        .id = group_id, .name = "", .parent_name = "", .device = -1, .pci_id = ""};

    uint32_t group = ng_view_find_group(view, group_id);
    if (group != UINT32_MAX) {
        known.name = view->groups[group].name;
        known.nranks = view->groups[group].nranks;
        known.parent_id = view->groups[group].parent_id;
    }
    uint32_t parent = ng_view_find_group(view, known.parent_id);
    if (known.parent_id && parent != UINT32_MAX)
        known.parent_name = view->groups[parent].name;
    return ng_rules_file_policy(&known, op);
}

/* Was the alarm raised because a wait took too long? */
static bool is_about_time(const struct ng_alarm *alarm)
{
    return alarm && !alarm->watchdog && !alarm->failed && !alarm->nan &&
           !alarm->disagreement.group_id;
}

/* Is what the driver knows of the devices worth its while for this alarm? */
static bool asks_driver(const struct ng_alarm *alarm)
{
    return alarm && !alarm->nan && !alarm->death && !alarm->disagreement.group_id;
}

void ng_claim_look(const struct ng_alarm *alarm)
{
    if (asks_driver(alarm))
        ng_driver_errors_begin();
    if (is_about_time(alarm)) {
        ng_launch_counters_read();
        ng_connections_look();
    }
}

/* Is the clock behind an alarm paused here? Then the alarm is void: the watchdog raises it
 * again. */
static bool rests_here(uint64_t group_id)
{
    return group_id ? NG_FIND_COMM(comm, NG_LOAD(comm->group->id) == group_id &&
                                             NG_LOAD(comm->group->rests) == NG_REST_OWN) != NULL
                    : ng_deadline_rests(NULL);
}

/* Did the verdict on a deadline elsewhere already report this very call, while it also waited here?
 * Ranks that received it first may have moved on, so what is left explains less. */
static bool is_reported(const struct ng_alarm *alarm)
{
    const struct ng_incident same = {.level = alarm->level,
                                     .group_id = alarm->group_id,
                                     .seq = alarm->seq,
                                     .op = alarm->op,
                                     .kind = alarm->death ? NG_KIND_DEAD_RANK : NG_KIND_HEALTHY,
                                     .since_mono_ns = ng_clock_mono_ns() - alarm->age_ns};

    return is_about_time(alarm) && alarm->group_id && ng_response_has_reported_call(&same);
}

/* Is the cause of the alarm being handled, or already settled? Anything else that is stuck
 * raises its own alarm where it is stuck; judged here, it would be reported twice, or before
 * its deadline. */
bool ng_claim_is_settled(const struct ng_alarm *alarm)
{
    if (ng_abort_concerns(alarm->group_id) || is_reported(alarm) ||
        (is_about_time(alarm) && rests_here(alarm->group_id)))
        return true;
    if (alarm->disagreement.group_id)
        return ng_signature_compare_is_reported(alarm->group_id);
    if (alarm->nan)
        return ng_response_has_reported_nan() && !NG_LOAD(ng_guard.box.header->nan.held);
    if (alarm->death) /* the verdict shows whether others still wait */
        return false;
    return alarm->failed ? ng_response_has_reported_error(alarm->group_id) || !ng_async_still(alarm)
                         : !ng_watchdog_still(alarm);
}

/* All ranks have arrived, some are inside the host call, and none is known to hold up the others:
 * NCCL may take long to create, connect or end communicators, which is not suspicious. It is
 * reported at the deadline, if there is one; the roll call reports a creation earlier. */
static bool is_slow_call(const struct ng_alarm *alarm, const struct ng_verdict *verdict)
{
    /* The program has noticed the error that the verdict is about: it ends the communicator. */
    bool answered = ng_kind_is_failure(verdict->kind) && is_about_time(alarm) &&
                    ng_op_table[alarm->op].op_class == NG_CLASS_END;

    return (verdict->kind == NG_KIND_UNKNOWN || answered) && verdict->all_came &&
           ng_deadline_of_group(verdict->group_id, answered ? alarm->op : verdict->op);
}

/* A rank that does not answer counts as gone once the store has had no sign of it for this long. */
static bool is_early(const struct ng_alarm *alarm, const struct ng_verdict *verdict)
{
    bool others = verdict->may_be_gone &&
                  (verdict->kind == NG_KIND_ASYNC_ERROR || verdict->kind == NG_KIND_LEFT_EARLY);

    return alarm && alarm->failed && (others || verdict->more_may_be_lost) &&
           alarm->age_ns < ng_guard.config.store_ttl_ns + GONE_MARGIN_NS;
}

/* A rank that has not reached the call yet is usually about to; a moment later more ranks are
 * known. */
static bool is_undecided_yet(const struct ng_alarm *alarm, const struct ng_verdict *verdict)
{
    return alarm && alarm->disagreement.group_id && verdict->others_may_tell &&
           alarm->age_ns < OTHERS_NS;
}

/* Work that a stuck watchdog saw last may be over on the device. It is not if a rank has not made a
 * call for which all of them wait. In all other cases no deadline has passed for certain: other
 * ranks that wait have theirs, and NCCLGUARD_HEARTBEAT_TIMEOUT acts on the watchdog. */
static bool may_be_over(const struct ng_alarm *alarm, const struct ng_view *view,
                        const struct ng_verdict *verdict)
{
    if (!alarm || !alarm->unwatched)
        return false;
    if (verdict->kind == NG_KIND_HEALTHY || verdict->confidence != NG_CONFIDENCE_CERTAIN ||
        verdict->group_id != alarm->group_id || verdict->seq != alarm->seq ||
        !ng_op_is_symmetric(verdict->op))
        return true;
    return !NG_ANY(member, view->members, view->member_count,
                   view->groups[member->group].id == alarm->group_id &&
                       member->entered < alarm->seq);
}

/* A rank of another host that neither answers nor arrives may be frozen: the other processes of its
 * host check once a second. Or it may be lost with others of its host. A deadline does not wait for
 * that. */
static bool may_be_frozen(const struct ng_alarm *alarm, const struct ng_verdict *verdict)
{
    if (!is_about_time(alarm) || alarm->level != NG_INCIDENT_SUSPECT)
        return false;
    if (verdict->more_may_be_lost)
        return true;
    if (verdict->kind != NG_KIND_MISSING_RANK)
        return false;
    return NG_ANY(culprit, verdict->culprits, verdict->culprit_count,
                  culprit->quiet_ns && culprit->quiet_ns < NEIGHBOURS_NS);
}

/* A rank that is slow inside the call may leave it and then hold up the others elsewhere. */
static bool may_move_on(const struct ng_alarm *alarm, const struct ng_verdict *verdict)
{
    return is_about_time(alarm) && alarm->level == NG_INCIDENT_SUSPECT &&
           !ng_op_is_init(verdict->op) && is_slow_call(alarm, verdict) &&
           alarm->age_ns < SLOW_TIMES * ng_guard.config.suspect_ns;
}

/* Once the deadline of this very call was reported, there is nothing to wait for, and only a death
 * for certain is news. Of any other call no deadline has passed. */
static bool may_act_on_death(const struct ng_incident *wanted, const struct ng_verdict *verdict)
{
    if (verdict->group_id != wanted->group_id || verdict->seq != wanted->seq ||
        !ng_response_has_reported_call(wanted))
        return ng_known_deaths_may_act(verdict);
    ng_known_deaths_stop_clock();
    return ng_known_deaths_outdoing(verdict) == NG_KIND_DEAD_RANK;
}

/* This rank has looked at NCCL's connections, or was late, and others that wait in the same call
 * have not, or not lately: what all of them show together may name a rank. Likewise what their
 * drivers know, which they have not asked since they wait. Before a suspicion they are waited for
 * as long as one of them came so late that it will look only later, up to twice the suspect time;
 * then LOOKS_AWAITED times, whatever the calls, and then not for a while; and never once a deadline
 * has passed for LOOKS_LATE_NS: the ranks of a large job take long turns. */
static bool others_may_look(const struct ng_alarm *alarm, const struct ng_view *view,
                            const struct ng_verdict *verdict)
{
    int64_t now = ng_clock_mono_ns(), suspect_ns = ng_guard.config.suspect_ns;
    bool looked = false, others = false, unasked = false, later = false;

    if (!is_about_time(alarm) || verdict->kind != NG_KIND_GPU_STALL || verdict->culprit_count)
        return false;
    if (alarm->level == NG_INCIDENT_TIMEOUT &&
        alarm->age_ns > ng_deadline_of_group(alarm->group_id, alarm->op) + LOOKS_LATE_NS)
        return false;
    NG_EACH (member, view->members, view->member_count) {
        const struct ng_view_process *process = &view->processes[member->process];
        bool known = member->edge_count && member->edges_age_ns < NG_EDGES_TOGETHER_NS;
        if (view->groups[member->group].id != verdict->group_id || !member->pending_record)
            continue;
        looked |= process->self && (known || ng_connections_are_late());
        others |= process->life == NG_LIFE_RUNNING && !known;
        unasked |= process->life == NG_LIFE_RUNNING && !process->self &&
                   process->devices_age_ns > member->pending_age_ns;
        later |= process->life == NG_LIFE_RUNNING && member->pending_age_ns < suspect_ns;
    }
    if (!(looked && others) && !unasked)
        return false;
    if (later && alarm->level == NG_INCIDENT_SUSPECT && alarm->age_ns < 2 * suspect_ns)
        return true;
    if (now - looks_awaited.waited_mono_ns > LOOKS_ANEW_NS)
        looks_awaited.waits = 0;
    if (looks_awaited.waits == LOOKS_AWAITED)
        return false;
    looks_awaited.waits++;
    looks_awaited.waited_mono_ns = now;
    return true;
}

/* NCCL's RAS is heard only where the guard itself knows too little: what it says, or cannot say,
 * makes no verdict of the guard's own less certain. */
static int judge(struct ng_view *view, const struct ng_verdict_query *query,
                 struct ng_verdict *ret_verdict)
{
    uint32_t words = view->ras_count, notes = view->note_count;
    int error = ng_snapshot_judge(view, query, "none", ret_verdict);

    if (error || ret_verdict->kind != NG_KIND_UNKNOWN || !ret_verdict->lacks_ranks)
        return error;
    ng_ras_witness_add(view);
    if (view->ras_count == words && view->note_count == notes)
        return 0;
    ng_verdict_fini(ret_verdict);
    return ng_snapshot_judge(view, query, "none", ret_verdict);
}

/* Judge the subject of `wanted`, because of an alarm or in place of a failed claimant (`alarm`
 * NULL). `sure`: it is stuck even if the evidence does not show it. */
void ng_claim(const struct ng_incident *wanted, bool sure, const struct ng_alarm *alarm)
{
    struct ng_verdict_query query = {.stalled_ns = wanted->stalled_ns,
                                     .watchdog = alarm && alarm->watchdog};
    if (alarm) {
        query.disagreement = alarm->disagreement;
        query.nan = alarm->nan;
    }
    bool deadline = wanted->level == NG_INCIDENT_TIMEOUT;
    struct ng_verdict verdict;
    struct ng_view view;

    if (asks_driver(alarm))
        ng_driver_errors_look();
    int error = ng_snapshot_take(NG_SNAPSHOT_JOB, &view);
    if (!error && is_about_time(alarm) && others_rest(&view, wanted->group_id) &&
        ng_deadline_rest_with_others(wanted->group_id) == 0) {
        ng_claim_end(wanted->level, true);
        ng_view_fini(&view);
        return;
    }
    if (error || judge(&view, &query, &verdict) != 0) {
        ng_claim_end(wanted->level, true);
        ng_view_fini(&view);
        if (deadline && !(alarm && (alarm->death || alarm->unwatched)))
            ng_response_act_unjudged(wanted);
        return;
    }
    /* Taking the view takes time. */
    bool early = is_early(alarm, &verdict) || is_undecided_yet(alarm, &verdict) ||
                 may_be_frozen(alarm, &verdict) || may_move_on(alarm, &verdict) ||
                 others_may_look(alarm, &view, &verdict);
    /* A death has a clock of its own, which is put off for nobody. */
    bool asked = !early && is_about_time(alarm) && !alarm->death &&
                 ng_ras_witness_is_awaited(&view, &verdict, deadline);
    bool waits = may_be_over(alarm, &view, &verdict) ||
                 (alarm && alarm->death && !may_act_on_death(wanted, &verdict));
    if (early || asked || waits || (alarm && ng_claim_is_settled(alarm))) {
        ng_claim_end(wanted->level, early || waits);
        if (early || asked)
            ng_alarm_retry_put_off(alarm);
        ng_verdict_fini(&verdict);
        ng_view_fini(&view);
        return;
    }
    if (verdict.kind == NG_KIND_HEALTHY && sure)
        cannot_explain(&verdict, wanted);
    struct ng_incident judged = *wanted;
    if (deadline) {
        enum ng_on_timeout policy = choose_policy(&view, verdict.group_id, verdict.op);
        verdict.action = ng_on_timeout_name(policy);
        judged.policy = (int)policy + 1;
    }
    /* Healthy: the work has made progress in the meantime. */
    if (verdict.kind == NG_KIND_HEALTHY || (!deadline && is_slow_call(alarm, &verdict)))
        ng_claim_end(wanted->level, true);
    else
        ng_claim_open(&judged, &view, &verdict);
    ng_verdict_fini(&verdict);
    ng_view_fini(&view);
}

/* Follow an incident of another process; if its claimant fails to deliver a verdict, take over,
 * once. */
void ng_claim_join(struct ng_incident *incident)
{
    if (ng_response_follow(incident))
        return;
    if (took_over) {
        incident->kind = NG_KIND_UNKNOWN;
        snprintf(
            incident->line, sizeof(incident->line),
            "unknown: the ranks that worked out the verdict (last: pid %d) failed to deliver it",
            incident->claimant_pid);
        ng_response_log(incident);
        ng_response_act_unjudged(incident);
        return;
    }
    took_over = true;
    ng_log(NG_LOG_WARN, "pid %d failed to deliver its verdict: taking over",
           incident->claimant_pid);
    struct ng_incident wanted = *incident;
    wanted.supersedes = incident->epoch;
    ng_claim(&wanted, true, NULL);
    took_over = false;
}
