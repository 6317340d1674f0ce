/*
 * Where a job's files lie.
 *
 * Entered at start and by the guard's threads. Must never follow a stranger's folder in /tmp or
 * /dev/shm.
 */
#include "core/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/board.h"
#include "core/box.h"

void ng_paths_default_dir(const char *job, char *ret_path, size_t bytes)
{
    snprintf(ret_path, bytes, "/dev/shm/ncclguard-%u/%s", (unsigned)geteuid(), job);
}

void ng_paths_default_dump_dir(const char *job, char *ret_path, size_t bytes)
{
    const char *tmp = secure_getenv("TMPDIR");
    snprintf(ret_path, bytes, "%s/ncclguard-%u/%s", tmp && *tmp ? tmp : "/tmp", (unsigned)geteuid(),
             job);
}

/* A folder that is ours alone to write to: 0, or -errno. `follow`: a link of the user's own making
 * is fine. */
static int check_ours(const char *path, bool follow)
{
    struct stat status;

    if ((follow ? stat(path, &status) : lstat(path, &status)) != 0)
        return -errno;
    if (!S_ISDIR(status.st_mode))
        return S_ISLNK(status.st_mode) ? -EPERM : -ENOTDIR;
    return status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) ? -EPERM : 0;
}

/* Our own folder per user, whose name anybody can guess and take in a shared temporary folder. */
static bool is_per_user(const char *path)
{
    char name[32];
    const char *last = strrchr(path, '/');

    snprintf(name, sizeof(name), "/ncclguard-%u", (unsigned)geteuid());
    return last && strcmp(last, name) == 0;
}

int ng_paths_make(const char *path)
{
    char part[PATH_MAX];
    int error;

    if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
        return -ENAMETOOLONG;
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return -errno;
        if (is_per_user(part) && (error = check_ours(part, false)) != 0)
            return error;
        *slash = '/';
    }
    if (mkdir(part, 0700) == 0)
        return 0;
    return errno == EEXIST ? check_ours(part, true) : -errno;
}

/* Names that boards make, complete or still hidden; all else in a folder is somebody's and stays.
 */
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
        return false;
    return *numbers && numbers[strspn(numbers, "0123456789-")] == '\0';
}

void ng_paths_remove_board(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;

    if (!folder) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));)
        if (is_of_board(entry->d_name))
            unlinkat(fd, entry->d_name, 0);
    closedir(folder);
    rmdir(path); /* stays where anything else lies in it */
}
