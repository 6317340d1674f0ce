/*
 * Classifies a wait: has it an independent cause, and which?
 *
 * Pure; inside the verdict engine (core/verdict/verdict.h) only.
 */
#ifndef NCCLGUARD_CORE_VERDICT_WAIT_CAUSE_H
#define NCCLGUARD_CORE_VERDICT_WAIT_CAUSE_H

#include <stdbool.h>

#include "core/verdict/divergence.h"
#include "core/verdict/init_mismatch.h"
#include "core/verdict/wait_graph.h"
#include "core/view/signature.h"

struct ng_verdict_builder;

/* In ascending order of certainty that nothing else is behind the cause. */
enum ng_cause {
    NG_CAUSE_ELSEWHERE, /* every absentee is stuck in another wait, was stuck in one when it left,
                           or died after another rank left */
    NG_CAUSE_UNSEEN,    /* absentees without evidence */
    NG_CAUSE_OUTSIDE,   /* likewise, but NCCL's RAS says of one that it is gone or has not come */
    NG_CAUSE_DEVICE,    /* no rank is absent */
    NG_CAUSE_VARIABLE,  /* no rank is absent, and ranks have set variables with which NCCL may hang
                         */
    NG_CAUSE_MISSING,
    NG_CAUSE_PARTED, /* calls older than all records differed */
    NG_CAUSE_FAULT,  /* a device failed permanently, after which its rank may make no more calls */
    NG_CAUSE_STOPPED,
    NG_CAUSE_LEFT,
    NG_CAUSE_SURPLUS, /* one rank waits in a call that most others finished their work without
                         making; or that its only peer did not make, unlike in earlier rounds */
    NG_CAUSE_MISMATCH,
    NG_CAUSE_DEAD,
};

/* Why a wait has its cause, if its absentees alone do not show it. */
struct ng_reason {
    struct ng_mismatch mismatch;
    struct ng_divergence divergence;
    bool parted_long_ago; /* not the cause, but to be reported */
    struct ng_init_mismatch init;
    bool by_init; /* `init` is the mismatch */
};

/* Finds the first to leave among the processes that others wait for: `builder->leaver`. Call before
 * the functions below. */
void ng_wait_cause_find_leaver(struct ng_verdict_builder *builder);

/*
 * What NCCL's RAS says of an absentee that has no evidence, as the cause that it would be: DEAD,
 * LEFT or MISSING; UNSEEN: nothing that explains a wait. Its counts are of collectives that were
 * launched, so they tell only who has not come to one.
 */
enum ng_cause ng_wait_cause_by_ras(const struct ng_wait *wait, const struct ng_absentee *absentee);

/* The cause that the wait would have if this were its only absentee. */
enum ng_cause ng_wait_cause_of_absentee(const struct ng_verdict_builder *builder,
                                        const struct ng_wait *wait,
                                        const struct ng_absentee *absentee);

/*
 * Does a single process wait for a single other one that has finished its work? Either may be
 * wrong: the other may have made one call too few, or the waiting one a call too many.
 */
bool ng_wait_cause_is_of_two(const struct ng_verdict_builder *builder, const struct ng_wait *wait);

/* Index of the first member that waits in `wait`; UINT32_MAX none. */
uint32_t ng_wait_cause_waiter(const struct ng_verdict_builder *builder, const struct ng_wait *wait);

/* The cause of wait `wait` and the reason for it; stores what it finds about different unique ids
 * in `builder->ids`. */
enum ng_cause ng_wait_cause_of(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                               struct ng_reason *ret_reason);

#endif
