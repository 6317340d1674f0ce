/*
 * The table of CUDA driver functions, from the libcuda.so.1 that the program itself has loaded.
 *
 * Entered by the thread that creates the first communicator, and by guard threads. Never loads a
 * driver, never calls one.
 */
#include "shim/parts.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

#include "core/util/log.h"
#include "shim/dlsym.h"

static bool fill(void *handle, struct ng_cuda *cuda)
{
    static atomic_bool told;
    const char *missing = NULL;

#define NG_CUDA_FIND(field, name, prototype)                                                       \
    cuda->field = (__typeof__(cuda->field))ng_real_dlsym(handle, name);                            \
    if (!cuda->field)                                                                              \
        missing = name;
    NG_CUDA_FUNCTIONS(NG_CUDA_FIND)
#undef NG_CUDA_FIND
#define NG_CUDA_FIND(field, name, prototype)                                                       \
    cuda->field = (__typeof__(cuda->field))ng_real_dlsym(handle, name);
    NG_CUDA_OPTIONAL_FUNCTIONS(NG_CUDA_FIND)
#undef NG_CUDA_FIND

    if (!missing)
        return true;
    if (!atomic_exchange(&told, true))
        ng_log(NG_LOG_WARN, "the CUDA driver lacks %s: GPU progress cannot be watched", missing);
    return false;
}

bool ng_driver_find(struct ng_cuda *ret_cuda)
{
    struct ng_cuda cuda = {0};
    int saved = errno;
    /* The handle is kept: core continues to call the driver, so it must not be unloaded. */
    void *handle = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);

    if (handle && fill(handle, &cuda)) {
        cuda.loaded = true;
        *ret_cuda = cuda;
    } else {
        if (handle)
            dlclose(handle);
        dlerror(); /* or the program would read our error as its own */
    }
    errno = saved;
    return cuda.loaded;
}

bool ng_driver_was_initialised(void)
{
    int saved = errno, count;
    void *handle = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY);
    CUresult (*get_count)(int *ret_count);
    bool initialised = false;

    if (handle) {
        get_count = (CUresult(*)(int *))ng_real_dlsym(handle, "cuDeviceGetCount");
        initialised = get_count && get_count(&count) != CUDA_ERROR_NOT_INITIALIZED;
        dlclose(handle);
    }
    dlerror();
    errno = saved;
    return initialised;
}
