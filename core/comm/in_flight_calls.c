/*
 * Finds program threads by their slots in the black box.
 *
 * Entered by guard threads, and by program threads that query the state of a communicator or find
 * one held. Must never keep a communicator held while it waits.
 */
#include "core/comm/in_flight_calls.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/comm/comm.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"

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
        struct timespec pause = {.tv_nsec = STORES_DRAINED_NS};
        syscall(SYS_nanosleep, &pause, NULL);
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

bool ng_in_flight_inside(const struct ng_comm *comm)
{
    const struct ng_box *box = &ng_guard.box;
    uint32_t used = atomic_load(&box->header->thread_used);

    if (atomic_load(&comm->in_flight.guests))
        return true;
    for (uint32_t i = 0; i < used && i < box->thread_capacity; i++) {
        uint32_t op = atomic_load_explicit(&box->threads[i].op, memory_order_acquire);
        if (op == NG_OP_NONE)
            continue;
        if (op == NG_OP_GroupEnd || NG_LOAD(box->threads[i].group_slot) == comm->slot)
            return true;
    }
    return false;
}

static bool any_group_is_open(void)
{
    const struct ng_box *box = &ng_guard.box;
    uint32_t used = atomic_load(&box->header->thread_used);

    for (uint32_t i = 0; i < used && i < box->thread_capacity; i++)
        if (NG_LOAD(box->threads[i].tid) && NG_LOAD(box->threads[i].group_depth))
            return true;
    return false;
}

void ng_in_flight_let_go(struct ng_comm *comm)
{
    uint32_t held = NG_FATE_HELD;

    atomic_compare_exchange_strong(&comm->fate, &held, NG_FATE_LIVES);
    syscall(SYS_futex, &comm->fate, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
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
        syscall(SYS_futex, &comm->fate, FUTEX_WAIT_PRIVATE, fate, NULL, NULL, 0);
    return fate >= NG_FATE_CONDEMNED;
}
