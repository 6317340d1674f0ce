/*
 * The parts of the shim that the composition root (lifecycle.c) starts and hands to core, each in
 * the file of its name.
 */
#ifndef NCCLGUARD_SHIM_PARTS_H
#define NCCLGUARD_SHIM_PARTS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/nccl/cuda.h"
#include "core/runtime/runtime.h"

#pragma GCC visibility push(hidden)

/* ---- driver.c: the CUDA driver, found when the program has loaded it, never loaded by us ---- */

/*
 * Fills *ret_cuda and returns true once libcuda.so.1 is in this process with every function that
 * core needs; until then false, and *ret_cuda is untouched. A driver that lacks a function is named
 * in the log, once. Any thread; cheap enough for each creation of a communicator, not for each
 * call. Keeps errno.
 */
bool ng_driver_find(struct ng_cuda *ret_cuda);

/* Whether somebody has initialised the driver in this process, be it shut down again by now. Keeps
 * errno. */
bool ng_driver_was_initialised(void);

/* ---- cuda_memory.c: the hooks on the driver that tell core/registration/segments.h of device
 * memory ---- */

/* Enables them. Once, before the program's main. */
void ng_cuda_memory_enable(void);

/* The device of this thread's current context; -1 none. Any thread. */
int ng_cuda_memory_device(void);

/* ---- interpreter.c: the CPython of this process, as core/comm/python_frames.h reads it: where its
 * objects have what, and when it ends ---- */

/*
 * Is there an interpreter whose objects' layout is known? Then its first thread compares the layout
 * with what the interpreter itself says of its frames, at the next opportunity, and calls keep
 * frames of Python if it is right. Otherwise one line for those who debug says why not. With each
 * start of the guard; takes the dynamic linker's lock; keeps the program's dlerror.
 */
bool ng_interpreter_prepare(void);

/* ---- notice.c: what the user is told about the reach of the guard ---- */

/* One info line: what is guarded here. With the first communicator, on a program's thread. */
void ng_notice_start(const struct ng_guard *guard);

/*
 * At exit: one warning where NCCL is loaded, this process could have used it, and no call of it was
 * seen. Silent in forked children and where the guard is off. On the thread that exits.
 */
void ng_notice_exit(const struct ng_guard *guard);

/* ---- python.c: Python's own stacks, of an interpreter that the program has in this process ----
 */

/*
 * Make it possible to read the stacks later, when nothing of the interpreter can be asked any more.
 * At a quiet time: takes the dynamic linker's lock. Does nothing where there is no Python. A guard
 * thread; with each start of the guard. Keeps the program's dlerror.
 */
void ng_python_prepare(void);

/*
 * The stacks of all Python threads as CPython's faulthandler writes them, without the interpreter's
 * lock: its length, ended with a NUL. -ENOENT there is no Python; -EAGAIN it is not prepared yet,
 * as the interpreter's first thread has not come round since; or another -errno. No malloc, no
 * lock. One guard thread at a time; best while the program's threads are held still, as they are
 * walked.
 */
int ng_python_read(char *ret_text, size_t bytes);

/* In a forked child: what was prepared is the parent's. Async-signal-safe. */
void ng_python_after_fork(void);

#pragma GCC visibility pop

#endif
