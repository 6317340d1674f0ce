/*
 * Commands of an operator to a job: `ncclguard abort`, `suspend`, `resume`, `reload` and `set`.
 *
 * Each posts its command on the board, where every rank's guard finds it. After an abort, the
 * program's NCCL calls return errors; handling them is up to the program.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/config/settable.h"
#include "core/nccl/board.h"
#include "core/util/macros.h"
#include "core/view/view.h"
#include "store/board/board_client.h"
#include "tools/base/command.h"
#include "tools/base/usage.h"
#include "tools/cmd/group_choice.h"
#include "tools/cmd/set.h"
#include "tools/jobs/jobs.h"

#define EXIT_STATUS                                                                                \
    "Exit status: 0 the command was sent, 1 the store cannot be reached, 2 usage error, no\n"      \
    "such job or group, or none of its processes is alive."

/* Options; each command takes the first so many of them. */
enum { JOB, STORE, RUN, GROUP, FOR, OPTIONS };

static const struct ng_usage_option options[OPTIONS] = {
    [JOB] = {"job", "JOB", "the job's name, as `ncclguard top` shows it"},
    [STORE] = NG_JOBS_STORE_OPTION,
    [RUN] = NG_JOBS_RUN_OPTION,
    [GROUP] = {"group", "GROUP",
               "only this group: its id (16 hex digits), or its name where no other group\n"
               "has the same"},
    [FOR] = {"for", "DURATION",
             "for at most this long, so that a job that nobody resumes is not left\n"
             "unguarded (default: until `ncclguard resume`)"},
};

/* One command. */
struct order {
    struct ng_usage usage;
    enum ng_command_kind kind;
    int64_t rest_ns;  /* of NG_COMMAND_REST */
    const char *what; /* "abort %s", with the groups */
    const char *left; /* message if there is nothing left to do */
};

#define USAGE(name, form, count, text)                                                             \
    {                                                                                              \
        .command = name, .synopsis = form, .about = text "\n" EXIT_STATUS, .options = options,     \
        .option_count = count, .alone = "write `ncclguard " name " --job JOB`"                     \
    }

static const struct order abort_order = {
    .usage =
        USAGE("abort", "--job JOB [--run RUN] [--group GROUP] [--store URL]", GROUP + 1,
              "Abort the communicators of a job on every rank: NCCL calls that hang return with "
              "an\nerror. The processes live on; what they do with the error is theirs to "
              "decide."),
    .kind = NG_COMMAND_ABORT,
    .what = "abort %s",
    .left = "there is nothing left to abort",
};

static const struct order suspend_order = {
    .usage = USAGE(
        "suspend", "--job JOB [--run RUN] [--group GROUP] [--for DURATION] [--store URL]", FOR + 1,
        "Stop the deadlines of a job, or of one group, on every rank: nothing becomes suspect,\n"
        "and no rank is ended for waiting, as during a long checkpoint. Pending calls continue\n"
        "later with the time that they had left. A rank that dies is still reported."),
    .kind = NG_COMMAND_REST,
    .rest_ns = INT64_MAX,
    .what = "suspend the deadlines of %s",
    .left = "there is nothing left to suspend",
};

static const struct order resume_order = {
    .usage = USAGE("resume", "--job JOB [--run RUN] [--group GROUP] [--store URL]", GROUP + 1,
                   "Let deadlines run again that `ncclguard suspend` has stopped. Without --group, "
                   "also\nthose of groups that were suspended one by one; a group of a job that is "
                   "suspended as a\nwhole stays so."),
    .kind = NG_COMMAND_REST,
    .what = "resume the deadlines of %s",
    .left = "there is nothing left to resume",
};

static const struct order reload_order = {
    .usage = USAGE(
        "reload", "--job JOB [--run RUN] [--store URL]", RUN + 1,
        "Have every rank of a job read its rules file (NCCLGUARD_RULES) again. Each logs the\n"
        "outcome; if a line cannot be read, the previous rules stay in force."),
    .kind = NG_COMMAND_RELOAD,
    .what = "read the rules of %s again",
    .left = "there is no process left to read rules",
};

static const struct order set_order = {
    .usage =
        {.command = "set",
         .synopsis = "--job JOB [--run RUN] [--store URL] NAME=VALUE…",
         .about =
             "Change options of a job while it runs, on every rank: timing=off|sampled|all\n"
             "(NCCLGUARD_TIMING) and log=off|error|warn|info|debug (NCCLGUARD_LOG). It waits "
             "until\n"
             "the ranks have taken them, and names those that have not. Processes that join the\n"
             "job later are not reached: they begin with what their environment says.\n"
             "Exit status: 0 every process has taken them, 1 some have not, or the store cannot "
             "be\n"
             "reached, 2 usage error (nothing is changed), no such job, or none of its processes\n"
             "is alive.",
         .options = options,
         .option_count = RUN + 1},
    .kind = NG_COMMAND_SET,
    .left = "nothing is left to set",
};

/* The target of the command, from the job's current state. 0, or an exit status after reporting the
 * error. */
static int aim(const struct order *order, struct ng_job *job, const char *group,
               uint64_t *ret_group_id)
{
    const char *command = order->usage.command;
    struct ng_view view;

    ng_view_init(&view);
    int status = ng_jobs_view_or_tell(command, job, &view);
    if (status == 0 &&
        !NG_ANY(process, view.processes, view.process_count, ng_set_may_answer(process)))
        status = ng_usage_error(command, order->left, "no process of job %s is alive", job->name);
    else if (status == 0 && group)
        status = ng_group_choice_find(command, &view, group, true, ret_group_id);
    ng_view_fini(&view);
    return status;
}

/* "suspend the deadlines of group 0123456789abcdef for 30m", "set timing=all" */
static void describe(const struct order *order, const struct ng_command *given,
                     const char *for_text, char *ret_text, size_t bytes)
{
    char groups[40] = "all groups", values[96];

    if (given->kind == NG_COMMAND_SET) {
        ng_set_describe(given, values, sizeof(values));
        snprintf(ret_text, bytes, "set %s", values);
        return;
    }

    if (given->group_id)
        snprintf(groups, sizeof(groups), "group %016" PRIx64, given->group_id);
    int used = snprintf(ret_text, bytes, order->what, groups);
    if (for_text)
        snprintf(ret_text + used, bytes - (size_t)used, " for %.40s", for_text);
}

/* `given`: its kind and values. */
static int give_order(const struct order *order, struct ng_job *job, const char *group,
                      const char *for_text, struct ng_command given)
{
    const char *command = order->usage.command;
    char host[64] = "", what[160];

    int status = aim(order, job, group, &given.group_id);
    if (status != 0)
        return status;
    gethostname(host, sizeof(host) - 1);
    describe(order, &given, for_text, what, sizeof(what));
    /* The line that the ranks log. */
    snprintf(given.line, sizeof(given.line),
             "`ncclguard %s` (host %s, pid %d) orders: %s of job %s", command, host, (int)getpid(),
             what, job->name);
    job->why[0] = '\0';
    int count = ng_board_client_order(&job->observed, &given, ng_clock_mono_ns() + NG_JOBS_WAIT_NS,
                                      job->why, sizeof(job->why));
    if (count < 0)
        return ng_jobs_failed(command, job, count);
    if (count == 0)
        return ng_usage_error(command, order->left, "no process of job %s is alive", job->name);
    printf("told %d process%s of job %s to %s\n", count, count == 1 ? "" : "es", job->name, what);
    return order->kind == NG_COMMAND_SET ? ng_set_await(job, &given) : NG_EXIT_OK;
}

static int command(const struct order *order, int argc, char **argv)
{
    const char *values[OPTIONS] = {NULL}, *name = order->usage.command;
    int operand, status;
    struct ng_command given = {.kind = order->kind, .for_ns = order->rest_ns, .rank = -1};

    if (!ng_usage_parse(&order->usage, argc, argv, values, &operand, &status))
        return status;
    /* Always explicit: a command to the wrong job cannot be undone. */
    if (!values[JOB])
        return ng_usage_error(name, "write --job JOB; `ncclguard top` shows it",
                              "no job was named");
    if (values[GROUP] && !*values[GROUP])
        return ng_usage_error(name, "write --group GROUP, or leave it out for all groups",
                              "the group's name is empty");
    status = ng_usage_duration(name, "for", values[FOR], 0, &given.for_ns);
    if (status == 0 && order->kind == NG_COMMAND_SET)
        status = ng_set_parse(argv + operand, argc - operand, &given);
    if (status != 0)
        return status;
    struct ng_job job;
    status = ng_jobs_choose(name, values[JOB], values[STORE], values[RUN], &job);
    if (status == 0)
        status = give_order(order, &job, values[GROUP], values[FOR], given);
    return status;
}

int ng_command_abort(int argc, char **argv)
{
    return command(&abort_order, argc, argv);
}

int ng_command_suspend(int argc, char **argv)
{
    return command(&suspend_order, argc, argv);
}

int ng_command_resume(int argc, char **argv)
{
    return command(&resume_order, argc, argv);
}

int ng_command_reload(int argc, char **argv)
{
    return command(&reload_order, argc, argv);
}

int ng_command_set(int argc, char **argv)
{
    return command(&set_order, argc, argv);
}
