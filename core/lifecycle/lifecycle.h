/*
 * The life of a guard: the parts that it consists of, from its start to its end.
 *
 * What is common to them, and when they start, is in core/runtime/runtime.h, which is handed these
 * functions: rooms below know of none of the parts above them.
 */
#ifndef NCCLGUARD_CORE_LIFECYCLE_LIFECYCLE_H
#define NCCLGUARD_CORE_LIFECYCLE_LIFECYCLE_H

#include <stdbool.h>

/* For ng_guard.start_parts: box, board and threads. False: nothing is guarded, which is logged. */
bool ng_lifecycle_start(void);

/* For ng_guard.forget_parts. Async-signal-safe. */
void ng_lifecycle_after_fork(void);

/*
 * The process exits with `status`: take a last look at what has finished, tell the board, and stop
 * the threads from touching CUDA. Bounded. Called once, from the exit path.
 */
void ng_lifecycle_exit(int status);

#endif
