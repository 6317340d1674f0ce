/*
 * `ncclguard top`: a live view of a job: the progress of each rank, its current call, lagging and
 * lost ranks. On a terminal that curses knows, keys go to the browser, and it gets what it asks
 * for.
 *
 * Reads the board from outside, invisibly to the job. Must never wait for a store for longer than
 * it says, nor print while the terminal is taken over, nor leave it in another state than before.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/recorder/paths.h"
#include "core/report/report.h"
#include "core/report/stacks_format.h"
#include "core/util/clock.h"
#include "core/verdict/verdict.h"
#include "store/board/board_client.h"
#include "store/kv/kv_open.h"
#include "tools/base/command.h"
#include "tools/base/owned.h"
#include "tools/base/run_helper.h"
#include "tools/base/usage.h"
#include "tools/jobs/jobs.h"
#include "tools/judge/live_verdict.h"
#include "tools/render/browser.h"
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

/* How long taking a rank's stack may last: `ncclguard dump` gives up earlier. */
#define STACK_NS  (30 * NG_S)
#define STACK_MAX (1u << 20)

/* A store that comes back empty has no data until every rank has published again. */
#define EMPTY_NS (10 * NG_S)

/* One snapshot of the job. Its table points into it: do not copy it. */
struct look {
    struct ng_view view;
    struct ng_verdict verdict;
    struct ng_table table;
    int64_t time_unix_ns;
    int64_t stuck_ns; /* threshold for stuck; 0: the job is over */
    bool made;
};

struct browsing {
    struct ng_job *job;
    struct ng_browser browser;
    struct look looks[2], *shown, *next;
    int64_t asked_ns, interval_ns, due_ns, seen_ns;
    char trouble[NG_BOARD_CLIENT_WHY_BYTES + 64];
    bool over;  /* none of the job's processes is left */
    bool plain; /* only redrawn: the terminal cannot be browsed */
};

/* ---- Choosing a job ---- */

/* ng_jobs_choose with its words in ret_error instead of on standard error. */
static int choose_job(const char *name, const char *store, const char *run, struct ng_job *ret_job,
                      char *ret_error, size_t bytes)
{
    NG_CLOSED int words = memfd_create("words", MFD_CLOEXEC),
                  before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    bool caught = words >= 0 && before >= 0;

    ret_error[0] = '\0';
    if (caught)
        dup2(words, STDERR_FILENO);
    int status = ng_jobs_choose(COMMAND, name, store, run, ret_job);
    if (caught) {
        dup2(before, STDERR_FILENO);
        ssize_t length = pread(words, ret_error, bytes - 1, 0);
        ret_error[length > 0 ? length : 0] = '\0';
    }
    return status;
}

/* Names of jobs on the store that are not among those of this host, behind these. */
static size_t add_jobs_of_store(const struct ng_kv_jobs *names, struct ng_browser_job *jobs,
                                size_t count)
{
    size_t here = count;

    for (size_t i = 0; i < names->count; i++) {
        size_t at = 0;
        while (at < here && strcmp(jobs[at].name, names->names[i]) != 0)
            at++;
        if (at < here)
            continue;
        snprintf(jobs[count].name, sizeof(jobs[count].name), "%s", names->names[i]);
        snprintf(jobs[count++].where, sizeof(jobs->where), "the store");
    }
    return count;
}

/* Those that the store has; `why` says if they cannot be listed. */
static void ask_store(const struct ng_jobs_of_host *where, struct ng_kv_jobs *ret_names, char *why,
                      size_t why_bytes)
{
    const char *store = getenv("NCCLGUARD_STORE");
    struct ng_observed_job any = {.url = store, .job = "any"};

    ret_names->count = 0;
    if (!where->several_hosts || !store)
        return;
    any.tls = ng_tls_for(store);
    ng_board_client_jobs(&any, ng_clock_mono_ns() + NG_JOBS_WAIT_NS, ret_names, why, why_bytes);
}

/* The jobs of this host and of the store, into the browser. How many, or -ENOMEM. */
static int list_jobs(struct browsing *browsing)
{
    struct ng_jobs_of_host where;
    NG_FREED struct ng_kv_jobs *names = malloc(sizeof(*names));
    size_t count = 0;

    if (!names || ng_jobs_of_host(COMMAND, NULL, NULL, &where) != 0)
        return 0;
    ask_store(&where, names, browsing->trouble, sizeof(browsing->trouble));
    bool nested = !where.folder[0];
    if (nested)
        ng_paths_default_dir("", where.folder, sizeof(where.folder));
    NG_FREED struct ng_job_here *here = ng_jobs_here(where.folder, nested, &count);
    NG_FREED struct ng_browser_job *jobs = calloc(count + names->count + 1, sizeof(*jobs));
    if (!jobs)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        snprintf(jobs[i].name, sizeof(jobs[i].name), "%s", here[i].name);
        snprintf(jobs[i].where, sizeof(jobs[i].where), "this host");
        jobs[i].processes = here[i].processes;
        jobs[i].living = here[i].living;
    }
    count = add_jobs_of_store(names, jobs, count);
    return ng_browser_set_jobs(&browsing->browser, jobs, count) ?: (int)count;
}

/* ---- Stacks ---- */

/* The text of a stacks file if it is of the process `pid`; NULL: there is none. */
static char *read_stack(const char *folder, int rank, int pid)
{
    char name[64], path[PATH_MAX], of[32];

    ng_stacks_file_name(rank, pid, name, sizeof(name));
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    snprintf(of, sizeof(of), ", pid %d ", pid);
    NG_CLOSED int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    char *text = fd >= 0 ? malloc(STACK_MAX) : NULL;
    ssize_t bytes = text ? read(fd, text, STACK_MAX - 1) : -1;
    if (bytes > 0) {
        text[bytes] = '\0';
        const char *end = strchr(text, '\n'), *found = strstr(text, of);
        if (found && end && found < end)
            return text;
    }
    free(text);
    return NULL;
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    remove(path);
    return 0;
}

/* Let `ncclguard dump` take it, into a folder of our own. */
static char *take_stack(const struct ng_job *job, int rank, int pid)
{
    char folder[] = "/tmp/ncclguard-top.XXXXXX", run[32], number[16], self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    struct ng_answer answer;

    if (length <= 0 || !mkdtemp(folder))
        return NULL;
    self[length] = '\0';
    snprintf(number, sizeof(number), "%d", rank);
    snprintf(run, sizeof(run), "%016llx", (unsigned long long)job->observed.run);
    char *argv[] = {self, "dump", "--job", (char *)job->name, "--rank", number, "--out", folder,
                    NULL, NULL,   NULL};
    if (job->observed.run) {
        argv[8] = "--run";
        argv[9] = run;
    }
    char *text = NULL;
    if (ng_ask(argv, NULL, STACK_NS, &answer) == 0) {
        text = read_stack(folder, rank, pid);
        ng_answer_fini(&answer);
    }
    nftw(folder, remove_one, 4, FTW_DEPTH | FTW_PHYS);
    return text;
}

/* Of the rank whose details are shown: from the evidence, or taken `now`. */
static void show_stack(struct browsing *browsing, bool now)
{
    const struct ng_table_row *row = ng_browser_row(&browsing->browser);
    const char *named = getenv("NCCLGUARD_DUMP_DIR");
    char folder[PATH_MAX], why[200];

    if (!row || row->process == NG_TABLE_NOBODY)
        return;
    const struct ng_view_process *process = &browsing->shown->view.processes[row->process];
    if (named && *named)
        snprintf(folder, sizeof(folder), "%s", named);
    else
        ng_paths_default_dump_dir(browsing->job->name, folder, sizeof(folder));
    NG_FREED char *text = now ? take_stack(browsing->job, process->rank, process->pid)
                              : read_stack(folder, process->rank, process->pid);
    snprintf(why, sizeof(why), "%s",
             now ? "it gave none: it has ended, runs on another host, or has no guard that answers"
                 : "not taken yet: a guard writes it with the evidence of a timeout, or press t");
    ng_browser_set_stack(&browsing->browser, text ? text : why);
}

/* ---- Looks ---- */

static void drop_look(struct look *look)
{
    if (look->made) {
        ng_table_fini(&look->table);
        ng_verdict_fini(&look->verdict);
    }
    ng_view_fini(&look->view);
    look->made = false;
}

/* How many processes were seen, 0 included, or -errno with the reason in job->why. */
static int take_look(struct ng_job *job, int64_t asked_ns, struct look *ret_look)
{
    struct look *look = ret_look;

    look->made = false;
    ng_view_init(&look->view);
    int count = ng_jobs_view(job, &look->view);
    look->time_unix_ns = ng_clock_unix_ns();
    if (count <= 0) {
        ng_view_fini(&look->view);
        return count;
    }
    if (!look->view.job[0])
        snprintf(look->view.job, sizeof(look->view.job), "%s", job->name);
    int64_t stuck_ns = asked_ns ? asked_ns : ng_jobs_stuck_ns(job);
    look->stuck_ns = ng_live_verdict_is_over(&look->view) ? 0 : stuck_ns;
    int error = ng_live_verdict_judge(&look->view, asked_ns, stuck_ns, &look->verdict);
    if (!error) {
        look->verdict.time_unix_ns = look->time_unix_ns;
        error = ng_table_make(&look->view, &look->verdict, &look->table);
        if (error)
            ng_verdict_fini(&look->verdict);
    }
    look->made = !error;
    if (error)
        drop_look(look);
    return error ?: count;
}

/* The next look takes the place of the one that is shown. */
static void show(struct browsing *browsing)
{
    struct look *before = browsing->shown;

    if (ng_browser_update(&browsing->browser, &browsing->next->table) != 0)
        snprintf(browsing->trouble, sizeof(browsing->trouble), "out of memory");
    browsing->shown = browsing->next;
    browsing->next = before;
    drop_look(before);
}

/* Show the newest look; of a job that cannot be seen for now, the last. Returns how many processes
 * were seen, or -errno. */
static int look(struct browsing *browsing)
{
    struct ng_job *job = browsing->job;
    int count = take_look(job, browsing->asked_ns, browsing->next);
    int64_t now_ns = ng_clock_mono_ns();

    browsing->due_ns = now_ns + browsing->interval_ns;
    browsing->trouble[0] = '\0';
    if (count != 0)
        browsing->seen_ns = now_ns;
    if (count == 0) {
        browsing->over = ng_jobs_is_local(job) || now_ns - browsing->seen_ns > EMPTY_NS;
        snprintf(browsing->trouble, sizeof(browsing->trouble),
                 "stale: the store no longer has data for this job");
        return count;
    }
    if (count < 0) {
        snprintf(browsing->trouble, sizeof(browsing->trouble), "stale: %s",
                 job->why[0] ? job->why : strerror(-count));
        return count;
    }
    show(browsing);
    return count;
}

/* 0, or 1 with the reason in `trouble`. */
static int try_job(struct browsing *browsing, const char *name, struct ng_job *job)
{
    char error[2048];

    if (choose_job(name, NULL, NULL, job, error, sizeof(error)) != 0) {
        error[strcspn(error, "\n")] = '\0';
        snprintf(browsing->trouble, sizeof(browsing->trouble), "%.*s", NG_BOARD_CLIENT_WHY_BYTES,
                 error);
        return 1;
    }
    int count = take_look(job, browsing->asked_ns, browsing->next);
    if (count <= 0)
        snprintf(browsing->trouble, sizeof(browsing->trouble),
                 "no process of job %s can be seen%s%s", job->name, *job->why ? ": " : "",
                 job->why);
    return count <= 0;
}

/* The selected job, unless it cannot be seen: then what is shown stays. */
static void open_job(struct browsing *browsing)
{
    const struct ng_browser_job *wanted = ng_browser_job(&browsing->browser);
    NG_FREED struct ng_job *job = malloc(sizeof(*job));

    browsing->trouble[0] = '\0';
    if (job && wanted && try_job(browsing, wanted->name, job) == 0) {
        /* What points into a job does not move with it. */
        *browsing->job = *job;
        browsing->job->observed.folder = browsing->job->folder;
        browsing->job->observed.job = browsing->job->name;
        ng_browser_update(&browsing->browser, NULL);
        show(browsing);
        browsing->seen_ns = ng_clock_mono_ns();
        browsing->due_ns = browsing->seen_ns + browsing->interval_ns;
    }
}

/* ---- The loop ---- */

/* False: the terminal is gone. */
static bool draw(struct browsing *browsing, const char *trouble)
{
    const struct look *shown = browsing->shown;
    struct ng_table_paper paper = {.time_unix_ns = shown->time_unix_ns,
                                   .trouble = trouble && *trouble ? trouble : NULL,
                                   .stuck_ns = shown->stuck_ns,
                                   .colour =
                                       !browsing->plain || ng_screen_has_colours(STDOUT_FILENO)};
    NG_FREED char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);

    if (!file)
        return true;
    ng_screen_size(&paper.lines, &paper.columns);
    if (browsing->plain)
        ng_table_print(&shown->table, &paper, file);
    else
        ng_browser_print(&browsing->browser, &paper, file);
    return fclose(file) != 0 || ng_screen_draw(text);
}

/* False: the user quits. */
static bool press(struct browsing *browsing, int key)
{
    switch (ng_browser_press(&browsing->browser, key)) {
    case NG_BROWSER_QUIT:
        return false;
    case NG_BROWSER_LOOK:
        if (browsing->browser.table)
            look(browsing);
        return true;
    case NG_BROWSER_LIST_JOBS:
        browsing->trouble[0] = '\0';
        list_jobs(browsing);
        return true;
    case NG_BROWSER_OPEN_JOB:
        open_job(browsing);
        return true;
    case NG_BROWSER_SHOW_RANK:
        show_stack(browsing, false);
        return true;
    case NG_BROWSER_TAKE_STACK:
        draw(browsing, "taking its stack …");
        show_stack(browsing, true);
        return true;
    case NG_BROWSER_DRAW:
        return true;
    }
    return true;
}

static void browse(struct browsing *browsing)
{
    while (!browsing->over && draw(browsing, browsing->trouble)) {
        enum ng_screen_event event = ng_screen_wait(
            browsing->browser.table || browsing->plain ? browsing->due_ns : INT64_MAX);
        if (event == NG_SCREEN_QUIT ||
            (event == NG_SCREEN_KEY && !press(browsing, ng_screen_key())))
            return;
        if (event == NG_SCREEN_TIME || event == NG_SCREEN_LOOK)
            look(browsing);
    }
}

/* 0, or an exit status: there is nothing to browse. -ENOSYS: nothing to choose from, either. */
static int begin(struct browsing *browsing, bool choose)
{
    if (choose) {
        int count = list_jobs(browsing);
        /* Of the only one on this host something else is wrong. */
        bool elsewhere = count == 1 && !browsing->browser.jobs[0].processes;
        return count > 1 || elsewhere ? 0 : -ENOSYS;
    }
    int count = look(browsing);
    if (count == 0)
        return ng_jobs_none(COMMAND, browsing->job);
    return count < 0 ? ng_jobs_failed(COMMAND, browsing->job, count) : 0;
}

/* 0, or an exit status. -ENOSYS: the terminal cannot be browsed, and `choose` needs that. */
static int open_screen(struct browsing *browsing, bool choose)
{
    int error = ng_screen_open_browser();

    browsing->plain = error == -ENOSYS && !choose;
    if (browsing->plain)
        error = ng_screen_open();
    if (!error || (error == -ENOSYS && !browsing->plain))
        return error;
    fprintf(stderr, "ncclguard top: cannot use the terminal: %s\n", strerror(-error));
    return NG_EXIT_FAILED;
}

/* Browse the job, or redraw it where the terminal has only the plain screen; `choose`: first the
 * jobs that there are. Returns an exit status; -ENOSYS: there are none to choose from, or no
 * browser to do it in. */
static int browse_job(struct ng_job *job, bool choose, int64_t asked_ns, int64_t interval_ns)
{
    struct browsing browsing = {.job = job, .asked_ns = asked_ns, .interval_ns = interval_ns};

    browsing.shown = &browsing.looks[0];
    browsing.next = &browsing.looks[1];
    ng_browser_init(&browsing.browser);
    int result = begin(&browsing, choose) ?: open_screen(&browsing, choose);
    if (result == 0) {
        browse(&browsing);
        ng_screen_close();
        if (browsing.over)
            printf("ncclguard top: job %s is over: none of its processes is left\n", job->name);
    }
    ng_browser_fini(&browsing.browser);
    drop_look(browsing.shown);
    if (ng_screen_ending_signal())
        raise(ng_screen_ending_signal());
    return result;
}

/* ---- The command ---- */

static int print_once(struct ng_job *job, int64_t asked_ns, bool json)
{
    struct look look;
    int count = take_look(job, asked_ns, &look), error = 0;

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
    drop_look(&look);
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
    int status = choose_job(values[OPTION_JOB], values[OPTION_STORE], values[OPTION_RUN], job,
                            error, sizeof(error));

    if (status == 0 || !named || !*named) {
        int browsed = browse_job(job, status != 0, asked_ns, interval_ns);
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
