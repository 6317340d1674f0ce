/*
 * How a file relates to NCCL: whether it is NCCL, contains it or calls it.
 */
#ifndef NCCLGUARD_TOOLS_INSPECT_NCCL_FILE_H
#define NCCLGUARD_TOOLS_INSPECT_NCCL_FILE_H

#include <stdbool.h>

#include "tools/inspect/elf_file.h"

/* Releases of NCCL with which the library is tested, first and last. */
#define NG_NCCL_TESTED "2.18 to 2.32"

enum ng_nccl_role {
    NG_NCCL_NONE,    /* unrelated to NCCL */
    NG_NCCL_CALLER,  /* calls NCCL's functions by name */
    NG_NCCL_LIBRARY, /* the shared library of NCCL */
    NG_NCCL_INSIDE,  /* another file that contains a copy of NCCL */
    NG_NCCL_STUB,    /* looks up NCCL's functions at run time */
    NG_NCCL_BETWEEN, /* defines functions of NCCL's names and passes the calls on (a profiler) */
};

struct ng_nccl_file {
    enum ng_nccl_role role;
    char version[32]; /* "2.28.9+cuda12.9"; "" unknown */
    bool exported;    /* other objects can be bound to the copy inside */
    bool by_name;   /* its own calls go through the dynamic linker, and so to a preloaded library */
    bool profiling; /* calls pncclX, names that cannot be intercepted */
    bool unsure;    /* its symbol table cannot be read */
};

/* Examine an object other than our own. Reads a few MiB, or all of a file that may contain a
 * stripped NCCL. */
void ng_nccl_file_examine(const struct ng_elf_file *file, const char *path,
                          struct ng_nccl_file *ret_nccl);

/* Whether this version is within NG_NCCL_TESTED; false for "". */
bool ng_nccl_version_tested(const char *version);

#endif
