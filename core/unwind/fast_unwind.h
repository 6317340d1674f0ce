/*
 * Walking up a stack in a few nanoseconds a frame, by rules that somebody has prepared.
 *
 * Only where NCCLGUARD_STACKS is `call`. The program's thread walks its own stack, and may not read
 * libraries' tables for that: a rule says where, at one place in the code, the caller's registers
 * lie, in 16 bytes. Rules are kept in a table that any number of threads read, without a lock,
 * while one adds to it (unwind_table.c makes them). A place without a rule ends the
 * walk.
 *
 * A rule may be wrong, or stale, and the stack damaged: nothing outside of the stack's bounds is
 * ever read, the walk only goes up, and it is short. Then frames are wrong; nothing else is.
 */
#ifndef NCCLGUARD_CORE_UNWIND_FAST_UNWIND_H
#define NCCLGUARD_CORE_UNWIND_FAST_UNWIND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/unwind/image.h"

/* Sanitizers would take reading one's callers' frames for a mistake. */
#define NG_FAST_UNWIND_UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))

/* How a walk goes on from a place. */
enum ng_walk_kind {
    NG_FAST_UNWIND_RULE = 1, /* as the rule's fields say */
    NG_FAST_UNWIND_POINTER,  /* by frame pointers: code that was made at run time, or without tables
                              */
    NG_FAST_UNWIND_OUTERMOST, /* it does not: the function that the thread began with */
    NG_FAST_UNWIND_UNKNOWN,   /* nobody knows, or not in these terms */
};

/* Where a register of the caller is. */
enum ng_fast_unwind_where {
    NG_FAST_UNWIND_SAME,       /* unchanged */
    NG_FAST_UNWIND_AT_FRAME,   /* in memory, at an offset from the canonical frame address */
    NG_FAST_UNWIND_AT_STACK,   /* likewise, from the stack pointer */
    NG_FAST_UNWIND_AT_POINTER, /* likewise, from the frame pointer */
    NG_FAST_UNWIND_LOST,       /* not known */
};

/*
 * The canonical frame address, which is the caller's stack pointer, is the stack or frame pointer
 * plus an offset; or what lies there.
 */
struct ng_fast_unwind_rule {
    int32_t frame_offset, return_offset, pointer_offset;
    uint8_t kind;                  /* enum ng_walk_kind */
    uint8_t return_at, pointer_at; /* enum ng_fast_unwind_where */
    uint8_t by_pointer : 1;        /* the frame pointer it is */
    uint8_t by_reference : 1;      /* what lies there */
    uint8_t signal : 1;            /* the caller was interrupted, and is not in a call */
    uint8_t link_too : 1;          /* aarch64: the link register lies before the return address */
};

#define NG_FAST_UNWIND_SLOTS 4096u /* a power of two */

/* `high` is 0 while a slot is written. */
struct ng_fast_unwind_table {
    struct {
        _Atomic uint64_t place, low, high;
    } slots[NG_FAST_UNWIND_SLOTS];
    uint32_t used; /* of the writer */
};

/* Where a walk is. */
struct ng_walk {
    uint64_t place; /* in the code: in the instruction that is not finished */
    uint64_t stack, pointer, link;
    bool has_link; /* `link` is known */
};

enum ng_fast_unwind_end {
    NG_FAST_UNWIND_GOES_ON,
    NG_FAST_UNWIND_WHOLE,   /* up to the function that the thread began with */
    NG_FAST_UNWIND_MISSED,  /* there is no rule for walk->place */
    NG_FAST_UNWIND_STOPPED, /* nobody knows how to go on, or the stack is damaged */
};

/* Memory that holds a stack: what has an address from walk->stack up to `until` may be read, at
 * that address plus `shift`. */
struct ng_fast_unwind_memory {
    uint64_t until, shift;
};

/* Keep a rule; one thread at a time. False: the table is full. */
bool ng_fast_unwind_table_add(struct ng_fast_unwind_table *table, uint64_t place,
                              const struct ng_fast_unwind_rule *rule);
/* The place has no rule any more. */
void ng_fast_unwind_table_remove(struct ng_fast_unwind_table *table, uint64_t place);

/* From a frame to its caller. GOES_ON: *walk is the caller's. */
enum ng_fast_unwind_end ng_fast_unwind_step(struct ng_fast_unwind_table *table,
                                            const struct ng_fast_unwind_memory *memory,
                                            struct ng_walk *walk);

/*
 * Addresses from walk on, up to `room`: return addresses, or, of what was interrupted, one more
 * than where it was. *walk is where it ended. GOES_ON: there was no more room.
 */
enum ng_fast_unwind_end ng_fast_unwind_up(struct ng_fast_unwind_table *table,
                                          const struct ng_fast_unwind_memory *memory,
                                          struct ng_walk *walk, uint64_t *ret_addresses,
                                          uint32_t room, uint32_t *ret_count);

/* Where the caller of this is. Always inlined. */
static inline __attribute__((always_inline)) struct ng_walk ng_fast_unwind_here(void)
{
    struct ng_walk walk = {.place = 0};

#if defined(__x86_64__)
    __asm__ volatile("movq %%rbp, %2\n\tmovq %%rsp, %1\n\tleaq 0f(%%rip), %0\n0:"
                     : "=&r"(walk.place), "=&r"(walk.stack), "=&r"(walk.pointer));
#else
    __asm__ volatile("mov %2, x29\n\tmov %3, x30\n\tmov %1, sp\n\tadr %0, ."
                     : "=&r"(walk.place), "=&r"(walk.stack), "=&r"(walk.pointer), "=&r"(walk.link));
    walk.has_link = true;
#endif
    return walk;
}

/* ---- unwind_table.c: rules, made from what compilers wrote down ---- */

/* How a walk goes on from `place`, in `images`. Always gives one. Guard threads; no allocation, no
 * lock; about 10 KiB of stack. */
struct ng_fast_unwind_rule ng_fast_unwind_rule_make(const struct ng_images *images, uint64_t place);

#endif
