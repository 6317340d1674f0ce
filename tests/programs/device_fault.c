/*
 * A kernel that writes where no memory is, by the driver API, whichever API the program uses.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <unistd.h>

#include "tests/programs/device.h"

#define BEFORE_US 300000 /* what is enqueued meanwhile is enqueued without an error */
#define NOWHERE   16

static const char ptx[] = ".version 6.0\n"
                          ".target sm_50\n"
                          ".address_size 64\n"
                          ".visible .entry store_word(.param .u64 store_word_address)\n"
                          "{\n"
                          "    .reg .b32 %value;\n"
                          "    .reg .b64 %address;\n"
                          "    ld.param.u64 %address, [store_word_address];\n"
                          "    mov.u32 %value, 1;\n"
                          "    st.global.u32 [%address], %value;\n"
                          "    ret;\n"
                          "}\n";

static void *symbol(const char *name)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *found = driver ? dlsym(driver, name) : NULL;

    if (!found)
        fail(__FILE__, __LINE__, name, "not found in libcuda.so.1");
    return found;
}

static void check(CUresult result, int line, const char *call)
{
    if (result != CUDA_SUCCESS)
        fail(__FILE__, line, call, "failed");
}

static void take_a_while(void *nothing)
{
    (void)nothing;
    usleep(BEFORE_US);
}

void device_fault(cudaStream_t stream)
{
    CUresult (*load)(CUmodule *, const void *);
    CUresult (*get)(CUfunction *, CUmodule, const char *);
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, CUstream, void **, void **);
    CUresult (*context_of)(CUstream, CUcontext *);
    CUresult (*push)(CUcontext);
    CUresult (*pop)(CUcontext *);
    CUcontext context;
    CUmodule module;
    CUfunction function;
    uint64_t address = NOWHERE;
    void *arguments[] = {&address};

    *(void **)&load = symbol("cuModuleLoadData");
    *(void **)&get = symbol("cuModuleGetFunction");
    *(void **)&launch = symbol("cuLaunchKernel");
    *(void **)&context_of = symbol("cuStreamGetCtx");
    *(void **)&push = symbol("cuCtxPushCurrent_v2");
    *(void **)&pop = symbol("cuCtxPopCurrent_v2");
    check(context_of((CUstream)stream, &context), __LINE__, "cuStreamGetCtx");
    check(push(context), __LINE__, "cuCtxPushCurrent");
    check(load(&module, ptx), __LINE__, "cuModuleLoadData");
    check(get(&function, module, "store_word"), __LINE__, "cuModuleGetFunction");
    device_host_function(stream, take_a_while, NULL);
    check(launch(function, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream, arguments, NULL), __LINE__,
          "cuLaunchKernel");
    check(pop(&context), __LINE__, "cuCtxPopCurrent");
}
