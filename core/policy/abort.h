/*
 * Aborts communicators from outside the program, and answers the program's calls afterwards.
 *
 * Dedicated threads ("ncclguard/abort", and "ncclguard/await", which keeps the bound) call NCCL;
 * the incident thread, which gives the order, never does.
 *
 * Guarantee: once a communicator is condemned (enum ng_comm_fate), no call of the program through
 * our wrappers reaches NCCL with its handle, so nothing touches what NCCL frees:
 *   Destroy, Abort, Finalize, Revoke  ncclSuccess; Destroy and Abort wait until the guard's abort
 *                                     has returned, at most until its bound
 *   CommGetAsyncError                 ncclSuccess, and the error below as the answer
 *   GetLastError                      the reason
 *   all others                        ncclSystemError; ncclRemoteError where a peer was the cause;
 * inside an NCCL group, ncclGroupEnd returns that error, too, and NCCL launches nothing of the
 * group. This holds until NCCL gives the same handle to a new communicator.
 *
 * A call that is entering NCCL at that moment has either recorded its presence before it checked
 * the fate (in its thread's slot in the black box, in `guests` or in `open_groups`), and the abort
 * waits for it, or it sees the mark. The wait is short: a thread that stays inside is blocked
 * there, which is what the abort is meant to end, and returns with NCCL's own error. NCCL's
 * documentation requires that no thread is inside at all; NCCL accepts an abort all the same, and
 * for blocked calls it is the only way out.
 *
 * The abort waits a little longer for an open NCCL group of the program that holds calls on a
 * condemned communicator. If the group is then still open, it can never be closed, since NCCL would
 * read the freed communicator: from then on calls of that thread to that library fail.
 *
 * Not covered: calls that bypass the wrappers; calls that name a window or a CUDA graph instead of
 * the communicator; threads for which the black box has no slot; a communicator that the program
 * itself is ending, which is left to the program (a policy's order also waits for that end, and is
 * stuck if it does not come); and a record that had to be reused because 4,096 communicators of
 * this process were never destroyed.
 */
#ifndef NCCLGUARD_CORE_POLICY_ABORT_H
#define NCCLGUARD_CORE_POLICY_ABORT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/comm/comm.h"
#include "core/nccl/group_set.h"
#include "core/nccl/verdict_kind.h"

struct ng_call;

/* Origin of an order. */
enum ng_abort_origin {
    NG_ABORT_PERSON, /* communicators that the program is ending itself are left to it */
    NG_ABORT_POLICY, /* the same, but they must have ended within the bound, too */
    NG_ABORT_ORIGINS,
};

/*
 * Abort all communicators of these groups that exist in this process now, including those being
 * created. `reason` is copied: a verdict's line, with its kind, if there is one; else `kind` is
 * NG_KIND_HEALTHY. Does not wait, and calls neither NCCL nor CUDA. 0: the abort is under way, see
 * ng_abort_state; -ENOENT: no such communicator here; -EBUSY: too many earlier orders have not
 * returned; -EOPNOTSUPP: a communicator is being created and its NCCL release does not allow
 * another thread to abort that (core/policy/init_abort.h), which is logged; or -errno: nothing has
 * happened. Any guard thread; creates a thread, so the caller must be able to call malloc.
 */
int ng_abort_groups(const struct ng_group_set *scope, enum ng_verdict_kind kind, const char *reason,
                    enum ng_abort_origin origin);

/* The gravest state of all orders of one origin in this process. */
enum ng_abort_state {
    NG_ABORT_NONE,
    NG_ABORT_RETURNED,  /* all have returned */
    NG_ABORT_UNDER_WAY, /* within NCCLGUARD_ABORT_WAIT */
    NG_ABORT_STUCK,     /* one has not returned within NCCLGUARD_ABORT_WAIT; the log names it */
};

/* When this changes to RETURNED or STUCK, the incident thread is woken. Any thread. */
enum ng_abort_state ng_abort_state(enum ng_abort_origin origin);

/* Is a policy's order for this group under way? Any thread. */
bool ng_abort_concerns(uint64_t group_id);

/* The communicator that keeps an order from finishing, and why. */
struct ng_abort_stuck {
    uint64_t group_id;
    char group_name[64];
    int nranks, group_rank; /* -1 not known */
    int64_t since_ns;       /* since the order was given */
    enum ng_op op;          /* the NCCL call that does not return: CommAbort, or the program's */
    char why[320];          /* one sentence */
    char reason[NG_COMM_REASON_BYTES]; /* of the order */
};

/* Describe the first stuck order of a policy. False: none is stuck. Reads state that other threads
 * may change meanwhile; incident thread. */
bool ng_abort_stuck(struct ng_abort_stuck *ret_stuck);

/*
 * The result of a call on a condemned communicator, which is not passed to NCCL. Program threads.
 */
int ng_abort_answer(struct ng_comm *comm, const struct ng_call *call);

/* ng_gate_visit for a tracked call, which is answered as above. Program threads. */
int ng_abort_visit(const struct ng_call *call, struct ng_comm **ret_guest);

/* Wait until the guard's abort of a condemned communicator has returned, or its bound has passed.
 * Program threads, outside any call on the communicator: the abort waits for such calls. */
void ng_abort_await(struct ng_comm *comm);

/* Why calls on a communicator fail: the reason of its abort, or of the failure of the newest wait
 * (core/device/device_wait.h), or that the program has ended it; NULL none of these. Readable for
 * ever. */
const char *ng_abort_reason(const void *handle);

/* In a forked child. */
void ng_abort_after_fork(void);

#endif
