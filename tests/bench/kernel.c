/* The driver, and the kernel on it. */
#include "tests/bench/kernel.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/util/number.h"

#define BFLOAT16 9

#define DEFINE(name, prototype) CUresult(*real_##name) prototype;
BENCH_FUNCTIONS(DEFINE)

static const char *program_name;
static CUdevice device;

void bench_check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s: %s: CUDA error %d\n", program_name, what, (int)result);
    exit(1);
}

static void load_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);

#define FIND(name, prototype)                                                                      \
    real_##name = library ? (__typeof__(real_##name))dlsym(library, #name) : NULL;
    BENCH_FUNCTIONS(FIND)
#define NEED(name, prototype)                                                                      \
    if (!real_##name) {                                                                            \
        fprintf(stderr, "%s: no " #name "\n", program_name);                                       \
        exit(1);                                                                                   \
    }
    BENCH_FUNCTIONS(NEED)
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(1, 1 << 20);

    if (!file || !text || !fread(text, 1, (1 << 20) - 1, file)) {
        fprintf(stderr, "%s: cannot read %s\n", program_name, path);
        exit(1);
    }
    fclose(file);
    return text;
}

void bench_begin(const char *program)
{
    CUcontext context;

    program_name = program;
    load_driver();
    CUDA(cuInit, 0);
    CUDA(cuDeviceGet, &device, 0);
    CUDA(cuDevicePrimaryCtxRetain, &context, device);
    CUDA(cuCtxSetCurrent, context);
}

struct bench_kernel bench_kernel_load(const char *ptx_path, size_t bytes, unsigned blocks,
                                      CUstream stream)
{
    unsigned long long highest = 1ull << 15, ones = 0x0001000100010001ull;
    struct bench_kernel kernel = {.blocks = 1};
    struct ng_number_type type;
    CUdeviceptr buffer, answer_at;
    CUmodule module;
    int processors = 0;

    ng_number_type(BFLOAT16, false, &type);
    CUDA(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
    if (blocks)
        kernel.blocks = blocks * (unsigned)(processors > 0 ? processors : 1);
    CUDA(cuMemAlloc_v2, &buffer, bytes);
    CUDA(cuMemsetD8Async, buffer, 0x3f, bytes, stream);
    CUDA(cuMemHostAlloc, (void **)&kernel.answer, sizeof(*kernel.answer),
         CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
    CUDA(cuMemHostGetDevicePointer_v2, &answer_at, kernel.answer, 0);
    char *text = read_text(ptx_path);
    CUDA(cuModuleLoadData, &module, text);
    free(text);
    CUDA(cuModuleGetFunction, &kernel.function, module, "ng_nan_scan");
    kernel.scan = (struct ng_nan_scan){.buffer = (const unsigned char *)(uintptr_t)buffer,
                                       .elements = bytes >> type.shift,
                                       .mask = (highest - 1) * ones,
                                       .addend = (highest - 1 - type.limit) * ones,
                                       .answer = (struct ng_nan_answer *)(uintptr_t)answer_at,
                                       .shift = type.shift};
    return kernel;
}

void bench_kernel_launch(struct bench_kernel *kernel, CUstream stream)
{
    void *arguments[] = {&kernel->scan};

    kernel->scan.ticket++;
    CUDA(cuLaunchKernel, kernel->function, kernel->blocks, 1, 1, NG_NAN_THREADS, 1, 1, 0, stream,
         arguments, NULL);
}
