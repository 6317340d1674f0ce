/*
 * Reads a file line by line: for lists of /proc, which may be longer than any buffer.
 *
 * Any thread; never calls malloc.
 */
#ifndef NCCLGUARD_CORE_UTIL_LINES_H
#define NCCLGUARD_CORE_UTIL_LINES_H

#include <stdbool.h>
#include <stddef.h>

/* Takes a line without its newline, which it may change. False: that is enough. */
typedef bool ng_lines_fn(void *context, char *line);

/*
 * Give each line of a file to `take`, through a buffer of `bytes`. Of a line that does not fit, the
 * parts that fill the buffer are left out. 0, however many lines were taken; or -errno.
 */
int ng_lines_each(const char *path, char *buffer, size_t bytes, ng_lines_fn *take, void *context);

#endif
