/* A plugin that finds NCCL by itself, as JAX and vLLM do: dlsym is called from its own place in the
 * link map. It is linked with NCCL too, so that there is something behind it for RTLD_NEXT. */
#include "tests/programs/entry_points.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/* Names that begin as NCCL's do, but are this plugin's own: nobody may answer for it. */
EXPORT int ncclNetPlugin_v0 = 42;
EXPORT int cuPluginAnswer(void);
int cuPluginAnswer(void)
{
    return 43;
}

/* Keeps the dependency on NCCL alive. */
EXPORT int entry_points_seek_version(void);
int entry_points_seek_version(void)
{
    int version = 0;
    return ncclGetVersion(&version) == ncclSuccess ? version : -1;
}

EXPORT const char *entry_points_seek(const char *how, const char *path,
                                     struct entry_points_nccl *ret_nccl)
{
    static char why[300];
    void *handle = NULL;

    if (strcmp(how, "handle") == 0)
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    else if (strcmp(how, "next") == 0)
        handle = RTLD_NEXT;
    else if (strcmp(how, "default") == 0)
        handle = RTLD_DEFAULT;
    if (!handle && strcmp(how, "default") != 0) {
        snprintf(why, sizeof(why), "%s: %s", how, strcmp(how, "handle") == 0 ? dlerror() : "?");
        return why;
    }
#define ENTRY_POINT(type, name, parameters, arguments)                                             \
    ret_nccl->name = (type(*) parameters)dlsym(handle, "nccl" #name);                              \
    if (!ret_nccl->name)                                                                           \
        return "nccl" #name;
    ENTRY_POINTS_NCCL(ENTRY_POINT)
#undef ENTRY_POINT
    return NULL;
}
