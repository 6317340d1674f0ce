/*
 * Copies of NCCL's counters.
 *
 * The incident thread hands the work to a worker thread (core/runtime/io_workers.h), since a call
 * of the driver may block while a device hangs. Must never be entered by the watchdog, nor copy
 * from memory that NCCL may have freed: either the freeing thread sees the copy, or the copying
 * thread sees that the communicator is being freed, since both write first and then read.
 */
#include "core/device/launch_counters.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/comm/comm.h"
#include "core/device/gpu.h"
#include "core/recorder/box.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"

#define COPY_NS      (100 * NG_MS) /* for one copy to come back */
#define AGAIN_NS     (200 * NG_MS) /* alarms come in swarms: one reading serves them all */
#define POLL_NS      (20 * NG_US)
#define ROOM_BYTES   (1u << 20) /* what the driver needs for a thread, at most */
#define CONTEXTS_MAX 64u
#define COMMS_MAX    64u /* read at one time */

/*
 * Where the fields lie that are read, on 64-bit machines: computed from src/include/device.h of
 * each release. The channels follow the structure, which has `channels_at` point to them; each
 * channel is CHANNEL_BYTES long and has its counter at `counter_at`.
 */
#define COMM_BYTES    96u
#define CHANNEL_BYTES 368u
static const struct layout {
    int first, last; /* NCCL's versions */
    uint32_t channels_at, counter_at;
} layouts[] = {
    {22605, 22699, 64, 352},
    {22703, 22809, 56, 352},
    {22902, 23007, 56, 360},
};

/* What reading needs in one context. A reset device has another context, perhaps at the same
 * address. */
struct reader {
    CUcontext context;
    uint64_t context_id;
    CUstream stream;
    CUevent event;
    void *copy; /* pinned, NG_LAUNCH_COMM_BYTES */
};

/* Worker thread alone: one task of a place runs at a time. */
static struct reader readers[CONTEXTS_MAX];
static uint32_t reader_count;

/* Tasks under way. */
#define READS    1u
#define PREPARES 2u
static _Atomic uint32_t under_way;
static atomic_bool given_up;
static _Atomic(const struct ng_comm *) copied; /* its counters are being copied */

static int64_t read_mono_ns; /* incident thread */

static void give_up(const char *why)
{
    if (!atomic_exchange(&given_up, true))
        ng_log(NG_LOG_INFO, "NCCL's counters are not read any more: %s", why);
}

bool ng_launch_counters_parse(const void *copy, uint64_t device_comm, int nccl_version, int rank,
                              int nranks, uint64_t ret_counters[NG_LAUNCH_CHANNELS])
{
    const unsigned char *bytes = copy;
    const struct layout *layout = NULL;
    int ranks[2];
    uint64_t channels;

    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        if (nccl_version >= layouts[i].first && nccl_version <= layouts[i].last)
            layout = &layouts[i];
    if (!layout)
        return false;
    memcpy(ranks, bytes, sizeof(ranks));
    memcpy(&channels, bytes + layout->channels_at, sizeof(channels));
    if (ranks[0] != rank || ranks[1] != nranks || channels != device_comm + COMM_BYTES)
        return false;
    for (uint32_t channel = 0; channel < NG_LAUNCH_CHANNELS; channel++)
        memcpy(&ret_counters[channel],
               bytes + COMM_BYTES + channel * CHANNEL_BYTES + layout->counter_at, sizeof(uint64_t));
    return true;
}

bool ng_launch_counters_agree(const struct ng_launch_progress *progress, uint64_t completed,
                              uint64_t pending_seq)
{
    return progress->left && completed <= progress->counted &&
           (!pending_seq || pending_seq > progress->counted);
}

/* ---- On the worker thread ---- */

/* The context is current. */
static bool make_reader(struct reader *reader)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;

    return cuda->stream_create && cuda->memcpy_dtoh_async && cuda->mem_host_alloc &&
           cuda->stream_create(&reader->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
           cuda->event_create(&reader->event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
           cuda->mem_host_alloc(&reader->copy, NG_LAUNCH_COMM_BYTES, 0) == CUDA_SUCCESS;
}

static struct reader *reader_for(CUcontext context, uint64_t context_id)
{
    for (uint32_t i = 0; i < reader_count; i++)
        if (readers[i].context == context && readers[i].context_id == context_id)
            return readers[i].copy ? &readers[i] : NULL;
    if (reader_count == CONTEXTS_MAX)
        return NULL;
    struct reader *reader = &readers[reader_count++];
    reader->context = context;
    reader->context_id = context_id;
    if (make_reader(reader))
        return reader;
    reader->copy = NULL;
    return NULL;
}

/* False: it did not come back, or failed. */
static bool take_copy(struct reader *reader, uint64_t device_comm)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    struct timespec pause = {.tv_nsec = POLL_NS};
    int64_t until = ng_clock_mono_ns() + COPY_NS;
    CUresult result =
        cuda->memcpy_dtoh_async(reader->copy, device_comm, NG_LAUNCH_COMM_BYTES, reader->stream);

    if (result == CUDA_SUCCESS)
        result = cuda->event_record(reader->event, reader->stream);
    while (result == CUDA_SUCCESS &&
           (result = cuda->event_query(reader->event)) == CUDA_ERROR_NOT_READY) {
        if (ng_clock_mono_ns() >= until) {
            give_up("a copy of them did not come back");
            return false;
        }
        nanosleep(&pause, NULL);
        result = CUDA_SUCCESS;
    }
    return result == CUDA_SUCCESS;
}

static void read_one(struct ng_comm *comm, struct ng_launch_log *log, struct reader *reader)
{
    const struct ng_nccl *nccl = atomic_load(&comm->nccl);
    uint64_t pending_record = NG_LOAD(comm->group->pending_record), counted = 0;
    uint64_t device_comm = atomic_load(&log->device_comm), counters[NG_LAUNCH_CHANNELS];
    struct ng_launch_progress progress;

    atomic_store(&copied, comm);
    bool taken = ng_comm_is_let_live(comm) && take_copy(reader, device_comm);
    atomic_store(&copied, NULL);
    if (!taken || ng_launch_log_of(comm) != log)
        return;
    if (!ng_launch_counters_parse(reader->copy, device_comm, nccl ? atomic_load(&nccl->version) : 0,
                                  NG_LOAD(comm->group->group_rank), NG_LOAD(comm->group->nranks),
                                  counters))
        ng_launch_log_distrust(log, "their layout is not that of a known release of NCCL");
    else if (ng_launch_log_compare(log, counters, &progress) &&
             ng_launch_counters_agree(&progress, NG_LOAD(comm->group->completed),
                                      NG_LOAD(comm->group->pending_seq)))
        counted = ng_box_counted(pending_record, progress.counted, progress.left);
    if (counted && counted != NG_LOAD(comm->group->counted))
        ng_log(NG_LOG_INFO,
               "by NCCL's counters, collective %" PRIu64 " of group %016" PRIx64
               " is finished; launches after it that are not: %" PRIu64,
               progress.counted, NG_LOAD(comm->group->id), progress.left);
    NG_STORE(comm->group->counted, counted);
}

static bool is_wanted(const struct ng_comm *comm)
{
    return NG_LOAD(comm->group->pending_record) && ng_comm_is_let_live(comm);
}

/* Reads the counters of a communicator, or only makes what reading needs. */
static void visit(struct ng_comm *comm, struct ng_launch_log *log, bool reads)
{
    struct ng_gpu *gpu = atomic_load_explicit(&comm->gpu, memory_order_acquire);

    if (!gpu || gpu == NG_COMM_GPU_OUT_OF_REACH || atomic_load(&gpu->lost))
        return;
    CUcontext context = atomic_load(&gpu->context);
    if (ng_guard.cuda.ctx_push(context) != CUDA_SUCCESS)
        return;
    struct reader *reader = reader_for(context, atomic_load(&gpu->context_id));
    if (reader && reads)
        read_one(comm, log, reader);
    ng_gpu_leave_context();
}

/* The driver has data for each thread, and the C library ends the process where it finds no memory
 * for them. */
static bool has_room(void)
{
    void *room = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return room != MAP_FAILED && munmap(room, ROOM_BYTES) == 0;
}

static void visit_all(bool reads)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    uint32_t done = 0;

    if (!ng_guard_cuda() || !has_room() || !ng_gpu_relax_thread(&mode))
        return;
    for (uint32_t i = 0, count = ng_comm_count(); i < count && done < COMMS_MAX; i++) {
        struct ng_comm *comm = ng_comm_at(i);
        struct ng_launch_log *log = ng_launch_log_of(comm);
        if (!log || (reads && !is_wanted(comm)) || atomic_load(&given_up))
            continue;
        visit(comm, log, reads);
        done++;
    }
    ng_gpu_relax_thread(&mode);
}

static void read_all(void *unused)
{
    visit_all(true);
    ng_io_workers_end(&under_way, READS);
}

static void prepare_all(void *unused)
{
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

void ng_launch_counters_read(void)
{
    int64_t now = ng_clock_mono_ns();

    if (!ng_guard.config.counters || (read_mono_ns && now - read_mono_ns < AGAIN_NS))
        return;
    read_mono_ns = now;
    if (begin(READS, read_all) &&
        !ng_io_workers_await(&under_way, READS, now + NG_LAUNCH_COUNTERS_NS))
        give_up("the driver did not return from a copy of them in time");
}

bool ng_launch_counters_prepare(void)
{
    bool is_new = ng_launch_log_is_new();

    if (is_new)
        begin(PREPARES, prepare_all);
    return is_new;
}

bool ng_launch_counters_copies(const struct ng_comm *comm)
{
    return atomic_load(&copied) == comm;
}

void ng_launch_counters_finish(void)
{
    atomic_store(&given_up, true);
    ng_io_workers_await(&under_way, READS | PREPARES, ng_clock_mono_ns() + NG_LAUNCH_COUNTERS_NS);
}

void ng_launch_counters_after_fork(void)
{
    atomic_store(&given_up, false);
    atomic_store(&copied, NULL);
    atomic_store(&under_way, 0);
    read_mono_ns = 0;
    reader_count = 0;
    memset(readers, 0, sizeof(readers));
    ng_launch_log_after_fork();
}
