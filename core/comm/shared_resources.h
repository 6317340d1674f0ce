/*
 * Communicators that share NCCL resources, and the turns they take.
 *
 * Serves core/registration/registrations.h. A child that ncclCommSplit or ncclCommShrink creates
 * with `splitShare` or `shrinkShare` uses its parent's proxy and the sockets to its peers' proxies,
 * which have no lock: NCCL's documentation forbids concurrent operations on both. A program that
 * obeys this may free memory on another thread, where the guard then deregisters with a different
 * communicator than the one the program is calling; the two must not collide. So all communicators
 * of a family share one turn. A communicator that shares nothing is a family by itself.
 *
 * Any program thread, and the one that deregisters. No system lock: a turn is one word, and the
 * waiting thread decides how long it waits.
 */
#ifndef NCCLGUARD_CORE_COMM_SHARED_RESOURCES_H
#define NCCLGUARD_CORE_COMM_SHARED_RESOURCES_H

#include <stdbool.h>
#include <stdint.h>

struct ng_call;
struct ng_comm;

struct ng_shared_resources {
    _Atomic(const void *) holder; /* the thread whose turn it is; NULL none */
    uint32_t depth;               /* used by the holder alone */
    _Atomic uint32_t members;     /* records of communicators; 0: it may be reused */
    _Atomic bool shared;          /* there has been more than one */
};

/* This call creates a communicator; `parent` NULL: none. Before any thread can call NCCL with it;
 * program thread. */
void ng_shared_resources_make(const struct ng_comm *comm, const struct ng_comm *parent,
                              const struct ng_call *call);

/* The family of a communicator; readable for ever. Any thread. */
struct ng_shared_resources *ng_shared_resources_of(const struct ng_comm *comm);

/* Take, check and release the turn. Turns nest. False: another thread has it. */
bool ng_shared_resources_try_hold(struct ng_shared_resources *sharing);
bool ng_shared_resources_is_mine(const struct ng_shared_resources *sharing);
void ng_shared_resources_let_go(struct ng_shared_resources *sharing);

/* In a forked child, where the thread that had the turn does not exist. */
void ng_shared_resources_after_fork(void);

#endif
