/*
 * `ncclguard analyze`: reaches a verdict from evidence on disk, with the engine of the live
 * library.
 *
 * Evidence is black boxes and dumps (rank_<r>.json), one by one or in folders. Must never let one
 * bad file spoil the rest: it is named, with the reason, and the verdict says what is missing.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/box.h"
#include "core/clock.h"
#include "core/config.h"
#include "core/report.h"
#include "core/verdict.h"
#include "core/view.h"
#include "tools/command.h"
#include "tools/read_box.h"
#include "tools/read_dump.h"
#include "tools/usage.h"

#define COMMAND "analyze"

/* Dumps do not say when their job calls work stuck; black boxes do. */
#define STALLED_DEFAULT_NS (5 * NG_S)
#define UNUSUAL_NS         NG_S /* beside work that is stuck, waits of this length are no chance */
/* The heartbeat of a black box is at least this fresh at its process's end. */
#define TOGETHER_NS (2 * NG_S)

enum { OPTION_JSON, OPTION_STALLED, OPTION_COUNT };

static const struct ng_usage_option options[OPTION_COUNT] = {
    [OPTION_JSON] = {"json", NULL, "print the verdict as JSON (schema " NG_REPORT_SCHEMA ")"},
    [OPTION_STALLED] = {"stalled", "DURATION",
                        "call work stuck that was pending for this long (default: the job's\n"
                        "own NCCLGUARD_SUSPECT and NCCLGUARD_TIMEOUT, else 5s)"},
};

static const struct ng_usage usage = {
    .command = COMMAND,
    .synopsis = "PATH… [--json]",
    .about =
        "Reach a verdict from evidence. PATH is a black box, a dump (rank_<r>.json), or a folder\n"
        "of either: a job's folder in shared memory, or the folder of its evidence.\n"
        "Exit status: 0 healthy, 3 a fault was found, 2 nothing usable in the input.",
    .options = options,
    .option_count = OPTION_COUNT,
};

struct analysis {
    struct ng_view view;
    int64_t stalled_ns; /* the smallest that a black box told; 0 none did */
    size_t usable, unusable;
    bool dumps; /* written only where there was an incident */
    int error;  /* -ENOMEM */
};

__attribute__((format(printf, 3, 4))) static void refuse(struct analysis *analysis,
                                                         const char *path, const char *format, ...)
{
    char why[400];
    const char *slash = strrchr(path, '/');
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, sizeof(why), format, arguments);
    va_end(arguments);
    fprintf(stderr, "ncclguard analyze: %s: %s\n", path, why);
    ng_view_note(&analysis->view, "%s: %s", slash && slash[1] ? slash + 1 : path, why);
    analysis->unusable++;
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static void take_threshold(struct analysis *analysis, int64_t ns)
{
    if (ns > 0 && (!analysis->stalled_ns || ns < analysis->stalled_ns))
        analysis->stalled_ns = ns;
}

static void take_box(struct analysis *analysis, const char *path)
{
    struct ng_box_header header;
    char why[256];

    int error = ng_read_box(&analysis->view, path, name_of(path), &header, why, sizeof(why));
    if (error == -ENOMEM) {
        analysis->error = error;
    } else if (error) {
        refuse(analysis, path, "%s", why);
    } else {
        analysis->usable++;
        take_threshold(analysis, header.suspect_ns);
        take_threshold(analysis, header.timeout_ns);
    }
}

static void take_dump(struct analysis *analysis, const char *path)
{
    char why[256];

    int error = ng_read_dump(&analysis->view, path, name_of(path), why, sizeof(why));
    if (error == -ENOMEM) {
        analysis->error = error;
    } else if (error) {
        refuse(analysis, path, "%s", why);
    } else {
        analysis->usable++;
        analysis->dumps = true;
    }
}

static void take_file(struct analysis *analysis, const char *path)
{
    unsigned char start[8] = {0};
    uint64_t magic;

    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    ssize_t bytes = fd >= 0 ? read(fd, start, sizeof(start)) : -1;
    int error = errno;
    if (fd >= 0)
        close(fd);
    memcpy(&magic, start, sizeof(magic));
    size_t blank = strspn((const char *)start, " \t\r\n");
    if (bytes < 0)
        refuse(analysis, path, "%s", strerror(error));
    else if (bytes == 0)
        refuse(analysis, path, "empty");
    else if (magic == NG_BOX_MAGIC ||
             strncmp(name_of(path), NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) == 0)
        take_box(analysis, path);
    else if (start[0] == 0x80)
        refuse(analysis, path,
               "a Python pickle: PyTorch's flight recorder is not read by this version");
    else if (blank < sizeof(start) && start[blank] == '{')
        take_dump(analysis, path);
    else
        refuse(analysis, path, "neither a black box nor a dump of ncclguard");
}

static bool is_evidence(const char *name)
{
    size_t length = strlen(name);

    return strncmp(name, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) == 0 ||
           (strncmp(name, "rank_", 5) == 0 && length > 5 &&
            strcmp(name + length - 5, ".json") == 0);
}

static int only_evidence(const struct dirent *entry)
{
    return is_evidence(entry->d_name);
}

static int only_folders(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN);
}

static void free_entries(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

/* The user may have named the folder above: say which ones below it have something. */
static void refuse_folder(struct analysis *analysis, const char *path)
{
    char below[PATH_MAX], found[256] = "";
    struct dirent **folders, **entries;
    int count = scandir(path, &folders, only_folders, alphasort);

    for (int i = 0; i < count; i++) {
        snprintf(below, sizeof(below), "%s/%s", path, folders[i]->d_name);
        int inside = scandir(below, &entries, only_evidence, NULL);
        if (inside > 0 && !found[0])
            snprintf(found, sizeof(found), "%.250s", folders[i]->d_name);
        if (inside >= 0)
            free_entries(entries, inside);
    }
    if (count >= 0)
        free_entries(folders, count);
    if (found[0])
        refuse(analysis, path, "no evidence directly in it; %s in it has some", found);
    else
        refuse(analysis, path, "a folder without black boxes and without dumps (rank_<r>.json)");
}

static void take_folder(struct analysis *analysis, const char *path)
{
    struct dirent **entries;
    char file[PATH_MAX];
    int count = scandir(path, &entries, only_evidence, versionsort);

    if (count < 0) {
        refuse(analysis, path, "%s", strerror(errno));
        return;
    }
    for (int i = 0; i < count && !analysis->error; i++) {
        if (snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name) < (int)sizeof(file))
            take_file(analysis, file);
    }
    free_entries(entries, count);
    if (count == 0)
        refuse_folder(analysis, path);
}

static void take_path(struct analysis *analysis, const char *path)
{
    struct stat status;

    if (stat(path, &status) != 0)
        refuse(analysis, path, "%s", strerror(errno));
    else if (S_ISDIR(status.st_mode))
        take_folder(analysis, path);
    else if (S_ISREG(status.st_mode))
        take_file(analysis, path);
    else
        refuse(analysis, path, "neither a file nor a folder");
}

/*
 * A job that was killed from outside (a batch system's SIGKILL) has only dead ranks, and the dead
 * wait for nobody. What matters is how it stood just before: the ranks of the last wave of deaths
 * count as alive then. A rank that died earlier stays dead.
 */
static bool look_before_the_end(struct ng_view *view)
{
    int64_t last = INT64_MAX;

    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        if (process->life != NG_LIFE_DEAD && process->life != NG_LIFE_EXITED)
            return false;
        if (process->life == NG_LIFE_DEAD && process->life_age_ns < last)
            last = process->life_age_ns;
    }
    if (last == INT64_MAX)
        return false;
    for (uint32_t i = 0; i < view->process_count; i++) {
        struct ng_view_process *process = &view->processes[i];
        if (process->life == NG_LIFE_DEAD && process->life_age_ns <= last + TOGETHER_NS)
            process->life = NG_LIFE_ENDED_BY_GUARD; /* ended by somebody: a victim, not a cause */
    }
    return true;
}

/* Whether there was an incident, whatever the clock says: a death among the living, or the guard
 * ended the job. */
static bool incident_is_certain(const struct analysis *analysis, bool looked_before)
{
    if (analysis->dumps)
        return true;
    for (uint32_t i = 0; i < analysis->view.process_count && !looked_before; i++)
        if (analysis->view.processes[i].life == NG_LIFE_DEAD ||
            analysis->view.processes[i].life == NG_LIFE_ENDED_BY_GUARD)
            return true;
    return false;
}

static bool gone(const struct ng_view *view, uint32_t process)
{
    return view->processes[process].life == NG_LIFE_DEAD ||
           view->processes[process].life == NG_LIFE_EXITED;
}

/* Age of the oldest work or call of the living that is not finished; 0 none. */
static int64_t oldest_wait(const struct ng_view *view)
{
    int64_t oldest = 0;

    for (uint32_t i = 0; i < view->member_count; i++) {
        const struct ng_view_member *member = &view->members[i];
        if (member->pending_record && member->pending_age_ns > oldest &&
            !gone(view, member->process))
            oldest = member->pending_age_ns;
    }
    for (uint32_t i = 0; i < view->call_count; i++)
        if (view->calls[i].age_ns > oldest && !gone(view, view->calls[i].process))
            oldest = view->calls[i].age_ns;
    return oldest;
}

static int judge(struct analysis *analysis, int64_t asked_ns, struct ng_verdict *ret_verdict)
{
    struct ng_verdict_query query = {.stalled_ns = analysis->stalled_ns};

    ng_view_seal(&analysis->view);
    bool looked_before = look_before_the_end(&analysis->view);
    int64_t oldest_ns = oldest_wait(&analysis->view);
    if (!query.stalled_ns)
        query.stalled_ns = STALLED_DEFAULT_NS;
    /*
     * As the library does: once something is stuck, half of the longest wait counts, for ranks do
     * not come at the same moment; but what came later may be the reason, if it is no
     * ordinary wait. And a death is noticed long before the work that it holds up is old.
     */
    if (oldest_ns >= query.stalled_ns || incident_is_certain(analysis, looked_before))
        query.stalled_ns = oldest_ns / 2 < UNUSUAL_NS ? oldest_ns / 2 + 1 : UNUSUAL_NS;
    if (asked_ns > 0)
        query.stalled_ns = asked_ns;
    return ng_verdict_reach(&analysis->view, &query, ret_verdict);
}

static int print(const struct analysis *analysis, const struct ng_verdict *verdict, bool json)
{
    int error;

    /* A healthy verdict has no list of missing evidence. */
    for (uint32_t i = 0; verdict->kind == NG_KIND_HEALTHY && i < analysis->view.note_count; i++)
        fprintf(stderr, "ncclguard analyze: not known: %s\n", analysis->view.notes[i]);
    fflush(stdout);
    if (json)
        error = ng_report_write_json(verdict, STDOUT_FILENO);
    else
        error = ng_report_write_text(verdict, NULL, STDOUT_FILENO);
    if (!error)
        return verdict->kind == NG_KIND_HEALTHY ? NG_EXIT_OK : NG_EXIT_FAULT;
    fprintf(stderr, "ncclguard analyze: cannot write the verdict: %s\n", strerror(-error));
    return NG_EXIT_FAILED;
}

/* 0, or an exit status with the usage error told. */
static int parse_stalled(const char *text, int64_t *ret_ns)
{
    const struct ng_option duration = {
        .type = NG_CONFIG_DURATION, .minimum = 1, .maximum = 1000000 * NG_S};
    char why[256];

    if (text && ng_config_parse_value(&duration, text, ret_ns, why, sizeof(why)) != 0)
        return ng_usage_error(COMMAND, why, "--stalled %s is not valid", text);
    return 0;
}

int ng_command_analyze(int argc, char **argv)
{
    const char *values[OPTION_COUNT];
    struct analysis analysis = {0};
    struct ng_verdict verdict;
    int64_t asked_ns = 0;
    int operand, status;

    switch (ng_usage_parse(&usage, argc, argv, values, &operand)) {
    case NG_USAGE_HELP:
        return NG_EXIT_OK;
    case NG_USAGE_ERROR:
        return NG_EXIT_USAGE;
    case NG_USAGE_GO:
        break;
    }
    if (operand == argc)
        return ng_usage_error(COMMAND, "write `ncclguard analyze PATH…`", "no evidence was given");
    status = parse_stalled(values[OPTION_STALLED], &asked_ns);
    if (status != 0)
        return status;

    ng_view_init(&analysis.view);
    for (int i = operand; i < argc && !analysis.error; i++)
        take_path(&analysis, argv[i]);
    if (!analysis.error && analysis.usable == 0) {
        fprintf(stderr, "ncclguard analyze: nothing usable was found\n");
        status = NG_EXIT_USAGE;
    } else {
        if (!analysis.error)
            analysis.error = judge(&analysis, asked_ns, &verdict);
        if (analysis.error) {
            fprintf(stderr, "ncclguard analyze: out of memory\n");
            status = NG_EXIT_FAILED;
        } else {
            verdict.time_unix_ns = ng_clock_unix_ns();
            status = print(&analysis, &verdict, values[OPTION_JSON]);
            ng_verdict_fini(&verdict);
        }
    }
    ng_view_fini(&analysis.view);
    return status;
}
