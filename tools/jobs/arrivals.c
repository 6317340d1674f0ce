/*
 * Receives what guarded processes tell when they start.
 *
 * Used by `ncclguard run`. Must never trust a message: the kernel says whose it is.
 */
#include "tools/jobs/arrivals.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/recorder/proc.h"
#include "tools/jobs/descendants.h"

int ng_arrivals_open(const char *run_id)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int on = 1, fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                          NG_LOADED_SOCKET "%.63s", run_id);
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0 &&
        bind(fd, (struct sockaddr *)&address,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length)) == 0)
        return fd;
    int error = -errno;
    close(fd);
    return error;
}

/* Of a process that is gone nothing shows below which it was. */
static bool may_be_ours(int pid)
{
    uint64_t start_ticks;
    char state;

    return ng_descendants_has(pid) || ng_proc_stat(pid, &state, &start_ticks) == -ESRCH;
}

/* Of this user, and below this process? Then its pid, else 0. */
static int sender_of(struct msghdr *message)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part; part = CMSG_NXTHDR(message, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_CREDENTIALS) {
            struct ucred sender;
            memcpy(&sender, CMSG_DATA(part), sizeof(sender));
            return sender.pid > 0 && sender.uid == getuid() && may_be_ours(sender.pid) ? sender.pid
                                                                                       : 0;
        }
    return 0;
}

bool ng_arrivals_next(int fd, struct ng_loaded *ret_loaded, int *ret_pid)
{
    char control[CMSG_SPACE(sizeof(struct ucred))] __attribute__((aligned(8)));
    struct ng_loaded loaded;
    ssize_t bytes;

    do {
        struct iovec part = {.iov_base = &loaded, .iov_len = sizeof(loaded)};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control,
                                 .msg_controllen = sizeof(control)};
        bytes = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        *ret_pid = bytes == (ssize_t)sizeof(loaded) && loaded.magic == NG_LOADED_MAGIC &&
                           loaded.bytes == sizeof(loaded) && loaded.rank >= 0
                       ? sender_of(&message)
                       : 0;
    } while (bytes >= 0 && !*ret_pid);
    if (bytes < 0)
        return false;
    loaded.job[sizeof(loaded.job) - 1] = loaded.program[sizeof(loaded.program) - 1] = '\0';
    *ret_loaded = loaded;
    return true;
}
