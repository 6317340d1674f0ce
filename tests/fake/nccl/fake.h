/* What the parts of the stand-in for libnccl.so.2 know of each other. A communicator's ranks, in
 * one or several processes, share one memory file with bounded channels; "kernels" are host
 * functions on the caller's stream. Nothing here may learn more about a peer than a real channel
 * would tell.
 *
 * Switches, all read from the environment:
 *   FAKE_NCCL_VERSION        what ncclGetVersion reports and ranks compare: 22809 or 2.28.9
 *   FAKE_NCCL_BUFFER         bytes of each channel between two ranks (512 KiB)
 *   FAKE_NCCL_SLOTS          how many messages they hold (8, as NCCL's FIFOs; behind sockets
 *                            between hosts lie the kernel's buffers, and ranks run ahead by
 *                            hundreds)
 *   FAKE_NCCL_ASYNC_ERROR    rank=R,after=N,code=C: after N collectives rank R's async error is C
 *   FAKE_NCCL_INPROGRESS_MS  how long calls on nonblocking communicators stay in progress
 *   FAKE_NCCL_INIT_MS        how long the making of a communicator takes once all have come (0); a
 *                            list, 0,5000,0: the first of the process, the second, and all others
 *   FAKE_NCCL_TEARDOWN_MS    how long ncclCommDestroy and ncclCommAbort take (0); a list, 2500,0:
 *                            on the communicator's rank 0, and on all others
 *   FAKE_NCCL_LEAVE_MS       how long a call that an abort has ended takes to return (0). It uses
 *                            its communicator until then: the process crashes if that is freed
 *   FAKE_NCCL_LAYOUT         shifted: the structures in device memory are 8 bytes longer than
 *                            those of 2.28.9
 *   FAKE_NCCL_KERNEL         rank=R,nth=N,what=idle: on rank R the kernel of its Nth collective
 *                            never runs, though all before it on its stream is finished;
 *                            what=mute: it runs, but no data of it get to the next rank
 *   FAKE_NCCL_RAS            a RAS service (ras.c) at NCCL_RAS_ADDR, or port 28028: on; dead: a
 *                            process that does not answer counts as dead at once; lies: all others
 *                            do; other: of another job; hang, mute, endless, cut, garbage, service:
 *                            no answer as it should be
 *   FAKE_NCCL_DEBUG          1: what happens, on stderr
 *   FAKE_NCCL_NETWORK        a folder that several hosts share: their ranks meet there (network.c)
 * and of the real library's NCCL_DEBUG (VERSION, WARN), NCCL_COMM_BLOCKING, NCCL_LOCAL_REGISTER,
 * NCCL_CHECK_POINTERS. */
#ifndef FAKE_NCCL_FAKE_H
#define FAKE_NCCL_FAKE_H

#include <cuda.h>
#include <nccl.h>

#ifndef NCCL_REVOKE_DEFAULT
#define NCCL_REVOKE_DEFAULT 0 /* came with 2.28.7 */
#endif

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each API is strong under its pnccl name and weak under its nccl name, as in the real library.
 * Calls inside this library that use the nccl name go through the PLT and can be interposed. */
#define FAKE_EXPORT __attribute__((visibility("default")))
#define FAKE_API(ret, name, args)                                                                  \
    FAKE_EXPORT ret p##name args;                                                                  \
    FAKE_EXPORT __attribute__((weak, alias("p" #name))) ret name args;                             \
    ret p##name args
/* One that is another call. */
#define FAKE_FORM(ret, name, args, call)                                                           \
    FAKE_API(ret, name, args)                                                                      \
    {                                                                                              \
        return call;                                                                               \
    }

#define FAKE_SLOTS_MAX  1024
#define FAKE_BOOT_SLOTS 4
#define FAKE_BOOT_BYTES 192
#define FAKE_RAS_FUNCS  5
#define FAKE_NTYPES     ((int)ncclNumTypes)

/* ---- shared memory of a communicator (shm.c) ---- */

struct fake_fifo {
    _Alignas(64) _Atomic uint64_t tail; /* slots posted by the sender */
    _Alignas(64) _Atomic uint64_t head; /* slots given back by the receiver */
    _Alignas(64) _Atomic uint32_t bytes[FAKE_SLOTS_MAX];
    /* As many slots follow as the communicator has for each channel, each slot_bytes long */
    _Alignas(64) unsigned char data[];
};

enum fake_boot_kind {
    FAKE_BOOT_SPLIT,
    FAKE_BOOT_SHRINK,
    FAKE_BOOT_GROW,
    FAKE_BOOT_WINDOW,
    FAKE_BOOT_WINDOW_END,
    FAKE_BOOT_DEVICE,
    FAKE_BOOT_DEVICE_END,
    FAKE_BOOT_SUSPEND,
    FAKE_BOOT_RESUME,
    FAKE_BOOT_DESTROY,
    FAKE_BOOT_KINDS
};

struct fake_boot {
    _Atomic uint32_t tail, head;
    unsigned char data[FAKE_BOOT_SLOTS][FAKE_BOOT_BYTES];
};

struct fake_rank {
    _Alignas(
        64) _Atomic uint32_t bell; /* rises whenever something that this rank waits for changed */
    _Atomic uint32_t waiters;
    _Atomic uint32_t phase; /* of init */
    _Atomic uint32_t ring;  /* came to connect the ring */
    int32_t version;
    int32_t pid;
    int32_t device;
    int32_t cable; /* of its host; -1 none that could be cut */
    char bus_id[32];
    char host[64];
    /* What RAS knows of it. */
    char ras_address[16];
    _Atomic int64_t ras_beat_ms;
    _Atomic uint64_t ras_counts[FAKE_RAS_FUNCS];
    _Atomic bool ras_ending, ras_ended;
    bool spans_hosts; /* others of the communicator are of other hosts */
};

struct fake_shm {
    uint32_t magic;
    uint32_t nranks;
    uint32_t slots; /* of each channel */
    uint64_t slot_bytes;
    uint64_t total_bytes;
    uint64_t off_ranks, off_links, off_boot, off_ring, off_p2p;
    uint64_t fifo_bytes;
};

size_t fake_shm_layout(struct fake_shm *shm, int nranks, size_t buffer_bytes, uint32_t slots);
int fake_shm_create(int nranks, int *ret_fd);
int fake_shm_map(int fd, struct fake_shm **ret_shm);
void fake_shm_unmap(struct fake_shm *shm);
struct fake_rank *fake_shm_rank(struct fake_shm *shm, int rank);
/* The two halves of a point-to-point connection: end 0 the sender came, end 1 the receiver came. */
_Atomic uint32_t *fake_shm_link(struct fake_shm *shm, int src, int dst, int end);
struct fake_boot *fake_shm_boot(struct fake_shm *shm, int kind, int src, int dst);
struct fake_fifo *fake_shm_ring(struct fake_shm *shm, int src);
struct fake_fifo *fake_shm_p2p(struct fake_shm *shm, int src, int dst);
uint32_t fake_bell_read(struct fake_shm *shm, int rank);
void fake_bell_wait(struct fake_shm *shm, int rank, uint32_t seen);
void fake_bell_ring(struct fake_shm *shm, int rank);

/* ---- communicator (comm.c, children.c) ---- */

struct fake_redop {
    bool used;
    ncclDataType_t type;
    ncclScalarResidence_t residence;
    unsigned char value[8];
    const void *device;
};

struct fake_plan;

#define FAKE_COMM_MAGIC UINT64_C(0x6d6d6f636c63636e)

struct ncclComm {
    _Atomic uint64_t magic; /* by which other copies of the library know it; first */
    struct ncclComm *next;  /* in the registry */
    _Atomic int refs;
    int nranks, rank, device;
    CUcontext ctx;
    char bus_id[32];
    ncclConfig_t config;
    char name[64];
    _Atomic int state;      /* ncclResult_t that ncclCommGetAsyncError tells */
    _Atomic bool abort;     /* for ever */
    _Atomic bool stop;      /* kernels in flight end; taken back after revoke and shrink */
    _Atomic uint32_t stops; /* how often that was done */
    _Atomic bool revoked;
    _Atomic bool finalized;
    _Atomic bool gone;          /* destroy or abort has begun */
    _Atomic bool freed;         /* and is over: who still uses it crashes */
    int abort_fd;               /* readable once abort is set */
    uint64_t hash;              /* of its unique id */
    int connection;             /* fake_network_connect; -1 none */
    unsigned char *device_comm; /* device_comm.c */
    bool shows_ring;
    _Atomic(struct fake_shm *) shm;
    bool ring_connected;          /* under launch_lock */
    uint32_t stops_before;        /* stops when connecting began; under launch_lock */
    unsigned char *p2p_connected; /* per peer: bit 0 send, bit 1 receive; under launch_lock */
    _Atomic uint32_t ncolls;      /* collectives enqueued, for FAKE_NCCL_ASYNC_ERROR */

    /* Serialises connecting and launching on this communicator; may be held while CUDA blocks or a
     * peer is waited for. Taken before lock. */
    pthread_mutex_t launch_lock;
    CUstream last_capture_stream;
    unsigned long long last_capture_id;

    /* Protects everything below; innermost, nothing blocks with it held. */
    pthread_mutex_t lock;
    pthread_cond_t cond;
    uint64_t ticket_next, ticket_done; /* order of eager kernels */
    bool busy;                         /* a kernel of this communicator moves data */
    int pending;                       /* eager kernels not over */
    int running;                       /* kernels inside their host function, replays included */
    int graph_refs;                    /* captured plans that are alive */
    int jobs;               /* threads of nonblocking groups at work on this communicator */
    struct ncclComm *child; /* being split off, to be aborted with us */
    struct fake_redop *redops;
    int nredops;
};

/* Holds a reference on a live communicator, or NULL for a handle that is none. */
struct ncclComm *fake_comm_get(ncclComm_t handle);
void fake_comm_put(struct ncclComm *comm);
void fake_comm_ref(struct ncclComm *comm);
static inline void fake_comm_put_at_end(struct ncclComm **comm)
{
    fake_comm_put(*comm);
}
/* Checks that every entry point makes; on success the caller owns a reference. */
ncclResult_t fake_comm_enter(ncclComm_t handle, const char *func, bool ready,
                             struct ncclComm **ret);
/* `comm`, referenced until the block ends; or the function ends with what is wrong with the handle.
 */
#define FAKE_ENTER(comm, handle, func, ready)                                                      \
    __attribute__((cleanup(fake_comm_put_at_end))) struct ncclComm *comm = NULL;                   \
    TRY(fake_comm_enter(handle, func, ready, &comm))
void fake_comm_set_abort(struct ncclComm *comm);
bool fake_comm_aborted(const struct ncclComm *comm);
void fake_comm_wake(struct ncclComm *comm);
/* Adds to one of its numbers that others wait for. */
void fake_comm_count(struct ncclComm *comm, int *number, int by);
/* Stays in progress for FAKE_NCCL_INPROGRESS_MS when the communicator is nonblocking. */
void fake_comm_linger(struct ncclComm *comm);
/* The way out of a call that waited: see FAKE_NCCL_LEAVE_MS. */
void fake_comm_leave(struct ncclComm *comm);
/* All ranks of the communicator come. Does the release that this stands in for wait for them in a
 * function that others leave alone? FAKE_NCCL_WAITS=CommDestroy,CommWindowDeregister */
ncclResult_t fake_meet(struct ncclComm *comm, int kind);
bool fake_waits(const char *func);
/* Waits until this communicator's kernels are over. */
void fake_comm_drain(struct ncclComm *comm);
/* Ends the kernels in flight, for revoke and shrink, and leaves the communicator in one piece. */
void fake_comm_stop_kernels(struct ncclComm *comm);
/* Takes what the caller's structure holds, however old its header, and checks it; `base`: what it
 * inherits without one, or NULL. */
ncclResult_t fake_config_read(const ncclConfig_t *config, const ncclConfig_t *base,
                              ncclConfig_t *ret_config);
ncclResult_t fake_comm_alloc(int nranks, int rank, int device, CUcontext ctx,
                             const ncclConfig_t *config, struct ncclComm **ret_comm);
/* From now on its handle is one. */
void fake_comm_register(struct ncclComm *comm);
/* All handles of this process, under the registry's lock. */
void fake_comm_each(void (*visit)(struct ncclComm *comm, void *context), void *context);
ncclResult_t fake_null_argument(const char *func, const char *name);

/* ---- meeting other ranks (bootstrap.c) ---- */

ncclResult_t fake_boot_new_id(ncclUniqueId *ret_id);
ncclResult_t fake_boot_join(struct ncclComm *comm, const ncclUniqueId *id);
void fake_boot_release_id(const ncclUniqueId *id);
/* Waits until cond(comm, arg) holds; ncclInternalError when the communicator is aborted first. */
ncclResult_t fake_boot_wait(struct ncclComm *comm, bool (*cond)(struct ncclComm *, void *),
                            void *arg);
ncclResult_t fake_boot_send(struct ncclComm *comm, int kind, int peer, const void *data,
                            size_t bytes);
ncclResult_t fake_boot_recv(struct ncclComm *comm, int kind, int peer, void *data, size_t bytes);
/* From whichever rank sends first. */
ncclResult_t fake_boot_recv_any(struct ncclComm *comm, int kind, void *data, size_t bytes);
/* all-gather: data of rank r in all + r * bytes. */
ncclResult_t fake_boot_all_gather(struct ncclComm *comm, int kind, const void *mine, void *all,
                                  size_t bytes);
ncclResult_t fake_boot_connect_ring(struct ncclComm *comm);
/* Connecting is pointless: the communicator was revoked or shrunk meanwhile. */
bool fake_boot_stopped(const struct ncclComm *comm);

/* ---- several hosts (network.c) ---- */

/* FAKE_NCCL_NETWORK; NULL: all ranks are in one network namespace. */
const char *fake_network_folder(void);
/* The cable of a host; -1 none. */
int fake_network_cable(const char *host);
/* That of this host, and how often its connections were reset, as a router between the hosts does
 * that loses what it knew: both ends hear of it. */
int fake_network_here(void);
uint32_t fake_network_resets(int cable);
/* Nothing passes between this rank and the other now. */
bool fake_network_cut(const struct ncclComm *comm, int peer);
/* What this rank's connections to other hosts hang from: they are closed with it, at the latest by
 * the kernel when the process ends, however it does. -1 on failure. */
int fake_network_connect(int shm_fd, int rank);
/* The other rank is of another host, and has closed its connections. */
bool fake_network_closed(const struct ncclComm *comm, int peer);
/* The process of the other rank has ended, or left the communicator, on whatever host. */
bool fake_network_ended(const struct ncclComm *comm, int peer);
/* What was under way with such a one fails (socketProgress): ncclRemoteError for this communicator.
 */
void fake_network_fail(struct ncclComm *comm, int peer);

/* ---- groups and jobs (group.c) ---- */

enum fake_func {
    FAKE_ALL_REDUCE,
    FAKE_BROADCAST,
    FAKE_REDUCE,
    FAKE_ALL_GATHER,
    FAKE_REDUCE_SCATTER,
    FAKE_ALL_TO_ALL,
    FAKE_GATHER,
    FAKE_SCATTER,
    FAKE_SEND,
    FAKE_RECV,
};

struct fake_job {
    struct fake_job *next;
    ncclResult_t (*run)(struct fake_job *job);
    struct ncclComm *comm;   /* referenced */
    struct ncclComm *parent; /* referenced, or NULL */
    bool teardown;           /* destroy, abort: always blocking, result does not touch the state */
    bool started, done;
    struct fake_group *group;
    pthread_t thread;
    ncclResult_t result;
    ncclComm_t *ret_comm; /* where the handle of a child goes */
    int meets;            /* enum fake_boot_kind: all ranks of the communicator */
    void *buffer;         /* window: what it is made of, and where it goes */
    size_t bytes;
    ncclWindow_t *ret_window;
    ncclUniqueId id;
    int nranks, rank, color, key, flags;
    int *exclude;
    int nexclude;
    bool has_config;
    ncclConfig_t config;
};

enum fake_reduce { FAKE_SUM, FAKE_PROD, FAKE_MAX, FAKE_MIN, FAKE_NREDUCE };

struct fake_coll {
    enum fake_func func;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    int root;
    enum fake_reduce reduce;
    bool premul;               /* each rank's input is scaled first */
    int postdiv;               /* the result is divided by this; 0 not */
    unsigned char scalar[8];   /* in the collective's type */
    const void *scalar_device; /* read when the kernel runs */
};

struct fake_p2p {
    bool send;
    int peer;
    unsigned char *data;
    size_t bytes;
    /* state of one execution */
    size_t moved;
    bool over;
    int prev; /* earlier operation with the same peer and direction, -1 none */
};

/* One launch on one communicator: everything that a group holds for it. */
struct fake_plan {
    struct fake_plan *next;
    struct ncclComm *comm; /* referenced */
    CUstream *streams;
    int nstreams;
    struct fake_coll *colls;
    int ncolls;
    struct fake_p2p *p2ps;
    int np2ps;
    int calls; /* collective calls in it */
    bool captured;
    bool counted; /* by this run of its kernel */
    bool stuck;   /* its buffers are registered in a way with which the real library hangs */
    bool mute;    /* FAKE_NCCL_KERNEL */
    uint64_t ticket;
};

struct fake_job *fake_job_new(ncclResult_t (*run)(struct fake_job *), struct ncclComm *comm,
                              struct ncclComm *parent);
/* Meets the other ranks of job->comm under job->id. */
ncclResult_t fake_init_job(struct fake_job *job);
/* In the open group: a communicator whose handle is there at once, and `run`, which makes it. */
ncclResult_t fake_init_start(ncclResult_t (*run)(struct fake_job *), struct ncclComm *parent,
                             ncclComm_t *newcomm, int nranks, int rank, const ncclUniqueId *id,
                             const ncclConfig_t *config, int device, CUcontext ctx);

void fake_group_start(void);
ncclResult_t fake_group_end(void);
ncclResult_t fake_group_error(ncclResult_t result);
/* Ends what fake_group_start began, with the result of what came between. */
ncclResult_t fake_group_leave(ncclResult_t result);
/* A call as a group of its own. */
#define FAKE_IN_GROUP(call) (fake_group_start(), fake_group_leave(call))
/* Adds a job to the open group, which then owns it. */
ncclResult_t fake_group_add_job(struct fake_job *job);
ncclResult_t fake_group_plan(struct ncclComm *comm, CUstream stream, struct fake_plan **ret_plan);
int fake_thread_start(pthread_t *ret_thread, bool detached, void *(*run)(void *), void *arg);

/* ---- RAS (ras.c) ---- */

/* By which a communicator of this id is named: getHash of 2.26 and newer, or the one before. */
uint64_t fake_ras_hash(const ncclUniqueId *id);
/* The communicator has met. */
void fake_ras_join(struct ncclComm *comm);
/* The program ends it; `ended`: it is gone. */
void fake_ras_leave(struct ncclComm *comm, bool ended);
/* It launches such a collective, not in a capture. */
void fake_ras_count(struct ncclComm *comm, enum fake_func func);

/* ---- launch and kernels (enqueue.c, kernel.c, reduce.c) ---- */

bool fake_plan_is_cold(struct fake_plan *plan);
ncclResult_t fake_plan_connect(struct fake_plan *plan);
/* Takes the plan over, whatever the result. */
ncclResult_t fake_plan_launch(struct fake_plan *plan);
void fake_plan_free(struct fake_plan *plan);
void fake_plan_run(struct fake_plan *plan);

/* ---- what the device has of a communicator (device_comm.c) ---- */

/* Needs the communicator's context. */
ncclResult_t fake_device_comm_make(struct ncclComm *comm);
void fake_device_comm_give(struct ncclComm *comm);
/* Under launch_lock: with the communicator's ring, once it is connected. Launches the plan's
 * kernel, which calls `run` with it, with the arguments that NCCL's kernels have. */
CUresult fake_device_comm_launch(const struct fake_plan *plan, CUstream stream, CUhostFn run);
/* The plan's kernel counts its works on every channel that it uses, once. */
void fake_device_comm_count(struct fake_plan *plan);

size_t fake_type_bytes(ncclDataType_t type);
void fake_reduce(ncclDataType_t type, enum fake_reduce op, void *out, const void *a, const void *b,
                 size_t count);
void fake_scale(ncclDataType_t type, void *out, const void *in, const void *scalar, size_t count);
void fake_divide(ncclDataType_t type, void *out, const void *in, int divisor, size_t count);
void fake_scalar_inverse(ncclDataType_t type, int divisor, void *ret_scalar);
bool fake_type_is_float(ncclDataType_t type);

/* ---- memory (memory.c) ---- */

void fake_memory_release(struct ncclComm *comm);
/* Notes how the plan uses registered buffers, and sets plan->stuck. */
void fake_memory_launch(struct fake_plan *plan);
ncclResult_t fake_redop_resolve(struct ncclComm *comm, const char *func, ncclRedOp_t op,
                                ncclDataType_t type, struct fake_coll *coll);

/* ---- environment, errors, the driver (util.c) ---- */

/* field, name, the version that brought this form, whether a driver may lack it, what it takes */
#define FAKE_CUDA_FUNCTIONS(F)                                                                     \
    F(init, cuInit, 12000, false, (unsigned int))                                                  \
    F(get_error_name, cuGetErrorName, 12000, false, (CUresult, const char **))                     \
    F(device_get, cuDeviceGet, 12000, false, (CUdevice *, int))                                    \
    F(device_get_count, cuDeviceGetCount, 12000, false, (int *))                                   \
    F(device_get_pci_bus_id, cuDeviceGetPCIBusId, 12000, false, (char *, int, CUdevice))           \
    F(primary_retain, cuDevicePrimaryCtxRetain, 12000, false, (CUcontext *, CUdevice))             \
    F(ctx_get_current, cuCtxGetCurrent, 12000, false, (CUcontext *))                               \
    F(ctx_set_current, cuCtxSetCurrent, 12000, false, (CUcontext))                                 \
    F(ctx_get_device, cuCtxGetDevice, 12000, false, (CUdevice *))                                  \
    F(launch_kernel_ex, cuLaunchKernelEx, 12000, false,                                            \
      (const CUlaunchConfig *, CUfunction, void **, void **))                                      \
    F(mem_host_register, cuMemHostRegister, 12000, false, (void *, size_t, unsigned int))          \
    F(stream_is_capturing, cuStreamIsCapturing, 12000, false, (CUstream, CUstreamCaptureStatus *)) \
    F(stream_get_ctx, cuStreamGetCtx, 9020, true, (CUstream, CUcontext *))                         \
    F(stream_wait_event, cuStreamWaitEvent, 12000, false, (CUstream, CUevent, unsigned int))       \
    F(event_create, cuEventCreate, 12000, false, (CUevent *, unsigned int))                        \
    F(event_record, cuEventRecord, 12000, false, (CUevent, CUstream))                              \
    F(event_destroy, cuEventDestroy, 12000, false, (CUevent))                                      \
    F(user_object_create, cuUserObjectCreate, 12000, true,                                         \
      (CUuserObject *, void *, CUhostFn, unsigned int, unsigned int))                              \
    F(graph_retain_user_object, cuGraphRetainUserObject, 12000, true,                              \
      (CUgraph, CUuserObject, unsigned int, unsigned int))                                         \
    F(mem_alloc, cuMemAlloc, 12000, false, (CUdeviceptr *, size_t))                                \
    F(mem_free, cuMemFree, 12000, false, (CUdeviceptr))                                            \
    F(mem_get_granularity, cuMemGetAllocationGranularity, 12000, true,                             \
      (size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags))                   \
    F(mem_create, cuMemCreate, 12000, true,                                                        \
      (CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long))   \
    F(mem_release, cuMemRelease, 12000, true, (CUmemGenericAllocationHandle))                      \
    F(mem_address_reserve, cuMemAddressReserve, 12000, true,                                       \
      (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                            \
    F(mem_address_free, cuMemAddressFree, 12000, true, (CUdeviceptr, size_t))                      \
    F(mem_map, cuMemMap, 12000, true,                                                              \
      (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long))             \
    F(mem_unmap, cuMemUnmap, 12000, true, (CUdeviceptr, size_t))                                   \
    F(mem_set_access, cuMemSetAccess, 12000, true,                                                 \
      (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))                                      \
    F(mem_retain_handle, cuMemRetainAllocationHandle, 12000, true,                                 \
      (CUmemGenericAllocationHandle *, void *))                                                    \
    F(pointer_get_attribute, cuPointerGetAttribute, 12000, true,                                   \
      (void *, CUpointer_attribute, CUdeviceptr))

struct fake_cuda {
#define FIELD(field, name, version, optional, parameters) CUresult(*field) parameters;
    FAKE_CUDA_FUNCTIONS(FIELD)
#undef FIELD
    CUresult (*stream_get_capture_info)(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *,
                                        const CUgraphNode **, size_t *);
};

/* NULL, with the last error set, when there is no usable driver. */
const struct fake_cuda *fake_cuda(void);
ncclResult_t fake_cuda_failed(CUresult result, const char *what);
ncclResult_t fake_current_device(CUdevice *ret_device, CUcontext *ret_ctx);

void fake_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A result, and why. */
#define fake_refuse(result, ...) (fake_warn(__VA_ARGS__), (result))
/* Ends the function with one, if the condition holds, or where an argument is NULL. */
#define REFUSE_IF(condition, ...)                                                                  \
    do {                                                                                           \
        if (condition)                                                                             \
            return fake_refuse(__VA_ARGS__);                                                       \
    } while (0)
#define NEED_ARGUMENT(argument, func, name)                                                        \
    TRY((argument) ? ncclSuccess : fake_null_argument(func, name))
/* Ends the function with this result, unless it is success. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        ncclResult_t try_result = (call);                                                          \
        if (try_result != ncclSuccess)                                                             \
            return try_result;                                                                     \
    } while (0)
static inline void fake_unlock_at_end(pthread_mutex_t *const *mutex)
{
    pthread_mutex_unlock(*mutex);
}
/* Holds the mutex until the end of the block. */
#define FAKE_HOLD(mutex)                                                                           \
    __attribute__((cleanup(fake_unlock_at_end), unused)) pthread_mutex_t *const held =             \
        (pthread_mutex_lock(mutex), (mutex))
void fake_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *fake_last_error(void);
/* Memory of the stand-in itself, zeroed or resized; a host that has none left ends the process. */
void *fake_new(size_t bytes);
void *fake_resize(void *memory, size_t bytes);
long fake_env_long(const char *name, long def, long min, long max);
int fake_version(void);
/* A misuse that the real library answers with corrupted memory: told on stderr, then abort(). */
_Noreturn void fake_misuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
