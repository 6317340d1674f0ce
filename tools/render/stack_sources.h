/*
 * The lines of source files at which frames of stacks are.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_STACK_SOURCES_H
#define NCCLGUARD_TOOLS_RENDER_STACK_SOURCES_H

#include <stdint.h>

#include "tools/render/stack_groups.h"

/*
 * Below each frame of the stacks that has a file and a line (Python's, and native ones after
 * ng_stack_lines_add), add the line's text, as Python's tracebacks do. The evidence may name any
 * file: only regular files with a name of C, C++, CUDA, Rust or Python are read, and none that has
 * changed since `unix_ns`, the time of the evidence. 0 or -ENOMEM.
 */
int ng_stack_sources_add(struct ng_stack_groups *stacks, int64_t unix_ns);

#endif
