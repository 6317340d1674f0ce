/*
 * Time, in nanoseconds. Monotonic for ages and deadlines, Unix for what people read, and the CPU
 * time of a thread, which bounds work that waits for nothing.
 */
#ifndef NCCLGUARD_CORE_UTIL_CLOCK_H
#define NCCLGUARD_CORE_UTIL_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NG_US INT64_C(1000)
#define NG_MS INT64_C(1000000)
#define NG_S  INT64_C(1000000000)

/* CLOCK_MONOTONIC: the same for all processes of a host; does not advance while the machine is
 * suspended. */
static inline int64_t ng_clock_mono_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NG_S + now.tv_nsec;
}

/* CPU time of the calling thread: does not advance while others have the processor. A system call.
 */
static inline int64_t ng_clock_thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * NG_S + now.tv_nsec;
}

static inline int64_t ng_clock_unix_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * NG_S + now.tv_nsec;
}

/* Sleep, whatever signals come. Unlike nanosleep not a cancellation point: a thread of the program
 * that is cancelled here would leave a call of NCCL half done. May change errno. */
void ng_clock_sleep(int64_t ns);

#endif
