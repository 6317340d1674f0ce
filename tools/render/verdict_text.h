/*
 * The text of a verdict, as people get it to see.
 */
#ifndef NCCLGUARD_TOOLS_RENDER_VERDICT_TEXT_H
#define NCCLGUARD_TOOLS_RENDER_VERDICT_TEXT_H

/*
 * Write what is left to read of a verdict.txt to another file, with names of C++ demangled, and on
 * a terminal with a coloured first line. 0 or -errno.
 */
int ng_verdict_text_print(int from_fd, int to_fd);

#endif
