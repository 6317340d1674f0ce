/*
 * Our own library: where it lies, and how it gets into LD_PRELOAD.
 */
#ifndef NCCLGUARD_TOOLS_INSPECT_LIBRARY_H
#define NCCLGUARD_TOOLS_INSPECT_LIBRARY_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* A sentence of what is wrong, and one of what to do about it. */
struct ng_mistake {
    char text[PATH_MAX + 256], mend[512];
};

/*
 * Path of libncclguard.so: NCCLGUARD_LIB, else beside this command as a build, an installation or a
 * bundle has it. False: *ret_mistake says why not.
 */
bool ng_library_find(char ret_path[PATH_MAX], struct ng_mistake *ret_mistake);

/*
 * Whether this file is what it should be: a shared library of this machine's kind that has the
 * names of NCCL. False: *ret_mistake says what it is instead.
 */
bool ng_library_check(const char *path, struct ng_mistake *ret_mistake);

/*
 * The value of LD_PRELOAD that has `path` in it: `before` (NULL none) with the path behind, unless
 * it is there already. NULL: no memory; else to be freed.
 */
char *ng_library_preload_list(const char *before, const char *path);

/*
 * Notice from now on whether anything opens the library, as the dynamic linker does to load it: a
 * descriptor for ng_library_was_opened, or -1 where that cannot be noticed. Other jobs that use the
 * same file count, too.
 */
int ng_library_watch(const char *path);

/* Whether it was. Once; the descriptor is closed. */
bool ng_library_was_opened(int watch);

/* Whether this value of NCCLGUARD_STORE (NULL: not set) is none that this build can serve. */
bool ng_library_bad_store(const char *value, struct ng_mistake *ret_mistake);

/* Whether this value of NCCLGUARD_FAULT (NULL: not set), which the user gave as `name`, has a
 * mistake. */
bool ng_library_bad_fault(const char *name, const char *value, struct ng_mistake *ret_mistake);

/*
 * What in the environment keeps `ncclguard run` from starting anything: a bad value of one of our
 * variables. False: nothing.
 */
bool ng_library_bad_setting(struct ng_mistake *ret_mistake);

#endif
