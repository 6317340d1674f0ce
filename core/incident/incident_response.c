/*
 * Carries out a claimed incident.
 *
 * At a suspect time the claimant judges and publishes the verdict, and each process logs one line.
 * At a deadline each process also writes its evidence first. The claimant judges before anything
 * changes, waits for the others' dumps (briefly, and never for dead processes), writes the verdict
 * and the dumps of processes that cannot, and publishes; then all act by policy. No process ends
 * before the verdict is on disk, since the launcher may kill the rest once the first is gone. No
 * process waits for a claimant that hangs: after the bound each acts alone. Other threads write the
 * evidence, since the folder, or mapped memory that is read, may be on a dead file server; the
 * incident then continues without it.
 */
#include "core/incident/incident_response.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/check/signature_compare.h"
#include "core/comm/deadline.h"
#include "core/comm/rules_file.h"
#include "core/device/device_wait.h"
#include "core/evidence/evidence.h"
#include "core/incident/alarm_retry.h"
#include "core/incident/dumps.h"
#include "core/incident/known_deaths.h"
#include "core/incident/metrics.h"
#include "core/incident/status_log.h"
#include "core/policy/policy.h"
#include "core/report/report.h"
#include "core/runtime/alarm.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/util/text.h"

#define BUSY_ROUND_MS 50
/* A claimant that is gone may have judged just before it ended. */
#define LAST_WORD_NS NG_S
/* Added to the wait for dumps: for a claimant that fails to deliver, and for the whole incident. */
#define CLAIMANT_MARGIN_NS (3 * NG_S)
/* Time for the store to deliver the verdict of another host, retries included. */
#define FETCH_NS      (3 * NG_S)
#define END_MARGIN_NS (4 * NG_S)

/* A deadline's verdict is being worked out, here or in another process. */
static NG_FORGOTTEN atomic_bool under_way;

/* Incident thread alone. */
static NG_FORGOTTEN struct {
    uint64_t seen_epoch[NG_SOURCES]; /* newest handled incident of each source */
    struct ng_incident judged;       /* the deadline that was handled last; level 0 none */
    int64_t judged_mono_ns;          /* when it was acted on */
    uint64_t error_group;            /* the group of the last verdict on an asynchronous error */
    bool nan_told;                   /* a verdict has reported NaN */
    int64_t killed_mono_ns; /* when policy kill began to be carried out and calls may return the
                               error (core/policy/policy.h); 0 never */
} own;

uint64_t ng_response_seen(enum ng_incident_source source)
{
    return own.seen_epoch[source];
}

/* The policy that this process applies. The claimant decides, so that all ranks do the same, even
 * those outside the group; but no rank exceeds its own configured policy. */
static enum ng_on_timeout policy_of(const struct ng_incident *incident)
{
    enum ng_op op = (enum ng_op)incident->op;

    if (incident->policy < 1 || incident->policy > NG_ON_TIMEOUT_LAST + 1)
        return ng_deadline_policy(incident->group_id, op);
    return ng_on_timeout_milder((enum ng_on_timeout)(incident->policy - 1),
                                ng_rules_file_ceiling(incident->group_id, op));
}

/* The cause may be a death. */
bool ng_response_is_failure(const struct ng_incident *incident)
{
    return incident->failed || ng_kind_is_failure(incident->kind);
}

/* Only the claimant logs the verdict in full. The other ranks log its kind and where it is. */
static void shorten(const struct ng_incident *incident, char *ret_line, size_t bytes)
{
    char culprits[64];
    struct ng_text line = {ret_line, 0, bytes};

    ng_report_line_culprits(incident->line, culprits, sizeof(culprits));
    ng_text_add(&line, "%.*s: ", (int)strcspn(incident->line, ":"), incident->line);
    if (culprits[0])
        ng_text_add(&line, "%s %s", culprits[strspn(culprits, "0123456789")] ? "ranks" : "rank",
                    culprits);
    else
        ng_text_add(&line, "no rank stands out");
    if (incident->claimant_rank >= 0 && incident->claimant_rank != ng_guard.box.header->rank)
        ng_text_add(&line, "; in full in the log of rank %d", incident->claimant_rank);
    else
        ng_text_add(&line, "; in full in the log of process %d", incident->claimant_pid);
}

/* The files stay those of the deadline that was acted on, while its consequences may be suspected:
 * only the log reports that. The program may go on, and what is suspected then is another matter.
 */
static bool leaves_files(const struct ng_incident *incident)
{
    const struct ng_config *config = &ng_guard.config;
    int64_t bound_ns = config->abort_wait_ns + config->suspect_ns + config->death_timeout_ns;

    return incident->level == NG_INCIDENT_SUSPECT && own.judged.level &&
           (ng_clock_mono_ns() - own.judged_mono_ns < bound_ns ||
            ng_incident_covers(&own.judged, incident));
}

void ng_response_log(const struct ng_incident *incident)
{
    char line[sizeof(incident->line)];

    if (incident->state == NG_INCIDENT_JUDGED && !ng_response_is_own(incident) &&
        strstr(incident->line, ": "))
        shorten(incident, line, sizeof(line));
    else
        snprintf(line, sizeof(line), "%s", incident->line);
    if (incident->kind == NG_KIND_MISMATCH)
        ng_signature_compare_mark_reported(incident->group_id);
    ng_metrics_keep_verdict(incident->kind, incident->line, incident->level == NG_INCIDENT_TIMEOUT);
    if (incident->differs && leaves_files(incident))
        ng_log(NG_LOG_ERROR, "calls differ: %s", line);
    else if (incident->level == NG_INCIDENT_SUSPECT && incident->differs)
        ng_log(NG_LOG_ERROR, "calls differ: %s; evidence in %s", line, ng_guard_dump_dir());
    else if (incident->level == NG_INCIDENT_SUSPECT)
        ng_log(NG_LOG_WARN, "suspect: %s", line);
    else
        ng_log(NG_LOG_ERROR, "%s: %s; evidence in %s; policy: %s",
               incident->kind == NG_KIND_CUDA_ERROR ? "CUDA failed"
               : ng_response_is_failure(incident)   ? "NCCL failed"
               : incident->kind == NG_KIND_NAN      ? "not a number"
               : incident->differs                  ? "calls differ"
                                                    : "deadline passed",
               line, ng_guard_dump_dir(), ng_on_timeout_name(policy_of(incident)));
}

/* Act by policy on a judged incident. Alarms parked meanwhile may have been consequences: the
 * watchdog raises them again if they were not. */
static void act(const struct ng_incident *incident)
{
    uint32_t before = ng_alarm_restarts();

    own.judged = *incident;
    own.judged.state = NG_INCIDENT_JUDGED;
    own.judged_mono_ns = ng_clock_mono_ns();
    if (ng_response_is_failure(incident))
        own.error_group = incident->group_id;
    own.nan_told |= incident->kind == NG_KIND_NAN;
    ng_status_log_save();
    ng_policy_act(policy_of(incident), &incident->scope, incident->kind, incident->line);
    if (policy_of(incident) == NG_ON_TIMEOUT_KILL)
        own.killed_mono_ns = own.judged_mono_ns; /* calls that come later were not given up */
    if (ng_alarm_restarts() != before)
        ng_alarm_retry_forget();
}

/* From here on the policy is carried out whatever hangs. */
static void bound_the_end(const struct ng_incident *incident)
{
    ng_policy_bound(policy_of(incident),
                    2 * (ng_dumps_bound_ns() + CLAIMANT_MARGIN_NS) + END_MARGIN_NS);
}

/* Did this process claim the incident? */
bool ng_response_is_own(const struct ng_incident *incident)
{
    const struct ng_box_header *header = ng_guard.box.header;

    return incident->claimant_pid == header->pid &&
           incident->claimant_ticks == header->start_ticks &&
           (incident->source == NG_SOURCE_HOST ||
            incident->claimant_slot == NG_LOAD(header->board_slot));
}

void ng_response_done(enum ng_incident_source source, uint64_t epoch)
{
    own.seen_epoch[source] = NG_MAX(own.seen_epoch[source], epoch);
}

/* Wait for a moment during an incident; the abort of an earlier one may still be under way. */
static void wait_busily(void)
{
    ng_guard.board->ops->wait(ng_guard.board, ng_wake_incident_event(), BUSY_ROUND_MS);
    ng_guard_beat();
    ng_policy_follow_up();
}

/* Write a verdict that was reached on another host to this host's disk. */
static void save_foreign(const struct ng_incident *incident, bool yields)
{
    struct ng_board *board = ng_guard.board;
    int64_t until = ng_clock_mono_ns() + FETCH_NS;
    struct ng_documents documents;
    struct ng_view none;
    int error;

    while ((error = board->ops->read_verdict(board, incident, &documents)) != 0 &&
           error != -ENOENT && ng_clock_mono_ns() < until)
        wait_busily();
    if (error) {
        if (error != -ENOENT)
            ng_log(NG_LOG_WARN, "cannot read the verdict of another host: %s", strerror(-error));
        return;
    }
    ng_view_init(&none);
    struct ng_evidence *evidence = ng_evidence_create(&none, NULL, ng_guard_dump_dir());
    if (!evidence) {
        ng_arena_reset(&documents.arena);
        return;
    }
    evidence->documents = documents;
    evidence->yields = yields;
    ng_evidence_begin(evidence, NG_EVIDENCE_DOCUMENTS);
    ng_evidence_await(evidence, NG_EVIDENCE_ALL, ng_clock_mono_ns() + NG_DUMPS_WRITE_NS);
    ng_evidence_release(evidence);
}

/* While this process worked on the verdict of a deadline, it did not read others' suspicions: the
 * newer verdict counts. */
static bool is_overtaken(const struct ng_incident *incident)
{
    return own.judged.level && own.judged.source == incident->source &&
           incident->epoch < own.judged.epoch;
}

void ng_response_receive(const struct ng_incident *incident)
{
    bool overtaken = is_overtaken(incident);

    if (!overtaken)
        save_foreign(incident, leaves_files(incident));
    if (!overtaken || incident->differs)
        ng_response_log(incident);
    ng_response_done(incident->source, incident->epoch);
}

/*
 * A deadline has passed and another process judges it: write our evidence, wait for the verdict,
 * act. False: the claimant is gone or hangs, and another process must take over.
 */
bool ng_response_follow(struct ng_incident *incident)
{
    struct ng_board *board = ng_guard.board;
    int64_t gone_ns = 0;

    ng_evidence_outdate();
    bound_the_end(incident);
    atomic_store(&under_way, true);
    if (incident->state != NG_INCIDENT_JUDGED) {
        ng_dumps_write_here(incident, false);
        board->ops->get(board, incident); /* it may have been judged in the meantime */
    }
    int64_t until = ng_clock_mono_ns() + ng_dumps_bound_ns() + CLAIMANT_MARGIN_NS;
    while (incident->state != NG_INCIDENT_JUDGED) {
        int64_t now = ng_clock_mono_ns();
        if (board->ops->claimant_alive(board, incident))
            gone_ns = 0;
        else if (!gone_ns)
            gone_ns = now; /* its verdict may still be on the way */
        if (now > until || (gone_ns && now - gone_ns > LAST_WORD_NS)) {
            ng_response_done(incident->source, incident->epoch);
            atomic_store(&under_way, false);
            return false;
        }
        wait_busily();
        board->ops->get(board, incident);
    }
    save_foreign(incident, false);
    ng_device_wait_tell(incident->kind, incident->line, policy_of(incident));
    ng_response_log(incident);
    ng_response_done(incident->source, incident->epoch);
    atomic_store(&under_way, false);
    ng_policy_note_reported(true);
    act(incident);
    return true;
}

void ng_response_keep(struct ng_incident *incident, int64_t until_mono_ns)
{
    struct ng_board *board = ng_guard.board;

    atomic_store(&under_way, true);
    if (incident->state != NG_INCIDENT_JUDGED) {
        ng_dumps_write_here(incident, false); /* the claimant waits for it */
        while (board->ops->get(board, incident) == 0 && incident->state != NG_INCIDENT_JUDGED &&
               ng_clock_mono_ns() < until_mono_ns && board->ops->claimant_alive(board, incident))
            wait_busily();
    }
    if (incident->state == NG_INCIDENT_JUDGED)
        ng_response_receive(incident);
    atomic_store(&under_way, false);
}

bool ng_response_is_under_way(void)
{
    return atomic_load(&under_way);
}

/* Bounded wait for the dumps of live processes. */
static void await_dumps(const struct ng_incident *incident, int64_t since_mono_ns)
{
    struct ng_board *board = ng_guard.board;
    int64_t until = since_mono_ns + ng_guard.config.dump_wait_ns;
    uint32_t missing;

    while ((missing = board->ops->dumps_missing(board, incident)) > 0) {
        if (ng_clock_mono_ns() >= until) {
            ng_log(NG_LOG_WARN, "%u rank(s) did not write their dump within NCCLGUARD_DUMP_WAIT",
                   missing);
            return;
        }
        wait_busily();
    }
}

/*
 * Write verdict and timeline and, at a deadline, the dumps of all ranks, each within its own time
 * limit. The verdict goes first: the timeline is large, and there may be no room for both.
 */
static void write_evidence(const struct ng_incident *incident, struct ng_evidence *evidence)
{
    bool deadline = incident->level == NG_INCIDENT_TIMEOUT, comes = true;
    int64_t begun = ng_clock_mono_ns();

    if (deadline) {
        comes = ng_dumps_write_here(incident, true);
        ng_evidence_begin(evidence, NG_EVIDENCE_LOST);
        /* Processes that follow this one count from about the same moment. */
        if (ng_guard.board)
            await_dumps(incident, begun);
    }
    ng_evidence_begin(evidence, NG_EVIDENCE_VERDICT);
    int64_t now = ng_clock_mono_ns();
    if (comes)
        comes = ng_evidence_await(evidence, NG_EVIDENCE_ALL, now + NG_DUMPS_WRITE_NS);
    if (!deadline)
        return;
    ng_evidence_begin(evidence, NG_EVIDENCE_TRACE);
    int64_t until = begun + ng_dumps_bound_ns();
    if (comes)
        ng_evidence_await(evidence, NG_EVIDENCE_ALL,
                          until > now + NG_DUMPS_WRITE_NS ? until : now + NG_DUMPS_WRITE_NS);
}

/* This process claimed the incident: complete it, then act on it. */
void ng_response_lead(struct ng_incident *incident, struct ng_view *view,
                      struct ng_verdict *verdict)
{
    struct ng_board *board = ng_guard.board;

    incident->kind = (uint8_t)verdict->kind;
    ng_report_line(verdict, incident->line, sizeof(incident->line));
    if (incident->level == NG_INCIDENT_TIMEOUT) {
        ng_evidence_outdate();
        ng_device_wait_tell(incident->kind, incident->line, policy_of(incident));
        bound_the_end(incident);
        atomic_store(&under_way, true);
    }
    struct ng_evidence *evidence = ng_evidence_create(view, verdict, ng_guard_dump_dir());
    if (evidence)
        evidence->yields = leaves_files(incident);
    write_evidence(incident, evidence);
    incident->state = NG_INCIDENT_JUDGED;
    /* Once it is published, all processes end, and a launcher may kill this one at once: the line
     * that says all comes first. */
    ng_response_log(incident);
    bool told = false;
    if (board) {
        int error = board->ops->publish(board, incident, evidence ? &evidence->verdict : verdict);
        if (error)
            ng_log(NG_LOG_ERROR, "cannot publish the verdict for the other ranks: %s",
                   strerror(-error));
        told = !error;
    }
    ng_evidence_release(evidence);
    atomic_store(&under_way, false);
    ng_known_deaths_note(incident);
    /* The news reader skips it when it gets there and does not jump to it: a command may come
     * before it. */
    if (incident->source == NG_SOURCE_JOB)
        ng_known_deaths_cover();
    ng_policy_note_reported(told);
    if (incident->level == NG_INCIDENT_TIMEOUT)
        act(incident);
}

/* Every host shall have a verdict file; one that already exists says more and is kept. */
static void save_unknown(const struct ng_incident *incident)
{
    struct ng_verdict verdict = {.kind = NG_KIND_UNKNOWN,
                                 .confidence = NG_CONFIDENCE_UNKNOWN,
                                 .group_id = incident->group_id,
                                 .seq = incident->seq,
                                 .op = (enum ng_op)incident->op,
                                 .stalled_ns = incident->stalled_ns,
                                 .time_unix_ns = ng_clock_unix_ns(),
                                 .detected_by = ng_guard.box.header->rank,
                                 .action = ng_on_timeout_name(policy_of(incident))};

    snprintf(verdict.job, sizeof(verdict.job), "%s", ng_guard.launch.job);
    ng_evidence_write_verdict(&verdict, true, ng_clock_mono_ns() + NG_DUMPS_WRITE_NS);
    ng_verdict_fini(&verdict);
}

/* The deadline applies although there is no verdict: act for the one group that is known to be
 * stuck. */
void ng_response_act_unjudged(const struct ng_incident *wanted)
{
    struct ng_incident incident = *wanted;

    incident.scope = incident.group_id
                         ? (struct ng_group_set){.count = 1, .groups = {incident.group_id}}
                         : NG_GROUP_SET_ALL;
    incident.kind = NG_KIND_UNKNOWN;
    if (!incident.line[0])
        snprintf(incident.line, sizeof(incident.line),
                 "unknown: a deadline has passed, and no "
                 "verdict could be reached");
    ng_metrics_keep_verdict(incident.kind, incident.line, true);
    save_unknown(&incident);
    ng_policy_note_reported(false);
    act(&incident);
}

void ng_response_follow_end(uint32_t policy)
{
    struct ng_incident incident = {
        .level = NG_INCIDENT_TIMEOUT, .policy = (int32_t)policy, .scope = NG_GROUP_SET_ALL};

    if (own.killed_mono_ns || !ng_on_timeout_ends(NG_LOAD(ng_guard.box.header->mildest_policy)) ||
        !ng_on_timeout_ends(policy))
        return;
    /* This process already ends by the verdict; its abort just takes longer than theirs. */
    if (own.judged.level && ng_on_timeout_ends((uint32_t)policy_of(&own.judged) + 1))
        return;
    snprintf(incident.line, sizeof(incident.line),
             "unknown: other ranks of this host were ended by a verdict that this one cannot read");
    ng_policy_bound(policy_of(&incident), END_MARGIN_NS);
    ng_log(NG_LOG_ERROR, "%s; policy: %s", incident.line, ng_on_timeout_name(policy_of(&incident)));
    ng_response_act_unjudged(&incident);
}

bool ng_response_has_reported_call(const struct ng_incident *same)
{
    /* Calls that waited when the process was given up are not reported again, nor are ranks that
     * ended because of the error. */
    return same->since_mono_ns < own.killed_mono_ns ||
           (own.judged.level && ng_incident_covers(&own.judged, same));
}

bool ng_response_others_may_abort(void)
{
    return own.judged.level && policy_of(&own.judged) == NG_ON_TIMEOUT_ABORT &&
           ng_clock_mono_ns() - own.judged_mono_ns < ng_guard.config.abort_wait_ns;
}

bool ng_response_has_reported_error(uint64_t group_id)
{
    return group_id == own.error_group;
}

bool ng_response_has_reported_nan(void)
{
    return own.nan_told;
}
