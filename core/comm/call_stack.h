/*
 * The call site: the innermost frames of the program's thread, kept with the call's record.
 *
 * Only if NCCLGUARD_STACKS is `call`. The thread walks its own stack by rules that a guard thread
 * has prepared (core/comm/frame_symbolizer.h): no lock, no allocation, no system call, no access to
 * a library's tables. If a rule is missing, the rest of the stack is copied, and the guard thread
 * completes the record and adds the rule.
 */
#ifndef NCCLGUARD_CORE_COMM_CALL_STACK_H
#define NCCLGUARD_CORE_COMM_CALL_STACK_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/comm/thread.h"
#include "core/runtime/runtime.h"
#include "core/unwind/fast_unwind.h"

#define NG_CALL_STACK_COPIES     8
#define NG_CALL_STACK_COPY_BYTES (32u << 10)
/* Frames of our own between core and the program, which are left out: at most this many. */
#define NG_CALL_STACK_OWN_MAX 8

/* A walk that reached an address without a rule. */
struct ng_call_stack_miss {
    enum ng_miss_state {
        NG_MISS_FREE,
        NG_MISS_TAKEN, /* a program thread fills it */
        NG_MISS_READY, /* for the guard thread, or for reuse by a thread with a newer call */
        NG_MISS_BUSY,  /* the guard thread works on it */
    } _Atomic state;
    uint64_t record_id;
    uint64_t caller; /* return address in the program */
    struct ng_fast_unwind_position
        at;         /* where the walk ended: the stack from walk.stack on is in `copy` */
    uint32_t found; /* frames in the record, the last of them without a rule; 0: the walk ended
                       before the program's own frames */
    uint32_t bytes;
    uint8_t copy[NG_CALL_STACK_COPY_BYTES];
};

struct ng_call_stacks {
    struct ng_fast_unwind_table table;
    struct ng_call_stack_miss misses[NG_CALL_STACK_COPIES];
    _Atomic uint32_t turn; /* rotates through the misses */
};

/* NULL: calls keep no frames. Set before the guard runs. */
extern struct ng_call_stacks *ng_call_stacks __attribute__((visibility("hidden")));

/* Find the bounds of this thread's stack, once, in its first call; may allocate. */
void ng_call_stack_find_bounds(struct ng_thread *thread);

/* The slow half of ng_call_stack_keep. */
void ng_call_stack_take(const struct ng_thread *thread, const void *caller, uint64_t record_id);

/* Keep the frames of record `record_id`, which this thread has just added. */
static inline void ng_call_stack_keep(const struct ng_thread *thread, const void *caller,
                                      uint64_t record_id)
{
    if (__builtin_expect(ng_guard.box.frames_capacity != 0, 0))
        ng_call_stack_take(thread, caller, record_id);
}

/* Walk from `walk` past our own frames to the frame that `caller` returns to. GOES_ON: *walk is
 * there. */
enum ng_fast_unwind_end ng_call_stack_leave_own(struct ng_fast_unwind_table *table,
                                                const struct ng_fast_unwind_memory *memory,
                                                uint64_t caller,
                                                struct ng_fast_unwind_position *walk);

#endif
