/*
 * How fast the guard's kernel looks through a buffer, beside the device's own copy: `nan_scan KERNEL.ptx [MIB]`.
 *
 * On bfloat16, of which none is NaN, and once more with one in the last place. Loads the driver by its name, so
 * that it runs with the machine's, or with the stand-in (whose figures say nothing). One line of JSON: GB/s of a
 * copy on the device as bytes copied, and as bytes read and written; of the scan, as bytes read; the scan's share
 * of both.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/nan_kernel.h"
#include "core/number.h"

#define BFLOAT16 9
#define ROUNDS   20
#define BLOCKS   8u /* of a processor, as core/nan.c has it */

#define FUNCTIONS(F)                                                                               \
    F(cuInit, (unsigned int))                                                                      \
    F(cuDeviceGet, (CUdevice *, int))                                                              \
    F(cuDeviceGetAttribute, (int *, CUdevice_attribute, CUdevice))                                 \
    F(cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                                           \
    F(cuCtxSetCurrent, (CUcontext))                                                                \
    F(cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                      \
    F(cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                             \
    F(cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                          \
    F(cuMemHostAlloc, (void **, size_t, unsigned int))                                             \
    F(cuMemHostGetDevicePointer_v2, (CUdeviceptr *, void *, unsigned int))                         \
    F(cuModuleLoadData, (CUmodule *, const void *))                                                \
    F(cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                 \
    F(cuLaunchKernel, (CUfunction, unsigned int, unsigned int, unsigned int, unsigned int,         \
                       unsigned int, unsigned int, unsigned int, CUstream, void **, void **))      \
    F(cuStreamCreate, (CUstream *, unsigned int))                                                  \
    F(cuStreamSynchronize, (CUstream))

#define DECLARE(name, prototype) static CUresult(*real_##name) prototype;
FUNCTIONS(DECLARE)

static void check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "nan_scan: %s: CUDA error %d\n", what, (int)result);
    exit(1);
}
#define CUDA(name, ...) check(real_##name(__VA_ARGS__), #name)

static CUstream stream;
static CUfunction kernel;
static struct ng_nan_answer *answer;
static struct ng_nan_scan scan;
static unsigned blocks;
static CUdeviceptr from, to;
static size_t bytes;

static void load_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

#define FIND(name, prototype) real_##name = library ? (__typeof__(real_##name))dlsym(library, #name) : NULL;
    FUNCTIONS(FIND)
#define NEED(name, prototype)                                                                      \
    if (!real_##name) {                                                                            \
        fprintf(stderr, "nan_scan: no " #name "\n");                                               \
        exit(1);                                                                                   \
    }
    FUNCTIONS(NEED)
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);

    if (!file || !text || !fread(text, 1, (1 << 20) - 1, file)) {
        fprintf(stderr, "nan_scan: cannot read %s\n", path);
        exit(1);
    }
    fclose(file);
    return text;
}

static void copy_once(void)
{
    CUDA(cuMemcpyDtoDAsync_v2, to, from, bytes, stream);
}

static void scan_once(void)
{
    void *arguments[] = {&scan};

    scan.ticket++;
    CUDA(cuLaunchKernel, kernel, blocks, 1, 1, NG_NAN_THREADS, 1, 1, 0, stream, arguments, NULL);
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Bytes a second, of the fastest of three runs. */
static double rate_of(void (*once)(void))
{
    double best = 0;

    once();
    CUDA(cuStreamSynchronize, stream);
    for (int run = 0; run < 3; run++) {
        double begun = now_s();
        for (int i = 0; i < ROUNDS; i++)
            once();
        CUDA(cuStreamSynchronize, stream);
        double rate = (double)bytes * ROUNDS / (now_s() - begun);
        best = rate > best ? rate : best;
    }
    return best;
}

static void prepare(const char *ptx)
{
    struct ng_number_type type;
    CUdeviceptr answer_at;
    CUcontext context;
    CUdevice device;
    CUmodule module;
    int processors = 0;

    ng_number_type(BFLOAT16, false, &type);
    CUDA(cuInit, 0);
    CUDA(cuDeviceGet, &device, 0);
    CUDA(cuDevicePrimaryCtxRetain, &context, device);
    CUDA(cuCtxSetCurrent, context);
    CUDA(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    CUDA(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
    CUDA(cuMemAlloc_v2, &from, bytes);
    CUDA(cuMemAlloc_v2, &to, bytes);
    CUDA(cuMemsetD8Async, from, 0x3f, bytes, stream);
    CUDA(cuMemHostAlloc, (void **)&answer, sizeof(*answer), CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    CUDA(cuMemHostGetDevicePointer_v2, &answer_at, answer, 0);
    CUDA(cuModuleLoadData, &module, ptx);
    CUDA(cuModuleGetFunction, &kernel, module, "ng_nan_scan");
    blocks = BLOCKS * (unsigned)(processors > 0 ? processors : 1);
    unsigned long long highest = 1ull << 15, ones = 0x0001000100010001ull;
    scan = (struct ng_nan_scan){.buffer = (const unsigned char *)(uintptr_t)from,
                                .elements = bytes >> type.shift,
                                .mask = (highest - 1) * ones,
                                .addend = (highest - 1 - type.limit) * ones,
                                .answer = (struct ng_nan_answer *)(uintptr_t)answer_at,
                                .shift = type.shift};
}

int main(int argc, char **argv)
{
    size_t mib = argc > 2 ? strtoul(argv[2], NULL, 10) : 256;

    if (argc < 2 || argc > 3 || !mib) {
        fprintf(stderr, "usage: nan_scan KERNEL.ptx [MIB]\n");
        return 2;
    }
    bytes = mib << 20;
    load_driver();
    prepare(read_text(argv[1]));
    double copy = rate_of(copy_once), look = rate_of(scan_once);
    if (answer->bad || answer->ticket != scan.ticket || answer->gate != scan.ticket) {
        fprintf(stderr, "nan_scan: found %llu in numbers\n", answer->bad);
        return 1;
    }
    CUDA(cuMemsetD8Async, from + bytes - 2, 0xff, 2, stream);
    scan_once();
    CUDA(cuStreamSynchronize, stream);
    if (answer->bad != 1 || answer->first != bytes / 2 - 1 || answer->bits != 0xffff || answer->gate == scan.ticket) {
        fprintf(stderr, "nan_scan: the NaN in the last place is not found\n");
        return 1;
    }
    printf("{\"bytes\": %zu, \"copied_gb_s\": %.1f, \"copy_traffic_gb_s\": %.1f, \"scan_gb_s\": %.1f, "
           "\"scan_of_copied\": %.3f, \"scan_of_traffic\": %.3f}\n",
           bytes, copy / 1e9, 2 * copy / 1e9, look / 1e9, look / copy, look / (2 * copy));
    return 0;
}
