/*
 * The locations of a job's files.
 *
 * Entered at start and by the guard's threads. Must never follow another user's folder in /tmp or
 * /dev/shm.
 */
#include "core/recorder/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/nccl/board.h"
#include "core/recorder/box.h"
#include "core/util/folder.h"

void ng_paths_default_dir(const char *job, char *ret_path, size_t bytes)
{
    snprintf(ret_path, bytes, "/dev/shm/ncclguard-%u/%s", (unsigned)geteuid(), job);
}

void ng_paths_dump_dir_in(const char *temporary, const char *job, char *ret_path, size_t bytes)
{
    bool there = temporary && *temporary && access(temporary, W_OK | X_OK) == 0;

    snprintf(ret_path, bytes, "%s/ncclguard-%u/%s", there ? temporary : "/tmp", (unsigned)geteuid(),
             job);
}

void ng_paths_default_dump_dir(const char *job, char *ret_path, size_t bytes)
{
    ng_paths_dump_dir_in(secure_getenv("TMPDIR"), job, ret_path, bytes);
}

/* Is it a folder that only we may write to? 0, or -errno. `follow`: a link that the user has made
 * is accepted. */
static int check_ours(const char *path, bool follow)
{
    struct stat status;

    if ((follow ? stat(path, &status) : lstat(path, &status)) != 0)
        return -errno;
    if (!S_ISDIR(status.st_mode))
        return S_ISLNK(status.st_mode) ? -EPERM : -ENOTDIR;
    return status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) ? -EPERM : 0;
}

/* Is it our per-user folder, whose name others can guess and take in a shared temporary folder? */
static bool is_per_user(const char *path)
{
    char name[32];
    const char *last = strrchr(path, '/');

    snprintf(name, sizeof(name), "/ncclguard-%u", (unsigned)geteuid());
    return last && strcmp(last, name) == 0;
}

/* Regardless of the program's umask, we can use a folder that we create. */
static int make_one(const char *path)
{
    if (mkdir(path, 0700) != 0)
        return -errno;
    chmod(path, 0700); /* if that is forbidden, the umask determines the mode: usually the same */
    return 0;
}

/* Where our per-user folder begins in a path; the path itself if it has none. The folders above it
 * (/dev/shm, the temporary folder) belong to the system, and we do not create them. */
static const char *find_per_user(const char *path)
{
    char name[32];
    size_t length = (size_t)snprintf(name, sizeof(name), "/ncclguard-%u", (unsigned)geteuid());
    const char *found = strstr(path, name);

    return found && (found[length] == '/' || found[length] == '\0') ? found : path;
}

int ng_paths_make(const char *path)
{
    char part[PATH_MAX];
    size_t above = (size_t)(find_per_user(path) - path);
    int error;

    if (!*path)
        return -EINVAL;
    if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
        return -ENAMETOOLONG;
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        if ((size_t)(slash - part) <= above)
            continue;
        *slash = '\0';
        error = make_one(part);
        if (error && error != -EEXIST)
            return error;
        if (is_per_user(part) && (error = check_ours(part, false)) != 0)
            return error;
        *slash = '/';
    }
    error = make_one(part);
    return error == -EEXIST ? check_ours(part, true) : error;
}

/* Is it a name that boards use, complete or still hidden? All other files belong to others and are
 * kept. */
static bool is_of_board(const char *name)
{
    const char *numbers;

    if (name[0] == '.')
        name++;
    if (strncmp(name, NG_BOX_PREFIX, strlen(NG_BOX_PREFIX)) == 0)
        numbers = name + strlen(NG_BOX_PREFIX);
    else if (strncmp(name, NG_INCIDENT_PREFIX, strlen(NG_INCIDENT_PREFIX)) == 0)
        numbers = name + strlen(NG_INCIDENT_PREFIX);
    else
        return strncmp(name, NG_ENTRY_PREFIX, strlen(NG_ENTRY_PREFIX)) == 0;
    return *numbers && numbers[strspn(numbers, "0123456789-")] == '\0';
}

static void remove_board(struct ng_folder *folder, const char *path)
{
    const char *name;

    while ((name = ng_folder_next(folder)))
        if (is_of_board(name))
            unlinkat(folder->fd, name, 0);
    ng_folder_close(folder);
    rmdir(path); /* fails if other files are in it */
}

void ng_paths_remove_board(const char *path)
{
    struct ng_folder folder;

    if (ng_folder_open(&folder, path, false) == 0)
        remove_board(&folder, path);
}

void ng_paths_remove_open_board(int fd, const char *path)
{
    struct ng_folder folder;

    ng_folder_borrow(&folder, fd);
    remove_board(&folder, path);
}
