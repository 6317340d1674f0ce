/*
 * The host stacks of this process at an incident: what each thread is doing, and its call path.
 *
 * Most ranks that do not arrive are stuck on the CPU. All threads are stopped for a moment
 * (core/evidence/tracer.h), their stacks are walked (core/unwind/unwind.h), and they are released;
 * names are resolved afterwards. Python stacks come from CPython, which needs no interpreter lock
 * for this. Entered by one guard thread; no malloc, no lock, bounded in time and size. Missing data
 * is reported as missing, never guessed.
 *
 * Output format: core/report/stacks_format.h.
 */
#ifndef NCCLGUARD_CORE_EVIDENCE_STACKS_H
#define NCCLGUARD_CORE_EVIDENCE_STACKS_H

#include <stdbool.h>
#include <stddef.h>

#include "core/report/stacks_format.h"

/*
 * Take the stacks of this process, now, with names from its memory alone: no file of the program's
 * is opened. `read_python` writes the Python stacks of all threads, as faulthandler does, and
 * returns their length or -errno: -ENOENT no Python here, -EAGAIN not prepared yet; NULL: Python is
 * not supported. 0, or -errno and nothing needs to be released. About a second at most.
 */
int ng_stacks_take(int (*read_python)(char *ret_text, size_t bytes), struct ng_stacks *ret_stacks);

/* Resolve more names, from those files of the program and its libraries that are on this machine.
 * False: none was added. */
bool ng_stacks_name_from_files(struct ng_stacks *stacks);

void ng_stacks_fini(struct ng_stacks *stacks);

#endif
