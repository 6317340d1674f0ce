/*
 * NCCL's functions that allocate and register memory, as the program calls them.
 *
 * Beside the steps of a call. Program threads, from the exported wrappers, which forward these
 * calls untouched if memory is not tracked.
 */
#ifndef NCCLGUARD_SHIM_MEMORY_CALLS_H
#define NCCLGUARD_SHIM_MEMORY_CALLS_H

#include "shim/instance.h"

struct ng_comm;

/*
 * The function to call in place of the library's own function of row `id`, at once and on this
 * thread, with the same prototype; NULL: the library's own. `guest`: the communicator of the call;
 * `caller`: the return address in the program.
 */
void *ng_memory_call(enum ng_api_id id, const struct ng_instance *instance, struct ng_comm *guest,
                     const void *caller) __attribute__((visibility("hidden")));

#endif
