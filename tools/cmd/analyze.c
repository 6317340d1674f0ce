/*
 * `ncclguard analyze`: reaches a verdict from evidence on disk, with the engine of the live
 * library.
 *
 * Evidence is black boxes, dumps (rank_<r>.json) and those of PyTorch's flight recorder, one by one
 * or in folders. Must never let one bad file spoil the rest: it is named, with the reason, and the
 * verdict says what is missing.
 */
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "core/report/report.h"
#include "core/report/trace.h"
#include "core/util/clock.h"
#include "core/verdict/straggler.h"
#include "core/verdict/verdict.h"
#include "core/view/view.h"
#include "tools/base/command.h"
#include "tools/base/owned.h"
#include "tools/base/save_as.h"
#include "tools/base/usage.h"
#include "tools/ingest/evidence.h"
#include "tools/ingest/mismatches.h"
#include "tools/ingest/view_merge.h"
#include "tools/jobs/jobs.h"
#include "tools/judge/postmortem.h"
#include "tools/render/analyze_report.h"
#include "tools/render/findings.h"
#include "tools/render/page.h"
#include "tools/render/stack_groups.h"
#include "tools/render/stack_lines.h"
#include "tools/render/verdict_text.h"

#define COMMAND "analyze"

#define RUNS_MAX 16

enum {
    OPTION_JSON,
    OPTION_HTML,
    OPTION_SOURCES,
    OPTION_TRACE,
    OPTION_STALLED,
    OPTION_RUN,
    OPTION_COUNT
};

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_JSON] = {"json", NULL, "print the verdict as JSON (schema " NG_REPORT_SCHEMA ")"},
    [OPTION_HTML] = {"html", "FILE",
                     "write a report for a browser, too: one page that needs nothing else"},
    [OPTION_SOURCES] = {"sources", NULL,
                        "quote in it the source line of each frame, from files of this machine\n"
                        "that have not changed since the evidence was written"},
    [OPTION_TRACE] = {"trace", "FILE", "write a timeline, too: Chrome trace events, for Perfetto"},
    [OPTION_STALLED] = {"stalled", "DURATION",
                        "call work stuck that was pending for this long (default: the job's\n"
                        "own NCCLGUARD_SUSPECT and NCCLGUARD_TIMEOUT, else 5s)"},
    [OPTION_RUN] = {"run", "RUN",
                    "of several runs in one folder of black boxes: which (all are judged, one\n"
                    "after the other)"},
};

static const struct ng_usage usage = {
    .command = COMMAND,
    .synopsis = "PATH… [--json] [--html FILE [--sources]] [--trace FILE] [--stalled DURATION] "
                "[--run RUN]",
    .about =
        "Reach a verdict from evidence. PATH is a black box, a dump (rank_<r>.json), a dump of\n"
        "PyTorch's flight recorder (its name ends in the rank), or a folder of any of them: a\n"
        "job's folder in shared memory, or the folder of its evidence (or the verdict.json in\n"
        "it).\n"
        "Exit status: 0 healthy, 3 a fault was found, 2 nothing usable in the input.",
    .options = options,
    .option_count = OPTION_COUNT,
};

/* State of one run of the command. */
struct analysis {
    uint64_t run; /* the run to judge, in the only folder; 0 everything there */
    struct ng_view view;
    struct ng_view_merge merge;
    struct ng_evidence_paths paths;
    struct ng_evidence evidence;
    struct ng_mismatches mismatches;
    struct ng_verdict verdict;
    struct ng_stack_groups stacks; /* only for a page */
};

/* A line about `what`, which may contain anything, like a file's name or content. */
static void complain(const char *what, const char *why)
{
    NG_FREED char *safe_what = ng_findings_safe_copy(what), *safe_why = ng_findings_safe_copy(why);

    fprintf(stderr, "ncclguard analyze: %s: %s\n", safe_what ? safe_what : "?",
            safe_why ? safe_why : "out of memory");
}

static void refuse(void *context, const char *path, const char *why)
{
    complain(path, why);
}

/* Paths that do not exist are listed in the verdict, too. */
static void refuse_path(void *context, const char *path, const char *why)
{
    struct analysis *analysis = context;
    const char *slash = strrchr(path, '/');

    refuse(NULL, path, why);
    ng_view_note(&analysis->view, "%s: %s", slash && slash[1] ? slash + 1 : path, why);
}

/* Read everything that was named into the view; 0 or -ENOMEM. */
static int gather(struct analysis *analysis, char **paths, int count)
{
    int error = 0;

    for (int i = 0; i < count && !error; i++)
        error = ng_evidence_add_path(&analysis->paths, paths[i], refuse_path, analysis);
    if (!error && analysis->run)
        error = ng_evidence_keep_run(&analysis->paths, paths[0], analysis->run);
    error = error ?: ng_evidence_order(&analysis->paths);
    return error
               ?: ng_evidence_gather(&analysis->paths, &analysis->merge, refuse, NULL,
                                     &analysis->evidence);
}

/* Ranks did not call alike: that becomes the verdict, unless something is stuck. */
static int blame_mismatch(struct analysis *analysis, const struct ng_postmortem *postmortem)
{
    struct ng_postmortem nothing_stuck = *postmortem;

    if (!postmortem->asked_ns && analysis->verdict.kind != NG_KIND_HEALTHY &&
        ng_postmortem_is_ordinary(&analysis->view, postmortem, &analysis->verdict)) {
        nothing_stuck.asked_ns = INT64_MAX;
        ng_verdict_fini(&analysis->verdict);
        int error = ng_postmortem_judge(&analysis->view, &nothing_stuck, &analysis->verdict);
        if (error)
            return error;
    }
    if (analysis->verdict.kind != NG_KIND_HEALTHY)
        return 0;
    return ng_mismatches_blame(&analysis->mismatches, &analysis->view, &analysis->verdict);
}

/* When a guard reached the same verdict on this job, according to `folder`; 0 it did not. */
static int64_t guards_unix_ns(const struct ng_verdict *verdict, const char *folder)
{
    char path[PATH_MAX];
    struct stat status;
    json_int_t unix_ns = 0;
    const char *job, *kind;

    if (snprintf(path, sizeof(path), "%s/verdict.json", folder) >= (int)sizeof(path) ||
        stat(path, &status) != 0 || !S_ISREG(status.st_mode))
        return 0;
    json_t *told = json_load_file(path, 0, NULL);
    bool same = told &&
                json_unpack(told, "{s:s, s:s, s:I}", "job", &job, "kind", &kind, "time_unix_ns",
                            &unix_ns) == 0 &&
                strcmp(job, verdict->job) == 0 &&
                strcmp(kind, ng_verdict_kind_name(verdict->kind)) == 0;
    json_decref(told);
    return same && unix_ns > 0 ? unix_ns : 0;
}

/* The time of the verdict's state, not of the analysis: the time up to which the evidence reaches,
 * or when the first guard reached the same verdict. 0 not known. */
static int64_t incident_unix_ns(const struct analysis *analysis, char **paths, int count)
{
    int64_t evidence_ns = 0, guards_ns = 0;

    for (uint32_t i = 0; i < analysis->view.process_count; i++)
        if (analysis->view.processes[i].moment_unix_ns > evidence_ns)
            evidence_ns = analysis->view.processes[i].moment_unix_ns;
    for (int i = 0; i < count && analysis->verdict.kind != NG_KIND_HEALTHY; i++) {
        int64_t one_ns = guards_unix_ns(&analysis->verdict, paths[i]);
        if (one_ns && (!guards_ns || one_ns < guards_ns))
            guards_ns = one_ns;
    }
    return guards_ns ? guards_ns : evidence_ns;
}

static int judge(struct analysis *analysis, int64_t asked_ns)
{
    struct ng_postmortem postmortem = {.asked_ns = asked_ns,
                                       .stalled_ns = analysis->evidence.stalled_ns,
                                       .incident = analysis->evidence.incident,
                                       .told = analysis->paths.incidents,
                                       .told_count = analysis->paths.incident_count};

    int error = ng_view_merge_finish(&analysis->merge);
    if (error)
        return error;
    ng_view_seal(&analysis->view);
    error = ng_mismatches_find(&analysis->view, &analysis->merge.histories, &analysis->mismatches)
                ?: ng_postmortem_judge(&analysis->view, &postmortem, &analysis->verdict);
    if (!error && analysis->mismatches.count)
        error = blame_mismatch(analysis, &postmortem);
    return error ?: ng_straggler_blame(&analysis->view, &analysis->verdict);
}

/* Stacks are beside the dumps of one folder. */
static const char *folder_of(char **paths, int count)
{
    struct stat status;

    return count == 1 && stat(paths[0], &status) == 0 && S_ISDIR(status.st_mode) ? paths[0] : NULL;
}

static int print_text(const struct analysis *analysis, const char *folder)
{
    NG_CLOSED int fd = memfd_create("verdict", MFD_CLOEXEC);
    int error = fd < 0 ? -errno
                       : ng_analyze_write_text(&analysis->view, &analysis->verdict,
                                               &analysis->mismatches, folder, fd);

    if (error)
        return error;
    return lseek(fd, 0, SEEK_SET) == 0 ? ng_verdict_text_print(fd, STDOUT_FILENO) : -errno;
}

static int print(const struct analysis *analysis, bool json, const char *folder)
{
    const struct ng_verdict *verdict = &analysis->verdict;
    int error;

    /* A mismatch without waiting ranks has no list of missing evidence. */
    for (uint32_t i = 0; !verdict->missing_evidence && i < analysis->view.note_count; i++)
        complain("not known", analysis->view.notes[i]);
    fflush(stdout);
    if (json)
        error =
            ng_analyze_write_json(&analysis->view, verdict, &analysis->mismatches, STDOUT_FILENO);
    else
        error = print_text(analysis, folder);
    if (!error)
        return verdict->kind == NG_KIND_HEALTHY ? NG_EXIT_OK : NG_EXIT_FAULT;
    fprintf(stderr, "ncclguard analyze: cannot write the verdict: %s\n", strerror(-error));
    return NG_EXIT_FAILED;
}

static int write_trace(const void *context, int fd)
{
    const struct analysis *analysis = context;

    return ng_trace_write(&analysis->view, &analysis->verdict, NG_TRACE_RECORDS_MAX, fd);
}

/* Of those paths that are folders. A path that is a file, or does not exist, has none. Where no
 * threads were looked at, calls tell where the ranks are. */
static int gather_stacks(struct analysis *analysis, char **paths, int count)
{
    int error = 0;

    for (int i = 0; i < count && error != -ENOMEM; i++)
        error = ng_stack_groups_add_folder(&analysis->stacks, paths[i]);
    if (error != -ENOMEM && analysis->stacks.files == 0)
        error = ng_stack_groups_add_calls(&analysis->stacks, &analysis->view);
    return error == -ENOMEM ? error : 0;
}

/* Stacks are of use without lines, too. */
static int add_lines(struct analysis *analysis)
{
    int error = ng_stack_lines_add(&analysis->verdict, &analysis->stacks);

    if (error && error != -ENOMEM)
        complain("not all source lines were found",
                 error == -ETIMEDOUT ? "it took too long" : strerror(-error));
    return error == -ENOMEM ? error : 0;
}

static int write_page(const struct analysis *analysis, const char *file)
{
    struct ng_page page = {&analysis->view, &analysis->verdict, &analysis->mismatches,
                           &analysis->stacks};

    return ng_page_write(&page, file);
}

static bool written(const char *file, int error)
{
    if (error)
        fprintf(stderr, "ncclguard analyze: cannot write %s: %s\n", file, strerror(-error));
    return error == 0;
}

/* The output forms that are written to files. */
static bool write_files(const struct analysis *analysis, const char *const *values)
{
    const char *html = values[OPTION_HTML], *trace = values[OPTION_TRACE];
    bool good = true;

    if (html)
        good = written(html, write_page(analysis, html));
    if (trace)
        good = written(trace, ng_save_as(trace, write_trace, analysis)) && good;
    return good;
}

/* Returns an exit status. */
static int analyze(struct analysis *analysis, char **paths, int count, const char *const *values,
                   int64_t asked_ns)
{
    int error = gather(analysis, paths, count);

    if (!error && analysis->evidence.usable == 0) {
        fprintf(stderr, "ncclguard analyze: nothing usable was found\n");
        return NG_EXIT_USAGE;
    }
    error = error ?: judge(analysis, asked_ns);
    if (!error && values[OPTION_HTML])
        error = gather_stacks(analysis, paths, count);
    error = error ?: add_lines(analysis);
    analysis->verdict.time_unix_ns = error ? 0 : incident_unix_ns(analysis, paths, count);
    if (!error && values[OPTION_SOURCES])
        error = ng_stack_sources_add(&analysis->stacks, analysis->verdict.time_unix_ns);
    if (error) {
        fprintf(stderr, "ncclguard analyze: out of memory\n");
        return NG_EXIT_FAILED;
    }
    bool good = write_files(analysis, values);
    int status = print(analysis, values[OPTION_JSON] != NULL, folder_of(paths, count));
    return good ? status : NG_EXIT_FAILED;
}

static int analyze_run(uint64_t run, char **paths, int count, const char *const *values,
                       int64_t asked_ns)
{
    struct analysis analysis = {.run = run};

    ng_view_init(&analysis.view);
    ng_view_merge_init(&analysis.merge, &analysis.view, NG_VIEW_MERGE_RECORDS);
    int status = analyze(&analysis, paths, count, values, asked_ns);
    ng_stack_groups_fini(&analysis.stacks);
    ng_mismatches_fini(&analysis.mismatches);
    ng_verdict_fini(&analysis.verdict);
    ng_view_merge_fini(&analysis.merge);
    ng_evidence_paths_fini(&analysis.paths);
    ng_view_fini(&analysis.view);
    return status;
}

static int refuse_runs(const struct ng_local_run *runs, int count, const char *asked)
{
    char list[RUNS_MAX * 100], mend[sizeof(list) + 64];

    ng_jobs_name_runs(runs, count, true, list, sizeof(list));
    snprintf(mend, sizeof(mend), "write --run RUN, one of: %s", list);
    if (asked)
        return ng_usage_error(COMMAND, mend, "no run %s has left black boxes there", asked);
    return ng_usage_error(COMMAND, mend, "%d runs have left black boxes there", count);
}

/* Several runs of one name, each judged separately. */
static int analyze_runs(const struct ng_local_run *runs, int run_count, char **paths,
                        const char *const *values, int64_t asked_ns)
{
    const char *asked = values[OPTION_RUN];
    int status = NG_EXIT_OK, judged = 0;
    char name[100];

    if (!asked && (values[OPTION_JSON] || values[OPTION_HTML] || values[OPTION_TRACE]))
        return refuse_runs(runs, run_count, NULL);
    for (int i = 0; i < run_count; i++) {
        ng_jobs_name_runs(&runs[i], 1, true, name, sizeof(name));
        if (asked && (strncasecmp(name, asked, 16) != 0 || strlen(asked) != 16))
            continue;
        if (!asked)
            printf("%srun %s\n", judged ? "\n" : "", name);
        int one = analyze_run(runs[i].id, paths, 1, values, asked_ns);
        status = one == NG_EXIT_OK ? status : one;
        judged++;
    }
    return judged ? status : refuse_runs(runs, run_count, asked);
}

static int analyze_paths(char **paths, int count, const char *const *values, int64_t asked_ns)
{
    struct ng_local_run runs[RUNS_MAX];
    int run_count = folder_of(paths, count) ? ng_evidence_runs(paths[0], runs, RUNS_MAX) : 0;

    if (run_count > 0)
        return analyze_runs(runs, run_count, paths, values, asked_ns);
    if (values[OPTION_RUN])
        return ng_usage_error(COMMAND, "leave it out",
                              "--run is about one folder in which several runs have left black "
                              "boxes");
    return analyze_run(0, paths, count, values, asked_ns);
}

int ng_command_analyze(int argc, char **argv)
{
    const char *values[OPTION_COUNT];
    int64_t asked_ns = 0;
    int operand, status;

    if (!ng_usage_parse(&usage, argc, argv, values, &operand, &status))
        return status;
    if (operand == argc)
        return ng_usage_error(COMMAND, "write `ncclguard analyze PATH…`", "no evidence was given");
    if (values[OPTION_SOURCES] && !values[OPTION_HTML])
        return ng_usage_error(COMMAND, "add --html FILE", "--sources is for the page of --html");
    status = ng_usage_duration(COMMAND, "stalled", values[OPTION_STALLED], 0, &asked_ns);
    if (status != 0)
        return status;

    NG_FREED char **beside = calloc((size_t)argc, sizeof(*beside));
    for (int i = operand; beside && i < argc; i++)
        if ((beside[i] = ng_evidence_beside(argv[i])))
            argv[i] = beside[i];
    status = analyze_paths(argv + operand, argc - operand, values, asked_ns);
    for (int i = operand; beside && i < argc; i++)
        free(beside[i]);
    return status;
}
