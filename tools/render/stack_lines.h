/*
 * Source files and lines of native frames, where debugging information has them.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_STACK_LINES_H
#define NCCLGUARD_TOOLS_RENDER_STACK_LINES_H

#include "core/verdict/verdict.h"
#include "tools/render/stack_groups.h"

/*
 * Add them to the calls of a verdict, and to the text of stacks (" at FILE:LINE" at the end of a
 * frame's line), as tools/base/source_lines.h finds them. 0, or an error of it: what was found is
 * there all the same.
 */
int ng_stack_lines_add(struct ng_verdict *verdict, struct ng_stack_groups *stacks);

#endif
