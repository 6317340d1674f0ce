/*
 * Threads of the program inside calls on a communicator: who is there, and keeping them away for a
 * moment.
 *
 * A program thread writes where it is before it looks at the communicator's fate; who changes the
 * fate first fences for both sides, and then looks where the threads are. So either is seen by the
 * other, and the way of a call has no fence.
 */
#ifndef NCCLGUARD_CORE_COMM_IN_FLIGHT_CALLS_H
#define NCCLGUARD_CORE_COMM_IN_FLIGHT_CALLS_H

#include <stdbool.h>
#include <stdint.h>

struct ng_comm;

/*
 * After this, a program thread either sees what this one wrote before, or is seen with what it
 * wrote before it looked: a full barrier on every processor that runs one of them, so that they
 * need none of their own.
 */
void ng_in_flight_fence(void);

/* The call on this communicator that a thread of the program is inside, as its slot says; 0 none.
 */
uint32_t ng_in_flight_call(const struct ng_comm *comm);

/* Is a thread of the program inside a call that may be on this communicator? Closing a NCCL group
 * may be on any. */
bool ng_in_flight_inside(const struct ng_comm *comm);

/*
 * No call of the program on this converted communicator is under way, nor begins until it is let
 * go: so its state may be asked for (core/call/nonblocking.h says why). False: there is one, or a
 * NCCL group is open, or it is ending. For as long as a question to NCCL takes. Any thread that is
 * inside no call itself.
 */
bool ng_in_flight_hold(struct ng_comm *comm);
void ng_in_flight_let_go(struct ng_comm *comm);

/* Until it is not held. True: it has been condemned. */
bool ng_in_flight_await(const struct ng_comm *comm);

#endif
