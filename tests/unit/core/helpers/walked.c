/* Built with optimisation and without frame pointers, inlining and tail calls: each function is a
 * frame, by the compiler's tables alone. */
#include "tests/unit/core/helpers/walked.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

#include "core/comm/call_stack.h"
#include "core/comm/frame_symbolizer.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/unwind/fast_unwind.h"
#include "core/unwind/frame_table.h"
#include "core/util/clock.h"

#define AWAIT_NS (20 * NG_S)

static __thread struct ng_thread own;
static __thread bool in_handler;

static void adopt(void)
{
}

int walked_start(uint32_t records)
{
    struct ng_box_identity identity = {.rank = 0, .job = "walked", .with_frames = true};

    ng_guard.adopt_thread = adopt;
    atomic_store(&ng_guard.ending, false);
    atomic_fetch_add(&ng_guard.generation, 1);
    int error = ng_box_create(NULL, &identity, records, &ng_guard.box);
    if (!error)
        error = ng_io_workers_start();
    return error ? error : ng_frame_symbolizer_start();
}

void walked_stop(void)
{
    atomic_store(&ng_guard.ending, true);
}

static _Unwind_Reason_Code look(struct _Unwind_Context *context, void *argument)
{
    struct walked_oracle *oracle = argument;
    int interrupted = 0;
    uint64_t address = _Unwind_GetIPInfo(context, &interrupted);

    if (oracle->count < sizeof(oracle->addresses) / sizeof(oracle->addresses[0]) && address)
        oracle->addresses[oracle->count++] = address + !!interrupted;
    return _URC_NO_REASON;
}

void walked_take(uint64_t id, struct walked_oracle *ret_oracle)
{
    /* The C library allocates in it. */
    if (!in_handler)
        ng_call_stack_find_bounds(&own);
    ng_call_stack_take(&own, __builtin_return_address(0), id);
    if (!ret_oracle)
        return;
    struct walked_oracle oracle = {.count = 0};
    uint64_t caller = (uint64_t)__builtin_return_address(0);
    _Unwind_Backtrace(look, &oracle);
    /* Without this function and what it calls. */
    uint32_t first = 0;
    while (first < oracle.count && oracle.addresses[first] != caller)
        first++;
    oracle.count -= first;
    memmove(oracle.addresses, oracle.addresses + first, oracle.count * sizeof(uint64_t));
    *ret_oracle = oracle;
}

void walked_take_elsewhere(uint64_t id)
{
    struct ng_thread elsewhere = {.stack_low = 4096, .stack_end = 8192};

    ng_call_stack_take(&elsewhere, __builtin_return_address(0), id);
}

int walked_frames(uint64_t id, uint64_t ret_addresses[WALKED_FRAMES], uint32_t *ret_count)
{
    enum ng_frames_state state;

    return ng_frame_table_read_frames(&ng_guard.box, id, ret_addresses, ret_count, &state)
               ? (int)state
               : 0;
}

int walked_await(uint64_t id, uint64_t ret_addresses[WALKED_FRAMES], uint32_t *ret_count)
{
    int64_t until = ng_clock_mono_ns() + AWAIT_NS;
    int state;

    while ((state = walked_frames(id, ret_addresses, ret_count)) <= NG_FRAMES_PART &&
           ng_clock_mono_ns() < until)
        usleep(1000);
    return state <= NG_FRAMES_PART ? 0 : state;
}

bool walked_name(uint64_t address, char *ret_name, size_t bytes)
{
    struct ng_frame_address row;

    for (uint32_t i = ng_frame_table_count(&ng_guard.box); i > 0; i--) {
        ng_frame_table_read(&ng_guard.box, i - 1, &row);
        if (row.address != address || row.gone_mono_ns || !row.name[0])
            continue;
        snprintf(ret_name, bytes, "%s", row.name);
        return true;
    }
    return false;
}

/* ---- Kinds of frames ---- */

void walked_plainly(walked_body *body, void *context, int depth)
{
    volatile int kept[9] = {depth};

    if (depth)
        walked_plainly(body, context, depth - 1);
    else
        body(context);
    kept[1] = kept[0];
}

void walked_with_pointer(walked_body *body, void *context, int bytes)
{
    volatile char *room = __builtin_alloca((size_t)bytes + 16);

    room[0] = 1;
    body(context);
    room[1] = room[0];
}

void walked_aligned(walked_body *body, void *context)
{
    volatile char room[256] __attribute__((aligned(128)));

    room[0] = 1;
    body(context);
    room[1] = room[0];
}

static walked_body *handled;
static void *handled_context;

static void handle(int number)
{
    in_handler = true;
    handled(handled_context);
    in_handler = false;
}

void walked_in_handler(walked_body *body, void *context)
{
    struct sigaction action = {.sa_handler = handle}, before;

    ng_call_stack_find_bounds(&own);
    handled = body;
    handled_context = context;
    sigaction(SIGUSR2, &action, &before);
    raise(SIGUSR2);
    sigaction(SIGUSR2, &before, NULL);
}

/* ---- Damage ---- */

/* Red zones and all. */
NG_FAST_UNWIND_UNCHECKED size_t walked_copy(uint8_t *ret_stack, size_t room, uint64_t *ret_place,
                                            uint64_t *ret_pointer)
{
    struct ng_fast_unwind_position here = ng_fast_unwind_here();

    ng_call_stack_find_bounds(&own);
    size_t bytes = own.stack_end - here.stack;
    bytes = (bytes < room ? bytes : room) & ~(size_t)7;
    for (size_t i = 0; i < bytes; i++)
        ret_stack[i] = ((const volatile uint8_t *)here.stack)[i];
    *ret_place = here.place;
    *ret_pointer = here.pointer - here.stack;
    return bytes;
}

static uint64_t next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

/* A rule out of the blue, for what has none: nothing is told by it, and nothing may break. */
static struct ng_fast_unwind_rule random_rule(uint64_t *state)
{
    return (struct ng_fast_unwind_rule){.frame_offset = (int32_t)next(state) % 4096,
                                        .return_offset = (int32_t)next(state) % 4096 - 2048,
                                        .pointer_offset = (int32_t)next(state) % 4096 - 2048,
                                        .kind = next(state) % 8 ? NG_FAST_UNWIND_RULE
                                                                : NG_FAST_UNWIND_POINTER,
                                        .return_at = next(state) % 4,
                                        .pointer_at = next(state) % 5,
                                        .by_pointer = next(state) & 1,
                                        .by_reference = next(state) % 4 == 0,
                                        .signal = next(state) & 1,
                                        .link_too = next(state) % 8 == 0};
}

uint32_t walked_damaged(const uint8_t *stack, size_t bytes, uint64_t place, uint64_t pointer,
                        uint32_t seed, unsigned damages)
{
    static struct ng_fast_unwind_table table;
    uint64_t state = seed * UINT64_C(2654435761) + 1, addresses[WALKED_FRAMES];
    size_t pages = (bytes + 4095) & ~(size_t)4095;
    uint32_t count = 0;

    memset(&table, 0, sizeof(table));
    uint8_t *map = mmap(NULL, pages + 2 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || mprotect(map + 4096, pages, PROT_READ | PROT_WRITE) != 0)
        abort();
    uint8_t *copy = map + 4096 + pages - bytes;
    memcpy(copy, stack, bytes);
    for (unsigned i = 0; i < damages; i++) {
        uint64_t value = next(&state) % 3 ? (uint64_t)(uintptr_t)copy + next(&state) % (2 * bytes)
                                          : next(&state) << 33 | next(&state);
        memcpy(copy + next(&state) % (bytes / 8) * 8, &value, 8);
    }
    struct ng_fast_unwind_memory memory = {.until = (uintptr_t)copy + bytes};
    for (unsigned tries = 0; tries < 64; tries++) {
        struct ng_fast_unwind_position walk = {
            .place = place, .stack = (uintptr_t)copy, .pointer = (uintptr_t)copy + pointer};
        if (ng_fast_unwind_up(&table, &memory, &walk, addresses, WALKED_FRAMES, &count) !=
            NG_FAST_UNWIND_MISSED)
            break;
        struct ng_fast_unwind_rule rule = random_rule(&state);
        ng_fast_unwind_table_add(&table, walk.place, &rule);
    }
    munmap(map, pages + 2 * 4096);
    return count;
}
