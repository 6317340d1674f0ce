/* A preloaded library under which the wall clock jumps, as when somebody sets it or NTP mends it:
 * CLOCK_JUMP=AFTER_MS:BY_S, so long after the process has started, by so many seconds. The
 * monotonic clocks go on as ever. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SEEN __attribute__((visibility("default")))

static long long after_ns, by_s, start_ns;

static long long real_clock(clockid_t clock, struct timespec *ret_now)
{
    if (syscall(SYS_clock_gettime, clock, ret_now) != 0)
        return -1;
    return ret_now->tv_sec * 1000000000LL + ret_now->tv_nsec;
}

__attribute__((constructor)) static void begin(void)
{
    struct timespec now;
    const char *text = getenv("CLOCK_JUMP");
    long long after_ms;
    if (!text || sscanf(text, "%lld:%lld", &after_ms, &by_s) != 2)
        abort();
    after_ns = after_ms * 1000000;
    start_ns = real_clock(CLOCK_MONOTONIC, &now);
}

static long long jumped_s(void)
{
    struct timespec now;
    return start_ns && real_clock(CLOCK_MONOTONIC, &now) - start_ns >= after_ns ? by_s : 0;
}

SEEN int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (real_clock(clock, now) < 0)
        return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        now->tv_sec += jumped_s();
    return 0;
}

SEEN int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    *now = (struct timeval){.tv_sec = time.tv_sec, .tv_usec = time.tv_nsec / 1000};
    return 0;
}

SEEN time_t time(time_t *ret_now)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (ret_now)
        *ret_now = now.tv_sec;
    return now.tv_sec;
}
