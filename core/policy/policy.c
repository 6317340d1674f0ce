/*
 * Ending the process, aborting its communicators, or leaving it alone.
 *
 * The incident thread decides and acts. A separate thread ("ncclguard/end") keeps two bounds; it
 * never logs or writes a file, since either may hang. The first bound is for the incident thread:
 * if it has not acted by then, the process ends or, under policy `abort`, all its communicators are
 * aborted without a verdict. The second is for an abort: if it has neither returned by then nor
 * been reported as stuck, the process ends. Must end the process even if the program's own SIGABRT
 * handler hangs, and must never run the program's exit handlers: they may wait for the very thing
 * that is stuck.
 */
#include "core/policy/policy.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/device/device_wait.h"
#include "core/policy/abort.h"
#include "core/policy/escalate.h"
#include "core/policy/neighbours.h"
#include "core/policy/teardown.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/log.h"
#include "core/util/memory.h"
#include "core/watchdog/watchdog.h"

/* A handler that prints stacks gets this long; then the default action, then SIGKILL. */
#define HANDLER_WAIT_NS (2 * NG_S)
/* Added to NCCLGUARD_ABORT_WAIT, to report an abort that has not returned. */
#define STUCK_MARGIN_NS (4 * NG_S)

/* ---- The bounds, and the thread that keeps them ---- */

static _Atomic uint32_t changes; /* futex word: grows with each change of the following */
static NG_FORGOTTEN _Atomic int64_t abort_at_mono_ns, end_at_mono_ns; /* 0 none */
/* End here if an abort has not returned; 0 none. */
static NG_FORGOTTEN _Atomic int64_t stuck_at_mono_ns;
/* If equal to end_at_mono_ns: the program may take the error until then. */
static NG_FORGOTTEN _Atomic int64_t notice_ends_mono_ns;
static _Atomic uint32_t end_policy; /* enum ng_on_timeout: of end_at_mono_ns */
/* Start of the newest incident to be carried out. */
static NG_FORGOTTEN _Atomic int64_t began_mono_ns;
/* Incident thread alone: the other ranks of the host have the verdict. */
static NG_FORGOTTEN bool others_know;
/* SIGABRT has been raised: make sure that it takes effect. */
static NG_FORGOTTEN atomic_bool insisting;
static NG_FORGOTTEN atomic_bool quitting;
static NG_FORGOTTEN atomic_bool enforced; /* the thread runs */
static NG_FORGOTTEN atomic_bool aborting; /* the incident thread must follow up an order */

static void tell_thread(void)
{
    atomic_fetch_add(&changes, 1);
    ng_futex_wake(&changes, 1);
}

static void unblock_abort(void)
{
    sigset_t abort_only;

    sigemptyset(&abort_only);
    sigaddset(&abort_only, SIGABRT);
    pthread_sigmask(SIG_UNBLOCK, &abort_only, NULL);
}

static void insist(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};

    ng_clock_sleep(HANDLER_WAIT_NS);
    sigaction(SIGABRT, &standard, NULL);
    /* Every program thread may have blocked SIGABRT. */
    unblock_abort();
    kill(getpid(), SIGABRT);
    ng_clock_sleep(HANDLER_WAIT_NS);
    kill(getpid(), SIGKILL);
}

/* Mark in the box that a verdict ends the process by this policy. */
static void mark_ending(enum ng_on_timeout policy)
{
    struct ng_box_header *header = ng_guard.box.header;

    if (atomic_load(&header->ending_policy))
        return;
    atomic_store(&header->ending_mono_ns, ng_clock_mono_ns());
    atomic_store(&header->ending_policy, (uint32_t)policy + 1);
}

/* Mark the end in the box; then exit here if an exit status is configured. */
static void mark_end(void)
{
    struct ng_box_header *header = ng_guard.box.header;
    int code = -1;

    ng_config_parse_exit(ng_guard.config.exit_how, &code);
    atomic_store(&ng_guard.ending, true);
    atomic_store(&header->life_mono_ns, ng_clock_mono_ns());
    atomic_store(&header->life, NG_BOX_ENDED_BY_GUARD);
    if (code >= 0)
        _exit(code);
}

static bool abort_is_over(void)
{
    return ng_abort_state(NG_ABORT_POLICY) <= NG_ABORT_RETURNED;
}

/* Order an abort, and bound it first, since creating its threads may hang as well. 0; -ENOENT:
 * there is nothing to abort; or -errno: it has not begun. */
static int order_abort(const struct ng_group_set *scope, enum ng_verdict_kind kind,
                       const char *reason)
{
    atomic_store(&stuck_at_mono_ns,
                 ng_clock_mono_ns() + ng_guard.config.abort_wait_ns + STUCK_MARGIN_NS);
    atomic_store(&abort_at_mono_ns, 0);
    tell_thread();
    int error = ng_abort_groups(scope, kind, reason, NG_ABORT_POLICY);
    bool over = error == -ENOENT && abort_is_over();
    /* Whichever thread gave the order, and also if an earlier one is still under way: the incident
     * thread reports it if it gets stuck. */
    if (!error || (error == -ENOENT && !over))
        atomic_store(&aborting, true);
    if (over && !ng_teardown_has_begun())
        atomic_store(&stuck_at_mono_ns, 0);
    return error;
}

/* A bound may have passed. True: the process must end. */
static bool act_at_bound(int64_t now_mono_ns)
{
    const struct ng_group_set all = NG_GROUP_SET_ALL;
    int64_t abort_at = atomic_load(&abort_at_mono_ns), end_at = atomic_load(&end_at_mono_ns);
    int64_t stuck_at = atomic_load(&stuck_at_mono_ns);

    if (end_at && now_mono_ns >= end_at) {
        if (end_at != atomic_load(&notice_ends_mono_ns) || !ng_device_wait_is_taken()) {
            mark_ending((enum ng_on_timeout)atomic_load(&end_policy));
            return true;
        }
        /* The program has taken the error and continues. Another notice may have been given
         * meanwhile. */
        atomic_compare_exchange_strong(&end_at_mono_ns, &end_at, 0);
    }
    if (stuck_at && now_mono_ns >= stuck_at) {
        if (ng_teardown_has_begun() || !abort_is_over())
            return true;
        atomic_compare_exchange_strong(&stuck_at_mono_ns, &stuck_at, 0);
    }
    if (abort_at && now_mono_ns >= abort_at &&
        atomic_compare_exchange_strong(&abort_at_mono_ns, &abort_at, 0)) {
        int error =
            order_abort(&all, NG_KIND_HEALTHY,
                        "no verdict was reached: writing the evidence or the log is blocked");
        return error && error != -ENOENT;
    }
    return false;
}

static int64_t next_bound(void)
{
    int64_t bounds[] = {atomic_load(&abort_at_mono_ns), atomic_load(&end_at_mono_ns),
                        atomic_load(&stuck_at_mono_ns)};
    int64_t next = 0;

    for (unsigned i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++)
        if (bounds[i] && (!next || bounds[i] < next))
            next = bounds[i];
    return next;
}

static void *enforce(void *unused)
{
    ng_guard.adopt_thread();
    while (!atomic_load(&insisting)) {
        uint32_t seen = atomic_load(&changes);
        if (atomic_load(&quitting))
            return unused;
        if (act_at_bound(ng_clock_mono_ns())) {
            mark_end(); /* without logging: the log may hang */
            kill(getpid(), SIGABRT);
            break;
        }
        if (!atomic_load(&insisting))
            ng_futex_wait_until(&changes, seen, next_bound());
    }
    insist();
    return unused;
}

int ng_policy_start(void)
{
    ng_guard.box.header->takes_errors = ng_guard.config.blocking_wait;
    /* A rule may set another policy at any time. */
    if (ng_guard.config.on_timeout == NG_ON_TIMEOUT_LOG && !ng_guard.rules_path[0])
        return 0;
    int error = ng_guard_thread("ncclguard/end", enforce);
    atomic_store(&enforced, error == 0);
    return error;
}

void ng_policy_finish(void)
{
    atomic_store(&quitting, true);
    tell_thread();
}

/* Incident thread, which owns the board. */
static void end_neighbours(void)
{
    ng_neighbours_end(ng_guard.board, &ng_guard.box, atomic_load(&began_mono_ns), others_know);
}

/* Incident thread. */
static void end_process(void)
{
    if (atomic_load(&ng_guard.box.header->ending_policy))
        end_neighbours();
    mark_end();
    if (atomic_load(&enforced)) {
        atomic_store(&insisting, true);
        tell_thread();
    } else {
        struct sigaction standard = {.sa_handler = SIG_DFL};
        sigaction(SIGABRT, &standard, NULL);
    }
    unblock_abort();
    abort();
}

/* ---- Called by the incident thread ---- */

static bool set_if_none(_Atomic int64_t *bound, int64_t mono_ns)
{
    int64_t none = 0;
    return atomic_compare_exchange_strong(bound, &none, mono_ns);
}

void ng_policy_bound(enum ng_on_timeout policy, int64_t bound_ns)
{
    int64_t now = ng_clock_mono_ns(), until = now + bound_ns;

    atomic_store(&began_mono_ns, now);
    switch (policy) {
    case NG_ON_TIMEOUT_LOG:
        return;
    case NG_ON_TIMEOUT_ABORT:
        set_if_none(&abort_at_mono_ns, until);
        break;
    case NG_ON_TIMEOUT_TEARDOWN:
    case NG_ON_TIMEOUT_KILL:
        if (set_if_none(&end_at_mono_ns, until))
            atomic_store(&end_policy, (uint32_t)policy);
    }
    tell_thread();
}

/* `noticed`: the process is ended without an abort, too, unless its calls return the error. */
static void abort_or_end(const struct ng_group_set *scope, enum ng_verdict_kind kind,
                         const char *line, bool noticed)
{
    int error = order_abort(scope, kind, line);

    if (error && error != -ENOENT && noticed) {
        ng_log(NG_LOG_ERROR, "cannot abort (%s)", strerror(-error));
    } else if (error && error != -ENOENT) {
        ng_log(NG_LOG_ERROR, "cannot abort (%s): ending the process", strerror(-error));
        end_process();
    } else if (error && ng_teardown_has_begun() && !atomic_load(&aborting)) {
        end_process();
    }
    /* Work that waited for the aborted communicators, or for ranks that waited in them, may go on
     * now. */
    ng_watchdog_restart();
}

/* The process must end, but calls that wait for the device (core/device/device_wait.h) return the
 * error first. */
static void give_notice(enum ng_on_timeout policy, enum ng_verdict_kind kind, const char *line)
{
    int64_t ends = atomic_load(&notice_ends_mono_ns), wait_ns = ng_guard.config.abort_wait_ns;

    if (ends && atomic_load(&end_at_mono_ns) == ends && !ng_device_wait_is_taken())
        return; /* the earlier notice ends the process */
    ends = ng_clock_mono_ns() + wait_ns;
    atomic_store(&end_policy, (uint32_t)policy);
    atomic_store(&notice_ends_mono_ns, ends);
    atomic_store(&end_at_mono_ns, ends);
    ng_device_wait_fail_all(kind, line);
    tell_thread();
    ng_log(NG_LOG_ERROR,
           "NCCLGUARD_BLOCKING_WAIT: calls that wait return the error; the process is ended in "
           "%.1f s if "
           "none does",
           (double)wait_ns / NG_S);
}

void ng_policy_note_reported(bool told)
{
    others_know = told;
}

void ng_policy_act(enum ng_on_timeout policy, const struct ng_group_set *scope,
                   enum ng_verdict_kind kind, const char *line)
{
    const struct ng_group_set all = NG_GROUP_SET_ALL;
    bool returns_errors = ng_guard.config.blocking_wait && atomic_load(&enforced);
    int64_t none = 0;

    atomic_compare_exchange_strong(&began_mono_ns, &none, ng_clock_mono_ns());
    switch (policy) {
    case NG_ON_TIMEOUT_LOG:
        return;
    case NG_ON_TIMEOUT_TEARDOWN:
        if (returns_errors) {
            /* First: calls that the abort ends have the error, too. */
            give_notice(policy, kind, line);
        } else {
            mark_ending(policy);
            ng_teardown_begin();
        }
        abort_or_end(&all, kind, line, returns_errors);
        break;
    case NG_ON_TIMEOUT_ABORT:
        abort_or_end(scope, kind, line, false);
        return;
    case NG_ON_TIMEOUT_KILL:
        if (!returns_errors) {
            mark_ending(policy);
            end_process();
        }
        give_notice(policy, kind, line);
    }
    if (returns_errors)
        end_neighbours(); /* a stopped rank cannot take the error */
}

void ng_policy_await_aborts(void)
{
    int64_t until = ng_clock_mono_ns() + ng_guard.config.abort_wait_ns + 2 * STUCK_MARGIN_NS;

    while ((ng_abort_state(NG_ABORT_POLICY) == NG_ABORT_UNDER_WAY ||
            ng_abort_state(NG_ABORT_PERSON) == NG_ABORT_UNDER_WAY) &&
           ng_clock_mono_ns() < until)
        ng_clock_sleep(5 * NG_MS);
}

/* If the program has not taken the error that it was given notice of, the process ends by the
 * policy of that verdict, whatever ends it first. */
static void mark_noticed_end(void)
{
    int64_t end_at = atomic_load(&end_at_mono_ns);

    if (end_at && end_at == atomic_load(&notice_ends_mono_ns) && !ng_device_wait_is_taken())
        mark_ending((enum ng_on_timeout)atomic_load(&end_policy));
}

void ng_policy_follow_up(void)
{
    if (!atomic_load(&aborting))
        return;
    switch (ng_abort_state(NG_ABORT_POLICY)) {
    case NG_ABORT_UNDER_WAY:
        return;
    case NG_ABORT_STUCK:
        /* If false, the abort has just returned: its state is examined again when that is
         * signalled. */
        if (ng_escalate_stuck_abort()) {
            mark_noticed_end();
            end_process();
        }
        return;
    case NG_ABORT_NONE:
    case NG_ABORT_RETURNED:
        atomic_store(&aborting, false);
        if (ng_teardown_has_begun())
            end_process();
        atomic_store(&stuck_at_mono_ns, 0);
    }
}
