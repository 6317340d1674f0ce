/*
 * Tells the `ncclguard run` above this process that it has started, and as which rank.
 *
 * Entered once, before the program's main. Must never wait for long, nor leave anything open.
 */
#include "store/board/announce.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/recorder/loaded.h"

/* The kernel queues ten messages of ranks that start together; the receiver takes them as soon as
 * it has a processor. If the message of a rank were lost, the end of a helper of that rank would
 * look like the rank's own. */
#define WAIT_US 200000

void ng_announce_start(const char *run_id, const struct ng_launch *launch)
{
    struct ng_loaded loaded = {.magic = NG_LOADED_MAGIC,
                               .bytes = sizeof(loaded),
                               .rank = launch->rank,
                               .world_size = launch->world_size,
                               .local_rank = launch->local_rank,
                               .launch_run = launch->run};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval wait = {.tv_usec = WAIT_US};
    int kept = errno;

    if (launch->rank < 0 || !run_id[0])
        return;
    snprintf(loaded.job, sizeof(loaded.job), "%s", launch->job);
    snprintf(loaded.program, sizeof(loaded.program), "%s", program_invocation_short_name);
    int length = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1,
                          NG_LOADED_SOCKET "%.63s", run_id);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0) {
        /* If nobody receives it, an early end is not told; nothing else depends on it. */
        bool bounded = setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) == 0;
        (void)!sendto(fd, &loaded, sizeof(loaded), MSG_NOSIGNAL | (bounded ? 0 : MSG_DONTWAIT),
                      (struct sockaddr *)&address,
                      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length));
        close(fd);
    }
    errno = kept;
}
