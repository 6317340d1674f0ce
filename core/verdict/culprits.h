/*
 * Culprit selection for a wait whose cause is known: the culprits of the verdict, each with a
 * sentence.
 *
 * Pure; inside the verdict engine (core/verdict/verdict.h) only. All return 0 or -ENOMEM.
 */
#ifndef NCCLGUARD_CORE_VERDICT_CULPRITS_H
#define NCCLGUARD_CORE_VERDICT_CULPRITS_H

#include "core/verdict/cycle.h"
#include "core/verdict/verdict_builder.h"

/* Adds the absentees that are the cause. */
int ng_culprits_absentees(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                          enum ng_cause cause);

/*
 * Adds ranks that block other groups at the same time and in the same way as the culprits of wait
 * `best` block theirs: neither is a consequence of the other. Lost ranks are added whatever they
 * block.
 */
int ng_culprits_others(struct ng_verdict_builder *builder, uint32_t best, enum ng_cause cause);

/* Adds the other ranks of culprits that have ended, or are frozen: a process that drives several
 * devices ends with all of its ranks. */
int ng_culprits_of_processes(struct ng_verdict_builder *builder);

/* Adds the ranks whose call differs from that of the majority. */
int ng_culprits_mismatch(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                         const struct ng_mismatch *mismatch);

/* No absentee has evidence that explains the wait: adds those of which NCCL's RAS says the worst.
 * At most likely. */
int ng_culprits_outside(struct ng_verdict_builder *builder, const struct ng_wait *wait);

/* Adds the one rank that waits in a call that the others finished their work without making. */
int ng_culprits_surplus(struct ng_verdict_builder *builder, const struct ng_wait *wait);

/* Adds the ranks that try to create a different communicator than the others. */
int ng_culprits_init(struct ng_verdict_builder *builder, const struct ng_init_mismatch *mismatch);

/* Adds the minority at the collective at which the hashes were compared. */
int ng_culprits_parted(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                       const struct ng_divergence *divergence);

/* All ranks made the call. If only some devices have reached the operation, the others are blocked
 * by work queued before it, and their ranks are the culprits. */
int ng_culprits_device(struct ng_verdict_builder *builder, const struct ng_wait *wait);

/* Of the same verdict, which names nobody so far: what the connections of the ranks show. */
int ng_culprits_edges(struct ng_verdict_builder *builder, const struct ng_wait *wait);

/* Of the same verdict: unless a rank is named, those of whose devices the driver knows an error
 * that explains it. */
int ng_culprits_driver(struct ng_verdict_builder *builder, const struct ng_wait *wait);

/*
 * Adds every rank that is in a step of the cycle and so blocks the step before; of two steps, the
 * ranks of the step that has fewer. *ret_wait: the wait to report, which those ranks have not
 * entered.
 */
int ng_culprits_order(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      uint32_t *ret_wait);

/*
 * Is this not a cycle across communicators, but one communicator on which some ranks create another
 * (split, shrink, grow) while others are in another call? All ranks must make the calls on it in
 * the same order, so one side has made the wrong call.
 */
bool ng_culprits_is_stray(const struct ng_wait_graph *waits, const struct ng_cycle *cycle);

/* Adds the side that has fewer ranks; both if it is not known which is wrong. *ret_wait: the wait
 * to report. */
int ng_culprits_stray(struct ng_verdict_builder *builder, const struct ng_cycle *cycle,
                      uint32_t *ret_wait);

#endif
