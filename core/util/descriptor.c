/*
 * Keeps the guard's descriptors apart from the program's.
 *
 * Entered at start, by the guard's threads, and in forked children. Async-signal-safe.
 */
#include "core/util/descriptor.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOWEST 200 /* above what shells and daemons usually close */

static void look(int fd, struct ng_descriptor *ret_descriptor)
{
    struct stat status;
    char path[32];

    *ret_descriptor = (struct ng_descriptor){.fd = fd};
    if (fstat(fd, &status) == 0) {
        ret_descriptor->device = status.st_dev;
        ret_descriptor->inode = status.st_ino;
    }
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, ret_descriptor->link, sizeof(ret_descriptor->link) - 1);
    ret_descriptor->link[length > 0 ? length : 0] = '\0';
}

struct ng_descriptor ng_descriptor_keep(int fd)
{
    struct ng_descriptor descriptor = NG_DESCRIPTOR_NONE;

    if (fd < 0)
        return descriptor;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, LOWEST);
    /* If the limit on descriptors is low, keep the low number. */
    if (high >= 0) {
        close(fd);
        fd = high;
    }
    look(fd, &descriptor);
    return descriptor;
}

bool ng_descriptor_ours(const struct ng_descriptor *descriptor)
{
    struct ng_descriptor now;

    if (descriptor->fd < 0)
        return false;
    look(descriptor->fd, &now);
    /* A file may be renamed; a descriptor without its own inode keeps its kind. */
    return now.device == descriptor->device && now.inode == descriptor->inode &&
           (descriptor->link[0] == '/' || strcmp(now.link, descriptor->link) == 0);
}

void ng_descriptor_close(struct ng_descriptor *descriptor)
{
    if (ng_descriptor_ours(descriptor))
        close(descriptor->fd);
    *descriptor = NG_DESCRIPTOR_NONE;
}
