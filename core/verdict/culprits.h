/*
 * Who is to blame for a wait whose cause is known: the culprits of the verdict, each with a
 * sentence.
 *
 * Pure; inside of the verdict engine (core/verdict/verdict.h) only. All return 0 or -ENOMEM.
 */
#ifndef NCCLGUARD_CORE_VERDICT_CULPRITS_H
#define NCCLGUARD_CORE_VERDICT_CULPRITS_H

#include "core/verdict/cycle.h"
#include "core/verdict/verdict_builder.h"

/* The absentees that are the cause. */
int ng_culprits_absentees(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                          enum ng_cause cause);

/*
 * Ranks that hold up other groups at the same time and in the same way as the culprits of wait
 * `best` hold up theirs: they are no consequence of each other. Ranks that are lost are told of
 * whatever they hold up.
 */
int ng_culprits_others(struct ng_verdict_builder *builder, uint32_t best, enum ng_cause cause);

/* Ranks whose call differs from what the most have called. */
int ng_culprits_mismatch(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                         const struct ng_mismatch *mismatch);

/* The one rank that waits, in a call that the others have come to their end without. */
int ng_culprits_surplus(struct ng_verdict_builder *builder, const struct ng_wait *wait);

/* Ranks that mean another communicator than the others. */
int ng_culprits_init(struct ng_verdict_builder *builder, const struct ng_init_mismatch *mismatch);

/* The minority, where sides were taken. */
int ng_culprits_parted(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                       const struct ng_divergence *divergence);

/* Everybody came. Where some devices have reached the work and some have not, those are held up by
 * what is queued. */
int ng_culprits_device(struct ng_verdict_builder *builder, const struct ng_wait *wait);

/*
 * Everyone that is where a step of the cycle is, and so holds up the step before; of two steps,
 * those of the one that has fewer ranks. *ret_wait: the wait that is told of, which those have not
 * come to.
 */
int ng_culprits_order(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      uint32_t *ret_wait);

/*
 * Is it no cycle across communicators, but one communicator of which some make another (split,
 * shrink, grow), and some are in another call? All calls on it come in one order, so one side has
 * made the wrong call.
 */
bool ng_culprits_is_stray(const struct ng_wait_graph *waits, const struct ng_cycle *cycle);

/* The side that has fewer ranks; both, where nobody can tell. *ret_wait: the wait that is told of.
 */
int ng_culprits_stray(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      uint32_t *ret_wait);

#endif
