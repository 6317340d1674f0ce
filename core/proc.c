/*
 * Reading /proc: identity and liveness of processes of this host.
 *
 * Entered at start and by the guard's threads. No allocation, no stdio streams.
 */
#include "core/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREADS_FIELD 20 /* of /proc/PID/stat */

static ssize_t read_file(const char *path, char *ret_text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t got = read(fd, ret_text, bytes - 1);
    int error = errno;
    close(fd);
    if (got < 0)
        return -error;
    ret_text[got] = '\0';
    return got;
}

int ng_proc_stat(int pid, char *ret_state, uint64_t *ret_start_ticks)
{
    char path[64], text[1024];

    if (pid)
        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    else
        snprintf(path, sizeof(path), "/proc/self/stat");
    ssize_t got = read_file(path, text, sizeof(text));
    /* After a chroot there may be no /proc: that says nothing of anybody. */
    if (got == -ENOENT)
        return access("/proc/self/stat", F_OK) == 0 ? -ESRCH : -ENOTSUP;
    if (got < 0)
        return (int)got;
    /* The command name stands in parentheses and may hold anything, parentheses included. */
    char *field = strrchr(text, ')');
    if (!field || field[1] != ' ')
        return -EIO;
    field += 2;
    char state = *field;
    for (int number = 3; number < 22; number++) {
        field = strchr(field, ' ');
        if (!field)
            return -EIO;
        field++;
        /* The first thread may end before the others: a zombie with living threads is none. */
        if (number + 1 == THREADS_FIELD && state == 'Z' && strtol(field, NULL, 10) > 1)
            state = 'S';
    }
    *ret_state = state;
    *ret_start_ticks = strtoull(field, NULL, 10);
    return 0;
}

bool ng_proc_first_thread_ended(void)
{
    char text[1024];

    if (read_file("/proc/self/stat", text, sizeof(text)) < 0)
        return false;
    const char *field = strrchr(text, ')');
    return field && strncmp(field, ") Z", 3) == 0;
}

/* Does one line of /proc/PID/maps speak of the file? "ADDRESSES RIGHTS OFFSET DEVICE INODE PATH".
 */
static bool line_maps(const char *line, uint64_t inode, const char *name)
{
    const char *field = line;

    for (int number = 1; number < 5 && field; number++) {
        field = strchr(field, ' ');
        field = field ? field + 1 : NULL;
    }
    /* The number may be another one than fstat's on layered file systems, and the name may change:
     * one of the two is enough. */
    if (!field)
        return false;
    const char *there = strstr(field, name);
    char after = there ? there[strlen(name)] : '?'; /* a blank where it was removed */
    return (inode && strtoull(field, NULL, 10) == inode) || after == '\0' || after == ' ';
}

int ng_proc_maps(int pid, uint64_t inode, const char *name, bool *ret_maps)
{
    char path[64], text[4096 + 256];
    size_t held = 0;
    bool found = false, any = false;

    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    for (;;) {
        ssize_t got = read(fd, text + held, sizeof(text) - 1 - held);
        if (got < 0) {
            int error = errno;
            close(fd);
            return -error;
        }
        held += (size_t)got;
        text[held] = '\0';
        char *line = text, *end;
        for (; (end = strchr(line, '\n')); line = end + 1) {
            *end = '\0';
            any = true;
            found |= line_maps(line, inode, name);
        }
        if (got == 0 || found)
            break;
        held = strlen(line);
        /* A path longer than the buffer is nobody's of ours. */
        if (held == sizeof(text) - 1)
            held = 0;
        memmove(text, line, held);
    }
    close(fd);
    if (!any)
        return -ESRCH;
    *ret_maps = found;
    return 0;
}

uint64_t ng_proc_pid_namespace(void)
{
    struct stat status;
    return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

void ng_proc_boot_id(char *ret_id, size_t bytes)
{
    char text[64] = "";

    if (read_file("/proc/sys/kernel/random/boot_id", text, sizeof(text)) < 0)
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    snprintf(ret_id, bytes, "%s", text);
}
