/*
 * `ncclguard dump`: the evidence of a job now, whatever state its processes are in.
 *
 * Black boxes are read from outside, so a rank that is stuck, stopped or dead is dumped like any
 * other. Only its stacks does a process have to take itself: who lives and can is asked for them.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/board.h"
#include "core/clock.h"
#include "core/config.h"
#include "core/dump.h"
#include "core/flight.h"
#include "core/paths.h"
#include "core/report.h"
#include "core/stacks.h"
#include "core/trace.h"
#include "core/view.h"
#include "store/observe.h"
#include "tools/command.h"
#include "tools/jobs.h"
#include "tools/present.h"
#include "tools/usage.h"

#define COMMAND "dump"

#define STACKS_NS (4 * NG_S) /* from the order until the last stacks are there */

enum { OPTION_JOB, OPTION_RANK, OPTION_OUT, OPTION_STORE, OPTION_STACKS, OPTION_COUNT };

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_JOB] = {"job", "JOB",
                    "the job's name (default: NCCLGUARD_JOB, else the only one on this host)"},
    [OPTION_RANK] = {"rank", "RANK", "only the process of this global rank"},
    [OPTION_OUT] = {"out", "DIR",
                    "where the dumps go (default: NCCLGUARD_DUMP_DIR, else the job's folder of\n"
                    "evidence)"},
    [OPTION_STORE] = {"store", "URL",
                      "where its ranks share what they know (default: NCCLGUARD_STORE, else\n"
                      "local:); ps does not show the password"},
    [OPTION_STACKS] = {"no-stacks", NULL, "do not ask the processes for their stacks"},
};

static const struct ng_usage usage = {
    .command = COMMAND,
    .synopsis = "[--job JOB] [--rank RANK] [--out DIR] [--store URL] [--no-stacks]",
    .about = "Write a job's evidence now: a dump of each rank (rank_<r>.json, fr/rank_<r>), the\n"
             "verdict of this moment and the timeline. Ranks that are stuck, stopped or dead are\n"
             "dumped from their black boxes, without their help; those that can add their stacks.\n"
             "The job runs on.\n"
             "Exit status: 0 dumps were written, 1 they could not be, or the store cannot be\n"
             "reached, 2 usage error, no such job or rank.",
    .options = options,
    .option_count = OPTION_COUNT,
};

struct dumping {
    struct ng_job job;
    struct ng_view view;
    const char *folder;
    int rank; /* the only one, or -1 for all */
    uint32_t written, failed;
    int error; /* the first */
};

static bool is_wanted(const struct dumping *dumping, uint32_t process)
{
    return dumping->rank < 0 || ng_dump_rank(&dumping->view, process) == dumping->rank;
}

static void remember(struct dumping *dumping, int error)
{
    if (error && !dumping->error)
        dumping->error = error;
}

static void write_dumps(struct dumping *dumping)
{
    for (uint32_t i = 0; i < dumping->view.process_count; i++) {
        if (!is_wanted(dumping, i))
            continue;
        int error = ng_dump_save_process(&dumping->view, i, dumping->folder);
        if (!error)
            error = ng_flight_save_process(&dumping->view, i, dumping->folder);
        remember(dumping, error);
        dumping->written += !error;
        dumping->failed += error != 0;
    }
}

/* The verdict and the timeline are of the whole job. */
static void write_verdict(struct dumping *dumping)
{
    struct ng_verdict verdict;

    int error = ng_present_judge(&dumping->view, 0, NG_PRESENT_SUSPECT_NS, &verdict);
    if (!error) {
        error = ng_report_save(&verdict, dumping->folder);
        remember(dumping, error);
        error = ng_trace_save(&dumping->view, &verdict, dumping->folder);
        ng_report_line(&verdict, dumping->job.why, sizeof(dumping->job.why));
        ng_verdict_fini(&verdict);
    }
    remember(dumping, error);
}

/* ---- Stacks ---- */

static bool can_answer(const struct dumping *dumping, uint32_t process)
{
    return is_wanted(dumping, process) && dumping->view.processes[process].life == NG_LIFE_RUNNING;
}

static bool is_newer(const struct timespec *time, const struct timespec *than)
{
    return time->tv_sec > than->tv_sec ||
           (time->tv_sec == than->tv_sec && time->tv_nsec >= than->tv_nsec);
}

/* Has the process written its stacks since the order? */
static bool has_stacks(const struct dumping *dumping, uint32_t process,
                       const struct timespec *ordered)
{
    char name[64], path[PATH_MAX];
    struct stat status;

    ng_stacks_file_name(ng_dump_rank(&dumping->view, process), dumping->view.processes[process].pid,
                        name, sizeof(name));
    return snprintf(path, sizeof(path), "%s/%s", dumping->folder, name) < (int)sizeof(path) &&
           stat(path, &status) == 0 && is_newer(&status.st_mtim, ordered);
}

static uint32_t count_stacks(const struct dumping *dumping, const struct timespec *ordered,
                             uint32_t *ret_missing)
{
    uint32_t there = 0;

    *ret_missing = 0;
    for (uint32_t i = 0; i < dumping->view.process_count; i++)
        if (can_answer(dumping, i)) {
            bool has = has_stacks(dumping, i, ordered);
            there += has;
            *ret_missing += !has;
        }
    return there;
}

/* How many processes wrote their stacks; of those that live, *ret_missing did not. */
static uint32_t order_stacks(struct dumping *dumping, uint32_t *ret_missing)
{
    struct ng_incident order = {
        .level = NG_INCIDENT_DUMP, .claimant_rank = -1, .seq = (uint64_t)(dumping->rank + 1)};
    int64_t until = ng_clock_mono_ns() + STACKS_NS;
    const struct timespec pause = {.tv_nsec = 20 * NG_MS};
    struct timespec ordered;
    uint32_t there = count_stacks(dumping, &(struct timespec){.tv_sec = INT64_MAX}, ret_missing);

    if (!*ret_missing ||
        snprintf(order.line, sizeof(order.line), "%s", dumping->folder) >= (int)sizeof(order.line))
        return 0;
    /* Files are stamped by the coarse clock. */
    clock_gettime(CLOCK_REALTIME_COARSE, &ordered);
    if (ng_observe_order(&dumping->job.observed, &order, until, dumping->job.why,
                         sizeof(dumping->job.why)) <= 0)
        return 0;
    do {
        there = count_stacks(dumping, &ordered, ret_missing);
        nanosleep(&pause, NULL);
    } while (*ret_missing && ng_clock_mono_ns() < until);
    return there;
}

/* ---- The command ---- */

/* NULL: no memory. */
static char *choose_folder(const char *asked, const char *job)
{
    char path[PATH_MAX], *absolute = NULL;
    const char *named = asked ? asked : getenv("NCCLGUARD_DUMP_DIR");

    if (named && *named == '/')
        return strdup(named);
    if (named && *named) {
        if (getcwd(path, sizeof(path)) && asprintf(&absolute, "%s/%s", path, named) < 0)
            absolute = NULL;
        return absolute;
    }
    ng_paths_default_dump_dir(job, path, sizeof(path));
    return strdup(path);
}

static int tell(const struct dumping *dumping, uint32_t stacks, uint32_t missing, bool asked)
{
    if (dumping->error)
        fprintf(stderr, "ncclguard dump: cannot write all of it to %s: %s\n", dumping->folder,
                strerror(-dumping->error));
    printf("%u dump%s in %s", dumping->written, dumping->written == 1 ? "" : "s", dumping->folder);
    if (asked && (stacks || missing))
        printf(", %u with stacks", stacks);
    printf("\n");
    if (asked && missing)
        printf("no stacks of %u live process%s: no answer within %d s, or of another host\n",
               missing, missing == 1 ? "" : "es", (int)(STACKS_NS / NG_S));
    if (dumping->rank < 0)
        printf("%s\n", dumping->job.why);
    return dumping->error ? NG_EXIT_FAILED : NG_EXIT_OK;
}

static int dump(struct dumping *dumping, bool with_stacks)
{
    struct ng_job *job = &dumping->job;
    uint32_t stacks = 0, missing = 0, wanted = 0;

    int count = ng_observe_view(&job->observed, ng_clock_mono_ns() + NG_JOBS_WAIT_NS,
                                &dumping->view, job->why, sizeof(job->why));
    if (count < 0 && count != -ENOENT)
        return ng_jobs_failed(COMMAND, job, count);
    if (count <= 0)
        return ng_jobs_none(COMMAND, job);
    for (uint32_t i = 0; i < dumping->view.process_count; i++)
        wanted += is_wanted(dumping, i);
    if (!wanted)
        return ng_usage_error(COMMAND, "`ncclguard top` shows its ranks",
                              "the job %s has no rank %d", job->name, dumping->rank);
    int error = ng_paths_make(dumping->folder);
    if (error) {
        fprintf(stderr, "ncclguard dump: cannot use the folder %s: %s\n", dumping->folder,
                error == -EPERM ? "it belongs to somebody else, or others may write to it"
                                : strerror(-error));
        return NG_EXIT_FAILED;
    }
    dumping->view.on_request = true;
    write_dumps(dumping);
    /* A process that adds its stacks writes its dump anew. */
    if (with_stacks)
        stacks = order_stacks(dumping, &missing);
    if (dumping->rank < 0)
        write_verdict(dumping);
    return tell(dumping, stacks, missing, with_stacks);
}

static int parse_rank(const char *text, int *ret_rank)
{
    const struct ng_option number = {.type = NG_CONFIG_INTEGER, .minimum = 0, .maximum = INT_MAX};
    char why[256];
    int64_t value = -1;

    if (text && ng_config_parse_value(&number, text, &value, why, sizeof(why)) != 0)
        return ng_usage_error(COMMAND, why, "--rank %s is not valid", text);
    *ret_rank = (int)value;
    return 0;
}

int ng_command_dump(int argc, char **argv)
{
    const char *values[OPTION_COUNT];
    int operand, status, rank = -1;

    if (!ng_usage_parse(&usage, argc, argv, values, &operand, &status))
        return status;
    if (operand < argc)
        return ng_usage_unexpected(COMMAND, "write `ncclguard dump --job JOB`", argv[operand]);
    status = parse_rank(values[OPTION_RANK], &rank);
    if (status != 0)
        return status;
    struct dumping *dumping = calloc(1, sizeof(*dumping));
    if (dumping)
        status = ng_jobs_choose(COMMAND, values[OPTION_JOB], values[OPTION_STORE], &dumping->job);
    char *folder =
        dumping && status == 0 ? choose_folder(values[OPTION_OUT], dumping->job.name) : NULL;
    if (status == 0 && folder) {
        dumping->folder = folder;
        dumping->rank = rank;
        ng_view_init(&dumping->view);
        status = dump(dumping, !values[OPTION_STACKS]);
        ng_view_fini(&dumping->view);
    } else if (status == 0) {
        fprintf(stderr, "ncclguard dump: out of memory\n");
        status = NG_EXIT_FAILED;
    }
    free(folder);
    free(dumping);
    return status;
}
