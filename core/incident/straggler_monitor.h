/*
 * Whom the ranks of a group wait for, while the job runs.
 *
 * Now and then the incident thread looks at what ranks have measured (core/verdict/straggler.h),
 * for the status lines and the metrics of this process's groups: of groups whose ranks are all on
 * this host, by their black boxes; of others, where this process has global rank 0, by the board.
 * Nothing is done about it.
 */
#ifndef NCCLGUARD_CORE_INCIDENT_STRAGGLER_MONITOR_H
#define NCCLGUARD_CORE_INCIDENT_STRAGGLER_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "core/view/view.h"

#define NG_STRAGGLER_MONITOR_MAX 64 /* groups that have a straggler */

struct ng_slow_rank {
    uint64_t group_id;
    int rank;               /* global, of who comes last */
    uint32_t last, samples; /* in `last` of `samples` measured collectives */
    int64_t wait_ns;        /* of the others for it, median */
};

/* How often to look; 0 nobody wants to know. Any thread. */
void ng_straggler_monitor_start(int64_t interval_ns);

/* Is it time to look? Incident thread. */
bool ng_straggler_monitor_is_due(int64_t now_mono_ns);

/*
 * Keep what a sealed view says of the groups of this process (`self` of a process in it), and what
 * was kept of others is forgotten. False: of some of them it does not have all ranks. Incident
 * thread.
 */
bool ng_straggler_monitor_keep(const struct ng_view *view, int64_t now_mono_ns);

/* The group's straggler, where one is known for sure enough. Guard threads. */
bool ng_straggler_monitor_find(uint64_t group_id, struct ng_slow_rank *ret_late);

void ng_straggler_monitor_after_fork(void);

#endif
