/*
 * The queue of completions, and the thread that empties it.
 *
 * The watchdog is the only producer (a thread that looks in its place holds its lock), the
 * dedicated thread the only consumer. Must never let the callback block another thread, nor call it
 * with a lock held, nor after ng_completion_end has promised that it will not be called.
 */
#include "core/comm/completion.h"

#include <errno.h>
#include <pthread.h>

#include "core/comm/comm.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/memory.h"

#define QUEUE   4096u /* a power of two */
#define DROP_MS 20

/*
 * Protects the registration against other program threads that begin or end one. Taken with trylock
 * only. Held while the thread is started, nests inside nothing; guard threads never take it.
 */
static NG_FORGOTTEN pthread_mutex_t registration_lock = PTHREAD_MUTEX_INITIALIZER;
static ng_completion_fn *tell; /* written before `ng_completion_wanted` is set */
static void (*tell_callback)(void);
static void *tell_context;
static NG_FORGOTTEN bool ending; /* the last call of an earlier callback had not returned */

NG_FORGOTTEN atomic_bool ng_completion_wanted;
static struct ng_completion *queue; /* allocated once, kept for ever */
static NG_FORGOTTEN _Atomic uint64_t added, taken;
static _Atomic uint64_t dropped;
static _Atomic uint32_t bell;          /* futex word */
static bool rung_for;                  /* watchdog alone: something was added in this round */
static NG_FORGOTTEN atomic_bool there; /* the thread runs */
static NG_FORGOTTEN atomic_bool busy;  /* it is inside the callback, or about to be */
static NG_FORGOTTEN atomic_bool muted; /* queued operations are dropped, not reported */
static NG_FORGOTTEN atomic_bool quitting;

static void ring(void)
{
    atomic_fetch_add(&bell, 1);
    ng_futex_wake(&bell, 1);
}

void ng_completion_add_dropped(uint64_t count)
{
    atomic_fetch_add_explicit(&dropped, count, memory_order_relaxed);
}

void ng_completion_add(const struct ng_comm *comm, const struct ng_box_record *record,
                       enum ng_record_state state)
{
    uint64_t at = atomic_load_explicit(&added, memory_order_relaxed);
    enum ng_op op = (enum ng_op)NG_LOAD(record->op);
    bool p2p = NG_LOAD(record->flags) & NG_RECORD_P2P;

    if (at - atomic_load_explicit(&taken, memory_order_acquire) == QUEUE) {
        ng_completion_add_dropped(1);
        return;
    }
    struct ng_completion *completion = &queue[at % QUEUE];
    *completion = (struct ng_completion){
        .group_id = NG_LOAD(record->group_id),
        .op = op,
        .peer = NG_LOAD(record->root),
        .seq = p2p ? NG_LOAD(record->p2p_seq) : NG_LOAD(record->coll_seq),
        .bytes = NG_LOAD(record->count) * ng_dtype_bytes(NG_LOAD(record->dtype)),
        .called_ns = NG_LOAD(record->entered_mono_ns),
        .started_ns = NG_LOAD(record->started_mono_ns),
        .completed_ns = NG_LOAD(record->completed_mono_ns),
        .duration_ns = NG_LOAD(record->duration_ns),
        .result = state == NG_RECORD_FAILED ? NG_LOAD(record->result) : 0,
    };
    ng_box_read_name(comm->group, completion->group_name);
    atomic_store_explicit(&added, at + 1, memory_order_release);
    rung_for = true;
}

void ng_completion_flush(void)
{
    if (!rung_for)
        return;
    rung_for = false;
    ring();
}

/* Empty the queue: report each operation or, once muted, drop it. */
static void empty_queue(void)
{
    uint64_t at = atomic_load_explicit(&taken, memory_order_relaxed);

    while (at != atomic_load_explicit(&added, memory_order_acquire)) {
        /* Set before `muted` is checked: a thread that mutes checks `busy` afterwards. */
        atomic_store(&busy, true);
        if (atomic_load(&muted))
            ng_completion_add_dropped(1);
        else
            tell(tell_callback, tell_context, &queue[at % QUEUE]);
        atomic_store(&busy, false);
        atomic_store_explicit(&taken, ++at, memory_order_release);
    }
}

static void *serve(void *unused)
{
    uint32_t generation = atomic_load(&ng_guard.generation);

    ng_guard.adopt_thread();
    while (!atomic_load(&quitting) && atomic_load(&ng_guard.generation) == generation) {
        uint32_t seen = atomic_load(&bell);
        empty_queue();
        if (!atomic_load(&quitting))
            ng_futex_wait(&bell, seen, INT64_MAX);
    }
    return unused;
}

void ng_completion_start(void)
{
    if (!atomic_load(&ng_completion_wanted) || atomic_exchange(&there, true))
        return;
    if (ng_guard_thread("ncclguard/tell", serve) != 0)
        atomic_store(&there, false);
}

static bool make_queue(void)
{
    if (!queue)
        queue = ng_memory_reserve(QUEUE * sizeof(*queue));
    return queue;
}

/* Under the lock. */
static int begin(ng_completion_fn *wanted, void (*callback)(void), void *context)
{
    if (ending && !atomic_load(&busy))
        ending = false;
    if (atomic_load(&ng_completion_wanted) || ending)
        return -EBUSY;
    if (!make_queue())
        return -ENOMEM;
    tell = wanted;
    tell_callback = callback;
    tell_context = context;
    atomic_store(&dropped, 0);
    atomic_store(&muted, false);
    atomic_store(&ng_completion_wanted, true);
    /* Otherwise the thread starts with the first communicator. */
    if (atomic_load(&ng_guard.running))
        ng_completion_start();
    if (!atomic_load(&ng_guard.running) || atomic_load(&there))
        return 0;
    atomic_store(&ng_completion_wanted, false);
    return -EAGAIN;
}

int ng_completion_begin(ng_completion_fn *wanted, void (*callback)(void), void *context)
{
    if (pthread_mutex_trylock(&registration_lock) != 0)
        return -EBUSY;
    int error = begin(wanted, callback, context);
    pthread_mutex_unlock(&registration_lock);
    return error;
}

uint64_t ng_completion_dropped(void)
{
    return atomic_load_explicit(&dropped, memory_order_relaxed);
}

static bool is_empty(void)
{
    return atomic_load(&taken) == atomic_load(&added);
}

/* Under the lock. */
static int end(int64_t deadline_mono_ns, uint64_t *ret_dropped)
{
    if (!atomic_load(&ng_completion_wanted) && !ending)
        return -ENOENT;
    ng_wake_await_rounds(deadline_mono_ns);
    atomic_store(&ng_completion_wanted, false);
    while (atomic_load(&there) && !is_empty() && ng_clock_mono_ns() < deadline_mono_ns)
        ng_clock_sleep(NG_MS);
    atomic_store(&muted, true);
    /* Dropping the rest is quick, but a callback may never return. */
    for (int i = 0; i < DROP_MS && (atomic_load(&busy) || !is_empty()) && atomic_load(&there); i++)
        ng_clock_sleep(NG_MS);
    ending = atomic_load(&busy);
    *ret_dropped = atomic_load(&dropped);
    return ending ? -ETIMEDOUT : 0;
}

int ng_completion_end(int64_t deadline_mono_ns, uint64_t *ret_dropped)
{
    if (pthread_mutex_trylock(&registration_lock) != 0)
        return -EBUSY;
    int error = end(deadline_mono_ns, ret_dropped);
    pthread_mutex_unlock(&registration_lock);
    return error;
}

void ng_completion_quit(void)
{
    atomic_store(&muted, true);
    atomic_store(&quitting, true);
    ring();
}
