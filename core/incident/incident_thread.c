/*
 * The incident thread.
 *
 * Each round handles news from the board (core/incident/news.h), alarms of this process
 * (core/incident/alarms.h), ends of other processes (core/incident/deaths.h) and requests of the
 * program. core/incident/incident_claim.h and core/incident/incident_response.h carry out what an
 * alarm leads to.
 */
#include "core/incident/incident_thread.h"

#include <poll.h>
#include <stdatomic.h>
#include <unistd.h>

#include "core/check/lockstep_check.h"
#include "core/check/signature_compare.h"
#include "core/comm/completion.h"
#include "core/comm/frame_symbolizer.h"
#include "core/device/connections.h"
#include "core/device/driver_errors.h"
#include "core/device/launch_counters.h"
#include "core/evidence/dump_pipe.h"
#include "core/incident/alarm_retry.h"
#include "core/incident/alarms.h"
#include "core/incident/deaths.h"
#include "core/incident/dumps.h"
#include "core/incident/incident_response.h"
#include "core/incident/job_snapshot.h"
#include "core/incident/monitor.h"
#include "core/incident/news.h"
#include "core/incident/program_requests.h"
#include "core/incident/ras_witness.h"
#include "core/incident/roll_call.h"
#include "core/incident/status_log.h"
#include "core/incident/straggler_monitor.h"
#include "core/incident/watchdog_fallback.h"
#include "core/policy/policy.h"
#include "core/registration/registration_frees.h"
#include "core/runtime/alarm.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/log_writer.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/descriptor.h"
#include "core/util/memory.h"
#include "core/view/grow_id.h"
#include "core/watchdog/watchdog.h"

#define ROUND_MS       1000 /* heartbeat; also catches lost notifications */
#define NEWS_NS        NG_S /* for a verdict to arrive after another rank began to end by it */
#define GROUP_ROUND_MS 200  /* while the id of a group is not known yet */

static NG_FORGOTTEN atomic_bool stopping, stopped;
/* The thread ended because no other thread was left; the process has not left the board yet. */
static NG_FORGOTTEN atomic_bool left_alone;

/* Incident thread alone. */
static NG_FORGOTTEN struct {
    bool agreeing;            /* a collective waits until all ranks have reached it */
    bool group_unknown;       /* a group that this process joined has no definite id yet */
    int64_t followed_mono_ns; /* the handled end of another process by a verdict */
    int request_ms;           /* when the next request of the program is due; -1 none */
} own;

/* Skipped while anything is wrong: incidents are examined first. */
static void look_for_stragglers(void)
{
    int64_t now = ng_clock_mono_ns(), due_ns;
    struct ng_view view;

    if (!ng_straggler_monitor_is_due(now) || ng_alarm_retry_wait(&due_ns))
        return;
    if (ng_snapshot_take(NG_SNAPSHOT_HOST, &view) == 0) {
        bool complete = ng_straggler_monitor_keep(&view, now);
        ng_view_fini(&view);
        if (complete || ng_guard.launch.rank != 0 || ng_snapshot_take(NG_SNAPSHOT_JOB, &view) != 0)
            return;
        ng_straggler_monitor_keep(&view, now);
    }
    ng_view_fini(&view);
}

static int next_round_ms(void)
{
    int64_t left_ms = ROUND_MS, due_ns;

    if (ng_guard.board && ng_deaths_are_due(&due_ns))
        left_ms = (due_ns - ng_clock_mono_ns()) / NG_MS + 1;
    if (own.group_unknown && left_ms > GROUP_ROUND_MS)
        left_ms = GROUP_ROUND_MS;
    if (ng_alarm_retry_wait(&due_ns) && (due_ns - ng_clock_mono_ns()) / NG_MS + 1 < left_ms)
        left_ms = (due_ns - ng_clock_mono_ns()) / NG_MS + 1;
    if (own.agreeing)
        return 1;
    if (own.request_ms >= 0 && own.request_ms < left_ms)
        left_ms = own.request_ms;
    return left_ms < 1 ? 1 : left_ms > ROUND_MS ? ROUND_MS : (int)left_ms;
}

/* Other processes have acted on a verdict that has not arrived here. */
static void follow_the_ended(struct ng_board *board)
{
    int64_t since;
    uint32_t policy = board->ops->given_up ? board->ops->given_up(board, &since) : 0;

    if (!policy || since == own.followed_mono_ns || ng_clock_mono_ns() - since < NEWS_NS)
        return;
    own.followed_mono_ns = since;
    ng_response_follow_end(policy);
}

static void wait_alone(const struct ng_descriptor *kick, int timeout_ms)
{
    uint64_t count;
    struct pollfd poll_kick = {.fd = ng_descriptor_ours(kick) ? kick->fd : -1, .events = POLLIN};
    int ready = poll(&poll_kick, 1, timeout_ms);
    if (ready < 0) {
        ng_clock_sleep(100 * NG_MS);
    } else if (ready > 0 && read(kick->fd, &count, sizeof(count)) < 0) {
        return;
    }
}

static void *attend(void *unused)
{
    struct ng_board *board = ng_guard.board;
    struct ng_alarm alarm;

    ng_guard.adopt_thread();
    ng_log_writer_adopt();
    ng_watchdog_fallback_begin();
    own.request_ms = -1;
    while (!atomic_load(&stopping)) {
        unsigned happened = 0;
        if (board)
            happened = board->ops->wait(board, ng_wake_incident_event(), next_round_ms());
        else
            wait_alone(ng_wake_incident_event(), next_round_ms());
        ng_guard_beat();
        ng_guard_keep_apart();
        ng_policy_follow_up();
        if (atomic_load(&stopping))
            break;
        for (int source = 0; board && source < NG_SOURCES; source++)
            ng_news_read(board, (enum ng_incident_source)source);
        ng_signature_compare_run(board, ng_clock_mono_ns());
        own.agreeing = ng_lockstep_check(board, ng_clock_mono_ns());
        while (ng_alarm_take(&alarm))
            ng_alarms_handle(&alarm);
        ng_alarms_retry();
        own.request_ms = ng_program_request_serve(happened & NG_BOARD_INCIDENT);
        ng_dumps_read_pipe();
        if (board) {
            follow_the_ended(board);
            ng_deaths_check();
        }
        look_for_stragglers();
        ng_ras_witness_forget_old();
        if (ng_launch_counters_prepare())
            ng_connections_prepare();
        ng_connections_look_again();
        ng_driver_errors_prepare();
        own.group_unknown = ng_grow_id_look_up(&ng_guard.box, board);
        ng_roll_call_report(board, ng_snapshot_at_job);
        ng_watchdog_fallback_check();
        if (ng_guard_is_alone()) {
            /* The last thread of a process to end calls exit, which this thread prevented. */
            atomic_store(&left_alone, true);
            ng_watchdog_quit();
            ng_completion_quit();
            ng_status_log_quit();
            ng_monitor_quit();
            ng_frame_symbolizer_quit();
            ng_registration_frees_quit();
            ng_policy_finish();
            ng_io_workers_finish();
            ng_log_writer_quit();
            break;
        }
    }
    ng_program_request_close();
    if (board && !atomic_load(&left_alone)) {
        ng_news_finish(board);
        board->ops->leave(board);
    }
    ng_dump_pipe_finish();
    atomic_store(&stopped, true);
    return unused;
}

int ng_incident_start(void)
{
    ng_wake_open_incident();
    return ng_guard_thread("ncclguard/board", attend);
}

bool ng_incident_finish(int bound_ms)
{
    /* Without the eventfd, the thread may sleep until its next round. */
    int more_ms = ng_descriptor_ours(ng_wake_incident_event()) ? 0 : ROUND_MS;
    int64_t until = ng_clock_mono_ns() + (bound_ms + more_ms) * NG_MS;

    atomic_store(&stopping, true);
    ng_wake_incident();
    /* The process must not end before the verdict is on disk. */
    while (!atomic_load(&stopped) &&
           ng_clock_mono_ns() < until + (ng_response_is_under_way() ? NG_NEWS_LAST_NS : 0)) {
        ng_clock_sleep(NG_MS);
        /* Else the folder in shared memory would stay because of a slow store. */
        if (ng_clock_mono_ns() >= until - bound_ms * NG_MS / 2 && !ng_response_is_under_way() &&
            ng_guard.board && ng_guard.board->ops->hurry)
            ng_guard.board->ops->hurry(ng_guard.board);
    }
    if (atomic_exchange(&left_alone, false) && ng_guard.board)
        ng_guard.board->ops->leave(ng_guard.board);
    return atomic_load(&stopped);
}
