/*
 * Modules and kernels of the stand-in driver. It compiles no PTX: it looks for the entries in the
 * text, and runs the kernel of that name that it has in C, on the stream's thread, one thread of
 * the grid after the other. Text with an entry that it does not have is refused, as by a driver
 * that cannot compile it.
 */
#include "tests/fake/cuda/cuda_state.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fake/cuda/kernels.h"

#define ENTRIES_MAX 8

struct CUfunc_st {
    const struct kernel *kernel;
    CUmodule module;
};

struct CUmod_st {
    struct CUmod_st *next;
    CUcontext ctx;
    void *globals;
    unsigned int count;
    struct CUfunc_st functions[ENTRIES_MAX];
};

static struct CUmod_st *modules; /* under the lock */

static const char *skip_spaces(const char *text)
{
    return text + strspn(text, " \t\r\n");
}

/* Fills in what the text has. */
static CUresult read_entries(const char *text, struct CUmod_st *module, size_t *ret_globals)
{
    const char *at = text;

    REFUSE_IF(!strstr(text, ".version") || !strstr(text, ".target"), CUDA_ERROR_INVALID_PTX);
    while ((at = strstr(at, ".entry"))) {
        at = skip_spaces(at + strlen(".entry"));
        size_t length = strcspn(at, " \t\r\n(");
        const struct kernel *kernel = fake_kernel_find(at, length);
        REFUSE_IF(!kernel || module->count == ENTRIES_MAX, CUDA_ERROR_NO_BINARY_FOR_GPU);
        module->functions[module->count++] = (struct CUfunc_st){kernel, module};
        if (kernel->globals_bytes > *ret_globals)
            *ret_globals = kernel->globals_bytes;
    }
    return CUDA_SUCCESS;
}

static void unload(struct CUmod_st *module)
{
    struct CUmod_st **place = &modules;

    while (*place != module)
        place = &(*place)->next;
    *place = module->next;
    for (unsigned int i = 0; i < module->count; i++)
        fake_handle_remove(&module->functions[i]);
    fake_handle_remove(module);
    free(module->globals);
    free(module);
}

void fake_kernel_free_context(CUcontext ctx)
{
    for (struct CUmod_st *module = modules, *next; module; module = next) {
        next = module->next;
        if (module->ctx == ctx)
            unload(module);
    }
}

static CUresult load(CUcontext ctx, const char *text, CUmodule *ret_module)
{
    struct CUmod_st *module = fake_new(sizeof(*module));
    size_t globals = 0;

    CUresult result = read_entries(text, module, &globals);
    if (result != CUDA_SUCCESS) {
        free(module);
        return result;
    }
    module->globals = globals ? fake_new(globals) : NULL;
    module->ctx = ctx;
    module->next = modules;
    modules = module;
    fake_handle_add(module, HANDLE_MODULE);
    for (unsigned int i = 0; i < module->count; i++)
        fake_handle_add(&module->functions[i], HANDLE_FUNCTION);
    *ret_module = module;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image)
{
    ENTER(ctx);
    TRY(fake_capture_guard()); /* it allocates */
    return module && image ? load(ctx, image, module) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuModuleUnload(CUmodule hmod)
{
    ENTER(ctx);
    TRY(fake_capture_guard());
    REFUSE_IF(!fake_handle_is(hmod, HANDLE_MODULE), CUDA_ERROR_INVALID_HANDLE);
    fake_context_drain(hmod->ctx);
    unload(hmod);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    ENTER(ctx);
    INVALID_IF(!hfunc || !name);
    REFUSE_IF(!fake_handle_is(hmod, HANDLE_MODULE), CUDA_ERROR_INVALID_HANDLE);
    for (unsigned int i = 0; i < hmod->count; i++)
        if (!strcmp(hmod->functions[i].kernel->entry, name)) {
            *hfunc = &hmod->functions[i];
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_NOT_FOUND;
}

CUresult CUDAAPI cuFuncLoad(CUfunction function)
{
    ENTER(ctx);
    return fake_handle_is(function, HANDLE_FUNCTION) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

bool fake_kernel_run(struct operation *op)
{
    const struct kernel *kernel = op->kernel.function->kernel;

    return kernel->run(op->kernel.function->module->globals, op->kernel.blocks, op->kernel.threads,
                       op->kernel.argument);
}

static CUresult launch(CUstream handle, CUfunction f, unsigned int blocks, unsigned int threads,
                       void **arguments)
{
    struct operation op = {.kind = OP_KERNEL,
                           .kernel = {.function = f, .blocks = blocks, .threads = threads}};

    ENTER_STREAM(handle, stream);
    REFUSE_IF(!fake_handle_is(f, HANDLE_FUNCTION) || f->module->ctx != stream->ctx,
              CUDA_ERROR_INVALID_HANDLE);
    INVALID_IF(!arguments || !arguments[0] || !blocks || !threads || threads > 1024 ||
               f->kernel->argument_bytes > sizeof(op.kernel.argument));
    memcpy(op.kernel.argument, arguments[0], f->kernel->argument_bytes);
    return fake_stream_submit(stream, &op);
}

STREAM_FORMS(cuLaunchKernel,
             (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
              unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
              unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra),
             extra || sharedMemBytes ? CUDA_ERROR_NOT_SUPPORTED
                                     : launch(hStream, f, gridDimX *gridDimY *gridDimZ,
                                              blockDimX *blockDimY *blockDimZ, kernelParams))

/* What the kernels of the stand-in for libnccl take: of NCCL's arguments, the field that points to
 * the work. */
struct nccl_arguments {
    unsigned char others[24];
    void *work;
};

/* `f` is no function of a module but what that kernel runs on the host, as cuLaunchHostFunc would.
 */
static CUresult launch_nccl(CUstream handle, CUfunction f, void *const *parameters,
                            void *const *extra)
{
    struct operation op = {.kind = OP_HOST, .host = {.fn = (CUhostFn)(void *)f}};

    REFUSE_IF(parameters, CUDA_ERROR_NOT_SUPPORTED);
    ENTER_STREAM(handle, stream);
    INVALID_IF(!f || !extra || extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER ||
               extra[2] != CU_LAUNCH_PARAM_BUFFER_SIZE || extra[4] != CU_LAUNCH_PARAM_END ||
               *(const size_t *)extra[3] < sizeof(struct nccl_arguments));
    op.host.data = ((const struct nccl_arguments *)extra[1])->work;
    return fake_stream_submit(stream, &op);
}

FORM(cuLaunchKernelEx_ptsz,
     (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
     config ? launch_nccl(config->hStream, f, kernelParams, extra) : CUDA_ERROR_INVALID_VALUE)
FORM(cuLaunchKernelEx,
     (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra),
     config ? launch_nccl(fake_legacy(config->hStream), f, kernelParams, extra)
            : CUDA_ERROR_INVALID_VALUE)
