/*
 * Source files and lines of native frames, where debugging information has them; and the text of
 * the lines at which frames of stacks are.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_STACK_LINES_H
#define NCCLGUARD_TOOLS_RENDER_STACK_LINES_H

#include <stdint.h>

#include "core/verdict/verdict.h"
#include "tools/render/stack_groups.h"

/*
 * Add them to the calls of a verdict, and to the text of stacks (" at FILE:LINE" at the end of a
 * frame's line), as tools/base/source_lines.h finds them. 0, or an error of it: what was found is
 * there all the same.
 */
int ng_stack_lines_add(struct ng_verdict *verdict, struct ng_stack_groups *stacks);

/*
 * Below each frame of the stacks that has a file and a line (Python's, and native ones after
 * ng_stack_lines_add), add the line's text, as Python's tracebacks do. The evidence may name any
 * file: only regular files with a name of C, C++, CUDA, Rust or Python are read, and none that has
 * changed since `unix_ns`, the time of the evidence. 0 or -ENOMEM.
 */
int ng_stack_sources_add(struct ng_stack_groups *stacks, int64_t unix_ns);

#endif
