/*
 * `ncclguard dump`: the evidence of a job now, whatever state its processes are in.
 *
 * Black boxes are read from outside, so a rank that is stuck, stopped or dead is dumped like any
 * other. Only stacks must be taken by the process itself: live processes that can take them are
 * requested to.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "core/config/config.h"
#include "core/nccl/board.h"
#include "core/recorder/paths.h"
#include "core/report/dump.h"
#include "core/report/flight.h"
#include "core/report/report.h"
#include "core/report/stacks_format.h"
#include "core/report/trace.h"
#include "core/util/clock.h"
#include "core/view/view.h"
#include "core/view/view_keep.h"
#include "store/board/board_client.h"
#include "tools/base/command.h"
#include "tools/base/usage.h"
#include "tools/cmd/group_choice.h"
#include "tools/jobs/jobs.h"
#include "tools/judge/live_verdict.h"

#define COMMAND "dump"

#define STACKS_NS (4 * NG_S) /* from the command until the last stacks have arrived */

enum {
    OPTION_JOB,
    OPTION_RANK,
    OPTION_OUT,
    OPTION_STORE,
    OPTION_RUN,
    OPTION_GROUP,
    OPTION_ACTIVE,
    OPTION_FRAMES,
    OPTION_STACKS,
    OPTION_COUNT
};

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_JOB] = NG_JOBS_JOB_OPTION,
    [OPTION_RANK] = {"rank", "RANK", "only the process of this global rank"},
    [OPTION_OUT] = {"out", "DIR",
                    "where the dumps go (default: NCCLGUARD_DUMP_DIR, else\n"
                    "$TMPDIR/ncclguard-UID/JOB; not the --out of `ncclguard run`; with\n"
                    "--group, --active or --no-frames a new folder dump-TIME in it)"},
    [OPTION_STORE] = NG_JOBS_STORE_OPTION,
    [OPTION_RUN] = NG_JOBS_RUN_OPTION,
    [OPTION_GROUP] =
        {"group", "GROUP",
         "only this group, and the processes in it: its id (16 hex digits), or its name\n"
         "where no other group has the same; takes no stacks"},
    [OPTION_ACTIVE] = {"active", NULL, "only calls that are not finished; takes no stacks"},
    [OPTION_FRAMES] = {"no-frames", NULL, "without where calls were made; takes no stacks"},
    [OPTION_STACKS] = {"no-stacks", NULL, "do not ask the processes for their stacks"},
};

static const struct ng_usage usage = {
    .command = COMMAND,
    .synopsis = "[--job JOB] [--run RUN] [--rank RANK] [--out DIR] [--store URL] "
                "[--group GROUP] [--active] [--no-frames] [--no-stacks]",
    .about =
        "Write a job's evidence now: a dump of each rank (rank_<r>.json, fr/rank_<r>), the\n"
        "verdict of this moment and the timeline. Ranks that are stuck, stopped or dead are\n"
        "dumped from their black boxes, without their help; those that can add their stacks.\n"
        "Over Redis, processes of other hosts write theirs into their own NCCLGUARD_DUMP_DIR.\n"
        "The job runs on. A verdict there on which the guard has acted stays, and, once\n"
        "the job is over, one about a rank that was gone or calls that differed.\n"
        "Exit status: 0 dumps were written, 1 they could not be, or the store cannot be\n"
        "reached, 2 usage error, no such job or rank.",
    .options = options,
    .option_count = OPTION_COUNT,
    .alone = "write `ncclguard dump --job JOB`",
};

struct dumping {
    struct ng_job job;
    struct ng_view view;
    const char *folder;
    int rank;               /* rank of the only one, or -1 for all */
    const char *group;      /* only this one; NULL all */
    bool active, no_frames; /* less than all of each */
    bool *wanted;           /* by process of the view: it is dumped */
    uint32_t written, failed;
    int error;      /* the first */
    char kept[256]; /* the guard's own verdict that is kept; "" none */
    /* Processes whose stacks come into the folder: by process of the view, those on the local
     * board. NULL: all. */
    bool *here;
};

/* Result of the command for stacks. */
struct stacks {
    uint32_t there, missing;             /* live processes of this host */
    uint32_t elsewhere;                  /* live processes of other hosts */
    bool asked;                          /* the command reached those of other hosts */
    char why[NG_BOARD_CLIENT_WHY_BYTES]; /* else */
};

/* On the whole view, in which `rank` is the global one. 0, or an exit status after reporting the
 * error. */
static int choose_processes(struct dumping *dumping, uint64_t group_id)
{
    const struct ng_view *view = &dumping->view;
    uint32_t count = 0, of_rank = 0, wanted = 0;
    const struct ng_view_member *members =
        dumping->group ? ng_view_members(view, ng_view_find_group(view, group_id), &count) : NULL;

    dumping->wanted = calloc(view->process_count, sizeof(*dumping->wanted));
    if (!dumping->wanted) {
        fprintf(stderr, "ncclguard dump: out of memory\n");
        return NG_EXIT_FAILED;
    }
    for (uint32_t i = 0; i < count; i++)
        dumping->wanted[members[i].process] = true;
    for (uint32_t i = 0; i < view->process_count; i++) {
        bool is_of_rank = dumping->rank < 0 || ng_dump_rank(view, i) == dumping->rank;
        dumping->wanted[i] = is_of_rank && (!dumping->group || dumping->wanted[i]);
        of_rank += is_of_rank;
        wanted += dumping->wanted[i];
    }
    if (!of_rank)
        return ng_usage_error(COMMAND, "`ncclguard top` shows its ranks",
                              "the job %s has no rank %d", dumping->job.name, dumping->rank);
    if (!wanted && dumping->rank >= 0)
        return ng_usage_error(COMMAND, "`ncclguard groups` shows the ranks of each group",
                              "the process of rank %d is not in group %016" PRIx64, dumping->rank,
                              group_id);
    return 0;
}

static bool is_reduced(const struct dumping *dumping)
{
    return dumping->group || dumping->active || dumping->no_frames;
}

/* The dumps say that they do not have all, since an analysis of them knows less. */
static void reduce(struct dumping *dumping, uint64_t group_id)
{
    struct ng_view *view = &dumping->view;

    if (dumping->group)
        ng_view_keep_group(view, group_id);
    if (dumping->active)
        ng_view_keep_active(view);
    if (dumping->no_frames)
        ng_view_forget_frames(view);
    if (is_reduced(dumping))
        ng_view_note(view, "as asked for, this dump has only%s%s%s%s",
                     dumping->active ? " calls that are not finished" : " calls",
                     dumping->group ? " of group " : "", dumping->group ? dumping->group : "",
                     dumping->no_frames ? ", without frames" : "");
}

static void remember(struct dumping *dumping, int error)
{
    if (error && !dumping->error)
        dumping->error = error;
}

static void write_dumps(struct dumping *dumping)
{
    for (uint32_t i = 0; i < dumping->view.process_count; i++) {
        if (!dumping->wanted[i])
            continue;
        int error = ng_dump_save_process(&dumping->view, i, dumping->folder)
                        ?: ng_flight_save_process(&dumping->view, i, dumping->folder);
        remember(dumping, error);
        dumping->written += !error;
        dumping->failed += error != 0;
    }
}

static bool is_word(const char *text)
{
    return *text && text[strspn(text, "abcdefghijklmnopqrstuvwxyz_")] == '\0';
}

/* The guard's verdict, reached while ranks waited, says more than one reached now, after it acted
 * or the job ended. */
static void look_for_guards_verdict(struct dumping *dumping)
{
    char path[PATH_MAX], when[32] = "";
    json_int_t unix_ns = 0;
    const char *job, *kind, *action;
    struct tm tm;

    if (snprintf(path, sizeof(path), "%s/verdict.json", dumping->folder) >= (int)sizeof(path))
        return;
    json_t *verdict = json_load_file(path, 0, NULL);
    if (verdict &&
        json_unpack(verdict, "{s:s, s:s, s:s, s?I}", "job", &job, "kind", &kind, "action", &action,
                    "time_unix_ns", &unix_ns) == 0 &&
        strcmp(job, dumping->job.name) == 0 && is_word(kind) && is_word(action) &&
        ng_live_verdict_verdict_stays(verdict, ng_live_verdict_is_over(&dumping->view))) {
        time_t seconds = (time_t)(unix_ns / NG_S);
        if (seconds > 0 && gmtime_r(&seconds, &tm))
            strftime(when, sizeof(when), ", at %Y-%m-%d %H:%M:%S UTC", &tm);
        snprintf(dumping->kept, sizeof(dumping->kept), "%.64s, action %.64s%s", kind, action, when);
    }
    json_decref(verdict);
}

/* The verdict and the timeline cover the whole job. */
static void write_verdict(struct dumping *dumping)
{
    struct ng_verdict verdict;

    int64_t stuck_ns = ng_jobs_stuck_ns(&dumping->job);
    int error = ng_live_verdict_judge(&dumping->view, 0, stuck_ns, &verdict);
    if (!error) {
        look_for_guards_verdict(dumping);
        if (!dumping->kept[0])
            remember(dumping, ng_report_save(&verdict, dumping->folder));
        error = ng_trace_save(&dumping->view, &verdict, dumping->folder);
        ng_live_verdict_line(&verdict, ng_live_verdict_is_over(&dumping->view) ? 0 : stuck_ns,
                             dumping->job.why, sizeof(dumping->job.why));
        ng_verdict_fini(&verdict);
    }
    remember(dumping, error);
}

/* ---- Stacks ---- */

/* Processes whose ranks share a store also read the board of their own host, where the folder's
 * name is valid. */
static struct ng_observed_job local_board(const struct ng_job *job)
{
    struct ng_observed_job local = job->observed;

    if (!ng_jobs_is_local(job))
        local.url = "local:";
    return local;
}

/* Which processes of the view have their black boxes on this host; 0 or -ENOMEM. */
static int find_those_here(struct dumping *dumping)
{
    struct ng_observed_job local = local_board(&dumping->job);
    char why[NG_BOARD_CLIENT_WHY_BYTES];
    struct ng_view view;

    if (ng_jobs_is_local(&dumping->job))
        return 0;
    dumping->here = calloc(dumping->view.process_count, sizeof(*dumping->here));
    if (!dumping->here)
        return -ENOMEM;
    ng_view_init(&view);
    /* The folder does not exist: none. */
    if (ng_board_client_view(&local, ng_clock_mono_ns(), &view, why, sizeof(why)) > 0)
        for (uint32_t i = 0; i < dumping->view.process_count; i++)
            for (uint32_t k = 0; k < view.process_count && !dumping->here[i]; k++)
                dumping->here[i] = dumping->view.processes[i].uid &&
                                   dumping->view.processes[i].uid == view.processes[k].uid;
    ng_view_fini(&view);
    return 0;
}

static bool is_newer(const struct timespec *time, const struct timespec *than)
{
    return time->tv_sec > than->tv_sec ||
           (time->tv_sec == than->tv_sec && time->tv_nsec >= than->tv_nsec);
}

/* Has the process written its stacks since the command? */
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

static void count_stacks(const struct dumping *dumping, const struct timespec *ordered,
                         struct stacks *stacks)
{
    stacks->there = stacks->missing = stacks->elsewhere = 0;
    for (uint32_t i = 0; i < dumping->view.process_count; i++) {
        if (!dumping->wanted[i] || dumping->view.processes[i].life != NG_LIFE_RUNNING)
            continue; /* it cannot answer */
        bool here = !dumping->here || dumping->here[i],
             has = here && has_stacks(dumping, i, ordered);
        stacks->there += has;
        stacks->missing += here && !has;
        stacks->elsewhere += !here;
    }
}

/* Processes of this host write into our folder, and are waited for. */
static void order_here(const struct dumping *dumping, const struct ng_command *order,
                       struct stacks *stacks)
{
    int64_t until = ng_clock_mono_ns() + STACKS_NS;
    const struct timespec pause = {.tv_nsec = 20 * NG_MS};
    struct ng_observed_job local = local_board(&dumping->job);
    struct timespec ordered;
    char why[NG_BOARD_CLIENT_WHY_BYTES];

    /* File times have the granularity of the coarse clock. */
    clock_gettime(CLOCK_REALTIME_COARSE, &ordered);
    if (ng_board_client_order(&local, order, until, why, sizeof(why)) <= 0)
        return;
    do {
        count_stacks(dumping, &ordered, stacks);
        nanosleep(&pause, NULL);
    } while (stacks->missing && ng_clock_mono_ns() < until);
}

static void order_stacks(struct dumping *dumping, struct stacks *stacks)
{
    struct ng_command order = {.kind = NG_COMMAND_DUMP, .rank = dumping->rank};

    int error = find_those_here(dumping);
    count_stacks(dumping, &(struct timespec){.tv_sec = INT64_MAX}, stacks);
    if (error) {
        remember(dumping, error);
        return;
    }
    bool fits =
        snprintf(order.path, sizeof(order.path), "%s", dumping->folder) < (int)sizeof(order.path);
    if (stacks->missing && fits)
        order_here(dumping, &order, stacks);
    /* Last: this reaches the processes of this host a second time, when they are done. */
    if (stacks->elsewhere)
        stacks->asked = ng_board_client_order(&dumping->job.observed, &order,
                                              ng_clock_mono_ns() + NG_JOBS_WAIT_NS, stacks->why,
                                              sizeof(stacks->why)) > 0;
}

/* ---- The command ---- */

/* A reduced dump leaves the files of an incident, which know more, as they are. Takes `folder`;
 * NULL: no memory. */
static char *choose_subfolder(char *folder)
{
    struct timespec now;
    struct tm tm;
    char when[32], *path = NULL;

    clock_gettime(CLOCK_REALTIME, &now);
    if (folder && gmtime_r(&now.tv_sec, &tm) &&
        strftime(when, sizeof(when), "%Y%m%dT%H%M%S", &tm) &&
        asprintf(&path, "%s/dump-%s.%03dZ", folder, when, (int)(now.tv_nsec / NG_MS)) < 0)
        path = NULL;
    free(folder);
    return path;
}

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

static void tell_stacks(const struct stacks *stacks, const char *folder)
{
    const char *plural = stacks->missing == 1 ? "" : "es",
               *others = stacks->elsewhere == 1 ? "" : "es";

    if (stacks->missing)
        printf("no stacks of %u live process%s: no answer within %d s\n", stacks->missing, plural,
               (int)(STACKS_NS / NG_S));
    if (stacks->elsewhere && stacks->asked)
        printf("asked %u live process%s without a black box in %s: over Redis each process writes "
               "its stacks "
               "into its own NCCLGUARD_DUMP_DIR\n",
               stacks->elsewhere, others, folder);
    else if (stacks->elsewhere)
        printf("no stacks of %u live process%s without a black box in %s: %s\n", stacks->elsewhere,
               others, folder, stacks->why[0] ? stacks->why : "the store could not tell them");
}

static int tell(const struct dumping *dumping, const struct stacks *stacks)
{
    if (dumping->error)
        fprintf(stderr, "ncclguard dump: cannot write all of it to %s: %s\n", dumping->folder,
                strerror(-dumping->error));
    printf("%u dump%s in %s", dumping->written, dumping->written == 1 ? "" : "s", dumping->folder);
    if (stacks && (stacks->there || stacks->missing))
        printf(", %u with stacks", stacks->there);
    printf("\n");
    if (stacks)
        tell_stacks(stacks, dumping->job.folder);
    if (dumping->rank < 0)
        printf("%s\n", dumping->job.why);
    if (dumping->kept[0])
        printf("verdict.json and verdict.txt there stay the guard's own: %s\n", dumping->kept);
    return dumping->error ? NG_EXIT_FAILED : NG_EXIT_OK;
}

static int dump(struct dumping *dumping, bool with_stacks)
{
    struct ng_job *job = &dumping->job;
    struct stacks stacks = {0};
    uint64_t group_id = 0;

    int status = ng_jobs_view_or_tell(COMMAND, job, &dumping->view);
    if (status == 0 && dumping->group)
        status = ng_group_choice_find(COMMAND, &dumping->view, dumping->group, false, &group_id);
    if (status == 0)
        status = choose_processes(dumping, group_id);
    if (status != 0)
        return status;
    int error = ng_paths_make(dumping->folder);
    if (error) {
        fprintf(stderr, "ncclguard dump: cannot use the folder %s: %s\n", dumping->folder,
                error == -EPERM ? "it belongs to somebody else, or others may write to it"
                                : strerror(-error));
        return NG_EXIT_FAILED;
    }
    dumping->view.on_request = true;
    if (is_reduced(dumping)) {
        if (dumping->rank < 0)
            write_verdict(dumping); /* on the whole job */
        reduce(dumping, group_id);
        write_dumps(dumping);
        return tell(dumping, NULL);
    }
    write_dumps(dumping);
    /* A process that adds its stacks rewrites its dump. */
    if (with_stacks)
        order_stacks(dumping, &stacks);
    if (dumping->rank < 0)
        write_verdict(dumping);
    return tell(dumping, with_stacks ? &stacks : NULL);
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
    struct dumping dumping = {0};
    int operand, status;

    if (!ng_usage_parse(&usage, argc, argv, values, &operand, &status))
        return status;
    status = parse_rank(values[OPTION_RANK], &dumping.rank)
                 ?: ng_jobs_choose(COMMAND, values[OPTION_JOB], values[OPTION_STORE],
                                   values[OPTION_RUN], &dumping.job);
    if (status != 0)
        return status;
    dumping.group = values[OPTION_GROUP];
    dumping.active = values[OPTION_ACTIVE];
    dumping.no_frames = values[OPTION_FRAMES];
    char *folder = choose_folder(values[OPTION_OUT], dumping.job.name);
    if (is_reduced(&dumping) && !(values[OPTION_OUT] && *values[OPTION_OUT]))
        folder = choose_subfolder(folder);
    if (!folder) {
        fprintf(stderr, "ncclguard dump: out of memory\n");
        return NG_EXIT_FAILED;
    }
    dumping.folder = folder;
    ng_view_init(&dumping.view);
    status = dump(&dumping, !values[OPTION_STACKS]);
    ng_view_fini(&dumping.view);
    free(dumping.here);
    free(dumping.wanted);
    free(folder);
    return status;
}
