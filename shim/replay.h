/*
 * Calls that an injected fault has postponed (`swap`), made in their turn.
 *
 * They run after the end of the call that they follow, on the same thread, as if the program made
 * them then. Only if faults are armed.
 */
#ifndef NCCLGUARD_SHIM_REPLAY_H
#define NCCLGUARD_SHIM_REPLAY_H

#include "shim/instance.h"

struct ng_injection;

/* The call has ended: make the postponed calls that follow it, through the wrappers: the exported
 * names could lead to an interposer. */
void ng_replay_end(struct ng_injection *injection, const struct ng_functions *wrappers)
    __attribute__((visibility("hidden")));

#endif
