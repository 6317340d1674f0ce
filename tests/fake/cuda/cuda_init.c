/*
 * Devices, contexts and the life of the stand-in driver: cuInit, fork, the end of the process.
 *
 * Entered by any thread of the program. Never calls back into the program.
 */
#include "tests/fake/cuda/cuda_state.h"

#include <ctype.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum state { STATE_NEW, STATE_READY, STATE_GONE, STATE_FORKED };

/*
 * Guards every structure of the stand-in. Nests inside nothing; no function of the program and no
 * system call that can wait for another process is made with it held.
 */
pthread_mutex_t fake_mutex = PTHREAD_MUTEX_INITIALIZER;

struct device fake_devices[FAKE_MAX_DEVICES];
int fake_device_count;
size_t fake_device_memory = (size_t)1 << 30;
struct stuck_device fake_stuck_device = {.physical = -1};
CUcontext fake_contexts;

static _Atomic int state = STATE_NEW;
static _Atomic uint64_t thread_ids;
static uint64_t ids;
static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;
static __thread struct thread this_thread = {.capture_mode = CU_STREAM_CAPTURE_MODE_GLOBAL};

static struct {
    const void *handle;
    enum handle_kind kind;
} * handles;
static size_t handles_room, handles_used;

uint64_t fake_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t fake_next_id(void)
{
    return ++ids;
}

void *fake_resize(void *memory, size_t bytes)
{
    void *resized = realloc(memory, bytes);

    if (!resized)
        abort();
    return resized;
}

void *fake_new(size_t bytes)
{
    return memset(fake_resize(NULL, bytes), 0, bytes);
}

/* Handles: a set, so that a destroyed or invented handle gives an error and not a crash. */

static size_t handle_slot(const void *handle)
{
    uint64_t hash = (uint64_t)(uintptr_t)handle * 0x9e3779b97f4a7c15u;

    return (size_t)(hash >> 20) & (handles_room - 1);
}

static void handle_insert(const void *handle, enum handle_kind kind)
{
    size_t slot = handle_slot(handle);

    while (handles[slot].kind != HANDLE_FREE && handles[slot].kind != HANDLE_TOMBSTONE)
        slot = (slot + 1) & (handles_room - 1);
    if (handles[slot].kind == HANDLE_FREE)
        handles_used++;
    handles[slot].handle = handle;
    handles[slot].kind = kind;
}

void fake_handle_add(const void *handle, enum handle_kind kind)
{
    if (2 * (handles_used + 1) > handles_room) {
        __typeof__(handles) old = handles;
        size_t old_room = handles_room, live = 0;

        for (size_t i = 0; i < old_room; i++)
            live += old[i].kind > HANDLE_TOMBSTONE;
        handles_room = 1024;
        while (handles_room < 4 * (live + 1))
            handles_room *= 2;
        handles = fake_new(handles_room * sizeof(*handles));
        handles_used = 0;
        for (size_t i = 0; i < old_room; i++)
            if (old[i].kind > HANDLE_TOMBSTONE)
                handle_insert(old[i].handle, old[i].kind);
        free(old);
    }
    handle_insert(handle, kind);
}

static size_t handle_find(const void *handle)
{
    if (!handles_room)
        return SIZE_MAX;
    for (size_t slot = handle_slot(handle); handles[slot].kind != HANDLE_FREE;
         slot = (slot + 1) & (handles_room - 1))
        if (handles[slot].kind != HANDLE_TOMBSTONE && handles[slot].handle == handle)
            return slot;
    return SIZE_MAX;
}

void fake_handle_remove(const void *handle)
{
    size_t slot = handle_find(handle);

    if (slot != SIZE_MAX)
        handles[slot].kind = HANDLE_TOMBSTONE;
}

bool fake_handle_is(const void *handle, enum handle_kind kind)
{
    size_t slot = handle_find(handle);

    return slot != SIZE_MAX && handles[slot].kind == kind;
}

/* Threads. */

static void thread_end(void *data)
{
    struct thread *thread = data;

    fake_lock();
    if (atomic_load(&state) == STATE_READY)
        fake_thread_close_streams(thread);
    fake_unlock();
    free(thread->contexts);
    thread->contexts = NULL;
    thread->depth = 0;
}

static void thread_key_make(void)
{
    pthread_key_create(&thread_key, thread_end);
}

struct thread *fake_thread(void)
{
    if (!this_thread.id) {
        pthread_once(&thread_key_once, thread_key_make);
        this_thread.id = atomic_fetch_add(&thread_ids, 1) + 1;
        pthread_setspecific(thread_key, &this_thread);
    }
    return &this_thread;
}

/* The driver's own life. */

static void fork_prepare(void)
{
    fake_lock();
}

static void fork_parent(void)
{
    fake_unlock();
}

static void fork_child(void)
{
    /* The threads that ran the streams are gone: as with the real driver, nothing works any more.
     */
    if (atomic_load(&state) == STATE_READY)
        atomic_store(&state, STATE_FORKED);
    fake_unlock();
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(fork_prepare, fork_parent, fork_child);
}

static void at_exit(void)
{
    int ready = STATE_READY;

    fake_lock();
    atomic_compare_exchange_strong(&state, &ready, STATE_GONE);
    fake_unlock();
}

bool fake_running(void)
{
    return atomic_load(&state) == STATE_READY;
}

CUresult fake_ready(void)
{
    switch (atomic_load_explicit(&state, memory_order_acquire)) {
    case STATE_READY:
        return fake_thread()->in_host_function ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
    case STATE_GONE:
        return CUDA_ERROR_DEINITIALIZED;
    default:
        return CUDA_ERROR_NOT_INITIALIZED;
    }
}

static size_t parse_bytes(const char *text, size_t otherwise)
{
    char *end;
    unsigned long long value;

    if (!text || !isdigit((unsigned char)*text))
        return otherwise;
    value = strtoull(text, &end, 10);
    switch (toupper((unsigned char)*end)) {
    case 'K':
        return (size_t)value << 10;
    case 'M':
        return (size_t)value << 20;
    case 'G':
        return (size_t)value << 30;
    default:
        return (size_t)value;
    }
}

static void read_stuck_device(void)
{
    const char *text = getenv("FAKE_CUDA_STUCK");
    struct stuck_device stuck = {.pending = 0};

    if (text && sscanf(text, "device=%d,after=%lu,pending=%lu", &stuck.physical, &stuck.after,
                       &stuck.pending) >= 2)
        fake_stuck_device = stuck;
}

/* CUDA_VISIBLE_DEVICES as the real driver reads it: the list ends at the first bad entry. */
static void read_devices(void)
{
    const char *count_text = getenv("FAKE_CUDA_DEVICES");
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    long total = count_text && *count_text ? strtol(count_text, NULL, 10) : 8;

    if (total < 0)
        total = 0;
    if (total > FAKE_MAX_DEVICES)
        total = FAKE_MAX_DEVICES;
    fake_device_memory = parse_bytes(getenv("FAKE_CUDA_MEMORY"), (size_t)1 << 30);
    read_stuck_device();
    fake_device_count = 0;
    if (!visible) {
        for (; fake_device_count < total; fake_device_count++)
            fake_devices[fake_device_count].physical = fake_device_count;
        return;
    }
    while (*visible && fake_device_count < FAKE_MAX_DEVICES) {
        char *end;
        long index = strtol(visible, &end, 10);

        if (end == visible || index < 0 || index >= total || (*end && *end != ','))
            break;
        for (int i = 0; i < fake_device_count; i++)
            if (fake_devices[i].physical == index) {
                fake_device_count = 0;
                return;
            }
        fake_devices[fake_device_count++].physical = (int)index;
        visible = *end ? end + 1 : end;
    }
}

CUresult CUDAAPI cuInit(unsigned int flags)
{
    INVALID_IF(flags);
    HOLD_LOCK;
    switch (atomic_load(&state)) {
    case STATE_NEW:
        read_devices();
        REFUSE_IF(!fake_device_count, CUDA_ERROR_NO_DEVICE);
        atexit(at_exit);
        atomic_store_explicit(&state, STATE_READY, memory_order_release);
        return CUDA_SUCCESS;
    case STATE_GONE:
        return CUDA_ERROR_DEINITIALIZED;
    case STATE_FORKED:
        return CUDA_ERROR_NOT_INITIALIZED;
    default:
        return CUDA_SUCCESS;
    }
}

CUresult CUDAAPI cuDriverGetVersion(int *driverVersion)
{
    INVALID_IF(!driverVersion);
    *driverVersion = CUDA_VERSION;
    return CUDA_SUCCESS;
}

/* Contexts. */

CUresult fake_context_check(CUcontext ctx)
{
    for (CUcontext known = fake_contexts; known; known = known->next)
        if (known == ctx)
            return known->alive ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return CUDA_ERROR_INVALID_CONTEXT;
}

/* The calling thread's, or NULL. */
static CUcontext current(void)
{
    struct thread *thread = fake_thread();

    return thread->depth ? thread->contexts[thread->depth - 1] : NULL;
}

CUresult fake_context(CUcontext *ret_ctx)
{
    CUcontext ctx = current();

    REFUSE_IF(!ctx, CUDA_ERROR_INVALID_CONTEXT);
    REFUSE_IF(!ctx->alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    if (ctx->sticky != CUDA_SUCCESS)
        return ctx->sticky;
    *ret_ctx = ctx;
    return CUDA_SUCCESS;
}

CUresult fake_device_check(CUdevice dev)
{
    TRY(fake_ready());
    return dev >= 0 && dev < fake_device_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

static CUcontext context_create(int device, unsigned int flags, bool primary)
{
    CUcontext ctx = fake_new(sizeof(*ctx));

    *ctx = (struct CUctx_st){.device = device,
                             .flags = flags,
                             .primary = primary,
                             .id = fake_next_id(),
                             .alive = true,
                             .next = fake_contexts};
    fake_contexts = ctx;
    return ctx;
}

static void context_end(CUcontext ctx)
{
    fake_context_drain(ctx);
    if (!ctx->alive)
        return; /* another thread was faster */
    fake_context_close_streams(ctx);
    fake_kernel_free_context(ctx);
    fake_memory_free_context(ctx);
    ctx->alive = false;
    ctx->sticky = CUDA_SUCCESS;
    ctx->peers = 0;
}

static void thread_push(CUcontext ctx)
{
    struct thread *thread = fake_thread();

    thread->contexts = fake_resize(thread->contexts, (thread->depth + 1) * sizeof(ctx));
    thread->contexts[thread->depth++] = ctx;
}

static CUresult create_and_push(CUcontext *pctx, unsigned int flags, CUdevice dev)
{
    TRY(fake_device_check(dev));
    INVALID_IF(!pctx || (flags & ~(unsigned int)CU_CTX_FLAGS_MASK));
    HOLD_LOCK;
    *pctx = context_create(dev, flags, false);
    thread_push(*pctx);
    return CUDA_SUCCESS;
}

FORM(cuCtxCreate, (CUcontext * pctx, unsigned int flags, CUdevice dev),
     create_and_push(pctx, flags, dev))
FORM(cuCtxCreate_v2, (CUcontext * pctx, unsigned int flags, CUdevice dev),
     create_and_push(pctx, flags, dev))
FORM(cuCtxCreate_v3,
     (CUcontext * pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags,
      CUdevice dev),
     numParams ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create_and_push(pctx, flags, dev))

CUresult CUDAAPI cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams,
                                unsigned int flags, CUdevice dev)
{
    REFUSE_IF(ctxCreateParams &&
                  (ctxCreateParams->numExecAffinityParams || ctxCreateParams->cigParams),
              CUDA_ERROR_NOT_SUPPORTED);
    return create_and_push(pctx, flags, dev);
}

V2_CALL(cuCtxDestroy, (CUcontext ctx), (ctx))
{
    struct thread *thread = fake_thread();

    ENTER_DRIVER;
    TRY(fake_context_check(ctx));
    REFUSE_IF(ctx->primary, CUDA_ERROR_INVALID_CONTEXT);
    context_end(ctx);
    if (current() == ctx)
        thread->depth--;
    return CUDA_SUCCESS;
}

V2_CALL(cuCtxPushCurrent, (CUcontext ctx), (ctx))
{
    ENTER_DRIVER;
    /* NULL may be pushed: the thread then has no current context. */
    TRY(ctx ? fake_context_check(ctx) : CUDA_SUCCESS);
    thread_push(ctx);
    return CUDA_SUCCESS;
}

V2_CALL(cuCtxPopCurrent, (CUcontext * pctx), (pctx))
{
    struct thread *thread = fake_thread();

    TRY(fake_ready());
    REFUSE_IF(!thread->depth, CUDA_ERROR_INVALID_CONTEXT);
    thread->depth--;
    if (pctx)
        *pctx = thread->contexts[thread->depth];
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext ctx)
{
    struct thread *thread = fake_thread();

    ENTER_DRIVER;
    TRY(ctx ? fake_context_check(ctx) : CUDA_SUCCESS);
    if (thread->depth)
        thread->depth--;
    if (ctx)
        thread_push(ctx);
    return CUDA_SUCCESS;
}

GETTER(cuCtxGetCurrent, (CUcontext * pctx), TRY(fake_ready()), pctx, current())

GETTER(cuCtxGetDevice, (CUdevice * device), TRY(fake_ready()); INVALID_IF(!device);
       TRY(current() ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT), device, current()->device)

/* Locked: the context that a call names, or with NULL the calling thread's. */
static CUresult context_named(CUcontext *ctx)
{
    return *ctx ? fake_context_check(*ctx) : fake_context(ctx);
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
    if (!ctx)
        return cuCtxGetDevice(device);
    ENTER_DRIVER;
    INVALID_IF(!device);
    TRY(fake_context_check(ctx));
    *device = ctx->device;
    return CUDA_SUCCESS;
}

GETTER(cuCtxGetId, (CUcontext ctx, unsigned long long *ctxId), ENTER_DRIVER; INVALID_IF(!ctxId);
       TRY(context_named(&ctx)), ctxId, ctx->id)

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext ctx)
{
    ENTER_DRIVER;
    TRY(context_named(&ctx));
    TRY(fake_capture_context_guard(ctx));
    fake_context_drain(ctx);
    return ctx->sticky;
}

FORM(cuCtxSynchronize, (void), cuCtxSynchronize_v2(NULL))

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    ENTER(ctx);
    if (leastPriority)
        *leastPriority = 0;
    if (greatestPriority)
        *greatestPriority = -5;
    return CUDA_SUCCESS;
}

/* Primary contexts. */

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    TRY(fake_device_check(dev));
    INVALID_IF(!pctx);
    HOLD_LOCK;
    struct device *device = &fake_devices[dev];
    if (!device->primary)
        device->primary = context_create(dev, device->primary_flags, true);
    if (!device->primary->alive)
        device->primary->id = fake_next_id();
    device->primary->alive = true;
    device->primary->flags = device->primary_flags;
    device->primary->retains++;
    *pctx = device->primary;
    return CUDA_SUCCESS;
}

V2_CALL(cuDevicePrimaryCtxRelease, (CUdevice dev), (dev))
{
    TRY(fake_device_check(dev));
    HOLD_LOCK;
    CUcontext primary = fake_devices[dev].primary;
    REFUSE_IF(!primary || !primary->retains, CUDA_ERROR_INVALID_CONTEXT);
    if (!--primary->retains)
        context_end(primary);
    return CUDA_SUCCESS;
}

V2_CALL(cuDevicePrimaryCtxReset, (CUdevice dev), (dev))
{
    TRY(fake_device_check(dev));
    HOLD_LOCK;
    CUcontext primary = fake_devices[dev].primary;
    if (primary && primary->alive) {
        primary->retains = 0;
        context_end(primary);
    }
    return CUDA_SUCCESS;
}

V2_CALL(cuDevicePrimaryCtxSetFlags, (CUdevice dev, unsigned int flags), (dev, flags))
{
    TRY(fake_device_check(dev));
    INVALID_IF(flags & ~(unsigned int)CU_CTX_FLAGS_MASK);
    HOLD_LOCK;
    fake_devices[dev].primary_flags = flags;
    if (fake_devices[dev].primary)
        fake_devices[dev].primary->flags = flags;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    TRY(fake_device_check(dev));
    HOLD_LOCK;
    if (flags)
        *flags = fake_devices[dev].primary_flags;
    if (active)
        *active = fake_devices[dev].primary && fake_devices[dev].primary->alive;
    return CUDA_SUCCESS;
}

/* Devices. */

GETTER(cuDeviceGet, (CUdevice * device, int ordinal), TRY(fake_device_check(ordinal)), device,
       ordinal)
GETTER(cuDeviceGetCount, (int *count), TRY(fake_ready()), count, fake_device_count)

CUresult CUDAAPI cuDeviceGetName(char *name, int len, CUdevice dev)
{
    TRY(fake_device_check(dev));
    INVALID_IF(!name || len <= 0);
    snprintf(name, (size_t)len, "CPU stand-in for a CUDA device");
    return CUDA_SUCCESS;
}

V2_CALL(cuDeviceGetUuid, (CUuuid * uuid, CUdevice dev), (uuid, dev))
{
    static const unsigned char pattern[16] = {0xf0, 0x0d, 0xca, 0xfe, 0x57, 0xa9, 0x4d, 0x10,
                                              0x9d, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};

    TRY(fake_device_check(dev));
    INVALID_IF(!uuid);
    memcpy(uuid->bytes, pattern, sizeof(pattern));
    uuid->bytes[15] = (char)(fake_devices[dev].physical + 1);
    return CUDA_SUCCESS;
}

GETTER(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice dev), TRY(fake_device_check(dev)), bytes,
       fake_device_memory)
GETTER(cuDeviceTotalMem, (unsigned int *bytes, CUdevice dev), TRY(fake_device_check(dev)), bytes,
       fake_device_memory > UINT32_MAX ? UINT32_MAX : (unsigned int)fake_device_memory)

static int pci_bus(CUdevice dev)
{
    return 0x10 + fake_devices[dev].physical;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    TRY(fake_device_check(dev));
    INVALID_IF(!pciBusId || len < 13);
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", (unsigned int)pci_bus(dev));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    unsigned int domain = 0, bus = 0, device = 0, function = 0;

    TRY(fake_ready());
    INVALID_IF(!dev || !pciBusId);
    if (sscanf(pciBusId, "%x:%x:%x.%x", &domain, &bus, &device, &function) < 3) {
        domain = 0;
        INVALID_IF(sscanf(pciBusId, "%x:%x.%x", &bus, &device, &function) < 2);
    }
    for (int i = 0; i < fake_device_count; i++)
        if (!domain && !device && !function && (int)bus == pci_bus(i)) {
            *dev = i;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_DEVICE;
}

CUresult CUDAAPI cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    /* What programs ask for, with a Hopper device's answers; 0 stands for "not supported". */
    static const struct {
        int attribute, value;
    } values[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
        {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
        {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
        {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
        {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
        {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 39321600},
        {CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 134217728},
        {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
        {CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 4},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1},
        {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0},
    };

    TRY(fake_device_check(dev));
    INVALID_IF(!pi || (int)attrib < 1 || attrib >= CU_DEVICE_ATTRIBUTE_MAX);
    *pi = 0;
    if (attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
        *pi = pci_bus(dev);
    for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
        if (values[i].attribute == (int)attrib)
            *pi = values[i].value;
    return CUDA_SUCCESS;
}

/* Peers: every device reaches every other. */

GETTER(cuDeviceCanAccessPeer, (int *canAccessPeer, CUdevice dev, CUdevice peerDev),
       TRY(fake_device_check(dev));
       TRY(fake_device_check(peerDev)), canAccessPeer, dev != peerDev)

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    ENTER(ctx);
    TRY(fake_context_check(peerContext));
    INVALID_IF(Flags);
    REFUSE_IF(peerContext->device == ctx->device, CUDA_ERROR_INVALID_CONTEXT);
    REFUSE_IF(ctx->peers >> peerContext->device & 1, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    ctx->peers |= (uint64_t)1 << peerContext->device;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peerContext)
{
    ENTER(ctx);
    TRY(fake_context_check(peerContext));
    REFUSE_IF(!(ctx->peers >> peerContext->device & 1), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    ctx->peers &= ~((uint64_t)1 << peerContext->device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    struct thread *thread = fake_thread();

    TRY(fake_ready());
    INVALID_IF(!mode || (unsigned int)*mode > CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureMode old = thread->capture_mode;
    thread->capture_mode = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}
