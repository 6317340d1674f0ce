/*
 * The processes that descend from this one.
 */
#ifndef NCCLGUARD_TOOLS_DESCENDANTS_H
#define NCCLGUARD_TOOLS_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Whether a process of this pid namespace is a child of this one, or a child's child, and so on. */
bool ng_descendants_has(pid_t pid);

/* Signal all of them; stopped ones are continued, for they would get nothing but SIGKILL. Returns
 * how many. */
size_t ng_descendants_signal(int signal_number);

#endif
