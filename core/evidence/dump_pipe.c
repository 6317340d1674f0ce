/*
 * The FIFO that triggers a dump.
 *
 * Created by a task, since its folder may be on a dead file server; read by the incident thread in
 * each of its rounds, so that no thread is woken for it. Must never block, and never touch anything
 * but a FIFO of this user.
 */
#include "core/evidence/dump_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/descriptor.h"
#include "core/util/log.h"
#include "core/util/memory.h"

#define READS_MAX 16 /* of 4 KiB: what a FIFO holds */

static char path[PATH_MAX] NG_LARGE;
static struct ng_descriptor pipe_end; /* written by the task before `made` */
static atomic_bool made;

static const char *reason(int error)
{
    return error == -EEXIST ? "something else lies there that is no FIFO of yours"
                            : strerror(-error);
}

static bool is_ours(const struct stat *status)
{
    return S_ISFIFO(status->st_mode) && status->st_uid == geteuid();
}

/* Opened for writing, too: so there is always a writer, and the FIFO never appears closed. */
static int open_pipe(int *ret_fd)
{
    struct stat status;

    if (mkfifo(path, 0600) != 0 && errno != EEXIST)
        return -errno;
    /* Merely opening a device can do harm. */
    if (lstat(path, &status) != 0)
        return -errno;
    if (!is_ours(&status))
        return -EEXIST;
    int fd = open(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &status) != 0 || !is_ours(&status)) {
        close(fd);
        return -EEXIST;
    }
    fchmod(fd, 0600); /* regardless of the umask, and of the mode from an earlier run */
    *ret_fd = fd;
    return 0;
}

static void make(void *unused)
{
    int fd = -1, error = open_pipe(&fd);

    if (error) {
        ng_log(NG_LOG_WARN,
               "NCCLGUARD_DUMP_PIPE: cannot make %s: %s; no dump can be requested there", path,
               reason(error));
        return;
    }
    pipe_end = ng_descriptor_keep(fd);
    atomic_store(&made, true);
    ng_log(NG_LOG_INFO, "write to %s for a dump", path);
}

void ng_dump_pipe_start(void)
{
    const char *prefix = ng_guard.dump_pipe;
    int rank = ng_guard.launch.rank, length;

    if (!prefix[0])
        return;
    if (rank >= 0)
        length = snprintf(path, sizeof(path), "%s%d.pipe", prefix, rank);
    else
        length = snprintf(path, sizeof(path), "%sunknown_%d.pipe", prefix, (int)getpid());
    if (length >= (int)sizeof(path))
        ng_log(NG_LOG_WARN, "NCCLGUARD_DUMP_PIPE: the name is too long");
    else
        ng_io_workers_add(path, make, NULL);
}

bool ng_dump_pipe_asked(void)
{
    char text[4096];
    bool asked = false;

    if (!atomic_load(&made) || !ng_descriptor_ours(&pipe_end))
        return false;
    /* Bounded: a writer may be faster than we read. */
    for (unsigned i = 0; i < READS_MAX && read(pipe_end.fd, text, sizeof(text)) > 0; i++)
        asked = true;
    return asked;
}

void ng_dump_pipe_finish(void)
{
    struct stat status;

    /* Keeps another file of this name: it may be that of a later run. */
    if (atomic_exchange(&made, false) && lstat(path, &status) == 0 &&
        status.st_dev == pipe_end.device && status.st_ino == pipe_end.inode)
        unlink(path);
}

void ng_dump_pipe_after_fork(void)
{
    if (atomic_exchange(&made, false))
        ng_descriptor_close(&pipe_end);
}
