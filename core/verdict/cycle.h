/*
 * Ranks that wait for each other in a round: the shortest cycle in the wait-for relation.
 *
 * Every rank of a cycle is stuck in an operation that needs the next one, which is itself stuck in
 * another operation and has not come. It is in the way of itself, whatever all other ranks do. Step
 * 9, pure.
 */
#ifndef NCCLGUARD_CORE_VERDICT_CYCLE_H
#define NCCLGUARD_CORE_VERDICT_CYCLE_H

#include "core/verdict/wait_graph.h"

/* A rank, what it is stuck in, and what that needs of the rank of the next step (after the last
 * step, of the first). */
struct ng_cycle_step {
    uint32_t wait;
    uint32_t stuck; /* the rank's member there: index in the view */
    enum ng_op op;  /* that it called */
    const struct ng_absentee *next;
};

struct ng_cycle {
    struct ng_cycle_step *steps;
    uint32_t count; /* 0: there is no cycle */
    bool blurred;   /* sends and receives behind other work of a device: which of them need whom is
                       not looked at; or work of NCCL groups, of which the order on the device is not
                       sure */
};

/*
 * The same one for the same evidence, in whatever order that was read: of the shortest, the one
 * that begins with the lowest group id. Memory from `arena`. 0 or -ENOMEM.
 */
int ng_cycle_find(const struct ng_view *view, const struct ng_wait_graph *waits,
                  struct ng_arena *arena, struct ng_cycle *ret_cycle);

/* Is `absentee`, of the wait of step `from`, stuck where step `to` is? In a collective there may be
 * several, in the same way as the one that is its `next`. */
bool ng_cycle_leads(const struct ng_view *view, const struct ng_wait_graph *waits,
                    const struct ng_cycle_step *from, const struct ng_absentee *absentee,
                    const struct ng_cycle_step *to);

#endif
