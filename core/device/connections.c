/*
 * Looks at connections: copies with a bound, into the black box.
 *
 * Entered by the incident thread, and by the worker thread of core/device/device_reading.h, whose
 * rules hold here.
 */
#include "core/device/connections.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "core/comm/comm.h"
#include "core/device/connection_reader.h"
#include "core/device/device_reading.h"
#include "core/device/launch_counters.h"
#include "core/device/launch_log.h"
#include "core/recorder/edges.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/memory.h"

#define LOOK_NS    (100 * NG_MS) /* for all of it */
#define BEGIN_NS   (50 * NG_MS)  /* a communicator whose look has not begun by then waits */
#define AGAIN_NS   (200 * NG_MS) /* alarms come in swarms: one look serves them all */
#define LATE_MAX   2u            /* looks that take too long; one may be for want of a processor */
#define ANEW_NS    (10 * NG_S)   /* between looks at work that does not end */
#define PAUSE_NS   (5 * NG_MS)   /* data on their way move within it */
#define COMMS_MAX  64u           /* looked at one time */
#define RANGES_MAX 64u
#define COPY_BYTES (48u << 10)
#define SAMPLES    4  /* copies that show how long one takes */
#define COPIES     20 /* for a channel, of a rank with two neighbours */
#define ALIGNED    16u
#define NOWHERE    UINT32_MAX

/* Memory that the driver knows. */
struct range {
    uint64_t start, bytes;
    bool host;
};

/* Worker thread alone: one task of a place runs at a time. */
static struct {
    unsigned char comm[NG_LAUNCH_COMM_BYTES];
    struct range ranges[RANGES_MAX]; /* of this look */
    uint32_t range_count;
    uint32_t offsets[NG_CONNECTION_ITEMS_MAX]; /* of items in the copy; NOWHERE: host memory */
    uint32_t next; /* a look begins with this communicator: the last one had no time for it */
    int64_t until_ns;
    bool late;
    unsigned late_looks;
} own NG_LARGE;

static void visit_all(bool looks);
static void look_at_one(struct ng_comm *comm, struct ng_launch_log *log,
                        struct ng_device_reader *reader);
static struct ng_device_reading reading = {.over = "NCCL's connections are not looked at any more",
                                           .copy_bytes = COPY_BYTES,
                                           .visit_all = visit_all,
                                           .read = look_at_one};
static atomic_bool told;

/* Incident thread. */
static int64_t looked_mono_ns;
static unsigned unanswered; /* looks that were not over in time */

/* ---- On the worker thread ---- */

/* Have the copies on its stream come back? */
static bool await(const struct ng_device_reader *reader)
{
    int error = ng_device_reading_await(&reading, reader, own.until_ns);

    own.late |= error == -ETIME;
    return !error;
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
static bool begin_copy(struct ng_device_reader *reader, const struct ng_connection_item *item,
                       uint32_t *used)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    uint32_t bytes = item->bytes * item->rows;
    CUDA_MEMCPY2D rows = {.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
                          .srcDevice = item->address,
                          .srcPitch = item->pitch,
                          .dstMemoryType = CU_MEMORYTYPE_HOST,
                          .dstHost = (unsigned char *)reader->copy + *used,
                          .dstPitch = item->bytes,
                          .WidthInBytes = item->bytes,
                          .Height = item->rows};

    if (bytes > COPY_BYTES - *used)
        return false;
    CUresult result = item->rows > 1 ? cuda->memcpy_2d_async(&rows, reader->stream)
                                     : cuda->memcpy_dtoh_async(rows.dstHost, item->address, bytes,
                                                               reader->stream);
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
    struct ng_device_reader *reader = context;
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
            fine = begin_copy(reader, &items[i], &used);
    }
    /* The others, too: their memory may be freed afterwards. */
    if ((used && !await(reader)) || !fine)
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (own.offsets[i] != NOWHERE)
            memcpy(items[i].to, (unsigned char *)reader->copy + own.offsets[i],
                   items[i].bytes * items[i].rows);
    return true;
}

static void let_time_pass(void *context)
{

    (void)context;
    ng_clock_sleep(PAUSE_NS);
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
static bool copy_comm(struct ng_device_reader *reader, uint64_t device_comm, int64_t *ret_copy_ns)
{
    int64_t begun_ns = ng_clock_mono_ns();
    CUresult result = CUDA_SUCCESS;

    for (int i = 0; i < SAMPLES && result == CUDA_SUCCESS; i++)
        result = ng_guard.cuda.memcpy_dtoh_async(
            reader->copy, device_comm, i ? ALIGNED : NG_LAUNCH_COMM_BYTES, reader->stream);
    if (!await(reader) || result != CUDA_SUCCESS)
        return false;
    memcpy(own.comm, reader->copy, NG_LAUNCH_COMM_BYTES);
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
static bool look_at(struct ng_comm *comm, struct ng_launch_log *log,
                    struct ng_device_reader *reader)
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
                                          .context = reader};
    struct ng_edge edges[NG_EDGES_MAX];
    uint32_t count = 0;

    int64_t copy_ns = 0;

    own.range_count = 0;
    if (!range_of(device_comm, NG_LAUNCH_COMM_BYTES) || !copy_comm(reader, device_comm, &copy_ns))
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
        ng_device_reading_give_up(&reading, "a copy of them did not come back");
}

static void look_at_one(struct ng_comm *comm, struct ng_launch_log *log,
                        struct ng_device_reader *reader)
{
    atomic_store(&reading.copied, comm);
    if (!ng_comm_is_let_live(comm) || look_at(comm, log, reader))
        atomic_store(&reading.copied, NULL);
    else
        count_late();
}

static bool is_wanted(const struct ng_comm *comm)
{
    return NG_LOAD(comm->group->pending_record) && ng_comm_is_let_live(comm) &&
           comm->group != &comm->spare.group;
}

static void visit_all(bool looks)
{
    int64_t begun_ns = ng_clock_mono_ns();
    uint32_t done = 0, count = ng_comm_count(), first = looks ? own.next : 0;

    if (!ng_guard.cuda.memcpy_2d_async || !ng_guard.cuda.pointer_get_attribute)
        return;
    own.until_ns = begun_ns + LOOK_NS;
    own.late = looks && !ng_device_reading_is_free(&reading);
    if (own.late)
        count_late();
    for (uint32_t i = 0;
         i < count && done < COMMS_MAX && !own.late && !atomic_load(&reading.given_up); i++) {
        struct ng_comm *comm = ng_comm_at((first + i) % count);
        struct ng_launch_log *log = ng_launch_log_of(comm);
        if (!log || (looks && !is_wanted(comm)))
            continue;
        if (ng_clock_mono_ns() - begun_ns > BEGIN_NS) {
            own.next = (first + i) % count;
            break;
        }
        ng_device_reading_visit(&reading, comm, log, looks);
        done++;
    }
    if (looks && done)
        ng_log(NG_LOG_DEBUG,
               "NCCL's connections were looked at, of communicators: %u; %" PRId64 " us", done,
               (ng_clock_mono_ns() - begun_ns) / NG_US);
}

/* ---- On the incident thread ---- */

void ng_connections_look(void)
{
    int64_t now = ng_clock_mono_ns();

    if (!ng_guard.config.counters || (looked_mono_ns && now - looked_mono_ns < AGAIN_NS))
        return;
    looked_mono_ns = now;
    if (ng_device_reading_begin(&reading, NG_DEVICE_READS) &&
        !ng_io_workers_await(&reading.under_way, NG_DEVICE_READS, now + NG_CONNECTIONS_NS) &&
        ++unanswered == LATE_MAX)
        ng_device_reading_give_up(&reading,
                                  "the driver did not return from a copy of them in time");
}

bool ng_connections_are_late(void)
{
    return !atomic_load(&reading.given_up) &&
           (atomic_load(&reading.late) || atomic_load(&reading.under_way) & NG_DEVICE_READS);
}

void ng_connections_look_again(void)
{
    struct ng_edge edges[NG_EDGES_MAX];
    int64_t when;

    if (!looked_mono_ns || ng_clock_mono_ns() - looked_mono_ns < ANEW_NS)
        return;
    NG_EACH_COMM (comm) {
        if (is_wanted(comm) && ng_edges_read(&ng_guard.box, comm->slot,
                                             NG_LOAD(comm->group->pending_record), edges, &when)) {
            ng_connections_look();
            return;
        }
    }
}

void ng_connections_prepare(void)
{
    ng_device_reading_begin(&reading, NG_DEVICE_PREPARES);
}

bool ng_connections_copies(const struct ng_comm *comm)
{
    return ng_device_reading_copies(&reading, comm);
}

void ng_connections_finish(void)
{
    ng_device_reading_finish(&reading, NG_CONNECTIONS_NS);
}

void ng_connections_after_fork(void)
{
    ng_device_reading_after_fork(&reading);
    atomic_store(&told, false);
    looked_mono_ns = 0;
    unanswered = 0;
    memset(&own, 0, sizeof(own));
}
