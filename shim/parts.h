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

/* ---- driver.c: the CUDA driver, once the program has loaded it; never loaded by us ---- */

/*
 * Fills *ret_cuda and returns true once libcuda.so.1 is in this process with every function that
 * core needs; before that returns false and leaves *ret_cuda untouched. A driver that lacks a
 * function is logged once. Any thread; cheap enough for each creation of a communicator, but not
 * for each call. Keeps errno.
 */
bool ng_driver_find(struct ng_cuda *ret_cuda);

/* Whether the driver has been initialised in this process, even if it has been shut down since.
 * Keeps errno. */
bool ng_driver_was_initialised(void);

/* ---- nvml.c: NVML, opened when a communicator is known ---- */

struct ng_nvml;

/* Look up the functions of NVML that core needs. False: there is no library, or it lacks one that
 * core cannot do without; then *ret_nvml is untouched. Worker thread. */
bool ng_nvml_find(struct ng_nvml *ret_nvml);

/* ---- cuda_memory.c: driver hooks that report memory to core/registration/segments.h ---- */

/* Enables them. Once, before the program's main. */
void ng_cuda_memory_enable(void);

/* The device of this thread's current context; -1 none. Any thread. */
int ng_cuda_memory_device(void);

/* ---- interpreter.c: the CPython of this process, for core/comm/python_frames.h: the layout of its
 * objects, and when it ends ---- */

/*
 * Is there an interpreter whose object layout is known? If so, its first thread compares the layout
 * with the interpreter's own view of its frames at the next opportunity, and calls record Python
 * frames if they match. Otherwise one debug line says why not. At each start of the guard; takes
 * the dynamic linker's lock; keeps the program's dlerror.
 */
bool ng_interpreter_prepare(void);

/* ---- coverage_warnings.c: messages to the user about what the guard covers ---- */

/* One info line: what is guarded here. At the first communicator, on a program thread. */
void ng_coverage_log_guarded(const struct ng_guard *guard);

/*
 * At exit: one warning if NCCL is loaded, this process could have used it, and no call of it was
 * seen. Silent in forked children and when the guard is off. On the thread that exits.
 */
void ng_coverage_warn_bypassed(const struct ng_guard *guard);

/* ---- python.c: Python's own stacks, from an interpreter of the program in this process ---- */

/*
 * Prepare for reading the stacks later, when the interpreter can no longer be called. Call it while
 * the program is healthy: it takes the dynamic linker's lock. No effect without Python. A guard
 * thread; at each start of the guard. Keeps the program's dlerror.
 */
void ng_python_prepare(void);

/*
 * Write the stacks of all Python threads as CPython's faulthandler does, without the interpreter's
 * lock. Returns the length, without the closing NUL. -ENOENT: there is no Python; -EAGAIN: not
 * prepared yet, because the interpreter's first thread has not run the preparation since; or
 * another -errno. No malloc, no lock. One guard thread at a time; best while the program's threads
 * are stopped, since their stacks are walked.
 */
int ng_python_read(char *ret_text, size_t bytes);

/* In a forked child: drop the preparation, which is the parent's. Async-signal-safe. */
void ng_python_after_fork(void);

#pragma GCC visibility pop

#endif
