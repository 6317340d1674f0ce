/*
 * Commands of an operator to a job: `ncclguard abort`, `suspend`, `resume`, `reload` and `set`.
 *
 * Each posts its command on the board, where every rank's guard finds it. After an abort, the
 * program's NCCL calls return errors; handling them is up to the program. A rank answers `set` in
 * its black box, and over a store in the progress that it publishes, so that one that is frozen is
 * seen not to have answered.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/config/config.h"
#include "core/config/settable.h"
#include "core/nccl/board.h"
#include "core/report/dump.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/text.h"
#include "core/view/view.h"
#include "store/board/board_client.h"
#include "tools/base/command.h"
#include "tools/base/usage.h"
#include "tools/cmd/group_choice.h"
#include "tools/jobs/jobs.h"

#define ANSWER_NS    (5 * NG_S) /* over a store, a process publishes its progress once a second */
#define PAUSE_NS     (20 * NG_MS)
#define PAUSE_MAX_NS (500 * NG_MS)
#define NAMED_MAX    16 /* of those without an answer */

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

static const struct order *const orders[] = {&abort_order, &suspend_order, &resume_order,
                                             &reload_order, &set_order};

/* ---- What is to be set ---- */

static const char *settable_name(const void *table, size_t index)
{
    return ng_settable_name((enum ng_settable)index);
}

/* "write timing=off|sampled|all or log=off|error|warn|info|debug" */
static void describe_choices(char *ret_text, size_t bytes)
{
    struct ng_text text = {ret_text, 0, bytes};

    ret_text[0] = '\0';
    for (unsigned i = NG_SETTABLES; i-- > 0;)
        ng_text_add(&text, "%s%s=%s", text.used ? " or " : "write ",
                    ng_settable_name((enum ng_settable)i),
                    ng_settable_option((enum ng_settable)i)->choices);
}

/* An option that is read at the start only, or none. Returns the exit status. */
static int refuse_name(const char *name)
{
    char mend[160], variable[96];

    describe_choices(mend, sizeof(mend));
    snprintf(variable, sizeof(variable), "%s", name);
    for (char *at = variable; *at; at++)
        *at = *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
    char full[128];
    snprintf(full, sizeof(full), "NCCLGUARD_%s", variable);
    if (ng_config_find(variable) || ng_config_find(full))
        return ng_usage_error(
            "set", mend, "%s is read when a process starts, and cannot be set while it runs", name);
    const char *nearest = ng_usage_nearest(name, settable_name, NULL, NG_SETTABLES);
    if (nearest)
        snprintf(mend, sizeof(mend), "did you mean %s=%s?", nearest,
                 ng_settable_option(ng_settable_find(nearest))->choices);
    return ng_usage_error("set", mend, "no option is called %s", name);
}

static int parse_word(const char *word, struct ng_command *command)
{
    const char *equals = strchr(word, '=');
    char name[64], mend[160], why[256];
    int value;

    describe_choices(mend, sizeof(mend));
    if (!equals || equals == word || equals - word >= (ptrdiff_t)sizeof(name))
        return ng_usage_error("set", mend, "%.200s is not of the form NAME=VALUE", word);
    snprintf(name, sizeof(name), "%.*s", (int)(equals - word), word);
    enum ng_settable settable = ng_settable_find(name);
    if (settable == NG_SETTABLES)
        return refuse_name(name);
    if (ng_config_parse_value(ng_settable_option(settable), equals + 1, &value, why, sizeof(why)) !=
        0)
        return ng_usage_error("set", why, "%.200s is not valid", word);
    if (command->set[settable])
        return ng_usage_error("set", "write each option once", "%s is set twice",
                              ng_settable_name(settable));
    command->set[settable] = (uint8_t)(value + 1);
    return 0;
}

/* The words NAME=VALUE as values of *command. 0, or an exit status after reporting the usage
 * error. */
static int parse_set(char *const *words, int count, struct ng_command *command)
{
    char mend[160];
    int status = 0;

    describe_choices(mend, sizeof(mend));
    if (count == 0)
        return ng_usage_error("set", mend, "nothing is to be set");
    for (int i = 0; i < count && status == 0; i++)
        status = parse_word(words[i], command);
    return status;
}

static struct ng_settable_values values_of(const struct ng_command *command)
{
    struct ng_settable_values values;

    memcpy(values.of, command->set, sizeof(values.of));
    return values;
}

/* ---- Which ranks have taken it ---- */

/* Whether the process lives, as far as is known: only those take commands. */
static bool may_answer(const struct ng_view_process *process)
{
    return process->life == NG_LIFE_RUNNING || process->life == NG_LIFE_STOPPED ||
           process->life == NG_LIFE_UNKNOWN;
}

static bool has_taken(const struct ng_view_process *process,
                      const struct ng_settable_values *values)
{
    for (unsigned i = 0; i < NG_SETTABLES; i++)
        if (values->of[i] && process->set.of[i] != values->of[i])
            return false;
    return true;
}

struct answer {
    uint32_t living, taken, frozen; /* frozen: those without an answer that are stopped */
};

static struct answer count_answers(const struct ng_view *view,
                                   const struct ng_settable_values *values)
{
    struct answer answer = {0};

    NG_EACH (process, view->processes, view->process_count) {
        bool taken = has_taken(process, values);
        bool lives = may_answer(process);
        answer.living += lives;
        answer.taken += lives && taken;
        answer.frozen += process->life == NG_LIFE_STOPPED && !taken;
    }
    return answer;
}

static int compare_ranks(const void *left, const void *right, void *view)
{
    int a = ng_dump_rank(view, *(const uint32_t *)left),
        b = ng_dump_rank(view, *(const uint32_t *)right);

    return NG_ORDER(a, b);
}

/* By rank, those without one first. */
static void name_silent(const struct ng_view *view, const struct ng_settable_values *values)
{
    uint32_t *silent = calloc(view->process_count + 1, sizeof(*silent)), count = 0;

    for (uint32_t i = 0; silent && i < view->process_count; i++)
        if (may_answer(&view->processes[i]) && !has_taken(&view->processes[i], values))
            silent[count++] = i;
    if (count)
        qsort_r(silent, count, sizeof(*silent), compare_ranks, (void *)view);
    for (uint32_t i = 0; i < count && i < NAMED_MAX; i++) {
        const struct ng_view_process *process = &view->processes[silent[i]];
        char rank[32] = "a process";
        if (ng_dump_rank(view, silent[i]) >= 0)
            snprintf(rank, sizeof(rank), "rank %d", ng_dump_rank(view, silent[i]));
        printf("not taken by %s (host %s, pid %d): %s\n", rank, process->host, process->pid,
               process->life == NG_LIFE_STOPPED ? "it is frozen, and will when it continues"
                                                : "no answer within 5 s");
    }
    if (count > NAMED_MAX)
        printf("not taken by %u more\n", count - NAMED_MAX);
    free(silent);
}

/* Look once. 0, or -errno. */
static int look(struct ng_job *job, const struct ng_settable_values *values, struct ng_view *view,
                struct answer *ret_answer)
{
    ng_view_fini(view);
    ng_view_init(view);
    int count = ng_jobs_view(job, view);
    if (count < 0)
        return count;
    *ret_answer = count_answers(view, values);
    return 0;
}

/* Wait, within a bound, until the living processes have taken what was set, and print which have.
 * Returns an exit status. */
static int await_set(struct ng_job *job, const struct ng_command *command)
{
    struct ng_settable_values values = values_of(command);
    int64_t until = ng_clock_mono_ns() + ANSWER_NS, pause_ns = PAUSE_NS;
    struct answer answer;
    struct ng_view view;
    bool over = false;
    int error;

    ng_view_init(&view);
    while ((error = look(job, &values, &view, &answer)) == 0 && !over &&
           answer.taken + answer.frozen < answer.living) {
        ng_clock_sleep(pause_ns);
        pause_ns = 2 * pause_ns < PAUSE_MAX_NS ? 2 * pause_ns : PAUSE_MAX_NS;
        over = ng_clock_mono_ns() >= until; /* one more look */
    }
    if (!error) {
        printf("%u of %u process%s took it\n", answer.taken, answer.living,
               answer.living == 1 ? "" : "es");
        name_silent(&view, &values);
    }
    ng_view_fini(&view);
    if (error)
        return ng_jobs_failed("set", job, error);
    return answer.taken && answer.taken == answer.living ? NG_EXIT_OK : NG_EXIT_FAILED;
}

/* ---- Giving an order ---- */

/* The target of the command, from the job's current state. 0, or an exit status after reporting the
 * error. */
static int aim(const struct order *order, struct ng_job *job, const char *group,
               uint64_t *ret_group_id)
{
    const char *command = order->usage.command;
    struct ng_view view;

    ng_view_init(&view);
    int status = ng_jobs_view_or_tell(command, job, &view);
    if (status == 0 && !NG_ANY(process, view.processes, view.process_count, may_answer(process)))
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
    char groups[40] = "all groups", words[96];

    if (given->kind == NG_COMMAND_SET) {
        struct ng_settable_values values = values_of(given);
        ng_settable_describe(&values, words, sizeof(words));
        snprintf(ret_text, bytes, "set %s", words);
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
    return order->kind == NG_COMMAND_SET ? await_set(job, &given) : NG_EXIT_OK;
}

int ng_command_order(int argc, char **argv)
{
    const char *values[OPTIONS] = {NULL}, *name = argv[0];
    const struct order *order =
        *NG_FIND(one, orders, NG_COUNT(orders), strcmp((*one)->usage.command, name) == 0);
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
        status = parse_set(argv + operand, argc - operand, &given);
    if (status != 0)
        return status;
    struct ng_job job;
    status = ng_jobs_choose(name, values[JOB], values[STORE], values[RUN], &job);
    if (status == 0)
        status = give_order(order, &job, values[GROUP], values[FOR], given);
    return status;
}
