/*
 * Per-thread state: whether the thread is inside a NCCL call (which keeps NCCL's own calls from
 * being recorded), or on its way from a stub to the wrapper.
 *
 * Each thread has its own. At a call of the program all of it is 0, which takes one test.
 */
#ifndef NCCLGUARD_SHIM_STATE_H
#define NCCLGUARD_SHIM_STATE_H

#include <stdatomic.h>
#include <stdint.h>

/* Initial-exec: read in two instructions, and never allocated lazily. */
#define NG_TLS_INITIAL_EXEC __attribute__((tls_model("initial-exec"), visibility("hidden")))

struct ng_shim_state {
    union {
        struct {
            /* Above 0 from just before ng_call_enter to just after ng_call_leave, while a passed
             * call runs, and for ever in the guard's own threads. */
            uint32_t depth;
            /* The library that a stub named: its index + 1; 0 none. Written by dlsym.S, at 4
             * bytes. */
            uint32_t bound;
        };
        uint64_t any;
    };
    const void *caller; /* of the wrapper, for the long way of the call */
};

extern __thread struct ng_shim_state ng_shim_state NG_TLS_INITIAL_EXEC;

/* shim/shim.h: do calls reach core? */
extern atomic_bool ng_shim_active __attribute__((visibility("hidden")));

#endif
