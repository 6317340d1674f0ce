/*
 * A short list of tasks, and the threads that do them.
 *
 * Entered by the guard's threads. Must never call malloc, nor wait except on its own futexes and
 * its lock.
 */
#include "core/runtime/io_workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/nccl/group_id.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/macros.h"

#define BEAT_NS (250 * NG_MS) /* between two heartbeats of a waiting thread */

enum state { FREE, WAITING, RUNNING };

struct task {
    enum state state;
    uint64_t number; /* increasing: the order of arrival */
    uint64_t place;  /* hash of its name */
    ng_io_work_fn *run;
    void *context;
};

/* Protects the list. Nests inside nothing; held only to scan or change it, never while a task
 * runs. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct task tasks[NG_IO_WORKERS_MAX];
static uint64_t last_number;

static _Atomic uint32_t changes; /* of the list: idle threads wait on it */
static atomic_bool finished;

static void tell_change(void)
{
    atomic_fetch_add(&changes, 1);
    ng_futex_wake_all(&changes);
}

/* ---- The list, under the lock ---- */

/* The oldest task whose place is free; NULL none. */
static struct task *pick(void)
{
    struct task *best = NULL;

    NG_EACH (task, tasks, NG_IO_WORKERS_MAX)
        if (task->state == WAITING && (!best || task->number < best->number) &&
            !NG_ANY(other, tasks, NG_IO_WORKERS_MAX,
                    other->state == RUNNING && other->place == task->place))
            best = task;
    return best;
}

/* ---- The threads ---- */

static struct task *begin_one(void)
{
    NG_HOLD(&lock);
    struct task *task = pick();
    if (task)
        task->state = RUNNING;
    return task;
}

static void end_one(struct task *task)
{
    pthread_mutex_lock(&lock);
    task->state = FREE;
    pthread_mutex_unlock(&lock);
    /* The place is free now: another thread may have skipped a task that waits for it. */
    tell_change();
}

static void *work(void *unused)
{
    ng_guard.adopt_thread();
    while (!atomic_load(&finished)) {
        uint32_t seen = atomic_load(&changes);
        struct task *task = begin_one();
        if (!task) {
            ng_futex_wait_until(&changes, seen, 0);
            continue;
        }
        task->run(task->context);
        end_one(task);
    }
    return unused;
}

int ng_io_workers_start(void)
{
    int error = 0;

    for (unsigned i = 0; i < NG_IO_WORKERS_THREADS && !error; i++)
        error = ng_guard_thread("ncclguard/files", work);
    return error;
}

void ng_io_workers_finish(void)
{
    atomic_store(&finished, true);
    tell_change();
}

void ng_io_workers_after_fork(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    memset(tasks, 0, sizeof(tasks));
    atomic_store(&finished, false);
}

/* ---- Callers ---- */

int ng_io_workers_add(const char *place, ng_io_work_fn *run, void *context)
{
    pthread_mutex_lock(&lock);
    struct task *task = NG_FIND(one, tasks, NG_IO_WORKERS_MAX, one->state == FREE);
    if (task)
        *task = (struct task){.state = WAITING,
                              .number = ++last_number,
                              .place = ng_hash(0, place, strlen(place)),
                              .run = run,
                              .context = context};
    pthread_mutex_unlock(&lock);
    if (!task)
        return -EAGAIN;
    tell_change();
    return 0;
}

void ng_io_workers_end(_Atomic uint32_t *under_way, uint32_t bit)
{
    atomic_fetch_and(under_way, ~bit);
    ng_futex_wake_all(under_way);
}

bool ng_io_workers_await(_Atomic uint32_t *under_way, uint32_t bits, int64_t until_mono_ns)
{
    uint32_t now_under_way;

    while ((now_under_way = atomic_load(under_way)) & bits) {
        int64_t now = ng_clock_mono_ns();
        if (now >= until_mono_ns)
            return false;
        ng_futex_wait_until(under_way, now_under_way,
                            until_mono_ns - now < BEAT_NS ? until_mono_ns : now + BEAT_NS);
        if (ng_guard.box.header)
            ng_guard_beat();
    }
    return true;
}
