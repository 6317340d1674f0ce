/*
 * Wakes a CUDA runtime over the driver that remembers, and prints who asked the driver what.
 *
 * Built once with a runtime of its own (linked dynamically or statically), once as NCCL with a
 * static one inside (IN_NCCL), once as a program that only calls that NCCL (CALLS_NCCL).
 */
#include <dlfcn.h>
#include <stdio.h>

#include "tests/unit/shim/cuda_door/driver.h"
#include "tests/unit/shim/cuda_door/probe_hooks.h"

/* The runtime's; its headers differ from release to release, this does not. */
extern int cudaGetDeviceCount(int *ret_count);

extern int ncclGetVersion(int *ret_version);

#ifdef IN_NCCL

int ncclGetVersion(int *ret_version)
{
    *ret_version = 0;
    return cudaGetDeviceCount(ret_version);
}

#else

#ifdef CALLS_NCCL
#define WAKE ncclGetVersion
#else
#define WAKE cudaGetDeviceCount
#endif

/* Those that every runtime since 11.8 asks for. */
static const char *const symbols[] = {
    "cuGraphLaunch",
    "cuGraphLaunch_ptsz",
    "cuMemAlloc_v2",
    "cuMemAllocPitch_v2",
    "cuMemFree_v2",
    "cuMemAllocAsync",
    "cuMemAllocAsync_ptsz",
    "cuMemFreeAsync",
    "cuMemFreeAsync_ptsz",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz",
    "cuDevicePrimaryCtxRelease",
    "cuDevicePrimaryCtxReset",
};

int main(void)
{
    __typeof__(&cuda_probe_real) real = dlsym(RTLD_DEFAULT, "cuda_probe_real");
    __typeof__(&driver_questions_from) questions_from;
    __typeof__(&driver_questions) questions;
    /* First, since a runtime that finds no device lets go of it. */
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    int count = -1;
    int result = driver ? WAKE(&count) : -1;

    if (!driver) {
        fputs("there is no driver\n", stderr);
        return 1;
    }
    questions_from = dlsym(driver, "driver_questions_from");
    questions = dlsym(driver, "driver_questions");
    printf("result %d\n", result);
    printf("asked %u, through the door %u\n", questions_from(""),
           questions_from("libng_cuda_probe"));
    for (unsigned i = 0; real && i < sizeof(symbols) / sizeof(symbols[0]); i++)
        if (real(symbols[i]))
            printf("hooked %s\n", symbols[i]);
    printf("%s", questions());
    return 0;
}

#endif
