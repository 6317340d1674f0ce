/*
 * The guard's own library: its location, and how it gets into LD_PRELOAD.
 */
#ifndef NCCLGUARD_TOOLS_INSPECT_LIBRARY_H
#define NCCLGUARD_TOOLS_INSPECT_LIBRARY_H

#include <limits.h>
#include <stdbool.h>

/* One sentence that describes the mistake, and one with the remedy. */
struct ng_mistake {
    char text[PATH_MAX + 256], mend[512];
};

/*
 * Path of libncclguard.so: NCCLGUARD_LIB, else relative to this command as in a build, an
 * installation or a bundle. False: *ret_mistake says why not.
 */
bool ng_library_find(char ret_path[PATH_MAX], struct ng_mistake *ret_mistake);

/*
 * Whether this file is valid: a shared library of this machine's kind that defines NCCL's names.
 * False: *ret_mistake says what it is instead.
 */
bool ng_library_check(const char *path, struct ng_mistake *ret_mistake);

/*
 * The value of LD_PRELOAD that contains `path`: `before` (NULL none) with the path appended, unless
 * it is there already. NULL: no memory; else to be freed.
 */
char *ng_library_preload_list(const char *before, const char *path);

/*
 * Watch from now on whether any process opens the library, as the dynamic linker does to load it. A
 * descriptor for ng_library_was_opened, or -1 if it cannot be watched. Other jobs that use the same
 * file count, too.
 */
int ng_library_watch(const char *path);

/* Whether it was opened. Call it once; it closes the descriptor. */
bool ng_library_was_opened(int watch);

/* Whether this value of NCCLGUARD_STORE (NULL: not set) is not supported by this build. */
bool ng_library_bad_store(const char *value, struct ng_mistake *ret_mistake);

/* Whether this value of NCCLGUARD_FAULT (NULL: not set), which the user gave as `name`, is
 * invalid. */
bool ng_library_bad_fault(const char *name, const char *value, struct ng_mistake *ret_mistake);

/*
 * What in the environment keeps `ncclguard run` from starting anything: an invalid value of one of
 * our variables. False: nothing.
 */
bool ng_library_bad_setting(struct ng_mistake *ret_mistake);

#endif
