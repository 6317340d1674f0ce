/*
 * Finds program threads by their slots in the black box.
 *
 * Entered by guard threads, and by program threads that query the state of a communicator or find
 * one held. Must never keep a communicator held while it waits.
 */
#include "core/comm/in_flight_calls.h"

#include <inttypes.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/comm/comm.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/macros.h"
#include "core/util/small_file.h"

#define STORES_DRAINED_NS (20 * NG_MS) /* without membarrier: far longer than any store takes */

void ng_in_flight_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
        return;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
        return;
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0) != 0) {
        ng_clock_sleep(STORES_DRAINED_NS);
    }
}

uint32_t ng_in_flight_call(const struct ng_comm *comm)
{
    const struct ng_box *box = &ng_guard.box;
    uint32_t used = atomic_load(&box->header->thread_used);

    for (uint32_t i = 0; i < used && i < box->thread_capacity; i++) {
        uint32_t op = atomic_load_explicit(&box->threads[i].op, memory_order_acquire);
        if (op != NG_OP_NONE && NG_LOAD(box->threads[i].group_slot) == comm->slot)
            return op;
    }
    return NG_OP_NONE;
}

static bool is_inside(const struct ng_box_thread *thread, const struct ng_comm *comm)
{
    uint32_t op = atomic_load_explicit(&thread->op, memory_order_acquire);

    return op == NG_OP_GroupEnd || (op != NG_OP_NONE && NG_LOAD(thread->group_slot) == comm->slot);
}

bool ng_in_flight_inside(const struct ng_comm *comm)
{
    const struct ng_box *box = &ng_guard.box;
    uint32_t used = atomic_load(&box->header->thread_used);

    if (atomic_load(&comm->in_flight.guests))
        return true;
    return NG_ANY(thread, box->threads, NG_MIN(used, box->thread_capacity),
                  is_inside(thread, comm));
}

/* CPU time of a thread of this process; -1 there is none, or the kernel does not say. */
static int64_t thread_cpu_ns(uint32_t tid)
{
    clockid_t clock = (clockid_t)(~tid << 3 | 6); /* the kernel's form of a thread's CPU clock */
    struct timespec now;

    return clock_gettime(clock, &now) == 0 ? now.tv_sec * NG_S + now.tv_nsec : -1;
}

static bool is_ready_to_run(uint32_t tid)
{
    char path[64], text[256];

    snprintf(path, sizeof(path), "/proc/self/task/%" PRIu32 "/stat", tid);
    if (ng_small_file_read_text(path, text, sizeof(text)) < 0)
        return false;
    const char *field = strrchr(text, ')');
    return field && field[1] == ' ' && field[2] == 'R';
}

static bool is_starved(uint32_t tid, int64_t least_ns, struct ng_in_flight_start *start)
{
    int64_t cpu_ns = tid ? thread_cpu_ns(tid) : -1;
    uint32_t i = 0;

    if (cpu_ns < 0)
        return false;
    while (i < start->count && start->tids[i] != tid)
        i++;
    if (i == NG_IN_FLIGHT_THREADS)
        return false;
    if (i == start->count) {
        start->tids[start->count] = tid;
        start->cpu_ns[start->count++] = cpu_ns;
    }
    return cpu_ns - start->cpu_ns[i] < least_ns && is_ready_to_run(tid);
}

bool ng_in_flight_starved(const struct ng_comm *comm, int64_t least_ns,
                          struct ng_in_flight_start *start)
{
    const struct ng_box *box = &ng_guard.box;
    uint32_t used = atomic_load(&box->header->thread_used);
    bool starved = atomic_load(&comm->in_flight.guests) &&
                   is_starved(atomic_load(&comm->in_flight.guest_tid), least_ns, start);

    for (uint32_t i = 0; i < used && i < box->thread_capacity; i++)
        if (is_inside(&box->threads[i], comm))
            starved |= is_starved(NG_LOAD(box->threads[i].tid), least_ns, start);
    return starved;
}

static bool any_group_is_open(void)
{
    const struct ng_box *box = &ng_guard.box;
    uint32_t used = atomic_load(&box->header->thread_used);

    return NG_ANY(thread, box->threads, NG_MIN(used, box->thread_capacity),
                  NG_LOAD(thread->tid) && NG_LOAD(thread->group_depth));
}

void ng_in_flight_let_go(struct ng_comm *comm)
{
    uint32_t held = NG_FATE_HELD;

    atomic_compare_exchange_strong(&comm->fate, &held, NG_FATE_LIVES);
    ng_futex_wake_all(&comm->fate);
}

bool ng_in_flight_hold(struct ng_comm *comm)
{
    uint32_t lives = NG_FATE_LIVES;

    /* First a check without side effects. */
    if (ng_in_flight_inside(comm) || any_group_is_open() ||
        !atomic_compare_exchange_strong(&comm->fate, &lives, NG_FATE_HELD))
        return false;
    ng_in_flight_fence();
    if (!ng_in_flight_inside(comm) && !any_group_is_open())
        return true;
    ng_in_flight_let_go(comm);
    return false;
}

bool ng_in_flight_await(const struct ng_comm *comm)
{
    uint32_t fate;

    while ((fate = atomic_load(&comm->fate)) == NG_FATE_HELD)
        ng_futex_wait(&comm->fate, fate, INT64_MAX);
    return fate >= NG_FATE_CONDEMNED;
}
