/* Stands between a program and NCCL, as profilers do, and counts; PAST: calls NCCL's pncclX name.
 */
#include <dlfcn.h>

int pncclAllReduce(void);
__attribute__((visibility("default"))) int ncclAllReduce(void);

int ncclAllReduce(void)
{
#ifdef PAST
    return pncclAllReduce();
#else
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "ncclAllReduce");
    return next ? next() : -1;
#endif
}
