/*
 * Looks up and asks in the name of the library that it is built into: NCCL, a framework with NCCL
 * inside, a CUDA runtime, a driver's double, or any other.
 */
#include "tests/unit/shim/cuda_door/asker.h"

#include <dlfcn.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

/* Used after the call, so that the compiler makes no jump of it and the return address is here. */
static void *hold(void *volatile *found)
{
    return *found;
}

EXPORT void *asker_look_up(void *handle, const char *name)
{
    void *volatile found = dlsym(handle, name);

    return hold(&found);
}

EXPORT void *asker_ask(ask_function *question, const char *name, int version, uint64_t flags)
{
    void *found = NULL;
    volatile int result = question(name, &found, version, flags);

    return result == 0 ? found : NULL;
}

EXPORT void *asker_ask_v2(ask_v2_function *question, const char *name, int version, uint64_t flags)
{
    void *found = NULL;
    int status = -1;
    volatile int result = question(name, &found, version, flags, &status);

    return result == 0 && status == 0 ? found : NULL;
}

#ifdef ASKER_HAS_NCCL
EXPORT int ncclGetVersion(int *ret_version);
int ncclGetVersion(int *ret_version)
{
    *ret_version = 22809;
    return 0;
}
#endif

#ifdef ASKER_HAS_DRIVER_NAMES
EXPORT int cuMemAlloc_v2(void);
int cuMemAlloc_v2(void)
{
    return 1;
}

EXPORT int cuGetProcAddress_v2(void);
int cuGetProcAddress_v2(void)
{
    return 1;
}
#endif
