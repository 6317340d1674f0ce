/*
 * Fault injection (NCCLGUARD_FAULT): on purpose, what the guard is there for.
 *
 * Before anything else of a call, so that the guard sees what NCCL sees; and right behind NCCL's
 * function, where its answer is changed. Off by default, and then one predictable branch. Armed, it
 * may block, allocate and end the process: that is what it is for.
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

/* Arm what `text` asks for; NULL nothing. With a mistake in it nothing is armed, and
 * ng_inject_start tells of it. Before main. */
void ng_inject_configure(const char *text);

/* How many are armed: rows that the black box needs. */
uint32_t ng_inject_count(void);

/* The guard has started: name what is armed, in the log and in the black box. */
void ng_inject_start(struct ng_box *box);

/* From ng_inject_enter to the call's return, on the caller's stack. */
struct ng_injection {
    bool replaces; /* NCCL is not called: `result` is its answer */
    int result;
    int64_t in_progress_ns;      /* it answers ncclInProgress for so long; 0 no */
    uint32_t follows;            /* a call that was put off, and comes after this one; 0 none */
    void *scratch;               /* what `call` points to now; NULL */
    struct ng_creation creation; /* what the call makes, with this injection */
};

/*
 * A call of the program, before ng_call_enter and its kin: what is to happen to it happens, and
 * *call has what NCCL is to get. NG_CALL_PROCEED; else the ncclResult_t that the program gets, and
 * nothing else is done. It may never return. Program threads.
 */
int ng_inject_enter(struct ng_call *call, struct ng_injection *ret_injection);

/* Is NCCL not to be called, and injection->result its answer? True once: who tries again calls it.
 */
bool ng_inject_replaces(struct ng_injection *injection);

/* What NCCL answers, `result` being its own answer, before ng_call_leave. */
int ng_inject_result(const struct ng_call *call, struct ng_injection *injection, int result);

/* After ng_call_leave, or where ng_inject_enter has answered itself. */
void ng_inject_done(const struct ng_injection *injection);

/* The call that comes after this one: it is to be made, on the same thread, and then
 * ng_inject_followed is told its result. False: none does. */
bool ng_inject_following(struct ng_injection *injection, struct ng_call *ret_call);
void ng_inject_followed(const struct ng_call *call, int result);

/* What ncclCommGetAsyncError answers, for whoever asks; `error` is NCCL's own answer. Any thread.
 */
int ng_inject_answer(const void *handle, int error);

/* The guard is about to abort this communicator; may never return. Abort threads. */
void ng_inject_abort(struct ng_comm *comm);

/* In a forked child. */
void ng_inject_after_fork(void);

#endif
