/* The collectives and point-to-point calls: argument checks, their place in the group, connecting
 * on first use, and the launch of a host function on the caller's stream. */
#include "tests/fake/nccl/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct call {
    enum fake_func func;
    const char *name;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int root; /* or peer */
    bool reduces;
};

/* Only on request, as in the real library: NCCL_CHECK_POINTERS=1. */
static ncclResult_t check_pointer(const struct ncclComm *comm, const struct call *call,
                                  const char *name, const void *pointer)
{
    const struct fake_cuda *cuda = fake_cuda();
    int device = -1;
    if (!cuda || !cuda->pointer_get_attribute)
        return ncclSuccess;
    REFUSE_IF(!pointer ||
                  cuda->pointer_get_attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                              (CUdeviceptr)(uintptr_t)pointer) != CUDA_SUCCESS,
              ncclInvalidArgument, "%s : %s %p is not a valid pointer", call->name, name, pointer);
    REFUSE_IF(device != comm->device, ncclInvalidArgument,
              "%s : %s allocated on device %d mismatchs with NCCL device %d", call->name, name,
              device, comm->device);
    return ncclSuccess;
}

static ncclResult_t check_pointers(const struct ncclComm *comm, const struct call *call)
{
    bool root = comm->rank == call->root;
    bool reads = call->func != FAKE_RECV &&
                 ((call->func != FAKE_BROADCAST && call->func != FAKE_SCATTER) || root);
    bool writes = call->func != FAKE_SEND &&
                  ((call->func != FAKE_REDUCE && call->func != FAKE_GATHER) || root);
    ncclResult_t result = ncclSuccess;
    if (reads)
        result = check_pointer(comm, call, "sendbuff", call->send);
    if (writes && result == ncclSuccess)
        result = check_pointer(comm, call, "recvbuff", call->recv);
    return result;
}

static ncclResult_t check(const struct ncclComm *comm, const struct call *call)
{
    REFUSE_IF(atomic_load(&comm->revoked), ncclInvalidUsage, "%s: communicator was revoked",
              call->name);
    REFUSE_IF(atomic_load(&comm->finalized), ncclInvalidUsage, "%s: communicator was finalized",
              call->name);
    REFUSE_IF(call->root < 0 || call->root >= comm->nranks, ncclInvalidArgument,
              "%s : invalid root %d (root should be in the 0..%d range)", call->name, call->root,
              comm->nranks);
    REFUSE_IF((int)call->type < 0 || (int)call->type >= FAKE_NTYPES, ncclInvalidArgument,
              "%s : invalid type %d", call->name, (int)call->type);
    REFUSE_IF(call->reduces && ((int)call->op < 0 || (int)call->op > (int)ncclMaxRedOp),
              ncclInvalidArgument, "%s : invalid reduction operation %d", call->name,
              (int)call->op);
    if (call->count && fake_env_long("NCCL_CHECK_POINTERS", 0, 0, 1))
        return check_pointers(comm, call);
    return ncclSuccess;
}

static void add_p2p(struct fake_plan *plan, bool send, int peer, void *data, size_t bytes)
{
    struct fake_p2p *ops = fake_resize(plan->p2ps, (size_t)(plan->np2ps + 1) * sizeof(*ops));
    int prev = plan->np2ps - 1;
    while (prev >= 0 && (ops[prev].send != send || ops[prev].peer != peer))
        prev--;
    ops[plan->np2ps++] =
        (struct fake_p2p){.send = send, .peer = peer, .data = data, .bytes = bytes, .prev = prev};
    plan->p2ps = ops;
}

/* Sends and receives, and the collectives that the real library makes of them. */
static void add_p2ps(struct fake_plan *plan, const struct call *call)
{
    size_t bytes = call->count * fake_type_bytes(call->type);
    unsigned char *send = (unsigned char *)call->send, *recv = call->recv;
    if (call->func == FAKE_SEND || call->func == FAKE_RECV) {
        add_p2p(plan, call->func == FAKE_SEND, call->root, send ? send : recv, bytes);
        return;
    }
    plan->calls++;
    for (int i = 0; i < plan->comm->nranks; i++) {
        size_t offset = (size_t)i * bytes;
        if (call->func == FAKE_ALL_TO_ALL) {
            add_p2p(plan, true, i, send + offset, bytes);
            add_p2p(plan, false, i, recv + offset, bytes);
            continue;
        }
        bool gather = call->func == FAKE_GATHER;
        if (plan->comm->rank == call->root)
            add_p2p(plan, !gather, i, (gather ? recv : send) + offset, bytes);
        if (i == call->root)
            add_p2p(plan, gather, i, gather ? send : recv, bytes);
    }
}

static ncclResult_t add(struct ncclComm *comm, const struct call *call, CUstream stream)
{
    struct fake_coll coll = {.func = call->func,
                             .send = call->send,
                             .recv = call->recv,
                             .count = call->count,
                             .type = call->type,
                             .root = call->root};
    struct fake_plan *plan;
    if (call->reduces)
        TRY(fake_redop_resolve(comm, call->name, call->op, call->type, &coll));
    /* An empty collective is dropped, an empty send or receive is not. */
    if (call->count == 0 && call->func < FAKE_SEND)
        return ncclSuccess;
    TRY(fake_group_plan(comm, stream, &plan));
    if (call->func >= FAKE_ALL_TO_ALL) {
        add_p2ps(plan, call);
        return ncclSuccess;
    }
    plan->calls++;
    plan->colls = fake_resize(plan->colls, (size_t)(plan->ncolls + 1) * sizeof(coll));
    plan->colls[plan->ncolls++] = coll;
    return ncclSuccess;
}

static ncclResult_t enqueue(ncclComm_t handle, const struct call *call, cudaStream_t stream)
{
    FAKE_ENTER(comm, handle, call->name, true);
    TRY(check(comm, call));
    return add(comm, call, (CUstream)stream);
}

/* ---- connecting ---- */

static bool is_connected(const struct ncclComm *comm, const struct fake_p2p *op)
{
    return op->peer == comm->rank || comm->p2p_connected[op->peer] & (op->send ? 1 : 2);
}

bool fake_plan_is_cold(struct fake_plan *plan)
{
    struct ncclComm *comm = plan->comm;
    FAKE_HOLD(&comm->launch_lock);
    if (plan->ncolls && comm->nranks > 1 && !comm->ring_connected)
        return true;
    for (int i = 0; i < plan->np2ps; i++)
        if (!is_connected(comm, &plan->p2ps[i]))
            return true;
    return false;
}

static bool peers_came(struct ncclComm *comm, void *arg)
{
    const struct fake_plan *plan = arg;
    struct fake_shm *shm = atomic_load(&comm->shm);
    if (fake_boot_stopped(comm))
        return true;
    for (int i = 0; i < plan->np2ps; i++) {
        const struct fake_p2p *op = &plan->p2ps[i];
        if (op->peer == comm->rank)
            continue;
        if (!atomic_load(op->send ? fake_shm_link(shm, comm->rank, op->peer, 1)
                                  : fake_shm_link(shm, op->peer, comm->rank, 0)))
            return false;
    }
    return true;
}

static ncclResult_t connect_p2p(struct fake_plan *plan)
{
    struct ncclComm *comm = plan->comm;
    struct fake_shm *shm = atomic_load(&comm->shm);
    bool cold = false;
    for (int i = 0; i < plan->np2ps; i++) {
        const struct fake_p2p *op = &plan->p2ps[i];
        if (is_connected(comm, op))
            continue;
        cold = true;
        atomic_store(op->send ? fake_shm_link(shm, comm->rank, op->peer, 0)
                              : fake_shm_link(shm, op->peer, comm->rank, 1),
                     1);
        fake_bell_ring(shm, op->peer);
    }
    if (!cold)
        return ncclSuccess;
    TRY(fake_boot_wait(comm, peers_came, plan));
    if (fake_boot_stopped(comm))
        return ncclInternalError;
    for (int i = 0; i < plan->np2ps; i++)
        comm->p2p_connected[plan->p2ps[i].peer] |= plan->p2ps[i].send ? 1 : 2;
    return ncclSuccess;
}

/* As in the real library, channels are made on first use, and the host call blocks until the ranks
 * concerned have come: all of them for the ring, the peers for sends and receives. */
ncclResult_t fake_plan_connect(struct fake_plan *plan)
{
    struct ncclComm *comm = plan->comm;
    FAKE_HOLD(&comm->launch_lock);
    comm->stops_before = atomic_load(&comm->stops);
    if (fake_comm_aborted(comm))
        return ncclInternalError;
    if (plan->ncolls && comm->nranks > 1 && !comm->ring_connected) {
        TRY(fake_boot_connect_ring(comm));
        if (fake_boot_stopped(comm))
            return ncclInternalError;
        comm->ring_connected = true;
    }
    return plan->np2ps ? connect_p2p(plan) : ncclSuccess;
}

/* ---- launching ---- */

void fake_plan_free(struct fake_plan *plan)
{
    fake_comm_put(plan->comm);
    free(plan->streams);
    free(plan->colls);
    free(plan->p2ps);
    free(plan);
}

static void CUDA_CB run_once(void *arg)
{
    struct fake_plan *plan = arg;
    fake_plan_run(plan);
    fake_plan_free(plan);
}

static void CUDA_CB run_replay(void *arg)
{
    fake_plan_run(arg);
}

static void CUDA_CB graph_gone(void *arg)
{
    struct fake_plan *plan = arg;
    fake_comm_count(plan->comm, &plan->comm->graph_refs, -1);
    fake_plan_free(plan);
}

/* A kernel cannot be launched on another device's stream. */
static CUresult check_stream(const struct fake_cuda *cuda, const struct ncclComm *comm,
                             CUstream stream)
{
    CUcontext ctx = NULL;
    CUdevice device = comm->device;
    CUresult result;
    if (!cuda->stream_get_ctx || !stream || stream == CU_STREAM_LEGACY ||
        stream == CU_STREAM_PER_THREAD)
        return CUDA_SUCCESS;
    result = cuda->stream_get_ctx(stream, &ctx);
    if (result != CUDA_SUCCESS || ctx == comm->ctx)
        return result;
    cuda->ctx_set_current(ctx);
    result = cuda->ctx_get_device(&device);
    cuda->ctx_set_current(comm->ctx);
    return result == CUDA_SUCCESS && device != comm->device ? CUDA_ERROR_INVALID_HANDLE : result;
}

/* Makes stream wait for what is on from now. */
static CUresult order(const struct fake_cuda *cuda, CUstream from, CUstream stream)
{
    CUevent event;
    CUresult result = cuda->event_create(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return result;
    result = cuda->event_record(event, from);
    if (result == CUDA_SUCCESS)
        result = cuda->stream_wait_event(stream, event, 0);
    cuda->event_destroy(event);
    return result;
}

/* Protects the list of captured plans whose graph's end cannot be seen. Innermost. */
static pthread_mutex_t unseen_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_plan *unseen;

static ncclResult_t launch_captured(const struct fake_cuda *cuda, struct fake_plan *plan)
{
    struct ncclComm *comm = plan->comm;
    CUstreamCaptureStatus status;
    CUuserObject object = NULL;
    CUgraph graph = NULL;
    cuuint64_t id = 0;
    CUresult result = CUDA_SUCCESS;
    CUstream stream = plan->streams[0];
    plan->captured = true;
    if (cuda->stream_get_capture_info)
        result = cuda->stream_get_capture_info(stream, &status, &id, &graph, NULL, NULL);
    /* Within one graph this communicator's kernels keep their order across streams. */
    if (result == CUDA_SUCCESS && id && comm->last_capture_id == id &&
        comm->last_capture_stream != stream)
        result = order(cuda, comm->last_capture_stream, stream);
    if (result == CUDA_SUCCESS)
        result = fake_device_comm_launch(plan, stream, run_replay);
    if (result != CUDA_SUCCESS) {
        fake_plan_free(plan);
        return fake_cuda_failed(result, "launch into a capture");
    }
    comm->last_capture_id = id;
    comm->last_capture_stream = stream;
    fake_comm_count(comm, &comm->graph_refs, 1);
    if (graph && cuda->user_object_create && cuda->graph_retain_user_object) {
        result = cuda->user_object_create(&object, plan, graph_gone, 1,
                                          CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
        if (result == CUDA_SUCCESS)
            result = cuda->graph_retain_user_object(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE);
    }
    if (!object || result != CUDA_SUCCESS) {
        /* The graph's end cannot be seen: the plan lives on, and nobody waits for it. */
        fake_comm_count(comm, &comm->graph_refs, -1);
        pthread_mutex_lock(&unseen_lock);
        plan->next = unseen;
        unseen = plan;
        pthread_mutex_unlock(&unseen_lock);
    }
    return ncclSuccess;
}

static struct {
    int rank;
    unsigned int after;
    int code;
    bool set;
} async_error;
static pthread_once_t async_error_once = PTHREAD_ONCE_INIT;

static void read_async_error(void)
{
    const char *value = getenv("FAKE_NCCL_ASYNC_ERROR");
    if (value && sscanf(value, "rank=%d,after=%u,code=%d", &async_error.rank, &async_error.after,
                        &async_error.code) == 3)
        async_error.set = true;
}

/* FAKE_NCCL_KERNEL */
static struct {
    int rank;
    uint32_t nth;
    char what[8];
} kernel_fault;
static pthread_once_t kernel_fault_once = PTHREAD_ONCE_INIT;

static void read_kernel_fault(void)
{
    const char *value = getenv("FAKE_NCCL_KERNEL");
    if (!value || sscanf(value, "rank=%d,nth=%u,what=%7s", &kernel_fault.rank, &kernel_fault.nth,
                         kernel_fault.what) != 3)
        kernel_fault.nth = 0;
}

/* Before its collectives are counted. */
static void spoil_kernel(struct fake_plan *plan)
{
    uint32_t before = atomic_load(&plan->comm->ncolls);
    pthread_once(&kernel_fault_once, read_kernel_fault);
    if (!plan->calls || plan->comm->rank != kernel_fault.rank || before >= kernel_fault.nth ||
        before + (uint32_t)plan->calls < kernel_fault.nth)
        return;
    plan->stuck |= strcmp(kernel_fault.what, "idle") == 0;
    plan->mute |= strcmp(kernel_fault.what, "mute") == 0;
}

static void count_collectives(struct ncclComm *comm, int calls)
{
    uint32_t before;
    if (!calls)
        return;
    before = atomic_fetch_add(&comm->ncolls, (uint32_t)calls);
    pthread_once(&async_error_once, read_async_error);
    if (async_error.set && comm->rank == async_error.rank && before < async_error.after &&
        before + (uint32_t)calls >= async_error.after) {
        fake_warn("ncclCommSetAsyncError: error comm %p sets state %d", (void *)comm,
                  async_error.code);
        atomic_store(&comm->state, async_error.code);
    }
}

ncclResult_t fake_plan_launch(struct fake_plan *plan)
{
    const struct fake_cuda *cuda = fake_cuda();
    struct ncclComm *comm = plan->comm;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUstream *streams = plan->streams;
    int nstreams = plan->nstreams, calls = plan->calls;
    CUcontext saved = NULL;
    CUresult result;
    ncclResult_t answer = ncclSuccess;
    if (!cuda || fake_comm_aborted(comm)) {
        fake_plan_free(plan);
        return cuda ? ncclInternalError : ncclUnhandledCudaError;
    }
    int sends = 0, recvs = 0;
    for (int i = 0; i < plan->np2ps; i++) {
        sends += plan->p2ps[i].peer == comm->rank && plan->p2ps[i].send;
        recvs += plan->p2ps[i].peer == comm->rank && !plan->p2ps[i].send;
    }
    if (sends != recvs) {
        fake_warn(sends > recvs ? "Trying to send to self without a matching recv"
                                : "Trying to recv to self without a matching send");
        fake_plan_free(plan);
        return ncclInvalidUsage;
    }
    fake_memory_launch(plan);
    spoil_kernel(plan);
    pthread_mutex_lock(&comm->launch_lock);
    fake_comm_ref(comm);
    plan->streams = NULL; /* ours until the end of this function */
    cuda->ctx_get_current(&saved);
    if (saved != comm->ctx)
        cuda->ctx_set_current(comm->ctx);
    result = CUDA_SUCCESS;
    for (int i = 0; i < nstreams && result == CUDA_SUCCESS; i++)
        result = check_stream(cuda, comm, streams[i]);
    if (result == CUDA_SUCCESS)
        result = cuda->stream_is_capturing(streams[0], &status);
    /* One kernel for the whole group, on the first stream; the others wait before and after. */
    for (int i = 1; i < nstreams && result == CUDA_SUCCESS; i++)
        result = order(cuda, streams[i], streams[0]);
    if (result != CUDA_SUCCESS) {
        fake_plan_free(plan);
        answer = fake_cuda_failed(result, "the stream");
    } else if (status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        plan->streams = fake_new(sizeof(*streams));
        plan->streams[0] = streams[0];
        answer = launch_captured(cuda, plan);
    } else {
        pthread_mutex_lock(&comm->lock);
        plan->ticket = comm->ticket_next++;
        comm->pending++;
        for (int i = 0; i < plan->ncolls; i++)
            fake_ras_count(comm, plan->colls[i].func);
        pthread_mutex_unlock(&comm->lock);
        result = fake_device_comm_launch(plan, streams[0], run_once);
        if (result != CUDA_SUCCESS) {
            pthread_mutex_lock(&comm->lock);
            comm->ticket_next--;
            comm->pending--;
            pthread_cond_broadcast(&comm->cond);
            pthread_mutex_unlock(&comm->lock);
            fake_plan_free(plan);
            answer = fake_cuda_failed(result, "launch");
        }
    }
    for (int i = 1; i < nstreams && answer == ncclSuccess; i++) {
        result = order(cuda, streams[0], streams[i]);
        if (result != CUDA_SUCCESS)
            answer = fake_cuda_failed(result, "order of streams");
    }
    if (saved != comm->ctx)
        cuda->ctx_set_current(saved);
    pthread_mutex_unlock(&comm->launch_lock);
    if (answer == ncclSuccess)
        count_collectives(comm, calls);
    free(streams);
    fake_comm_put(comm);
    return answer;
}

/* ---- what the program calls ---- */

/* What it takes, but for the last two arguments, and the rest of `struct call`. */
#define COLLECTIVE(name, func, parameters, send, recv, count, op, root, reduces)                   \
    FAKE_FORM(ncclResult_t, nccl##name, (UNWRAP parameters, ncclComm_t comm, cudaStream_t stream), \
              FAKE_IN_GROUP(enqueue(                                                               \
                  comm, &(struct call){func, #name, send, recv, count, type, op, root, reduces},   \
                  stream)))
#define UNWRAP(...) __VA_ARGS__

COLLECTIVE(AllReduce, FAKE_ALL_REDUCE,
           (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op), send,
           recv, count, op, 0, true)
COLLECTIVE(Reduce, FAKE_REDUCE,
           (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op,
            int root),
           send, recv, count, op, root, true)
COLLECTIVE(Broadcast, FAKE_BROADCAST,
           (const void *send, void *recv, size_t count, ncclDataType_t type, int root), send, recv,
           count, ncclSum, root, false)
COLLECTIVE(ReduceScatter, FAKE_REDUCE_SCATTER,
           (const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t op), send,
           recv, count, op, 0, true)
COLLECTIVE(AllGather, FAKE_ALL_GATHER,
           (const void *send, void *recv, size_t count, ncclDataType_t type), send, recv, count,
           ncclSum, 0, false)
COLLECTIVE(AlltoAll, FAKE_ALL_TO_ALL,
           (const void *send, void *recv, size_t count, ncclDataType_t type), send, recv, count,
           ncclSum, 0, false)
COLLECTIVE(Gather, FAKE_GATHER,
           (const void *send, void *recv, size_t count, ncclDataType_t type, int root), send, recv,
           count, ncclSum, root, false)
COLLECTIVE(Scatter, FAKE_SCATTER,
           (const void *send, void *recv, size_t count, ncclDataType_t type, int root), send, recv,
           count, ncclSum, root, false)
COLLECTIVE(Send, FAKE_SEND, (const void *send, size_t count, ncclDataType_t type, int peer), send,
           NULL, count, ncclSum, peer, false)
COLLECTIVE(Recv, FAKE_RECV, (void *recv, size_t count, ncclDataType_t type, int peer), NULL, recv,
           count, ncclSum, peer, false)

FAKE_FORM(ncclResult_t, ncclBcast,
          (void *buff, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
           cudaStream_t stream),
          ncclBroadcast(buff, buff, count, type, root, comm, stream))
