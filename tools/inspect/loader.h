/*
 * What the dynamic linker would load for a program, determined without running anything.
 *
 * For `ncclguard doctor`; one thread. Follows the rules of glibc's ld.so: RPATH, LD_LIBRARY_PATH,
 * RUNPATH, /etc/ld.so.cache, the default folders. Not followed: glibc-hwcaps folders, audit
 * modules.
 */
#ifndef NCCLGUARD_TOOLS_INSPECT_LOADER_H
#define NCCLGUARD_TOOLS_INSPECT_LOADER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "tools/inspect/elf_file.h"

struct ng_loader {
    char *cache; /* the library cache, as written by ldconfig; NULL none */
    size_t cache_bytes;
    const char *library_path; /* LD_LIBRARY_PATH; NULL none */
};

/* One object of a program's closure. */
struct ng_loaded {
    char path[PATH_MAX];
    dev_t device;
    ino_t inode;
    int parent; /* index of the one that needs it; -1: the program */
    struct ng_elf_file elf;
};

struct ng_closure {
    struct ng_loaded **objects; /* the program first, then in the order of loading */
    size_t count, room;
    struct ng_missing {
        char *name;
        int parent;
        const char *why; /* NULL: not found */
    } * missing;
    size_t missing_count;
    bool cut; /* there were implausibly many objects */
};

/* The cache is optional: if it cannot be read, it counts as empty. */
void ng_loader_init(struct ng_loader *ret_loader, const char *library_path);
void ng_loader_fini(struct ng_loader *loader);

/*
 * The file that dlopen of this name opens in an ordinary program: -ENOENT if there is none. A name
 * with a slash is a path.
 */
int ng_loader_find(const struct ng_loader *loader, const char *name, char ret_path[PATH_MAX]);

/*
 * Call `found` for each file of the cache with this name (libnccl.so.2), existing or not.
 */
void ng_loader_each_cached(const struct ng_loader *loader, const char *name,
                           void (*found)(void *context, const char *path), void *context);

/*
 * Everything that the object at `path` needs, itself first. 0, or the error of reading the first
 * object, with a reason for the user in ret_why. Release it with ng_closure_fini.
 */
int ng_loader_close_over(const struct ng_loader *loader, const char *path,
                         struct ng_closure *ret_closure, const char **ret_why);
void ng_closure_fini(struct ng_closure *closure);

/* The object of this closure that was requested as `name`; NULL none. */
const struct ng_loaded *ng_closure_find(const struct ng_closure *closure, const char *name);

#endif
