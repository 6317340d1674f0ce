/*
 * Writing a file that the user has named.
 *
 * Used by `ncclguard analyze`.
 */
#include "tools/base/save_as.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/util/json.h"

/* A device, a pipe, or a link to anything: these are not replaced by a rename. */
static int write_into(const char *path, int (*write_content)(const void *context, int fd),
                      const void *context)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC | O_NOCTTY);

    if (fd < 0)
        return -errno;
    int error = write_content(context, fd);
    if (close(fd) != 0 && !error)
        error = -errno;
    return error;
}

int ng_save_as(const char *path, int (*write_content)(const void *context, int fd),
               const void *context)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    char folder[PATH_MAX] = ".";
    struct stat status;

    if (lstat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return S_ISDIR(status.st_mode) ? -EISDIR : write_into(path, write_content, context);
    if (!*name)
        return *path ? -EISDIR : -ENOENT;
    if (slash && snprintf(folder, sizeof(folder), "%.*s", slash == path ? 1 : (int)(slash - path),
                          path) >= (int)sizeof(folder))
        return -ENAMETOOLONG;
    return ng_output_save(folder, name, write_content, context);
}
