/*
 * What the composition root (lifecycle.c) sees of the shim.
 *
 * Any thread. Nothing here waits or allocates, except that looking for a library calls the dynamic
 * linker.
 */
#ifndef NCCLGUARD_SHIM_SHIM_H
#define NCCLGUARD_SHIM_SHIM_H

#include <stdbool.h>

#include "core/nccl/api.h"
#include "core/nccl/nccl.h"

/*
 * Whether calls reach core. False from the start: the library forwards untouched until the
 * composition root is ready, and again once it has been told to stop. Calls that are under way keep
 * their leave.
 */
void ng_shim_set_active(bool active);
bool ng_shim_is_active(void);

/*
 * Nothing is to be guarded in this process: from now on look-ups by name get NCCL's own functions.
 * Those that were handed out before go on to forward. Before it is said, look-ups already get our
 * wrappers, since a library's constructor may look NCCL up before ours has run.
 */
void ng_shim_set_inert(void);
bool ng_shim_is_inert(void);

/* In a forked child. */
void ng_shim_after_fork(void);

/* This thread is the guard's own: its NCCL calls are never recorded, whatever way they take. */
void ng_shim_adopt_thread(void);

/* Libraries of NCCL known so far; index below the count. Entries stay valid for ever. */
unsigned ng_shim_nccl_count(void);
const struct ng_nccl *ng_shim_nccl(unsigned index);

#endif
