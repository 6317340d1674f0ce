/*
 * Reads a small file as a whole.
 *
 * Entered at start and by the guard's threads. Must never call malloc, nor read a file that may
 * have no end.
 */
#include "core/util/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t ng_small_file_read(int folder, const char *path, void *ret_bytes, size_t room)
{
    struct stat status;
    size_t used = 0;
    ssize_t got = 1;

    /* Opening a pipe would wait for a writer. */
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &status) != 0)
        got = -errno;
    else if (S_ISDIR(status.st_mode))
        got = -EISDIR;
    else if (!S_ISREG(status.st_mode))
        got = -ENOTSUP;
    while (got > 0 && used < room) {
        got = read(fd, (char *)ret_bytes + used, room - used);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got < 0)
            got = -errno;
        else
            used += (size_t)got;
    }
    close(fd);
    return got < 0 ? got : (ssize_t)used;
}

ssize_t ng_small_file_read_text(const char *path, char *ret_text, size_t room)
{
    ssize_t bytes = ng_small_file_read(AT_FDCWD, path, ret_text, room - 1);

    if (bytes >= 0)
        ret_text[bytes] = '\0';
    return bytes;
}
