/*
 * The host stacks of this process at an incident: what each thread is doing, and how it got there.
 *
 * Most ranks that do not come are stuck on the CPU. All threads are held still for a moment
 * (core/evidence/tracer.h), walked (core/unwind/unwind.h) and let go; names come after that.
 * Python's own stacks come from CPython, which needs no lock of the interpreter for that. Entered
 * by one guard thread; no malloc, no lock, bounded in time and size. What cannot be had is told,
 * not guessed.
 *
 * What comes of it: core/report/stacks_format.h.
 */
#ifndef NCCLGUARD_CORE_EVIDENCE_STACKS_H
#define NCCLGUARD_CORE_EVIDENCE_STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/report/stacks_format.h"

/*
 * Take the stacks of this process, now, with names from its memory alone: no file of the program's
 * is opened. `read_python` writes the Python stacks of all threads, as faulthandler does, and
 * returns their length or -errno: -ENOENT no Python here, -EAGAIN it could not be prepared yet;
 * NULL: nobody knows of any. 0, or -errno and nothing is to be given back. About a second at most.
 */
int ng_stacks_take(int (*read_python)(char *ret_text, size_t bytes), struct ng_stacks *ret_stacks);

/* Give more frames their names, from the files of the program and its libraries as far as they lie
 * on this machine. False: none was added. */
bool ng_stacks_name_from_files(struct ng_stacks *stacks);

void ng_stacks_fini(struct ng_stacks *stacks);

#endif
