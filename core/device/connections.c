/*
 * Looks at connections: copies with a bound, into the black box.
 *
 * The incident thread hands a look to a worker thread, since a call of the driver may block while a
 * device hangs. Must never be entered by the watchdog, nor copy from memory that NCCL may have
 * freed: either the freeing thread sees the look, or the looking thread sees that the communicator
 * is being freed, since both write first and then read.
 */
#include "core/device/connections.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/comm/comm.h"
#include "core/device/connection_reader.h"
#include "core/device/gpu.h"
#include "core/device/launch_counters.h"
#include "core/device/launch_log.h"
#include "core/recorder/edges.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/log.h"
#include "core/util/memory.h"

#define LOOK_NS      (100 * NG_MS) /* for all of it */
#define BEGIN_NS     (50 * NG_MS)  /* a communicator whose look has not begun by then waits */
#define AGAIN_NS     (200 * NG_MS) /* alarms come in swarms: one look serves them all */
#define LATE_MAX     2u          /* looks that take too long; one may be for want of a processor */
#define ANEW_NS      (10 * NG_S) /* between looks at work that does not end */
#define POLL_NS      (20 * NG_US)
#define PAUSE_NS     (5 * NG_MS) /* data on their way move within it */
#define ROOM_BYTES   (1u << 20)  /* what the driver needs for a thread, at most */
#define CONTEXTS_MAX 64u
#define COMMS_MAX    64u /* looked at one time */
#define RANGES_MAX   64u
#define COPY_BYTES   (48u << 10)
#define SAMPLES      4  /* copies that show how long one takes */
#define COPIES       20 /* for a channel, of a rank with two neighbours */
#define ALIGNED      16u
#define NOWHERE      UINT32_MAX

/* What a look needs in one context. A reset device has another context, perhaps at the same
 * address. */
struct eye {
    CUcontext context;
    uint64_t context_id;
    CUstream stream;
    CUevent event;
    unsigned char *copy; /* pinned, COPY_BYTES; NULL: it could not be made */
};

/* Memory that the driver knows. */
struct range {
    uint64_t start, bytes;
    bool host;
};

/* Worker thread alone: one task of a place runs at a time. */
static struct {
    struct eye eyes[CONTEXTS_MAX];
    uint32_t eye_count;
    unsigned char comm[NG_LAUNCH_COMM_BYTES];
    struct range ranges[RANGES_MAX]; /* of this look */
    uint32_t range_count;
    uint32_t offsets[NG_CONNECTION_ITEMS_MAX]; /* of items in the copy; NOWHERE: host memory */
    uint32_t next; /* a look begins with this communicator: the last one had no time for it */
    int64_t until_ns;
    bool late;
    unsigned late_looks;
} own;

/* Tasks under way. */
#define LOOKS    1u
#define PREPARES 2u
static _Atomic uint32_t under_way;
static atomic_bool given_up, told;
static _Atomic(const struct ng_comm *) copied; /* its connections are being looked at */
static _Atomic(CUevent) late_copies;           /* behind copies that had no end in time */

/* Incident thread. */
static int64_t looked_mono_ns;
static unsigned unanswered; /* looks that were not over in time */

static void give_up(const char *why)
{
    if (!atomic_exchange(&given_up, true))
        ng_log(NG_LOG_INFO, "NCCL's connections are not looked at any more: %s", why);
}

/* ---- On the worker thread ---- */

/* The context is current. */
static bool make_eye(struct eye *eye)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    void *copy = NULL;

    if (!cuda->stream_create || !cuda->memcpy_dtoh_async || !cuda->memcpy_2d_async ||
        !cuda->mem_host_alloc || !cuda->pointer_get_attribute ||
        cuda->stream_create(&eye->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS ||
        cuda->event_create(&eye->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS ||
        cuda->mem_host_alloc(&copy, COPY_BYTES, 0) != CUDA_SUCCESS)
        return false;
    eye->copy = copy;
    return true;
}

static struct eye *eye_for(CUcontext context, uint64_t context_id)
{
    for (uint32_t i = 0; i < own.eye_count; i++)
        if (own.eyes[i].context == context && own.eyes[i].context_id == context_id)
            return own.eyes[i].copy ? &own.eyes[i] : NULL;
    if (own.eye_count == CONTEXTS_MAX)
        return NULL;
    struct eye *eye = &own.eyes[own.eye_count++];
    *eye = (struct eye){.context = context, .context_id = context_id};
    return make_eye(eye) ? eye : NULL;
}

/* Have the copies on its stream come back? */
static bool await(struct eye *eye)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    struct timespec pause = {.tv_nsec = POLL_NS};
    CUresult result = cuda->event_record(eye->event, eye->stream);

    while (result == CUDA_SUCCESS &&
           (result = cuda->event_query(eye->event)) == CUDA_ERROR_NOT_READY) {
        if (ng_clock_mono_ns() >= own.until_ns) {
            own.late = true;
            atomic_store(&late_copies, eye->event);
            return false;
        }
        nanosleep(&pause, NULL);
        result = CUDA_SUCCESS;
    }
    return result == CUDA_SUCCESS;
}

/* The memory that has all these bytes; NULL: the driver knows none. */
static const struct range *range_of(uint64_t address, uint32_t bytes)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    CUdeviceptr start = 0;
    size_t size = 0;
    unsigned type = 0;

    for (uint32_t i = 0; i < own.range_count; i++)
        if (address - own.ranges[i].start < own.ranges[i].bytes &&
            bytes <= own.ranges[i].bytes - (address - own.ranges[i].start))
            return &own.ranges[i];
    if (!address ||
        cuda->pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
            CUDA_SUCCESS ||
        cuda->pointer_get_attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address) !=
            CUDA_SUCCESS ||
        cuda->pointer_get_attribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) !=
            CUDA_SUCCESS ||
        (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE) || address < start ||
        address - start >= size || bytes > size - (address - start))
        return NULL;
    if (own.range_count == RANGES_MAX)
        own.range_count = 0;
    struct range *range = &own.ranges[own.range_count++];
    *range = (struct range){start, size, type == CU_MEMORYTYPE_HOST};
    return range;
}

/* Begin to copy an item from device memory: as one copy, since on a device that another kernel
 * holds each copy takes its turn. */
static bool begin_copy(struct eye *eye, const struct ng_connection_item *item, uint32_t *used)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    uint32_t bytes = item->bytes * item->rows;
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = item->address,
                          .srcPitch = item->pitch,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = eye->copy + *used,
                          .dstPitch = item->bytes,
                          .WidthInBytes = item->bytes,
                          .Height = item->rows};

    if (bytes > COPY_BYTES - *used)
        return false;
    CUresult result =
        item->rows > 1 ? cuda->memcpy_2d_async(&rows, eye->stream)
                       : cuda->memcpy_dtoh_async(rows.dstHost, item->address, bytes, eye->stream);
    *used += (bytes + ALIGNED - 1) / ALIGNED * ALIGNED;
    return result == CUDA_SUCCESS;
}

static bool read_host(const struct ng_connection_item *item)
{
    for (uint32_t row = 0; row < item->rows; row++)
        if (!ng_memory_read(item->address + (uint64_t)row * item->pitch,
                            (unsigned char *)item->to + row * item->bytes, item->bytes))
            return false;
    return true;
}

/* As ng_connection_source.read: host memory by the kernel, device memory by copies. */
static bool read_items(void *context, const struct ng_connection_item *items, uint32_t count)
{
    struct eye *eye = context;
    uint32_t used = 0;
    bool fine = true;

    for (uint32_t i = 0; i < count && fine; i++) {
        const struct range *range =
            range_of(items[i].address, (items[i].rows - 1) * items[i].pitch + items[i].bytes);
        own.offsets[i] = range && range->host ? NOWHERE : used;
        if (!range || ng_clock_mono_ns() >= own.until_ns)
            fine = false;
        else if (range->host)
            fine = read_host(&items[i]);
        else
            fine = begin_copy(eye, &items[i], &used);
    }
    /* The others, too: their memory may be freed afterwards. */
    if ((used && !await(eye)) || !fine)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (own.offsets[i] != NOWHERE)
            memcpy(items[i].to, eye->copy + own.offsets[i], items[i].bytes * items[i].rows);
    return true;
}

static void let_time_pass(void *context)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};

    (void)context;
    nanosleep(&pause, NULL);
}

/* The channels that the launch which is the oldest in flight has not counted; 0: it is not known,
 * or has no collective. */
static uint64_t channels_of(struct ng_comm *comm, struct ng_launch_log *log, uint64_t device_comm,
                            struct ng_connection_source *source)
{
    uint64_t counters[NG_LAUNCH_CHANNELS];
    struct ng_launch_progress progress;

    if (!ng_launch_counters_parse(own.comm, device_comm, source->nccl_version, source->rank,
                                  source->nranks, counters) ||
        !ng_launch_log_compare(log, counters, &progress) || !progress.collective ||
        !ng_launch_counters_agree(&progress, NG_LOAD(comm->group->completed),
                                  NG_LOAD(comm->group->pending_seq)))
        return 0;
    return progress.channels;
}

/* Copies its structure. False: it did not come back. */
static bool copy_comm(struct eye *eye, uint64_t device_comm, int64_t *ret_copy_ns)
{
    int64_t begun_ns = ng_clock_mono_ns();
    CUresult result = CUDA_SUCCESS;

    for (int i = 0; i < SAMPLES && result == CUDA_SUCCESS; i++)
        result = ng_guard.cuda.memcpy_dtoh_async(eye->copy, device_comm,
                                                 i ? ALIGNED : NG_LAUNCH_COMM_BYTES, eye->stream);
    if (!await(eye) || result != CUDA_SUCCESS)
        return false;
    memcpy(own.comm, eye->copy, NG_LAUNCH_COMM_BYTES);
    *ret_copy_ns = (ng_clock_mono_ns() - begun_ns) / SAMPLES;
    return true;
}

/* The first channels, as many as half of the time is enough for: on a device that another kernel
 * holds, each copy takes a millisecond. */
static uint64_t affordable(uint64_t channels, int64_t copy_ns)
{
    int64_t most = (own.until_ns - ng_clock_mono_ns()) / 2 / (COPIES * (copy_ns + 1));
    uint64_t kept = 0;

    for (; channels && (!kept || most > 0); channels &= channels - 1, most--)
        kept |= channels & (~channels + 1);
    return kept;
}

/* False: a copy did not come back. */
static bool look_at(struct ng_comm *comm, struct ng_launch_log *log, struct eye *eye)
{
    const struct ng_nccl *nccl = atomic_load(&comm->nccl);
    uint64_t device_comm = atomic_load(&log->device_comm);
    uint64_t pending_record = NG_LOAD(comm->group->pending_record);
    struct ng_connection_source source = {.comm = own.comm,
                                          .nccl_version = nccl ? atomic_load(&nccl->version) : 0,
                                          .rank = NG_LOAD(comm->group->group_rank),
                                          .nranks = NG_LOAD(comm->group->nranks),
                                          .read = read_items,
                                          .pause = let_time_pass,
                                          .context = eye};
    struct ng_edge edges[NG_EDGES_MAX];
    uint32_t count = 0;

    int64_t copy_ns = 0;

    own.range_count = 0;
    if (!range_of(device_comm, NG_LAUNCH_COMM_BYTES) || !copy_comm(eye, device_comm, &copy_ns))
        return !own.late;
    source.channels = affordable(channels_of(comm, log, device_comm, &source), copy_ns);
    if (!source.channels)
        return true;
    const char *why = ng_connection_reader_read(&source, edges, &count);
    if (own.late)
        return false;
    if (why && !atomic_exchange(&told, true))
        ng_log(NG_LOG_INFO, "NCCL's connections of a communicator are not used: %s", why);
    if (!why && NG_LOAD(comm->group->pending_record) == pending_record)
        ng_edges_write(&ng_guard.box, comm->slot, pending_record, edges, count);
    return true;
}

static void count_late(void)
{
    if (++own.late_looks == LATE_MAX)
        give_up("a copy of them did not come back");
}

/* No copy of an earlier look is under way. */
static bool is_free(void)
{
    CUevent late = atomic_load(&late_copies);

    if (late && ng_guard.cuda.event_query(late) == CUDA_ERROR_NOT_READY)
        return false;
    atomic_store(&copied, NULL);
    atomic_store(&late_copies, NULL);
    return true;
}

/* Looks at the connections of a communicator, or only makes what looking needs. */
static void visit(struct ng_comm *comm, struct ng_launch_log *log, bool looks)
{
    struct ng_gpu *gpu = atomic_load_explicit(&comm->gpu, memory_order_acquire);

    if (!gpu || gpu == NG_COMM_GPU_OUT_OF_REACH || atomic_load(&gpu->lost))
        return;
    CUcontext context = atomic_load(&gpu->context);
    if (ng_guard.cuda.ctx_push(context) != CUDA_SUCCESS)
        return;
    struct eye *eye = eye_for(context, atomic_load(&gpu->context_id));
    if (eye && looks) {
        atomic_store(&copied, comm);
        if (!ng_comm_is_let_live(comm) || look_at(comm, log, eye))
            atomic_store(&copied, NULL);
        else
            count_late();
    }
    ng_gpu_leave_context();
}

static bool is_wanted(const struct ng_comm *comm)
{
    return NG_LOAD(comm->group->pending_record) && ng_comm_is_let_live(comm) &&
           comm->group != &comm->spare.group;
}

/* The driver has data for each thread, and the C library ends the process where it finds no memory
 * for them. */
static bool has_room(void)
{
    void *room = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return room != MAP_FAILED && munmap(room, ROOM_BYTES) == 0;
}

static void visit_all(bool looks)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    int64_t begun_ns = ng_clock_mono_ns();
    uint32_t done = 0, count = ng_comm_count(), first = looks ? own.next : 0;

    if (!ng_guard_cuda() || !has_room() || !ng_gpu_relax_thread(&mode))
        return;
    own.until_ns = begun_ns + LOOK_NS;
    own.late = looks && !is_free();
    if (own.late)
        count_late();
    for (uint32_t i = 0; i < count && done < COMMS_MAX && !own.late && !atomic_load(&given_up);
         i++) {
        struct ng_comm *comm = ng_comm_at((first + i) % count);
        struct ng_launch_log *log = ng_launch_log_of(comm);
        if (!log || (looks && !is_wanted(comm)))
            continue;
        if (ng_clock_mono_ns() - begun_ns > BEGIN_NS) {
            own.next = (first + i) % count;
            break;
        }
        visit(comm, log, looks);
        done++;
    }
    ng_gpu_relax_thread(&mode);
    if (looks && done)
        ng_log(NG_LOG_DEBUG,
               "NCCL's connections were looked at, of communicators: %u; %" PRId64 " us", done,
               (ng_clock_mono_ns() - begun_ns) / NG_US);
}

static void look_at_all(void *unused)
{
    (void)unused;
    visit_all(true);
    ng_io_workers_end(&under_way, LOOKS);
}

static void prepare_all(void *unused)
{
    (void)unused;
    visit_all(false);
    ng_io_workers_end(&under_way, PREPARES);
}

/* ---- On the incident thread ---- */

/* False: it could not be given to a worker, or is under way already. */
static bool begin(uint32_t bit, ng_io_work_fn *run)
{
    if (atomic_load(&given_up) || atomic_fetch_or(&under_way, bit) & bit)
        return false;
    if (ng_io_workers_add(NG_LAUNCH_COUNTERS_PLACE, run, NULL) == 0)
        return true;
    ng_io_workers_end(&under_way, bit);
    return false;
}

void ng_connections_look(void)
{
    int64_t now = ng_clock_mono_ns();

    if (!ng_guard.config.counters || (looked_mono_ns && now - looked_mono_ns < AGAIN_NS))
        return;
    looked_mono_ns = now;
    if (begin(LOOKS, look_at_all) &&
        !ng_io_workers_await(&under_way, LOOKS, now + NG_CONNECTIONS_NS) &&
        ++unanswered == LATE_MAX)
        give_up("the driver did not return from a copy of them in time");
}

bool ng_connections_are_late(void)
{
    return !atomic_load(&given_up) &&
           (atomic_load(&late_copies) || atomic_load(&under_way) & LOOKS);
}

void ng_connections_look_again(void)
{
    struct ng_edge edges[NG_EDGES_MAX];
    int64_t when;

    if (!looked_mono_ns || ng_clock_mono_ns() - looked_mono_ns < ANEW_NS)
        return;
    for (uint32_t i = 0, count = ng_comm_count(); i < count; i++) {
        const struct ng_comm *comm = ng_comm_at(i);
        if (is_wanted(comm) && ng_edges_read(&ng_guard.box, comm->slot,
                                             NG_LOAD(comm->group->pending_record), edges, &when)) {
            ng_connections_look();
            return;
        }
    }
}

void ng_connections_prepare(void)
{
    begin(PREPARES, prepare_all);
}

bool ng_connections_copies(const struct ng_comm *comm)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUevent late = atomic_load(&late_copies);

    if (atomic_load(&copied) != comm)
        return false;
    if (!late || !ng_gpu_relax_thread(&mode))
        return true;
    CUresult result = ng_guard.cuda.event_query(late);
    ng_gpu_relax_thread(&mode);
    return result == CUDA_ERROR_NOT_READY;
}

void ng_connections_finish(void)
{
    atomic_store(&given_up, true);
    ng_io_workers_await(&under_way, LOOKS | PREPARES, ng_clock_mono_ns() + NG_CONNECTIONS_NS);
}

void ng_connections_after_fork(void)
{
    atomic_store(&given_up, false);
    atomic_store(&told, false);
    atomic_store(&copied, NULL);
    atomic_store(&late_copies, NULL);
    atomic_store(&under_way, 0);
    looked_mono_ns = 0;
    unanswered = 0;
    memset(&own, 0, sizeof(own));
}
