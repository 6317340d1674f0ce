/*
 * Communicators that share resources of NCCL, and whose turn it is among them.
 *
 * Serves core/registration/registrations.h. A child that ncclCommSplit or ncclCommShrink makes of a
 * parent with `splitShare` or `shrinkShare` has its parent's proxy, and the sockets to those of its
 * peers, which have no lock: NCCL's documentation forbids operations on both at the same time. A
 * program that keeps to this, and frees memory on another thread, must not meet the guard in there,
 * which gives the registration back with another communicator than the program is calling. So all
 * of a family have one turn. Whoever shares nothing is a family of its own.
 *
 * Any program thread, and the one that gives registrations back. No lock of the system: a turn is
 * one word, and who waits for it says for how long.
 */
#ifndef NCCLGUARD_CORE_COMM_SHARED_RESOURCES_H
#define NCCLGUARD_CORE_COMM_SHARED_RESOURCES_H

#include <stdbool.h>
#include <stdint.h>

struct ng_call;
struct ng_comm;

struct ng_shared_resources {
    _Atomic(const void *) holder; /* the thread whose turn it is; NULL nobody */
    uint32_t depth;               /* the holder's own */
    _Atomic uint32_t members;     /* records of communicators; 0: it may be taken */
    _Atomic bool shared;          /* there were several */
};

/* A communicator is being made by this call; `parent` NULL: from nothing. Before anybody can call
 * NCCL with it; program thread. */
void ng_shared_resources_make(const struct ng_comm *comm, const struct ng_comm *parent,
                              const struct ng_call *call);

/* The one of a communicator: for ever readable. Any thread. */
struct ng_shared_resources *ng_shared_resources_of(const struct ng_comm *comm);

/* The turn. They nest. False: it is another thread's. */
bool ng_shared_resources_try_hold(struct ng_shared_resources *sharing);
bool ng_shared_resources_is_mine(const struct ng_shared_resources *sharing);
void ng_shared_resources_let_go(struct ng_shared_resources *sharing);

/* In a forked child, where whoever had a turn is no more. */
void ng_shared_resources_after_fork(void);

#endif
