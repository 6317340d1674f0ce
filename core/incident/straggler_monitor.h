/*
 * Finds the straggler of each group while the job runs.
 *
 * Periodically the incident thread evaluates what the ranks have measured
 * (core/verdict/straggler.h), for the status lines and metrics of this process's groups. Groups
 * whose ranks are all on this host are read from their black boxes; other groups are read from the
 * board, by global rank 0 only. Stragglers are only reported.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_STRAGGLER_MONITOR_H
#define NCCLGUARD_CORE_INCIDENT_STRAGGLER_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/view/view.h"

#define NG_STRAGGLER_MONITOR_MAX 64 /* groups with a straggler */

struct ng_slow_rank {
    uint64_t group_id;
    int rank;               /* global rank of the straggler */
    uint32_t last, samples; /* it was last in `last` of `samples` measured collectives */
    int64_t wait_ns;        /* median wait of the other ranks for it */
};

/* Set how often to evaluate; 0 never. Any thread. */
void ng_straggler_monitor_start(int64_t interval_ns);

/* Is an evaluation due? Incident thread. */
bool ng_straggler_monitor_is_due(int64_t now_mono_ns);

/*
 * Keep the stragglers that a sealed view shows for the groups of this process (`self` of a process
 * in it), and forget those kept for other groups. False: the view lacks ranks of some of these
 * groups. Incident thread.
 */
bool ng_straggler_monitor_keep(const struct ng_view *view, int64_t now_mono_ns);

/* The group's straggler, if one is sufficiently certain. Guard threads. */
bool ng_straggler_monitor_find(uint64_t group_id, struct ng_slow_rank *ret_late);

#endif
