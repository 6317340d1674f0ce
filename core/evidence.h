/*
 * The evidence of an incident: which files a process writes, for itself and for others.
 *
 * Incident thread only. `folder` is made where it is not there yet; what cannot be written is
 * logged, and never keeps the rest from being written.
 */
#ifndef NCCLGUARD_CORE_EVIDENCE_H
#define NCCLGUARD_CORE_EVIDENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/verdict.h"
#include "core/view.h"

/* Is the folder there, and ours to write to? False: why not was logged, once. */
bool ng_evidence_ready(const char *folder);

/* verdict.json and verdict.txt. */
void ng_evidence_save_verdict(const struct ng_verdict *verdict, const char *folder);

/* trace.json; `verdict` NULL: it is reached on another host. */
void ng_evidence_save_trace(const struct ng_view *view, const struct ng_verdict *verdict,
                            const char *folder);

/* All that process `process` of the view, which is this one, has to tell, with its stacks where
 * NCCLGUARD_STACKS wants them. Holds the program's threads still for a moment. */
void ng_evidence_dump_self(struct ng_view *view, uint32_t process, const char *folder);

/* For those of this host who cannot write for themselves: their black boxes are here. */
void ng_evidence_dump_neighbours(const struct ng_view *view, const char *folder);

/* For those on other hosts whom nobody there can speak for: what the board still has. */
void ng_evidence_dump_lost(const struct ng_view *view, const char *folder);

#endif
