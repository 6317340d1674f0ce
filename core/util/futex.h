/*
 * Sleeping until a word of this process changes, and waking those who sleep.
 *
 * Any thread; neither a lock nor a cancellation point. May change errno.
 */
#ifndef NCCLGUARD_CORE_UTIL_FUTEX_H
#define NCCLGUARD_CORE_UTIL_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/util/clock.h"

/* Sleep while the word is `value`, for `ns` at most: not at all if negative, for ever if INT64_MAX.
 * May return early: callers check what they wait for. */
static inline void ng_futex_wait(const _Atomic uint32_t *word, uint32_t value, int64_t ns)
{
    struct timespec pause = {.tv_sec = ns / NG_S, .tv_nsec = ns % NG_S};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, ns < INT64_MAX ? &pause : NULL, NULL, 0);
}

/* The same until a moment; 0: for ever. False: it has passed. */
static inline bool ng_futex_wait_until(const _Atomic uint32_t *word, uint32_t value,
                                       int64_t until_mono_ns)
{
    int64_t left_ns = until_mono_ns ? until_mono_ns - ng_clock_mono_ns() : INT64_MAX;

    if (left_ns <= 0)
        return false;
    ng_futex_wait(word, value, left_ns);
    return true;
}

static inline void ng_futex_wake(const _Atomic uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static inline void ng_futex_wake_all(const _Atomic uint32_t *word)
{
    ng_futex_wake(word, INT_MAX);
}

#endif
