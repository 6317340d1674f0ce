/*
 * The guard's half of where calls were made: rules for places that walks did not know, frames of
 * the records that lacked them, and names.
 *
 * Only where NCCLGUARD_STACKS is `call`. One thread, which looks every few milliseconds whether a
 * walk met a place without a rule (core/comm/call_stack.h): a program's thread makes no system
 * call, not even to wake it. It asks neither the dynamic linker nor, for what a walk needs, any
 * file; names from files are a task of core/runtime/io_workers.h.
 */
#ifndef NCCLGUARD_CORE_COMM_FRAME_SYMBOLIZER_H
#define NCCLGUARD_CORE_COMM_FRAME_SYMBOLIZER_H

/* Make the table of rules, and start the thread; where the box has no frames, nothing. 0 or
 * -errno. */
int ng_frame_symbolizer_start(void);

/* The thread ends by itself, soon: nobody is left to be guarded. Any thread. */
void ng_frame_symbolizer_quit(void);

/* In a forked child. */
void ng_frame_symbolizer_after_fork(void);

#endif
