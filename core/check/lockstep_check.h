/*
 * Agreeing before each launch (NCCLGUARD_CHECK=strict): a collective is made when every rank of the
 * group has come to it with the same call: first those of a host, then the hosts among themselves.
 *
 * For debugging: each collective costs a round of the incident threads, about a millisecond, and
 * where a group has several hosts some round trips to the store. So ranks that differ get an error
 * from the call, and nothing hangs; and one that does not come is missing before anything is
 * launched. While the store cannot be used, or with NCCL_COMM_ID, the ranks of each host agree
 * alone. Calls of NCCL groups are not waited for: what a group has collected can no longer be taken
 * back.
 */
#ifndef NCCLGUARD_CORE_CHECK_LOCKSTEP_CHECK_H
#define NCCLGUARD_CORE_CHECK_LOCKSTEP_CHECK_H

#include <stdbool.h>
#include <stdint.h>

struct ng_board;
struct ng_call;
struct ng_comm;

/*
 * Wait until all have come to collective `seq`. NG_CALL_PROCEED: they are alike; or nobody can
 * tell. Else what the call returns, on every rank: NG_NCCL_INVALID_USAGE: they differ;
 * NG_NCCL_SYSTEM_ERROR: one did not come by the deadline, or the communicator is being aborted.
 * Program thread whose slot in the black box says that it is in the call.
 */
int ng_lockstep_agree(const struct ng_call *call, struct ng_comm *comm, uint64_t seq,
                      char *ret_reason, unsigned bytes);

/* A collective is made without asking, as in an NCCL group: whoever waits for it need not. Program
 * thread. */
void ng_lockstep_pass(struct ng_comm *comm, uint64_t seq);

/* NCCL refused a collective that all had agreed on: its number comes again. Program thread. */
void ng_lockstep_take_back(struct ng_comm *comm, uint64_t seq);

/* Look who has come. Incident thread, each round. True: somebody waits, look again soon. */
bool ng_lockstep_tend(struct ng_board *board, int64_t now_mono_ns);

/* In a forked child. */
void ng_lockstep_after_fork(void);

#endif
