/* A guard, with a made board. */
#include "tests/unit/core/helpers/made_deaths.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/comm/deadline.h"
#include "core/incident/alarm_retry.h"
#include "core/incident/alarms.h"
#include "core/incident/deaths.h"
#include "core/incident/incident_claim.h"
#include "core/incident/incident_response.h"
#include "core/incident/incident_thread.h"
#include "core/incident/job_snapshot.h"
#include "core/incident/known_deaths.h"
#include "core/incident/news.h"
#include "core/incident/operator_commands.h"
#include "core/incident/program_requests.h"
#include "core/incident/watchdog_fallback.h"
#include "core/policy/abort.h"
#include "core/policy/policy.h"
#include "core/runtime/alarm.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/memory.h"
#include "core/watchdog/watchdog.h"

struct made_deaths made_deaths;

static struct ng_incident incidents[MADE_INCIDENTS]; /* of the store, by epoch; level 0: none */
/* A flood of incidents: FLOOD of them with growing numbers, then 1 and 2 in turn; FLOOD_MAX in all,
 * for a reader without a limit. */
#define FLOOD     1000u
#define FLOOD_MAX 5000u
static unsigned floods; /* asked so often; 0: nothing floods */

/* A judged one of another host. */
#define JUDGED(about, ...)                                                                         \
    (struct ng_incident)                                                                           \
    {                                                                                              \
        .source = NG_SOURCE_JOB, .level = (about), .state = NG_INCIDENT_JUDGED,                    \
        .claimant_pid = -1, __VA_ARGS__                                                            \
    }

static bool claimant_ended[MADE_INCIDENTS];
static bool is_reload[MADE_INCIDENTS]; /* a command, and no incident */

static _Atomic int64_t now_ns = 1000 * NG_S; /* also read by who hears something */
static _Thread_local bool hears;
static _Atomic unsigned heard; /* so often who hears something has read it */

/* The linker gives core these in place of its own. */
int __real_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    if (clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, ret_time);
    int64_t now = now_ns;
    heard += hears;
    *ret_time = (struct timespec){.tv_sec = now / NG_S, .tv_nsec = now % NG_S};
    return 0;
}

void __wrap_ng_claim_open(const struct ng_incident *wanted, struct ng_view *view,
                          struct ng_verdict *verdict)
{
    made_deaths.opened++;
    made_deaths.kind = verdict->kind;
    made_deaths.level = wanted->level;
    made_deaths.group_id = wanted->group_id;
    made_deaths.seq = wanted->seq;
    ng_claim_end(wanted->level, false);
}

void __wrap_ng_driver_errors_begin(void)
{
    made_deaths.driver_asked++;
}

void __wrap_ng_policy_act(enum ng_on_timeout policy, const struct ng_group_set *scope,
                          enum ng_verdict_kind kind, const char *line)
{
    made_deaths.acted++;
    made_deaths.policy = policy;
    now_ns += made_deaths.act_ns;
}

void __wrap_ng_policy_bound(enum ng_on_timeout policy, int64_t bound_ns)
{
}

static bool aborted;
int __wrap_ng_abort_groups(const struct ng_group_set *scope, enum ng_verdict_kind kind,
                           const char *reason, enum ng_abort_origin origin)
{
    aborted = true;
    return 0;
}

static uint32_t ended(struct ng_board *board)
{
    return made_deaths.ended;
}

static int begin(struct ng_board *board, enum ng_incident_level level, enum ng_claim_cause cause)
{
    made_deaths.asked_levels |= 1u << level;
    made_deaths.asked[made_deaths.asked_count++ % MADE_ASKED] = cause;
    return made_deaths.answers_busy >> cause & 1 ? -EBUSY : 0;
}

static void finish(struct ng_board *board, enum ng_incident_level level, bool in_vain)
{
    made_deaths.in_vain += in_vain;
}

static int view(struct ng_board *board, struct ng_view *to)
{
    made_deaths.looks++;
    now_ns += made_deaths.look_ns;
    made_deaths.fill(to, false);
    return 0;
}

static int view_host(struct ng_board *board, struct ng_view *to)
{
    if (made_deaths.writes_nothing)
        return -EIO;
    made_deaths.fill(to, true);
    return 0;
}

static int read_verdict(struct ng_board *board, const struct ng_incident *incident,
                        struct ng_documents *ret_documents)
{
    made_deaths.verdicts_read++;
    if (made_deaths.verdicts_read <= made_deaths.unanswered)
        return -ETIMEDOUT;
    if (!made_deaths.document)
        return -ENOENT;
    size_t bytes = strlen(made_deaths.document);
    *ret_documents = (struct ng_documents){.json = made_deaths.document,
                                           .text = made_deaths.document,
                                           .json_bytes = bytes,
                                           .text_bytes = bytes};
    return 0;
}

static int publish(struct ng_board *board, const struct ng_incident *incident,
                   const struct ng_verdict *verdict)
{
    return 0;
}

static void dumped(struct ng_board *board, const struct ng_incident *incident)
{
}

static atomic_bool sleeps; /* the incident thread does, until it is woken */

static void leave(struct ng_board *board)
{
}

static void adopt(void)
{
}

/* Time goes by, and the claimant comes through. */
static unsigned await(struct ng_board *board, const struct ng_descriptor *kick, int timeout_ms)
{
    struct pollfd woken = {.fd = kick->fd, .events = POLLIN};

    if (made_deaths.sleeps) {
        atomic_store(&sleeps, true);
        poll(&woken, 1, 60000);
        return 0;
    }
    now_ns += timeout_ms * NG_MS;
    if (made_deaths.judged_after && --made_deaths.judged_after == 0)
        for (unsigned i = 0; i < MADE_INCIDENTS; i++)
            incidents[i].state = NG_INCIDENT_JUDGED;
    return 0;
}

/* What is opened from within core/incident/incident_claim.c gets here: another has claimed it
 * before. */
static int claim(struct ng_board *board, const struct ng_incident *wanted,
                 struct ng_incident *ret_incident)
{
    made_deaths.opened++;
    made_deaths.level = wanted->level;
    if (wanted->kind)
        made_deaths.kind = wanted->kind;
    made_deaths.group_id = wanted->group_id;
    made_deaths.seq = wanted->seq;
    *ret_incident = *wanted;
    ret_incident->state = NG_INCIDENT_JUDGED;
    return -EEXIST;
}

static int next(struct ng_board *board, enum ng_incident_source source, uint64_t epoch,
                struct ng_news *ret_news)
{
    *ret_news = (struct ng_news){0};
    if (floods) {
        ret_news->incident =
            JUDGED(NG_INCIDENT_SUSPECT, .epoch = floods < FLOOD ? epoch + 1 : 2 - floods % 2);
        ret_news->epoch = ret_news->incident.epoch;
        return floods++ < FLOOD_MAX ? 0 : -ENOENT;
    }
    for (uint64_t at = epoch + 1; source == NG_SOURCE_JOB && at < MADE_INCIDENTS; at++)
        if (incidents[at].level || is_reload[at]) {
            ret_news->epoch = at;
            ret_news->is_command = is_reload[at];
            if (is_reload[at])
                ret_news->command = (struct ng_command){
                    .kind = NG_COMMAND_RELOAD, .source = source, .line = "an order of a test"};
            else
                ret_news->incident = incidents[at];
            return 0;
        }
    return -ENOENT;
}

static int get(struct ng_board *board, struct ng_incident *incident)
{
    if (incident->source != NG_SOURCE_JOB || incident->epoch >= MADE_INCIDENTS ||
        !incidents[incident->epoch].level)
        return -ENOENT;
    *incident = incidents[incident->epoch];
    return 0;
}

static bool claimant_alive(struct ng_board *board, const struct ng_incident *incident)
{
    made_deaths.asked_for_life++;
    return !claimant_ended[incident->epoch];
}

void made_deaths_begin(int64_t pending_age_ns)
{
    static const struct ng_board_ops ops = {.wait = await,
                                            .leave = leave,
                                            .ended = ended,
                                            .dumped = dumped,
                                            .begin = begin,
                                            .finish = finish,
                                            .view = view,
                                            .view_host = view_host,
                                            .claim = claim,
                                            .publish = publish,
                                            .next = next,
                                            .get = get,
                                            .claimant_alive = claimant_alive,
                                            .read_verdict = read_verdict};
    static struct ng_board board = {.ops = &ops};
    static const struct ng_box_identity identity = {.rank = 0, .world_size = 2};

    if (!ng_guard.box.header && ng_box_create(NULL, &identity, 16, &ng_guard.box) != 0)
        abort();
    ng_guard.board = &board;
    made_deaths_configure(5 * NG_S, 0);
    ng_guard.config.init_timeout_ns = 600 * NG_S;
    ng_guard.config.abort_wait_ns = MADE_ABORT_WAIT_MS * NG_MS;
    ng_guard.config.timeout_ns = 600 * NG_S;
    ng_deadline_after_fork();
    ng_memory_forget();
    atomic_store(&ng_guard.running, true);
    NG_STORE(ng_guard.box.threads[0].op, NG_OP_NONE);
    NG_STORE(ng_guard.box.header->group_used, 1);
    made_deaths_saw_last(0, 1);
    NG_STORE(ng_guard.box.groups[0].pending_age_ns, pending_age_ns);
    memset(incidents, 0, sizeof(incidents));
    memset(claimant_ended, 0, sizeof(claimant_ended));
    memset(is_reload, 0, sizeof(is_reload));
    made_deaths = (struct made_deaths){.fill = made_deaths.fill};
    now_ns += 100 * NG_S;
}

void made_deaths_configure(int64_t suspect_ns, int64_t death_timeout_ns)
{
    ng_guard.config.suspect_ns = suspect_ns;
    ng_guard.config.death_timeout_ns = death_timeout_ns;
}

void made_deaths_rest(bool rest)
{
    if (rest)
        ng_deadline_suspend(0, INT64_MAX);
    else
        ng_deadline_resume(0);
}

void made_deaths_no_deadline(void)
{
    ng_deadline_set_timeout(0, 0);
}

void made_deaths_stop(int64_t ns)
{
    now_ns += ns;
}

void made_deaths_saw_last(uint64_t group_id, uint64_t seq)
{
    struct ng_box_group *group = &ng_guard.box.groups[0];

    NG_STORE(group->id, group_id);
    NG_STORE(group->pending_record, seq);
    NG_STORE(group->pending_seq, seq);
    NG_STORE(group->pending_age_ns, 0);
    NG_STORE(group->timeout_ns, ng_guard.config.timeout_ns);
}

void made_deaths_extend(int64_t ns)
{
    ng_deadline_extend(0, ns);
}

/* This process has no communicators. */
bool __real_ng_watchdog_still(const struct ng_alarm *alarm);
bool __wrap_ng_watchdog_still(const struct ng_alarm *alarm)
{
    const struct ng_box_group *group = &ng_guard.box.groups[0];

    return __real_ng_watchdog_still(alarm) ||
           (alarm->unwatched && NG_LOAD(group->pending_record) == alarm->record);
}

static bool watchdog_is_own;
void __wrap_ng_watchdog_where(struct ng_watchdog_activity *ret_activity)
{
    *ret_activity = (struct ng_watchdog_activity){1, "cuEventQuery", watchdog_is_own};
}

int64_t made_deaths_silence(bool own, unsigned count)
{
    watchdog_is_own = own;
    ng_watchdog_fallback_begin();
    for (unsigned i = 0; i < count; i++) {
        now_ns += NG_S;
        ng_watchdog_fallback_check();
    }
    ng_memory_forget();
    return NG_LOAD(ng_guard.box.groups[0].pending_age_ns);
}

int64_t made_deaths_due_ns(void)
{
    int64_t due_ns;

    return ng_deaths_are_due(&due_ns) ? due_ns - now_ns : INT64_MAX;
}

void made_deaths_rounds(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        now_ns += NG_MS;
        if (!made_deaths.watchdog_waits)
            NG_STORE(ng_guard.box.header->watchdog_mono_ns, now_ns);
        ng_deaths_check();
    }
}

static void *hear(void *ret_done)
{
    hears = true;
    ng_deaths_await_report(NULL);
    atomic_store((atomic_bool *)ret_done, true);
    return NULL;
}

unsigned made_deaths_hear(void (*at)(unsigned round))
{
    atomic_bool done = false;
    unsigned rounds = 0;
    pthread_t thread;

    if (pthread_create(&thread, NULL, hear, &done) != 0)
        abort();
    for (unsigned before = heard; !done; before = heard) {
        /* It sleeps by the real clock, and asks the made one: which does not run while that thread
         * gets no processor. */
        struct timespec pause = {.tv_nsec = 3000000};
        do
            nanosleep(&pause, NULL);
        while (!done && heard == before);
        if (at)
            at(rounds);
        if (!done)
            made_deaths_rounds(1);
        rounds++;
    }
    pthread_join(thread, NULL);
    return rounds;
}

void made_deaths_told(uint64_t group_id, uint64_t seq)
{
    struct ng_incident incident = {.source = NG_SOURCE_HOST,
                                   .level = NG_INCIDENT_SUSPECT,
                                   .group_id = group_id,
                                   .seq = seq,
                                   .kind = NG_KIND_LEFT_EARLY,
                                   .line = "left_early: of a test"};

    ng_alarms_answered(&incident);
}

void made_deaths_answered_for_job(void)
{
    ng_known_deaths_cover();
}

void made_deaths_deadline(uint64_t group_id, uint64_t seq, unsigned op)
{
    struct ng_incident incident =
        JUDGED(NG_INCIDENT_TIMEOUT, .epoch = MADE_DEADLINE_EPOCH, .group_id = group_id, .seq = seq,
               .op = op, .claimed_mono_ns = now_ns, .policy = NG_ON_TIMEOUT_LOG + 1,
               .kind = NG_KIND_MISSING_RANK, .line = "missing_rank: of a test");

    ng_response_follow(&incident);
}

void made_deaths_suspicion(uint64_t epoch, bool differs)
{
    struct ng_incident incident =
        JUDGED(NG_INCIDENT_SUSPECT, .epoch = epoch, .group_id = 1, .differs = differs,
               .kind = NG_KIND_MISSING_RANK, .line = "missing_rank: of a test");

    ng_response_receive(&incident);
}

void made_deaths_put(uint64_t epoch, const char *line)
{
    struct ng_incident *incident = &incidents[epoch];

    *incident = JUDGED(NG_INCIDENT_SUSPECT, .epoch = epoch, .group_id = epoch);
    if (!line) {
        incident->state = NG_INCIDENT_CLAIMED;
        return;
    }
    incident->kind = (uint8_t)ng_verdict_kind_of_line(line);
    snprintf(incident->line, sizeof(incident->line), "%s", line);
}

void made_deaths_claimant_ends(uint64_t epoch)
{
    claimant_ended[epoch] = true;
}

void made_deaths_order(uint64_t epoch)
{
    is_reload[epoch] = true;
}

void made_deaths_differ(uint64_t group_id, bool deadline)
{
    struct ng_alarm alarm = {
        .level = deadline ? NG_INCIDENT_TIMEOUT : NG_INCIDENT_SUSPECT,
        .group_id = group_id,
        .seq = 1,
        .disagreement = {.group_id = group_id, .difference = {.seq = 1}, .ranks = {0, 1}},
        .restarts = ng_alarm_restarts()};

    ng_alarm_raise(&alarm);
}

bool made_deaths_waits_for_more(uint64_t group_id, uint64_t seq, bool deadline)
{
    struct ng_alarm alarm = {.level = deadline ? NG_INCIDENT_TIMEOUT : NG_INCIDENT_SUSPECT,
                             .group_id = group_id,
                             .seq = seq,
                             .op = NG_OP_AllReduce,
                             .restarts = ng_alarm_restarts()};
    struct ng_incident wanted = {.level = alarm.level,
                                 .group_id = group_id,
                                 .seq = seq,
                                 .op = NG_OP_AllReduce,
                                 .stalled_ns = NG_S};
    unsigned before = made_deaths.in_vain;

    ng_claim(&wanted, false, &alarm);
    return made_deaths.in_vain > before;
}

void made_deaths_stuck(uint64_t group_id, unsigned op, bool deadline)
{
    struct ng_box_thread *thread = &ng_guard.box.threads[0];
    struct ng_alarm alarm = {.level = deadline ? NG_INCIDENT_TIMEOUT : NG_INCIDENT_SUSPECT,
                             .group_id = group_id,
                             .op = op,
                             .age_ns = 5 * NG_S,
                             .since_mono_ns = now_ns,
                             .restarts = ng_alarm_restarts()};

    NG_STORE(ng_guard.box.header->thread_used, 1);
    NG_STORE(thread->op, op);
    NG_STORE(thread->since_mono_ns, now_ns);
    ng_alarm_raise(&alarm);
}

void made_deaths_alarms(void)
{
    struct ng_alarm alarm;

    now_ns += NG_S;
    while (ng_alarm_take(&alarm))
        ng_alarms_handle(&alarm);
    ng_alarms_retry();
}

void made_deaths_news(void)
{
    now_ns += NG_S;
    ng_news_read(ng_guard.board, NG_SOURCE_JOB);
}

void made_deaths_claimed(uint64_t epoch, unsigned policy)
{
    made_deaths_put(epoch, "missing_rank: of a test");
    incidents[epoch].level = NG_INCIDENT_TIMEOUT;
    incidents[epoch].policy = (int32_t)policy + 1;
    incidents[epoch].op = NG_OP_AllReduce;
}

int64_t made_deaths_exits(void)
{
    int64_t began_ns = now_ns;

    ng_news_finish(ng_guard.board);
    return now_ns - began_ns;
}

bool made_deaths_exits_asleep(uint64_t epoch)
{
    struct timespec pause = {.tv_nsec = 1000000};

    ng_guard.adopt_thread = adopt;
    made_deaths.sleeps = true;
    atomic_store(&sleeps, false);
    if (ng_incident_start() != 0)
        abort();
    while (!atomic_load(&sleeps))
        nanosleep(&pause, NULL);
    made_deaths_claimed(epoch, NG_ON_TIMEOUT_KILL);
    bool ended = ng_incident_finish(500);
    made_deaths.sleeps = false;
    ng_memory_forget();
    ng_program_request_after_fork();
    return ended;
}

static void write_to(const char *folder)
{
    /* The threads that run from the first time on read it. */
    if (ng_guard.adopt_thread != adopt)
        ng_guard.adopt_thread = adopt;
    if (ng_io_workers_start() != 0)
        abort();
    snprintf(ng_guard.dump_dir, sizeof(ng_guard.dump_dir), "%s", folder);
}

static atomic_bool blocked;

static void block(void *unused)
{
    struct timespec pause = {.tv_nsec = 1000000};

    for (; atomic_load(&blocked); nanosleep(&pause, NULL))
        now_ns += NG_S;
}

void made_deaths_block(const char *folder)
{
    write_to(folder);
    atomic_store(&blocked, true);
    if (ng_io_workers_add(folder, block, NULL) != 0)
        abort();
}

static void end(void *under_way)
{
    ng_io_workers_end(under_way, 1);
}

void made_deaths_unblock(const char *folder)
{
    _Atomic uint32_t under_way = 1;

    atomic_store(&blocked, false);
    if (ng_io_workers_add(folder, end, &under_way) != 0)
        abort();
    ng_io_workers_await(&under_way, 1, INT64_MAX);
}

void made_deaths_suspicion_of(const char *folder, uint64_t group_id)
{
    struct ng_incident incident = JUDGED(
        NG_INCIDENT_SUSPECT, .epoch = MADE_DEADLINE_EPOCH + 1, .group_id = group_id, .seq = 7,
        .op = NG_OP_AllReduce, .kind = NG_KIND_LEFT_EARLY, .line = "left_early: of a test");

    write_to(folder);
    ng_response_receive(&incident);
    ng_guard.dump_dir[0] = '\0';
}

void made_deaths_lead_suspicion(const char *folder, bool differs)
{
    struct ng_incident incident = {
        .source = NG_SOURCE_HOST, .level = NG_INCIDENT_SUSPECT, .differs = differs};
    struct ng_verdict verdict = {.kind = NG_KIND_MISMATCH, .action = "none"};
    struct ng_view view;

    write_to(folder);
    ng_view_init(&view);
    ng_response_lead(&incident, &view, &verdict);
    ng_guard.dump_dir[0] = '\0';
}

void made_deaths_act_unjudged(const char *folder)
{
    struct ng_incident incident = {
        .source = NG_SOURCE_HOST, .level = NG_INCIDENT_TIMEOUT, .group_id = 1, .seq = 7};

    write_to(folder);
    ng_response_act_unjudged(&incident);
    ng_guard.dump_dir[0] = '\0';
}

void made_deaths_neighbours_ended(unsigned policy, const char *folder)
{
    _Atomic uint32_t *mildest = &ng_guard.box.header->mildest_policy;

    write_to(folder);
    NG_STORE(*mildest, ng_guard.config.on_timeout + 1);
    ng_response_follow_end(policy + 1);
    NG_STORE(*mildest, 0);
    ng_guard.dump_dir[0] = '\0';
}

void made_deaths_unjudged(uint64_t epoch)
{
    incidents[epoch].state = NG_INCIDENT_CLAIMED;
}

void made_deaths_set_policy(unsigned policy)
{
    ng_guard.config.on_timeout = policy;
}

bool made_deaths_aborts(bool by_store)
{
    struct ng_command order = {.kind = NG_COMMAND_ABORT,
                               .source = by_store ? NG_SOURCE_JOB : NG_SOURCE_HOST,
                               .rank = -1,
                               .line = "an order of a test"};

    aborted = false;
    ng_operator_commands_obey(&order);
    return aborted;
}

unsigned made_deaths_set(unsigned log, unsigned timing)
{
    struct ng_command order = {
        .kind = NG_COMMAND_SET, .source = NG_SOURCE_JOB, .rank = -1, .line = "an order of a test"};
    const struct ng_box_header *header = ng_guard.box.header;

    order.set[NG_SETTABLE_LOG] = (uint8_t)log;
    order.set[NG_SETTABLE_TIMING] = (uint8_t)timing;
    ng_operator_commands_obey(&order);
    return NG_LOAD(header->set[NG_SETTABLE_LOG]) |
           (unsigned)NG_LOAD(header->set[NG_SETTABLE_TIMING]) << 8;
}

int made_deaths_timing(void)
{
    return atomic_load(&ng_guard.timing);
}

unsigned made_deaths_flood(bool grows)
{
    unsigned before = floods = grows ? 1 : FLOOD;

    ng_news_read(ng_guard.board, NG_SOURCE_JOB);
    before = floods - before;
    floods = 0;
    return before;
}
