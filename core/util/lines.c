/*
 * Lines of a file, one buffer at a time.
 *
 * Any thread. Must never call malloc.
 */
#include "core/util/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

int ng_lines_each(const char *path, char *buffer, size_t bytes, ng_lines_fn *take, void *context)
{
    size_t held = 0;
    bool more = true;
    ssize_t got;

    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    while (more && (got = read(fd, buffer + held, bytes - 1 - held)) > 0) {
        held += (size_t)got;
        buffer[held] = '\0';
        char *line = buffer, *end;
        for (; more && (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            more = take(context, line);
        }
        held = more ? strlen(line) : 0;
        if (held == bytes - 1)
            held = 0;
        memmove(buffer, line, held);
    }
    int error = more && got < 0 ? -errno : 0;
    close(fd);
    return error;
}
