/*
 * Source files and lines of addresses in programs and libraries, from their debugging information.
 */
#ifndef NCCLGUARD_TOOLS_BASE_SOURCE_LINES_H
#define NCCLGUARD_TOOLS_BASE_SOURCE_LINES_H

#include <stddef.h>
#include <stdint.h>

struct ng_source_line {
    const char *path;     /* of the file that was in memory */
    const char *build_id; /* hex digits, which tell whether a file is the same; "": not looked up */
    uint64_t offset;      /* of the instruction, in the file */
    char *file;           /* answer: the source file, to be freed; NULL not known */
    int line;             /* answer: from 1 */
};

/*
 * Look `count` addresses up, the first first. Only files with the build id are read: the one at
 * `path`, its debugging information beside it or below /usr/lib/debug, and, where DEBUGINFOD_URLS
 * is set, what such a server has. A child process reads them, since any of them may be damaged, and
 * is ended after `limit_ns`; what it has found by then is used. Where elfutils' libdw is not
 * installed, nothing is found. 0; -ETIMEDOUT: that time was over; -ENOMEM; or -errno of the child's
 * start. The process must have one thread.
 */
int ng_source_lines_find(struct ng_source_line *lines, size_t count, int64_t limit_ns);

/* Release the answers. */
void ng_source_lines_fini(struct ng_source_line *lines, size_t count);

#endif
