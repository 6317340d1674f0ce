/*
 * The composition root: the only file that sees every floor.
 *
 * Entered by the dynamic linker before main (constructor), at exit, around fork, and by core
 * through the callbacks that are set here. Must never start a thread or make a file before the
 * program makes its first communicator, and never keep a program from starting.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "core/guard.h"
#include "core/log.h"
#include "core/paths.h"
#include "core/policy.h"
#include "shim/driver.h"
#include "shim/shim.h"
#include "store/local.h"

/* Mistakes in the configuration are told once the log is open. */
static struct {
    char severity;
    char line[400];
} mistakes[8];
static unsigned mistake_count;

static void keep_mistake(void *context, char severity, const char *line)
{
    (void)context;
    if (mistake_count == sizeof(mistakes) / sizeof(mistakes[0]))
        return;
    mistakes[mistake_count].severity = severity;
    strncpy(mistakes[mistake_count++].line, line, sizeof(mistakes[0].line) - 1);
}

/* Only programs that use NCCL hear of mistakes: a shell or a launcher under the same variables
 * stays quiet. */
static void tell_mistakes(void)
{
    for (unsigned i = 0; i < mistake_count; i++)
        ng_log(mistakes[i].severity == 'E' ? NG_LOG_ERROR : NG_LOG_WARN, "%s%s", mistakes[i].line,
               mistakes[i].severity == 'E' ? "; the default is used" : "");
    mistake_count = 0;
}

static void on_exit_of_program(int status, void *unused)
{
    (void)unused;
    ng_guard_exit(status);
}

/* Called with the first communicator, on a program's thread. */
static int open_board(struct ng_guard *guard)
{
    const char *store = guard->config.store;

    /* Registered now, after the driver's own exit handler, and so run before it: then CUDA still
     * answers. */
    on_exit(on_exit_of_program, NULL);
    tell_mistakes();
    if (guard->config.dump_dir)
        strncpy(guard->dump_dir, guard->config.dump_dir, sizeof(guard->dump_dir) - 1);
    else
        ng_paths_default_dump_dir(guard->launch.job, guard->dump_dir, sizeof(guard->dump_dir));
    if (strcmp(store, "none") == 0)
        return 0;
    if (strncmp(store, "local:", 6) != 0) {
        ng_log(NG_LOG_ERROR,
               "NCCLGUARD_STORE=%s is not a store that this version has: use local:, local:DIR or "
               "none; local: is used",
               store);
        store = "local:";
    }
    if (guard->config.dir)
        strncpy(guard->dir, guard->config.dir, sizeof(guard->dir) - 1);
    else if (store[6])
        strncpy(guard->dir, store + 6, sizeof(guard->dir) - 1);
    else
        ng_paths_default_dir(guard->launch.job, guard->dir, sizeof(guard->dir));
    int error = ng_paths_make(guard->dir);
    return error ? error : ng_local_open(guard->dir, &guard->box, &guard->board);
}

__attribute__((constructor)) static void start(void)
{
    int code;

    /* A setuid program is not ours to write files for. */
    if (getauxval(AT_SECURE))
        return;
    ng_config_parse(&ng_guard.config, environ, keep_mistake, NULL);
    if (!ng_guard.config.enabled)
        return;
    ng_launch_detect(ng_guard.config.job, (int)ng_guard.config.rank,
                     (int)ng_guard.config.world_size, &ng_guard.launch);
    ng_log_init((enum ng_log_level)ng_guard.config.log_level, ng_guard.config.log_file,
                ng_guard.launch.rank);
    ng_guard.find_cuda = ng_driver_find;
    ng_guard.open_board = open_board;
    ng_guard.adopt_thread = ng_shim_adopt_thread;
    ng_guard.box = NG_BOX_NONE;
    pthread_atfork(NULL, NULL, ng_guard_after_fork);
    if (ng_policy_parse_exit(ng_guard.config.exit_how, &code) != 0) {
        ng_log(NG_LOG_ERROR,
               "NCCLGUARD_EXIT=%s is not valid: use abort or exit:CODE with a code from 0 to 255",
               ng_guard.config.exit_how);
        ng_guard.config.exit_how = "abort";
    }
    ng_shim_set_active(true);
}
