/*
 * Finds out which job folders in shared memory are ours, and removes them at the end.
 *
 * Used by `ncclguard run`. Must never remove a black box whose process is alive, nor one of a job
 * that is not ours.
 */
#include "tools/jobs/job_folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "core/recorder/box.h"
#include "core/recorder/paths.h"
#include "core/recorder/proc.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "tools/base/grow.h"
#include "tools/base/owned.h"
#include "tools/jobs/descendants.h"

/* Other jobs' folders are watched as well, until their owner is known; more than this is
 * useless. */
#define FOLDER_LIMIT 1000

/* A process that reads another's memory (ps, a debugger) keeps the mapping of its black box, and
 * with it the lock, until it is done: the lock may outlive the process for this long. */
#define LOCK_LINGERS_NS (2 * NG_S)

struct ng_job_folder {
    int watch;
    bool ours, stays, appeared; /* since the run began */
    char path[PATH_MAX];
};

static bool is_box(const char *name)
{
    return strncmp(name, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) == 0;
}

/* Whether the owner of a box, by its name, is alive now, as far as this pid namespace shows. */
static bool is_of_living(const char *name, int *ret_pid)
{
    uint64_t ticks, ticks_now;
    char state;

    return sscanf(name + strlen(NG_BOX_PREFIX), "%d-%" SCNu64, ret_pid, &ticks) == 2 &&
           ng_proc_stat(*ret_pid, &state, &ticks_now) == 0 && ticks == ticks_now && state != 'Z' &&
           state != 'X';
}

static bool is_of_descendant(const char *name)
{
    int pid;

    return is_box(name) && is_of_living(name, &pid) && ng_descendants_has(pid);
}

/* Whether a black box states that it is of this run. */
static bool is_of_run(int folder, const char *name)
{
    const char *run_id = getenv("NCCLGUARD_RUN_ID");
    struct ng_box_header header;
    NG_CLOSED int fd =
        run_id && is_box(name) ? openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;

    return fd >= 0 && read(fd, &header, sizeof(header)) == (ssize_t)sizeof(header) &&
           header.magic == NG_BOX_MAGIC && header.version == NG_BOX_VERSION &&
           strncmp(header.run_id, run_id, sizeof(header.run_id)) == 0;
}

/* Of a descendant, or of one that is gone already: then its box states whose it was. */
static bool is_ours(int folder, const char *name)
{
    return is_of_descendant(name) || is_of_run(folder, name);
}

/* Whether it is a folder of ours by its box `name`; NULL: by any. */
static bool is_ours_by(const char *path, const char *name)
{
    NG_CLOSED_DIR DIR *entries = opendir(path);
    bool ours = false;

    if (!entries)
        return false;
    if (name)
        ours = is_ours(dirfd(entries), name);
    for (struct dirent *entry; !name && !ours && (entry = readdir(entries));)
        ours = is_ours(dirfd(entries), entry->d_name);
    return ours;
}

static void add_folder(struct ng_job_folders *folders, const char *name, bool appeared)
{
    struct ng_job_folder folder = {.watch = -1, .appeared = appeared};

    if (name[0] == '.' || folders->count == FOLDER_LIMIT)
        return;
    snprintf(folder.path, sizeof(folder.path), "%s/%s", folders->base, name);
    folder.watch =
        inotify_add_watch(folders->fd, folder.path, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR);
    if (folder.watch < 0)
        return;
    struct ng_job_folder *added = NG_APPEND(folders->list, folders->count);
    if (!added)
        return;
    /* Boxes may have appeared before the watch. */
    folder.ours = is_ours_by(folder.path, NULL);
    *added = folder;
}

void ng_job_folders_watch(struct ng_job_folders *ret_folders)
{
    struct ng_job_folders *folders = ret_folders;
    char base[sizeof(folders->base)];

    *folders = (struct ng_job_folders){.fd = -1};
    ng_paths_default_dir("", base, sizeof(base));
    base[strlen(base) - 1] = '\0';
    snprintf(folders->base, sizeof(folders->base), "%s", base);
    if (ng_paths_make(base) != 0)
        return;
    folders->fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (folders->fd < 0)
        return;
    folders->base_watch =
        inotify_add_watch(folders->fd, base, IN_CREATE | IN_MOVED_TO | IN_ONLYDIR | IN_DONT_FOLLOW);
    NG_CLOSED_DIR DIR *entries = folders->base_watch >= 0 ? opendir(base) : NULL;
    if (!entries || fcntl(folders->fd, F_SETOWN, getpid()) != 0 ||
        fcntl(folders->fd, F_SETSIG, SIGIO) != 0 ||
        fcntl(folders->fd, F_SETFL, O_NONBLOCK | O_ASYNC) != 0) {
        close(folders->fd);
        folders->fd = -1;
    } else {
        for (struct dirent *entry; (entry = readdir(entries));)
            add_folder(folders, entry->d_name, false);
    }
}

static void take_event(struct ng_job_folders *folders, const struct inotify_event *event)
{
    if (event->len == 0)
        return;
    if (event->wd == folders->base_watch) {
        add_folder(folders, event->name, true);
        return;
    }
    for (size_t i = 0; i < folders->count; i++)
        if (folders->list[i].watch == event->wd && !folders->list[i].ours)
            folders->list[i].ours = is_ours_by(folders->list[i].path, event->name);
}

static struct ng_job_folder *find_folder(struct ng_job_folders *folders, const char *path)
{
    return NG_FIND(one, folders->list, folders->count, strcmp(one->path, path) == 0);
}

/* Without a watch: whatever is there now. */
static void look_everywhere(struct ng_job_folders *folders)
{
    NG_CLOSED_DIR DIR *jobs = folders->base[0] ? opendir(folders->base) : NULL;

    if (!jobs)
        return;
    for (struct dirent *job; (job = readdir(jobs)) && folders->count < FOLDER_LIMIT;) {
        struct ng_job_folder folder = {.watch = -1};
        snprintf(folder.path, sizeof(folder.path), "%s/%s", folders->base, job->d_name);
        folder.ours = job->d_name[0] != '.' && !find_folder(folders, folder.path) &&
                      is_ours_by(folder.path, NULL);
        struct ng_job_folder *added = folder.ours ? NG_APPEND(folders->list, folders->count) : NULL;
        if (added)
            *added = folder;
    }
}

void ng_job_folders_look(struct ng_job_folders *folders)
{
    _Alignas(struct inotify_event) char events[4096];
    ssize_t bytes;

    if (folders->fd < 0)
        look_everywhere(folders);
    while (folders->fd >= 0 && (bytes = read(folders->fd, events, sizeof(events))) > 0) {
        for (char *at = events; at < events + bytes;) {
            const struct inotify_event *event = (const void *)at;
            take_event(folders, event);
            at += sizeof(*event) + event->len;
        }
    }
}

bool ng_job_folders_used(const struct ng_job_folders *folders)
{
    if (folders->fd < 0)
        return true;
    return NG_ANY(one, folders->list, folders->count, one->ours);
}

/* The i-th of those that are ours; NULL there are no more. */
static struct ng_job_folder *folder_at(const struct ng_job_folders *folders, size_t i)
{
    return NG_FIND(one, folders->list, folders->count, one->ours && i-- == 0);
}

const char *ng_job_folders_name(const struct ng_job_folders *folders, size_t i)
{
    const struct ng_job_folder *folder = folder_at(folders, i);

    return folder ? strrchr(folder->path, '/') + 1 : NULL;
}

void ng_job_folders_keep(struct ng_job_folders *folders, size_t i)
{
    struct ng_job_folder *folder = folder_at(folders, i);

    if (folder)
        folder->stays = true;
}

/* Whether the kernel still has a process's lock on this black box. */
static bool is_held(int folder, const char *name)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    NG_CLOSED int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return errno != ENOENT;
    return fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* Whether a black box in this folder is locked; *ret_lingers: none of the locked ones has a visible
 * owner. */
static bool is_lived_in(const char *path, bool *ret_lingers)
{
    NG_CLOSED_DIR DIR *entries = opendir(path);
    bool held = false;
    int pid;

    *ret_lingers = entries != NULL;
    if (!entries)
        return true;
    for (struct dirent *entry; *ret_lingers && (entry = readdir(entries));)
        if (is_box(entry->d_name) && is_held(dirfd(entries), entry->d_name)) {
            held = true;
            *ret_lingers = !is_of_living(entry->d_name, &pid);
        }
    return held;
}

static bool await_end(const char *path)
{
    int64_t until = ng_clock_mono_ns() + LOCK_LINGERS_NS;
    bool lingers;

    while (is_lived_in(path, &lingers)) {
        if (!lingers || ng_clock_mono_ns() >= until)
            return false;
        usleep(10000);
    }
    return true;
}

/* Without a watch: which of them appeared since the run began is not known. */
static void remove_empty_ones(const char *base)
{
    NG_CLOSED_DIR DIR *jobs = base[0] ? opendir(base) : NULL;

    for (struct dirent *job; jobs && (job = readdir(jobs));)
        if (job->d_name[0] != '.')
            unlinkat(dirfd(jobs), job->d_name, AT_REMOVEDIR);
}

void ng_job_folders_remove(struct ng_job_folders *folders)
{
    NG_EACH (folder, folders->list, folders->count) {
        if (folder->ours && !folder->stays && await_end(folder->path))
            ng_paths_remove_board(folder->path);
        /* A rank that can no longer name its folder, in another root for instance, leaves it
         * empty: whose it was cannot be seen any more where this process looks late. A rank that
         * has yet to fill its own makes it again. */
        else if (!folder->ours && folder->appeared)
            rmdir(folder->path); /* fails if anything is in it */
    }
    if (folders->fd < 0)
        remove_empty_ones(folders->base);
    free(folders->list);
    if (folders->fd >= 0)
        close(folders->fd);
    *folders = (struct ng_job_folders){.fd = -1};
}
