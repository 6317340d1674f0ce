/*
 * Is a file system one of another machine's?
 *
 * Entered by the guard's threads, at a time when such a file system may be the reason why the
 * program is stuck. Must never touch the file system itself.
 */
#include "core/util/mount.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE_BYTES 4096

/* Types by how they begin; what is served by a program (fuse) is as good as remote. */
static const char *const remote_types[] = {
    "9p",  "afs",      "beegfs", "ceph",  "cifs", "fuse",     "gpfs", "lustre",
    "nfs", "orangefs", "panfs",  "pvfs2", "smb",  "virtiofs", "weka", "wekafs",
};

bool ng_mount_tells(char *line, unsigned major, unsigned minor, bool *ret_remote)
{
    char *field = line, *type;

    /* "36 35 98:0 /root /mount rw,noatime shared:1 - ext3 /dev/root rw" */
    for (int number = 1; number < 3 && field; number++) {
        field = strchr(field, ' ');
        field = field ? field + 1 : NULL;
    }
    if (!field || strtoul(field, &field, 10) != major || *field != ':' ||
        strtoul(field + 1, &field, 10) != minor || !(type = strstr(field, " - ")))
        return false;
    type += strlen(" - ");
    *ret_remote = false;
    for (unsigned i = 0; i < sizeof(remote_types) / sizeof(remote_types[0]); i++)
        *ret_remote |= strncmp(type, remote_types[i], strlen(remote_types[i])) == 0;
    return true;
}

bool ng_mount_is_remote(unsigned major, unsigned minor)
{
    char text[LINE_BYTES];
    size_t held = 0;
    bool remote = false, found = false;

    int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    while (!found) {
        ssize_t got = read(fd, text + held, sizeof(text) - 1 - held);
        if (got <= 0)
            break;
        held += (size_t)got;
        text[held] = '\0';
        char *line = text, *end;
        for (; !found && (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            found = ng_mount_tells(line, major, minor, &remote);
        }
        held = found ? 0 : strlen(line);
        if (held == sizeof(text) - 1) /* a line of many layers: it is lost */
            held = 0;
        memmove(text, line, held);
    }
    close(fd);
    return remote;
}
