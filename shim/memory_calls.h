/*
 * NCCL's functions that allocate memory and register it, as the program calls them.
 *
 * Beside the steps of a call. Program threads, from the exported wrappers, which forward these
 * calls untouched where nobody follows memory.
 */
#ifndef NCCLGUARD_SHIM_MEMORY_CALLS_H
#define NCCLGUARD_SHIM_MEMORY_CALLS_H

#include "shim/instance.h"

struct ng_comm;

/*
 * What to call in place of the library's own function of row `id`, at once and on this thread, with
 * the same prototype; NULL: that itself. `guest`: the communicator that the call is on; `caller`:
 * the return address in the program.
 */
void *ng_memory_call(enum ng_api_id id, const struct ng_instance *instance, struct ng_comm *guest,
                     const void *caller) __attribute__((visibility("hidden")));

#endif
