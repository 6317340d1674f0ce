/*
 * Frees of registered memory: they request a deregistration, wait for a moment, and proceed; a
 * thread of the guard ("ncclguard/regs"), or the communicator's next call, carries it out.
 *
 * Entered by the program's threads, in calls on a communicator and in frees, and by that thread.
 * Must never make a free wait for longer than a moment, nor contact a peer that may not answer.
 */
#include "core/registration/registration_frees.h"

#include <errno.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/comm/gate.h"
#include "core/comm/shared_resources.h"
#include "core/nccl/call.h"
#include "core/registration/registration_table.h"
#include "core/registration/registrations.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/memory.h"

#define ANSWER_WAIT_NS (500 * NG_MS) /* total wait of a free for its deregistrations */
#define AGAIN_NS       (50 * NG_MS)  /* until the thread retries a failed deregistration */
#define LOOK_NS        NG_S          /* between its checks whether the process ends */

static _Atomic uint32_t asked_thread; /* futex word; grows with each request to the thread */
static NG_FORGOTTEN atomic_bool serves, quitting;
static NG_FORGOTTEN _Atomic int64_t busy_mono_ns; /* since when it deregisters; 0 it does not */

static void lock_deferred(struct ng_registration_table *table)
{
    while (atomic_flag_test_and_set_explicit(&table->deferred_lock, memory_order_acquire))
        ng_clock_sleep(NG_REGISTRATION_PAUSE_NS);
}

static void unlock_deferred(struct ng_registration_table *table)
{
    atomic_flag_clear_explicit(&table->deferred_lock, memory_order_release);
}

/* Locked: drop all requests. */
static void clear_deferred(struct ng_registration_table *table)
{
    table->deferred_count = 0;
    table->deferred_in_use = false;
    atomic_store(&table->deferred, false);
}

void ng_registration_frees_forget(struct ng_registration_table *table)
{
    lock_deferred(table);
    clear_deferred(table);
    atomic_store(&table->done, table->asked);
    unlock_deferred(table);
}

/* Add a request. Returns its number. */
static uint64_t defer(struct ng_registration_table *table,
                      const struct ng_registration_range *range, bool in_use)
{
    lock_deferred(table);
    if (table->deferred_count < NG_REGISTRATION_DEFERRED)
        table->deferred_ranges[table->deferred_count] = *range;
    if (table->deferred_count <= NG_REGISTRATION_DEFERRED)
        table->deferred_count++;
    table->deferred_in_use |= in_use;
    atomic_store(&table->deferred, true);
    uint64_t number = ++table->asked;
    unlock_deferred(table);
    return number;
}

/* The requests so far. */
struct deferral {
    uint64_t asked;
    uint32_t count;
    bool in_use;
    struct ng_registration_range ranges[NG_REGISTRATION_DEFERRED];
};

static struct deferral read_deferred(struct ng_registration_table *table)
{
    struct deferral deferral;

    lock_deferred(table);
    deferral.asked = table->asked;
    deferral.count = table->deferred_count;
    deferral.in_use = table->deferred_in_use;
    memcpy(deferral.ranges, table->deferred_ranges, sizeof(deferral.ranges));
    unlock_deferred(table);
    return deferral;
}

/* False: there are newer requests. */
static bool take_deferred(struct ng_registration_table *table, const struct deferral *deferral)
{
    lock_deferred(table);
    bool same = table->asked == deferral->asked;
    if (same)
        clear_deferred(table);
    unlock_deferred(table);
    return same;
}

/* ---- Deregistering ---- */

bool ng_registration_frees_catch_up(struct ng_comm *comm, struct ng_registration_table *table,
                                    bool waits)
{
    struct deferral deferral;
    bool all;

    if (!atomic_load(&table->deferred))
        return true;
    do {
        deferral = read_deferred(table);
        /* If all are removed, this includes memory that is not being freed, and that the device may
         * be using. Memory whose free did not wait is freed by now, or the driver itself waits for
         * the device. */
        all = deferral.count > NG_REGISTRATION_DEFERRED;
        bool busy =
            all || ng_registration_table_takes_plain_memory() || (deferral.in_use && !waits);
        if (busy &&
            !ng_registration_table_await_idle(comm, table,
                                              waits ? ng_registration_table_close_wait_ns(comm)
                                                    : NG_REGISTRATION_IDLE_WAIT_NS))
            return false;
        if (ng_registration_table_is_cut_off(comm))
            return false;
    } while (!take_deferred(table, &deferral));
    if (all)
        ng_registration_table_end_all(comm, table);
    for (uint32_t i = 0; i < deferral.count && !all; i++)
        ng_registration_table_end_overlapping(comm, table, &deferral.ranges[i]);
    atomic_store(&table->done, deferral.asked);
    return true;
}

void ng_registration_frees_drop_all(struct ng_registration_table *table)
{
    ng_registration_table_clear(table);
    NG_STORE(table->told->segments, 0);
    NG_STORE(table->told->segment_bytes, 0);
    /* Requests that are no longer deferred are not served, so release the waiting frees here. */
    lock_deferred(table);
    clear_deferred(table);
    atomic_store(&table->tried, table->asked);
    unlock_deferred(table);
    atomic_store(&table->retired, false);
}

void ng_registration_frees_drop_cut_off(const struct ng_comm *comm,
                                        struct ng_registration_table *table)
{
    if (!ng_registration_table_is_cut_off(comm))
        return;
    ng_registration_frees_drop_all(table);
    atomic_store(&table->state, NG_REGISTRATION_ENDED);
}

/* Held: on the guard's thread. False: not possible now. */
static bool serve_held(struct ng_comm *comm, struct ng_shared_resources *sharing,
                       struct ng_registration_table *table)
{
    struct ng_comm *guest;
    bool done = true;

    if (!ng_registration_table_is_of_turn(comm, sharing, table) ||
        atomic_load(&table->state) == NG_REGISTRATION_ENDED)
        return true;
    /* The guard waits for guests before it aborts the communicator. */
    if (ng_gate_visit(atomic_load(&comm->handle), &guest) != NG_CALL_PROCEED) {
        ng_registration_frees_drop_all(table);
        return true;
    }
    if (guest == comm && ng_registration_table_lives(comm)) {
        done = ng_registration_table_peers_answer(comm) &&
               ng_registration_frees_catch_up(comm, table, false);
        if (done && atomic_load(&table->retired)) {
            done = !table->unobserved && ng_registration_table_await_idle(comm, table, 0);
            if (done)
                ng_registration_table_end_all(comm, table);
            atomic_store(&table->retired, !done);
        }
    }
    ng_gate_leave(guest);
    ng_registration_frees_drop_cut_off(comm, table);
    return done;
}

/* Newer requests may have been tried meanwhile. */
static void tell_tried(struct ng_registration_table *table, uint64_t asked)
{
    lock_deferred(table);
    if (atomic_load(&table->tried) < asked)
        atomic_store(&table->tried, asked);
    unlock_deferred(table);
}

static bool serve(struct ng_comm *comm, struct ng_registration_table *table)
{
    struct ng_shared_resources *sharing = ng_shared_resources_of(comm);
    uint64_t asked = read_deferred(table).asked;
    bool done = false;

    if (ng_registration_table_hold(comm, sharing,
                                   ng_clock_mono_ns() + NG_REGISTRATION_FREE_WAIT_NS)) {
        atomic_store(&busy_mono_ns, ng_clock_mono_ns());
        done = serve_held(comm, sharing, table);
        atomic_store(&busy_mono_ns, 0);
        ng_shared_resources_let_go(sharing);
    }
    tell_tried(table, asked);
    return done;
}

static bool serve_all(void)
{
    uint32_t tables_used = ng_registration_table_slots();
    bool left = false;

    for (uint32_t slot = 0; slot < tables_used; slot++) {
        struct ng_registration_table *table = ng_registration_table_at(slot);
        if (table && (atomic_load(&table->deferred) || atomic_load(&table->retired)))
            left |= !serve(ng_comm_at(slot), table);
    }
    return left;
}

static void *attend(void *unused)
{
    uint32_t generation = atomic_load(&ng_guard.generation);

    ng_guard.adopt_thread();
    while (atomic_load(&ng_guard.generation) == generation && !atomic_load(&ng_guard.ending) &&
           !atomic_load(&quitting)) {
        uint32_t before = atomic_load(&asked_thread);
        int64_t pause_ns = serve_all() ? AGAIN_NS : LOOK_NS;
        ng_futex_wait(&asked_thread, before, pause_ns);
    }
    atomic_store(&serves, false);
    return unused;
}

int ng_registrations_start(void)
{
    atomic_store(&serves, true);
    int error = ng_guard_thread("ncclguard/regs", attend);
    if (error)
        atomic_store(&serves, false);
    return error;
}

static void wake(void)
{
    atomic_fetch_add(&asked_thread, 1);
    ng_futex_wake(&asked_thread, 1);
}

bool ng_registration_frees_ask_thread(void)
{
    if (!atomic_load(&serves) || atomic_load(&ng_guard.ending))
        return false;
    wake();
    return true;
}

void ng_registration_frees_quit(void)
{
    atomic_store(&quitting, true);
    wake();
}

/* ---- Frees ---- */

/* A deregistration that has lasted this long will not end soon. */
static bool is_stuck(void)
{
    int64_t busy = atomic_load(&busy_mono_ns);

    return busy && ng_clock_mono_ns() - busy > ANSWER_WAIT_NS;
}

/* NCCL must not access freed memory: wait until a registration under way is complete, which
 * involves no peer. */
static void await_registered(const struct ng_registration_table *table)
{
    int64_t until = ng_clock_mono_ns() + ANSWER_WAIT_NS;

    while (atomic_load(&table->registering) && ng_clock_mono_ns() < until)
        ng_clock_sleep(NG_REGISTRATION_PAUSE_NS);
}

/* A free eventually proceeds even if its request is not carried out: memory that NCCL can share
 * stays until its last mapping is removed, and NCCL no longer uses the registration. */
static void await_given_back(struct ng_registration_table *table, uint64_t number,
                             int64_t until_mono_ns)
{
    int64_t pause = NG_REGISTRATION_PAUSE_NS;

    while (atomic_load(&table->done) < number) {
        if (atomic_load(&table->tried) >= number || ng_clock_mono_ns() >= until_mono_ns ||
            is_stuck()) {
            atomic_fetch_add(&table->told->deferred, 1);
            return;
        }
        ng_clock_sleep(pause);
        pause = pause < NG_REGISTRATION_PAUSE_MAX_NS ? 2 * pause : NG_REGISTRATION_PAUSE_MAX_NS;
    }
}

void ng_registrations_forget(uintptr_t base, size_t bytes, bool in_use)
{
    uint32_t tables_used = ng_registration_table_slots();
    struct ng_registration_range range = {base, bytes};
    int64_t until = 0;
    int saved = errno;

    for (uint32_t slot = 0; slot < tables_used; slot++) {
        struct ng_registration_table *table = ng_registration_table_at(slot);
        if (!table || !ng_registration_table_may_overlap(table, &range))
            continue;
        if (!ng_shared_resources_is_mine(ng_shared_resources_of(ng_comm_at(slot))))
            await_registered(table);
        if (!until)
            until = ng_clock_mono_ns() + ANSWER_WAIT_NS; /* for all of them together */
        uint64_t number = defer(table, &range, in_use);
        await_given_back(table, number, ng_registration_frees_ask_thread() ? until : 0);
    }
    errno = saved;
}
