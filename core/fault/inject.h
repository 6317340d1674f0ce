/*
 * Fault injection (NCCLGUARD_FAULT): causes on purpose the faults that the guard is built to
 * detect.
 *
 * Runs before any other step of a call, so that the guard sees what NCCL sees; and right after
 * NCCL's function, to change its result. Off by default, at the cost of one predictable branch.
 * When armed, it may by design block, allocate and end the process.
 */
#ifndef NCCLGUARD_CORE_FAULT_INJECT_H
#define NCCLGUARD_CORE_FAULT_INJECT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/nccl/call.h"

struct ng_box;
struct ng_comm;

/* Faults are armed. Written once, before main. */
extern bool ng_inject_armed __attribute__((visibility("hidden")));

/* Arm the faults in `text`; NULL: none. If it has a mistake, nothing is armed, and ng_inject_start
 * logs it. Before main. */
void ng_inject_configure(const char *text);

/* Number of armed faults: rows that the black box needs. */
uint32_t ng_inject_count(void);

/* The guard has started: write the armed faults into the log and the black box. */
void ng_inject_start(struct ng_box *box);

/* From ng_inject_enter to the call's return, on the caller's stack. */
struct ng_injection {
    bool replaces; /* NCCL is not called: `result` is returned instead */
    int result;
    int64_t in_progress_ns;      /* how long it returns ncclInProgress; 0 not */
    uint32_t follows;            /* a postponed call to make after this one; 0 none */
    void *scratch;               /* modified copy that `call` points to; NULL none */
    struct ng_creation creation; /* the creation of the call, with this injection */
};

/*
 * Apply faults to a call of the program, before ng_call_enter and its variants; *call then has what
 * NCCL is to get. NG_CALL_PROCEED; else the ncclResult_t that the program gets, and nothing else is
 * done. May never return. Program threads.
 */
int ng_inject_enter(struct ng_call *call, struct ng_injection *ret_injection);

/* Is injection->result returned instead of calling NCCL? True only once: a retry calls NCCL. */
bool ng_inject_replaces(struct ng_injection *injection);

/* The result to use as NCCL's, given its real `result`. Before ng_call_leave. */
int ng_inject_result(const struct ng_call *call, struct ng_injection *injection, int result);

/* After ng_call_leave, or if ng_inject_enter did not return NG_CALL_PROCEED. */
void ng_inject_done(const struct ng_injection *injection);

/* The postponed call to make after this one, on the same thread; its result is then passed to
 * ng_inject_followed. False: there is none. */
bool ng_inject_following(struct ng_injection *injection, struct ng_call *ret_call);
void ng_inject_followed(const struct ng_call *call, int result);

/* What ncclCommGetAsyncError returns to any caller; `error` is NCCL's own answer. Any thread. */
int ng_inject_answer(const void *handle, int error);

/* The guard is about to abort this communicator; may never return. Abort threads. */
void ng_inject_abort(struct ng_comm *comm);

/* In a forked child. */
void ng_inject_after_fork(void);

#endif
