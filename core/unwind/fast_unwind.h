/*
 * Walks up a stack in a few nanoseconds a frame, by rules prepared in advance.
 *
 * Only if NCCLGUARD_STACKS is `call`. The program's thread walks its own stack, and must not read
 * libraries' tables for that. A rule states in 16 bytes where, at one place in the code, the
 * caller's registers are. Rules are in a table that any number of threads read without a lock while
 * one adds to it (unwind_table.c creates them). A place without a rule ends the walk.
 *
 * A rule may be wrong or stale, and the stack damaged: nothing outside the stack's bounds is ever
 * read, the walk only goes up, and it is short. So only the frames can be wrong.
 */
#ifndef NCCLGUARD_CORE_UNWIND_FAST_UNWIND_H
#define NCCLGUARD_CORE_UNWIND_FAST_UNWIND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/unwind/image.h"

/* Sanitizers would report reading the callers' frames as an error. */
#define NG_FAST_UNWIND_UNCHECKED __attribute__((no_sanitize("address", "thread", "undefined")))

/* How a walk goes on from a place. */
enum ng_fast_unwind_kind {
    NG_FAST_UNWIND_RULE = 1,  /* as the rule's fields say */
    NG_FAST_UNWIND_POINTER,   /* by frame pointers: code generated at run time, or without tables */
    NG_FAST_UNWIND_OUTERMOST, /* it ends: the function that the thread began with */
    NG_FAST_UNWIND_UNKNOWN,   /* not known, or cannot be expressed as a rule */
};

/* Location of a register of the caller. */
enum ng_fast_unwind_where {
    NG_FAST_UNWIND_SAME,       /* unchanged */
    NG_FAST_UNWIND_AT_FRAME,   /* in memory, at an offset from the canonical frame address */
    NG_FAST_UNWIND_AT_STACK,   /* in memory, at an offset from the stack pointer */
    NG_FAST_UNWIND_AT_POINTER, /* in memory, at an offset from the frame pointer */
    NG_FAST_UNWIND_LOST,       /* not known */
};

/*
 * The canonical frame address, which is the caller's stack pointer, is the stack or frame pointer
 * plus an offset; or the value at that address.
 */
struct ng_fast_unwind_rule {
    int32_t frame_offset, return_offset, pointer_offset;
    uint8_t kind;                  /* enum ng_fast_unwind_kind */
    uint8_t return_at, pointer_at; /* enum ng_fast_unwind_where */
    uint8_t by_pointer : 1;        /* frame pointer, not stack pointer */
    uint8_t by_reference : 1;      /* the value at that address */
    uint8_t signal : 1;            /* the caller was interrupted, not in a call */
    uint8_t link_too : 1; /* aarch64: the link register is stored before the return address */
};

#define NG_FAST_UNWIND_SLOTS 4096u /* a power of two */

/* `high` is 0 while a slot is written. */
struct ng_fast_unwind_table {
    struct {
        _Atomic uint64_t place, low, high;
    } slots[NG_FAST_UNWIND_SLOTS];
    uint32_t used; /* of the writer */
};

/* The position of a walk. */
struct ng_fast_unwind_position {
    uint64_t place; /* code address inside the unfinished instruction */
    uint64_t stack, pointer, link;
    bool has_link; /* `link` is known */
};

enum ng_fast_unwind_end {
    NG_FAST_UNWIND_GOES_ON,
    NG_FAST_UNWIND_WHOLE,   /* up to the function that the thread began with */
    NG_FAST_UNWIND_MISSED,  /* there is no rule for walk->place */
    NG_FAST_UNWIND_STOPPED, /* no known way to go on, or the stack is damaged */
};

/* Memory that holds a stack: addresses from walk->stack up to `until` may be read, at the address
 * plus `shift`. */
struct ng_fast_unwind_memory {
    uint64_t until, shift;
};

/* Add a rule; one thread at a time. False: the table is full. */
bool ng_fast_unwind_table_add(struct ng_fast_unwind_table *table, uint64_t place,
                              const struct ng_fast_unwind_rule *rule);
/* Remove the rule of a place. */
void ng_fast_unwind_table_remove(struct ng_fast_unwind_table *table, uint64_t place);

/* Step from a frame to its caller. GOES_ON: *walk is the caller's. */
enum ng_fast_unwind_end ng_fast_unwind_step(struct ng_fast_unwind_table *table,
                                            const struct ng_fast_unwind_memory *memory,
                                            struct ng_fast_unwind_position *walk);

/*
 * Collect up to `room` addresses, from walk on: return addresses, or, for an interrupted frame, the
 * address of the interruption plus 1. *walk is where the walk ended. GOES_ON: no more room.
 */
enum ng_fast_unwind_end ng_fast_unwind_up(struct ng_fast_unwind_table *table,
                                          const struct ng_fast_unwind_memory *memory,
                                          struct ng_fast_unwind_position *walk,
                                          uint64_t *ret_addresses, uint32_t room,
                                          uint32_t *ret_count);

/* The position of the function that calls this. Always inlined. */
static inline __attribute__((always_inline)) struct ng_fast_unwind_position
ng_fast_unwind_here(void)
{
    struct ng_fast_unwind_position walk = {.place = 0};

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

/* ---- unwind_table.c: rules, derived from the compilers' tables ---- */

/* The rule for `place`, in `images`. Always returns one. Guard threads; no allocation, no lock;
 * about 10 KiB of stack. */
struct ng_fast_unwind_rule ng_fast_unwind_rule_make(const struct ng_images *images, uint64_t place);

#endif
