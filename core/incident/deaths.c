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
#include "core/comm/deadline.h"
#include "core/device/async.h"
#include "core/incident/alarms.h"
#include "core/incident/incident_claim.h"
#include "core/incident/incident_response.h"
#include "core/incident/job_snapshot.h"
#include "core/nccl/board.h"
#include "core/nccl/nccl.h"
#include "core/nccl/op.h"
#include "core/runtime/alarm.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/verdict/verdict.h"

#define DEATH_CHECK_NS        (100 * NG_MS)
#define DEATH_CHECKS          20            /* at this pace after a death, then once a second */
#define LOOK_SHARE            10            /* checks take at most 1/LOOK_SHARE of the time */
#define REMOTE_ERROR_STALL_NS NG_MS         /* enough if NCCL itself reports a peer as gone */
#define REMOTE_ERROR_CHECK_NS (20 * NG_MS)  /* check period until the peer is identified, */
#define REMOTE_ERROR_WAIT_NS  (300 * NG_MS) /* for at most this long, */
#define REMOTE_ERROR_STORE_NS NG_S          /* or this long if other hosts must be queried, */
#define REMOTE_ERROR_PAUSE_NS (5 * NG_S)    /* and at most this often */
#define CLOCK_STEP_NS                                                                              \
    (2 * NG_S) /* a round of this thread including its work; a longer gap means the process was    \
                  stopped */
#define CLOCKS_NS NG_S /* ages differ by less between watchdogs and hosts */

static struct {
    uint32_t ended_seen;   /* ended processes of the job at the last check */
    uint32_t deaths_dealt; /* this many of them at the last verdict of any process */
    unsigned death_checks;
    int64_t next_death_check_ns;
    uint64_t death_group, death_seq; /* of the last verdict on a death */
    int64_t reported_end_mono_ns;    /* when it was reported; 0 never */
    int64_t next_remote_error_check_ns;
    uint32_t preferred_at; /* this many had ended when this process was last given priority */
} own;

/* The NCCLGUARD_DEATH_TIMEOUT clock: runs from the first report of an end that others wait for. It
 * pauses when deadlines pause. */
static struct {
    bool runs;
    uint64_t group, seq; /* of the call in which they wait */
    uint32_t op;
    int64_t read_ns, waited_ns, due_ns; /* last read; time counted so far; time to reach */
} death_clock;

/* Dead peers that NCCL has reported to program threads, which write it; the incident thread writes
 * `answered_mono_ns`. */
static struct {
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

void ng_deaths_hear(struct ng_comm *comm)
{
    struct timespec pause = {.tv_nsec = NG_MS};
    int64_t now = ng_clock_mono_ns(), before = atomic_load(&remote_errors.reported_mono_ns);
    int kept = errno;

    if (comm)
        ng_async_heard(comm, NG_NCCL_REMOTE_ERROR);
    if (ng_guard.board && ng_guard.config.suspect_ns && atomic_load(&ng_guard.running) &&
        (!comm || ng_comm_is_let_live(comm)) &&
        (!before || now - before >= REMOTE_ERROR_PAUSE_NS) &&
        atomic_compare_exchange_strong(&remote_errors.reported_mono_ns, &before, now)) {
        ng_wake_incident();
        while (is_unanswered() && ng_clock_mono_ns() - now < patience_ns())
            nanosleep(&pause, NULL);
    }
    errno = kept;
}

/* Has work on a device, or a thread inside a call, waited for this long in this process? */
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

static bool is_about_end(const struct ng_verdict *verdict)
{
    return verdict->kind == NG_KIND_DEAD_RANK || verdict->kind == NG_KIND_LEFT_EARLY;
}

/* Is it about an end, or about what a rank that has ended since waited for? */
static bool has_end(const struct ng_verdict *verdict)
{
    return is_about_end(verdict) || verdict->gave_up_ns;
}

/* Does the verdict report an end that was not reported before? *ret_wanted is its subject. */
static bool is_news(const struct ng_verdict *verdict, struct ng_incident *ret_wanted)
{
    *ret_wanted = (struct ng_incident){.level = NG_INCIDENT_SUSPECT,
                                       .group_id = verdict->group_id,
                                       .seq = verdict->seq,
                                       .op = verdict->op,
                                       .stalled_ns = NG_DEATHS_STALL_NS,
                                       .since_mono_ns = ng_clock_mono_ns() - verdict->stalled_ns};
    /* A rank that left because another one does not answer is reported only once it is known
     * whether that other one is gone. */
    if (!is_about_end(verdict) || verdict->may_be_gone)
        return false;
    /* A rank that leaves or dies while others still clean up has done its part. A rank that leaves
     * a group whose calls differ was told to. */
    if (ng_op_table[verdict->op].op_class == NG_CLASS_END ||
        ng_signature_compare_is_told(verdict->group_id))
        return false;
    /* A rank that ends after the deadline ends because of the verdict, which does not change. */
    if (ng_response_has_reported_call(ret_wanted))
        return false;
    return verdict->group_id != own.death_group || verdict->seq != own.death_seq;
}

/* An end that others wait for in this call is known. A clock that is already running for an earlier
 * end is kept. */
static void start_clock(uint64_t group, uint64_t seq, uint32_t op)
{
    if (death_clock.runs || !ng_guard.config.death_timeout_ns)
        return;
    death_clock.runs = true;
    death_clock.group = group;
    death_clock.seq = seq;
    death_clock.op = op;
    death_clock.read_ns = ng_clock_mono_ns();
    death_clock.waited_ns = 0;
    death_clock.due_ns = ng_guard.config.death_timeout_ns;
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
        ng_snapshot_judge(ret_view, &query, "none", ret_verdict) == 0) {
        if (is_news(ret_verdict, ret_wanted))
            return NEWS;
        /* The wait that it gave up was reported, or will be when others have waited for as long. */
        if (ret_verdict->gave_up_ns)
            start_clock(ret_verdict->group_id, ret_verdict->seq, ret_verdict->op);
        found = is_about_end(ret_verdict) && !ret_verdict->may_be_gone ? TOLD : NOTHING;
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

    if (look_for_news(NG_SNAPSHOT_HOST, NG_DEATHS_STALL_NS, &view, &verdict, &wanted) != NEWS)
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

/* Are deadlines paused for the group or, if this process is not a member, for the job? */
static bool clock_rests(void)
{
    for (uint32_t i = 0, count = ng_comm_count(); i < count; i++)
        if (NG_LOAD(ng_comm_at(i)->group->id) == death_clock.group)
            return ng_deadline_rests(ng_comm_at(i));
    return ng_deadline_rests(NULL);
}

/* When the clock is due, the whole job is judged as at a deadline: ng_deaths_may_act. The clock
 * keeps running meanwhile, in case the policy does not act. */
static void tend_clock(void)
{
    int64_t now = ng_clock_mono_ns(), step = now - death_clock.read_ns;

    if (!death_clock.runs)
        return;
    death_clock.read_ns = now;
    if (!clock_rests())
        death_clock.waited_ns += step < CLOCK_STEP_NS ? step : CLOCK_STEP_NS;
    if (death_clock.waited_ns < death_clock.due_ns)
        return;
    struct ng_alarm alarm = {.level = NG_INCIDENT_TIMEOUT,
                             .death = true,
                             .group_id = death_clock.group,
                             .seq = death_clock.seq,
                             .op = (enum ng_op)death_clock.op,
                             .age_ns = death_clock.waited_ns,
                             .restarts = ng_alarm_restarts()};
    death_clock.due_ns = death_clock.waited_ns + NG_S;
    ng_alarms_handle(&alarm);
}

/* How long the call has waited for a rank that ended: call and rank may differ from those that
 * started the clock. */
static int64_t waited_for_end(const struct ng_verdict *verdict)
{
    int64_t gone_ns = verdict->gave_up_ns;

    for (uint32_t i = 0; i < verdict->culprit_count; i++)
        if (verdict->culprits[i].gone_ns > gone_ns)
            gone_ns = verdict->culprits[i].gone_ns;
    return gone_ns && gone_ns < verdict->stalled_ns ? gone_ns : verdict->stalled_ns;
}

bool ng_deaths_may_act(const struct ng_verdict *verdict)
{
    int64_t timeout_ns = ng_guard.config.death_timeout_ns;
    bool certain = !verdict->may_be_gone &&
                   (verdict->confidence == NG_CONFIDENCE_CERTAIN || verdict->end_is_certain);
    int64_t waited_ns = certain ? waited_for_end(verdict) : 0;

    death_clock.runs = has_end(verdict) && ng_op_table[verdict->op].op_class != NG_CLASS_END;
    if (!death_clock.runs)
        return false;
    death_clock.runs = !certain || waited_ns + CLOCKS_NS < timeout_ns;
    death_clock.due_ns =
        death_clock.waited_ns + (timeout_ns - waited_ns > NG_S ? timeout_ns - waited_ns : NG_S);
    return !death_clock.runs;
}

static void note(uint64_t group, uint64_t seq)
{
    own.death_group = group;
    own.death_seq = seq;
    own.reported_end_mono_ns = ng_clock_mono_ns();
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
    note(verdict.group_id, verdict.seq);
    start_clock(verdict.group_id, verdict.seq, verdict.op);
    if (ng_guard.config.suspect_ns)
        ng_claim_open(&wanted, &view, &verdict);
    else
        ng_claim_end(NG_INCIDENT_SUSPECT, true);
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
    bool over =
        now - reported >= patience_ns() ||
        (own.reported_end_mono_ns && now - own.reported_end_mono_ns < REMOTE_ERROR_PAUSE_NS);

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

    tend_clock();
    int64_t now = ng_clock_mono_ns();
    uint32_t ended = board->ops->ended(board);
    if (is_unanswered()) {
        answer_remote_error(now);
        return;
    }
    if (own.deaths_dealt == ended && ended != 0) {
        own.ended_seen = ended;
        return;
    }
    if (ended != own.ended_seen) {
        own.ended_seen = ended;
        own.death_checks = 0;
        own.next_death_check_ns = now;
    }
    if (!ended || !is_wanted() || now < own.next_death_check_ns)
        return;
    own.next_death_check_ns = now + (own.death_checks++ < DEATH_CHECKS ? DEATH_CHECK_NS : NG_S);
    if (!something_pending(NG_DEATHS_STALL_NS) || !ng_alarms_may_try())
        return;
    if (!take_turn(ended)) {
        ng_alarms_try_later();
    } else if (tell_news(NG_DEATHS_STALL_NS) != NEWS) {
        ng_claim_end(NG_INCIDENT_SUSPECT, true);
    }
    /* With many processes a check takes long; it must not use all of this thread's time. */
    int64_t pause_ns = LOOK_SHARE * (ng_clock_mono_ns() - now);
    if (pause_ns > NG_S)
        pause_ns = NG_S;
    if (own.next_death_check_ns < now + pause_ns)
        own.next_death_check_ns = now + pause_ns;
}

void ng_deaths_note(const struct ng_incident *incident)
{
    if (incident->kind != NG_KIND_DEAD_RANK && incident->kind != NG_KIND_LEFT_EARLY)
        return;
    note(incident->group_id, incident->seq);
    if (incident->level == NG_INCIDENT_SUSPECT)
        start_clock(incident->group_id, incident->seq, incident->op);
}

void ng_deaths_are_reported(void)
{
    own.deaths_dealt = own.ended_seen;
}

bool ng_deaths_are_due(int64_t *ret_due_ns)
{
    bool looks = own.ended_seen && own.ended_seen != own.deaths_dealt && is_wanted();

    *ret_due_ns = is_unanswered() ? own.next_remote_error_check_ns
                  : looks         ? own.next_death_check_ns
                                  : INT64_MAX;
    int64_t left_ns = death_clock.due_ns - death_clock.waited_ns;
    if (death_clock.runs && death_clock.read_ns + left_ns < *ret_due_ns)
        *ret_due_ns = death_clock.read_ns + left_ns;
    return *ret_due_ns != INT64_MAX;
}

void ng_deaths_after_fork(void)
{
    memset(&own, 0, sizeof(own));
    memset(&death_clock, 0, sizeof(death_clock));
    atomic_store(&remote_errors.answered_mono_ns, atomic_load(&remote_errors.reported_mono_ns));
}
