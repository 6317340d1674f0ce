/*
 * The CPython of this process, as core/comm/python_frames.h reads it: where its objects have what,
 * and when it ends.
 */
#ifndef NCCLGUARD_SHIM_INTERPRETER_H
#define NCCLGUARD_SHIM_INTERPRETER_H

#include <stdbool.h>

/*
 * Is there an interpreter whose objects' layout is known? Then its first thread compares the layout
 * with what the interpreter itself says of its frames, at the next opportunity, and calls keep
 * frames of Python if it is right. Otherwise one line for those who debug says why not. With each
 * start of the guard; takes the dynamic linker's lock; keeps the program's dlerror.
 */
bool ng_interpreter_prepare(void);

#endif
