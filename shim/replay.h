/*
 * Calls that an injected fault has put off (`swap`), made in their turn.
 *
 * After the end of the call that they come after, on the same thread, as if the program made them
 * then. Only where faults are armed.
 */
#ifndef NCCLGUARD_SHIM_REPLAY_H
#define NCCLGUARD_SHIM_REPLAY_H

struct ng_injection;

/* The call that this belongs to is over: what follows it is made. */
void ng_replay_end(struct ng_injection *injection) __attribute__((visibility("hidden")));

#endif
