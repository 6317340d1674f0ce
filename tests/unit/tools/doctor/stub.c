/*
 * Loads NCCL while it runs: as JAX does, behind hidden functions of NCCL's own names; or, NAMELESS,
 * as XGBoost does, without them.
 */
#include <dlfcn.h>

static int fetch(const char *name)
{
    void *library = dlopen("libnccl.so.2", RTLD_LAZY);
    int (*function)(void) = library ? (int (*)(void))dlsym(library, name) : 0;
    return function ? function() : -1;
}

#ifndef NAMELESS
__attribute__((visibility("hidden"))) int ncclAllReduce(void);
__attribute__((visibility("hidden"))) int pncclAllReduce(void);

int ncclAllReduce(void)
{
    return fetch("ncclAllReduce");
}

int pncclAllReduce(void)
{
    return fetch("pncclAllReduce");
}
#endif

__attribute__((visibility("default"))) int use_nccl(void);
int use_nccl(void)
{
    return fetch("ncclCommInitRank");
}
