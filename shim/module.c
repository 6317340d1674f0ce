/*
 * Loading files beside the library.
 *
 * Entered by the thread that starts the guard. Must never be entered where no feature needs it.
 */
#include "shim/module.h"

#include <dlfcn.h>
#include <stddef.h>

#include "core/util/log.h"

const char *ng_module_self(void)
{
    Dl_info here;

    return dladdr((void *)ng_module_self, &here) ? here.dli_fname : NULL;
}

const void *ng_module_symbol(const char *path, const char *symbol)
{
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);

    if (module)
        return dlsym(module, symbol);
    ng_log(NG_LOG_DEBUG, "%s", dlerror());
    return NULL;
}
