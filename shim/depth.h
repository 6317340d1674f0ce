/*
 * Whether this thread is inside a NCCL call already: the guard against recording NCCL's own calls.
 *
 * Steps 1 to 6. Each thread has its own; more than 0 from just before ng_call_enter to just after
 * ng_call_leave, while a passed call runs, and for ever in the guard's own threads.
 */
#ifndef NCCLGUARD_SHIM_DEPTH_H
#define NCCLGUARD_SHIM_DEPTH_H

/* Initial-exec: read in two instructions, and never allocated behind the program's back. */
#define NG_TLS_INITIAL_EXEC __attribute__((tls_model("initial-exec"), visibility("hidden")))

extern __thread unsigned ng_shim_depth NG_TLS_INITIAL_EXEC;

#endif
