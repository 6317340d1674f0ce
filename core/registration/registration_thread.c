/*
 * The deregistration thread: when it runs, and how long its current step has taken.
 *
 * Not in the path of a call. Entered by its own thread, and by threads of the program that free
 * memory. Must never block the latter.
 */
#include "core/registration/registration_thread.h"

#include <stdatomic.h>
#include <stddef.h>

#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/memory.h"

#define AGAIN_NS (50 * NG_MS) /* until a failed deregistration is retried */
#define LOOK_NS  NG_S         /* between checks whether the process ends */

static _Atomic uint32_t asked; /* futex word; grows with each request */
static NG_FORGOTTEN atomic_bool serves, quitting;
static NG_FORGOTTEN _Atomic int64_t busy_mono_ns;
static bool (*serve)(void);

static void *attend(void *unused)
{
    uint32_t generation = atomic_load(&ng_guard.generation);

    ng_guard.adopt_thread();
    while (atomic_load(&ng_guard.generation) == generation && !atomic_load(&ng_guard.ending) &&
           !atomic_load(&quitting)) {
        uint32_t before = atomic_load(&asked);
        int64_t pause_ns = serve() ? AGAIN_NS : LOOK_NS;
        ng_futex_wait(&asked, before, pause_ns);
    }
    atomic_store(&serves, false);
    return unused;
}

int ng_registration_thread_start(bool (*serve_all)(void))
{
    serve = serve_all;
    atomic_store(&serves, true);
    int error = ng_guard_thread("ncclguard/regs", attend);
    if (error)
        atomic_store(&serves, false);
    return error;
}

bool ng_registration_thread_ask(void)
{
    if (!atomic_load(&serves) || atomic_load(&ng_guard.ending))
        return false;
    atomic_fetch_add(&asked, 1);
    ng_futex_wake(&asked, 1);
    return true;
}

int64_t ng_registration_thread_busy_mono_ns(void)
{
    return atomic_load(&busy_mono_ns);
}

void ng_registration_thread_begin(void)
{
    atomic_store(&busy_mono_ns, ng_clock_mono_ns());
}

void ng_registration_thread_end(void)
{
    atomic_store(&busy_mono_ns, 0);
}

void ng_registration_thread_quit(void)
{
    atomic_store(&quitting, true);
    atomic_fetch_add(&asked, 1);
    ng_futex_wake(&asked, 1);
}
