/*
 * Holding all threads of this process still for a moment, to look at their registers.
 *
 * By a helper process that shares our memory and traces our threads, as a debugger would: the
 * program has no signal delivered, no handler installed, none of its threads' stacks used, and its
 * system calls are restarted by the kernel, but for those that never are (signal(7)). Whatever
 * happens to the helper, the kernel lets the threads go when it ends.
 */
#ifndef NCCLGUARD_CORE_EVIDENCE_TRACER_H
#define NCCLGUARD_CORE_EVIDENCE_TRACER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/unwind/unwind.h"
#include "core/util/arena.h"

enum ng_traced_state {
    NG_TRACED_NOT_ASKED,
    NG_TRACED_ASKED,   /* it did not stop in time: it is inside the kernel and cannot be woken */
    NG_TRACED_HELD,    /* registers are known */
    NG_TRACED_GONE,    /* it ended meanwhile */
    NG_TRACED_REFUSED, /* the system does not let us, or somebody else traces it: `error` */
};

struct ng_traced {
    int tid;
    enum ng_traced_state state;
    int error;               /* errno of a refusal */
    int status;              /* of this file's concern */
    uint64_t thread_pointer; /* what the thread's own data lie at; tells its pthread_t */
    struct ng_registers registers;
};

/* What the two sides say to each other, in this order. */
enum ng_tracer_step { NG_TRACER_MAY_TRACE = 1, NG_TRACER_HOLDS, NG_TRACER_MAY_GO };

struct ng_tracer {
    /* Shared with the helper. */
    struct ng_traced *threads;
    unsigned count;
    int parent;
    int64_t stop_until_ns, hold_until_ns; /* CLOCK_MONOTONIC */
    _Atomic uint32_t step;                /* futex, enum ng_tracer_step: what was said last */
    int pid;                              /* of the helper; 0 none */
};

/*
 * Stop the `count` threads and get their registers; not the calling one's. Returns when all have
 * stopped, or after `stop_ns`; they are held until ng_tracer_release, at most for `hold_ns`. 0, or
 * -errno when there is no helper to be had; what became of each thread stands in it. Memory from
 * `arena`; `ret_tracer` and `threads` stay where they are until the release. A guard thread, one at
 * a time. Until the release it must wait for no other thread of this process.
 */
int ng_tracer_hold(struct ng_tracer *ret_tracer, struct ng_traced *threads, unsigned count,
                   int64_t stop_ns, int64_t hold_ns, struct ng_arena *arena);

/* Let them go. Bounded; false: the helper did not end, and still uses its memory. */
bool ng_tracer_release(struct ng_tracer *tracer);

/* In tracer_helper.c. Start the helper: its process id, or -errno. And a wait that both sides use:
 * until `step` was said, or the time has come. Neither touches errno. */
long ng_tracer_start(struct ng_tracer *tracer, void *stack_end);
void ng_tracer_await(struct ng_tracer *tracer, uint32_t step, int64_t until_mono_ns);

#endif
