/* Memory and what is registered with a communicator: allocation, buffer registration, windows, own
 * reduction operators. Only bookkeeping, but strict: what corrupts memory in the real library (a
 * handle used twice, after an abort, or with another communicator) is told and ends the program. */
#include "tests/fake/nccl/fake.h"
#include "tests/fake/nccl/fake_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE        4096u
#define REDOP_LIMIT 4096

/* ---- allocation ---- */

struct allocation {
    struct allocation *next;
    CUdeviceptr address;
    size_t bytes;
    CUmemGenericAllocationHandle handle;
};

/* Protects allocations. Innermost. */
static pthread_mutex_t allocations_lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations;

static size_t round_up(size_t value, size_t to)
{
    return (value + to - 1) / to * to;
}

static CUresult allocate_vmm(const struct fake_cuda *cuda, CUdevice device, size_t size,
                             struct allocation *a)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    size_t granularity = 0;
    CUresult result =
        cuda->mem_get_granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result != CUDA_SUCCESS)
        return result;
    a->bytes = round_up(size, granularity);
    result = cuda->mem_create(&a->handle, a->bytes, &prop, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda->mem_address_reserve(&a->address, a->bytes, granularity, 0, 0);
    if (result != CUDA_SUCCESS)
        goto release;
    result = cuda->mem_map(a->address, a->bytes, 0, a->handle, 0);
    if (result != CUDA_SUCCESS)
        goto free_address;
    result = cuda->mem_set_access(a->address, a->bytes, &access, 1);
    if (result == CUDA_SUCCESS)
        return result;
    cuda->mem_unmap(a->address, a->bytes);
free_address:
    cuda->mem_address_free(a->address, a->bytes);
release:
    cuda->mem_release(a->handle);
    return result;
}

FAKE_API(ncclResult_t, ncclMemAlloc, (void **ptr, size_t size))
{
    const struct fake_cuda *cuda = fake_cuda();
    struct allocation *a;
    CUdevice device = 0;
    CUcontext ctx;
    CUresult result;
    ncclResult_t answer = fake_current_device(&device, &ctx);
    if (answer != ncclSuccess || !cuda)
        return ncclUnhandledCudaError;
    if (!ptr)
        return fake_cuda_failed(CUDA_ERROR_INVALID_VALUE, "ncclMemAlloc");
    if (size == 0) {
        *ptr = NULL;
        return ncclSuccess;
    }
    if (!cuda->mem_create || !cuda->mem_map || !cuda->mem_set_access) {
        CUdeviceptr address = 0;
        result = cuda->mem_alloc(&address, size);
        if (result != CUDA_SUCCESS)
            return fake_cuda_failed(result, "cuMemAlloc");
        *ptr = (void *)(uintptr_t)address;
        return ncclSuccess;
    }
    a = fake_new(sizeof(*a));
    result = allocate_vmm(cuda, device, size, a);
    if (result != CUDA_SUCCESS) {
        free(a);
        return fake_cuda_failed(result, "cuMemCreate");
    }
    pthread_mutex_lock(&allocations_lock);
    a->next = allocations;
    allocations = a;
    pthread_mutex_unlock(&allocations_lock);
    *ptr = (void *)(uintptr_t)a->address;
    return ncclSuccess;
}

FAKE_API(ncclResult_t, ncclMemFree, (void *ptr))
{
    const struct fake_cuda *cuda = fake_cuda();
    struct allocation **at, *a;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)ptr;
    CUresult result;
    if (!ptr)
        return ncclSuccess;
    if (!cuda)
        return ncclUnhandledCudaError;
    pthread_mutex_lock(&allocations_lock);
    for (at = &allocations; *at && (*at)->address != address; at = &(*at)->next)
        ;
    a = *at;
    if (a)
        *at = a->next;
    pthread_mutex_unlock(&allocations_lock);
    if (!a) {
        result = cuda->mem_free(address);
        return result == CUDA_SUCCESS ? ncclSuccess : fake_cuda_failed(result, "cuMemFree");
    }
    result = cuda->mem_unmap(a->address, a->bytes);
    if (result == CUDA_SUCCESS)
        result = cuda->mem_release(a->handle);
    if (result == CUDA_SUCCESS)
        result = cuda->mem_address_free(a->address, a->bytes);
    free(a);
    return result == CUDA_SUCCESS ? ncclSuccess : fake_cuda_failed(result, "ncclMemFree");
}

/* ---- buffer registration and windows ---- */

enum entry_kind { ENTRY_REGISTRATION, ENTRY_WINDOW };

#define MAPPED_RANKS 512 /* beyond these nobody is asked */

/* Kept for ever once made, so that a stale handle is known as such. */
struct entry {
    struct entry *next;
    enum entry_kind kind;
    struct ncclComm *owner; /* compared, never followed */
    uintptr_t begin, end;
    int refs;                                         /* 0: deregistered */
    bool orphan;                                      /* its communicator is gone */
    void *registration;                               /* of a window */
    enum { UNUSED, BY_P2P, BY_COLLECTIVE } first_use; /* of a registration, in a launch */
    unsigned char mapped[MAPPED_RANKS / 8];           /* by these ranks: bits */
};

/* Protects entries. Innermost. */
static pthread_mutex_t entries_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;

static const char *entry_noun(enum entry_kind kind)
{
    return kind == ENTRY_WINDOW ? "window" : "registration";
}

static struct entry *entry_find_locked(const void *handle, enum entry_kind kind)
{
    struct entry *e;
    for (e = entries; e; e = e->next)
        if (e == handle && e->kind == kind)
            return e;
    return NULL;
}

static struct entry *entry_add_locked(struct ncclComm *comm, enum entry_kind kind, uintptr_t begin,
                                      uintptr_t end)
{
    struct entry *e = fake_new(sizeof(*e));
    *e = (struct entry){
        .next = entries, .kind = kind, .owner = comm, .begin = begin, .end = end, .refs = 1};
    entries = e;
    return e;
}

/* Gives one reference back; misuse ends the program. comm is only compared. */
static ncclResult_t entry_release(const struct ncclComm *comm, void *handle, enum entry_kind kind,
                                  bool alive, void **ret_registration)
{
    struct entry *e;
    const char *noun = entry_noun(kind);
    pthread_mutex_lock(&entries_lock);
    e = entry_find_locked(handle, kind);
    if (e && e->refs == 0)
        fake_misuse("%s %p is deregistered twice", noun, handle);
    if (e && (e->orphan || !alive))
        fake_misuse("%s %p is deregistered after its communicator's end", noun, handle);
    if (e && e->owner != comm)
        fake_misuse("%s %p is deregistered with another communicator", noun, handle);
    if (e && --e->refs == 0 && ret_registration)
        *ret_registration = e->registration;
    pthread_mutex_unlock(&entries_lock);
    REFUSE_IF(!e, ncclInvalidUsage, "Deregister: Could not find handle");
    return ncclSuccess;
}

static void *register_buffer(struct ncclComm *comm, const void *buff, size_t size)
{
    struct entry *e;
    uintptr_t begin = (uintptr_t)buff / PAGE * PAGE, end = round_up((uintptr_t)buff + size, PAGE);
    if (fake_env_long("NCCL_LOCAL_REGISTER", 1, 0, 2) == 0 || !buff || !size)
        return NULL;
    pthread_mutex_lock(&entries_lock);
    for (e = entries; e; e = e->next)
        if (e->kind == ENTRY_REGISTRATION && e->owner == comm && !e->orphan && e->refs &&
            e->begin <= begin && end <= e->end)
            break;
    if (e)
        e->refs++;
    else
        e = entry_add_locked(comm, ENTRY_REGISTRATION, begin, end);
    pthread_mutex_unlock(&entries_lock);
    return e;
}

FAKE_API(ncclResult_t, ncclCommRegister,
         (const ncclComm_t handle, void *buff, size_t size, void **ret_handle))
{
    FAKE_ENTER(comm, handle, "CommRegister", true);
    REFUSE_IF(!ret_handle, ncclInvalidArgument, "CommRegister : handle argument is NULL");
    *ret_handle = register_buffer(comm, buff, size);
    return ncclSuccess;
}

static ncclResult_t deregister(const char *func, ncclComm_t handle, void *entry,
                               enum entry_kind kind, void **ret_registration)
{
    struct ncclComm *comm = handle ? fake_comm_get(handle) : NULL;
    bool alive = comm && !fake_comm_aborted(comm);
    ncclResult_t result;
    if (!handle)
        return fake_comm_enter(handle, func, false, &comm);
    result = entry ? entry_release(handle, entry, kind, alive, ret_registration) : ncclSuccess;
    fake_comm_put(comm);
    if (!comm && !entry)
        return fake_comm_enter(handle, func, false, &comm);
    return result;
}

static bool is_stopped(int32_t pid)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t got = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[got] = '\0';
    const char *end = strrchr(text, ')');
    return end && end[1] && end[2] == 'T';
}

/*
 * As NCCL 2.28 has it (ncclIpcDeregBuffer): the proxy thread of each peer of this host that has
 * mapped the buffer is asked to let go of it, and waited for until it answers or the communicator
 * is aborted. A process that is stopped answers nobody; to one that has ended the connection is
 * closed.
 */
static ncclResult_t ask_peers(struct ncclComm *comm, const unsigned char *mapped)
{
    struct fake_shm *shm = atomic_load(&comm->shm);
    for (int peer = 0; shm && peer < comm->nranks && peer < MAPPED_RANKS; peer++) {
        const struct fake_rank *rank = fake_shm_rank(shm, peer);
        if (!(mapped[peer / 8] >> peer % 8 & 1) || peer == comm->rank || rank->pid == getpid() ||
            strcmp(rank->host, fake_shm_rank(shm, comm->rank)->host) != 0)
            continue;
        while (is_stopped(rank->pid)) {
            if (fake_comm_aborted(comm))
                return ncclInternalError;
            usleep(1000);
        }
    }
    return ncclSuccess;
}

FAKE_API(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void *handle))
{
    struct ncclComm *alive = comm ? fake_comm_get(comm) : NULL;
    unsigned char mapped[MAPPED_RANKS / 8] = {0};
    pthread_mutex_lock(&entries_lock);
    const struct entry *e = entry_find_locked(handle, ENTRY_REGISTRATION);
    if (e && e->owner == comm && !e->orphan && e->refs == 1)
        memcpy(mapped, e->mapped, sizeof(mapped));
    pthread_mutex_unlock(&entries_lock);
    ncclResult_t result = deregister("CommDeregister", comm, handle, ENTRY_REGISTRATION, NULL);
    if (alive && result == ncclSuccess)
        result = ask_peers(alive, mapped);
    if (alive)
        fake_comm_put(alive);
    return result;
}

/* All ranks of the communicator come, as in ncclBootstrapBarrier, which knows no deadline. */
ncclResult_t fake_meet(struct ncclComm *comm, int kind)
{
    unsigned char *all = fake_new((size_t)comm->nranks), one = 1;
    ncclResult_t result = fake_boot_all_gather(comm, kind, &one, all, 1);
    free(all);
    return result;
}

static ncclResult_t meet_job(struct fake_job *job)
{
    TRY(fake_meet(job->comm, job->meets));
    fake_comm_linger(job->comm);
    return ncclSuccess;
}

/* Inside a group at its end, and in the background with nonblocking communicators. */
static ncclResult_t start_meeting(ncclComm_t handle, const char *func, int kind)
{
    FAKE_ENTER(comm, handle, func, true);
    struct fake_job *job = fake_job_new(meet_job, comm, NULL);
    job->meets = kind;
    return fake_group_add_job(job);
}

bool fake_waits(const char *func)
{
    const char *list = getenv("FAKE_NCCL_WAITS");
    return list && strstr(list, func);
}

static ncclResult_t window_job(struct fake_job *job)
{
    struct ncclComm *comm = job->comm;
    TRY(fake_meet(comm, FAKE_BOOT_WINDOW));
    void *registration = register_buffer(comm, job->buffer, job->bytes);
    pthread_mutex_lock(&entries_lock);
    struct entry *e = entry_add_locked(comm, ENTRY_WINDOW, (uintptr_t)job->buffer,
                                       (uintptr_t)job->buffer + job->bytes);
    e->registration = registration;
    pthread_mutex_unlock(&entries_lock);
    *job->ret_window = (ncclWindow_t)(void *)e;
    fake_comm_linger(comm);
    return ncclSuccess;
}

static ncclResult_t window_register(ncclComm_t handle, void *buff, size_t size, ncclWindow_t *win,
                                    int flags)
{
    const struct fake_cuda *cuda = fake_cuda();
    CUmemGenericAllocationHandle memory;
    FAKE_ENTER(comm, handle, "ncclCommWindowRegister", true);
    REFUSE_IF(!win, ncclInvalidArgument, "ncclCommWindowRegister : win argument is NULL");
    *win = NULL;
    if (!buff || !size || flags & ~NCCL_WIN_COLL_SYMMETRIC)
        return ncclInvalidArgument;
    REFUSE_IF((uintptr_t)buff % NCCL_WIN_REQUIRED_ALIGNMENT, ncclInvalidArgument,
              "Window address must be suitably aligned.");
    if (!cuda || !cuda->mem_retain_handle || cuda->mem_retain_handle(&memory, buff) != CUDA_SUCCESS)
        return fake_cuda_failed(CUDA_ERROR_INVALID_VALUE, "cuMemRetainAllocationHandle");
    cuda->mem_release(memory);
    struct fake_job *job = fake_job_new(window_job, comm, NULL);
    job->buffer = buff;
    job->bytes = size;
    job->ret_window = win;
    return fake_group_add_job(job);
}

/* As 2.28.9, which loses what the end of its group says of nonblocking communicators. */
static ncclResult_t without_progress(ncclResult_t result)
{
    return result == ncclInProgress ? ncclSuccess : result;
}

FAKE_FORM(ncclResult_t, ncclCommWindowRegister,
          (ncclComm_t handle, void *buff, size_t size, ncclWindow_t *win, int flags),
          without_progress(FAKE_IN_GROUP(window_register(handle, buff, size, win, flags))))

static ncclResult_t window_deregister(ncclComm_t comm, ncclWindow_t win)
{
    void *registration = NULL;
    ncclResult_t result =
        deregister("ncclCommWindowDeregister", comm, win, ENTRY_WINDOW, &registration);
    if (result == ncclSuccess && registration)
        result = ncclCommDeregister(comm, registration);
    return result;
}

FAKE_API(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t handle, ncclWindow_t win))
{
    if (fake_waits("CommWindowDeregister")) {
        FAKE_ENTER(comm, handle, "ncclCommWindowDeregister", true);
        TRY(fake_meet(comm, FAKE_BOOT_WINDOW_END));
    }
    return window_deregister(handle, win);
}

/* FAKE_NCCL_DEVICE_API=1: the communicator can have device communicators, which have no content
 * here. */
ncclResult_t fake_device_comm_create(ncclComm_t handle)
{
    const char *has = getenv("FAKE_NCCL_DEVICE_API");
    if (!has || strcmp(has, "1") != 0)
        return fake_device_unsupported("ncclDevCommCreate");
    return without_progress(
        FAKE_IN_GROUP(start_meeting(handle, "ncclDevCommCreate", FAKE_BOOT_DEVICE)));
}

ncclResult_t fake_device_comm_end(ncclComm_t handle)
{
    const char *has = getenv("FAKE_NCCL_DEVICE_API");
    if (!has || strcmp(has, "1") != 0)
        return fake_device_unsupported("ncclDevCommDestroy");
    FAKE_ENTER(comm, handle, "ncclDevCommDestroy", true);
    return fake_waits("DevCommDestroy") ? fake_meet(comm, FAKE_BOOT_DEVICE_END) : ncclSuccess;
}

/* Came with 2.29.7. */
FAKE_FORM(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags),
          FAKE_IN_GROUP(start_meeting(comm, "ncclCommSuspend", FAKE_BOOT_SUSPEND)))
FAKE_FORM(ncclResult_t, ncclCommResume, (ncclComm_t comm),
          FAKE_IN_GROUP(start_meeting(comm, "ncclCommResume", FAKE_BOOT_RESUME)))

void fake_memory_release(struct ncclComm *comm)
{
    bool aborted = fake_comm_aborted(comm);
    for (;;) {
        struct entry *e;
        pthread_mutex_lock(&entries_lock);
        for (e = entries; e; e = e->next)
            if (e->owner == comm && e->refs && !e->orphan && (aborted || e->kind == ENTRY_WINDOW))
                break;
        if (e && aborted)
            e->orphan = true;
        pthread_mutex_unlock(&entries_lock);
        if (!e)
            break;
        /* The library itself ends forgotten windows, through its exported symbol. */
        if (!aborted && ncclCommWindowDeregister(comm, (ncclWindow_t)(void *)e) != ncclSuccess)
            break;
    }
    pthread_mutex_lock(&entries_lock);
    for (struct entry *e = entries; e; e = e->next)
        if (e->owner == comm)
            e->orphan = true;
    pthread_mutex_unlock(&entries_lock);
}

/*
 * Seen with NCCL 2.28.9 on two H200: if the first registered use of a buffer on a communicator was
 * a send or receive, the first all-gather, all-reduce or broadcast that uses the same registration
 * there never ends. It does end for a reduce-scatter, for 64 KiB, if a collective came first, and
 * if the buffer was deregistered in between.
 */
#define REGISTERED_COLLECTIVE_BYTES 65536u

static struct entry *entry_of_buffer_locked(const struct ncclComm *comm, const void *buffer)
{
    uintptr_t address = (uintptr_t)buffer;
    struct entry *e;
    for (e = entries; e; e = e->next)
        if (e->kind == ENTRY_REGISTRATION && e->owner == comm && !e->orphan && e->refs &&
            e->begin <= address && address < e->end)
            return e;
    return NULL;
}

static bool coll_is_stuck_locked(const struct ncclComm *comm, const struct fake_coll *coll)
{
    const void *buffers[] = {coll->send, coll->recv};
    bool stuck = false;
    if ((coll->func != FAKE_ALL_GATHER && coll->func != FAKE_ALL_REDUCE &&
         coll->func != FAKE_BROADCAST) ||
        coll->count * fake_type_bytes(coll->type) <= REGISTERED_COLLECTIVE_BYTES)
        return false;
    for (unsigned i = 0; i < 2; i++) {
        struct entry *e = entry_of_buffer_locked(comm, buffers[i]);
        if (e && e->first_use == UNUSED)
            e->first_use = BY_COLLECTIVE;
        stuck |= e && e->first_use == BY_P2P;
    }
    return stuck;
}

void fake_memory_launch(struct fake_plan *plan)
{
    FAKE_HOLD(&entries_lock);
    for (int i = 0; entries && i < plan->ncolls; i++)
        plan->stuck |= fake_version() / 100 == 228 && plan->comm->nranks > 1 &&
                       coll_is_stuck_locked(plan->comm, &plan->colls[i]);
    for (int i = 0; entries && i < plan->np2ps; i++) {
        struct entry *e = entry_of_buffer_locked(plan->comm, plan->p2ps[i].data);
        int peer = plan->p2ps[i].peer;
        if (e && e->first_use == UNUSED && peer != plan->comm->rank)
            e->first_use = BY_P2P;
        if (e && peer < MAPPED_RANKS)
            e->mapped[peer / 8] |= (unsigned char)(1u << peer % 8);
    }
}

/* ---- own reduction operators ---- */

/* A handle says which communicator made it, so that another one does not know it. */
static unsigned int mangle_key(const struct ncclComm *comm)
{
    return (unsigned int)(((uintptr_t)comm >> 4) * 2654435761u) & 0x3fff0000u;
}

static int redop_index(const struct ncclComm *comm, ncclRedOp_t op)
{
    unsigned int index = ((unsigned int)op ^ mangle_key(comm)) - (unsigned int)ncclNumOps;
    return index < REDOP_LIMIT ? (int)index : -1;
}

static const struct fake_redop *redop_find_locked(const struct ncclComm *comm, ncclRedOp_t op)
{
    int index = redop_index(comm, op);
    if (index < 0 || index >= comm->nredops || !comm->redops[index].used)
        return NULL;
    return &comm->redops[index];
}

FAKE_API(ncclResult_t, ncclRedOpCreatePreMulSum,
         (ncclRedOp_t * ret_op, void *scalar, ncclDataType_t type, ncclScalarResidence_t residence,
          ncclComm_t handle))
{
    int index;
    ncclResult_t result = ncclSystemError;
    FAKE_ENTER(comm, handle, "ncclRedOpCreatePreMulSum", true);
    REFUSE_IF(!ret_op || !scalar, ncclInvalidArgument,
              "ncclRedOpCreatePreMulSum : %s argument is NULL", ret_op ? "scalar" : "op");
    REFUSE_IF((int)type < 0 || (int)type >= FAKE_NTYPES ||
                  (residence != ncclScalarDevice && residence != ncclScalarHostImmediate),
              ncclInvalidArgument, "ncclRedOpCreatePreMulSum : invalid type %d or residence %d",
              (int)type, (int)residence);
    FAKE_HOLD(&comm->lock);
    for (index = 0; index < comm->nredops && comm->redops[index].used; index++)
        ;
    if (index == comm->nredops && index < REDOP_LIMIT) {
        comm->redops = fake_resize(comm->redops, (size_t)(index + 1) * sizeof(*comm->redops));
        comm->nredops++;
    }
    if (index < comm->nredops) {
        struct fake_redop *op = &comm->redops[index];
        *op = (struct fake_redop){.used = true,
                                  .type = type,
                                  .residence = residence,
                                  .device = residence == ncclScalarDevice ? scalar : NULL};
        if (residence == ncclScalarHostImmediate)
            memcpy(op->value, scalar, fake_type_bytes(type));
        *ret_op = (ncclRedOp_t)((unsigned int)(index + ncclNumOps) ^ mangle_key(comm));
        result = ncclSuccess;
    }
    return result;
}

FAKE_API(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t handle))
{
    struct fake_redop *found;
    REFUSE_IF((int)op >= 0 && (int)op < (int)ncclNumOps, ncclInvalidArgument,
              "ncclRedOpDestroy : operator is a NCCL builtin.");
    REFUSE_IF((int)op < 0 || (int)op > (int)ncclMaxRedOp, ncclInvalidArgument,
              "ncclRedOpDestroy :  operator is garbage.");
    __attribute__((cleanup(fake_comm_put_at_end))) struct ncclComm *comm =
        handle ? fake_comm_get(handle) : NULL;
    REFUSE_IF(!comm, ncclInvalidArgument, "ncclRedOpDestroy : invalid communicator passed.");
    FAKE_HOLD(&comm->lock);
    found = (struct fake_redop *)redop_find_locked(comm, op);
    REFUSE_IF(!found, ncclInvalidArgument,
              "ncclRedOpDestroy : operator unknown to this communicator.");
    found->used = false;
    return ncclSuccess;
}

ncclResult_t fake_redop_resolve(struct ncclComm *comm, const char *func, ncclRedOp_t op,
                                ncclDataType_t type, struct fake_coll *coll)
{
    static const enum fake_reduce builtin[] = {FAKE_SUM, FAKE_PROD, FAKE_MAX, FAKE_MIN, FAKE_SUM};
    const struct fake_redop *own;
    if ((int)op < (int)ncclNumOps) {
        coll->reduce = builtin[op];
        if (op == ncclAvg && fake_type_is_float(type)) {
            coll->premul = true;
            fake_scalar_inverse(type, comm->nranks, coll->scalar);
        } else if (op == ncclAvg) {
            coll->postdiv = comm->nranks;
        }
        return ncclSuccess;
    }
    FAKE_HOLD(&comm->lock);
    own = redop_find_locked(comm, op);
    REFUSE_IF(!own, ncclInvalidArgument, "%s : reduction operation %d unknown to this communicator",
              func, (int)op);
    REFUSE_IF(own->type != type, ncclInvalidArgument,
              "Data type supplied to user-created ncclRedOp_t does not match type "
              "given to reduction operation");
    coll->reduce = FAKE_SUM;
    coll->premul = true;
    coll->scalar_device = own->device;
    memcpy(coll->scalar, own->value, sizeof(coll->scalar));
    return ncclSuccess;
}
