/*
 * One clock for the processes of a job.
 *
 * The ages in a view are relative to the moment at which each process was inspected. That moment is
 * known on two clocks of the process's host: the monotonic clock, which all processes of the host
 * share, and the calendar clock, which is only roughly the same on all hosts. Collectives reveal
 * the difference: one that needs data of every rank ends on all of them at nearly the same time, so
 * a host on which it always ends earlier has a clock that is behind. The offset is the median over
 * collectives, host by host, starting at the host with the most processes. It is applied only if it
 * is larger than the scatter of the evidence: completion is observed by polling, and clocks
 * synchronized by NTP or PTP are mostly more accurate than that.
 *
 * Pure: no clock, no file, no lock, no malloc. Linear in the records.
 */
#ifndef NCCLGUARD_CORE_VIEW_CLOCK_SYNC_H
#define NCCLGUARD_CORE_VIEW_CLOCK_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/view/view.h"

/* One clock: a host, under the name that its processes give it. */
struct ng_clock_sync_host {
    char name[64];
    uint32_t processes;
    uint32_t samples;   /* collectives used to estimate its offset; 0: not estimated */
    int64_t offset_ns;  /* estimate; add it to the host's time */
    int64_t scatter_ns; /* median distance of the samples from the estimate */
    bool applied;
};

struct ng_clock_offsets {
    struct ng_clock_sync_host *hosts;
    uint32_t host_count;
    uint32_t *host_of;   /* per process of the view */
    int64_t *moments_ns; /* per process: Unix time that its ages are relative to; 0 if no process of
                            the view knows the time */
};

/* Estimates the clocks of a sealed view. The result is allocated in `arena`. 0 or -ENOMEM. */
int ng_clock_sync(const struct ng_view *view, struct ng_arena *arena,
                  struct ng_clock_offsets *ret_alignment);

#endif
