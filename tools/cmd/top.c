/*
 * `ncclguard top`: a live view of a job: the progress of each rank, its current call, lagging and
 * lost ranks.
 *
 * Reads the board from outside, invisibly to the job. Must never wait for a store for longer than
 * it says.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/report/report.h"
#include "tools/base/command.h"
#include "tools/base/usage.h"
#include "tools/cmd/top.h"
#include "tools/render/screen.h"
#include "tools/render/table.h"
#include "tools/render/table_json.h"

#define COMMAND "top"

#define INTERVAL_NS (2 * NG_S)
enum {
    OPTION_JOB,
    OPTION_STORE,
    OPTION_RUN,
    OPTION_ONCE,
    OPTION_JSON,
    OPTION_INTERVAL,
    OPTION_STALLED,
    OPTION_COUNT
};

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_JOB] = NG_JOBS_JOB_OPTION,
    [OPTION_STORE] = NG_JOBS_STORE_OPTION,
    [OPTION_RUN] = NG_JOBS_RUN_OPTION,
    [OPTION_ONCE] = {"once", NULL, "print the table once"},
    [OPTION_JSON] = {"json", NULL,
                     "print everything once as JSON (the verdict, and " NG_TABLE_SCHEMA ")"},
    [OPTION_INTERVAL] = {"interval", "DURATION", "time between two looks (default 2s)"},
    [OPTION_STALLED] = {"stalled", "DURATION",
                        "call work stuck that was pending for this long (default: as the job's\n"
                        "guard does, by the NCCLGUARD_SUSPECT or NCCLGUARD_TIMEOUT it runs with)"},
};

static const struct ng_usage usage = {
    .command = COMMAND,
    .synopsis = "[--job JOB] [--run RUN] [--store URL] [--once] [--json] [--interval DURATION]",
    .about =
        "Show a job: where each rank of each group is (collectives entered, started and done),\n"
        "what it is in since when, how far it is behind the furthest, who is gone; and the\n"
        "verdict at this moment. The guilty come first; ranks that are alike are folded.\n"
        "On a terminal one browses it: arrows, Enter for a rank with its stack, c for the "
        "culprit,\n"
        "/ to filter, s to sort, g for groups, j for other jobs, ? for help, q to quit. Without\n"
        "ncursesw it is only redrawn; where there is no terminal it is printed once.\n"
        "Exit status: 0, 1 the store cannot be reached, 2 usage error or no such job.",
    .options = options,
    .option_count = OPTION_COUNT,
    .alone = "write `ncclguard top --job JOB`",
};

static int print_once(struct ng_job *job, int64_t asked_ns, bool json)
{
    struct ng_top_look look;
    int count = ng_top_look_take(job, asked_ns, &look), error = 0;

    if (count == 0)
        return ng_jobs_none(COMMAND, job);
    if (count < 0)
        return ng_jobs_failed(COMMAND, job, count);
    if (json) {
        error = ng_table_write_json(&look.table, STDOUT_FILENO);
    } else {
        struct ng_table_paper paper = {.time_unix_ns = look.time_unix_ns,
                                       .stuck_ns = look.stuck_ns};
        ng_table_print(&look.table, &paper, stdout);
    }
    ng_top_look_fini(&look);
    if (!error)
        return NG_EXIT_OK;
    fprintf(stderr, "ncclguard top: cannot write the output: %s\n", strerror(-error));
    return NG_EXIT_FAILED;
}

/* On a terminal. Several jobs, none of them named: they are there to choose from. */
static int watch(const char *const *values, struct ng_job *job, int64_t asked_ns,
                 int64_t interval_ns)
{
    const char *named = values[OPTION_JOB] ? values[OPTION_JOB] : getenv("NCCLGUARD_JOB");
    char error[2048];
    int status = ng_top_choose(values[OPTION_JOB], values[OPTION_STORE], values[OPTION_RUN], job,
                               error, sizeof(error));

    if (status == 0 || !named || !*named) {
        int browsed = ng_top_browse(job, status != 0, asked_ns, interval_ns);
        if (browsed != -ENOSYS)
            return browsed;
    }
    fputs(error, stderr);
    return status;
}

int ng_command_top(int argc, char **argv)
{
    const char *values[OPTION_COUNT];
    int64_t interval_ns = INTERVAL_NS, asked_ns = 0;
    int operand, status;

    if (!ng_usage_parse(&usage, argc, argv, values, &operand, &status))
        return status;
    status = ng_usage_duration(COMMAND, "interval", values[OPTION_INTERVAL], 100, &interval_ns);
    if (status == 0)
        status = ng_usage_duration(COMMAND, "stalled", values[OPTION_STALLED], 0, &asked_ns);
    if (status != 0)
        return status;
    struct ng_job job;
    if (!values[OPTION_JSON] && !values[OPTION_ONCE] && ng_screen_possible()) {
        status = watch(values, &job, asked_ns, interval_ns);
    } else {
        status = ng_jobs_choose(COMMAND, values[OPTION_JOB], values[OPTION_STORE],
                                values[OPTION_RUN], &job);
        if (status == 0)
            status = print_once(&job, asked_ns, values[OPTION_JSON]);
    }
    return status;
}
