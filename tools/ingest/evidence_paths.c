/*
 * Which files are evidence: those that the user named, and those of a folder with matching names.
 *
 * Used by `ncclguard analyze`. Must never open anything but regular files.
 */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/nccl/board.h"
#include "core/recorder/box.h"
#include "store/board/local.h"
#include "tools/base/grow.h"
#include "tools/base/owned.h"
#include "tools/base/search_path.h"
#include "tools/ingest/evidence.h"

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);

    return length > end_length && strcmp(text + length - end_length, end) == 0;
}

/* A common prefix and the rank: the files of PyTorch's flight recorder may have any prefix. */
static bool is_flight_name(const char *name)
{
    return name[0] != '.' && !starts_with(name, NG_BOX_PREFIX) &&
           !starts_with(name, NG_INCIDENT_PREFIX) && ng_flight_rank(name) >= 0;
}

static bool is_evidence(const char *name)
{
    return starts_with(name, NG_BOX_PREFIX) ||
           (starts_with(name, "rank_") && ends_with(name, ".json")) || is_flight_name(name);
}

static int only_evidence(const struct dirent *entry)
{
    return is_evidence(entry->d_name) && entry->d_type != DT_DIR;
}

/* What is evidence beyond doubt by its name: files of any kind end in a number. */
static int only_of_ranks(const struct dirent *entry)
{
    return only_evidence(entry) &&
           (starts_with(entry->d_name, NG_BOX_PREFIX) || strstr(entry->d_name, "rank"));
}

static int only_incidents(const struct dirent *entry)
{
    return starts_with(entry->d_name, NG_INCIDENT_PREFIX) && entry->d_type != DT_DIR;
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

/* The user may have named the parent folder: list the subfolders with evidence. */
static void refuse_folder(const char *path, ng_evidence_refuse_fn *refuse, void *context)
{
    char below[PATH_MAX], found[256] = "", why[400];
    struct dirent **folders, **entries;
    int count = scandir(path, &folders, only_folders, alphasort);

    for (int i = 0; i < count; i++) {
        snprintf(below, sizeof(below), "%s/%s", path, folders[i]->d_name);
        int inside = scandir(below, &entries, only_of_ranks, NULL);
        if (inside > 0 && !found[0])
            snprintf(found, sizeof(found), "%.250s", folders[i]->d_name);
        if (inside >= 0)
            free_entries(entries, inside);
    }
    if (count >= 0)
        free_entries(folders, count);
    if (found[0])
        snprintf(why, sizeof(why), "no evidence directly in it; %s in it has some", found);
    else
        snprintf(why, sizeof(why),
                 "a folder without black boxes and without dumps (rank_<r>.json, or rank_<r> of "
                 "PyTorch)");
    refuse(context, path, why);
}

static int add_file(struct ng_evidence_paths *paths, const char *path)
{
    if (!NG_GROW(paths->paths, paths->count, paths->room))
        return -ENOMEM;
    char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    paths->paths[paths->count++] = copy;
    return 0;
}

/* Verdicts that were reached while the job ran; commands, and incidents without a verdict, are of
 * no use. */
static int add_incidents(struct ng_evidence_paths *paths, const char *path)
{
    struct dirent **entries;
    struct ng_incident incident;
    char file[PATH_MAX];
    int count = scandir(path, &entries, only_incidents, versionsort), error = 0;

    for (int i = count; i > 0 && paths->incident_count < NG_EVIDENCE_INCIDENTS && !error; i--) {
        if (snprintf(file, sizeof(file), "%s/%s", path, entries[i - 1]->d_name) >=
                (int)sizeof(file) ||
            ng_local_read_incident(file, &incident) != 0 || incident.state != NG_INCIDENT_JUDGED)
            continue;
        if (!paths->incidents)
            paths->incidents = calloc(NG_EVIDENCE_INCIDENTS, sizeof(*paths->incidents));
        if (paths->incidents)
            paths->incidents[paths->incident_count++] = incident;
        else
            error = -ENOMEM;
    }
    if (count >= 0)
        free_entries(entries, count);
    return error;
}

static int add_folder(struct ng_evidence_paths *paths, const char *path,
                      ng_evidence_refuse_fn *refuse, void *context)
{
    struct dirent **entries;
    char file[PATH_MAX];
    int count = scandir(path, &entries, only_evidence, versionsort), error = 0;

    if (count < 0) {
        error = -errno;
        refuse(context, path, strerror(-error));
        return error == -ENOMEM ? error : 0;
    }
    for (int i = 0; i < count && !error; i++)
        if (snprintf(file, sizeof(file), "%s/%s", path, entries[i]->d_name) < (int)sizeof(file))
            error = add_file(paths, file);
    free_entries(entries, count);
    if (count == 0)
        refuse_folder(path, refuse, context);
    return error ?: add_incidents(paths, path);
}

int ng_evidence_add_path(struct ng_evidence_paths *paths, const char *path,
                         ng_evidence_refuse_fn *refuse, void *context)
{
    struct stat status;

    if (stat(path, &status) != 0)
        refuse(context, path, strerror(errno));
    else if (S_ISDIR(status.st_mode))
        return add_folder(paths, path, refuse, context);
    else if (S_ISREG(status.st_mode))
        return add_file(paths, path);
    else
        refuse(context, path, "neither a file nor a folder");
    return 0;
}

int ng_evidence_order(struct ng_evidence_paths *paths)
{
    char **ordered = calloc(paths->count + 1, sizeof(*ordered));
    size_t used = 0;

    if (!ordered)
        return -ENOMEM;
    for (int flight = 0; flight < 2; flight++)
        for (size_t i = 0; i < paths->count; i++)
            if (is_flight_name(ng_last_part(paths->paths[i])) == (bool)flight)
                ordered[used++] = paths->paths[i];
    free(paths->paths);
    paths->paths = ordered;
    paths->room = paths->count + 1;
    return 0;
}

/* ---- Several runs in one folder ---- */

/* The owners of the black boxes among the paths, in their order; other paths have pid 0. The caller
 * frees. NULL: no memory. */
static struct ng_local_process *find_runs_of(const struct ng_evidence_paths *paths,
                                             const char *folder, int *ret_ranks)
{
    struct ng_local_process *processes = calloc(paths->count + 1, sizeof(*processes));
    struct ng_box box;

    for (size_t i = 0; processes && i < paths->count; i++) {
        if (!starts_with(ng_last_part(paths->paths[i]), NG_BOX_PREFIX) ||
            ng_box_open(paths->paths[i], &box) != 0)
            continue;
        processes[i].pid = box.header->pid;
        processes[i].start_ticks = box.header->start_ticks;
        if (ret_ranks)
            ret_ranks[i] = box.header->rank;
        ng_box_close(&box, NULL);
    }
    if (processes)
        ng_local_find_runs_of(folder, processes, (uint32_t)paths->count);
    return processes;
}

static bool is_rank_in_several(const struct ng_local_process *processes, const int *ranks,
                               size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < i && processes[i].run && ranks[i] >= 0; k++)
            if (processes[k].run && processes[k].run != processes[i].run && ranks[k] == ranks[i])
                return true;
    return false;
}

static void refuse_nothing(void *context, const char *path, const char *why)
{
}

char *ng_evidence_beside(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct ng_evidence_paths paths = {0};
    char *folder = NULL;

    if (strcmp(name, "verdict.json") != 0 && strcmp(name, "verdict.txt") != 0)
        return NULL;
    folder = slash ? strndup(path, (size_t)(slash - path) + (slash == path)) : strdup(".");
    if (folder && (add_folder(&paths, folder, refuse_nothing, NULL) != 0 || paths.count == 0)) {
        free(folder);
        folder = NULL;
    }
    ng_evidence_paths_fini(&paths);
    return folder;
}

int ng_evidence_runs(const char *folder, struct ng_local_run *ret_runs, uint32_t room)
{
    struct ng_evidence_paths paths = {0};
    int count = ng_local_runs(folder, ret_runs, room);
    bool several = false;

    if (count < 2 || ng_evidence_add_path(&paths, folder, refuse_nothing, NULL) != 0)
        count = 0;
    NG_FREED int *ranks = count ? malloc((paths.count + 1) * sizeof(*ranks)) : NULL;
    NG_FREED struct ng_local_process *processes =
        ranks ? find_runs_of(&paths, folder, ranks) : NULL;
    if (processes)
        several = is_rank_in_several(processes, ranks, paths.count);
    ng_evidence_paths_fini(&paths);
    return several ? count : 0;
}

int ng_evidence_keep_run(struct ng_evidence_paths *paths, const char *folder, uint64_t run)
{
    NG_FREED struct ng_local_process *processes = find_runs_of(paths, folder, NULL);
    size_t kept = 0;

    if (!processes)
        return -ENOMEM;
    for (size_t i = 0; i < paths->count; i++) {
        if (processes[i].pid && processes[i].run != run)
            free(paths->paths[i]);
        else
            paths->paths[kept++] = paths->paths[i];
    }
    paths->count = kept;
    kept = 0;
    for (size_t i = 0; i < paths->incident_count; i++) {
        struct ng_local_process claimant = {.pid = paths->incidents[i].claimant_pid,
                                            .start_ticks = paths->incidents[i].claimant_ticks};
        if (ng_local_find_runs_of(folder, &claimant, 1) == 0 &&
            (!claimant.run || claimant.run == run))
            paths->incidents[kept++] = paths->incidents[i];
    }
    paths->incident_count = kept;
    return 0;
}

void ng_evidence_paths_fini(struct ng_evidence_paths *paths)
{
    for (size_t i = 0; i < paths->count; i++)
        free(paths->paths[i]);
    free(paths->paths);
    free(paths->incidents);
    *paths = (struct ng_evidence_paths){0};
}
