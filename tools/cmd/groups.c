/*
 * `ncclguard groups`: the groups of a job, with their members, deadlines and what made them.
 *
 * Reads the board from outside, invisibly to the job. Must never wait for a store for longer than
 * it says.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/view/view.h"
#include "tools/base/command.h"
#include "tools/base/usage.h"
#include "tools/jobs/jobs.h"
#include "tools/render/group_list.h"

#define COMMAND "groups"

enum { OPTION_JOB, OPTION_STORE, OPTION_RUN, OPTION_JSON, OPTION_COUNT };

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_JOB] = NG_JOBS_JOB_OPTION,
    [OPTION_STORE] = NG_JOBS_STORE_OPTION,
    [OPTION_RUN] = NG_JOBS_RUN_OPTION,
    [OPTION_JSON] = {"json", NULL, "print JSON (schema " NG_GROUP_LIST_SCHEMA ")"},
};

static const struct ng_usage usage = {
    .command = COMMAND,
    .synopsis = "[--job JOB] [--run RUN] [--store URL] [--json]",
    .about =
        "List the groups of a job in the order in which they were made: id, name, size, state,\n"
        "what made it, the deadline of its collectives, which global rank is which rank of the\n"
        "group, and which group has the same members. A group that no process destroyed before\n"
        "it ended is `left`; where ranks of a group have different deadlines, it says so.\n"
        "Exit status: 0, 1 the store cannot be reached, 2 usage error or no such job.",
    .options = options,
    .option_count = OPTION_COUNT,
    .alone = "write `ncclguard groups --job JOB`",
};

static int list(struct ng_job *job, bool json)
{
    struct ng_view view;

    ng_view_init(&view);
    int status = ng_jobs_view_or_tell(COMMAND, job, &view);
    if (status == 0) {
        int error = json ? ng_group_list_write_json(&view, job->name, STDOUT_FILENO)
                         : ng_group_list_print(&view, job->name, stdout);
        if (error) {
            fprintf(stderr, "ncclguard groups: cannot write the output: %s\n", strerror(-error));
            status = NG_EXIT_FAILED;
        }
    }
    ng_view_fini(&view);
    return status;
}

int ng_command_groups(int argc, char **argv)
{
    const char *values[OPTION_COUNT];
    int operand, status;

    if (!ng_usage_parse(&usage, argc, argv, values, &operand, &status))
        return status;
    struct ng_job job;
    status =
        ng_jobs_choose(COMMAND, values[OPTION_JOB], values[OPTION_STORE], values[OPTION_RUN], &job);
    if (status == 0)
        status = list(&job, values[OPTION_JSON]);
    return status;
}
