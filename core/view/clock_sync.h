/*
 * One clock for the processes of a job.
 *
 * A view tells ages, each as of the moment at which its process was looked at. That moment is known
 * by the clocks of the process's host: the monotonic one, the same for all processes of the host,
 * and the one of the calendar, which hosts keep alike more or less well. Where it is off,
 * collectives show it: one that needs data of every rank ends on all of them at nearly the same
 * time, so a host on which it always ends earlier has a clock that is behind. The difference is
 * taken as the median over collectives, host by host from the one with the most processes on, and
 * is applied only where it is larger than what the evidence scatters by: completion is seen by
 * polling, and clocks that are kept in step by NTP or PTP are mostly better than that.
 *
 * Pure: no clock, no file, no lock, no malloc. Linear in the records.
 */
#ifndef NCCLGUARD_CORE_VIEW_CLOCK_SYNC_H
#define NCCLGUARD_CORE_VIEW_CLOCK_SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/view/view.h"

/* One clock: a host, as its processes name it. */
struct ng_clock_sync_host {
    char name[64];
    uint32_t processes;
    uint32_t samples;   /* collectives that its offset was estimated from; 0: not estimated */
    int64_t offset_ns;  /* estimated: to be added to its time */
    int64_t scatter_ns; /* median distance of the samples from the estimate */
    bool applied;
};

struct ng_clock_offsets {
    struct ng_clock_sync_host *hosts;
    uint32_t host_count;
    uint32_t *host_of;   /* per process of the view */
    int64_t *moments_ns; /* per process: Unix time that its ages are as of; 0 where no process of
                            the view knows the time */
};

/* The clocks of a sealed view. What is returned belongs to `arena`. 0 or -ENOMEM. */
int ng_clock_sync(const struct ng_view *view, struct ng_arena *arena,
                  struct ng_clock_offsets *ret_alignment);

#endif
