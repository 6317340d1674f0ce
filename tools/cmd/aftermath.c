/*
 * Judges the black boxes of a job that has failed.
 *
 * Used by `ncclguard run`, at its end. Must never keep it from ending.
 */
#include "tools/cmd/aftermath.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/util/clock.h"
#include "tools/base/command.h"

#define BOUND_NS (10 * NG_S)
#define PAUSE_US 5000

extern char **environ;

/* The exit status; -1: it has none, could not be started, or did not finish in time. */
static int await(pid_t child)
{
    int64_t until = ng_clock_mono_ns() + BOUND_NS;
    int status;

    while (waitpid(child, &status, WNOHANG) == 0) {
        if (ng_clock_mono_ns() >= until) {
            kill(child, SIGKILL);
            waitpid(child, &status, 0);
            return -1;
        }
        usleep(PAUSE_US);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Run this command itself. `loud`: its output goes to stderr, else it is dropped. */
static int run(const char *const *argv, bool loud)
{
    posix_spawn_file_actions_t actions;
    pid_t child;

    if (posix_spawn_file_actions_init(&actions) != 0)
        return -1;
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (loud) {
        posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
    } else {
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    }
    int error = posix_spawn(&child, "/proc/self/exe", &actions, NULL, (char *const *)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return error ? -1 : await(child);
}

/* Preloads for the program, its store and downloads are not for these helpers. */
static void forget_program(void)
{
    unsetenv("LD_PRELOAD");
    unsetenv("NCCLGUARD_STORE");
    unsetenv("DEBUGINFOD_URLS");
}

enum ng_aftermath ng_aftermath_look(const char *boxes, const char *job, const char *evidence)
{
    const char *const builder[] = {"ncclguard", "analyze", boxes, NULL};
    const char *const keep[] = {"ncclguard", "dump",   "--job",       job,
                                "--out",     evidence, "--no-stacks", NULL};

    forget_program();
    if (run(builder, false) != NG_EXIT_FAULT)
        return NG_AFTERMATH_NOTHING;
    if (run(keep, false) == NG_EXIT_OK)
        return NG_AFTERMATH_SAVED;
    run(builder, true);
    return NG_AFTERMATH_TOLD;
}

enum ng_aftermath ng_aftermath_look_at_run(const char *job, const char *which, const char *evidence)
{
    const char *const keep[] = {"ncclguard", "dump",  "--job",  job,           "--run",
                                which,       "--out", evidence, "--no-stacks", NULL};
    const char *const builder[] = {"ncclguard", "analyze", evidence, NULL};

    forget_program();
    return run(keep, false) == NG_EXIT_OK && run(builder, false) == NG_EXIT_FAULT
               ? NG_AFTERMATH_SAVED
               : NG_AFTERMATH_NOTHING;
}
