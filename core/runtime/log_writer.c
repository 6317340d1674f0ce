/*
 * The log's own thread.
 *
 * Entered by that thread, by the incident thread, and by all threads that log. Must never make
 * those wait for long, nor allocate.
 */
#include "core/runtime/log_writer.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/log.h"
#include "core/util/memory.h"

#define LINES       16u
#define PATIENCE_NS (200 * NG_MS) /* for one line */

/* Line `i` is at index `i % LINES`: filled by the thread that logs it, read once `given` exceeds
 * `i`, and free again once `written` does. */
static struct {
    size_t length;
    char text[NG_LOG_LINE_BYTES];
} lines[LINES] NG_LARGE;
static NG_FORGOTTEN _Atomic uint32_t given, written; /* numbers of lines: futex words */

static NG_FORGOTTEN atomic_int adopted; /* the thread whose lines go through the writer; 0 none */
static NG_FORGOTTEN atomic_bool late;   /* the file does not answer: no thread waits for it */
static NG_FORGOTTEN atomic_bool there, quitting;
static NG_FORGOTTEN _Atomic uint32_t lost; /* lines lost since the last one written */

static int own_id(void)
{
    return (int)syscall(SYS_gettid);
}

static void write_one(uint32_t number)
{
    ng_log_write(lines[number % LINES].text, lines[number % LINES].length);
    atomic_store(&written, number + 1);
    ng_futex_wake_all(&written);
    if (number + 1 != atomic_load(&given))
        return;
    atomic_store(&late, false);
    uint32_t missing = atomic_exchange(&lost, 0);
    if (missing)
        ng_log(NG_LOG_WARN, "%u line(s) of the log are missing: the file did not answer", missing);
}

static void *work(void *unused)
{
    ng_guard.adopt_thread();
    while (!atomic_load(&quitting)) {
        uint32_t seen = atomic_load(&given), number = atomic_load(&written);
        if (number != seen)
            write_one(number);
        else /* bounded: the request to end may arrive just before it sleeps */
            ng_futex_wait(&given, seen, NG_S);
    }
    return unused;
}

int ng_log_writer_start(void)
{
    int error = ng_log_may_hang() ? ng_guard_thread("ncclguard/log", work) : 0;

    atomic_store(&there, ng_log_may_hang() && !error);
    return error;
}

/* Wait until this line is written. */
static void await(uint32_t number)
{
    int64_t until = ng_clock_mono_ns() + PATIENCE_NS;

    for (uint32_t seen = atomic_load(&written); (int32_t)(seen - number) <= 0;
         seen = atomic_load(&written)) {
        if (!ng_futex_wait_until(&written, seen, until)) {
            atomic_store(&late, true);
            /* It may have been written just now, without a further wake-up. */
            if (atomic_load(&written) == atomic_load(&given))
                atomic_store(&late, false);
            return;
        }
    }
}

/* False: the caller must write the line itself. A line of the adopted thread has been written when
 * this returns, or will be once the file answers. Until it answers, lines of other threads, and
 * lines for which there is no room, are counted as lost. */
static bool take(const char *line, size_t length)
{
    int whose = atomic_load(&adopted);
    uint32_t number = atomic_load(&given);

    if (!whose)
        return false;
    bool own = whose == own_id();
    if (!own && !atomic_load(&late))
        return false;
    if (!own || number - atomic_load(&written) == LINES) {
        atomic_fetch_add(&lost, 1);
        return true;
    }
    memcpy(lines[number % LINES].text, line, length);
    lines[number % LINES].length = length;
    atomic_store(&given, number + 1);
    ng_futex_wake_all(&given);
    if (!atomic_load(&late))
        await(number);
    return true;
}

void ng_log_writer_adopt(void)
{
    if (!atomic_load(&there))
        return;
    atomic_store(&adopted, own_id());
    ng_log_hand_to(take);
}

void ng_log_writer_quit(void)
{
    ng_log_hand_to(NULL);
    atomic_store(&adopted, 0);
    atomic_store(&quitting, true);
    atomic_store(&late, false);
    ng_futex_wake_all(&given);
}
