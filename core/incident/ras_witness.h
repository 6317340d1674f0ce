/*
 * NCCL's RAS as a witness (core/view/ras.h): asked when a verdict lacks ranks, at no other time.
 *
 * The question is a task of its own (core/runtime/io_workers.h), bounded, and one at a time;
 * meanwhile the alarm is put off. One process of a host asks: of those that wait in the call, the
 * one with the lowest pid. Incident thread alone.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_RAS_WITNESS_H
#define NCCLGUARD_CORE_INCIDENT_RAS_WITNESS_H

#include <stdbool.h>

#include "core/verdict/verdict.h"
#include "core/view/view.h"

/* Add the last answer to a sealed view: words on ranks that it lacks, and a note if RAS could not
 * answer. What is older than a wait is ignored by the engine. */
void ng_ras_witness_add(struct ng_view *view);

/*
 * Is an answer awaited that may complete this verdict on `view`, of kind unknown? Begins the
 * question if there is none, nor a fresh answer. True for NG_RAS_WITNESS_NS at most; twice as long
 * where another process is the one that asks: if that one has not settled it in the first half,
 * this one asks itself. Then false for some seconds, whatever the verdicts; but `deadline`, that
 * the verdict is one of a deadline, is waited for once more, for it decides.
 */
bool ng_ras_witness_is_awaited(const struct ng_view *view, const struct ng_verdict *verdict,
                               bool deadline);

#define NG_RAS_WITNESS_NS (1600 * NG_MS)

/* Give back the memory of an answer that is not used any more. */
void ng_ras_witness_forget_old(void);

#endif
