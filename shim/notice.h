/*
 * What the user is told about the reach of the guard: what it guards, and what slipped by.
 */
#ifndef NCCLGUARD_SHIM_NOTICE_H
#define NCCLGUARD_SHIM_NOTICE_H

#include "core/runtime/runtime.h"

/* One info line: what is guarded here. With the first communicator, on a program's thread. */
void ng_notice_start(const struct ng_guard *guard);

/*
 * At exit: one warning where NCCL is loaded, this process could have used it, and no call of it was
 * seen. Silent in forked children and where the guard is off. On the thread that exits.
 */
void ng_notice_exit(const struct ng_guard *guard);

#endif
