/*
 * Runs a program as a child without interfering: signals, job control and exit status pass through.
 *
 * Used by `ncclguard run`, whose only thread waits here for signals (blocked, taken by
 * sigtimedwait: no handlers). Must never leave a process of the job behind, and must never withhold
 * from the program a signal that the terminal has already sent to it.
 */
#include "tools/jobs/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "tools/jobs/descendants.h"

/* Time for processes that outlive the program between SIGTERM and SIGKILL, and after that to
 * exit. */
#define TERMINATE_NS (2 * NG_S)
#define KILL_NS      (10 * NG_S)

static _Noreturn void child_main(char *const *argv, pid_t parent, const sigset_t *mask,
                                 bool chld_ignored, int report)
{
    int error;

    /* The end of `ncclguard run` ends the job: an unwatched program would hold its GPUs for
     * ever. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(127); /* the parent died before prctl */
    if (chld_ignored)
        signal(SIGCHLD, SIG_IGN);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(argv[0], argv);
    error = errno;
    if (write(report, &error, sizeof(error)) != (ssize_t)sizeof(error))
        _exit(126);
    _exit(127);
}

/* 0 with the child's pid, or -errno of fork or execvp. */
static int start(char *const *argv, const sigset_t *mask, bool chld_ignored, pid_t *ret_child)
{
    int report[2], error = 0;
    ssize_t bytes;
    pid_t parent = getpid();

    if (pipe2(report, O_CLOEXEC) != 0)
        return -errno;
    pid_t child = fork();
    if (child == 0)
        child_main(argv, parent, mask, chld_ignored, report[1]);
    if (child < 0) {
        error = errno;
        close(report[0]);
        close(report[1]);
        return -error;
    }
    close(report[1]);
    /* Returns after execvp, which closes the other end, or with its errno. */
    do
        bytes = read(report[0], &error, sizeof(error));
    while (bytes < 0 && errno == EINTR);
    close(report[0]);
    if (bytes == (ssize_t)sizeof(error)) {
        waitpid(child, NULL, 0);
        return -error;
    }
    *ret_child = child;
    return 0;
}

static bool told_to_end;

/*
 * The terminal, and the kernel on its behalf, signal the whole foreground group (si_code
 * SI_KERNEL): the program has that signal already.
 */
static void pass_on(pid_t child, const siginfo_t *info)
{
    told_to_end |= info->si_signo == SIGINT || info->si_signo == SIGTERM ||
                   info->si_signo == SIGHUP || info->si_signo == SIGQUIT;
    if (info->si_code == SI_KERNEL)
        return;
    if (info->si_code == SI_QUEUE)
        sigqueue(child, info->si_signo, info->si_value);
    else
        kill(child, info->si_signo);
}

/*
 * The program was stopped by job control: the shell that started us waits for us to stop, too. A
 * bare SIGSTOP (from an operator, a debugger, a test) is not mirrored, since then this process
 * would not notice the program's end.
 */
static void stop_alike(pid_t child, int signal_number)
{
    if (signal_number != SIGTSTP && signal_number != SIGTTIN && signal_number != SIGTTOU)
        return;
    raise(SIGSTOP);
    kill(child, SIGCONT);
}

/*
 * Reap every child that ended or stopped; orphans of the job are reparented to us
 * (PR_SET_CHILD_SUBREAPER). Returns false if there is no child at all.
 */
static bool reap(pid_t child, bool *child_ended, int *child_status)
{
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG | WUNTRACED);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid <= 0)
            return pid == 0;
        if (pid != child)
            continue;
        if (WIFSTOPPED(status)) {
            stop_alike(child, WSTOPSIG(status));
            continue;
        }
        *child_ended = true;
        *child_status = status;
    }
}

/* Until a signal arrives or `until_mono_ns`; the signals themselves no longer matter. */
static void wait_signal(const sigset_t *all, int64_t until_mono_ns)
{
    siginfo_t info;
    int64_t left = until_mono_ns - ng_clock_mono_ns();

    if (left <= 0)
        return;
    struct timespec timeout = {left / NG_S, left % NG_S};
    sigtimedwait(all, &info, &timeout);
}

static void end_descendants(const sigset_t *all)
{
    bool ended;
    int status;

    if (!reap(-1, &ended, &status))
        return;
    ng_descendants_signal(SIGTERM);
    int64_t until = ng_clock_mono_ns() + TERMINATE_NS;
    while (reap(-1, &ended, &status) && ng_clock_mono_ns() < until)
        wait_signal(all, until);
    until = ng_clock_mono_ns() + KILL_NS;
    while (reap(-1, &ended, &status) && ng_clock_mono_ns() < until) {
        /* Repeatedly: a process may have forked meanwhile. */
        ng_descendants_signal(SIGKILL);
        int64_t soon = ng_clock_mono_ns() + 100 * NG_MS;
        wait_signal(all, soon < until ? soon : until);
    }
    if (reap(-1, &ended, &status))
        fprintf(stderr,
                "ncclguard run: %zu processes of the program do not end, not even by SIGKILL\n",
                ng_descendants_signal(SIGKILL));
}

/* They are told to other hosts by a process of ours, for which end_descendants waits as for any
 * other. */
static void record_last_ends(struct ng_rank_ends *ends)
{
    if (!ends)
        return;
    ng_rank_ends_wait(ends, -1, 0);
    ng_rank_ends_tell(ends);
}

/* Until a signal arrives, at most `timeout_ms` (-1: for ever), while ends of ranks are recorded.
 * The signal, or -1. */
static int await_signal(const sigset_t *all, int signal_fd, struct ng_rank_ends *ends,
                        int timeout_ms, siginfo_t *ret_info)
{
    struct timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * NG_MS};

    if (ends && signal_fd >= 0) {
        ng_rank_ends_wait(ends, signal_fd, timeout_ms);
        timeout = (struct timespec){0};
    } else if (timeout_ms < 0) {
        return sigwaitinfo(all, ret_info);
    }
    return sigtimedwait(all, ret_info, &timeout);
}

int ng_supervise(char *const *argv, struct ng_job_folders *folders, struct ng_leftovers *leftovers,
                 struct ng_rank_ends *ends, int *ret_status)
{
    sigset_t all, mask;
    struct sigaction chld;
    pid_t child = -1;
    bool ended = false;
    int status = 0;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &mask);
    /* Our parent may have ignored SIGCHLD: then the kernel would reap our children itself. */
    sigaction(SIGCHLD, NULL, &chld);
    bool chld_ignored = chld.sa_handler == SIG_IGN;
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (folders)
        ng_job_folders_watch(folders);
    int result = start(argv, &mask, chld_ignored, &child);
    if (result != 0)
        return result;

    int signal_fd = ends ? signalfd(-1, &all, SFD_CLOEXEC) : -1; /* only for waiting */
    int64_t due = 0;                                             /* when to check for leftovers */
    for (;;) {
        siginfo_t info;
        if (leftovers && ng_clock_mono_ns() >= due) {
            due = ng_clock_mono_ns() + ng_leftovers_check(leftovers, folders) * NG_MS;
            if (ends)
                ng_rank_ends_look(ends, folders);
        }
        reap(child, &ended, &status);
        if (ended)
            break;
        bool looks = folders && folders->fd < 0;
        int64_t left = leftovers ? due - ng_clock_mono_ns() : NG_S;
        int left_ms = left > 0 ? (int)(left / NG_MS) + 1 : 0;
        int number = await_signal(&all, signal_fd, ends, looks || leftovers ? left_ms : -1, &info);
        if (number < 0 ? looks : folders && number == SIGIO && info.si_code == POLL_IN) {
            ng_job_folders_look(folders);
            if (ends)
                ng_rank_ends_look(ends, folders);
        } else if (number > 0 && number != SIGCHLD) {
            pass_on(child, &info);
        }
    }
    if (signal_fd >= 0)
        close(signal_fd);
    record_last_ends(ends);
    end_descendants(&all);
    record_last_ends(ends);
    end_descendants(&all);
    if (folders)
        ng_job_folders_look(folders);
    *ret_status = status;
    return 0;
}

bool ng_supervise_got_end_signal(void)
{
    return told_to_end;
}

void ng_supervise_end_like(int status)
{
    if (WIFSIGNALED(status)) {
        int number = WTERMSIG(status);
        sigset_t one;
        /* The program's core file is useful, ours would not be. */
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        prctl(PR_SET_DUMPABLE, 0);
        signal(number, SIG_DFL);
        raise(number);
        sigemptyset(&one);
        sigaddset(&one, number);
        sigprocmask(SIG_UNBLOCK, &one, NULL);
        _exit(128 + number); /* process 1 of a container cannot end by a signal */
    }
    _exit(WEXITSTATUS(status));
}
