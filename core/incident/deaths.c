/*
 * Reactions to ends of other processes.
 */
#include "core/incident/deaths.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "core/check/signature_compare.h"
#include "core/comm/comm.h"
#include "core/device/async.h"
#include "core/incident/alarm_retry.h"
#include "core/incident/alarms.h"
#include "core/incident/incident_claim.h"
#include "core/incident/incident_response.h"
#include "core/incident/job_snapshot.h"
#include "core/incident/known_deaths.h"
#include "core/nccl/board.h"
#include "core/nccl/nccl.h"
#include "core/nccl/op.h"
#include "core/runtime/alarm.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/verdict/verdict.h"

#define DEATH_CHECK_NS        (100 * NG_MS)
#define DEATH_CHECKS          20            /* at this pace after a death, then once a second */
#define WATCHED_CHECK_NS      (10 * NG_MS)  /* until the watchdogs have looked since a death, */
#define WATCHED_WAIT_NS       NG_S          /* for at most this long */
#define LOOK_SHARE            10            /* checks take at most 1/LOOK_SHARE of the time */
#define REMOTE_ERROR_STALL_NS NG_MS         /* enough if NCCL itself reports a peer as gone */
#define REMOTE_ERROR_CHECK_NS (20 * NG_MS)  /* check period until the peer is identified, */
#define REMOTE_ERROR_WAIT_NS  (300 * NG_MS) /* for at most this long, */
#define REMOTE_ERROR_STORE_NS NG_S          /* or this long if other hosts must be queried, */
#define REMOTE_ERROR_PAUSE_NS (5 * NG_S)    /* and at most this often */

static NG_FORGOTTEN struct {
    unsigned death_checks;
    int64_t noticed_mono_ns; /* when this thread learned of the newest end; 0 of none */
    int64_t next_death_check_ns;
    int64_t next_remote_error_check_ns;
    uint32_t preferred_at; /* this many had ended when this process was last given priority */
} own;

/* Dead peers that NCCL has reported to program threads, which write it; the incident thread writes
 * `answered_mono_ns`. */
static NG_FORGOTTEN struct {
    _Atomic int64_t reported_mono_ns; /* the newest report; 0 none */
    _Atomic int64_t answered_mono_ns; /* the newest report that was examined */
} remote_errors;

static int64_t patience_ns(void)
{
    const char *store = ng_guard.config.store;

    return store && strncmp(store, "redis", 5) == 0 ? REMOTE_ERROR_STORE_NS : REMOTE_ERROR_WAIT_NS;
}

static bool is_unanswered(void)
{
    return atomic_load(&remote_errors.reported_mono_ns) !=
           atomic_load(&remote_errors.answered_mono_ns);
}

void ng_deaths_await_report(struct ng_comm *comm)
{
    int64_t now = ng_clock_mono_ns(), before = atomic_load(&remote_errors.reported_mono_ns);
    int kept = errno;

    if (comm)
        ng_async_record_answer(comm, NG_NCCL_REMOTE_ERROR);
    if (ng_guard.board && ng_guard.config.suspect_ns && atomic_load(&ng_guard.running) &&
        (!comm || ng_comm_is_let_live(comm)) &&
        (!before || now - before >= REMOTE_ERROR_PAUSE_NS) &&
        atomic_compare_exchange_strong(&remote_errors.reported_mono_ns, &before, now)) {
        ng_wake_incident();
        while (is_unanswered() && ng_clock_mono_ns() - now < patience_ns())
            ng_clock_sleep(NG_MS);
    }
    errno = kept;
}

/* Has work on a device, or a thread inside a call, waited for this long in this process? */
static bool something_pending(int64_t for_ns)
{
    struct ng_box *box = &ng_guard.box;
    int64_t now = ng_clock_mono_ns();
    uint32_t groups = NG_LOAD(box->header->group_used), threads = NG_LOAD(box->header->thread_used);

    NG_EACH (group, box->groups, groups)
        if (NG_LOAD(group->pending_record) && NG_LOAD(group->pending_age_ns) >= for_ns)
            return true;
    return NG_ANY(one, box->threads, threads,
                  NG_LOAD(one->op) && now - NG_LOAD(one->since_mono_ns) >= for_ns);
}

/* Are watchdogs that have not looked since the newest end still waited for? What they show may be
 * over: where processors are scarce, a rank is calls ahead of what its watchdog has seen. */
static bool awaits_watchdogs(int64_t now)
{
    return own.noticed_mono_ns && now - own.noticed_mono_ns < WATCHED_WAIT_NS;
}

static bool is_own_look_old(int64_t now)
{
    return awaits_watchdogs(now) &&
           NG_LOAD(ng_guard.box.header->watchdog_mono_ns) < own.noticed_mono_ns;
}

/* Does the view show work in flight as a watchdog saw it before the newest end? */
static bool is_any_look_old(const struct ng_view *view)
{
    int64_t now = ng_clock_mono_ns();

    if (!awaits_watchdogs(now))
        return false;
    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct ng_view_process *process = &view->processes[view->members[i].process];
        if (view->members[i].pending_record && process->life == NG_LIFE_RUNNING &&
            process->watched_age_ns > now - own.noticed_mono_ns)
            return true;
    }
    return false;
}

/* Does the verdict report an end that was not reported before? *ret_wanted is its subject. */
static bool is_news(const struct ng_verdict *verdict, struct ng_incident *ret_wanted)
{
    *ret_wanted = (struct ng_incident){.level = NG_INCIDENT_SUSPECT,
                                       .group_id = verdict->group_id,
                                       .seq = verdict->seq,
                                       .op = verdict->op,
                                       .stalled_ns = NG_KNOWN_DEATHS_STALL_NS,
                                       .since_mono_ns = ng_clock_mono_ns() - verdict->stalled_ns};
    /* A rank that left because another one does not answer is reported only once it is known
     * whether that other one is gone; ranks of a host that are lost, once it is known which. */
    if (!ng_known_deaths_is_end(verdict->kind) || verdict->may_be_gone || verdict->more_may_be_lost)
        return false;
    /* A rank that leaves or dies while others still clean up has done its part. A rank that leaves
     * a group whose calls differ does so because of that report. */
    if (ng_op_table[verdict->op].op_class == NG_CLASS_END ||
        ng_signature_compare_is_reported(verdict->group_id))
        return false;
    /* A rank that ends after the deadline ends because of the verdict, which does not change; but
     * where the deadline was only logged, a missing rank may also die. */
    if (ng_response_has_reported_call(ret_wanted)) {
        ret_wanted->kind = ng_known_deaths_outdoing(verdict);
        ret_wanted->level = NG_INCIDENT_TIMEOUT;
        if (ng_response_has_reported_call(ret_wanted))
            return false;
    }
    return !ng_known_deaths_reported(verdict->group_id, verdict->seq);
}

enum found { NOTHING, TOLD, NEWS };

/* Take a view and judge it: does a rank wait for one that ended, and was that not reported before?
 * If so, the caller frees view and verdict. */
static enum found look_for_news(enum ng_snapshot_range range, int64_t stalled_ns,
                                struct ng_view *ret_view, struct ng_verdict *ret_verdict,
                                struct ng_incident *ret_wanted)
{
    const struct ng_verdict_query query = {.stalled_ns = stalled_ns, .ends = true};
    enum found found = NOTHING;

    if (ng_snapshot_take(range, ret_view) == 0 &&
        !(stalled_ns == NG_KNOWN_DEATHS_STALL_NS && is_any_look_old(ret_view)) &&
        ng_snapshot_judge(ret_view, &query, "none", ret_verdict) == 0) {
        if (is_news(ret_verdict, ret_wanted))
            return NEWS;
        /* The wait that it gave up was reported, or will be when others have waited for as long. */
        if (ret_verdict->gave_up_ns)
            ng_known_deaths_start_clock(ret_verdict->group_id, ret_verdict->seq, ret_verdict->op);
        found = ng_known_deaths_is_end(ret_verdict->kind) && !ret_verdict->may_be_gone &&
                        !ret_verdict->more_may_be_lost
                    ? TOLD
                    : NOTHING;
        ng_verdict_fini(ret_verdict);
    }
    ng_view_fini(ret_view);
    return found;
}

/* Do the black boxes of this host show that work waits for a rank that is gone? Does not query
 * other hosts. */
static bool is_seen_here(void)
{
    struct ng_incident wanted;
    struct ng_verdict verdict;
    struct ng_view view;

    if (look_for_news(NG_SNAPSHOT_HOST, NG_KNOWN_DEATHS_STALL_NS, &view, &verdict, &wanted) != NEWS)
        return false;
    ng_verdict_fini(&verdict);
    ng_view_fini(&view);
    return true;
}

/* Get a turn to examine the whole job. A process that already sees the cause goes before those that
 * only check whether there is one; once per end, since the whole job may show a deeper cause. */
static bool take_turn(uint32_t ended)
{
    struct ng_board *board = ng_guard.board;

    if (board->ops->begin(board, NG_INCIDENT_SUSPECT, NG_CAUSE_END) != -EBUSY)
        return true;
    if (own.preferred_at == ended || !is_seen_here() ||
        board->ops->begin(board, NG_INCIDENT_SUSPECT, NG_CAUSE_OWN) == -EBUSY)
        return false;
    own.preferred_at = ended;
    return true;
}

/* The deadline of the call was reported, and is now explained by a death: judged as at a deadline,
 * of which each level has its own turn. */
static void tell_after_deadline(const struct ng_verdict *verdict)
{
    const struct ng_alarm alarm = {.level = NG_INCIDENT_TIMEOUT,
                                   .death = true,
                                   .group_id = verdict->group_id,
                                   .seq = verdict->seq,
                                   .op = verdict->op,
                                   .age_ns = verdict->stalled_ns,
                                   .restarts = ng_alarm_restarts()};

    ng_claim_end(NG_INCIDENT_SUSPECT, false);
    ng_alarms_handle(&alarm);
}

/* This process has the turn: report an end that was not reported before. */
static enum found tell_news(int64_t stalled_ns)
{
    struct ng_incident wanted;
    struct ng_verdict verdict;
    struct ng_view view;

    enum found found = look_for_news(NG_SNAPSHOT_JOB, stalled_ns, &view, &verdict, &wanted);
    if (found != NEWS)
        return found;
    ng_known_deaths_report(verdict.group_id, verdict.seq);
    if (wanted.level == NG_INCIDENT_TIMEOUT) {
        tell_after_deadline(&verdict);
    } else {
        ng_known_deaths_start_clock(verdict.group_id, verdict.seq, verdict.op);
        if (ng_guard.config.suspect_ns)
            ng_claim_open(&wanted, &view, &verdict);
        else
            ng_claim_end(NG_INCIDENT_SUSPECT, true);
    }
    ng_verdict_fini(&verdict);
    ng_view_fini(&view);
    return NEWS;
}

/*
 * NCCL has reported a peer as gone, perhaps before it is: a process closes its connections just
 * before it ends. If any process has just reported an end, that is the answer: ranks that leave
 * because of it fail the calls of others in turn, and thousands of ranks need not check.
 */
static void answer_remote_error(int64_t now)
{
    struct ng_board *board = ng_guard.board;
    int64_t reported = atomic_load(&remote_errors.reported_mono_ns);
    int64_t end_mono_ns = ng_known_deaths_reported_mono_ns();
    bool over = now - reported >= patience_ns() ||
                (end_mono_ns && now - end_mono_ns < REMOTE_ERROR_PAUSE_NS);

    if (!over && now < own.next_remote_error_check_ns)
        return;
    own.next_remote_error_check_ns = now + REMOTE_ERROR_CHECK_NS;
    if (!over && board->ops->begin(board, NG_INCIDENT_SUSPECT, NG_CAUSE_OWN) != -EBUSY) {
        enum found found = tell_news(REMOTE_ERROR_STALL_NS);
        if (found != NEWS)
            ng_claim_end(NG_INCIDENT_SUSPECT, false);
        /* A check takes long if a process does not answer. One that lasts beyond the wait would
         * keep a program that then exits from reporting that to the store. */
        int64_t looked = ng_clock_mono_ns();
        over = found != NOTHING || looked - reported + (looked - now) >= patience_ns();
    }
    if (!over)
        return;
    own.next_remote_error_check_ns = 0;
    atomic_store(&remote_errors.answered_mono_ns, reported);
}

/* Are ends reported or acted on at all? */
static bool is_wanted(void)
{
    return ng_guard.config.suspect_ns || ng_guard.config.death_timeout_ns;
}

/* Check whether a process has ended that pending work needs. */
void ng_deaths_check(void)
{
    struct ng_board *board = ng_guard.board;
    struct ng_alarm alarm;

    if (ng_known_deaths_tend_clock(&alarm))
        ng_alarms_handle(&alarm);
    int64_t now = ng_clock_mono_ns();
    uint32_t ended = board->ops->ended(board);
    if (is_unanswered()) {
        answer_remote_error(now);
        return;
    }
    bool more = ng_known_deaths_see(ended);
    if (!ng_known_deaths_are_open())
        return;
    if (more) {
        own.death_checks = 0;
        own.next_death_check_ns = own.noticed_mono_ns = now;
        ng_wake_watchdog();
    }
    if (!is_wanted() || now < own.next_death_check_ns)
        return;
    if (is_own_look_old(now)) {
        own.next_death_check_ns = now + WATCHED_CHECK_NS;
        return;
    }
    own.next_death_check_ns = now + (own.death_checks++ < DEATH_CHECKS ? DEATH_CHECK_NS : NG_S);
    if (!something_pending(NG_KNOWN_DEATHS_STALL_NS) || !ng_alarm_retry_is_due())
        return;
    if (!take_turn(ended)) {
        ng_alarm_retry_pause();
    } else if (tell_news(NG_KNOWN_DEATHS_STALL_NS) != NEWS) {
        ng_claim_end(NG_INCIDENT_SUSPECT, true);
    }
    /* With many processes a check takes long; it must not use all of this thread's time. */
    int64_t pause_ns = LOOK_SHARE * (ng_clock_mono_ns() - now);
    pause_ns = NG_MIN(pause_ns, NG_S);
    own.next_death_check_ns = NG_MAX(own.next_death_check_ns, now + pause_ns);
}

bool ng_deaths_are_due(int64_t *ret_due_ns)
{
    bool looks = ng_known_deaths_are_open() && is_wanted();
    int64_t clock_ns = ng_known_deaths_clock_due_ns();

    *ret_due_ns = is_unanswered() ? own.next_remote_error_check_ns
                  : looks         ? own.next_death_check_ns
                                  : INT64_MAX;
    *ret_due_ns = NG_MIN(*ret_due_ns, clock_ns);
    return *ret_due_ns != INT64_MAX;
}
