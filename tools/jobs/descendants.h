/*
 * The processes that descend from this one.
 */
#ifndef NCCLGUARD_TOOLS_JOBS_DESCENDANTS_H
#define NCCLGUARD_TOOLS_JOBS_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ng_descendant {
    pid_t pid, parent;
    uint64_t start_ticks; /* start time; detects a reused pid */
    char state;           /* of /proc/PID/stat */
};

/* All live descendants, ascending by pid; the caller frees. NULL with 0: there are none, or /proc
 * cannot be read. */
struct ng_descendant *ng_descendants_list(size_t *ret_count);

/* The descendant with this pid; NULL: there is none, or it has ended. */
const struct ng_descendant *ng_descendants_find(const struct ng_descendant *list, size_t count,
                                                pid_t pid);

/* Signal this process, but not another one that has reused its pid. 0 or -errno. */
int ng_descendants_signal_one(const struct ng_descendant *descendant, int signal_number);

/* Whether a process of this pid namespace descends from this one, or from `ancestor`. */
bool ng_descendants_has(pid_t pid);
bool ng_descendants_is_below(pid_t pid, pid_t ancestor);

/* Signal all of them; stopped ones are continued, since they would act on nothing but SIGKILL.
 * Returns how many. */
size_t ng_descendants_signal(int signal_number);

#endif
