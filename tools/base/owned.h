/*
 * Locals that are given back when their block is left, in whatever way.
 */
#ifndef NCCLGUARD_TOOLS_BASE_OWNED_H
#define NCCLGUARD_TOOLS_BASE_OWNED_H

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NG_FREED      __attribute__((cleanup(ng_owned_free)))     /* memory, or NULL */
#define NG_CLOSED     __attribute__((cleanup(ng_owned_close)))    /* a descriptor, or below 0 */
#define NG_CLOSED_DIR __attribute__((cleanup(ng_owned_closedir))) /* a folder, or NULL */

static inline void ng_owned_free(void *pointer)
{
    void *memory;

    memcpy(&memory, pointer, sizeof(memory));
    free(memory);
}

static inline void ng_owned_close(const int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void ng_owned_closedir(DIR *const *folder)
{
    if (*folder)
        closedir(*folder);
}

#endif
