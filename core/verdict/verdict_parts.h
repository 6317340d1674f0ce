/*
 * The parts of a verdict other than the stall itself.
 *
 * Pure; inside the verdict engine (core/verdict/verdict.h) only. All return 0 or -ENOMEM.
 */
#ifndef NCCLGUARD_CORE_VERDICT_VERDICT_PARTS_H
#define NCCLGUARD_CORE_VERDICT_VERDICT_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/verdict/verdict_builder.h"

/*
 * An error that NCCL reports explains why a rank does not make a call, or why a device does not
 * finish. A rank that died, left, froze or made a different call may in turn explain the error.
 */
int ng_verdict_builder_errors(struct ng_verdict_builder *builder);

/* Does NCCL report a remote error for a group in which ranks are gone, and no local error
 * anywhere? */
bool ng_verdict_builder_has_error_of_gone(const struct ng_verdict_builder *builder);

/*
 * If a watchdog is stuck, it is not known what the devices of its process have finished. So it is
 * the reason if a device appears not to finish, or nothing appears wrong; it is not the reason if
 * the ranks' calls explain the stall without it, unless the query was made because of it (`asked`).
 */
int ng_verdict_builder_watchdogs(struct ng_verdict_builder *builder, bool asked);

/*
 * Of a missing rank, or of a call too many: adds to what is said of the culprits that the watchdog
 * of a rank hangs. If only such ranks wait in the call, that may be over, and the verdict is no
 * longer certain.
 */
void ng_verdict_builder_tell_unwatched(struct ng_verdict_builder *builder,
                                       const struct ng_wait *wait);

/*
 * NaN in what ranks send: the reason why others wait if the call is held because of it, unless a
 * death or a difference explains the wait. Otherwise NaN is not reported as the cause of a wait
 * unless explicitly requested (`asked`).
 */
int ng_verdict_builder_nan(struct ng_verdict_builder *builder, bool asked);

/*
 * Ranks that crashed by a signal that is known, whoever waited. Certain only if the others ended
 * after it, as far as the view shows (NG_LIFE_ENDED_BY_GUARD), and it was not itself waiting.
 */
int ng_verdict_builder_crashes(struct ng_verdict_builder *builder);

/* Calls that differ, whether or not anything is stuck. */
int ng_verdict_builder_disagreement(struct ng_verdict_builder *builder,
                                    const struct ng_disagreement *disagreement);

/* Names what the sends and receives of wait `index` form, only if that is known of all waiting
 * ranks. */
int ng_verdict_builder_name_composed(struct ng_verdict_builder *builder, uint32_t index);

/* Lists ranges of ranks without evidence, sends and receives that are no longer recorded, and what
 * the view could not read. */
int ng_verdict_builder_list_missing_evidence(struct ng_verdict_builder *builder,
                                             const struct ng_wait *wait,
                                             const struct ng_reason *reason);

/* Adds the arguments of the operation and its deadline, as far as they are known. */
void ng_verdict_builder_tell_arguments(struct ng_verdict_builder *builder);

/* Lists what the driver knows of the devices of the verdict's group. */
int ng_verdict_builder_devices(struct ng_verdict_builder *builder);

/* Lists the faults that were injected. */
int ng_verdict_builder_list_rehearsal(struct ng_verdict_builder *builder);

#endif
