/*
 * Walks up a stack by prepared rules.
 *
 * Entered by the program's threads, and by a guard thread with copies of their stacks. Must never
 * read outside the given bounds, lock, or call anything.
 */
#include "core/unwind/fast_unwind.h"

#include <string.h>

#include "core/unwind/registers.h"

#define TRIES    16u                            /* slots tried for a place */
#define USED_MAX (NG_FAST_UNWIND_SLOTS / 4 * 3) /* beyond that, look-ups would become slow */

static inline NG_FAST_UNWIND_UNCHECKED uint32_t slot_of(uint64_t place)
{
    return (uint32_t)(place * UINT64_C(0x9e3779b97f4a7c15) >> 52);
}

_Static_assert(NG_FAST_UNWIND_SLOTS == 1u << (64 - 52), "slot_of fits the table");
_Static_assert(sizeof(struct ng_fast_unwind_rule) == 16, "two words");

/* A rule is read as a whole or not at all. */
static inline NG_FAST_UNWIND_UNCHECKED bool find(struct ng_fast_unwind_table *table, uint64_t place,
                                                 struct ng_fast_unwind_rule *ret_rule)
{
    for (uint32_t i = 0, at = slot_of(place); i < TRIES;
         i++, at = (at + 1) % NG_FAST_UNWIND_SLOTS) {
        uint64_t there = atomic_load_explicit(&table->slots[at].place, memory_order_acquire);
        if (there == 0)
            return false;
        if (there != place)
            continue;
        uint64_t words[2];
        words[1] = atomic_load_explicit(&table->slots[at].high, memory_order_acquire);
        words[0] = atomic_load_explicit(&table->slots[at].low, memory_order_relaxed);
        atomic_thread_fence(memory_order_acquire);
        if (!words[1] ||
            atomic_load_explicit(&table->slots[at].high, memory_order_relaxed) != words[1])
            return false;
        __builtin_memcpy(ret_rule, words, sizeof(words));
        return true;
    }
    return false;
}

/* The slot of a place, or the one that it would get; UINT32_MAX: no room nearby. */
static uint32_t place_slot(const struct ng_fast_unwind_table *table, uint64_t place)
{
    for (uint32_t i = 0, at = slot_of(place); i < TRIES;
         i++, at = (at + 1) % NG_FAST_UNWIND_SLOTS) {
        uint64_t there = atomic_load_explicit(&table->slots[at].place, memory_order_relaxed);
        if (there == place || there == 0)
            return at;
    }
    return UINT32_MAX;
}

bool ng_fast_unwind_table_add(struct ng_fast_unwind_table *table, uint64_t place,
                              const struct ng_fast_unwind_rule *rule)
{
    uint32_t at = place_slot(table, place);
    uint64_t words[2];

    if (at == UINT32_MAX)
        return false;
    bool fresh = atomic_load_explicit(&table->slots[at].place, memory_order_relaxed) == 0;
    if (fresh && table->used >= USED_MAX)
        return false;
    memcpy(words, rule, sizeof(words));
    atomic_store_explicit(&table->slots[at].high, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    atomic_store_explicit(&table->slots[at].low, words[0], memory_order_relaxed);
    atomic_store_explicit(&table->slots[at].high, words[1], memory_order_release);
    if (fresh) {
        atomic_store_explicit(&table->slots[at].place, place, memory_order_release);
        table->used++;
    }
    return true;
}

void ng_fast_unwind_table_remove(struct ng_fast_unwind_table *table, uint64_t place)
{
    uint32_t at = place_slot(table, place);

    if (at != UINT32_MAX)
        atomic_store_explicit(&table->slots[at].high, 0, memory_order_release);
}

/* Read a word of the stack. False: the address is not in the stack. */
static inline NG_FAST_UNWIND_UNCHECKED bool read_word(const struct ng_fast_unwind_memory *memory,
                                                      uint64_t lowest, uint64_t address,
                                                      uint64_t *ret_value)
{
    uint64_t size = memory->until - lowest;

    if (memory->until < lowest || size < sizeof(*ret_value) ||
        address - lowest > size - sizeof(*ret_value))
        return false;
    __builtin_memcpy(ret_value, (const void *)(uintptr_t)(address + memory->shift),
                     sizeof(*ret_value));
    return true;
}

/* Restore a register of the caller. False: it is not in the stack, or not known. */
static inline NG_FAST_UNWIND_UNCHECKED bool restore(const struct ng_fast_unwind_memory *memory,
                                                    const struct ng_fast_unwind_position *walk,
                                                    uint64_t frame, enum ng_fast_unwind_where where,
                                                    int32_t offset, uint64_t *ret_value)
{
    uint64_t base = where == NG_FAST_UNWIND_AT_FRAME   ? frame
                    : where == NG_FAST_UNWIND_AT_STACK ? walk->stack
                                                       : walk->pointer;

    return read_word(memory, walk->stack, base + (uint64_t)(int64_t)offset, ret_value);
}

static inline NG_FAST_UNWIND_UNCHECKED enum ng_fast_unwind_end
step_by_rule(const struct ng_fast_unwind_memory *memory, const struct ng_fast_unwind_rule *rule,
             struct ng_fast_unwind_position *walk)
{
    uint64_t frame =
        (rule->by_pointer ? walk->pointer : walk->stack) + (uint64_t)(int64_t)rule->frame_offset;
    struct ng_fast_unwind_position caller = {.pointer = walk->pointer};
    uint64_t back = walk->link;

    if (rule->by_reference && !read_word(memory, walk->stack, frame, &frame))
        return NG_FAST_UNWIND_STOPPED;
    if (frame < walk->stack || frame > memory->until)
        return NG_FAST_UNWIND_STOPPED;
    if (rule->return_at == NG_FAST_UNWIND_SAME
            ? !walk->has_link
            : !restore(memory, walk, frame, rule->return_at, rule->return_offset, &back))
        return NG_FAST_UNWIND_STOPPED;
    if (rule->pointer_at == NG_FAST_UNWIND_LOST)
        caller.pointer = 0;
    else if (rule->pointer_at != NG_FAST_UNWIND_SAME &&
             !restore(memory, walk, frame, rule->pointer_at, rule->pointer_offset, &caller.pointer))
        return NG_FAST_UNWIND_STOPPED;
    if (rule->link_too) {
        /* In the kernel's saved context: x30, sp, pc. */
        if (!restore(memory, walk, frame, rule->return_at, rule->return_offset - 16, &caller.link))
            return NG_FAST_UNWIND_STOPPED;
        caller.has_link = true;
    }
    back = ng_registers_strip(back);
    if (back == 0)
        return NG_FAST_UNWIND_WHOLE;
    caller.place = rule->signal ? back : back - 1;
    caller.stack = frame;
    *walk = caller;
    return NG_FAST_UNWIND_GOES_ON;
}

static inline NG_FAST_UNWIND_UNCHECKED enum ng_fast_unwind_end
step_by_pointer(const struct ng_fast_unwind_memory *memory, struct ng_fast_unwind_position *walk)
{
    uint64_t pair[2], frame = walk->pointer;

    if (frame % 8 || !read_word(memory, walk->stack, frame, &pair[0]) ||
        !read_word(memory, walk->stack, frame + 8, &pair[1]))
        return NG_FAST_UNWIND_STOPPED;
    /* The caller's frame is further up, or there is none. */
    if ((pair[0] && pair[0] <= frame) || !ng_registers_strip(pair[1]))
        return NG_FAST_UNWIND_STOPPED;
    *walk = (struct ng_fast_unwind_position){.place = ng_registers_strip(pair[1]) - 1,
                                             .stack = frame + sizeof(pair),
                                             .pointer = pair[0]};
    return NG_FAST_UNWIND_GOES_ON;
}

static inline __attribute__((always_inline)) NG_FAST_UNWIND_UNCHECKED enum ng_fast_unwind_end
step(struct ng_fast_unwind_table *table, const struct ng_fast_unwind_memory *memory,
     struct ng_fast_unwind_position *walk)
{
    struct ng_fast_unwind_rule rule;

    if (__builtin_expect(!find(table, walk->place, &rule), 0))
        return NG_FAST_UNWIND_MISSED;
    switch (rule.kind) {
    case NG_FAST_UNWIND_RULE:
        return step_by_rule(memory, &rule, walk);
    case NG_FAST_UNWIND_POINTER:
        return step_by_pointer(memory, walk);
    case NG_FAST_UNWIND_OUTERMOST:
        return NG_FAST_UNWIND_WHOLE;
    default:
        return NG_FAST_UNWIND_STOPPED;
    }
}

NG_FAST_UNWIND_UNCHECKED enum ng_fast_unwind_end
ng_fast_unwind_step(struct ng_fast_unwind_table *table, const struct ng_fast_unwind_memory *memory,
                    struct ng_fast_unwind_position *walk)
{
    return step(table, memory, walk);
}

NG_FAST_UNWIND_UNCHECKED enum ng_fast_unwind_end
ng_fast_unwind_up(struct ng_fast_unwind_table *table, const struct ng_fast_unwind_memory *memory,
                  struct ng_fast_unwind_position *walk, uint64_t *ret_addresses, uint32_t room,
                  uint32_t *ret_count)
{
    enum ng_fast_unwind_end end = NG_FAST_UNWIND_GOES_ON;
    uint32_t count = 0;

    for (; count < room && end == NG_FAST_UNWIND_GOES_ON; end = step(table, memory, walk))
        ret_addresses[count++] = walk->place + 1;
    *ret_count = count;
    return end;
}
