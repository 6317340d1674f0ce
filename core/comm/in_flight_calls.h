/*
 * Program threads inside calls on a communicator: finding them, and holding new calls back for a
 * moment.
 *
 * A program thread writes its slot before it reads the communicator's fate; a thread that changes
 * the fate then fences for both sides and reads the slots. So at least one of the two sees the
 * other, and the call path needs no fence.
 */
#ifndef NCCLGUARD_CORE_COMM_IN_FLIGHT_CALLS_H
#define NCCLGUARD_CORE_COMM_IN_FLIGHT_CALLS_H

#include <stdbool.h>
#include <stdint.h>

/* Threads that one wait follows; others count as having had their share. */
#define NG_IN_FLIGHT_THREADS 64u

struct ng_comm;

/*
 * After this, a program thread either sees what this thread wrote before, or this thread sees what
 * the other wrote before it read: a full barrier on every processor that runs a program thread, so
 * that those need none of their own.
 */
void ng_in_flight_fence(void);

/* The call on this communicator that a program thread is inside, according to its slot; 0 none. */
uint32_t ng_in_flight_call(const struct ng_comm *comm);

/* Is a program thread inside a call that may be on this communicator? Closing an NCCL group may
 * involve any. */
bool ng_in_flight_inside(const struct ng_comm *comm);

/* Processor times of threads when a wait for them began. */
struct ng_in_flight_start {
    uint32_t tids[NG_IN_FLIGHT_THREADS]; /* 0 free; the first `count` are taken */
    int64_t cpu_ns[NG_IN_FLIGHT_THREADS];
    uint32_t count;
};

/*
 * Does a thread inside, as above, merely wait for a processor? It is ready to run, and has had less
 * than `least_ns` of a processor since the first call of this function that saw it inside, so that
 * nobody can tell whether NCCL would let it leave. Zero `start` before the first call. False where
 * the kernel does not say, and for a guest whose thread is not known.
 */
bool ng_in_flight_starved(const struct ng_comm *comm, int64_t least_ns,
                          struct ng_in_flight_start *start);

/*
 * Hold a converted communicator: no call of the program on it is under way, and none begins until
 * it is released, so its state may be queried (core/call/nonblocking.h says why). False: a call is
 * under way, an NCCL group is open, or it is ending. Hold only for the duration of a query to NCCL.
 * Any thread that is not itself inside a call.
 */
bool ng_in_flight_hold(struct ng_comm *comm);
void ng_in_flight_let_go(struct ng_comm *comm);

/* Wait while it is held. True: it has been condemned. */
bool ng_in_flight_await(const struct ng_comm *comm);

#endif
