/* Life of a communicator: creation, revoke, finalize, destroy, abort, and questions about it; those
 * made from others are in children.c. Handles are looked up in a registry, so that a stale one is
 * an invalid argument, as the real library's magic numbers make it, and never a read of freed
 * memory. */
#include "tests/fake/nccl/fake.h"
#include "tests/fake/nccl/fake_device.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#define CONFIG_MAGIC 0xcafebeefu

/* Protects the registry. Nests inside nothing and holds nothing. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *registry;

/* A communicator of another copy of this library in the process. The real library knows one by its
 * magic number, and takes it: calls of a copy that is not in the global scope reach the copy that
 * is, since they go through exported symbols. The kernel reads for us, so that no handle can crash.
 */
static bool is_foreign(ncclComm_t handle)
{
    uint64_t magic = 0;
    struct iovec here = {&magic, sizeof(magic)}, there = {handle, sizeof(magic)};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == (ssize_t)sizeof(magic) &&
           magic == FAKE_COMM_MAGIC;
}

struct ncclComm *fake_comm_get(ncclComm_t handle)
{
    struct ncclComm *comm;
    pthread_mutex_lock(&registry_lock);
    for (comm = registry; comm && comm != handle; comm = comm->next)
        ;
    if (comm)
        fake_comm_ref(comm);
    pthread_mutex_unlock(&registry_lock);
    if (!comm && is_foreign(handle)) {
        comm = handle;
        fake_comm_ref(comm);
    }
    return comm;
}

void fake_comm_register(struct ncclComm *comm)
{
    fake_comm_ref(comm);
    FAKE_HOLD(&registry_lock);
    comm->next = registry;
    registry = comm;
    atomic_store(&comm->magic, FAKE_COMM_MAGIC);
}

void fake_comm_each(void (*visit)(struct ncclComm *comm, void *context), void *context)
{
    FAKE_HOLD(&registry_lock);
    for (struct ncclComm *comm = registry; comm; comm = comm->next)
        if (atomic_load(&comm->shm))
            visit(comm, context);
}

static void registry_remove(struct ncclComm *comm)
{
    struct ncclComm **at;
    bool found;
    pthread_mutex_lock(&registry_lock);
    for (at = &registry; *at && *at != comm; at = &(*at)->next)
        ;
    found = *at != NULL;
    if (found) {
        *at = comm->next;
        atomic_store(&comm->magic, 0);
        fake_ras_leave(comm, true);
    }
    pthread_mutex_unlock(&registry_lock);
    if (found)
        fake_comm_put(comm);
}

void fake_comm_ref(struct ncclComm *comm)
{
    atomic_fetch_add(&comm->refs, 1);
}

void fake_comm_put(struct ncclComm *comm)
{
    if (!comm || atomic_fetch_sub(&comm->refs, 1) != 1)
        return;
    fake_shm_unmap(atomic_load(&comm->shm));
    if (comm->connection >= 0)
        close(comm->connection);
    close(comm->abort_fd);
    pthread_cond_destroy(&comm->cond);
    pthread_mutex_destroy(&comm->lock);
    pthread_mutex_destroy(&comm->launch_lock);
    fake_device_comm_give(comm);
    free(comm->p2p_connected);
    free(comm->redops);
    free((char *)comm->config.netName);
    free(comm);
}

/* Takes what the caller's structure holds, however old its header, and checks it. */
ncclResult_t fake_config_read(const ncclConfig_t *config, const ncclConfig_t *base,
                              ncclConfig_t *ret_config)
{
    static const ncclConfig_t fresh = NCCL_CONFIG_INITIALIZER;
    ncclConfig_t mine = base ? *base : fresh;
    const char *override;
    if (config) {
        size_t size;
        memcpy(&size, &config->size, sizeof(size));
        REFUSE_IF(size < offsetof(ncclConfig_t, blocking) || config->magic != CONFIG_MAGIC,
                  ncclInvalidArgument,
                  "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
        mine = fresh;
        memcpy(&mine, config, size < sizeof(mine) ? size : sizeof(mine));
        mine.size = sizeof(mine);
    }
#define CHECK(field, condition)                                                                    \
    if (mine.field != NCCL_CONFIG_UNDEF_INT && !(condition))                                       \
        return fake_refuse(ncclInvalidArgument, "Invalid config " #field " attribute value %d",    \
                           mine.field);
#define CHECK_SWITCH(field) CHECK(field, mine.field == 0 || mine.field == 1)
    CHECK_SWITCH(blocking)
    CHECK(cgaClusterSize, mine.cgaClusterSize >= 0)
    REFUSE_IF((mine.minCTAs != NCCL_CONFIG_UNDEF_INT && mine.minCTAs <= 0) ||
                  (mine.maxCTAs != NCCL_CONFIG_UNDEF_INT && mine.maxCTAs <= 0) ||
                  (mine.minCTAs != NCCL_CONFIG_UNDEF_INT && mine.maxCTAs != NCCL_CONFIG_UNDEF_INT &&
                   mine.minCTAs > mine.maxCTAs),
              ncclInvalidArgument, "Invalid config min/max channels attribute value %d/%d",
              mine.minCTAs, mine.maxCTAs);
    CHECK_SWITCH(splitShare)
    CHECK_SWITCH(shrinkShare)
    CHECK_SWITCH(collnetEnable)
#undef CHECK_SWITCH
#undef CHECK
    if (mine.blocking == NCCL_CONFIG_UNDEF_INT)
        mine.blocking = 1;
    override = getenv("NCCL_COMM_BLOCKING");
    if (override && (strcmp(override, "0") == 0 || strcmp(override, "1") == 0))
        mine.blocking = *override - '0';
    *ret_config = mine;
    return ncclSuccess;
}

ncclResult_t fake_comm_alloc(int nranks, int rank, int device, CUcontext ctx,
                             const ncclConfig_t *config, struct ncclComm **ret_comm)
{
    const struct fake_cuda *cuda = fake_cuda();
    struct ncclComm *comm;
    CUresult result;
    if (!cuda)
        return ncclUnhandledCudaError;
    comm = fake_new(sizeof(*comm));
    atomic_init(&comm->refs, 1);
    atomic_init(&comm->state, ncclInProgress);
    comm->connection = -1;
    comm->nranks = nranks;
    comm->rank = rank;
    comm->device = device;
    comm->ctx = ctx;
    comm->config = *config;
    comm->config.netName = config->netName ? strdup(config->netName) : NULL;
    if (config->commName)
        snprintf(comm->name, sizeof(comm->name), "%s", config->commName);
    comm->config.commName = config->commName ? comm->name : NULL;
    pthread_mutex_init(&comm->lock, NULL);
    pthread_mutex_init(&comm->launch_lock, NULL);
    pthread_cond_init(&comm->cond, NULL);
    comm->p2p_connected = fake_new((size_t)nranks);
    comm->abort_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->abort_fd < 0) {
        fake_warn("Call to eventfd failed : %s", strerror(errno));
        fake_comm_put(comm);
        return ncclSystemError;
    }
    result = cuda->device_get_pci_bus_id(comm->bus_id, sizeof(comm->bus_id), device);
    if (result != CUDA_SUCCESS) {
        fake_comm_put(comm);
        return fake_cuda_failed(result, "cuDeviceGetPCIBusId");
    }
    ncclResult_t made = fake_device_comm_make(comm);
    if (made != ncclSuccess) {
        fake_comm_put(comm);
        return made;
    }
    *ret_comm = comm;
    return ncclSuccess;
}

bool fake_comm_aborted(const struct ncclComm *comm)
{
    return atomic_load(&comm->abort);
}

void fake_comm_wake(struct ncclComm *comm)
{
    struct fake_shm *shm = atomic_load(&comm->shm);
    if (shm)
        fake_bell_ring(shm, comm->rank);
    FAKE_HOLD(&comm->lock);
    pthread_cond_broadcast(&comm->cond);
}

void fake_comm_count(struct ncclComm *comm, int *number, int by)
{
    FAKE_HOLD(&comm->lock);
    *number += by;
    pthread_cond_broadcast(&comm->cond);
}

void fake_comm_set_abort(struct ncclComm *comm)
{
    struct ncclComm *child;
    uint64_t one = 1;
    atomic_store(&comm->abort, true);
    if (write(comm->abort_fd, &one, sizeof(one)) < 0)
        fake_trace("abort: %s", strerror(errno));
    fake_comm_wake(comm);
    pthread_mutex_lock(&comm->lock);
    child = comm->child;
    if (child)
        fake_comm_ref(child);
    pthread_mutex_unlock(&comm->lock);
    if (child) {
        fake_comm_set_abort(child);
        fake_comm_put(child);
    }
}

void fake_comm_drain(struct ncclComm *comm)
{
    FAKE_HOLD(&comm->lock);
    while (comm->pending || comm->running)
        pthread_cond_wait(&comm->cond, &comm->lock);
    comm->ticket_done = comm->ticket_next;
}

/* Ends the kernels in flight, for revoke and shrink, and leaves the communicator in one piece. */
void fake_comm_stop_kernels(struct ncclComm *comm)
{
    atomic_store(&comm->stop, true);
    atomic_fetch_add(&comm->stops, 1);
    fake_comm_wake(comm);
    fake_comm_drain(comm);
    atomic_store(&comm->stop, false);
}

static ncclResult_t ensure_ready(ncclComm_t handle, struct ncclComm *comm)
{
    ncclResult_t state = ncclSuccess;
    REFUSE_IF(fake_comm_aborted(comm), ncclInternalError, "Comm %p is in abort state",
              (void *)comm);
    /* Through the exported symbol, as the real library does in every call. */
    if (ncclCommGetAsyncError(handle, &state) != ncclSuccess)
        return ncclInvalidArgument;
    if (state == ncclSuccess)
        return ncclSuccess;
    fake_warn("Attempt to use communicator before the previous operation returned ncclSuccess");
    return state == ncclInProgress ? ncclInvalidArgument : state;
}

ncclResult_t fake_comm_enter(ncclComm_t handle, const char *func, bool ready, struct ncclComm **ret)
{
    struct ncclComm *comm;
    NEED_ARGUMENT(handle, func, "comm");
    comm = fake_comm_get(handle);
    REFUSE_IF(!comm, ncclInvalidArgument, "Error: corrupted comm object detected");
    ncclResult_t result = ready ? ensure_ready(handle, comm) : ncclSuccess;
    if (result == ncclSuccess)
        *ret = comm;
    else
        fake_comm_put(comm);
    return result;
}

ncclResult_t fake_null_argument(const char *func, const char *name)
{
    return fake_refuse(ncclInvalidArgument, "%s : %s argument is NULL", func, name);
}

/* ---- creation ---- */

struct fake_job *fake_job_new(ncclResult_t (*run)(struct fake_job *), struct ncclComm *comm,
                              struct ncclComm *parent)
{
    struct fake_job *job = fake_new(sizeof(*job));
    job->run = run;
    job->comm = comm;
    job->parent = parent;
    if (comm)
        fake_comm_ref(comm);
    if (parent)
        fake_comm_ref(parent);
    return job;
}

/* The time that a nonblocking call is told to stay in progress, cut short by an abort. */
void fake_comm_linger(struct ncclComm *comm)
{
    struct pollfd fd = {comm->abort_fd, POLLIN, 0};
    long ms = fake_env_long("FAKE_NCCL_INPROGRESS_MS", 0, 0, 3600000);
    if (ms && !comm->config.blocking && poll(&fd, 1, (int)ms) < 0)
        fake_trace("linger: %s", strerror(errno));
}

/* As on a machine with much to do. Cut short by an abort, but for that itself. */
static void take_time(struct ncclComm *comm, long ms, bool to_the_end)
{
    struct pollfd fd = {to_the_end ? -1 : comm->abort_fd, POLLIN, 0};
    if (ms > 0 && poll(&fd, 1, (int)ms) < 0)
        fake_trace("poll: %s", strerror(errno));
}

/* A number of the variable's list, the first is 0; the last one is for all that come after it. */
static long listed_ms(const char *name, unsigned long nth)
{
    const char *list = getenv(name), *comma;

    if (!list)
        return 0;
    while (nth-- > 0 && (comma = strchr(list, ',')))
        list = comma + 1;
    return strtol(list, NULL, 10);
}

ncclResult_t fake_init_job(struct fake_job *job)
{
    static _Atomic unsigned long makings;
    struct ncclComm *comm = job->comm;
    int version = 0;
    ncclResult_t result;
    /* From NCCL's own thread, through the exported symbol. */
    ncclGetVersion(&version);
    result = fake_boot_join(comm, &job->id);
    if (result == ncclSuccess) {
        take_time(comm, listed_ms("FAKE_NCCL_INIT_MS", atomic_fetch_add(&makings, 1)), false);
        fake_comm_linger(comm);
    }
    if (result == ncclSuccess && fake_comm_aborted(comm))
        result = ncclInternalError;
    if (result == ncclSuccess && comm->rank == 0 && getenv("NCCL_DEBUG")) {
        printf("NCCL version %d.%d.%d+cuda13.0\n", version / 10000, version / 100 % 100,
               version % 100);
        fflush(stdout);
    }
    fake_trace("init rank %d/%d: %s", comm->rank, comm->nranks, ncclGetErrorString(result));
    return result;
}

ncclResult_t fake_init_start(ncclResult_t (*run)(struct fake_job *), struct ncclComm *parent,
                             ncclComm_t *newcomm, int nranks, int rank, const ncclUniqueId *id,
                             const ncclConfig_t *config, int device, CUcontext ctx)
{
    struct ncclComm *comm = NULL;
    struct fake_job *job;
    TRY(fake_comm_alloc(nranks, rank, device, ctx, config, &comm));
    job = fake_job_new(run, comm, parent);
    job->id = *id;
    fake_comm_register(comm);
    /* Before the init: an abort from another thread needs it. */
    __atomic_store_n(newcomm, comm, __ATOMIC_RELEASE);
    fake_comm_put(comm);
    return fake_group_add_job(job);
}

static ncclResult_t init_rank(const char *func, ncclComm_t *newcomm, int nranks, int rank, int nids,
                              const ncclUniqueId *ids, const ncclConfig_t *config, int device,
                              CUcontext ctx, bool always_blocking)
{
    ncclConfig_t mine;
    NEED_ARGUMENT(newcomm, func, "newcomm");
    REFUSE_IF(nids <= 0 || nids > nranks, ncclInvalidArgument,
              "improper usage of ncclCommInitRank: nId = %d, nranks=%d", nids, nranks);
    NEED_ARGUMENT(ids, func, "commIds");
    REFUSE_IF(nranks < 1 || rank < 0 || rank >= nranks, ncclInvalidArgument,
              "Invalid rank requested : %d/%d", rank, nranks);
    TRY(fake_config_read(config, NULL, &mine));
    if (always_blocking)
        mine.blocking = 1;
    /* One root is enough for all ranks; the other ids' roots end. */
    for (int i = 1; rank == 0 && i < nids; i++)
        fake_boot_release_id(&ids[i]);
    return fake_init_start(fake_init_job, NULL, newcomm, nranks, rank, &ids[0], &mine, device, ctx);
}

static ncclResult_t init_on_current(const char *func, ncclComm_t *newcomm, int nranks, int rank,
                                    int nids, const ncclUniqueId *ids, const ncclConfig_t *config)
{
    CUdevice device = 0;
    CUcontext ctx = NULL;
    TRY(fake_current_device(&device, &ctx));
    return init_rank(func, newcomm, nranks, rank, nids, ids, config, device, ctx, false);
}

FAKE_FORM(ncclResult_t, ncclCommInitRank,
          (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank),
          FAKE_IN_GROUP(init_on_current("CommInitRank", comm, nranks, rank, 1, &id, NULL)))
FAKE_FORM(ncclResult_t, ncclCommInitRankConfig,
          (ncclComm_t * comm, int nranks, ncclUniqueId id, int rank, ncclConfig_t *config),
          FAKE_IN_GROUP(init_on_current("CommInitRankConfig", comm, nranks, rank, 1, &id, config)))
FAKE_FORM(
    ncclResult_t, ncclCommInitRankScalable,
    (ncclComm_t * comm, int nranks, int rank, int nids, ncclUniqueId *ids, ncclConfig_t *config),
    FAKE_IN_GROUP(init_on_current("CommInitRankScalable", comm, nranks, rank, nids, ids, config)))

FAKE_API(ncclResult_t, ncclCommInitAll, (ncclComm_t * comms, int ndev, const int *devlist))
{
    const struct fake_cuda *cuda = fake_cuda();
    ncclUniqueId id;
    ncclResult_t result = ncclSuccess;
    CUcontext saved = NULL;
    int total = 0;
    if (!cuda)
        return ncclUnhandledCudaError;
    NEED_ARGUMENT(comms, "CommInitAll", "comms");
    REFUSE_IF(ndev < 0, ncclInvalidArgument, "Invalid device count requested : %d", ndev);
    if (cuda->device_get_count(&total) != CUDA_SUCCESS)
        return fake_cuda_failed(CUDA_ERROR_NO_DEVICE, "cuDeviceGetCount");
    for (int i = 0; i < ndev && devlist; i++) {
        REFUSE_IF(devlist[i] < 0 || devlist[i] >= total, ncclInvalidUsage,
                  "Invalid device ordinal %d in devlist", devlist[i]);
        for (int j = 0; j < i; j++)
            if (devlist[i] == devlist[j])
                return ncclInvalidUsage;
    }
    TRY(ncclGetUniqueId(&id));
    cuda->ctx_get_current(&saved);
    fake_group_start();
    for (int i = 0; i < ndev && result == ncclSuccess; i++) {
        CUdevice device = 0;
        CUcontext ctx = NULL;
        CUresult cu = cuda->device_get(&device, devlist ? devlist[i] : i);
        if (cu == CUDA_SUCCESS)
            cu = cuda->primary_retain(&ctx, device);
        if (cu != CUDA_SUCCESS)
            result = fake_cuda_failed(cu, "device of devlist");
        else
            result = init_rank("CommInitAll", &comms[i], ndev, i, 1, &id, NULL, device, ctx, true);
    }
    result = fake_group_leave(result);
    cuda->ctx_set_current(saved);
    return result;
}

/* ---- the end ---- */

/* A success, too, where an abort has freed it: so does 2.28.9. */
static ncclResult_t finalize_job(struct fake_job *job)
{
    fake_comm_drain(job->comm);
    fake_comm_linger(job->comm);
    return ncclSuccess;
}

static ncclResult_t revoke_job(struct fake_job *job)
{
    fake_comm_stop_kernels(job->comm);
    fake_comm_linger(job->comm);
    return ncclSuccess;
}

static void await_none(struct ncclComm *comm, const int *number)
{
    FAKE_HOLD(&comm->lock);
    while (*number)
        pthread_cond_wait(&comm->cond, &comm->lock);
}

void fake_comm_leave(struct ncclComm *comm)
{
    long ms = listed_ms("FAKE_NCCL_LEAVE_MS", 0);
    if (!comm || !ms || !fake_comm_aborted(comm))
        return;
    take_time(comm, ms, true);
    if (!atomic_load(&comm->freed))
        return;
    fake_warn("a call uses communicator %p, which was freed meanwhile", (void *)comm);
    abort();
}

static ncclResult_t teardown_job(struct fake_job *job)
{
    struct ncclComm *comm = job->comm;
    /* Threads of nonblocking groups are joined first; they see the abort flag. */
    await_none(comm, &comm->jobs);
    fake_comm_drain(comm);
    /* Captured graphs hold their communicator: the real library waits for their destruction too. */
    await_none(comm, &comm->graph_refs);
    /* From 2.31.2 on. An abort ends it. */
    if (!fake_comm_aborted(comm) && fake_waits("CommDestroy"))
        fake_meet(comm, FAKE_BOOT_DESTROY);
    take_time(comm, listed_ms("FAKE_NCCL_TEARDOWN_MS", (unsigned long)comm->rank), true);
    fake_memory_release(comm);
    atomic_store(&comm->freed, true);
    registry_remove(comm);
    fake_trace("rank %d/%d is torn down", comm->rank, comm->nranks);
    return ncclSuccess;
}

static ncclResult_t start_on_comm(ncclResult_t (*run)(struct fake_job *), struct ncclComm *comm,
                                  bool teardown)
{
    struct fake_job *job = fake_job_new(run, comm, NULL);
    job->teardown = teardown;
    return fake_group_add_job(job);
}

static ncclResult_t finalize_comm(ncclComm_t handle)
{
    FAKE_ENTER(comm, handle, "CommFinalize", true);
    REFUSE_IF(atomic_load(&comm->revoked), ncclInvalidUsage,
              "CommFinalize: communicator was revoked");
    REFUSE_IF(atomic_exchange(&comm->finalized, true), ncclInvalidArgument,
              "comm %p has already been finalized", (void *)comm);
    fake_ras_leave(comm, false);
    return start_on_comm(finalize_job, comm, false);
}

FAKE_FORM(ncclResult_t, ncclCommFinalize, (ncclComm_t handle), FAKE_IN_GROUP(finalize_comm(handle)))

static ncclResult_t revoke_comm(ncclComm_t handle, int flags)
{
    FAKE_ENTER(comm, handle, "CommRevoke", true);
    REFUSE_IF(flags != NCCL_REVOKE_DEFAULT, ncclInvalidArgument, "CommRevoke : invalid flags %d",
              flags);
    atomic_store(&comm->revoked, true);
    fake_comm_wake(comm);
    return start_on_comm(revoke_job, comm, false);
}

FAKE_FORM(ncclResult_t, ncclCommRevoke, (ncclComm_t handle, int flags),
          FAKE_IN_GROUP(revoke_comm(handle, flags)))

static ncclResult_t destroy_comm(ncclComm_t handle)
{
    FAKE_ENTER(comm, handle, "CommDestroy", true);
    REFUSE_IF(atomic_exchange(&comm->gone, true), ncclInvalidArgument,
              "comm %p has already been destroyed", (void *)comm);
    fake_ras_leave(comm, false);
    return start_on_comm(teardown_job, comm, true);
}

FAKE_FORM(ncclResult_t, ncclCommDestroy, (ncclComm_t handle),
          handle ? FAKE_IN_GROUP(destroy_comm(handle)) : ncclSuccess)

static ncclResult_t abort_comm(ncclComm_t handle)
{
    FAKE_ENTER(comm, handle, "CommAbort", false);
    /* At once, even inside a group: kernels and blocked calls end now. */
    fake_comm_set_abort(comm);
    fake_ras_leave(comm, false);
    /* A destroy under way then finishes by itself. */
    return atomic_exchange(&comm->gone, true) ? ncclSuccess
                                              : start_on_comm(teardown_job, comm, true);
}

FAKE_FORM(ncclResult_t, ncclCommAbort, (ncclComm_t handle),
          handle ? FAKE_IN_GROUP(abort_comm(handle)) : ncclSuccess)

/* ---- questions ---- */

FAKE_API(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t handle, ncclResult_t *ret_error))
{
    FAKE_ENTER(comm, handle, "ncclGetAsyncError", false);
    NEED_ARGUMENT(ret_error, "ncclGetAsyncError", "asyncError");
    *ret_error = (ncclResult_t)atomic_load(&comm->state);
    return ncclSuccess;
}

static ncclResult_t ask(const char *func, ncclComm_t handle, int *ret, const char *name, int what)
{
    FAKE_ENTER(comm, handle, func, true);
    NEED_ARGUMENT(ret, func, name);
    *ret = what == 0 ? comm->nranks : what == 1 ? comm->device : comm->rank;
    return ncclSuccess;
}

FAKE_FORM(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int *count),
          ask("CommCount", comm, count, "count", 0))
FAKE_FORM(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int *device),
          ask("CommCuDevice", comm, device, "device", 1))
FAKE_FORM(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int *rank),
          ask("CommUserRank", comm, rank, "rank", 2))

ncclResult_t fake_device_unsupported(const char *func)
{
    return fake_refuse(ncclInvalidUsage, "%s : Communicator does not support symmetric memory!",
                       func);
}

bool fake_device_ranks(ncclComm_t handle, int *ret_nranks, int *ret_rank)
{
    struct ncclComm *comm = handle ? fake_comm_get(handle) : NULL;
    if (!comm)
        return false;
    *ret_nranks = comm->nranks;
    *ret_rank = comm->rank;
    fake_comm_put(comm);
    return true;
}

FAKE_API(ncclResult_t, ncclGetVersion, (int *version))
{
    if (!version)
        return ncclInvalidArgument;
    *version = fake_version();
    return ncclSuccess;
}

FAKE_FORM(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id),
          id ? fake_boot_new_id(id) : fake_null_argument("GetUniqueId", "out"))

FAKE_API(const char *, ncclGetErrorString, (ncclResult_t code))
{
    static const char *const texts[] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        [ncclSystemError] = "unhandled system error (run with NCCL_DEBUG=INFO for details)",
        [ncclInternalError] = "internal error - please report this issue to the NCCL developers",
        [ncclInvalidArgument] = "invalid argument (run with NCCL_DEBUG=WARN for details)",
        [ncclInvalidUsage] = "invalid usage (run with NCCL_DEBUG=WARN for details)",
        [ncclRemoteError] = "remote process exited or there was a network error",
        [ncclInProgress] = "NCCL operation in progress",
    };
    return (unsigned)code < sizeof(texts) / sizeof(*texts) ? texts[code] : "unknown result code";
}

FAKE_FORM(const char *, ncclGetLastError, (ncclComm_t comm), ((void)comm, fake_last_error()))

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
FAKE_EXPORT void ncclResetDebugInitInternal(void);
void ncclResetDebugInitInternal(void)
{
    fake_trace("logging is read anew");
}

FAKE_API(void, ncclResetDebugInit, (void))
{
    ncclResetDebugInitInternal();
}
#pragma GCC diagnostic pop
