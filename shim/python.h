/*
 * Python's own stacks, for core: of an interpreter that the program has in this process.
 */
#ifndef NCCLGUARD_SHIM_PYTHON_H
#define NCCLGUARD_SHIM_PYTHON_H

#include <stddef.h>

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

#endif
