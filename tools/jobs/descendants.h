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
    uint64_t start_ticks; /* tells a reused pid */
    char state;           /* of /proc/PID/stat */
};

/* All of them that live, ascending by pid; the caller frees. NULL with 0: there are none, or /proc
 * cannot be read. */
struct ng_descendant *ng_descendants_list(size_t *ret_count);

/* The one with this pid; NULL: it is none, or has ended. */
const struct ng_descendant *ng_descendants_find(const struct ng_descendant *list, size_t count,
                                                pid_t pid);

/* Signal this one, and no other process that has its pid by now. 0 or -errno. */
int ng_descendants_signal_one(const struct ng_descendant *descendant, int signal_number);

/* Whether a process of this pid namespace is a child of this one, or a child's child, and so on. */
bool ng_descendants_has(pid_t pid);

/* Signal all of them; stopped ones are continued, for they would get nothing but SIGKILL. Returns
 * how many. */
size_t ng_descendants_signal(int signal_number);

#endif
