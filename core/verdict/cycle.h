/*
 * Ranks that wait for each other in a cycle: the shortest cycle of the wait-for graph.
 *
 * Every rank of a cycle is stuck in an operation that needs the next rank, which is itself stuck in
 * another operation and has not entered this one. So the cycle cannot end, whatever the other ranks
 * do. Pure.
 */
#ifndef NCCLGUARD_CORE_VERDICT_CYCLE_H
#define NCCLGUARD_CORE_VERDICT_CYCLE_H

#include "core/verdict/wait_graph.h"

/* A rank, the operation that it is stuck in, and what that operation needs from the rank of the
 * next step (after the last step, of the first). */
struct ng_cycle_step {
    uint32_t wait;
    uint32_t stuck; /* the rank's member in that wait: index in the view */
    enum ng_op op;  /* operation that it called */
    const struct ng_absentee *next;
};

struct ng_cycle {
    struct ng_cycle_step *steps;
    uint32_t count; /* 0: there is no cycle */
    bool blurred;   /* ng_cycle_is_blurred, of any step */
};

/* Is it not certain that the rank which `step` needs is held up by its member `stuck`? It has sends
 * and receives queued after other work of its device, whose individual peers are not examined; or
 * calls of NCCL groups, whose order on the device is not certain; or another thread makes its calls
 * than the one that is stuck, and may be free. */
bool ng_cycle_is_blurred(const struct ng_view *view, const struct ng_wait_graph *waits,
                         const struct ng_cycle_step *step, uint32_t stuck);

/*
 * The result is the same for the same evidence, in whatever order it was read: of the shortest
 * cycles, the one that begins with the lowest group id. Memory from `arena`. 0 or -ENOMEM.
 */
int ng_cycle_find(const struct ng_view *view, const struct ng_wait_graph *waits,
                  struct ng_arena *arena, struct ng_cycle *ret_cycle);

/* Is `absentee`, of the wait of step `from`, stuck in the operation of step `to`? In a collective,
 * several absentees may be, not only the step's `next`. */
bool ng_cycle_leads(const struct ng_view *view, const struct ng_wait_graph *waits,
                    const struct ng_cycle_step *from, const struct ng_absentee *absentee,
                    const struct ng_cycle_step *to);

#endif
