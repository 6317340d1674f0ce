/*
 * Stops all threads of this process for a moment, to read their registers.
 *
 * A helper process shares our memory and traces our threads, as a debugger would: no signal is
 * delivered to the program, no handler is installed, and none of its threads' stacks is used. The
 * kernel restarts its system calls, except those that it never restarts (signal(7)). Whatever
 * happens to the helper, the kernel releases the threads when it ends.
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
    NG_TRACED_REFUSED, /* the system does not permit it, or another process traces it: `error` */
};

struct ng_traced {
    int tid;
    enum ng_traced_state state;
    int error;               /* errno of a refusal */
    int status;              /* internal */
    uint64_t thread_pointer; /* address of the thread's own data; identifies its pthread_t */
    struct ng_registers registers;
};

/* Messages between the two sides, in this order. */
enum ng_tracer_step { NG_TRACER_MAY_TRACE = 1, NG_TRACER_HOLDS, NG_TRACER_MAY_GO };

struct ng_tracer {
    /* Shared with the helper. */
    struct ng_traced *threads;
    unsigned count;
    int parent;
    int64_t stop_until_ns, hold_until_ns; /* CLOCK_MONOTONIC */
    _Atomic uint32_t step;                /* futex, enum ng_tracer_step: the latest message */
    int pid;                              /* of the helper; 0 none */
};

/*
 * Stop the `count` threads and read their registers; the calling thread must not be among them.
 * Returns when all have stopped, or after `stop_ns`; they are held until ng_tracer_release, for at
 * most `hold_ns`. 0, or -errno if no helper could be started; the state of each thread is in
 * `threads`. Memory from `arena`; `ret_tracer` and `threads` stay where they are until the release.
 * A guard thread, one at a time. Until the release it must wait for no other thread of this
 * process.
 */
int ng_tracer_hold(struct ng_tracer *ret_tracer, struct ng_traced *threads, unsigned count,
                   int64_t stop_ns, int64_t hold_ns, struct ng_arena *arena);

/* Release the threads. Bounded; false: the helper did not end, and still uses its memory. */
bool ng_tracer_release(struct ng_tracer *tracer);

/* In tracer_helper.c. Start the helper: its process id, or -errno. And a wait that both sides use:
 * until `step` is reached, or the time is up. Neither changes errno. */
long ng_tracer_start(struct ng_tracer *tracer, void *stack_end);
void ng_tracer_await(struct ng_tracer *tracer, uint32_t step, int64_t until_mono_ns);

#endif
