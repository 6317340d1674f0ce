/*
 * A library that is linked with a copy of NCCL, and says which copy answers it.
 */
#include <nccl.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const char *stress_plugin_string(void)
{
    const char *volatile string = ncclGetErrorString(ncclSuccess);

    return string;
}

EXPORT int stress_plugin_version(void)
{
    int version = 0;

    return ncclGetVersion(&version) == ncclSuccess ? version : -1;
}
