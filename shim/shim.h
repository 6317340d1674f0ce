/*
 * The part of the shim that the composition root (lifecycle.c) sees.
 *
 * Any thread. Nothing here blocks or allocates, except that looking for a library calls the dynamic
 * linker.
 */
#ifndef NCCLGUARD_SHIM_SHIM_H
#define NCCLGUARD_SHIM_SHIM_H

#include <stdbool.h>

/*
 * Whether calls reach core. Initially false: the library forwards calls untouched until the
 * composition root is ready, and again once the guard stops. Calls in progress still get their
 * leave.
 */
void ng_shim_set_active(bool active);
bool ng_shim_is_active(void);

/*
 * Nothing is guarded in this process: from now on, look-ups by name return NCCL's own functions.
 * Wrappers that were handed out earlier keep forwarding. Until this is called, look-ups return our
 * wrappers, since a library's constructor may look NCCL up before our constructor has run.
 */
void ng_shim_set_inert(void);
bool ng_shim_is_inert(void);

/* In a forked child. */
void ng_shim_after_fork(void);

/* This thread belongs to the guard: its NCCL calls are never recorded, whichever way they take. */
void ng_shim_adopt_thread(void);

#endif
