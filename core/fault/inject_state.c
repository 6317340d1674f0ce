/*
 * The state of injected faults.
 *
 * A communicator's record may be reused for another one: state that belongs to it includes the
 * generation of its slot.
 */
#include "core/fault/inject_state.h"

#include <stdatomic.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/fault/fault_match.h"
#include "core/nccl/call.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define PUT_OFF_MAX 16u
#define DELAYS_MAX  16u

/* By slot. Words are generation << 32 | value. */
static _Atomic uint64_t errors[NG_COMM_CAPACITY] NG_LARGE, numbers[NG_COMM_CAPACITY] NG_LARGE;
static struct ng_fault_counts communicators NG_LARGE; /* by rank */

static struct {
    _Atomic(const void *) handle; /* NULL free */
    _Atomic int64_t until_mono_ns;
} delays[DELAYS_MAX];
static _Atomic uint32_t delays_used; /* slots below this number were ever used */

static struct {
    _Atomic(const void *) handle; /* NULL free */
    struct ng_call call;
} put_off[PUT_OFF_MAX];
static _Atomic uint32_t put_off_count;

static uint64_t word_of(const struct ng_comm *comm, uint32_t value)
{
    return (uint64_t)NG_LOAD(comm->group->generation) << 32 | value;
}

/* The value that belongs to this communicator; 0 none. */
static uint32_t value_in(const _Atomic uint64_t *words, const struct ng_comm *comm)
{
    uint64_t word = NG_LOAD(words[comm->slot]);

    return word >> 32 == NG_LOAD(comm->group->generation) ? (uint32_t)word : 0;
}

void ng_inject_state_fail(const struct ng_comm *comm, int error)
{
    NG_STORE(errors[comm->slot], word_of(comm, (uint32_t)error));
}

bool ng_inject_state_delay(const void *handle, int64_t until_mono_ns)
{
    for (uint32_t i = 0; i < DELAYS_MAX; i++) {
        const void *there = NULL;
        if (!atomic_compare_exchange_strong(&delays[i].handle, &there, handle) && there != handle &&
            atomic_load(&delays[i].until_mono_ns) > ng_clock_mono_ns())
            continue;
        atomic_store(&delays[i].handle, handle);
        atomic_store(&delays[i].until_mono_ns, until_mono_ns);
        if (i >= atomic_load(&delays_used))
            atomic_store(&delays_used, i + 1);
        return true;
    }
    return false;
}

static bool is_delayed(const void *handle)
{
    uint32_t used = atomic_load(&delays_used);

    return NG_ANY(delay, delays, used,
                  atomic_load(&delay->handle) == handle &&
                      atomic_load(&delay->until_mono_ns) > ng_clock_mono_ns());
}

int ng_inject_state_answer(const void *handle, int error)
{
    const struct ng_comm *comm = ng_comm_find(handle);
    uint32_t failed = comm ? value_in(errors, comm) : 0;

    if (is_delayed(handle))
        return NG_NCCL_IN_PROGRESS;
    return failed ? (int)failed : error;
}

bool ng_inject_state_put_off(const struct ng_call *call)
{
    if (ng_inject_state_waiting(call->comm))
        return false;
    for (uint32_t i = 0; i < PUT_OFF_MAX; i++) {
        const void *none = NULL;
        if (!atomic_compare_exchange_strong(&put_off[i].handle, &none, call->comm))
            continue;
        put_off[i].call = *call;
        atomic_fetch_add(&put_off_count, 1);
        return true;
    }
    return false;
}

uint32_t ng_inject_state_waiting(const void *handle)
{
    if (!handle || !atomic_load(&put_off_count))
        return 0;
    for (uint32_t i = 0; i < PUT_OFF_MAX; i++)
        if (atomic_load(&put_off[i].handle) == handle)
            return i + 1;
    return 0;
}

void ng_inject_state_take(uint32_t number, struct ng_call *ret_call)
{
    *ret_call = put_off[number - 1].call;
    atomic_fetch_sub(&put_off_count, 1);
    atomic_store(&put_off[number - 1].handle, NULL);
}

uint32_t ng_inject_state_number(const struct ng_comm *comm, int rank)
{
    uint32_t number = value_in(numbers, comm);

    if (!number) {
        number = (uint32_t)ng_fault_counts_add(&communicators, (uint64_t)(rank + 2));
        NG_STORE(numbers[comm->slot], word_of(comm, number));
    }
    return number;
}

void ng_inject_state_after_fork(void)
{
    memset((void *)&communicators, 0, sizeof(communicators));
    memset((void *)errors, 0, sizeof(errors));
    memset((void *)numbers, 0, sizeof(numbers));
    memset((void *)delays, 0, sizeof(delays));
    memset((void *)put_off, 0, sizeof(put_off));
    atomic_store(&delays_used, 0);
    atomic_store(&put_off_count, 0);
}
