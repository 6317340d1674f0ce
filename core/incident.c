/*
 * The incident thread.
 *
 * Steps 9 and 10. An essay, for what is not obvious here.
 *
 * Every rank that is stuck raises the same alarm within moments of the others. One of them claims
 * the incident on the board; the claim is exclusive, and a claimant that dies loses it. At a
 * suspect time the claimant judges and publishes the verdict, and everybody logs one line. At a
 * deadline everybody also writes its evidence first: the claimant judges before anything changes,
 * waits for the others' dumps, but not for long and never for the dead, writes verdict and the
 * dumps of those who cannot, and publishes; then all act by policy. Nobody ends before the verdict
 * is on disk, as the launcher may kill the rest once the first is gone; and nobody waits for a
 * claimant that hangs: after the bound each acts alone. Evidence is written by other threads, as
 * the folder, or memory that is looked at, may be of a file server that is dead; then it is gone on
 * without.
 *
 * The death of a neighbour is news of its own: if work is pending that needs it, there is no reason
 * to wait for the suspect time.
 */
#include "core/incident.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/abort.h"
#include "core/async.h"
#include "core/clock.h"
#include "core/completion.h"
#include "core/deadline.h"
#include "core/dump.h"
#include "core/dump_pipe.h"
#include "core/evidence.h"
#include "core/grown.h"
#include "core/guard.h"
#include "core/log.h"
#include "core/monitor.h"
#include "core/policy.h"
#include "core/report.h"
#include "core/request.h"
#include "core/rules_file.h"
#include "core/status.h"
#include "core/verdict.h"
#include "core/wait.h"
#include "core/watchdog.h"

#define ROUND_MS            1000 /* heartbeat, and the net under lost notifications */
#define BUSY_ROUND_MS       50   /* while an incident is under way */
#define GROUP_ROUND_MS      200  /* while an id is to be learned */
#define DEATH_CHECK_NS      (100 * NG_MS)
#define WATCHDOG_SILENCE_NS (5 * NG_S)
#define DEATH_CHECKS        20            /* at this pace after a death, then once a second */
#define DEATH_STALL_NS      (200 * NG_MS) /* work pending this long, and a rank it needs is gone */
#define END_MARGIN_NS       (4 * NG_S)    /* and for everything together */
#define EXAMINE_PAUSE_NS    (250 * NG_MS) /* and up to 130 more: others are at it */
#define LAST_WORD_NS        NG_S          /* a claimant that is gone may have judged just before */
#define CLAIMANT_MARGIN_NS                                                                         \
    (3 * NG_S) /* beyond the wait for dumps, for a claimant that does not come through */
#define EVIDENCE_NS                                                                                \
    (5 * NG_S)                  /* for our own evidence at least, if the wait for dumps is shorter \
                                 */
#define REQUESTS_MAX 4          /* dumps that were asked for and are under way */
#define WRITE_NS     (2 * NG_S) /* for a verdict to be on disk */

/* Alarms from the watchdog. Protects `alarms`; nests inside nothing, held for copies only. */
static pthread_mutex_t alarm_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ng_alarm alarms[16];
static unsigned alarm_count;

static struct ng_descriptor kick_event; /* written before the thread starts */
static atomic_bool stopping, stopped;
static atomic_bool left_alone; /* the thread ended since no other was there: nobody has left yet */

/* The thread's own. */
static struct {
    uint64_t seen_epoch[NG_SOURCES]; /* newest incident of each source that is dealt with */
    /* Alarms that wait until somebody else's examination is over. */
    struct ng_alarm parked[16];
    int64_t parked_mono_ns[16];
    unsigned parked_count;
    int64_t next_try_ns;
    uint32_t ended_seen;   /* processes of the job that had ended */
    uint32_t deaths_dealt; /* so many of them when somebody last reached a verdict */
    unsigned death_checks;
    int64_t next_death_check_ns;
    int64_t watched_ns, stood_in_ns, silence_ns; /* of the watchdog */
    bool silence_told;
    bool group_unknown;              /* the right id of a group that this process joined */
    int request_ms;                  /* when the next request of the program is due; -1 none */
    bool took_over;                  /* from a claimant that did not come through */
    uint64_t death_group, death_seq; /* what the last verdict about a death was about */
    uint64_t error_group;            /* and the last about an asynchronous error */
    struct ng_evidence *requested[REQUESTS_MAX];
} own;

void ng_incident_wake(void)
{
    uint64_t one = 1;

    /* Without it, the thread comes round by itself within a second. */
    if (ng_descriptor_ours(&kick_event) && write(kick_event.fd, &one, sizeof(one)) < 0 &&
        errno != EAGAIN)
        ng_log(NG_LOG_DEBUG, "cannot wake the incident thread: %m");
}

void ng_incident_raise(const struct ng_alarm *alarm)
{
    pthread_mutex_lock(&alarm_lock);
    if (alarm_count < sizeof(alarms) / sizeof(alarms[0]))
        alarms[alarm_count++] = *alarm;
    else if (alarm->level == NG_INCIDENT_TIMEOUT)
        alarms[alarm_count - 1] = *alarm; /* a deadline counts more than one more suspicion */
    pthread_mutex_unlock(&alarm_lock);
    ng_incident_wake();
}

/* One that still counts: none from before an abort. */
static bool take_alarm(struct ng_alarm *ret_alarm)
{
    uint32_t restarts = ng_watchdog_restarts();
    unsigned kept = 0;

    pthread_mutex_lock(&alarm_lock);
    for (unsigned i = 0; i < alarm_count; i++)
        if (alarms[i].restarts == restarts)
            alarms[kept++] = alarms[i];
    alarm_count = kept;
    bool any = alarm_count > 0;
    if (any) {
        unsigned best = 0;
        for (unsigned i = 1; i < alarm_count; i++)
            if (alarms[i].level > alarms[best].level)
                best = i;
        *ret_alarm = alarms[best];
        memmove(&alarms[best], &alarms[best + 1], (--alarm_count - best) * sizeof(alarms[0]));
    }
    pthread_mutex_unlock(&alarm_lock);
    return any;
}

enum range { HOST, JOB };

/* What can be seen now, of the whole job or of this host. */
static int look(enum range range, struct ng_view *ret_view)
{
    struct ng_board *board = ng_guard.board;
    int error = 0;

    ng_view_init(ret_view);
    if (board)
        error = range == JOB ? board->ops->view(board, ret_view)
                             : board->ops->view_host(board, ret_view);
    /* Alone, or our box is no longer where the board looks: we know ourselves all the same. */
    bool self = false;
    for (uint32_t i = 0; i < ret_view->process_count; i++)
        self |= ret_view->processes[i].self;
    if (!error && !self) {
        error = ng_view_add_box(ret_view, &ng_guard.box, NG_LIFE_RUNNING, ng_clock_mono_ns(),
                                "this process");
        if (!error)
            ret_view->processes[ret_view->process_count - 1].self = true;
        ng_view_seal(ret_view);
    }
    if (error)
        ng_log(NG_LOG_ERROR, "cannot gather the evidence: %s", strerror(-error));
    return error;
}

/* The global rank of this process as messages name it. */
static int own_rank(const struct ng_view *view)
{
    for (uint32_t i = 0; i < view->member_count; i++)
        if (view->processes[view->members[i].process].self)
            return ng_view_rank(view, &view->members[i]);
    return ng_guard.launch.rank;
}

static int judge(const struct ng_view *view, const struct ng_verdict_query *query,
                 const char *action, struct ng_verdict *ret_verdict)
{
    int error = ng_verdict_reach(view, query, ret_verdict);
    if (error) {
        ng_log(NG_LOG_ERROR, "cannot reach a verdict: %s", strerror(-error));
        return error;
    }
    ret_verdict->time_unix_ns = ng_clock_unix_ns();
    ret_verdict->detected_by = own_rank(view);
    ret_verdict->action = action;
    snprintf(ret_verdict->job, sizeof(ret_verdict->job), "%s", ng_guard.launch.job);
    return 0;
}

/* How long our own evidence is waited for: others wait for it no longer, either. */
static int64_t evidence_ns(void)
{
    return ng_guard.config.dump_wait_ns > EVIDENCE_NS ? ng_guard.config.dump_wait_ns : EVIDENCE_NS;
}

static bool find_self(const struct ng_view *view, uint32_t *ret_process)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].self) {
            *ret_process = i;
            return true;
        }
    return false;
}

/* Of those who live on this host, are we the one who writes what one has to? */
static bool is_first_here(const struct ng_view *view, uint32_t self)
{
    for (uint32_t i = 0; i < view->process_count; i++)
        if (view->processes[i].life == NG_LIFE_RUNNING &&
            view->processes[i].pid < view->processes[self].pid)
            return false;
    return view->processes[self].life == NG_LIFE_RUNNING;
}

/* What is known of this host, to be written; NULL nothing is. */
static struct ng_evidence *gather_here(void)
{
    struct ng_evidence *evidence = NULL;
    struct ng_view view;
    uint32_t self;

    if (look(HOST, &view) == 0 && find_self(&view, &self)) {
        evidence = ng_evidence_create(&view, NULL, ng_guard.dump_dir);
        if (evidence)
            evidence->self = self;
    }
    ng_view_fini(&view);
    return evidence;
}

/*
 * Our own evidence; and where the verdict is reached on another host, the first of those who live
 * here writes that of its dead, too. False: the folder hangs, and no other file will come there.
 */
static bool dump_here(const struct ng_incident *incident, bool claimant)
{
    struct ng_board *board = ng_guard.board;
    int64_t until = ng_clock_mono_ns() + evidence_ns();
    struct ng_evidence *evidence = gather_here();
    bool first_here = evidence && incident->source == NG_SOURCE_JOB &&
                      is_first_here(&evidence->view, evidence->self);

    ng_evidence_begin(evidence, NG_EVIDENCE_SELF);
    ng_evidence_await(evidence, NG_EVIDENCE_OWN, until);
    bool done = ng_evidence_is_done(evidence, NG_EVIDENCE_BIT(NG_EVIDENCE_SELF));
    if (done && board)
        board->ops->dumped(board, incident);
    if (claimant || first_here)
        ng_evidence_begin(evidence, NG_EVIDENCE_NEIGHBOURS);
    /* Of its own host only. Where hosts share a folder, the claimant's replaces it. */
    if (!claimant && first_here)
        ng_evidence_begin(evidence, NG_EVIDENCE_TRACE);
    if (done)
        done = ng_evidence_await(evidence, NG_EVIDENCE_ALL & ~NG_EVIDENCE_OWN,
                                 ng_clock_mono_ns() + WRITE_NS);
    ng_evidence_release(evidence);
    return done;
}

/* What all ranks do about it. Who claims it decides, so that they do the same, also those that have
 * no part in the group. */
static enum ng_on_timeout policy_of(const struct ng_incident *incident)
{
    return incident->policy > 0 && incident->policy <= NG_ON_TIMEOUT_KILL + 1
               ? (enum ng_on_timeout)(incident->policy - 1)
               : ng_deadline_policy(incident->group_id);
}

/* No deadline need have passed. */
static bool is_async_error(const struct ng_incident *incident)
{
    const char *name = ng_verdict_kind_name(NG_KIND_ASYNC_ERROR);

    return strncmp(incident->line, name, strlen(name)) == 0;
}

static void log_verdict(const struct ng_incident *incident)
{
    if (incident->level == NG_INCIDENT_SUSPECT)
        ng_log(NG_LOG_WARN, "suspect: %s", incident->line);
    else
        ng_log(NG_LOG_ERROR, "%s: %s; evidence in %s; policy: %s",
               is_async_error(incident) ? "NCCL failed" : "deadline passed", incident->line,
               ng_guard.dump_dir, ng_policy_name(policy_of(incident)));
}

/* Act by policy on an incident that is judged. What waited for its turn meanwhile may have been a
 * consequence: the watchdog raises it anew if it was not. */
static void act(const struct ng_incident *incident)
{
    uint32_t before = ng_watchdog_restarts();

    if (is_async_error(incident))
        own.error_group = incident->group_id;
    ng_policy_act(policy_of(incident), &incident->scope, incident->line);
    if (ng_watchdog_restarts() != before)
        own.parked_count = 0;
}

/* Whatever hangs from here on, the policy is carried out. */
static void bound_the_end(const struct ng_incident *incident)
{
    ng_policy_bound(policy_of(incident), 2 * (evidence_ns() + CLAIMANT_MARGIN_NS) + END_MARGIN_NS);
}

/* Did we claim it ourselves? */
static bool is_own(const struct ng_incident *incident)
{
    const struct ng_box_header *header = ng_guard.box.header;

    return incident->claimant_pid == header->pid &&
           incident->claimant_ticks == header->start_ticks &&
           (incident->source == NG_SOURCE_HOST ||
            incident->claimant_slot == NG_LOAD(header->board_slot));
}

static void deal_done(const struct ng_incident *incident)
{
    if (incident->epoch > own.seen_epoch[incident->source])
        own.seen_epoch[incident->source] = incident->epoch;
}

static void save_foreign_verdict(const struct ng_incident *incident)
{
    struct ng_board *board = ng_guard.board;
    struct ng_documents documents;
    struct ng_view none;

    int error = board->ops->read_verdict(board, incident, &documents);
    if (error) {
        if (error != -ENOENT)
            ng_log(NG_LOG_WARN, "cannot read the verdict of another host: %s", strerror(-error));
        return;
    }
    ng_view_init(&none);
    struct ng_evidence *evidence = ng_evidence_create(&none, NULL, ng_guard.dump_dir);
    if (!evidence) {
        ng_arena_reset(&documents.arena);
        return;
    }
    evidence->documents = documents;
    ng_evidence_begin(evidence, NG_EVIDENCE_DOCUMENTS);
    ng_evidence_await(evidence, NG_EVIDENCE_ALL, ng_clock_mono_ns() + WRITE_NS);
    ng_evidence_release(evidence);
}

/* A moment of an incident; an earlier one's abort may still be under way. */
static void wait_busily(void)
{
    ng_guard.board->ops->wait(ng_guard.board, &kick_event, BUSY_ROUND_MS);
    ng_guard_beat();
    ng_policy_tend();
}

/*
 * A deadline has passed somewhere, and somebody else judges it: write our evidence, wait for the
 * verdict, act. False: the claimant is gone or hangs, and somebody has to take over.
 */
static bool follow(struct ng_incident *incident)
{
    struct ng_board *board = ng_guard.board;
    int64_t gone_ns = 0;

    bound_the_end(incident);
    if (incident->state != NG_INCIDENT_JUDGED) {
        dump_here(incident, false);
        board->ops->get(board, incident); /* it may have been judged meanwhile */
    }
    int64_t until = ng_clock_mono_ns() + evidence_ns() + CLAIMANT_MARGIN_NS;
    while (incident->state != NG_INCIDENT_JUDGED) {
        int64_t now = ng_clock_mono_ns();
        if (board->ops->claimant_alive(board, incident))
            gone_ns = 0;
        else if (!gone_ns)
            gone_ns = now; /* its last word may still be on the way */
        if (now > until || (gone_ns && now - gone_ns > LAST_WORD_NS)) {
            deal_done(incident);
            return false;
        }
        wait_busily();
        board->ops->get(board, incident);
    }
    save_foreign_verdict(incident);
    ng_wait_tell(incident->line, policy_of(incident));
    log_verdict(incident);
    deal_done(incident);
    act(incident);
    return true;
}

/* Bounded wait for the dumps of the living. */
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
 * Dumps of all ranks where it is a deadline, verdict and timeline; each in its time. The verdict
 * goes before the timeline: that is large, and there may be no room for both.
 */
static void write_evidence(const struct ng_incident *incident, struct ng_evidence *evidence)
{
    bool deadline = incident->level == NG_INCIDENT_TIMEOUT, comes = true;
    int64_t begun = ng_clock_mono_ns();

    if (deadline) {
        comes = dump_here(incident, true);
        ng_evidence_begin(evidence, NG_EVIDENCE_LOST);
        /* Those who follow us count from about the same moment. */
        if (ng_guard.board)
            await_dumps(incident, begun);
    }
    ng_evidence_begin(evidence, NG_EVIDENCE_VERDICT);
    int64_t now = ng_clock_mono_ns();
    if (comes)
        comes = ng_evidence_await(evidence, NG_EVIDENCE_ALL, now + WRITE_NS);
    if (!deadline)
        return;
    ng_evidence_begin(evidence, NG_EVIDENCE_TRACE);
    int64_t until = begun + evidence_ns();
    if (comes)
        ng_evidence_await(evidence, NG_EVIDENCE_ALL,
                          until > now + WRITE_NS ? until : now + WRITE_NS);
}

/* The incident is ours: make it whole, then act on it. */
static void conduct(struct ng_incident *incident, struct ng_view *view, struct ng_verdict *verdict)
{
    struct ng_board *board = ng_guard.board;

    ng_report_line(verdict, incident->line, sizeof(incident->line));
    if (incident->level == NG_INCIDENT_TIMEOUT) {
        ng_wait_tell(incident->line, policy_of(incident));
        bound_the_end(incident);
    }
    struct ng_evidence *evidence = ng_evidence_create(view, verdict, ng_guard.dump_dir);
    write_evidence(incident, evidence);
    /* Once it is published, everybody ends. */
    incident->state = NG_INCIDENT_JUDGED;
    if (board) {
        int error = board->ops->publish(board, incident, evidence ? &evidence->verdict : verdict);
        if (error)
            ng_log(NG_LOG_ERROR, "cannot tell the other ranks the verdict: %s", strerror(-error));
    }
    ng_evidence_release(evidence);
    log_verdict(incident);
    /* It is passed over among the news, not jumped to: an order may stand before it. */
    if (incident->source == NG_SOURCE_JOB)
        own.deaths_dealt = own.ended_seen;
    if (incident->level == NG_INCIDENT_TIMEOUT)
        act(incident);
}

/* What nobody can explain, but has not moved either: the deadline holds all the same. */
static void cannot_explain(struct ng_verdict *verdict, const struct ng_incident *wanted)
{
    verdict->kind = NG_KIND_UNKNOWN;
    verdict->confidence = NG_CONFIDENCE_UNKNOWN;
    verdict->group_id = wanted->group_id;
    verdict->seq = wanted->seq;
    verdict->op = (enum ng_op)wanted->op;
    verdict->stalled_ns = 2 * wanted->stalled_ns;
}

static void end_examination(enum ng_incident_level level, bool found)
{
    if (ng_guard.board)
        ng_guard.board->ops->finish(ng_guard.board, level, found);
}

static void join_incident(struct ng_incident *incident);

/* Claim an incident for what we judged, and conduct it; or join the one that covers it. */
static void open_incident(const struct ng_incident *wanted, struct ng_view *view,
                          struct ng_verdict *verdict)
{
    struct ng_board *board = ng_guard.board;
    struct ng_incident incident = *wanted;

    /* Named for what the verdict is about: ranks are stuck in different places for one reason. */
    incident.group_id = verdict->group_id;
    incident.seq = verdict->seq;
    incident.op = verdict->op;
    ng_scope_find(view, verdict, &incident.scope);
    incident.claimant_rank = own_rank(view);
    incident.state = NG_INCIDENT_CLAIMED;
    struct ng_incident named = incident;
    int error = board ? board->ops->claim(board, &incident, &incident) : 0;
    if (error == -EEXIST && is_own(&incident) && incident.state == NG_INCIDENT_CLAIMED) {
        /* An earlier one of ours, whose verdict the board did not take. */
        named.supersedes = incident.epoch;
        incident = named;
        error = board->ops->claim(board, &incident, &incident);
    }
    if (error && error != -EEXIST) {
        ng_log(NG_LOG_WARN, "cannot claim the incident on the board (%s): acting alone",
               strerror(-error));
        error = 0;
    }
    end_examination(wanted->level, true);
    if (!error)
        conduct(&incident, view, verdict);
    else if (incident.epoch > own.seen_epoch[incident.source] &&
             incident.level == NG_INCIDENT_TIMEOUT && !is_own(&incident))
        join_incident(&incident);
    /* A suspicion of somebody else: its line comes as news from the board. */
}

/* Does a rank of the group that lives, another than this, let its clock rest? */
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

/* What a deadline of this group leads to, of which this process may know only what the view tells. */
static enum ng_on_timeout choose_policy(const struct ng_view *view, uint64_t group_id)
{
    struct ng_rules_group known = {.id = group_id, .name = "", .parent_name = "", .device = -1, .pci_id = ""};

    for (uint32_t i = 0; i < view->group_count; i++)
        if (view->groups[i].id == group_id) {
            known.name = view->groups[i].name;
            known.nranks = view->groups[i].nranks;
            known.parent_id = view->groups[i].parent_id;
        }
    for (uint32_t i = 0; i < view->group_count; i++)
        if (known.parent_id && view->groups[i].id == known.parent_id)
            known.parent_name = view->groups[i].name;
    return ng_rules_file_policy(&known);
}

/* The deadline holds though there is no verdict: for the group alone that is known to be stuck. */
static void act_unjudged(const struct ng_incident *wanted)
{
    struct ng_incident incident = *wanted;

    incident.scope = incident.group_id
                         ? (struct ng_scope){.count = 1, .groups = {incident.group_id}}
                         : NG_SCOPE_ALL;
    if (!incident.line[0])
        snprintf(incident.line, sizeof(incident.line), "unknown: a deadline has passed, and no "
                                                       "verdict could be reached");
    act(&incident);
}

/* Is that why an alarm was raised that somebody has waited for long? */
static bool is_about_time(const struct ng_alarm *alarm)
{
    return alarm && !alarm->watchdog && !alarm->async_error;
}

/* Judge what `wanted` is about, because of an alarm, or in somebody's place (NULL). `sure`: it is
 * stuck, though the evidence may not show it. */
static void examine(const struct ng_incident *wanted, bool sure, const struct ng_alarm *alarm)
{
    struct ng_verdict_query query = {.stalled_ns = wanted->stalled_ns,
                                     .watchdog = alarm && alarm->watchdog};
    bool deadline = wanted->level == NG_INCIDENT_TIMEOUT;
    struct ng_verdict verdict;
    struct ng_view view;

    int error = look(JOB, &view);
    if (!error && is_about_time(alarm) && others_rest(&view, wanted->group_id) &&
        ng_deadline_rest_with_others(wanted->group_id) == 0) {
        end_examination(wanted->level, false);
        ng_view_fini(&view);
        return;
    }
    if (error || judge(&view, &query, "none", &verdict) != 0) {
        end_examination(wanted->level, false);
        ng_view_fini(&view);
        if (deadline)
            act_unjudged(wanted);
        return;
    }
    if (verdict.kind == NG_KIND_HEALTHY && sure)
        cannot_explain(&verdict, wanted);
    struct ng_incident judged = *wanted;
    if (deadline) {
        enum ng_on_timeout policy = choose_policy(&view, verdict.group_id);
        verdict.action = ng_policy_name(policy);
        judged.policy = (int)policy + 1;
    }
    /* Healthy: it went on in the meantime. */
    if (verdict.kind == NG_KIND_HEALTHY)
        end_examination(wanted->level, false);
    else
        open_incident(&judged, &view, &verdict);
    ng_verdict_fini(&verdict);
    ng_view_fini(&view);
}

/* Follow somebody's incident; where its claimant does not come through, take its place, once. */
static void join_incident(struct ng_incident *incident)
{
    if (follow(incident))
        return;
    if (own.took_over) {
        snprintf(
            incident->line, sizeof(incident->line),
            "unknown: the ranks that worked out the verdict (pid %d the last) did not come through",
            incident->claimant_pid);
        log_verdict(incident);
        act_unjudged(incident);
        return;
    }
    own.took_over = true;
    ng_log(NG_LOG_WARN, "pid %d did not come through with its verdict: taking over",
           incident->claimant_pid);
    struct ng_incident wanted = *incident;
    wanted.supersedes = incident->epoch;
    examine(&wanted, true, NULL);
    own.took_over = false;
}

/* Somebody else looks at the job: its verdict may be about this alarm. If not, it is its turn
 * later. */
static void park(const struct ng_alarm *alarm)
{
    unsigned room = sizeof(own.parked) / sizeof(own.parked[0]);

    if (own.parked_count == room)
        return;
    own.parked[own.parked_count] = *alarm;
    own.parked_mono_ns[own.parked_count++] = ng_clock_mono_ns();
}

/* A verdict has come: those that waited for one of its level have it. */
static void unpark(const struct ng_incident *incident)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < own.parked_count; i++) {
        if (own.parked[i].level <= incident->level)
            continue;
        own.parked[kept] = own.parked[i];
        own.parked_mono_ns[kept++] = own.parked_mono_ns[i];
    }
    own.parked_count = kept;
    if (incident->source == NG_SOURCE_JOB)
        own.deaths_dealt = own.ended_seen;
}

/* Not all at once: thousands may be waiting. */
static void try_later(void)
{
    own.next_try_ns = ng_clock_mono_ns() + EXAMINE_PAUSE_NS +
                      (int64_t)((uint32_t)ng_clock_mono_ns() * UINT32_C(2654435761) >> 5);
}

/* Does the clock rest here by which an alarm was raised? Then it counts for nothing: the watchdog
 * raises it anew. */
static bool rests_here(uint64_t group_id)
{
    for (uint32_t i = 0, count = ng_comm_count(); group_id && i < count; i++) {
        const struct ng_comm *comm = ng_comm_at(i);
        if (NG_LOAD(comm->group->id) == group_id && NG_LOAD(comm->group->rests) == NG_REST_OWN)
            return true;
    }
    return !group_id && ng_deadline_rests(NULL);
}

/* Is what it was raised for being dealt with, or done with, by now? */
static bool is_settled(const struct ng_alarm *alarm)
{
    return ng_abort_concerns(alarm->group_id) ||
           (is_about_time(alarm) && rests_here(alarm->group_id)) ||
           (alarm->async_error &&
            (alarm->group_id == own.error_group || !ng_async_still(alarm)));
}

static void handle_alarm(const struct ng_alarm *alarm)
{
    /*
     * Others may have waited less than we and still be the reason, or stand before it. What has
     * lasted for half the suspect time is nothing ordinary.
     */
    int64_t unusual_ns = ng_guard.config.suspect_ns ? ng_guard.config.suspect_ns / 2 : 2 * NG_S;
    int64_t stalled_ns =
        alarm->age_ns / 2 < unusual_ns && !alarm->async_error ? alarm->age_ns / 2 : unusual_ns;
    struct ng_incident wanted = {.level = alarm->level,
                                 .group_id = alarm->group_id,
                                 .seq = alarm->seq,
                                 .op = alarm->op,
                                 .stalled_ns = stalled_ns,
                                 .since_mono_ns = ng_clock_mono_ns() - alarm->age_ns};

    if (is_settled(alarm))
        return;
    if (ng_guard.board && ng_guard.board->ops->begin(ng_guard.board, alarm->level) == -EBUSY) {
        park(alarm);
        try_later();
        return;
    }
    examine(&wanted,
            alarm->level == NG_INCIDENT_TIMEOUT && !alarm->async_error && ng_watchdog_still(alarm),
            alarm);
}

static void retry_parked(void)
{
    unsigned count = own.parked_count;
    struct ng_alarm again[sizeof(own.parked) / sizeof(own.parked[0])];

    if (!count || ng_clock_mono_ns() < own.next_try_ns)
        return;
    memcpy(again, own.parked, count * sizeof(again[0]));
    own.parked_count = 0;
    uint32_t restarts = ng_watchdog_restarts();
    /* An abort that comes of one may be what the others waited for. */
    for (unsigned i = 0; i < count && ng_watchdog_restarts() == restarts; i++) {
        /* What has gone on since needs no verdict. */
        again[i].age_ns += ng_clock_mono_ns() - own.parked_mono_ns[i];
        if (again[i].async_error || ng_watchdog_still(&again[i]))
            handle_alarm(&again[i]);
    }
}

/* A place for one more dump that somebody asked for; NULL: too many are under way. */
static struct ng_evidence **place_for_request(void)
{
    for (unsigned i = 0; i < REQUESTS_MAX; i++) {
        struct ng_evidence **place = &own.requested[i];
        if (!*place)
            return place;
        if (!ng_evidence_is_done(*place, NG_EVIDENCE_ALL))
            continue;
        ng_evidence_release(*place);
        *place = NULL;
        return place;
    }
    return NULL;
}

/* Dump ourselves into `folder`, as far as it can be had; nobody waits for it. */
static void dump_on_request(const char *folder, int rank)
{
    struct ng_evidence **place = place_for_request();
    struct ng_view view;
    uint32_t self;

    if (!place) {
        ng_log(NG_LOG_WARN, "no dump to %s: those that were asked for before do not come back",
               folder);
        return;
    }
    bool asked = look(HOST, &view) == 0 && find_self(&view, &self) &&
                 (rank < 0 || ng_dump_rank(&view, self) == rank);
    view.on_request = true;
    struct ng_evidence *evidence = asked ? ng_evidence_create(&view, NULL, folder) : NULL;
    if (evidence) {
        evidence->self = self;
        ng_evidence_begin(evidence, NG_EVIDENCE_SELF);
        *place = evidence;
    }
    ng_view_fini(&view);
}

static void read_dump_pipe(void)
{
    if (!ng_dump_pipe_asked())
        return;
    ng_log(NG_LOG_INFO, "a dump is asked for: evidence in %s", ng_guard.dump_dir);
    dump_on_request(ng_guard.dump_dir, -1);
}

/* `ncclguard dump` has written what the black boxes tell, and asks for what only we can add. */
static void obey_dump(const struct ng_incident *incident)
{
    /* A folder's name counts on the host where it was given. */
    dump_on_request(incident->source == NG_SOURCE_HOST ? incident->line : ng_guard.dump_dir,
                    (int)incident->seq - 1);
}

int ng_incident_dump(const char *folder)
{
    struct ng_evidence **place = place_for_request();
    struct ng_view view;
    uint32_t self;

    if (!place)
        return -EBUSY;
    int error = look(HOST, &view);
    view.on_request = true;
    if (!error && !find_self(&view, &self))
        error = -ENOENT;
    struct ng_evidence *evidence =
        error ? NULL : ng_evidence_create(&view, NULL, *folder ? folder : ng_guard.dump_dir);
    if (!error && !evidence)
        error = -ENOMEM;
    if (evidence) {
        evidence->self = self;
        ng_evidence_begin(evidence, NG_EVIDENCE_SELF);
        if (!ng_evidence_await(evidence, NG_EVIDENCE_OWN, ng_clock_mono_ns() + WRITE_NS))
            error = -ETIMEDOUT;
        *place = evidence;
    }
    ng_view_fini(&view);
    return error;
}

/* A person's order. */
static void obey_abort(const struct ng_incident *incident)
{
    ng_log(NG_LOG_WARN, "%s", incident->line);
    struct ng_scope scope = {.all = !incident->group_id, .count = incident->group_id ? 1 : 0};
    scope.groups[0] = incident->group_id;
    int error = ng_abort_groups(&scope, incident->line, NG_ABORT_PERSON);
    if (error && error != -ENOENT)
        ng_log(NG_LOG_ERROR, "cannot abort: %s", strerror(-error));
}

/* Suspended, or resumed: also those that come to know it late, for what is left. */
static void obey_rest(const struct ng_incident *incident)
{
    int64_t for_ns = incident->stalled_ns,
            until = for_ns < INT64_MAX - incident->claimed_mono_ns
                        ? incident->claimed_mono_ns + for_ns
                        : INT64_MAX;

    ng_log(NG_LOG_WARN, "%s", incident->line);
    if (for_ns <= 0)
        ng_deadline_resume(incident->group_id);
    else if (ng_deadline_suspend(incident->group_id, until) != 0)
        ng_log(NG_LOG_ERROR, "too many groups are suspended one by one: this one is not");
}

static void obey_reload(const struct ng_incident *incident)
{
    ng_log(NG_LOG_WARN, "%s", incident->line);
    ng_rules_file_reload();
}

/* What a person orders; each is dealt with by itself. */
static void (*const obey[NG_INCIDENT_LIMIT])(const struct ng_incident *incident) = {
    [NG_INCIDENT_ABORT] = obey_abort,
    [NG_INCIDENT_DUMP] = obey_dump,
    [NG_INCIDENT_REST] = obey_rest,
    [NG_INCIDENT_RELOAD] = obey_reload,
};

/* News from the board: incidents that others claimed. */
static void read_news(enum ng_incident_source source)
{
    struct ng_board *board = ng_guard.board;
    struct ng_incident incident;
    uint64_t epoch = own.seen_epoch[source];

    while (board->ops->next(board, source, epoch, &incident) == 0) {
        epoch = incident.epoch;
        if (is_own(&incident)) {
            deal_done(&incident);
        } else if (incident.level == NG_INCIDENT_TIMEOUT) {
            join_incident(&incident);
            unpark(&incident);
        } else if (incident.level < NG_INCIDENT_LIMIT && obey[incident.level]) {
            obey[incident.level](&incident);
            deal_done(&incident);
        } else if (incident.state == NG_INCIDENT_JUDGED) {
            save_foreign_verdict(&incident);
            log_verdict(&incident);
            deal_done(&incident);
            unpark(&incident);
        } else if (!board->ops->claimant_alive(board, &incident)) {
            deal_done(&incident);
        }
    }
}

/* Has anything of this process waited for so long: work on a device, or a thread inside a call? */
static bool something_pending(int64_t for_ns)
{
    struct ng_box *box = &ng_guard.box;
    int64_t now = ng_clock_mono_ns();
    uint32_t groups = NG_LOAD(box->header->group_used), threads = NG_LOAD(box->header->thread_used);

    for (uint32_t i = 0; i < groups; i++)
        if (NG_LOAD(box->groups[i].pending_record) &&
            NG_LOAD(box->groups[i].pending_age_ns) >= for_ns)
            return true;
    for (uint32_t i = 0; i < threads; i++)
        if (NG_LOAD(box->threads[i].op) && now - NG_LOAD(box->threads[i].since_mono_ns) >= for_ns)
            return true;
    return false;
}

/* Has a process ended that pending work needs? */
static void check_deaths(void)
{
    const struct ng_verdict_query query = {.stalled_ns = DEATH_STALL_NS};
    struct ng_board *board = ng_guard.board;
    int64_t now = ng_clock_mono_ns();
    uint32_t ended = board->ops->ended(board);
    struct ng_verdict verdict;
    struct ng_view view;

    if (own.deaths_dealt == ended && ended != 0) {
        own.ended_seen = ended;
        return;
    }
    if (ended != own.ended_seen) {
        own.ended_seen = ended;
        own.death_checks = 0;
        own.next_death_check_ns = now;
    }
    if (!ended || ng_guard.config.suspect_ns == 0 || now < own.next_death_check_ns)
        return;
    own.next_death_check_ns = now + (own.death_checks++ < DEATH_CHECKS ? DEATH_CHECK_NS : NG_S);
    if (!something_pending(DEATH_STALL_NS))
        return;
    if (now < own.next_try_ns)
        return;
    if (board->ops->begin(board, NG_INCIDENT_SUSPECT) == -EBUSY) {
        try_later();
        return;
    }
    bool opened = false;
    if (look(JOB, &view) == 0 && judge(&view, &query, "none", &verdict) == 0) {
        /* Who leaves while others still tidy up has done its part; who dies there too. */
        bool tidying = ng_op_table[verdict.op].op_class == NG_CLASS_END;
        bool death =
            !tidying && (verdict.kind == NG_KIND_DEAD_RANK || verdict.kind == NG_KIND_LEFT_EARLY);
        if (death && (verdict.group_id != own.death_group || verdict.seq != own.death_seq)) {
            struct ng_incident wanted = {.level = NG_INCIDENT_SUSPECT,
                                         .group_id = verdict.group_id,
                                         .seq = verdict.seq,
                                         .op = verdict.op,
                                         .stalled_ns = DEATH_STALL_NS,
                                         .since_mono_ns = ng_clock_mono_ns() - verdict.stalled_ns};
            own.death_group = verdict.group_id;
            own.death_seq = verdict.seq;
            opened = true;
            open_incident(&wanted, &view, &verdict);
        }
        ng_verdict_fini(&verdict);
    }
    if (!opened)
        end_examination(NG_INCIDENT_SUSPECT, false);
    ng_view_fini(&view);
}

/*
 * The watchdog itself does not come round: it hangs in a call of CUDA, or in the dynamic linker.
 * Then the clocks of what it last saw in flight go on here, credited like its own, so that a
 * deadline holds all the same.
 */
static void stand_in_for_watchdog(void)
{
    struct ng_box *box = &ng_guard.box;
    int64_t now = ng_clock_mono_ns(), step = now - own.stood_in_ns;
    int64_t watched = NG_LOAD(box->header->watchdog_mono_ns);
    uint32_t groups = NG_LOAD(box->header->group_used);

    own.stood_in_ns = now;
    if (step > ROUND_MS * NG_MS + NG_S)
        step = ROUND_MS * NG_MS + NG_S;
    if (watched != own.watched_ns) {
        own.watched_ns = watched;
        own.silence_ns = 0;
        own.silence_told = false;
        return;
    }
    own.silence_ns += step;
    if (own.silence_ns < WATCHDOG_SILENCE_NS)
        return;
    if (!own.silence_told)
        ng_log(NG_LOG_WARN,
               "the watchdog has not come round for %.0f s: a call of CUDA does not return",
               (double)own.silence_ns / 1e9);
    ng_deadline_tend(now);
    for (uint32_t i = 0; i < groups; i++) {
        struct ng_box_group *group = &box->groups[i];
        if (!NG_LOAD(group->pending_record))
            continue;
        /* The watchdog writes this, but it does not run; the first time makes up for the whole
         * silence. */
        int64_t before = NG_LOAD(group->pending_age_ns), timeout = NG_LOAD(group->timeout_ns);
        int64_t age = before + (own.silence_told ? step : own.silence_ns);
        if (NG_LOAD(group->rests))
            continue;
        NG_STORE(group->pending_age_ns, age);
        if (timeout <= 0 || before >= timeout || age < timeout)
            continue;
        struct ng_alarm alarm = {.level = NG_INCIDENT_TIMEOUT,
                                 .group_id = NG_LOAD(group->id),
                                 .seq = NG_LOAD(group->pending_seq),
                                 .age_ns = age,
                                 .restarts = ng_watchdog_restarts()};
        ng_wait_expire(i, now - age);
        handle_alarm(&alarm);
    }
    own.silence_told = true;
}

static int next_round_ms(void)
{
    int64_t left_ms = ROUND_MS;

    if (ng_guard.board && own.ended_seen && ng_guard.config.suspect_ns)
        left_ms = (own.next_death_check_ns - ng_clock_mono_ns()) / NG_MS + 1;
    if (own.group_unknown && left_ms > GROUP_ROUND_MS)
        left_ms = GROUP_ROUND_MS;
    if (own.parked_count && (own.next_try_ns - ng_clock_mono_ns()) / NG_MS + 1 < left_ms)
        left_ms = (own.next_try_ns - ng_clock_mono_ns()) / NG_MS + 1;
    if (own.request_ms >= 0 && own.request_ms < left_ms)
        left_ms = own.request_ms;
    return left_ms < 1 ? 1 : left_ms > ROUND_MS ? ROUND_MS : (int)left_ms;
}

static void wait_alone(const struct ng_descriptor *kick, int timeout_ms)
{
    uint64_t count;
    struct pollfd poll_kick = {.fd = ng_descriptor_ours(kick) ? kick->fd : -1, .events = POLLIN};
    int ready = poll(&poll_kick, 1, timeout_ms);
    if (ready < 0) {
        struct timespec pause = {.tv_nsec = 100 * NG_MS};
        nanosleep(&pause, NULL);
    } else if (ready > 0 && read(kick->fd, &count, sizeof(count)) < 0) {
        return;
    }
}

static void *attend(void *unused)
{
    struct ng_board *board = ng_guard.board;
    struct ng_alarm alarm;

    ng_guard.adopt_thread();
    own.stood_in_ns = ng_clock_mono_ns();
    own.request_ms = -1;
    while (!atomic_load(&stopping)) {
        unsigned happened = 0;
        if (board)
            happened = board->ops->wait(board, &kick_event, next_round_ms());
        else
            wait_alone(&kick_event, next_round_ms());
        ng_guard_beat();
        ng_policy_tend();
        if (atomic_load(&stopping))
            break;
        for (int source = 0; board && source < NG_SOURCES; source++)
            read_news((enum ng_incident_source)source);
        while (take_alarm(&alarm))
            handle_alarm(&alarm);
        retry_parked();
        own.request_ms = ng_request_serve(happened & NG_BOARD_INCIDENT);
        read_dump_pipe();
        if (board)
            check_deaths();
        own.group_unknown = ng_grown_tend(&ng_guard.box, board);
        stand_in_for_watchdog();
        if (ng_guard_is_alone()) {
            /* The last thread of a process to end calls exit, which is what ours kept it from. */
            atomic_store(&left_alone, true);
            ng_watchdog_quit();
            ng_completion_quit();
            ng_status_quit();
            ng_monitor_quit();
            ng_policy_finish();
            ng_tasks_finish();
            break;
        }
    }
    ng_request_close();
    if (board && !atomic_load(&left_alone))
        board->ops->leave(board);
    ng_dump_pipe_finish();
    atomic_store(&stopped, true);
    return unused;
}

int ng_incident_start(void)
{
    /* Where there is none to be had, it comes round by itself. */
    kick_event = ng_descriptor_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return ng_guard_thread("ncclguard/board", attend);
}

bool ng_incident_finish(int bound_ms)
{
    /* Without the event, the thread may sleep until its next round. */
    int more_ms = ng_descriptor_ours(&kick_event) ? 0 : ROUND_MS;
    int64_t until = ng_clock_mono_ns() + (bound_ms + more_ms) * NG_MS;
    struct timespec pause = {.tv_nsec = NG_MS};

    atomic_store(&stopping, true);
    ng_incident_wake();
    while (!atomic_load(&stopped) && ng_clock_mono_ns() < until)
        nanosleep(&pause, NULL);
    if (atomic_exchange(&left_alone, false) && ng_guard.board)
        ng_guard.board->ops->leave(ng_guard.board);
    return atomic_load(&stopped);
}

void ng_incident_after_fork(void)
{
    alarm_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    alarm_count = 0;
    ng_descriptor_close(&kick_event);
    ng_request_after_fork();
    atomic_store(&stopping, false);
    atomic_store(&stopped, false);
    atomic_store(&left_alone, false);
    memset(&own, 0, sizeof(own));
}
