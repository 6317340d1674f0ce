/*
 * A library with a function that is chosen while libraries are linked (IFUNC), by looking names up:
 * before any constructor has run, and before the libraries ahead of it are linked themselves.
 */
#include <dlfcn.h>

#define EXPORT __attribute__((visibility("default")))

const char *third_only(void);

static int found;

/* The reason to be linked with it. */
EXPORT const char *door_resolver_needs(void)
{
    return third_only();
}

static int good(void)
{
    return found;
}

static int bad(void)
{
    return -1;
}

__attribute__((used)) static int (*choose(void))(void)
{
    void *next = dlsym(RTLD_NEXT, "third_only");
    void *by_default = dlsym(RTLD_DEFAULT, "malloc");
    void *of_cuda = dlsym(RTLD_DEFAULT, "cuDoorMissing");
    void *of_nccl = dlvsym(RTLD_NEXT, "ncclDoorMissing", "DOOR_1");

    found = next && by_default && !of_cuda && !of_nccl;
    return next ? good : bad;
}

EXPORT int door_resolved(void) __attribute__((ifunc("choose")));
