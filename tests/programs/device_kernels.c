/*
 * Kernels of the test programs: one that writes where no memory is, and one that takes the whole
 * device for a while. By the driver API, whichever API the program uses.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
#include <unistd.h>

#include "tests/programs/device.h"

#define BEFORE_US 300000 /* what is enqueued meanwhile is enqueued without an error */
#define NOWHERE   16

/* As many threads as a device of 132 processors holds, or more: no block of another kernel fits. */
#define CROWD         (2 * 132)
#define CROWD_THREADS 1024

static const char store_word[] = ".version 6.0\n"
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

static const char take_time[] = ".version 6.0\n"
                                ".target sm_50\n"
                                ".address_size 64\n"
                                ".visible .entry take_time(.param .u64 take_time_ns)\n"
                                "{\n"
                                "    .reg .pred %goes_on;\n"
                                "    .reg .b64 %begun, %now, %ns;\n"
                                "    ld.param.u64 %ns, [take_time_ns];\n"
                                "    mov.u64 %begun, %globaltimer;\n"
                                "again:\n"
                                "    mov.u64 %now, %globaltimer;\n"
                                "    sub.u64 %now, %now, %begun;\n"
                                "    setp.lt.u64 %goes_on, %now, %ns;\n"
                                "    @%goes_on bra again;\n"
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

/* One kernel of so many blocks on `stream`, in the context of `of`. */
static void launch(CUstream of, CUstream stream, const char *text, const char *entry,
                   unsigned blocks, unsigned threads, uint64_t argument)
{
    CUresult (*load)(CUmodule *, const void *);
    CUresult (*get)(CUfunction *, CUmodule, const char *);
    CUresult (*launch_kernel)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                              unsigned, unsigned, CUstream, void **, void **);
    CUresult (*create)(CUstream *, unsigned);
    CUresult (*context_of)(CUstream, CUcontext *);
    CUresult (*push)(CUcontext);
    CUresult (*pop)(CUcontext *);
    CUcontext context;
    CUmodule module;
    CUfunction function;
    void *arguments[] = {&argument};

    *(void **)&load = symbol("cuModuleLoadData");
    *(void **)&get = symbol("cuModuleGetFunction");
    *(void **)&launch_kernel = symbol("cuLaunchKernel");
    *(void **)&create = symbol("cuStreamCreate");
    *(void **)&context_of = symbol("cuStreamGetCtx");
    *(void **)&push = symbol("cuCtxPushCurrent_v2");
    *(void **)&pop = symbol("cuCtxPopCurrent_v2");
    check(context_of(of, &context), __LINE__, "cuStreamGetCtx");
    check(push(context), __LINE__, "cuCtxPushCurrent");
    check(load(&module, text), __LINE__, "cuModuleLoadData");
    check(get(&function, module, entry), __LINE__, "cuModuleGetFunction");
    if (!stream)
        check(create(&stream, CU_STREAM_NON_BLOCKING), __LINE__, "cuStreamCreate");
    check(launch_kernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, NULL),
          __LINE__, "cuLaunchKernel");
    check(pop(&context), __LINE__, "cuCtxPopCurrent");
}

void device_fault(cudaStream_t stream)
{
    device_host_function(stream, take_a_while, NULL);
    launch((CUstream)stream, (CUstream)stream, store_word, "store_word", 1, 1, NOWHERE);
}

void device_crowd(cudaStream_t stream, long long ms)
{
    launch((CUstream)stream, NULL, take_time, "take_time", CROWD, CROWD_THREADS,
           (uint64_t)ms * 1000000);
    usleep(BEFORE_US); /* it is to be there first */
}
