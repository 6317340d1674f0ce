/*
 * Keeps the scale of the fast clock.
 *
 * Entered by the one thread that keeps it. Must never wait.
 */
#include "core/util/fast_clock.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#ifdef __x86_64__
#include <cpuid.h>
#endif

#include "core/util/clock_follower.h"

struct ng_fast_clock_scale *_Atomic ng_fast_clock_scale;
static struct ng_clock_follower follower;
static bool asked; /* whether this machine has the counter */

#ifdef __x86_64__
#define WINDOW_NS (10 * NG_US) /* both clocks, read within this time, show one instant */

/* A reader that has just read the pointer reads its scale two instructions later. It would have to
 * stop there while all others are used, which takes at least 6 s of the keeping thread's time. */
#define SCALES 64

static struct ng_fast_clock_scale scales[SCALES];
static unsigned newest;

/* Does the kernel itself trust the counter: constant, the same on all processors, never stopped? */
static bool is_clock_source(void)
{
    char name[16] = "";
    unsigned a, b, c, d;

    if (!__get_cpuid(0x80000007, &a, &b, &c, &d) || !(d & 1u << 8))
        return false;
    int fd = open("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                  O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t bytes = read(fd, name, sizeof(name) - 1);
    close(fd);
    return bytes > 0 && strcmp(name, "tsc\n") == 0;
}

/* Both clocks at one instant. False: the thread was interrupted in between, each time. */
static bool look(struct ng_clock_instant *ret_now)
{
    int64_t from = ng_clock_mono_ns(), best = WINDOW_NS + 1;

    for (int tries = 0; tries < 4; tries++) {
        uint64_t ticks = __builtin_ia32_rdtsc();
        int64_t until = ng_clock_mono_ns();
        if (until - from < best) {
            best = until - from;
            *ret_now = (struct ng_clock_instant){.ticks = ticks, .mono_ns = from + best / 2};
        }
        from = until;
    }
    return best <= WINDOW_NS;
}

void ng_fast_clock_keep(int64_t now_mono_ns)
{
    struct ng_clock_instant now;

    if (!asked)
        follower.is_off = !is_clock_source();
    asked = true;
    if (follower.is_off || now_mono_ns - follower.before.mono_ns < NG_CLOCK_KEEP_NS ||
        !look(&now) || !ng_clock_follow(&follower, &now))
        return;
    struct ng_fast_clock_scale *scale = NULL;
    if (!follower.is_off) {
        scale = &scales[newest = (newest + 1) % SCALES];
        atomic_store_explicit(&scale->factor, follower.factor, memory_order_relaxed);
        atomic_store_explicit(&scale->base, follower.base, memory_order_relaxed);
    }
    atomic_store_explicit(&ng_fast_clock_scale, scale, memory_order_release);
}
#else
void ng_fast_clock_keep(int64_t now_mono_ns)
{
}
#endif

void ng_fast_clock_after_fork(void)
{
    atomic_store(&ng_fast_clock_scale, NULL);
    follower = (struct ng_clock_follower){0};
    asked = false;
}
