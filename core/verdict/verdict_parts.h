/*
 * What a verdict is made of beside the stall that it tells of.
 *
 * Pure; inside of the verdict engine (core/verdict/verdict.h) only. All return 0 or -ENOMEM.
 */
#ifndef NCCLGUARD_CORE_VERDICT_VERDICT_PARTS_H
#define NCCLGUARD_CORE_VERDICT_VERDICT_PARTS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/verdict/verdict_builder.h"

/*
 * An error that NCCL reports says why a rank does not come, or a device does not finish. That a
 * rank died, left, froze or called something else may be why there is an error.
 */
int ng_verdict_builder_errors(struct ng_verdict_builder *builder);

/* Does NCCL report a remote error of a group in which ranks are gone, and none of its own anywhere?
 */
bool ng_verdict_builder_hears_of_gone(const struct ng_verdict_builder *builder);

/*
 * A watchdog that is stuck: what the devices of its process have finished is not known. So it is
 * the reason of what looks like a device that does not finish, or like nothing; not of what the
 * calls of the ranks explain without it, unless that was `asked` for.
 */
int ng_verdict_builder_watchdogs(struct ng_verdict_builder *builder, bool asked);

/*
 * NaN in what ranks send: why others wait where the call is held for it, unless a death or a
 * difference explains that; nothing that anybody waits for else, unless it was `asked` for.
 */
int ng_verdict_builder_nan(struct ng_verdict_builder *builder, bool asked);

/* Calls that are not alike, though nothing need be stuck. */
int ng_verdict_builder_disagreement(struct ng_verdict_builder *builder,
                                    const struct ng_disagreement *disagreement);

/* What the sends and receives of wait `index` make up: only where that is known of all who wait. */
int ng_verdict_builder_name_composed(struct ng_verdict_builder *builder, uint32_t index);

/* Runs of ranks without evidence, sends and receives that are recorded no more, and what the view
 * could not read. */
int ng_verdict_builder_list_missing_evidence(struct ng_verdict_builder *builder,
                                             const struct ng_wait *wait,
                                             const struct ng_reason *reason);

/* What was passed to the operation, and its deadline, as far as the evidence tells. */
void ng_verdict_builder_tell_arguments(struct ng_verdict_builder *builder);

/* Faults that were injected. */
int ng_verdict_builder_list_rehearsal(struct ng_verdict_builder *builder);

#endif
