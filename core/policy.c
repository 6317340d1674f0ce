/*
 * Ending the process, or leaving it alone.
 *
 * Step 10. Must end what it was told to end even when the program's own SIGABRT handler hangs, and
 * must never run the program's exit handlers: they may wait for the very thing that is stuck.
 */
#include "core/policy.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
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

static void sleep_s(int seconds)
{
    struct timespec left = {.tv_sec = seconds};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
}

static void *insist(void *unused)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};

    sleep_s(HANDLER_WAIT_S);
    sigaction(SIGABRT, &standard, NULL);
    kill(getpid(), SIGABRT);
    sleep_s(HANDLER_WAIT_S);
    kill(getpid(), SIGKILL);
    return unused;
}

static void end_process(void)
{
    struct ng_box_header *header = ng_guard.box.header;
    sigset_t abort_only;
    int code = -1;

    ng_policy_parse_exit(ng_guard.config.exit_how, &code);
    atomic_store(&ng_guard.ending, true);
    atomic_store(&header->life_mono_ns, ng_clock_mono_ns());
    atomic_store(&header->life, NG_BOX_ENDED_BY_GUARD);
    if (code >= 0)
        _exit(code);
    if (ng_guard_thread("ncclguard/end", insist) != 0) {
        struct sigaction standard = {.sa_handler = SIG_DFL};
        sigaction(SIGABRT, &standard, NULL);
    }
    sigemptyset(&abort_only);
    sigaddset(&abort_only, SIGABRT);
    pthread_sigmask(SIG_UNBLOCK, &abort_only, NULL);
    abort();
}

static int64_t bound_of_end_ns;

static void *end_at_bound(void *unused)
{
    struct timespec left = {.tv_sec = bound_of_end_ns / NG_S, .tv_nsec = bound_of_end_ns % NG_S};

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
    end_process(); /* without a word: the log may be what hangs */
    return unused;
}

void ng_policy_bound(int64_t bound_ns)
{
    static atomic_flag begun = ATOMIC_FLAG_INIT;

    if (ng_guard.config.on_timeout != NG_ON_TIMEOUT_KILL || atomic_flag_test_and_set(&begun))
        return;
    bound_of_end_ns = bound_ns;
    ng_guard_thread("ncclguard/bound", end_at_bound);
}

void ng_policy_act(void)
{
    if (ng_guard.config.on_timeout == NG_ON_TIMEOUT_KILL)
        end_process();
}
