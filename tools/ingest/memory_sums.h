/*
 * Device memory and registered buffers of a rank, and of a group: sums over its members.
 *
 * Pure, for a sealed view.
 */
#ifndef NCCLGUARD_TOOLS_INGEST_MEMORY_SUMS_H
#define NCCLGUARD_TOOLS_INGEST_MEMORY_SUMS_H

#include <stdbool.h>
#include <stdint.h>

#include "core/util/text.h"
#include "core/view/view.h"

/* All members of a group together; not `known`: no member reports it. `closed`: all of them are. */
void ng_memory_sums_group(const struct ng_view *view, uint32_t group,
                          struct ng_view_registration *ret_sum);

/* All communicators of a process. A segment registered with two of them counts twice. */
void ng_memory_sums_process(const struct ng_view *view, uint32_t process,
                            struct ng_view_registration *ret_sum);

/* All kinds of its memory. False: not tracked. */
bool ng_memory_sums_memory(const struct ng_view_process *process, struct ng_memory_sum *ret_sum);

/* Percentage of `bytes` of sends and receives that used registered memory. */
unsigned ng_memory_sums_share(const struct ng_view_registration *registration);

/* "12, 3.5 GiB": a count, and bytes. */
void ng_memory_sums_add_sum(struct ng_text *text, uint64_t segments, uint64_t bytes);

/* "87% of the bytes sent and received, 12 segments (3.5 GiB), 0.013 s spent", and failures. */
void ng_memory_sums_add(struct ng_text *text, const struct ng_view_registration *registration);

#endif
