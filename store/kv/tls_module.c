/*
 * Where libncclguard_tls.so lies.
 *
 * Pure. Must never name a place that is not beside this very file: whatever is loaded runs with the
 * program's rights.
 */
#include "store/kv/tls_module.h"

#include <stdio.h>
#include <string.h>

/* Installed, and in a build folder. */
static const char *const places[] = {".", "../store", "../lib", "../../lib"};

bool ng_tls_module_path(const char *self, unsigned index, char *ret_path, size_t bytes)
{
    const char *slash = self ? strrchr(self, '/') : NULL;

    return slash && index < sizeof(places) / sizeof(places[0]) &&
           snprintf(ret_path, bytes, "%.*s/%s/libncclguard_tls.so", (int)(slash - self), self,
                    places[index]) < (int)bytes;
}
