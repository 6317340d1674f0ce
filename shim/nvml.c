/*
 * The table of NVML's functions, from libnvidia-ml.so.1.
 *
 * Entered by a worker thread of the guard. Takes the library that is loaded, and loads one only if
 * none is: NCCL loads it, mostly earlier. Never calls it.
 */
#include "shim/parts.h"

#include <dlfcn.h>
#include <errno.h>

#include "core/nccl/nvml.h"
#include "shim/dlsym.h"

bool ng_nvml_find(struct ng_nvml *ret_nvml)
{
    struct ng_nvml nvml = {0};
    int saved = errno;
    /* The handle is kept: core continues to call the library, so it must not be unloaded. */
    void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOLOAD | RTLD_LAZY);
    bool found = false;

    if (!handle)
        handle = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
    if (handle) {
#define NG_NVML_FIND(field, name, prototype)                                                       \
    nvml.field = (__typeof__(nvml.field))ng_real_dlsym(handle, name);
        NG_NVML_FUNCTIONS(NG_NVML_FIND)
#undef NG_NVML_FIND
        found = nvml.init && nvml.device_by_pci && nvml.total_ecc;
    }
    if (found)
        *ret_nvml = nvml;
    else if (handle)
        dlclose(handle);
    dlerror();
    errno = saved;
    return found;
}
