/* Functions of known names that wait. Built without inlining and without tail calls, so that each
 * is a frame. */
#include "tests/unit/core/helpers/stuck.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static int handler_fd, handler_result;

__attribute__((noinline)) static int stuck_in_read(int fd)
{
    char byte;

    errno = 0;
    return read(fd, &byte, 1) == 1 && errno == 0 ? 0 : errno ? errno : -1;
}

__attribute__((noinline)) static int local_step(int fd)
{
    return stuck_in_read(fd) + 0;
}

int stuck_simply(int fd)
{
    return local_step(fd);
}

int stuck_deeply(int fd, int depth)
{
    volatile char *room = __builtin_alloca((size_t)(16 * depth + 16));

    room[0] = 1;
    return depth ? stuck_deeply(fd, depth - 1) + room[0] - 1 : stuck_in_read(fd) + room[0] - 1;
}

static void stuck_handler(int number)
{
    handler_result = stuck_in_read(handler_fd);
}

__attribute__((noinline)) static int stuck_interrupted(void)
{
    return raise(SIGUSR2);
}

int stuck_in_handler(int fd)
{
    struct sigaction action = {.sa_handler = stuck_handler}, before;

    handler_fd = fd;
    sigaction(SIGUSR2, &action, &before);
    int error = stuck_interrupted();
    sigaction(SIGUSR2, &before, NULL);
    return error ? error : handler_result;
}

int stuck_unreachably(int fd)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = stuck_in_read(fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int stuck_in_poll(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    errno = 0;
    return poll(&wait, 1, -1) == 1 && errno == 0 ? 0 : errno ? errno : -1;
}
