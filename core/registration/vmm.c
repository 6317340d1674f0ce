/*
 * Blocks of mapped memory instead of plain allocations.
 *
 * Not in the path of a call. Entered by the program's threads, which allocate and free. Must never
 * hold the lock while the driver is called, nor leave a part of a block behind if one step fails.
 */
#include "core/registration/vmm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "core/runtime/runtime.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define BLOCKS_MAX  131072u
#define DEVICES_MAX 64
#define KEPT_MAX    256u /* blocks freed while a stream was captured */

/* Protects the blocks, and the kept ones. Never nested with another lock; nothing is called with it
 * held. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ng_vmm_block *blocks; /* by address; BLOCKS_MAX of them, touched as they fill */
static uint32_t block_count;
static uint64_t byte_count;
static struct ng_vmm_block kept[KEPT_MAX] NG_LARGE;
static uint32_t kept_count;
static _Atomic int captures; /* begun and not ended */

static atomic_bool stopped, told_failure;

bool ng_vmm_is_on(void)
{
    return ng_guard.config.alloc_how == NG_ALLOC_VMM;
}

/* ---- The table ---- */

/* The first block that begins at or above `address`. Held. */
static uint32_t find_place(CUdeviceptr address)
{
    return NG_FIRST_INDEX(block_count, i, blocks[i].base < address);
}

static bool prepare_locked(void)
{
    if (!blocks)
        blocks = ng_memory_reserve(BLOCKS_MAX * sizeof(*blocks));
    return blocks;
}

static bool keep(const struct ng_vmm_block *block)
{
    NG_HOLD(&lock);
    bool room = prepare_locked() && block_count < BLOCKS_MAX;
    if (room) {
        uint32_t place = find_place(block->base);
        memmove(blocks + place + 1, blocks + place, (block_count - place) * sizeof(*blocks));
        blocks[place] = *block;
        block_count++;
        byte_count += block->mapped;
    }
    return room;
}

/* Held. */
static void take_out(uint32_t place)
{
    block_count--;
    byte_count -= blocks[place].mapped;
    memmove(blocks + place, blocks + place + 1, (block_count - place) * sizeof(*blocks));
}

/* The thread that removes a block frees it: of two simultaneous frees, one is an error. */
static bool take(CUdeviceptr base, struct ng_vmm_block *ret_block)
{
    NG_HOLD(&lock);
    uint32_t place = find_place(base);
    bool found = place < block_count && blocks[place].base == base;
    if (found) {
        *ret_block = blocks[place];
        take_out(place);
    }
    return found;
}

bool ng_vmm_find(CUdeviceptr address, struct ng_vmm_block *ret_block)
{
    NG_HOLD(&lock);
    uint32_t place = find_place(address + 1);
    bool found = place > 0 && address - blocks[place - 1].base < blocks[place - 1].bytes;
    if (found)
        *ret_block = blocks[place - 1];
    return found;
}

static bool has_blocks(int device)
{
    NG_HOLD(&lock);
    return NG_ANY(block, blocks, block_count, block->device == device);
}

void ng_vmm_count(uint64_t *ret_blocks, uint64_t *ret_bytes)
{
    NG_HOLD(&lock);
    *ret_blocks = block_count;
    *ret_bytes = byte_count;
}

static void undo_freed(const struct ng_vmm_driver *driver);

/* ---- Allocating ---- */

static bool has(const struct ng_vmm_driver *driver, CUdevice_attribute attribute, CUdevice device)
{
    int value = 0;

    return driver->device_get_attribute(&value, attribute, device) == CUDA_SUCCESS && value;
}

static bool describe(const struct ng_vmm_driver *driver, CUdevice device,
                     CUmemAllocationProp *ret_properties)
{
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}};

    if (!has(driver, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device) ||
        !has(driver, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device))
        return false;
    properties.allocFlags.gpuDirectRDMACapable =
        has(driver, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device);
    *ret_properties = properties;
    return true;
}

/* For its own device, and all devices that can reach it: it is not known in advance to which of
 * them the program will grant access. A device that is refused is skipped. */
static bool give_access(const struct ng_vmm_driver *driver, const struct ng_vmm_block *block)
{
    CUmemAccessDesc access[DEVICES_MAX];
    int devices = 0, reaches;
    size_t count = 0;

    access[count++] =
        (CUmemAccessDesc){.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = block->device},
                          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (driver->device_get_count(&devices) != CUDA_SUCCESS)
        devices = 0;
    for (int other = 0; other < devices && count < DEVICES_MAX; other++) {
        if (other == block->device ||
            driver->device_can_access_peer(&reaches, other, block->device) != CUDA_SUCCESS ||
            !reaches)
            continue;
        access[count] = access[0];
        access[count++].location.id = other;
    }
    return driver->mem_set_access(block->base, block->mapped, access, count) == CUDA_SUCCESS ||
           (count > 1 &&
            driver->mem_set_access(block->base, block->mapped, access, 1) == CUDA_SUCCESS);
}

/* Reserve addresses and map memory to them. */
static bool map(const struct ng_vmm_driver *driver, const CUmemAllocationProp *properties,
                size_t granularity, struct ng_vmm_block *block)
{
    CUmemGenericAllocationHandle handle;

    if (driver->mem_create(&handle, block->mapped, properties, 0) != CUDA_SUCCESS)
        return false;
    if (driver->mem_address_reserve(&block->base, block->mapped, granularity, 0, 0) != CUDA_SUCCESS)
        goto release;
    if (driver->mem_map(block->base, block->mapped, 0, handle, 0) != CUDA_SUCCESS)
        goto free_addresses;
    if (!give_access(driver, block) || !keep(block))
        goto unmap;
    /* The mapping keeps the memory alive. */
    driver->mem_release(handle);
    return true;
unmap:
    driver->mem_unmap(block->base, block->mapped);
free_addresses:
    driver->mem_address_free(block->base, block->mapped);
release:
    driver->mem_release(handle);
    return false;
}

bool ng_vmm_alloc(const struct ng_vmm_driver *driver, size_t bytes, struct ng_vmm_block *ret_block)
{
    struct ng_vmm_block block = {.bytes = bytes};
    CUmemAllocationProp properties;
    size_t granularity = 0;
    CUdevice device;

    if (bytes < NG_VMM_BYTES_MIN || atomic_load_explicit(&stopped, memory_order_relaxed) ||
        driver->ctx_get_current(&block.context) != CUDA_SUCCESS || !block.context ||
        driver->ctx_get_device(&device) != CUDA_SUCCESS || !describe(driver, device, &properties) ||
        driver->mem_get_granularity(&granularity, &properties,
                                    CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS ||
        !granularity || bytes > SIZE_MAX - granularity)
        return false;
    undo_freed(driver);
    block.device = device;
    block.mapped = (bytes + granularity - 1) / granularity * granularity;
    if (!map(driver, &properties, granularity, &block)) {
        /* On some machines no network card can read it. */
        if (!properties.allocFlags.gpuDirectRDMACapable)
            return false;
        properties.allocFlags.gpuDirectRDMACapable = 0;
        if (!map(driver, &properties, granularity, &block))
            return false;
    }
    *ret_block = block;
    return true;
}

/* ---- Freeing ---- */

static void undo(const struct ng_vmm_driver *driver, const struct ng_vmm_block *block)
{
    CUresult result = driver->mem_unmap(block->base, block->mapped);

    if (result == CUDA_SUCCESS)
        result = driver->mem_address_free(block->base, block->mapped);
    /* If the driver has shut down at exit, it has freed everything. */
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_DEINITIALIZED &&
        !atomic_exchange(&told_failure, true))
        ng_log(NG_LOG_WARN,
               "NCCLGUARD_ALLOC: %zu bytes at 0x%llx could not be given back (CUDA error %d; said "
               "once)",
               block->mapped, (unsigned long long)block->base, (int)result);
}

/* Wait for the work that may still use it: cuMemFree waits for that, cuMemUnmap does not. */
static CUresult await_work(const struct ng_vmm_driver *driver, const struct ng_vmm_block *block)
{
    CUcontext current;

    CUresult result = driver->ctx_get_current(&current);
    if (result != CUDA_SUCCESS)
        return result;
    if (!current)
        return CUDA_ERROR_INVALID_CONTEXT; /* as cuMemFree returns */
    if (current == block->context)
        return driver->ctx_synchronize();
    result = driver->ctx_push(block->context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->ctx_synchronize();
    driver->ctx_pop(&current);
    return result;
}

/* False: no room. */
static bool keep_freed(const struct ng_vmm_block *block)
{
    NG_HOLD(&lock);
    bool room = kept_count < KEPT_MAX;
    if (room)
        kept[kept_count++] = *block;
    return room;
}

static bool take_freed(struct ng_vmm_block *ret_block)
{
    NG_HOLD(&lock);
    bool any = kept_count > 0;
    if (any)
        *ret_block = kept[--kept_count];
    return any;
}

/* Free what was kept while a stream was captured. */
static void undo_freed(const struct ng_vmm_driver *driver)
{
    struct ng_vmm_block block;

    while (!atomic_load(&captures) && take_freed(&block)) {
        if (await_work(driver, &block) == CUDA_SUCCESS) {
            undo(driver, &block);
            continue;
        }
        keep_freed(&block);
        return;
    }
}

void ng_vmm_capturing(int more)
{
    atomic_fetch_add(&captures, more);
}

bool ng_vmm_free(const struct ng_vmm_driver *driver, CUdeviceptr base, CUresult *ret_result)
{
    struct ng_vmm_block block;

    if (!take(base, &block))
        return false;
    if (atomic_load(&captures) > 0 && keep_freed(&block)) {
        *ret_result = CUDA_SUCCESS;
        return true;
    }
    undo_freed(driver);
    CUresult result = await_work(driver, &block);
    if (result == CUDA_SUCCESS)
        undo(driver, &block);
    else
        keep(&block);
    *ret_result = result;
    return true;
}

static bool take_of_context(CUcontext context, struct ng_vmm_block *ret_block)
{
    bool found = false;

    NG_HOLD(&lock);
    for (uint32_t i = block_count; i-- > 0 && !found;) {
        found = blocks[i].context == context;
        if (found) {
            *ret_block = blocks[i];
            take_out(i);
        }
    }
    for (uint32_t i = 0; i < kept_count && !found; i++) {
        found = kept[i].context == context;
        if (found) {
            *ret_block = kept[i];
            kept[i] = kept[--kept_count];
        }
    }
    return found;
}

CUcontext ng_vmm_primary(const struct ng_vmm_driver *driver, CUdevice device)
{
    CUcontext context = NULL;
    unsigned int flags;
    int active = 0;

    if (!has_blocks(device) ||
        driver->primary_ctx_get_state(device, &flags, &active) != CUDA_SUCCESS || !active ||
        driver->primary_ctx_retain(&context, device) != CUDA_SUCCESS)
        return NULL;
    driver->primary_ctx_release(device);
    return context;
}

void ng_vmm_context_gone(const struct ng_vmm_driver *driver, CUcontext context,
                         void (*forget)(const struct ng_vmm_block *block))
{
    struct ng_vmm_block block;

    while (take_of_context(context, &block)) {
        if (forget)
            forget(&block);
        undo(driver, &block);
    }
}

/* ---- The end ---- */

void ng_vmm_stop(CUdeviceptr address)
{
    struct ng_vmm_block block;

    if (!atomic_exchange(&stopped, true))
        ng_log(
            NG_LOG_INFO,
            "NCCLGUARD_ALLOC: the program uses CUDA IPC: from now on its memory is the driver's");
    if (address && ng_vmm_find(address, &block))
        ng_log(NG_LOG_ERROR,
               "NCCLGUARD_ALLOC=vmm: cuIpcGetMemHandle cannot hand out the memory at 0x%llx, which "
               "was allocated "
               "before the program was known to use CUDA IPC: set NCCLGUARD_ALLOC=keep",
               (unsigned long long)address);
}

void ng_vmm_after_fork(void)
{
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    block_count = 0;
    byte_count = 0;
    kept_count = 0;
    atomic_store(&captures, 0);
}
