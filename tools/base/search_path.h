/*
 * The file to which a program's name resolves.
 */
#ifndef NCCLGUARD_TOOLS_BASE_SEARCH_PATH_H
#define NCCLGUARD_TOOLS_BASE_SEARCH_PATH_H

#include <limits.h>
#include <stdbool.h>

/*
 * The file that execvp would run for this name: 0, or -errno (-ENOENT not found). A name with a
 * slash is a path, which only has to exist.
 */
int ng_search_path(const char *name, char ret_path[PATH_MAX]);

/* Whether that is a file which may be executed. */
bool ng_search_program(const char *name);

/* The part after the last slash. */
const char *ng_last_part(const char *path);

#endif
