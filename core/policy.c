/*
 * Ending the process, or leaving it alone.
 *
 * Step 10. Must end what it was told to end even when the program's own SIGABRT handler hangs, and
 * must never run the program's exit handlers: they may wait for the very thing that is stuck.
 */
#include "core/policy.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/guard.h"
#include "core/log.h"

/* A handler that prints stacks gets this long; then the default action, then SIGKILL. */
#define HANDLER_WAIT_S 2

int ng_policy_parse_exit(const char *text, int *ret_code)
{
    char *end;

    if (strcmp(text, "abort") == 0) {
        *ret_code = -1;
        return 0;
    }
    if (strncmp(text, "exit:", 5) != 0)
        return -EINVAL;
    long code = strtol(text + 5, &end, 10);
    if (end == text + 5 || *end || code < 0 || code > 255)
        return -EINVAL;
    *ret_code = (int)code;
    return 0;
}

const char *ng_policy_name(void)
{
    return ng_guard.config.on_timeout == NG_ON_TIMEOUT_KILL ? "kill" : "log";
}

/* What the enforcing thread shall do: a futex word. */
enum order {
    REST,
    BOUND,  /* end the process at bound_mono_ns, unless it has ended before */
    INSIST, /* SIGABRT has been raised: see that it does its work */
    QUIT,
};
static _Atomic uint32_t order;
static _Atomic int64_t bound_mono_ns;
static atomic_bool enforced; /* the thread is there */

static void give_order(uint32_t wanted)
{
    atomic_store(&order, wanted);
    syscall(SYS_futex, &order, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Until the order is another one, or `until_mono_ns` (0: for ever). */
static uint32_t await_order(uint32_t current, int64_t until_mono_ns)
{
    uint32_t now;

    while ((now = atomic_load(&order)) == current) {
        int64_t left_ns = until_mono_ns - ng_clock_mono_ns();
        struct timespec left = {.tv_sec = left_ns / NG_S, .tv_nsec = left_ns % NG_S};
        if (until_mono_ns && left_ns <= 0)
            break;
        syscall(SYS_futex, &order, FUTEX_WAIT_PRIVATE, current, until_mono_ns ? &left : NULL, NULL,
                0);
    }
    return now;
}

static void sleep_s(int seconds)
{
    struct timespec left = {.tv_sec = seconds};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
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

    sleep_s(HANDLER_WAIT_S);
    sigaction(SIGABRT, &standard, NULL);
    /* Every thread of the program may block it. */
    unblock_abort();
    kill(getpid(), SIGABRT);
    sleep_s(HANDLER_WAIT_S);
    kill(getpid(), SIGKILL);
}

/* The box says so, and an exit code ends it here and now. */
static void mark_end(void)
{
    struct ng_box_header *header = ng_guard.box.header;
    int code = -1;

    ng_policy_parse_exit(ng_guard.config.exit_how, &code);
    atomic_store(&ng_guard.ending, true);
    atomic_store(&header->life_mono_ns, ng_clock_mono_ns());
    atomic_store(&header->life, NG_BOX_ENDED_BY_GUARD);
    if (code >= 0)
        _exit(code);
}

static void *enforce(void *unused)
{
    ng_guard.adopt_thread();
    uint32_t wanted = await_order(REST, 0);
    if (wanted == BOUND)
        wanted = await_order(BOUND, atomic_load(&bound_mono_ns));
    if (wanted == QUIT)
        return unused;
    if (wanted == BOUND) {
        mark_end(); /* without a word: the log may be what hangs */
        kill(getpid(), SIGABRT);
    }
    insist();
    return unused;
}

int ng_policy_start(void)
{
    if (ng_guard.config.on_timeout != NG_ON_TIMEOUT_KILL)
        return 0;
    int error = ng_guard_thread("ncclguard/end", enforce);
    atomic_store(&enforced, error == 0);
    return error;
}

void ng_policy_finish(void)
{
    give_order(QUIT);
}

void ng_policy_after_fork(void)
{
    atomic_store(&order, REST);
    atomic_store(&enforced, false);
}

static void end_process(void)
{
    mark_end();
    if (atomic_load(&enforced)) {
        give_order(INSIST);
    } else {
        struct sigaction standard = {.sa_handler = SIG_DFL};
        sigaction(SIGABRT, &standard, NULL);
    }
    unblock_abort();
    abort();
}

void ng_policy_bound(int64_t bound_ns)
{
    if (ng_guard.config.on_timeout != NG_ON_TIMEOUT_KILL || atomic_load(&order) != REST)
        return;
    atomic_store(&bound_mono_ns, ng_clock_mono_ns() + bound_ns);
    give_order(BOUND);
}

void ng_policy_act(void)
{
    if (ng_guard.config.on_timeout == NG_ON_TIMEOUT_KILL)
        end_process();
}
