/*
 * The descendants of this process, from /proc.
 *
 * Used by `ncclguard run`, which is a subreaper: its descendants stay its descendants when their
 * parents end.
 */
#include "tools/jobs/descendants.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/recorder/proc.h"
#include "core/util/macros.h"
#include "core/util/small_file.h"
#include "tools/base/grow.h"
#include "tools/base/owned.h"

/* Parents change while /proc is read: a longer chain is a cycle of reused pids. */
#define DEPTH_LIMIT 1000

struct process {
    pid_t pid, parent;
};

static int compare_pids(const void *a, const void *b)
{
    pid_t left = ((const struct process *)a)->pid, right = ((const struct process *)b)->pid;
    return NG_ORDER(left, right);
}

/* 0, or -errno if the process is gone. */
static int read_parent(pid_t pid, pid_t *ret_parent)
{
    char path[64], text[512];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    ssize_t bytes = ng_small_file_read_text(path, text, sizeof(text));
    if (bytes <= 0)
        return bytes < 0 ? (int)bytes : -ESRCH;
    /* The program's name is in parentheses and may contain anything, parentheses too. */
    const char *name_end = strrchr(text, ')');
    int parent;
    if (!name_end || sscanf(name_end + 1, " %*c %d", &parent) != 1)
        return -ESRCH;
    *ret_parent = parent;
    return 0;
}

/* Every process of this pid namespace, ascending; the caller frees. NULL with 0 if /proc cannot be
 * read. */
static struct process *list_processes(size_t *ret_count)
{
    struct process *list = NULL;
    size_t count = 0, room = 0;
    NG_CLOSED_DIR DIR *folder = opendir("/proc");

    *ret_count = 0;
    if (!folder)
        return NULL;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!isdigit((unsigned char)entry->d_name[0]))
            continue;
        struct process process = {.pid = atoi(entry->d_name)};
        if (read_parent(process.pid, &process.parent) != 0)
            continue;
        if (!NG_GROW(list, count, room))
            break;
        list[count++] = process;
    }
    if (count)
        qsort(list, count, sizeof(*list), compare_pids);
    *ret_count = count;
    return list;
}

static bool descends(const struct process *list, size_t count, const struct process *process,
                     pid_t ancestor)
{
    for (int depth = 0; process && depth < DEPTH_LIMIT; depth++) {
        if (process->parent == ancestor)
            return true;
        struct process key = {.pid = process->parent};
        process = bsearch(&key, list, count, sizeof(*list), compare_pids);
    }
    return false;
}

size_t ng_descendants_signal(int signal_number)
{
    size_t count, signalled = 0;
    NG_FREED struct process *list = list_processes(&count);
    pid_t self = getpid();

    for (size_t i = 0; i < count; i++) {
        if (!descends(list, count, &list[i], self))
            continue;
        kill(list[i].pid, signal_number);
        /* A stopped process acts on nothing but SIGKILL until it is continued. */
        kill(list[i].pid, SIGCONT);
        signalled++;
    }
    return signalled;
}

struct ng_descendant *ng_descendants_list(size_t *ret_count)
{
    size_t count, kept = 0;
    NG_FREED struct process *list = list_processes(&count);
    struct ng_descendant *descendants = count ? calloc(count, sizeof(*descendants)) : NULL;
    pid_t self = getpid();

    for (size_t i = 0; descendants && i < count; i++) {
        struct ng_descendant one = {.pid = list[i].pid, .parent = list[i].parent};
        if (descends(list, count, &list[i], self) &&
            ng_proc_stat(one.pid, &one.state, &one.start_ticks) == 0 && one.state != 'Z' &&
            one.state != 'X')
            descendants[kept++] = one;
    }
    *ret_count = kept;
    return descendants;
}

const struct ng_descendant *ng_descendants_find(const struct ng_descendant *list, size_t count,
                                                pid_t pid)
{
    return NG_FIND(one, list, count, one->pid == pid);
}

int ng_descendants_signal_one(const struct ng_descendant *descendant, int signal_number)
{
    uint64_t start_ticks;
    char state;

    NG_CLOSED int fd = (int)syscall(SYS_pidfd_open, descendant->pid, 0);
    if (fd < 0)
        return -errno;
    /* The descriptor stays with the process that has the number now. */
    int error = ng_proc_stat(descendant->pid, &state, &start_ticks);
    if (!error && start_ticks != descendant->start_ticks)
        error = -ESRCH;
    if (!error && syscall(SYS_pidfd_send_signal, fd, signal_number, NULL, 0) != 0)
        error = -errno;
    return error;
}

bool ng_descendants_is_below(pid_t pid, pid_t ancestor)
{
    pid_t parent;

    for (int depth = 0; depth < DEPTH_LIMIT && read_parent(pid, &parent) == 0; depth++) {
        if (parent == ancestor)
            return true;
        pid = parent;
    }
    return false;
}

bool ng_descendants_has(pid_t pid)
{
    return ng_descendants_is_below(pid, getpid());
}
