/*
 * Ranks that ended because their own work was stuck, as the watchdogs of frameworks end their rank,
 * and programs with a timeout of their own.
 *
 * They are victims of what they waited for, not why others wait. A wait is suspect as in the
 * watchdog: after NCCLGUARD_SUSPECT, or after NCCLGUARD_COLD_SUSPECT where NCCL may create or
 * connect communicators, if it is not usual for the group. A wait for a rank is long from half of
 * that: by then others have reported it, or are about to. Pure; inside the engine
 * (core/verdict/verdict.h) only.
 */
#ifndef NCCLGUARD_CORE_VERDICT_VICTIMS_H
#define NCCLGUARD_CORE_VERDICT_VICTIMS_H

#include "core/verdict/verdict_builder.h"

struct ng_victims {
    int64_t gave_up_ns; /* time since the first culprit gave up; 0: none of them did */
    bool killed;        /* one of them by a signal by which nobody gives up: not SIGABRT */
    char unknown[64];   /* the ranks among them whose end may have another reason; "" none */
};

/*
 * Finds the victims among the culprits of `verdict` that ended. *ret_past is the view as it was
 * before they, and others that gave up, ended; it shares everything with `view` but its processes,
 * which `arena` owns. 0 or -ENOMEM.
 */
int ng_victims_find(const struct ng_view *view, const struct ng_verdict *verdict,
                    struct ng_arena *arena, struct ng_view *ret_past,
                    struct ng_victims *ret_victims);

/*
 * Were the waits of all ranks in the call suspect when the first gave up? `builder` has the verdict
 * on the past view. If one was not, or if one that ended was killed or crashed, that end is why the
 * call does not end.
 */
bool ng_victims_shared_wait(const struct ng_victims *victims,
                            const struct ng_verdict_builder *builder);

/* Adds what is known of the victims, which were the culprits of verdict `first`, to `verdict`, on
 * what they waited for. 0 or -ENOMEM. */
int ng_victims_tell(const struct ng_victims *victims, const struct ng_verdict *first,
                    struct ng_verdict *verdict);

/*
 * A culprit that died in the call may be a victim of a live rank that has not come to it, though it
 * had not waited for long: nothing is certain but that the call never ends. Not if it crashed.
 */
int ng_victims_doubt_death(struct ng_verdict_builder *builder, const struct ng_wait *wait);

/* By abort(), as watchdogs end their rank, and the guard; any other end may have a reason of its
 * own. */
bool ng_victims_is_abort(int exit_status);

/* By a signal that a fault of its own code raises; SIGABRT is not one of them. */
bool ng_victims_is_crash(int exit_status);

#endif
