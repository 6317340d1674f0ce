/*
 * Processes below this one that have started under guard, as they tell it: core/recorder/loaded.h.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_ARRIVALS_H
#define NCCLGUARD_TOOLS_JOBS_ARRIVALS_H

#include <stdbool.h>

#include "core/recorder/loaded.h"

/* Receive what processes under the `ncclguard run` of this id tell. A descriptor, or -errno. */
int ng_arrivals_open(const char *run_id);

/* The next descendant of this process that has started, with its pid; it may have ended. False:
 * none at the moment. */
bool ng_arrivals_next(int fd, struct ng_loaded *ret_loaded, int *ret_pid);

#endif
