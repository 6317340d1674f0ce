/*
 * The guard's half of call sites: unwind rules for addresses that walks did not know, missing
 * frames of records, and symbol names.
 *
 * Only if NCCLGUARD_STACKS is `call`. One thread, which polls every few milliseconds for walks that
 * reached an address without a rule (core/comm/call_stack.h): program threads make no system call,
 * not even to wake it. It uses neither the dynamic linker nor, for what a walk needs, any file;
 * reading names from files is a task of core/runtime/io_workers.h.
 */
#ifndef NCCLGUARD_CORE_COMM_FRAME_SYMBOLIZER_H
#define NCCLGUARD_CORE_COMM_FRAME_SYMBOLIZER_H

/* Create the table of rules and start the thread; does nothing if the box has no frames. 0 or
 * -errno. */
int ng_frame_symbolizer_start(void);

/* Tell the thread to end soon: no program thread is left to guard. Any thread. */
void ng_frame_symbolizer_quit(void);

/* In a forked child. */
void ng_frame_symbolizer_after_fork(void);

#endif
