/*
 * Numbers that are none (NaN) in what a call is to send: NCCLGUARD_CHECK=…+nan.
 *
 * Before a call is made, a kernel of the guard looks through its send buffer, on the program's
 * stream, and neither the program's thread nor its device waits for the host. The watchdog finds
 * the answer. Where the policy is to kill, the stream goes on only if nothing was found.
 */
#ifndef NCCLGUARD_CORE_CHECK_NAN_H
#define NCCLGUARD_CORE_CHECK_NAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ng_alarm;
struct ng_call;
struct ng_comm;

/* It is wanted: can it be had? Says so where not. Before any guard thread runs. */
bool ng_nan_start(void);

/*
 * A collective, send or receive is about to be made, as number `seq` of the group's collectives (0:
 * it is none) or `p2p_seq` of its sends and receives. Program threads; what cannot be looked at is
 * passed over.
 */
void ng_nan_look_at(const struct ng_call *call, struct ng_comm *comm, uint64_t seq,
                    uint64_t p2p_seq);

/* The watchdog's round: what was found goes into the black box, and an alarm is raised for the
 * first, as soon as those of other ranks that came before it have been found, too. */
void ng_nan_tend(int64_t now_mono_ns, uint32_t restarts);

/* In a forked child. */
void ng_nan_after_fork(void);

#endif
