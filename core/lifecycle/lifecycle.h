/*
 * The lifecycle of a guard: starts its parts, and ends or forgets them.
 *
 * core/runtime/runtime.h holds what the parts share and decides when they start; it gets these
 * functions as pointers, since a lower room must not know the parts above it.
 */
#ifndef NCCLGUARD_CORE_LIFECYCLE_LIFECYCLE_H
#define NCCLGUARD_CORE_LIFECYCLE_LIFECYCLE_H

#include <stdbool.h>

/* For ng_guard.start_parts: box, board and threads. False: nothing is guarded, which is logged. */
bool ng_lifecycle_start(void);

/* For ng_guard.forget_parts. Async-signal-safe. */
void ng_lifecycle_after_fork(void);

/*
 * The process exits with `status`: check a last time what has finished, report to the board, and
 * stop the threads from using CUDA. Bounded. Called once, from the exit path.
 */
void ng_lifecycle_exit(int status);

#endif
