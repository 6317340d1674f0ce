/* Allocations of a program, large and small, on several threads, and what CUDA tells of them: for
 * settings that serve them in another way, which must not show.
 *
 *   allocations [--operations N] [--ipc]
 *
 * Under NCCLGUARD_ALLOC=vmm large ones must be mapped memory; else none may be. `--ipc`: asks for a
 * handle of legacy IPC first, whatever the answer, and from then on none may be. The last line:
 * `all done`. */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 4
#define MINE    16
#define LARGE   ((size_t)2 << 20)

static const size_t sizes[] = {1,         4096,          LARGE - 1,       LARGE,
                               LARGE + 1, 5 * LARGE + 3, (size_t)64 << 20};

static CUresult (*get_range)(CUdeviceptr *, size_t *, CUdeviceptr);
static CUresult (*retain)(CUmemGenericAllocationHandle *, void *);
static CUresult (*release)(CUmemGenericAllocationHandle);
static CUresult (*get_handle)(CUipcMemHandle *, CUdeviceptr);
static bool expects_mapped;
static unsigned operations = 20000;

static void need(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "allocations: %s\n", what);
    exit(4);
}

static void check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "allocations: %s: %s\n", what, cudaGetErrorString(error));
    exit(3);
}

static void find_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);

    need(driver != NULL, "no driver");
    *(void **)&get_range = dlsym(driver, "cuMemGetAddressRange_v2");
    *(void **)&retain = dlsym(driver, "cuMemRetainAllocationHandle");
    *(void **)&release = dlsym(driver, "cuMemRelease");
    *(void **)&get_handle = dlsym(driver, "cuIpcGetMemHandle");
    need(get_range && retain && release && get_handle, "the driver lacks a function");
}

static void check_kind(void *memory, size_t size)
{
    CUmemGenericAllocationHandle handle;
    bool mapped = retain(&handle, memory) == CUDA_SUCCESS;

    if (mapped)
        release(handle);
    need(mapped == (expects_mapped && size >= LARGE), mapped ? "it is mapped" : "it is not mapped");
}

/* The first of all, on several threads at once. */
static void *allocate_first(void *barrier)
{
    void *memory;

    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaFree(NULL), "cudaFree");
    pthread_barrier_wait(barrier);
    check(cudaMalloc(&memory, LARGE), "cudaMalloc");
    check_kind(memory, LARGE);
    check(cudaFree(memory), "cudaFree");
    return NULL;
}

static void on_threads(void *(*body)(void *), void *argument)
{
    pthread_t threads[THREADS];

    for (unsigned i = 0; i < THREADS; i++)
        need(pthread_create(&threads[i], NULL, body, argument) == 0, "no thread");
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void tell_sizes(void)
{
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CUdeviceptr base = 0;
        size_t bytes = 0;
        char *memory, byte = 0;
        check(cudaMalloc((void **)&memory, sizes[i]), "cudaMalloc");
        check_kind(memory, sizes[i]);
        need((uintptr_t)memory % 256 == 0, "it is not aligned");
        need(get_range(&base, &bytes, (CUdeviceptr)(uintptr_t)memory + sizes[i] / 2) ==
                 CUDA_SUCCESS,
             "no range");
        printf("%zu bytes: a range of %zu, begins %zu before\n", sizes[i], bytes,
               (size_t)((uintptr_t)memory - base));
        check(cudaMemset(memory, 7, sizes[i]), "cudaMemset");
        check(cudaMemcpy(&byte, memory + sizes[i] - 1, 1, cudaMemcpyDeviceToHost), "cudaMemcpy");
        need(byte == 7, "the last byte is wrong");
        check(cudaFree(memory), "cudaFree");
        printf("freed twice: %s\n", cudaGetErrorName(cudaFree(memory)));
        (void)cudaGetLastError();
    }
}

/* Not to the byte: a driver keeps some for itself. */
static void tell_kept(const char *by, size_t before, size_t after)
{
    printf("kept by %s: %s\n", by, after + 2 * LARGE < before ? "memory" : "nothing");
}

/* Memory from cudaMalloc may be freed in stream order, too. */
static void tell_ordered(void)
{
    size_t before, after, total;
    cudaStream_t stream;
    void *memory;

    check(cudaStreamCreate(&stream), "cudaStreamCreate");
    check(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        check(cudaMalloc(&memory, sizes[i]), "cudaMalloc");
        check(cudaMemsetAsync(memory, 7, sizes[i], stream), "cudaMemsetAsync");
        check(cudaFreeAsync(memory, stream), "cudaFreeAsync");
    }
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    tell_kept("frees in stream order", before, after);
}

/* A free by another thread does no harm to a capture that is this thread's alone. */
static void *free_there(void *memory)
{
    check(cudaSetDevice(0), "cudaSetDevice");
    check(cudaFree(memory), "cudaFree");
    return NULL;
}

static void tell_capture(void)
{
    size_t before, after, total;
    cudaStream_t stream;
    cudaGraph_t graph;
    pthread_t thread;
    void *memory, *other;

    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    check(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
    check(cudaMalloc(&memory, 5 * LARGE), "cudaMalloc");
    check(cudaMalloc(&other, LARGE), "cudaMalloc");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    check(cudaMemsetAsync(other, 7, LARGE, stream), "cudaMemsetAsync");
    need(pthread_create(&thread, NULL, free_there, memory) == 0, "no thread");
    pthread_join(thread, NULL);
    printf("captured beside a free: %s\n", cudaGetErrorName(cudaStreamEndCapture(stream, &graph)));
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    check(cudaFree(other), "cudaFree");
    check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
    check(cudaStreamDestroy(stream), "cudaStreamDestroy");
    tell_kept("a free beside a capture", before, after);
}

/* Contexts that a program makes itself take their memory with them, and one that has the same
 * address again has none of it. */
static void tell_contexts(void)
{
    CUresult (*create)(CUcontext *, unsigned int, CUdevice), (*destroy)(CUcontext);
    CUresult (*alloc)(CUdeviceptr *, size_t), (*free_memory)(CUdeviceptr);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    size_t before, after, total;

    *(void **)&create = dlsym(driver, "cuCtxCreate_v2");
    *(void **)&destroy = dlsym(driver, "cuCtxDestroy_v2");
    *(void **)&alloc = dlsym(driver, "cuMemAlloc_v2");
    *(void **)&free_memory = dlsym(driver, "cuMemFree_v2");
    need(create && destroy && alloc && free_memory, "the driver lacks a function");
    check(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
    for (int i = 0; i < 4; i++) {
        CUdeviceptr kept, freed;
        CUcontext context;
        need(create(&context, 0, 0) == CUDA_SUCCESS, "no context");
        need(alloc(&kept, 3 * LARGE) == CUDA_SUCCESS && alloc(&freed, LARGE) == CUDA_SUCCESS,
             "no memory");
        check_kind((void *)(uintptr_t)kept, 3 * LARGE);
        need(free_memory(freed) == CUDA_SUCCESS, "it cannot be freed");
        need(destroy(context) == CUDA_SUCCESS, "the context cannot be destroyed");
        printf("freed after its context: %s\n",
               free_memory(kept) == CUDA_SUCCESS ? "taken" : "refused");
    }
    check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
    tell_kept("contexts", before, after);
}

/* A primary context that nothing but the program holds takes its memory with it as well. The first
 * form of the release is what CUDA's runtimes call. */
static void use_primary(void)
{
    CUresult (*retain_primary)(CUcontext *, CUdevice), (*release_primary)(CUdevice);
    CUresult (*set_current)(CUcontext), (*alloc)(CUdeviceptr *, size_t);
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    CUcontext context;
    CUdeviceptr memory;

    *(void **)&retain_primary = dlsym(driver, "cuDevicePrimaryCtxRetain");
    *(void **)&release_primary = dlsym(driver, "cuDevicePrimaryCtxRelease");
    *(void **)&set_current = dlsym(driver, "cuCtxSetCurrent");
    *(void **)&alloc = dlsym(driver, "cuMemAlloc_v2");
    need(retain_primary && release_primary && set_current && alloc, "the driver lacks a function");
    need(retain_primary(&context, 0) == CUDA_SUCCESS, "no primary context");
    need(set_current(context) == CUDA_SUCCESS, "it cannot be made current");
    need(alloc(&memory, 3 * LARGE) == CUDA_SUCCESS, "no memory");
    check_kind((void *)(uintptr_t)memory, 3 * LARGE);
    need(set_current(NULL) == CUDA_SUCCESS, "no context cannot be made current");
    need(release_primary(0) == CUDA_SUCCESS, "the primary context cannot be released");
}

static void tell_limits(void)
{
    size_t before, after, total;
    void *memory;

    printf("too much: %s\n", cudaGetErrorName(cudaMalloc(&memory, (size_t)1 << 50)));
    printf("more than there is: %s\n", cudaGetErrorName(cudaMalloc(&memory, SIZE_MAX - 100)));
    (void)cudaGetLastError();
    check(cudaMemGetInfo(&before, &total), "cudaMemGetInfo");
    for (int i = 0; i < 4; i++)
        check(cudaMalloc(&memory, (size_t)8 << 20), "cudaMalloc");
    check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
    printf("used: %zu\n", before - after);
    check(cudaDeviceReset(), "cudaDeviceReset");
    check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
    printf("left after a reset: %zu\n", before - after);
    check(cudaDeviceReset(), "cudaDeviceReset");
    use_primary();
    check(cudaMemGetInfo(&after, &total), "cudaMemGetInfo");
    printf("left after the last release: %zu\n", before - after);
}

/* Each byte says which thread's it is. */
static void *work(void *unused)
{
    static _Atomic unsigned threads;
    unsigned thread = threads++, seed = thread + 1;
    struct {
        char *memory;
        size_t size;
    } mine[MINE] = {0};

    check(cudaSetDevice(0), "cudaSetDevice");
    for (unsigned i = 0; i < operations / THREADS; i++) {
        unsigned at = (unsigned)rand_r(&seed) % MINE;
        if (mine[at].memory) {
            char byte = 0;
            check(cudaMemcpy(&byte, mine[at].memory + mine[at].size - 1, 1, cudaMemcpyDeviceToHost),
                  "cudaMemcpy");
            need(byte == (char)(thread + 1), "memory is another thread's");
            check(rand_r(&seed) % 4 ? cudaFree(mine[at].memory) : cudaFreeAsync(mine[at].memory, 0),
                  "cudaFree");
            mine[at].memory = NULL;
            continue;
        }
        mine[at].size = 1 + (size_t)rand_r(&seed) % (3 * LARGE);
        check(cudaMalloc((void **)&mine[at].memory, mine[at].size), "cudaMalloc");
        check(cudaMemset(mine[at].memory + mine[at].size - 1, (int)thread + 1, 1), "cudaMemset");
    }
    for (unsigned at = 0; at < MINE; at++)
        if (mine[at].memory)
            check(cudaFree(mine[at].memory), "cudaFree");
    return unused;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {
        {"operations", required_argument, NULL, 'o'}, {"ipc", no_argument, NULL, 'i'}, {0}};
    const char *how = getenv("NCCLGUARD_ALLOC");
    bool ipc = false;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == '?')
            return 2;
        ipc |= option == 'i';
        if (option == 'o')
            operations = (unsigned)atoi(optarg);
    }
    expects_mapped = how && strcmp(how, "vmm") == 0;
    check(cudaSetDevice(0), "cudaSetDevice");
    find_driver();
    pthread_barrier_t together;
    need(pthread_barrier_init(&together, NULL, THREADS) == 0, "no barrier");
    on_threads(allocate_first, &together);
    if (ipc) {
        CUipcMemHandle handle;
        void *memory;
        check(cudaMalloc(&memory, LARGE), "cudaMalloc");
        check_kind(memory, LARGE);
        (void)get_handle(&handle, (CUdeviceptr)(uintptr_t)memory);
        check(cudaFree(memory), "cudaFree");
        expects_mapped = false;
    }
    tell_sizes();
    tell_ordered();
    tell_capture();
    tell_contexts();
    tell_limits();
    on_threads(work, NULL);
    printf("all done\n");
    return 0;
}
