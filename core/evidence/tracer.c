/*
 * Stops all threads of this process for a moment.
 *
 * Entered by a guard thread. While the threads are held it must wait for none of them, and so take
 * no lock, above all not those of malloc and the dynamic linker.
 *
 * Why not a signal and a handler in each thread, as crash reporters do: threads that block all
 * signals, as ours do, would be missed; poll, sleep and others would return EINTR to programs that
 * never expected it; a thread may have almost no stack left; and a late signal, after the handler
 * is gone, would end the process. Why not a thread instead of the helper process: the kernel does
 * not allow tracing threads of the own process.
 */
#include "core/evidence/tracer.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util/clock.h"

#define HELPER_STACK_BYTES (64u << 10)
#define PAUSE_NS           (100 * NG_US)
#define MARGIN_NS          (100 * NG_MS) /* for a helper that gets no CPU time */
#define END_NS             NG_S

static void say(struct ng_tracer *tracer, enum ng_tracer_step step)
{
    atomic_store_explicit(&tracer->step, step, memory_order_release);
    syscall(SYS_futex, &tracer->step, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* With Yama, a process has to name the process that may trace it. */
static bool needs_naming(void)
{
    int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
    char scope = '0';

    if (fd < 0)
        return false;
    bool got = read(fd, &scope, 1) == 1;
    close(fd);
    return got && scope == '1';
}

/* Wait for the helper to end: true; false after the bound. */
static bool reap(struct ng_tracer *tracer, int64_t until_ns)
{
    int status;

    for (;;) {
        pid_t got = waitpid(tracer->pid, &status, __WALL | WNOHANG);
        if (got == tracer->pid || (got < 0 && errno == ECHILD)) {
            tracer->pid = 0;
            return true;
        }
        if (ng_clock_mono_ns() > until_ns)
            return false;
        ng_clock_sleep(PAUSE_NS);
    }
}

static bool end_helper(struct ng_tracer *tracer)
{
    kill(tracer->pid, SIGKILL);
    return reap(tracer, ng_clock_mono_ns() + END_NS);
}

int ng_tracer_hold(struct ng_tracer *ret_tracer, struct ng_traced *threads, unsigned count,
                   int64_t stop_ns, int64_t hold_ns, struct ng_arena *arena)
{
    struct ng_tracer *tracer = ret_tracer;
    char *stack = ng_arena_alloc(arena, HELPER_STACK_BYTES);
    int64_t now = ng_clock_mono_ns();

    *tracer = (struct ng_tracer){.threads = threads,
                                 .count = count,
                                 .parent = getpid(),
                                 .stop_until_ns = now + stop_ns,
                                 .hold_until_ns = now + stop_ns + hold_ns};
    if (!stack)
        return -ENOMEM;
    bool naming = needs_naming();
    long pid = ng_tracer_start(tracer, stack + HELPER_STACK_BYTES);
    if (pid < 0)
        return (int)pid;
    tracer->pid = (int)pid;
    if (naming)
        prctl(PR_SET_PTRACER, pid, 0, 0, 0);
    say(tracer, NG_TRACER_MAY_TRACE);
    ng_tracer_await(tracer, NG_TRACER_HOLDS, tracer->stop_until_ns + MARGIN_NS);
    if (naming)
        prctl(PR_SET_PTRACER, 0, 0, 0, 0);
    if (atomic_load_explicit(&tracer->step, memory_order_acquire) >= NG_TRACER_HOLDS)
        return 0;
    end_helper(tracer);
    return -ETIMEDOUT;
}

bool ng_tracer_release(struct ng_tracer *tracer)
{
    if (!tracer->pid)
        return true;
    say(tracer, NG_TRACER_MAY_GO);
    return reap(tracer, ng_clock_mono_ns() + END_NS) || end_helper(tracer);
}
