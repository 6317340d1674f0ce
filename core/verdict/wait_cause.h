/*
 * Whether a wait has a cause of its own, and which.
 *
 * Pure; inside of the verdict engine (core/verdict/verdict.h) only.
 */
#ifndef NCCLGUARD_CORE_VERDICT_WAIT_CAUSE_H
#define NCCLGUARD_CORE_VERDICT_WAIT_CAUSE_H

#include <stdbool.h>

#include "core/verdict/divergence.h"
#include "core/verdict/init_mismatch.h"
#include "core/verdict/wait_graph.h"
#include "core/view/signature.h"

struct ng_verdict_builder;

/* In rising order of how little can be behind it. */
enum ng_cause {
    NG_CAUSE_ELSEWHERE, /* every absentee is stuck in another wait, or was when it left, or died
                           after another left */
    NG_CAUSE_UNSEEN,    /* absentees without evidence */
    NG_CAUSE_DEVICE,    /* nobody is absent */
    NG_CAUSE_VARIABLE,  /* likewise, and ranks have variables by which NCCL may hang then */
    NG_CAUSE_MISSING,
    NG_CAUSE_PARTED, /* calls that nobody has records of any more were not alike */
    NG_CAUSE_FAULT,  /* a device failed for good: its rank may not call any more after that */
    NG_CAUSE_STOPPED,
    NG_CAUSE_LEFT,
    NG_CAUSE_SURPLUS, /* one rank waits in a call that most others came to their end without, or,
                         unlike in earlier rounds, its only peer */
    NG_CAUSE_MISMATCH,
    NG_CAUSE_DEAD,
};

/* Why a wait has the cause that it has, where that takes more than its absentees. */
struct ng_reason {
    struct ng_mismatch mismatch;
    struct ng_divergence divergence;
    bool parted_long_ago; /* no cause, but to be told of */
    struct ng_init_mismatch init;
    bool by_init; /* that is the mismatch */
};

/* Finds who left first of those that others wait for, `judge->leaver`. Before all that follows. */
void ng_wait_cause_find_leaver(struct ng_verdict_builder *builder);

/* What one absentee alone would make of its wait. */
enum ng_cause ng_wait_cause_of_absentee(const struct ng_verdict_builder *builder,
                                        const struct ng_wait *wait,
                                        const struct ng_absentee *absentee);

/*
 * Does one rank wait alone for one other, which is at its end? Either may be wrong: that one may
 * have made a call too few, or the one that waits a call too many.
 */
bool ng_wait_cause_is_of_two(const struct ng_verdict_builder *builder, const struct ng_wait *wait);

/* Index of the first member that waits in it; UINT32_MAX none. */
uint32_t ng_wait_cause_waiter(const struct ng_verdict_builder *builder, const struct ng_wait *wait);

/* The cause of wait `wait` of the judgement, and the reason for it; remembers what it finds about
 * different unique ids in `judge->ids`. */
enum ng_cause ng_wait_cause_of(struct ng_verdict_builder *builder, const struct ng_wait *wait,
                               struct ng_reason *ret_reason);

#endif
