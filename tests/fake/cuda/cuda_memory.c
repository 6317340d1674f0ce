/*
 * Memory of the stand-in devices: host memory with an owner, a limit a device, and a table of every
 * range, so that an unknown or freed pointer is an error and not a crash.
 *
 * Entered by any thread of the program, and by stream threads for frees in stream order.
 */
#include "tests/fake/cuda/cuda_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sorted by base; ranges never overlap. */
static struct allocation **table;
static size_t table_used, table_room;

/* A physical allocation of the virtual memory management API; the handle is its address. */
struct physical {
    int fd;
    size_t size;
    int device;
    CUmemAllocationProp prop;
    unsigned int refs; /* the program's handles and the mappings */
    unsigned int handles;
    bool charged;
};

/* A reserved address range. */
struct reservation {
    struct reservation *next;
    uintptr_t base;
    size_t size;
};
static struct reservation *reservations;

struct CUmemPoolHandle_st {
    int device;
    uint64_t threshold;
    uint64_t used, used_high;
    bool builtin;
};

/* The table. */

static size_t table_place(uintptr_t address)
{
    size_t low = 0, high = table_used;

    while (low < high) {
        size_t middle = (low + high) / 2;

        if (table[middle]->base <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct allocation *fake_memory_find(const void *pointer)
{
    uintptr_t address = (uintptr_t)pointer;
    size_t place = table_place(address);
    struct allocation *allocation;

    if (!place)
        return NULL;
    allocation = table[place - 1];
    return address - allocation->base < allocation->size ? allocation : NULL;
}

/* Neighbouring mappings of one reservation make one range for copies, as on a device. */
bool fake_memory_known(const void *pointer, size_t size)
{
    uintptr_t address = (uintptr_t)pointer;

    for (;;) {
        struct allocation *allocation = fake_memory_find((const void *)address);
        size_t rest;

        if (!allocation || !allocation->readable)
            return false;
        rest = allocation->size - (address - allocation->base);
        if (size <= rest)
            return true;
        if (allocation->kind != MEMORY_MAPPED)
            return false;
        size -= rest;
        address += rest;
    }
}

/* A pointer that the program says is, or may be, on the host. */
static bool host_range_ok(const void *pointer, size_t size)
{
    return !fake_memory_find(pointer) || fake_memory_known(pointer, size);
}

static struct allocation *table_add(uintptr_t base, size_t size, enum memory_kind kind, int device,
                                    CUcontext ctx)
{
    struct allocation *allocation = calloc(1, sizeof(*allocation));
    size_t place;

    if (!allocation)
        return NULL;
    if (table_used == table_room) {
        size_t room = table_room ? 2 * table_room : 64;
        struct allocation **bigger = realloc(table, room * sizeof(*bigger));

        if (!bigger) {
            free(allocation);
            return NULL;
        }
        table = bigger;
        table_room = room;
    }
    place = table_place(base);
    memmove(table + place + 1, table + place, (table_used - place) * sizeof(*table));
    table[place] = allocation;
    table_used++;
    allocation->base = base;
    allocation->size = size;
    allocation->kind = kind;
    allocation->device = device;
    allocation->ctx = ctx;
    allocation->id = fake_next_id();
    allocation->readable = true;
    return allocation;
}

static void table_remove(struct allocation *allocation)
{
    size_t place = table_place(allocation->base) - 1;

    memmove(table + place, table + place + 1, (table_used - place - 1) * sizeof(*table));
    table_used--;
    free(allocation);
}

void fake_memory_free(struct allocation *allocation)
{
    void *base = (void *)allocation->base;
    enum memory_kind kind = allocation->kind;

    if (allocation->pool)
        allocation->pool->used -= allocation->size;
    fake_devices[allocation->device].used -= allocation->charged;
    table_remove(allocation);
    if (kind == MEMORY_DEVICE || kind == MEMORY_MANAGED || kind == MEMORY_HOST)
        free(base);
}

void fake_memory_free_base(void *base)
{
    struct allocation *allocation = fake_memory_find(base);

    if (allocation && allocation->base == (uintptr_t)base)
        fake_memory_free(allocation);
}

void fake_memory_free_context(CUcontext ctx)
{
    for (size_t i = table_used; i-- > 0;)
        if (table[i]->ctx == ctx && table[i]->kind != MEMORY_MAPPED)
            fake_memory_free(table[i]);
}

static CUresult charge(int device, size_t size)
{
    if (size > fake_device_memory - fake_devices[device].used)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_devices[device].used += size;
    return CUDA_SUCCESS;
}

static CUresult allocate(CUcontext ctx, size_t size, enum memory_kind kind, size_t alignment,
                         struct allocation **ret_allocation)
{
    /* A device hands out memory in pieces of 512 bytes. */
    size_t charged = kind == MEMORY_HOST ? 0 : (size + 511) & ~(size_t)511;
    struct allocation *allocation;
    void *base;

    if (!size || charged < (kind == MEMORY_HOST ? 0 : size))
        return size ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    if (charge(ctx->device, charged) != CUDA_SUCCESS)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (posix_memalign(&base, alignment, size)) {
        fake_devices[ctx->device].used -= charged;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation = table_add((uintptr_t)base, size, kind, ctx->device, ctx);
    if (!allocation) {
        free(base);
        fake_devices[ctx->device].used -= charged;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation->charged = charged;
    *ret_allocation = allocation;
    return CUDA_SUCCESS;
}

/* Locks; a capture under way forbids these calls. */
static CUresult enter_unsafe(CUcontext *ret_ctx)
{
    CUresult result = fake_enter(ret_ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_capture_guard();
    if (result != CUDA_SUCCESS)
        fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t *free, size_t *total)
{
    CUcontext ctx;
    CUresult result = fake_enter(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    if (free)
        *free = fake_device_memory - fake_devices[ctx->device].used;
    if (total)
        *total = fake_device_memory;
    fake_unlock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    struct allocation *allocation;
    CUcontext ctx;
    CUresult result = enter_unsafe(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result =
        dptr ? allocate(ctx, bytesize, MEMORY_DEVICE, 512, &allocation) : CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *dptr = allocation->base;
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
                                    size_t Height, unsigned int ElementSizeBytes)
{
    size_t pitch = (WidthInBytes + 511) & ~(size_t)511, bytes;
    CUresult result;

    if (!pPitch || (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16) ||
        __builtin_mul_overflow(pitch, Height, &bytes))
        return CUDA_ERROR_INVALID_VALUE;
    result = cuMemAlloc_v2(dptr, bytes);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    return result;
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    struct allocation *allocation;
    CUcontext ctx;
    CUresult result = enter_unsafe(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    if (!dptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        result = allocate(ctx, bytesize, MEMORY_MANAGED, 4096, &allocation);
    if (result == CUDA_SUCCESS)
        *dptr = allocation->base;
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr)
{
    struct allocation *allocation;
    CUcontext ctx;
    CUresult result = dptr ? enter_unsafe(&ctx) : fake_enter(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    if (dptr) {
        allocation = fake_memory_find((void *)dptr);
        if (!allocation || allocation->base != dptr || allocation->freeing ||
            (allocation->kind != MEMORY_DEVICE && allocation->kind != MEMORY_MANAGED)) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            /* A free waits for the work of the device that may still use the memory. */
            allocation->freeing = true;
            fake_device_drain(allocation->device);
            fake_memory_free_base((void *)dptr);
        }
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    struct allocation *allocation;
    CUcontext ctx;
    CUresult result = fake_enter(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    allocation = fake_memory_find((void *)dptr);
    if (!allocation) {
        result = CUDA_ERROR_NOT_FOUND;
    } else {
        if (pbase)
            *pbase = allocation->base;
        if (psize)
            *psize = allocation->size;
    }
    fake_unlock();
    return result;
}

/* Host memory. */

CUresult CUDAAPI cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    struct allocation *allocation;
    CUcontext ctx;
    CUresult result = enter_unsafe(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    if (!pp || (Flags & ~7u))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        result = allocate(ctx, bytesize, MEMORY_HOST, 4096, &allocation);
    if (result == CUDA_SUCCESS) {
        allocation->flags = Flags | CU_MEMHOSTALLOC_DEVICEMAP;
        *pp = (void *)allocation->base;
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    return cuMemHostAlloc(pp, bytesize, 0);
}

CUresult CUDAAPI cuMemFreeHost(void *p)
{
    struct allocation *allocation;
    CUcontext ctx;
    CUresult result = enter_unsafe(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    allocation = fake_memory_find(p);
    if (!allocation || allocation->base != (uintptr_t)p || allocation->kind != MEMORY_HOST ||
        allocation->freeing) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        allocation->freeing = true;
        fake_device_drain(allocation->device);
        fake_memory_free_base(p);
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int Flags)
{
    struct allocation *allocation;
    size_t place;
    CUcontext ctx;
    CUresult result = enter_unsafe(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    place = table_place((uintptr_t)p);
    if (!p || !bytesize || (Flags & ~15u) || (uintptr_t)p + bytesize < (uintptr_t)p)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (fake_memory_find(p) ||
             (place < table_used && table[place]->base - (uintptr_t)p < bytesize))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else if (!(allocation = table_add((uintptr_t)p, bytesize, MEMORY_REGISTERED, ctx->device, ctx)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        allocation->flags = Flags;
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemHostRegister(void *p, size_t bytesize, unsigned int Flags)
{
    return cuMemHostRegister_v2(p, bytesize, Flags);
}

CUresult CUDAAPI cuMemHostUnregister(void *p)
{
    struct allocation *allocation;
    CUcontext ctx;
    CUresult result = enter_unsafe(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    allocation = fake_memory_find(p);
    if (!allocation || allocation->base != (uintptr_t)p || allocation->kind != MEMORY_REGISTERED)
        result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    else
        fake_memory_free(allocation);
    fake_unlock();
    return result;
}

static bool is_host(const struct allocation *allocation)
{
    return allocation->kind == MEMORY_HOST || allocation->kind == MEMORY_REGISTERED;
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    struct allocation *allocation;
    CUcontext ctx;
    CUresult result = fake_enter(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    allocation = fake_memory_find(p);
    if (!pdptr || Flags || !allocation || !is_host(allocation))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        *pdptr = (CUdeviceptr)p;
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    struct allocation *allocation;
    CUcontext ctx;
    CUresult result = fake_enter(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    allocation = fake_memory_find(p);
    if (!pFlags || !allocation || allocation->kind != MEMORY_HOST)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        *pFlags = allocation->flags;
    fake_unlock();
    return result;
}

/* Allocation in stream order, and its pools. */

static CUmemoryPool pool_create(int device, bool builtin)
{
    CUmemoryPool pool = calloc(1, sizeof(*pool));

    if (!pool)
        return NULL;
    pool->device = device;
    pool->builtin = builtin;
    fake_handle_add(pool, HANDLE_POOL);
    return pool;
}

static CUmemoryPool pool_of_device(int device)
{
    struct device *owner = &fake_devices[device];

    if (!owner->default_pool)
        owner->default_pool = pool_create(device, true);
    return owner->current_pool ? owner->current_pool : owner->default_pool;
}

static CUresult device_enter(CUdevice dev)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (dev < 0 || dev >= fake_device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    fake_lock();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
    CUresult result = device_enter(dev);

    if (result != CUDA_SUCCESS)
        return result;
    pool_of_device(dev);
    if (pool_out)
        *pool_out = fake_devices[dev].default_pool;
    fake_unlock();
    return pool_out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
    CUresult result = device_enter(dev);

    if (result != CUDA_SUCCESS)
        return result;
    if (pool)
        *pool = pool_of_device(dev);
    fake_unlock();
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
    CUresult result = device_enter(dev);

    if (result != CUDA_SUCCESS)
        return result;
    if (!fake_handle_is(pool, HANDLE_POOL) || pool->device != dev)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        fake_devices[dev].current_pool = pool;
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (!pool || !poolProps || poolProps->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        poolProps->location.id < 0 || poolProps->location.id >= fake_device_count)
        return CUDA_ERROR_INVALID_VALUE;
    if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE)
        return CUDA_ERROR_NOT_SUPPORTED;
    fake_lock();
    *pool = pool_create(poolProps->location.id, false);
    result = *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    if (!fake_handle_is(pool, HANDLE_POOL) || pool->builtin) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        for (size_t i = 0; i < table_used; i++)
            if (table[i]->pool == pool)
                table[i]->pool = NULL;
        if (fake_devices[pool->device].current_pool == pool)
            fake_devices[pool->device].current_pool = NULL;
        fake_handle_remove(pool);
        free(pool);
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    if (!fake_handle_is(pool, HANDLE_POOL))
        result = CUDA_ERROR_INVALID_VALUE;
    fake_unlock();
    return result; /* the pool keeps nothing, so there is nothing to give back */
}

static CUresult pool_attribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value, bool set)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (!value)
        return CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    if (!fake_handle_is(pool, HANDLE_POOL)) {
        fake_unlock();
        return CUDA_ERROR_INVALID_VALUE;
    }
    switch (attr) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        if (!set)
            *(int *)value = 1;
        break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        if (set)
            pool->threshold = *(cuuint64_t *)value;
        else
            *(cuuint64_t *)value = pool->threshold;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        if (set)
            result = CUDA_ERROR_INVALID_VALUE;
        else
            *(cuuint64_t *)value = pool->used;
        break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        if (set)
            pool->used_high = pool->used;
        else
            *(cuuint64_t *)value = pool->used_high;
        break;
    default:
        result = CUDA_ERROR_INVALID_VALUE;
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    return pool_attribute(pool, attr, value, true);
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
    return pool_attribute(pool, attr, value, false);
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    if (!fake_handle_is(pool, HANDLE_POOL) || (count && !map))
        result = CUDA_ERROR_INVALID_VALUE;
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool memPool,
                                    CUmemLocation *location)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    if (!fake_handle_is(memPool, HANDLE_POOL) || !flags || !location)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    fake_unlock();
    return result;
}

static CUresult alloc_async(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)
{
    struct allocation *allocation;
    struct CUstream_st *stream;
    CUcontext ctx;
    CUresult result = fake_enter(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_stream_resolve(hStream, &stream);
    if (result == CUDA_SUCCESS && (!dptr || (pool && !fake_handle_is(pool, HANDLE_POOL))))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS && stream->capture)
        result = CUDA_ERROR_NOT_SUPPORTED; /* memory nodes are not modelled */
    if (result == CUDA_SUCCESS) {
        if (!pool)
            pool = pool_of_device(stream->ctx->device);
        result = allocate(stream->ctx, bytesize, MEMORY_DEVICE, 512, &allocation);
    }
    if (result == CUDA_SUCCESS) {
        allocation->ordered = true;
        allocation->pool = pool;
        pool->used += allocation->size;
        if (pool->used > pool->used_high)
            pool->used_high = pool->used;
        *dptr = allocation->base;
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemAllocAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    return alloc_async(dptr, bytesize, NULL, hStream);
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)
{
    return alloc_async(dptr, bytesize, NULL, hStream ? hStream : CU_STREAM_LEGACY);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                              CUstream hStream)
{
    return pool ? alloc_async(dptr, bytesize, pool, hStream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool,
                                         CUstream hStream)
{
    return cuMemAllocFromPoolAsync_ptsz(dptr, bytesize, pool, hStream ? hStream : CU_STREAM_LEGACY);
}

CUresult CUDAAPI cuMemFreeAsync_ptsz(CUdeviceptr dptr, CUstream hStream)
{
    struct allocation *allocation;
    struct CUstream_st *stream;
    CUcontext ctx;
    CUresult result = fake_enter(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_stream_resolve(hStream, &stream);
    if (result == CUDA_SUCCESS) {
        allocation = fake_memory_find((void *)dptr);
        if (!allocation || allocation->base != dptr || allocation->freeing ||
            allocation->kind != MEMORY_DEVICE) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else if (stream->capture) {
            result = CUDA_ERROR_NOT_SUPPORTED; /* memory nodes are not modelled */
        } else {
            struct operation op = {.kind = OP_FREE, .free = {.base = (void *)dptr}};

            allocation->freeing = true;
            result = fake_stream_submit(stream, &op);
        }
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream)
{
    return cuMemFreeAsync_ptsz(dptr, hStream ? hStream : CU_STREAM_LEGACY);
}

/* Virtual memory management: a physical allocation is a memory file, a mapping is a mapping. */

static bool location_ok(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 &&
           location->id < fake_device_count;
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                               CUmemAllocationGranularity_flags option)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (!granularity || !prop || !location_ok(&prop->location))
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = FAKE_GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
                                     CUdeviceptr addr, unsigned long long flags)
{
    struct reservation *reservation;
    uintptr_t base, aligned;
    void *mapping;
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (!ptr || !size || size % FAKE_GRANULARITY || (alignment & (alignment - 1)) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (alignment < FAKE_GRANULARITY)
        alignment = FAKE_GRANULARITY;
    reservation = malloc(sizeof(*reservation));
    mapping =
        mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (!reservation || mapping == MAP_FAILED) {
        free(reservation);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    base = (uintptr_t)mapping;
    aligned = (base + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (aligned > base)
        munmap(mapping, aligned - base);
    if (base + size + alignment > aligned + size)
        munmap((void *)(aligned + size), base + alignment - aligned);
    reservation->base = aligned;
    reservation->size = size;
    fake_lock();
    reservation->next = reservations;
    reservations = reservation;
    fake_unlock();
    *ptr = aligned;
    return CUDA_SUCCESS;
}

static struct reservation *reservation_of(uintptr_t base, size_t size)
{
    for (struct reservation *r = reservations; r; r = r->next)
        if (base >= r->base && size <= r->size && base - r->base <= r->size - size)
            return r;
    return NULL;
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    result = CUDA_ERROR_INVALID_VALUE;
    for (struct reservation **link = &reservations; *link; link = &(*link)->next) {
        struct reservation *reservation = *link;
        size_t place = table_place(ptr);

        if (reservation->base != ptr || reservation->size != size)
            continue;
        if (fake_memory_find((void *)ptr) ||
            (place < table_used && table[place]->base - ptr < size))
            break; /* still mapped */
        munmap((void *)ptr, size);
        *link = reservation->next;
        free(reservation);
        result = CUDA_SUCCESS;
        break;
    }
    fake_unlock();
    return result;
}

static void physical_unref(struct physical *physical)
{
    if (--physical->refs)
        return;
    if (physical->charged)
        fake_devices[physical->device].used -= physical->size;
    close(physical->fd);
    free(physical);
}

static struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    const void *pointer = (const void *)(uintptr_t)handle;

    return fake_handle_is(pointer, HANDLE_PHYSICAL) ? (struct physical *)(uintptr_t)handle : NULL;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags)
{
    struct physical *physical;
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || !prop || flags || !size || size % FAKE_GRANULARITY ||
        prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || !location_ok(&prop->location))
        return CUDA_ERROR_INVALID_VALUE;
    if (prop->requestedHandleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    physical = calloc(1, sizeof(*physical));
    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->fd = memfd_create("device memory", MFD_CLOEXEC);
    if (physical->fd < 0 || ftruncate(physical->fd, (off_t)size)) {
        if (physical->fd >= 0)
            close(physical->fd);
        free(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->size = size;
    physical->device = prop->location.id;
    physical->prop = *prop;
    physical->refs = physical->handles = 1;
    fake_lock();
    result = charge(physical->device, size);
    if (result == CUDA_SUCCESS) {
        physical->charged = true;
        fake_handle_add(physical, HANDLE_PHYSICAL);
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    } else {
        physical_unref(physical);
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    struct physical *physical;
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    physical = physical_of(handle);
    if (!physical) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        if (!--physical->handles)
            fake_handle_remove(physical);
        physical_unref(physical);
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    struct physical *physical;
    struct allocation *allocation;
    size_t place;
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    physical = physical_of(handle);
    place = table_place(ptr);
    if (!physical || flags || offset || !size || size % FAKE_GRANULARITY || size > physical->size ||
        !reservation_of(ptr, size) || fake_memory_find((void *)ptr) ||
        (place < table_used && table[place]->base - ptr < size)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (mmap((void *)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd, 0) ==
               MAP_FAILED) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        allocation = table_add(ptr, size, MEMORY_MAPPED, physical->device, NULL);
        if (!allocation) {
            result = CUDA_ERROR_OUT_OF_MEMORY;
        } else {
            allocation->physical = physical;
            allocation->readable = false; /* until cuMemSetAccess */
            physical->refs++;
        }
    }
    fake_unlock();
    return result;
}

/* All mappings of [ptr, ptr + size), which must begin and end where mappings do. */
static bool mappings_cover(uintptr_t ptr, size_t size)
{
    uintptr_t at = ptr;

    while (at < ptr + size) {
        struct allocation *allocation = fake_memory_find((void *)at);

        if (!allocation || allocation->kind != MEMORY_MAPPED || allocation->base != at ||
            allocation->size > ptr + size - at)
            return false;
        at += allocation->size;
    }
    return size > 0;
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
                                size_t count)
{
    CUresult result = fake_ready();
    int protection = PROT_NONE;

    if (result != CUDA_SUCCESS)
        return result;
    if (!desc || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        if (!location_ok(&desc[i].location))
            return CUDA_ERROR_INVALID_DEVICE;
        if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            protection |= PROT_READ | PROT_WRITE;
        else if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
            protection |= PROT_READ;
    }
    fake_lock();
    if (!mappings_cover(ptr, size) || mprotect((void *)ptr, size, protection))
        result = CUDA_ERROR_INVALID_VALUE;
    else
        for (uintptr_t at = ptr; at < ptr + size;) {
            struct allocation *allocation = fake_memory_find((void *)at);

            allocation->readable = protection != PROT_NONE;
            allocation->flags = (unsigned int)protection;
            at += allocation->size;
        }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                                CUdeviceptr ptr)
{
    struct allocation *allocation;
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (!flags || !location)
        return CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    allocation = fake_memory_find((void *)ptr);
    if (!allocation || allocation->kind != MEMORY_MAPPED)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (allocation->flags & PROT_WRITE)
        *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    else
        *flags =
            allocation->readable ? CU_MEM_ACCESS_FLAGS_PROT_READ : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    if (!mappings_cover(ptr, size)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        mmap((void *)ptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
             -1, 0);
        for (uintptr_t at = ptr; at < ptr + size;) {
            struct allocation *allocation = fake_memory_find((void *)at);

            at += allocation->size;
            physical_unref(allocation->physical);
            table_remove(allocation);
        }
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    struct allocation *allocation;
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    allocation = fake_memory_find(addr);
    if (!handle || !allocation || allocation->kind != MEMORY_MAPPED) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        struct physical *physical = allocation->physical;

        if (!physical->handles++)
            fake_handle_add(physical, HANDLE_PHYSICAL);
        physical->refs++;
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    }
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                        CUmemGenericAllocationHandle handle)
{
    struct physical *physical;
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    physical = physical_of(handle);
    if (!physical || !prop)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        *prop = physical->prop;
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void *shareableHandle,
                                              CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType handleType,
                                              unsigned long long flags)
{
    struct physical *physical;
    CUresult result = fake_ready();
    int fd;

    if (result != CUDA_SUCCESS)
        return result;
    fake_lock();
    physical = physical_of(handle);
    if (!physical || !shareableHandle || flags ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(physical->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        result = CUDA_ERROR_INVALID_VALUE;
    else if ((fd = dup(physical->fd)) < 0)
        result = CUDA_ERROR_OPERATING_SYSTEM;
    else
        *(int *)shareableHandle = fd;
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                void *osHandle,
                                                CUmemAllocationHandleType shHandleType)
{
    struct physical *physical;
    struct stat status;
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        fstat((int)(intptr_t)osHandle, &status) || status.st_size <= 0 ||
        (size_t)status.st_size % FAKE_GRANULARITY)
        return CUDA_ERROR_INVALID_VALUE;
    physical = calloc(1, sizeof(*physical));
    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->fd = dup((int)(intptr_t)osHandle);
    if (physical->fd < 0) {
        free(physical);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    physical->size = (size_t)status.st_size;
    physical->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    physical->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    physical->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    physical->refs = physical->handles = 1;
    fake_lock();
    fake_handle_add(physical, HANDLE_PHYSICAL);
    fake_unlock();
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    return CUDA_SUCCESS;
}

/* Attributes of pointers. */

static CUresult pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct allocation *allocation = fake_memory_find((void *)ptr);

    if (!allocation)
        return CUDA_ERROR_INVALID_VALUE;
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = allocation->ctx;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)data = is_host(allocation) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = ptr;
        break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!is_host(allocation) && allocation->kind != MEMORY_MANAGED)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)ptr;
        break;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        *(unsigned int *)data = allocation->sync_memops;
        break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = allocation->id;
        break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)data = allocation->kind == MEMORY_MANAGED;
        break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = allocation->device;
        break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned int *)data = allocation->kind == MEMORY_DEVICE && !allocation->ordered;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = allocation->base;
        break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = allocation->size;
        break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *)data = allocation->readable;
        break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(unsigned int *)data =
            allocation->physical ? allocation->physical->prop.requestedHandleTypes : 0;
        break;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        *(unsigned int *)data = 0;
        break;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned int *)data = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
        break;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(CUmemoryPool *)data = allocation->pool;
        break;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = allocation->id;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (!data)
        return CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    result = pointer_attribute(data, attribute, ptr);
    fake_unlock();
    return result;
}

/* What an unknown pointer gives here: success and the "nothing" value of each attribute. */
static CUresult pointer_attribute_default(void *data, CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        memset(data, 0, 8);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = -2;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        memset(data, 0, 4);
        return CUDA_SUCCESS;
    }
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes,
                                        void **data, CUdeviceptr ptr)
{
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (!attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    for (unsigned int i = 0; i < numAttributes && result == CUDA_SUCCESS; i++)
        if (pointer_attribute(data[i], attributes[i], ptr) != CUDA_SUCCESS)
            result = pointer_attribute_default(data[i], attributes[i]);
    fake_unlock();
    return result;
}

CUresult CUDAAPI cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                                       CUdeviceptr ptr)
{
    struct allocation *allocation;
    CUresult result = fake_ready();

    if (result != CUDA_SUCCESS)
        return result;
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
        return CUDA_ERROR_INVALID_VALUE;
    fake_lock();
    allocation = fake_memory_find((void *)ptr);
    if (!allocation || allocation->kind != MEMORY_DEVICE)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        allocation->sync_memops = *(const unsigned int *)value != 0;
    fake_unlock();
    return result;
}

/* Copies. */

enum side { SIDE_DEVICE, SIDE_HOST, SIDE_ANY };

static bool side_ok(enum side side, const void *pointer, size_t bytes)
{
    return side == SIDE_DEVICE ? fake_memory_known(pointer, bytes) : host_range_ok(pointer, bytes);
}

/* Pageable memory: what the driver must copy before or after, because the device cannot reach it.
 */
static bool is_pageable(const void *pointer)
{
    return !fake_memory_find(pointer);
}

static size_t extent(const struct operation *op, bool destination)
{
    size_t pitch = destination ? op->copy.dst_pitch : op->copy.src_pitch;
    size_t slice = destination ? op->copy.dst_slice : op->copy.src_slice;

    return (op->copy.depth - 1) * slice + (op->copy.height - 1) * pitch + op->copy.width;
}

static CUresult copy_check(struct operation *op, enum side dst, enum side src)
{
    if (!side_ok(dst, op->copy.dst, extent(op, true)) || !op->copy.dst)
        return CUDA_ERROR_INVALID_VALUE;
    if (!side_ok(src, op->copy.src, extent(op, false)) || !op->copy.src)
        return CUDA_ERROR_INVALID_VALUE;
    op->copy.dst_known = !is_pageable(op->copy.dst);
    op->copy.src_known = !is_pageable(op->copy.src);
    return CUDA_SUCCESS;
}

/*
 * Queues one copy. From pageable memory the bytes are taken now, so that the caller may change its
 * buffer; into pageable memory the call returns when the bytes are there. Both as the real driver.
 */
static CUresult copy_async(struct operation *op, enum side dst, enum side src, CUstream hStream)
{
    struct CUstream_st *stream;
    CUcontext ctx;
    bool into_pageable, from_pageable;
    CUresult result = fake_enter(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_stream_resolve(hStream, &stream);
    if (result != CUDA_SUCCESS || !op->copy.width || !op->copy.height || !op->copy.depth)
        goto out;
    result = copy_check(op, dst, src);
    if (result != CUDA_SUCCESS)
        goto out;
    if (stream->capture) {
        result = fake_stream_submit(stream, op);
        goto out;
    }
    into_pageable = is_pageable(op->copy.dst);
    from_pageable = is_pageable(op->copy.src);
    if (from_pageable && !into_pageable) {
        size_t bytes = extent(op, false);

        if (bytes <= FAKE_SMALL_STAGING) {
            op->copy.staging = malloc(bytes);
            if (!op->copy.staging) {
                result = CUDA_ERROR_OUT_OF_MEMORY;
                goto out;
            }
            memcpy(op->copy.staging, op->copy.src, bytes);
            op->copy.src = op->copy.staging;
            from_pageable = false;
        }
    }
    fake_stream_ref(stream);
    result = fake_stream_submit(stream, op);
    if (result != CUDA_SUCCESS)
        free(op->copy.staging);
    else if (into_pageable || from_pageable)
        fake_stream_wait_idle(stream);
    fake_stream_unref(stream);
out:
    fake_unlock();
    return result;
}

/* A synchronous copy is a copy on the default stream and a wait for it. */
static CUresult copy_now(struct operation *op, enum side dst, enum side src, CUstream hStream)
{
    struct CUstream_st *stream;
    CUcontext ctx;
    CUresult result = fake_enter(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_stream_resolve(hStream, &stream);
    if (result == CUDA_SUCCESS)
        result = fake_capture_legacy_guard(stream);
    if (result == CUDA_SUCCESS)
        result = fake_capture_guard();
    if (result == CUDA_SUCCESS && stream->capture)
        result = fake_capture_stream_guard(stream);
    if (result == CUDA_SUCCESS && op->copy.width && op->copy.height && op->copy.depth) {
        result = copy_check(op, dst, src);
        if (result == CUDA_SUCCESS) {
            fake_stream_ref(stream);
            result = fake_stream_submit(stream, op);
            if (result == CUDA_SUCCESS)
                fake_stream_wait_idle(stream);
            fake_stream_unref(stream);
        }
    }
    fake_unlock();
    return result;
}

static struct operation copy_1d(const void *dst, const void *src, size_t bytes)
{
    return (struct operation){
        .kind = OP_COPY,
        .copy = {
            .dst = (char *)(uintptr_t)dst, .src = src, .width = bytes, .height = 1, .depth = 1}};
}

#define DEFINE_COPY(name, parameters, dst, src, to, from)                                          \
    CUresult CUDAAPI name##_ptds parameters                                                        \
    {                                                                                              \
        struct operation op = copy_1d((const void *)(dst), (const void *)(src), ByteCount);        \
        return copy_now(&op, to, from, CU_STREAM_PER_THREAD);                                      \
    }                                                                                              \
    CUresult CUDAAPI name parameters                                                               \
    {                                                                                              \
        struct operation op = copy_1d((const void *)(dst), (const void *)(src), ByteCount);        \
        return copy_now(&op, to, from, CU_STREAM_LEGACY);                                          \
    }

#define DEFINE_COPY_ASYNC(name, parameters, dst, src, to, from)                                    \
    CUresult CUDAAPI name##_ptsz parameters                                                        \
    {                                                                                              \
        struct operation op = copy_1d((const void *)(dst), (const void *)(src), ByteCount);        \
        return copy_async(&op, to, from, hStream);                                                 \
    }                                                                                              \
    CUresult CUDAAPI name parameters                                                               \
    {                                                                                              \
        struct operation op = copy_1d((const void *)(dst), (const void *)(src), ByteCount);        \
        return copy_async(&op, to, from, hStream ? hStream : CU_STREAM_LEGACY);                    \
    }

DEFINE_COPY(cuMemcpy, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount), dst, src, SIDE_ANY,
            SIDE_ANY)
DEFINE_COPY(cuMemcpyHtoD_v2, (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount),
            dstDevice, srcHost, SIDE_DEVICE, SIDE_HOST)
DEFINE_COPY(cuMemcpyDtoH_v2, (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount), dstHost,
            srcDevice, SIDE_HOST, SIDE_DEVICE)
DEFINE_COPY(cuMemcpyDtoD_v2, (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount),
            dstDevice, srcDevice, SIDE_DEVICE, SIDE_DEVICE)
DEFINE_COPY(cuMemcpyPeer,
            (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
             CUcontext srcContext, size_t ByteCount),
            dstDevice, srcDevice, SIDE_DEVICE, SIDE_DEVICE)
DEFINE_COPY_ASYNC(cuMemcpyAsync,
                  (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream), dst, src,
                  SIDE_ANY, SIDE_ANY)
DEFINE_COPY_ASYNC(cuMemcpyHtoDAsync_v2,
                  (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream),
                  dstDevice, srcHost, SIDE_DEVICE, SIDE_HOST)
DEFINE_COPY_ASYNC(cuMemcpyDtoHAsync_v2,
                  (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream),
                  dstHost, srcDevice, SIDE_HOST, SIDE_DEVICE)
DEFINE_COPY_ASYNC(cuMemcpyDtoDAsync_v2,
                  (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount,
                   CUstream hStream),
                  dstDevice, srcDevice, SIDE_DEVICE, SIDE_DEVICE)
DEFINE_COPY_ASYNC(cuMemcpyPeerAsync,
                  (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice,
                   CUcontext srcContext, size_t ByteCount, CUstream hStream),
                  dstDevice, srcDevice, SIDE_DEVICE, SIDE_DEVICE)

static CUresult copy_side(CUmemorytype type, const void *host, CUdeviceptr device, char **ret_base,
                          enum side *ret_side)
{
    switch (type) {
    case CU_MEMORYTYPE_HOST:
        *ret_base = (char *)(uintptr_t)host;
        *ret_side = SIDE_HOST;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_DEVICE:
        *ret_base = (char *)device;
        *ret_side = SIDE_DEVICE;
        return CUDA_SUCCESS;
    case CU_MEMORYTYPE_UNIFIED:
        *ret_base = (char *)device;
        *ret_side = SIDE_ANY;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED; /* arrays */
    }
}

static CUresult copy_2d(const CUDA_MEMCPY2D *copy, struct operation *ret_op, enum side *ret_dst,
                        enum side *ret_src)
{
    char *dst, *src;
    CUresult result;

    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    result = copy_side(copy->dstMemoryType, copy->dstHost, copy->dstDevice, &dst, ret_dst);
    if (result == CUDA_SUCCESS)
        result = copy_side(copy->srcMemoryType, copy->srcHost, copy->srcDevice, &src, ret_src);
    if (result != CUDA_SUCCESS)
        return result;
    *ret_op = copy_1d(dst, src, copy->WidthInBytes);
    ret_op->copy.height = copy->Height;
    ret_op->copy.dst_pitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes;
    ret_op->copy.src_pitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes;
    if (copy->Height > 1 && (ret_op->copy.dst_pitch < copy->dstXInBytes + copy->WidthInBytes ||
                             ret_op->copy.src_pitch < copy->srcXInBytes + copy->WidthInBytes))
        return CUDA_ERROR_INVALID_VALUE;
    ret_op->copy.dst += copy->dstY * ret_op->copy.dst_pitch + copy->dstXInBytes;
    ret_op->copy.src += copy->srcY * ret_op->copy.src_pitch + copy->srcXInBytes;
    return CUDA_SUCCESS;
}

static CUresult copy_3d(const CUDA_MEMCPY3D *copy, struct operation *ret_op, enum side *ret_dst,
                        enum side *ret_src)
{
    char *dst, *src;
    CUresult result;

    if (!copy)
        return CUDA_ERROR_INVALID_VALUE;
    result = copy_side(copy->dstMemoryType, copy->dstHost, copy->dstDevice, &dst, ret_dst);
    if (result == CUDA_SUCCESS)
        result = copy_side(copy->srcMemoryType, copy->srcHost, copy->srcDevice, &src, ret_src);
    if (result != CUDA_SUCCESS)
        return result;
    *ret_op = copy_1d(dst, src, copy->WidthInBytes);
    ret_op->copy.height = copy->Height;
    ret_op->copy.depth = copy->Depth;
    ret_op->copy.dst_pitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes;
    ret_op->copy.src_pitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes;
    ret_op->copy.dst_slice =
        ret_op->copy.dst_pitch * (copy->dstHeight ? copy->dstHeight : copy->Height);
    ret_op->copy.src_slice =
        ret_op->copy.src_pitch * (copy->srcHeight ? copy->srcHeight : copy->Height);
    ret_op->copy.dst += copy->dstZ * ret_op->copy.dst_slice + copy->dstY * ret_op->copy.dst_pitch +
                        copy->dstXInBytes;
    ret_op->copy.src += copy->srcZ * ret_op->copy.src_slice + copy->srcY * ret_op->copy.src_pitch +
                        copy->srcXInBytes;
    return CUDA_SUCCESS;
}

#define DEFINE_COPY_STRUCT(name, type, prepare)                                                    \
    CUresult CUDAAPI name##_v2_ptds(const type *pCopy)                                             \
    {                                                                                              \
        struct operation op;                                                                       \
        enum side dst, src;                                                                        \
        CUresult result = prepare(pCopy, &op, &dst, &src);                                         \
        return result == CUDA_SUCCESS ? copy_now(&op, dst, src, CU_STREAM_PER_THREAD) : result;    \
    }                                                                                              \
    CUresult CUDAAPI name##_v2(const type *pCopy)                                                  \
    {                                                                                              \
        struct operation op;                                                                       \
        enum side dst, src;                                                                        \
        CUresult result = prepare(pCopy, &op, &dst, &src);                                         \
        return result == CUDA_SUCCESS ? copy_now(&op, dst, src, CU_STREAM_LEGACY) : result;        \
    }

#define DEFINE_COPY_STRUCT_ASYNC(name, type, prepare)                                              \
    CUresult CUDAAPI name##_v2_ptsz(const type *pCopy, CUstream hStream)                           \
    {                                                                                              \
        struct operation op;                                                                       \
        enum side dst, src;                                                                        \
        CUresult result = prepare(pCopy, &op, &dst, &src);                                         \
        return result == CUDA_SUCCESS ? copy_async(&op, dst, src, hStream) : result;               \
    }                                                                                              \
    CUresult CUDAAPI name##_v2(const type *pCopy, CUstream hStream)                                \
    {                                                                                              \
        return name##_v2_ptsz(pCopy, hStream ? hStream : CU_STREAM_LEGACY);                        \
    }

DEFINE_COPY_STRUCT(cuMemcpy2D, CUDA_MEMCPY2D, copy_2d)
DEFINE_COPY_STRUCT(cuMemcpy2DUnaligned, CUDA_MEMCPY2D, copy_2d)
DEFINE_COPY_STRUCT(cuMemcpy3D, CUDA_MEMCPY3D, copy_3d)
DEFINE_COPY_STRUCT_ASYNC(cuMemcpy2DAsync, CUDA_MEMCPY2D, copy_2d)
DEFINE_COPY_STRUCT_ASYNC(cuMemcpy3DAsync, CUDA_MEMCPY3D, copy_3d)

/* Sets. */

static CUresult set(CUdeviceptr dst, uint32_t value, unsigned int element, size_t width,
                    size_t height, size_t pitch, CUstream hStream, bool wait)
{
    struct operation op = {.kind = OP_SET,
                           .set = {.dst = (char *)dst,
                                   .value = value,
                                   .element = element,
                                   .width = width,
                                   .height = height,
                                   .pitch = pitch}};
    struct CUstream_st *stream;
    CUcontext ctx;
    CUresult result = fake_enter(&ctx);

    if (result != CUDA_SUCCESS)
        return result;
    result = fake_stream_resolve(hStream, &stream);
    if (result == CUDA_SUCCESS && wait) {
        result = fake_capture_legacy_guard(stream);
        if (result == CUDA_SUCCESS)
            result = fake_capture_guard();
        if (result == CUDA_SUCCESS)
            result = fake_capture_stream_guard(stream);
    }
    if (result == CUDA_SUCCESS && width && height) {
        if (dst % element || (height > 1 && pitch < width * element) ||
            !fake_memory_known((void *)dst, (height - 1) * pitch + width * element)) {
            result = CUDA_ERROR_INVALID_VALUE;
        } else {
            fake_stream_ref(stream);
            result = fake_stream_submit(stream, &op);
            if (result == CUDA_SUCCESS && wait)
                fake_stream_wait_idle(stream);
            fake_stream_unref(stream);
        }
    }
    fake_unlock();
    return result;
}

#define DEFINE_SET(name, name_2d, type, element)                                                   \
    CUresult CUDAAPI name##_v2(CUdeviceptr dst, type value, size_t N)                              \
    {                                                                                              \
        return set(dst, value, element, N, 1, 0, CU_STREAM_LEGACY, true);                          \
    }                                                                                              \
    CUresult CUDAAPI name##_v2_ptds(CUdeviceptr dst, type value, size_t N)                         \
    {                                                                                              \
        return set(dst, value, element, N, 1, 0, CU_STREAM_PER_THREAD, true);                      \
    }                                                                                              \
    CUresult CUDAAPI name##Async_ptsz(CUdeviceptr dst, type value, size_t N, CUstream hStream)     \
    {                                                                                              \
        return set(dst, value, element, N, 1, 0, hStream, false);                                  \
    }                                                                                              \
    CUresult CUDAAPI name##Async(CUdeviceptr dst, type value, size_t N, CUstream hStream)          \
    {                                                                                              \
        return set(dst, value, element, N, 1, 0, hStream ? hStream : CU_STREAM_LEGACY, false);     \
    }                                                                                              \
    CUresult CUDAAPI name_2d##_v2(CUdeviceptr dst, size_t pitch, type value, size_t Width,         \
                                  size_t Height)                                                   \
    {                                                                                              \
        return set(dst, value, element, Width, Height, pitch, CU_STREAM_LEGACY, true);             \
    }                                                                                              \
    CUresult CUDAAPI name_2d##_v2_ptds(CUdeviceptr dst, size_t pitch, type value, size_t Width,    \
                                       size_t Height)                                              \
    {                                                                                              \
        return set(dst, value, element, Width, Height, pitch, CU_STREAM_PER_THREAD, true);         \
    }                                                                                              \
    CUresult CUDAAPI name_2d##Async_ptsz(CUdeviceptr dst, size_t pitch, type value, size_t Width,  \
                                         size_t Height, CUstream hStream)                          \
    {                                                                                              \
        return set(dst, value, element, Width, Height, pitch, hStream, false);                     \
    }                                                                                              \
    CUresult CUDAAPI name_2d##Async(CUdeviceptr dst, size_t pitch, type value, size_t Width,       \
                                    size_t Height, CUstream hStream)                               \
    {                                                                                              \
        return set(dst, value, element, Width, Height, pitch,                                      \
                   hStream ? hStream : CU_STREAM_LEGACY, false);                                   \
    }

DEFINE_SET(cuMemsetD8, cuMemsetD2D8, unsigned char, 1)
DEFINE_SET(cuMemsetD16, cuMemsetD2D16, unsigned short, 2)
DEFINE_SET(cuMemsetD32, cuMemsetD2D32, unsigned int, 4)

/* For graph nodes. */

CUresult fake_memory_copy_operation(const CUDA_MEMCPY3D *parameters, struct operation *ret_op)
{
    struct operation op;
    enum side dst, src;
    CUresult result = copy_3d(parameters, &op, &dst, &src);

    if (result == CUDA_SUCCESS && (!op.copy.width || !op.copy.height || !op.copy.depth))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = copy_check(&op, dst, src);
    if (result == CUDA_SUCCESS)
        *ret_op = op;
    return result;
}

CUresult fake_memory_set_operation(const CUDA_MEMSET_NODE_PARAMS *parameters,
                                   struct operation *ret_op)
{
    struct operation op = {.kind = OP_SET};

    if (!parameters || !parameters->width || !parameters->height ||
        (parameters->elementSize != 1 && parameters->elementSize != 2 &&
         parameters->elementSize != 4))
        return CUDA_ERROR_INVALID_VALUE;
    op.set.dst = (char *)parameters->dst;
    op.set.value = parameters->value;
    op.set.element = parameters->elementSize;
    op.set.width = parameters->width;
    op.set.height = parameters->height;
    op.set.pitch = parameters->pitch;
    if (!fake_memory_known(op.set.dst,
                           (op.set.height - 1) * op.set.pitch + op.set.width * op.set.element))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_op = op;
    return CUDA_SUCCESS;
}
