/*
 * Sleeping.
 */
#include "core/util/clock.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

void ng_clock_sleep(int64_t ns)
{
    struct timespec left = {.tv_sec = ns / NG_S, .tv_nsec = ns % NG_S};

    while (syscall(SYS_nanosleep, &left, &left) != 0 && errno == EINTR)
        ;
}
