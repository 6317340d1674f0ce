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
    struct allocation *allocation = fake_new(sizeof(*allocation));
    size_t place = table_place(base);

    if (table_used == table_room) {
        table_room = table_room ? 2 * table_room : 64;
        table = fake_resize(table, table_room * sizeof(*table));
    }
    memmove(table + place + 1, table + place, (table_used - place) * sizeof(*table));
    table[place] = allocation;
    table_used++;
    *allocation = (struct allocation){.base = base,
                                      .size = size,
                                      .kind = kind,
                                      .device = device,
                                      .ctx = ctx,
                                      .id = fake_next_id(),
                                      .readable = true};
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
    REFUSE_IF(size > fake_device_memory - fake_devices[device].used, CUDA_ERROR_OUT_OF_MEMORY);
    fake_devices[device].used += size;
    return CUDA_SUCCESS;
}

static CUresult allocate(CUcontext ctx, size_t size, enum memory_kind kind, size_t alignment,
                         struct allocation **ret_allocation)
{
    /* A device hands out memory in pieces of 512 bytes. */
    size_t charged = kind == MEMORY_HOST ? 0 : (size + 511) & ~(size_t)511;
    void *base;

    if (!size || charged < (kind == MEMORY_HOST ? 0 : size))
        return size ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    REFUSE_IF(charge(ctx->device, charged) != CUDA_SUCCESS, CUDA_ERROR_OUT_OF_MEMORY);
    if (posix_memalign(&base, alignment, size)) {
        fake_devices[ctx->device].used -= charged;
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_allocation = table_add((uintptr_t)base, size, kind, ctx->device, ctx);
    (*ret_allocation)->charged = charged;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetInfo_v2(size_t *free, size_t *total)
{
    ENTER(ctx);
    if (free)
        *free = fake_device_memory - fake_devices[ctx->device].used;
    if (total)
        *total = fake_device_memory;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    struct allocation *allocation;

    ENTER(ctx);
    TRY(fake_capture_guard());
    TRY(dptr ? allocate(ctx, bytesize, MEMORY_DEVICE, 512, &allocation) : CUDA_ERROR_INVALID_VALUE);
    *dptr = allocation->base;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes,
                                    size_t Height, unsigned int ElementSizeBytes)
{
    size_t pitch = (WidthInBytes + 511) & ~(size_t)511, bytes;

    INVALID_IF(!pPitch ||
               (ElementSizeBytes != 4 && ElementSizeBytes != 8 && ElementSizeBytes != 16) ||
               __builtin_mul_overflow(pitch, Height, &bytes));
    TRY(cuMemAlloc_v2(dptr, bytes));
    *pPitch = pitch;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    struct allocation *allocation;

    ENTER(ctx);
    TRY(fake_capture_guard());
    INVALID_IF(!dptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST));
    TRY(allocate(ctx, bytesize, MEMORY_MANAGED, 4096, &allocation));
    *dptr = allocation->base;
    return CUDA_SUCCESS;
}

/* What begins at this address, is one of these kinds, and is not being freed; or NULL. */
static struct allocation *whole(const void *base, enum memory_kind kind, enum memory_kind other)
{
    struct allocation *allocation = fake_memory_find(base);

    return allocation && allocation->base == (uintptr_t)base && !allocation->freeing &&
                   (allocation->kind == kind || allocation->kind == other)
               ? allocation
               : NULL;
}

/* Waits for the work of the device that may still use the memory. */
static CUresult free_now(void *base, enum memory_kind kind, enum memory_kind other)
{
    TRY(fake_capture_guard());
    struct allocation *allocation = whole(base, kind, other);
    INVALID_IF(!allocation);
    allocation->freeing = true;
    fake_device_drain(allocation->device);
    fake_memory_free_base(base);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr)
{
    ENTER(ctx);
    return dptr ? free_now((void *)dptr, MEMORY_DEVICE, MEMORY_MANAGED) : CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    ENTER(ctx);
    struct allocation *allocation = fake_memory_find((void *)dptr);
    REFUSE_IF(!allocation, CUDA_ERROR_NOT_FOUND);
    if (pbase)
        *pbase = allocation->base;
    if (psize)
        *psize = allocation->size;
    return CUDA_SUCCESS;
}

/* Host memory. */

CUresult CUDAAPI cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    struct allocation *allocation;

    ENTER(ctx);
    TRY(fake_capture_guard());
    INVALID_IF(!pp || (Flags & ~7u));
    TRY(allocate(ctx, bytesize, MEMORY_HOST, 4096, &allocation));
    allocation->flags = Flags | CU_MEMHOSTALLOC_DEVICEMAP;
    *pp = (void *)allocation->base;
    return CUDA_SUCCESS;
}

FORM(cuMemAllocHost_v2, (void **pp, size_t bytesize), cuMemHostAlloc(pp, bytesize, 0))

CUresult CUDAAPI cuMemFreeHost(void *p)
{
    ENTER(ctx);
    return free_now(p, MEMORY_HOST, MEMORY_HOST);
}

V2_CALL(cuMemHostRegister, (void *p, size_t bytesize, unsigned int Flags), (p, bytesize, Flags))
{
    ENTER(ctx);
    TRY(fake_capture_guard());
    size_t place = table_place((uintptr_t)p);
    INVALID_IF(!p || !bytesize || (Flags & ~15u) || (uintptr_t)p + bytesize < (uintptr_t)p);
    REFUSE_IF(fake_memory_find(p) ||
                  (place < table_used && table[place]->base - (uintptr_t)p < bytesize),
              CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    table_add((uintptr_t)p, bytesize, MEMORY_REGISTERED, ctx->device, ctx)->flags = Flags;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostUnregister(void *p)
{
    ENTER(ctx);
    TRY(fake_capture_guard());
    struct allocation *allocation = whole(p, MEMORY_REGISTERED, MEMORY_REGISTERED);
    REFUSE_IF(!allocation, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    fake_memory_free(allocation);
    return CUDA_SUCCESS;
}

static bool is_host(const struct allocation *allocation)
{
    return allocation->kind == MEMORY_HOST || allocation->kind == MEMORY_REGISTERED;
}

GETTER(cuMemHostGetDevicePointer_v2, (CUdeviceptr * pdptr, void *p, unsigned int Flags), ENTER(ctx);
       struct allocation *allocation = fake_memory_find(p);
       INVALID_IF(Flags || !allocation || !is_host(allocation)), pdptr, (CUdeviceptr)p)

/* Allocation in stream order. */

STREAM_CALL(cuMemAllocAsync, (CUdeviceptr * dptr, size_t bytesize, CUstream hStream),
            (dptr, bytesize, hStream))
{
    struct allocation *allocation;

    ENTER_STREAM(hStream, stream);
    INVALID_IF(!dptr);
    REFUSE_IF(stream->capture, CUDA_ERROR_NOT_SUPPORTED); /* memory nodes are not modelled */
    TRY(allocate(stream->ctx, bytesize, MEMORY_DEVICE, 512, &allocation));
    allocation->ordered = true;
    *dptr = allocation->base;
    return CUDA_SUCCESS;
}

STREAM_CALL(cuMemFreeAsync, (CUdeviceptr dptr, CUstream hStream), (dptr, hStream))
{
    struct operation op = {.kind = OP_FREE, .free = {.base = (void *)dptr}};

    ENTER_STREAM(hStream, stream);
    struct allocation *allocation = whole((void *)dptr, MEMORY_DEVICE, MEMORY_DEVICE);
    INVALID_IF(!allocation);
    REFUSE_IF(stream->capture, CUDA_ERROR_NOT_SUPPORTED); /* memory nodes are not modelled */
    allocation->freeing = true;
    return fake_stream_submit(stream, &op);
}

/* Virtual memory management: a physical allocation is a memory file, a mapping is a mapping. */

static bool location_ok(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id >= 0 &&
           location->id < fake_device_count;
}

GETTER(cuMemGetAllocationGranularity,
       (size_t * granularity, const CUmemAllocationProp *prop,
        CUmemAllocationGranularity_flags option),
       TRY(fake_ready());
       INVALID_IF(!prop || !location_ok(&prop->location)), granularity, FAKE_GRANULARITY)

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment,
                                     CUdeviceptr addr, unsigned long long flags)
{
    uintptr_t base, aligned;
    void *mapping;

    TRY(fake_ready());
    INVALID_IF(!ptr || !size || size % FAKE_GRANULARITY || (alignment & (alignment - 1)) || flags);
    if (alignment < FAKE_GRANULARITY)
        alignment = FAKE_GRANULARITY;
    mapping =
        mmap(NULL, size + alignment, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REFUSE_IF(mapping == MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    base = (uintptr_t)mapping;
    aligned = (base + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (aligned > base)
        munmap(mapping, aligned - base);
    if (base + size + alignment > aligned + size)
        munmap((void *)(aligned + size), base + alignment - aligned);
    struct reservation *reservation = fake_new(sizeof(*reservation));
    HOLD_LOCK;
    *reservation = (struct reservation){reservations, aligned, size};
    reservations = reservation;
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

/* Does a known allocation begin at the address, or inside the range? */
static bool range_taken(uintptr_t base, size_t size)
{
    size_t place = table_place(base);

    return fake_memory_find((void *)base) ||
           (place < table_used && table[place]->base - base < size);
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    ENTER_DRIVER;
    for (struct reservation **link = &reservations; *link; link = &(*link)->next) {
        struct reservation *reservation = *link;

        if (reservation->base != ptr || reservation->size != size)
            continue;
        if (range_taken(ptr, size))
            break; /* still mapped */
        munmap((void *)ptr, size);
        *link = reservation->next;
        free(reservation);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
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

/* With its first handle. */
static CUmemGenericAllocationHandle physical_add(int fd, size_t size, CUmemAllocationProp prop,
                                                 bool charged)
{
    struct physical *physical = fake_new(sizeof(*physical));

    *physical = (struct physical){.fd = fd,
                                  .size = size,
                                  .device = prop.location.id,
                                  .prop = prop,
                                  .refs = 1,
                                  .handles = 1,
                                  .charged = charged};
    fake_handle_add(physical, HANDLE_PHYSICAL);
    return (CUmemGenericAllocationHandle)(uintptr_t)physical;
}

static struct physical *physical_of(CUmemGenericAllocationHandle handle)
{
    const void *pointer = (const void *)(uintptr_t)handle;

    return fake_handle_is(pointer, HANDLE_PHYSICAL) ? (struct physical *)(uintptr_t)handle : NULL;
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                             const CUmemAllocationProp *prop, unsigned long long flags)
{
    TRY(fake_ready());
    INVALID_IF(!handle || !prop || flags || !size || size % FAKE_GRANULARITY ||
               prop->type != CU_MEM_ALLOCATION_TYPE_PINNED || !location_ok(&prop->location));
    REFUSE_IF(prop->requestedHandleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
              CUDA_ERROR_NOT_SUPPORTED);
    HOLD_LOCK;
    TRY(charge(prop->location.id, size));
    int fd = memfd_create("device memory", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)size)) {
        fake_devices[prop->location.id].used -= size;
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = physical_add(fd, size, *prop, true);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    ENTER_DRIVER;
    struct physical *physical = physical_of(handle);
    INVALID_IF(!physical);
    if (!--physical->handles)
        fake_handle_remove(physical);
    physical_unref(physical);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                          CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    ENTER_DRIVER;
    struct physical *physical = physical_of(handle);
    INVALID_IF(!physical || flags || offset || !size || size % FAKE_GRANULARITY ||
               size > physical->size || !reservation_of(ptr, size) || range_taken(ptr, size));
    REFUSE_IF(mmap((void *)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd, 0) ==
                  MAP_FAILED,
              CUDA_ERROR_OUT_OF_MEMORY);
    struct allocation *allocation = table_add(ptr, size, MEMORY_MAPPED, physical->device, NULL);
    allocation->physical = physical;
    allocation->readable = false; /* until cuMemSetAccess */
    physical->refs++;
    return CUDA_SUCCESS;
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
    int protection = PROT_NONE;

    ENTER_DRIVER;
    INVALID_IF(!desc || !count);
    for (size_t i = 0; i < count; i++) {
        REFUSE_IF(!location_ok(&desc[i].location), CUDA_ERROR_INVALID_DEVICE);
        if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            protection |= PROT_READ | PROT_WRITE;
        else if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
            protection |= PROT_READ;
    }
    INVALID_IF(!mappings_cover(ptr, size) || mprotect((void *)ptr, size, protection));
    for (uintptr_t at = ptr; at < ptr + size;) {
        struct allocation *allocation = fake_memory_find((void *)at);

        allocation->readable = protection != PROT_NONE;
        allocation->flags = (unsigned int)protection;
        at += allocation->size;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    ENTER_DRIVER;
    INVALID_IF(!mappings_cover(ptr, size));
    mmap((void *)ptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
         0);
    for (uintptr_t at = ptr; at < ptr + size;) {
        struct allocation *allocation = fake_memory_find((void *)at);

        at += allocation->size;
        physical_unref(allocation->physical);
        table_remove(allocation);
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    ENTER_DRIVER;
    struct allocation *allocation = fake_memory_find(addr);
    INVALID_IF(!handle || !allocation || allocation->kind != MEMORY_MAPPED);
    struct physical *physical = allocation->physical;
    if (!physical->handles++)
        fake_handle_add(physical, HANDLE_PHYSICAL);
    physical->refs++;
    *handle = (CUmemGenericAllocationHandle)(uintptr_t)physical;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
                                                        CUmemGenericAllocationHandle handle)
{
    ENTER_DRIVER;
    struct physical *physical = physical_of(handle);
    INVALID_IF(!physical || !prop);
    *prop = physical->prop;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemExportToShareableHandle(void *shareableHandle,
                                              CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType handleType,
                                              unsigned long long flags)
{
    int fd;

    ENTER_DRIVER;
    struct physical *physical = physical_of(handle);
    INVALID_IF(!physical || !shareableHandle || flags ||
               handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
               !(physical->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    REFUSE_IF((fd = dup(physical->fd)) < 0, CUDA_ERROR_OPERATING_SYSTEM);
    *(int *)shareableHandle = fd;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle,
                                                void *osHandle,
                                                CUmemAllocationHandleType shHandleType)
{
    struct stat status;

    TRY(fake_ready());
    INVALID_IF(!handle || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
               fstat((int)(intptr_t)osHandle, &status) || status.st_size <= 0 ||
               (size_t)status.st_size % FAKE_GRANULARITY);
    int fd = dup((int)(intptr_t)osHandle);
    REFUSE_IF(fd < 0, CUDA_ERROR_OPERATING_SYSTEM);
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                .location.type = CU_MEM_LOCATION_TYPE_DEVICE};
    HOLD_LOCK;
    *handle = physical_add(fd, (size_t)status.st_size, prop, false);
    return CUDA_SUCCESS;
}

/* Attributes of pointers. */

static CUresult pointer_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct allocation *allocation = fake_memory_find((void *)ptr);

    INVALID_IF(!allocation);
#define PUT(type, value)                                                                           \
    *(type *)data = (value);                                                                       \
    return CUDA_SUCCESS
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        PUT(CUcontext, allocation->ctx);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        PUT(unsigned int, is_host(allocation) ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        PUT(CUdeviceptr, ptr);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        INVALID_IF(!is_host(allocation) && allocation->kind != MEMORY_MANAGED);
        PUT(void *, (void *)ptr);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        PUT(unsigned long long, allocation->id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        PUT(unsigned int, allocation->kind == MEMORY_MANAGED);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        PUT(int, allocation->device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        PUT(unsigned int, allocation->kind == MEMORY_DEVICE && !allocation->ordered);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        PUT(CUdeviceptr, allocation->base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        PUT(size_t, allocation->size);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        PUT(unsigned int, allocation->readable);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        PUT(unsigned int,
            allocation->physical ? allocation->physical->prop.requestedHandleTypes : 0);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
        PUT(unsigned int, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        PUT(unsigned int, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        PUT(CUmemoryPool, NULL);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        PUT(unsigned long long, allocation->id);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
#undef PUT
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    TRY(fake_ready());
    INVALID_IF(!data);
    HOLD_LOCK;
    return pointer_attribute(data, attribute, ptr);
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
    ENTER_DRIVER;
    INVALID_IF(!attributes || !data);
    for (unsigned int i = 0; i < numAttributes; i++)
        if (pointer_attribute(data[i], attributes[i], ptr) != CUDA_SUCCESS)
            TRY(pointer_attribute_default(data[i], attributes[i]));
    return CUDA_SUCCESS;
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

    return (op->copy.height - 1) * pitch + op->copy.width;
}

static CUresult copy_check(struct operation *op, enum side dst, enum side src)
{
    INVALID_IF(!side_ok(dst, op->copy.dst, extent(op, true)) || !op->copy.dst);
    INVALID_IF(!side_ok(src, op->copy.src, extent(op, false)) || !op->copy.src);
    op->copy.dst_known = !is_pageable(op->copy.dst);
    op->copy.src_known = !is_pageable(op->copy.src);
    return CUDA_SUCCESS;
}

/* Locked. */
static CUresult submit(struct CUstream_st *stream, const struct operation *op, bool wait)
{
    CUresult result;

    fake_stream_ref(stream);
    result = fake_stream_submit(stream, op);
    if (result == CUDA_SUCCESS && wait)
        fake_stream_wait_idle(stream);
    fake_stream_unref(stream);
    return result;
}

/* FAKE_CUDA_READ_S: so many seconds pass on the stream before a copy of 16 KiB or more from the
 * device to the host, as where the hardware does not get to it. */
#define SLOW_BYTES ((size_t)16 << 10)

static void CUDA_CB pass_time(void *seconds)
{
    sleep((unsigned int)(uintptr_t)seconds);
}

static CUresult delay(struct CUstream_st *stream, size_t bytes, enum side dst, enum side src)
{
    const char *text = getenv("FAKE_CUDA_READ_S");
    uintptr_t seconds = text ? strtoul(text, NULL, 10) : 0;
    struct operation op = {.kind = OP_HOST, .host = {.fn = pass_time, .data = (void *)seconds}};

    return seconds && bytes >= SLOW_BYTES && dst == SIDE_HOST && src == SIDE_DEVICE
               ? fake_stream_submit(stream, &op)
               : CUDA_SUCCESS;
}

/*
 * Queues one copy. From pageable memory the bytes are taken now, so that the caller may change its
 * buffer; into pageable memory the call returns when the bytes are there. Both as the real driver.
 */
static CUresult copy_async(struct operation *op, enum side dst, enum side src, CUstream hStream)
{
    bool into_pageable, from_pageable;

    ENTER_STREAM(hStream, stream);
    if (!op->copy.width || !op->copy.height)
        return CUDA_SUCCESS;
    TRY(copy_check(op, dst, src));
    if (stream->capture)
        return fake_stream_submit(stream, op);
    TRY(delay(stream, op->copy.width, dst, src));
    into_pageable = is_pageable(op->copy.dst);
    from_pageable = is_pageable(op->copy.src);
    if (from_pageable && !into_pageable) {
        size_t bytes = extent(op, false);

        if (bytes <= FAKE_SMALL_STAGING) {
            op->copy.staging = fake_new(bytes);
            memcpy(op->copy.staging, op->copy.src, bytes);
            op->copy.src = op->copy.staging;
            from_pageable = false;
        }
    }
    CUresult result = submit(stream, op, into_pageable || from_pageable);
    if (result != CUDA_SUCCESS)
        free(op->copy.staging);
    return result;
}

/* A synchronous copy is a copy on the default stream and a wait for it. */
static CUresult copy_now(struct operation *op, enum side dst, enum side src, CUstream hStream)
{
    ENTER_STREAM(hStream, stream);
    TRY(fake_capture_legacy_guard(stream));
    TRY(fake_capture_guard());
    if (stream->capture)
        TRY(fake_capture_stream_guard(stream));
    if (!op->copy.width || !op->copy.height)
        return CUDA_SUCCESS;
    TRY(copy_check(op, dst, src));
    return submit(stream, op, true);
}

#define COPY_1D(to, from, bytes)                                                                   \
    ((struct operation){.kind = OP_COPY,                                                           \
                        .copy = {.dst = (char *)(uintptr_t)(to),                                   \
                                 .src = (const char *)(from),                                      \
                                 .width = bytes,                                                   \
                                 .height = 1}})

/* A row is a copy in both forms: what it takes, and on which side each end lies. */
#define DEFINE_COPY(name, parameters, dst, src, to, from)                                          \
    FORM(name##_ptds, parameters,                                                                  \
         copy_now(&COPY_1D(dst, src, ByteCount), to, from, CU_STREAM_PER_THREAD))                  \
    FORM(name, parameters, copy_now(&COPY_1D(dst, src, ByteCount), to, from, CU_STREAM_LEGACY))

#define DEFINE_COPY_ASYNC(name, parameters, dst, src, to, from)                                    \
    STREAM_FORMS(name, parameters, copy_async(&COPY_1D(dst, src, ByteCount), to, from, hStream))

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

    INVALID_IF(!copy);
    TRY(copy_side(copy->dstMemoryType, copy->dstHost, copy->dstDevice, &dst, ret_dst));
    TRY(copy_side(copy->srcMemoryType, copy->srcHost, copy->srcDevice, &src, ret_src));
    *ret_op = COPY_1D(dst, src, copy->WidthInBytes);
    ret_op->copy.height = copy->Height;
    ret_op->copy.dst_pitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes;
    ret_op->copy.src_pitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes;
    INVALID_IF(copy->Height > 1 &&
               (ret_op->copy.dst_pitch < copy->dstXInBytes + copy->WidthInBytes ||
                ret_op->copy.src_pitch < copy->srcXInBytes + copy->WidthInBytes));
    ret_op->copy.dst += copy->dstY * ret_op->copy.dst_pitch + copy->dstXInBytes;
    ret_op->copy.src += copy->srcY * ret_op->copy.src_pitch + copy->srcXInBytes;
    return CUDA_SUCCESS;
}

static CUresult copy_2d_now(const CUDA_MEMCPY2D *pCopy, CUstream hStream)
{
    struct operation op;
    enum side dst, src;

    TRY(copy_2d(pCopy, &op, &dst, &src));
    return copy_now(&op, dst, src, hStream);
}

FORM(cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *pCopy), copy_2d_now(pCopy, CU_STREAM_PER_THREAD))
FORM(cuMemcpy2D_v2, (const CUDA_MEMCPY2D *pCopy), copy_2d_now(pCopy, CU_STREAM_LEGACY))

/* Sets. */

static CUresult set(CUdeviceptr dst, uint32_t value, unsigned int element, size_t width,
                    CUstream hStream, bool wait)
{
    struct operation op = {
        .kind = OP_SET,
        .set = {.dst = (char *)dst, .value = value, .element = element, .width = width}};

    ENTER_STREAM(hStream, stream);
    if (wait) {
        TRY(fake_capture_legacy_guard(stream));
        TRY(fake_capture_guard());
        TRY(fake_capture_stream_guard(stream));
    }
    if (!width)
        return CUDA_SUCCESS;
    INVALID_IF(dst % element || !fake_memory_known((void *)dst, width * element));
    return submit(stream, &op, wait);
}

/* The four forms of a set. */
#define DEFINE_SET(name, type, element)                                                            \
    FORM(name##_v2, (CUdeviceptr dst, type value, size_t N),                                       \
         set(dst, value, element, N, CU_STREAM_LEGACY, true))                                      \
    FORM(name##_v2_ptds, (CUdeviceptr dst, type value, size_t N),                                  \
         set(dst, value, element, N, CU_STREAM_PER_THREAD, true))                                  \
    STREAM_FORMS(name##Async, (CUdeviceptr dst, type value, size_t N, CUstream hStream),           \
                 set(dst, value, element, N, hStream, false))

DEFINE_SET(cuMemsetD8, unsigned char, 1)
DEFINE_SET(cuMemsetD16, unsigned short, 2)
DEFINE_SET(cuMemsetD32, unsigned int, 4)
