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
    if (got < 0)
        return got == -ENOENT ? -ESRCH : (int)got;
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
    }
    *ret_state = state;
    *ret_start_ticks = strtoull(field, NULL, 10);
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
