/*
 * Where a job's files lie.
 *
 * Entered at start and by the guard's threads. Must never follow a stranger's folder in /tmp or /dev/shm.
 */
#include "core/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void ng_paths_default_dir(const char *job, char *ret_path, size_t bytes)
{
    snprintf(ret_path, bytes, "/dev/shm/ncclguard-%u/%s", (unsigned)geteuid(), job);
}

void ng_paths_default_dump_dir(const char *job, char *ret_path, size_t bytes)
{
    const char *tmp = secure_getenv("TMPDIR");
    snprintf(ret_path, bytes, "%s/ncclguard-%u/%s", tmp && *tmp ? tmp : "/tmp", (unsigned)geteuid(), job);
}

int ng_paths_make(const char *path)
{
    char part[PATH_MAX];
    struct stat status;

    if (snprintf(part, sizeof(part), "%s", path) >= (int)sizeof(part))
        return -ENAMETOOLONG;
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return -errno;
        *slash = '/';
    }
    if (mkdir(part, 0700) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    if (lstat(part, &status) != 0)
        return -errno;
    if (!S_ISDIR(status.st_mode) && !S_ISLNK(status.st_mode))
        return -ENOTDIR;
    if (stat(part, &status) != 0)
        return -errno;
    if (status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)))
        return -EPERM;
    return 0;
}

void ng_paths_remove(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;

    if (!folder) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            unlinkat(fd, entry->d_name, 0);
    closedir(folder);
    rmdir(path);
}
