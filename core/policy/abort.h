/*
 * Aborting communicators from outside, and what the program's calls get to hear afterwards.
 *
 * Threads of its own ("ncclguard/abort", and "ncclguard/await", which keeps the bound) call NCCL;
 * the incident thread, which gives the order, never does.
 *
 * What is guaranteed. Once a communicator is condemned (enum ng_comm_fate), no call of the program
 * that comes through our wrappers reaches NCCL with its handle, so nothing touches what NCCL frees:
 *   Destroy, Abort, Finalize, Revoke  ncclSuccess; Destroy and Abort wait until the guard's abort
 *                                     has returned, at most until its bound
 *   CommGetAsyncError                 ncclSuccess, and the error below as the answer
 *   GetLastError                      the reason
 *   all others                        ncclSystemError; ncclRemoteError where a peer was the cause;
 * in a NCCL group its end returns that, too, and NCCL launches none of it until NCCL gives the same
 * handle to a new communicator.
 *
 * A call that is on its way into NCCL at that moment has either said where it is before it looked
 * (its thread's slot in the black box, or `guests`, or `open_groups`), and is waited for, or sees
 * the mark. The wait is short: who stays inside is blocked there, which is what an abort is to end,
 * and returns with NCCL's own error. NCCL's documentation wants no thread inside at all; it takes
 * an abort all the same, and in blocked calls that is the only way out.
 *
 * A NCCL group of the program that holds calls of a condemned communicator and is not closed is
 * waited for a little longer. If it is then still open, it can never be closed, since NCCL would
 * read the freed communicator: from then on calls of that thread to that library fail.
 *
 * What is not. Calls that do not come through the wrappers; calls that name a window or a CUDA
 * graph rather than the communicator; threads beyond those that the black box has slots for; a
 * communicator that the program itself is ending, which is left to it (a policy's order waits for
 * that too, and is stuck where it does not end); and a record that had to be
 * reused since 4,096 communicators of this process were never destroyed.
 */
#ifndef NCCLGUARD_CORE_POLICY_ABORT_H
#define NCCLGUARD_CORE_POLICY_ABORT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/comm/comm.h"
#include "core/nccl/group_set.h"
#include "core/verdict/verdict.h"

struct ng_call;

/* Who gives an order. */
enum ng_abort_origin {
    NG_ABORT_PERSON, /* what the program is ending itself is left to it */
    NG_ABORT_POLICY, /* it is left to it, but must have ended within the bound, too */
    NG_ABORT_ORIGINS,
};

/*
 * Abort the communicators of these groups in this process, as there are now, also those that are
 * being made. `reason` is copied: a verdict's line, and its kind, where there is one; else `kind`
 * is NG_KIND_HEALTHY. Does not wait, and calls neither NCCL nor CUDA. 0: it is under way, and
 * ng_abort_state tells how it ends; -ENOENT: no such communicator here; -EBUSY: too many earlier
 * ones have not returned; -EOPNOTSUPP: one is being made, and its release of NCCL does not let
 * another thread abort that (core/policy/init_abort.h), which is logged; or -errno: nothing has
 * happened. Any guard thread; makes a thread, so malloc must be free to be called.
 */
int ng_abort_groups(const struct ng_group_set *scope, enum ng_verdict_kind kind, const char *reason,
                    enum ng_abort_origin origin);

/* Of all orders of this process and origin together: the gravest. */
enum ng_abort_state {
    NG_ABORT_NONE,
    NG_ABORT_RETURNED,  /* all have returned */
    NG_ABORT_UNDER_WAY, /* within NCCLGUARD_ABORT_WAIT */
    NG_ABORT_STUCK,     /* one has not returned within it; which one is logged */
};

/* When this changes to RETURNED or STUCK, the incident thread is woken. Any thread. */
enum ng_abort_state ng_abort_state(enum ng_abort_origin origin);

/* Is a policy's order about this group under way? Any thread. */
bool ng_abort_concerns(uint64_t group_id);

/* The communicator that keeps an order from ending, and how. */
struct ng_abort_stuck {
    uint64_t group_id;
    char group_name[64];
    int nranks, group_rank; /* -1 not known */
    int64_t since_ns;       /* since the order was given */
    enum ng_op op;          /* the call of NCCL that does not return: CommAbort, or the program's */
    char why[320];          /* one sentence */
    char reason[NG_COMM_REASON_BYTES]; /* of the order */
};

/* Of the first policy's order that is stuck. False: none is. Reads what other threads may change
 * meanwhile; incident thread. */
bool ng_abort_stuck(struct ng_abort_stuck *ret_stuck);

/*
 * Program threads, of a call on a condemned communicator: what it returns instead of calling NCCL.
 */
int ng_abort_answer(struct ng_comm *comm, const struct ng_call *call);

/* ng_gate_visit of a tracked call, which is answered as above. Program threads. */
int ng_abort_visit(const struct ng_call *call, struct ng_comm **ret_guest);

/* Of a condemned one: until the guard's abort has returned, or its bound. Program threads, outside
 * of any call on it: the abort waits for those. */
void ng_abort_await(struct ng_comm *comm);

/* Why calls on a communicator fail: the reason for a condemned one's end, or for the failure of the
 * newest wait (core/device/device_wait.h), or that the program has ended it; NULL none of these.
 * For ever readable. */
const char *ng_abort_reason(const void *handle);

/* In a forked child. */
void ng_abort_after_fork(void);

#endif
