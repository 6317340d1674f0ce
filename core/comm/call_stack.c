/*
 * Keeps the frames of a call.
 *
 * Entered by the program's threads. Must never allocate, lock, make a system call, or read anything
 * but the thread's own stack, upwards from where it is.
 */
#include "core/comm/call_stack.h"

#include <pthread.h>

#include "core/comm/python_frames.h"
#include "core/unwind/registers.h"

struct ng_call_stacks *ng_call_stacks;

void ng_call_stack_find_bounds(struct ng_thread *thread)
{
    pthread_attr_t attributes;
    size_t bytes;
    void *low;

    if (thread->stack_end || pthread_getattr_np(pthread_self(), &attributes) != 0)
        return;
    if (pthread_attr_getstack(&attributes, &low, &bytes) == 0) {
        thread->stack_low = (uintptr_t)low;
        thread->stack_end = (uintptr_t)low + bytes;
    }
    pthread_attr_destroy(&attributes);
}

NG_FAST_UNWIND_UNCHECKED enum ng_fast_unwind_end
ng_call_stack_leave_own(struct ng_fast_unwind_table *table,
                        const struct ng_fast_unwind_memory *memory, uint64_t caller,
                        struct ng_fast_unwind_position *walk)
{
    enum ng_fast_unwind_end end = NG_FAST_UNWIND_GOES_ON;

    for (unsigned i = 0; i < NG_CALL_STACK_OWN_MAX && end == NG_FAST_UNWIND_GOES_ON; i++) {
        if (walk->place + 1 == caller)
            return NG_FAST_UNWIND_GOES_ON;
        end = ng_fast_unwind_step(table, memory, walk);
    }
    return end == NG_FAST_UNWIND_GOES_ON ? NG_FAST_UNWIND_STOPPED : end;
}

/* Claim the record's slot for this thread. NULL: the ring has wrapped around, and another thread
 * writes there. */
static struct ng_box_frames *claim(uint64_t record_id)
{
    struct ng_box *box = &ng_guard.box;
    struct ng_box_frames *frames = &box->frames[ng_record_slot(record_id, box->frames_capacity)];
    uint64_t before = NG_LOAD(frames->id_state);

    if ((before & 0xff) == NG_FRAMES_WRITING ||
        !atomic_compare_exchange_strong_explicit(&frames->id_state, &before,
                                                 record_id << 8 | NG_FRAMES_WRITING,
                                                 memory_order_acquire, memory_order_relaxed))
        return NULL;
    atomic_thread_fence(memory_order_release);
    return frames;
}

static void publish(struct ng_box_frames *frames, uint64_t record_id, const uint64_t *addresses,
                    uint32_t count, enum ng_frames_state state)
{
    for (uint32_t i = 0; i < count; i++)
        NG_STORE(frames->address[i], addresses[i]);
    if (count < NG_BOX_FRAMES)
        NG_STORE(frames->address[count], 0);
    atomic_store_explicit(&frames->id_state, record_id << 8 | state, memory_order_release);
}

/* Other threads may concurrently write to objects that they share on this stack. */
static NG_FAST_UNWIND_UNCHECKED void copy_stack(uint8_t *to, uint64_t from, uint32_t bytes)
{
    const volatile uint64_t *words = (const volatile uint64_t *)(uintptr_t)from;
    volatile uint64_t *copy = (volatile uint64_t *)(void *)to;

    for (uint32_t i = 0; i < bytes / 8; i++)
        copy[i] = words[i];
}

/* Take a free entry, or the oldest one that the guard thread has not started: the newest calls
 * matter most. NULL none. */
static struct ng_call_stack_miss *take_miss(void)
{
    uint32_t turn = atomic_fetch_add_explicit(&ng_call_stacks->turn, 1, memory_order_relaxed);

    for (uint32_t i = 0; i < NG_CALL_STACK_COPIES; i++) {
        struct ng_call_stack_miss *miss =
            &ng_call_stacks->misses[(turn + i) % NG_CALL_STACK_COPIES];
        enum ng_miss_state state = atomic_load_explicit(&miss->state, memory_order_relaxed);
        if ((state == NG_MISS_FREE || state == NG_MISS_READY) &&
            atomic_compare_exchange_strong_explicit(&miss->state, &state, NG_MISS_TAKEN,
                                                    memory_order_acquire, memory_order_relaxed))
            return miss;
    }
    return NULL;
}

/* Hand the part of the stack that could not be walked to the guard thread. */
static NG_FAST_UNWIND_UNCHECKED __attribute__((noinline)) void
report_miss(const struct ng_fast_unwind_position *at, uint64_t until, uint64_t caller,
            uint64_t record_id, uint32_t found)
{
    struct ng_call_stack_miss *miss = take_miss();
    uint64_t bytes = until - at->stack;

    if (!miss)
        return;
    miss->record_id = record_id;
    miss->caller = caller;
    miss->at = *at;
    miss->found = found;
    miss->bytes =
        bytes < NG_CALL_STACK_COPY_BYTES ? (uint32_t)bytes & ~7u : NG_CALL_STACK_COPY_BYTES;
    copy_stack(miss->copy, at->stack, miss->bytes);
    atomic_store_explicit(&miss->state, NG_MISS_READY, memory_order_release);
}

NG_FAST_UNWIND_UNCHECKED void ng_call_stack_take(const struct ng_thread *thread, const void *caller,
                                                 uint64_t record_id)
{
    uint64_t addresses[NG_BOX_FRAMES], back = ng_registers_strip((uintptr_t)caller);
    struct ng_fast_unwind_memory memory = {.until = thread->stack_end};
    struct ng_fast_unwind_position walk = ng_fast_unwind_here();
    enum ng_fast_unwind_end end = NG_FAST_UNWIND_STOPPED;
    uint32_t count = 0;

    if (!ng_call_stacks || !record_id)
        return;
    struct ng_box_frames *frames = claim(record_id);
    if (!frames)
        return;
    ng_python_frames_keep(thread, record_id);
    /* Otherwise it is a coroutine's or a signal stack, whose bounds are not known. */
    if (walk.stack >= thread->stack_low && walk.stack < thread->stack_end) {
        struct ng_fast_unwind_table *table = &ng_call_stacks->table;
        end = ng_call_stack_leave_own(table, &memory, back, &walk);
        if (end == NG_FAST_UNWIND_GOES_ON)
            end = ng_fast_unwind_up(table, &memory, &walk, addresses, NG_BOX_FRAMES, &count);
    }
    uint32_t found = count;
    if (count == 0)
        addresses[count++] = back;
    publish(frames, record_id, addresses, count,
            end == NG_FAST_UNWIND_WHOLE    ? NG_FRAMES_WHOLE
            : end == NG_FAST_UNWIND_MISSED ? NG_FRAMES_PART
                                           : NG_FRAMES_CUT);
    if (__builtin_expect(end == NG_FAST_UNWIND_MISSED, 0))
        report_miss(&walk, memory.until, back, record_id, found);
}
