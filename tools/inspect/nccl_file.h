/*
 * What a file has to do with NCCL: is it NCCL, does it hold NCCL, does it call NCCL.
 */
#ifndef NCCLGUARD_TOOLS_INSPECT_NCCL_FILE_H
#define NCCLGUARD_TOOLS_INSPECT_NCCL_FILE_H

#include <stdbool.h>

#include "tools/inspect/elf_file.h"

/* Releases of NCCL that the library is tested with, first and last. */
#define NG_NCCL_TESTED "2.18 to 2.32"

enum ng_nccl_role {
    NG_NCCL_NONE,    /* nothing of it is seen */
    NG_NCCL_CALLER,  /* asks for NCCL's functions by name */
    NG_NCCL_LIBRARY, /* is the shared library of NCCL */
    NG_NCCL_INSIDE,  /* something else that holds a copy of NCCL */
    NG_NCCL_STUB,    /* fetches NCCL's functions while it runs */
    NG_NCCL_BETWEEN, /* has functions of NCCL's names and passes the calls on (a profiler) */
};

struct ng_nccl_file {
    enum ng_nccl_role role;
    char version[32]; /* "2.28.9+cuda12.9"; "" unknown */
    bool exported;    /* other objects can be bound to the copy inside */
    bool by_name;   /* its own calls go through the dynamic linker, and so to a preloaded library */
    bool profiling; /* calls pncclX, the names under which nobody stands between */
    bool unsure;    /* its table of symbols cannot be read */
};

/* Look at an object that is not ours. Reads a few MiB, or all of a file that may hold a stripped
 * NCCL. */
void ng_nccl_file_examine(const struct ng_elf_file *file, const char *path,
                          struct ng_nccl_file *ret_nccl);

/* Whether this version is within NG_NCCL_TESTED; false for "". */
bool ng_nccl_version_tested(const char *version);

#endif
