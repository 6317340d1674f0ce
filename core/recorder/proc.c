/*
 * Reads /proc: identity and liveness of processes of this host.
 *
 * Entered at start and by the guard's threads. No allocation, no stdio streams.
 */
#include "core/recorder/proc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/recorder/exit_status.h"
#include "core/util/lines.h"
#include "core/util/small_file.h"

/* The fields of /proc/PID/stat that we need; they are numbered from 1. */
enum { STATE_FIELD = 3, THREADS_FIELD = 20, START_FIELD = 22, EXIT_CODE_FIELD = 52 };

struct process_stat {
    char state;
    uint64_t start_ticks;
    int exit_code; /* as the kernel stores it; 0 also if we have no permission to read it */
};

static int read_stat(int pid, struct process_stat *ret_stat)
{
    char path[64], text[1024];
    struct process_stat stat = {0};

    if (pid)
        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    else
        snprintf(path, sizeof(path), "/proc/self/stat");
    ssize_t got = ng_small_file_read_text(path, text, sizeof(text));
    /* After a chroot there may be no /proc: that says nothing about the process. */
    if (got == -ENOENT)
        return access("/proc/self/stat", F_OK) == 0 ? -ESRCH : -ENOTSUP;
    if (got < 0)
        return (int)got;
    /* The command name is in parentheses and may contain anything, including parentheses. */
    const char *field = strrchr(text, ')');
    for (int number = STATE_FIELD; field && number <= EXIT_CODE_FIELD; number++) {
        field = strchr(field, ' ');
        if (!field && number <= START_FIELD)
            return -EIO;
        if (!field)
            break;
        field++;
        if (number == STATE_FIELD)
            stat.state = *field;
        /* The first thread may end before the others: a zombie with living threads is not one. */
        else if (number == THREADS_FIELD && stat.state == 'Z' && strtol(field, NULL, 10) > 1)
            stat.state = 'S';
        else if (number == START_FIELD)
            stat.start_ticks = strtoull(field, NULL, 10);
        else if (number == EXIT_CODE_FIELD)
            stat.exit_code = (int)strtol(field, NULL, 10);
    }
    if (!stat.state)
        return -EIO;
    *ret_stat = stat;
    return 0;
}

int ng_proc_stat(int pid, char *ret_state, uint64_t *ret_start_ticks)
{
    struct process_stat stat;

    int error = read_stat(pid, &stat);
    if (error)
        return error;
    *ret_state = stat.state;
    *ret_start_ticks = stat.start_ticks;
    return 0;
}

/* PIDFD_GET_INFO of <linux/pidfd.h>, which older systems do not have. */
struct pidfd_info {
    uint64_t mask, cgroup_id;
    uint32_t ids[11];
    int32_t exit_code;
};
#define PIDFD_GET_INFO  _IOWR(0xff, 11, struct pidfd_info)
#define PIDFD_INFO_EXIT 8u
_Static_assert(sizeof(struct pidfd_info) == 64, "the kernel's first version");

int ng_proc_end(int pid, uint64_t start_ticks, int pid_fd)
{
    struct pidfd_info info = {.mask = PIDFD_INFO_EXIT};
    struct process_stat stat;
    int code = 0;
    bool known = false;

    if (read_stat(pid, &stat) == 0 && stat.start_ticks == start_ticks &&
        (stat.state == 'Z' || stat.state == 'X')) {
        code = stat.exit_code;
        known = code != 0;
    } else if (pid_fd >= 0 && ioctl(pid_fd, PIDFD_GET_INFO, &info) == 0) {
        code = info.exit_code;
        known = info.mask & PIDFD_INFO_EXIT;
    }
    if (!known)
        return 0;
    return WIFSIGNALED(code) ? NG_EXIT_STATUS_SIGNAL + WTERMSIG(code)
                             : NG_EXIT_STATUS_SILENT + WEXITSTATUS(code);
}

bool ng_proc_first_thread_ended(void)
{
    char text[1024];

    if (ng_small_file_read_text("/proc/self/stat", text, sizeof(text)) < 0)
        return false;
    const char *field = strrchr(text, ')');
    return field && strncmp(field, ") Z", 3) == 0;
}

/* A file that is looked for in the mappings of a process. */
struct mapped {
    uint64_t inode;
    const char *name;
    bool any, found;
};

/* A line of /proc/PID/maps: "ADDRESSES RIGHTS OFFSET DEVICE INODE PATH". */
static bool take_mapping(void *context, char *line)
{
    struct mapped *file = context;
    const char *field = line;

    file->any = true;
    for (int number = 1; number < 5 && field; number++) {
        field = strchr(field, ' ');
        field = field ? field + 1 : NULL;
    }
    /* On layered file systems the inode number may differ from that of fstat, and the name may
     * change: one of the two is enough. */
    if (!field)
        return true;
    const char *there = strstr(field, file->name);
    char after = there ? there[strlen(file->name)] : '?'; /* a blank if the file was removed */
    file->found =
        (file->inode && strtoull(field, NULL, 10) == file->inode) || after == '\0' || after == ' ';
    return !file->found;
}

int ng_proc_maps(int pid, uint64_t inode, const char *name, bool *ret_maps)
{
    char path[64], text[4096 + 256]; /* a longer path is not one of ours */
    struct mapped file = {.inode = inode, .name = name};

    snprintf(path, sizeof(path), "/proc/%d/maps", pid);
    int error = ng_lines_each(path, text, sizeof(text), take_mapping, &file);
    if (error)
        return error;
    if (!file.any)
        return -ESRCH;
    *ret_maps = file.found;
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

    if (ng_small_file_read_text("/proc/sys/kernel/random/boot_id", text, sizeof(text)) < 0)
        text[0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    snprintf(ret_id, bytes, "%s", text);
}
