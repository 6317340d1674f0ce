/*
 * A library that the door tests are linked with, or load: it names itself, and looks up names from
 * its own place in the link map. Built several times, each time with another PART.
 */
#include "tests/unit/shim/door/library.h"

#include <dlfcn.h>
#include <stdio.h>

#define EXPORT __attribute__((visibility("default")))

#define JOIN_TWO(a, b) a##b
#define JOIN(a, b)     JOIN_TWO(a, b)
#define TEXT_OF(a)     #a
#define TEXT(a)        TEXT_OF(a)

static struct door_early early;

EXPORT const char *door_where(void)
{
    return TEXT(PART);
}

/* Only here. */
EXPORT const char *JOIN(PART, _only)(void)
{
    return TEXT(PART);
}

#ifdef NEEDS
const char *JOIN(NEEDS, _only)(void);

/* The reason to be linked with it. */
EXPORT const char *JOIN(PART, _needs)(void)
{
    return JOIN(NEEDS, _only)();
}
#endif

/* Never jumps into dlsym: this library must stay the caller. */
EXPORT void *JOIN(PART, _look)(void *handle, const char *name)
{
    void *volatile found = dlsym(handle, name);

    return found;
}

EXPORT void *JOIN(PART, _look_version)(void *handle, const char *name, const char *version)
{
    void *volatile found = dlvsym(handle, name, version);

    return found;
}

EXPORT const struct door_early *JOIN(PART, _early)(void)
{
    return &early;
}

__attribute__((constructor)) static void start(void)
{
    const char *error;

    early.next = dlsym(RTLD_NEXT, "door_where");
    early.self = dlsym(RTLD_DEFAULT, "door_where");
    early.version = dlvsym(RTLD_DEFAULT, "door_where", "DOOR_NONE");
    dlerror();
    early.missing = dlsym(RTLD_NEXT, "ncclDoorMissing");
    error = dlerror();
    snprintf(early.error, sizeof(early.error), "%s", error ? error : "(nothing)");
    early.ran = 1;
}
