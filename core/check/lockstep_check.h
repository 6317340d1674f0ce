/*
 * Agreeing before each launch (NCCLGUARD_CHECK=strict): a collective is made once every rank of the
 * group has reached it with the same call. The ranks of a host agree first, then the hosts.
 *
 * Each collective costs some microseconds if the group is on one host (core/check/rendezvous.h),
 * and some round trips to the store if it spans several. In return, ranks whose calls differ get an
 * error from the call, and nothing hangs; a rank that does not arrive is detected before anything
 * is launched. While the store is unavailable, or with NCCL_COMM_ID, only the ranks of each host
 * agree. Calls in NCCL groups do not wait: a call that a group has collected can no longer be
 * withdrawn.
 */
#ifndef NCCLGUARD_CORE_CHECK_LOCKSTEP_CHECK_H
#define NCCLGUARD_CORE_CHECK_LOCKSTEP_CHECK_H

#include <stdbool.h>
#include <stdint.h>

struct ng_board;
struct ng_call;
struct ng_comm;

/*
 * Wait until all ranks have reached collective `seq`. NG_CALL_PROCEED: their calls are alike, or
 * this cannot be determined. Else what the call returns, on every rank: NG_NCCL_INVALID_USAGE: the
 * calls differ; NG_NCCL_SYSTEM_ERROR: a rank did not arrive by the deadline, or the communicator is
 * being aborted. Program thread whose slot in the black box shows that it is in the call.
 */
int ng_lockstep_agree(const struct ng_call *call, struct ng_comm *comm, uint64_t seq,
                      char *ret_reason, unsigned bytes);

/* A collective is made without the check, as in an NCCL group: ranks that wait for it can proceed.
 * Program thread. */
void ng_lockstep_pass(struct ng_comm *comm, uint64_t seq);

/* NCCL rejected a collective that all ranks had agreed on: its number will be used again. Program
 * thread. */
void ng_lockstep_take_back(struct ng_comm *comm, uint64_t seq);

/* Check which ranks have arrived. Incident thread, each round. True: a call is waiting, call again
 * soon. */
bool ng_lockstep_check(struct ng_board *board, int64_t now_mono_ns);

/* In a forked child. */
void ng_lockstep_after_fork(void);

#endif
