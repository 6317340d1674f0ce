/*
 * Copies of NCCL's counters.
 *
 * Entered by the incident thread, and by the worker thread of core/device/device_reading.h, whose
 * rules hold here.
 */
#include "core/device/launch_counters.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/device/device_reading.h"
#include "core/recorder/box.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"

#define COPY_NS   (100 * NG_MS) /* for one copy to come back */
#define AGAIN_NS  (200 * NG_MS) /* alarms come in swarms: one reading serves them all */
#define COMMS_MAX 64u           /* read at one time */

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
    {22902, 23203, 56, 360},
};

/* With NCCL_PROGRESS_COUNTERS=1 the structure has a pointer to progress counters, else NULL there:
 * 16 counts of collectives by kind, 16 times of their ends, and a word for each channel that says
 * which kinds of collective run on it. Seen with 2.32.3. */
#define PROGRESS_FIRST 23203
#define PROGRESS_AT    88u
#define PROGRESS_BYTES (256u + NG_LAUNCH_CHANNELS * 8u)
#define RUNNING_AT     256u

static void visit_all(bool reads);
static void read_one(struct ng_comm *comm, struct ng_launch_log *log,
                     struct ng_device_reader *reader);
static struct ng_device_reading reading = {.over = "NCCL's counters are not read any more",
                                           .copy_bytes = NG_LAUNCH_COMM_BYTES,
                                           .visit_all = visit_all,
                                           .read = read_one};
static int64_t read_mono_ns; /* incident thread */

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

enum ng_kernel ng_launch_counters_kernel(const void *copy)
{
    static const unsigned char none[PROGRESS_BYTES - RUNNING_AT];

    return memcmp((const char *)copy + RUNNING_AT, none, sizeof(none)) == 0 ? NG_KERNEL_NOT_BEGUN
                                                                            : NG_KERNEL_RUNS;
}

bool ng_launch_counters_agree(const struct ng_launch_progress *progress, uint64_t completed,
                              uint64_t pending_seq)
{
    return progress->left && completed <= progress->counted &&
           (!pending_seq || pending_seq > progress->counted);
}

/* ---- On the worker thread ---- */

/* False: it did not come back, or failed. What has not come back goes on reading the communicator's
 * memory. */
static bool take_copy(const struct ng_device_reader *reader, uint64_t address, uint32_t bytes)
{
    int64_t until = ng_clock_mono_ns() + COPY_NS;

    if (ng_guard.cuda.memcpy_dtoh_async(reader->copy, address, bytes, reader->stream) !=
        CUDA_SUCCESS)
        return false;
    int error = ng_device_reading_await(&reading, reader, until);
    if (error == -ETIME)
        ng_device_reading_give_up(&reading, "a copy of them did not come back");
    return !error;
}

/* `reader` has copied the structure of a communicator, whose layout is known. */
static enum ng_kernel look_at_kernel(const struct ng_device_reader *reader, int nccl_version)
{
    CUdeviceptr address, start = 0;
    size_t bytes = 0;

    memcpy(&address, (const char *)reader->copy + PROGRESS_AT, sizeof(address));
    if (nccl_version < PROGRESS_FIRST || !address || !ng_guard.cuda.pointer_get_attribute ||
        ng_guard.cuda.pointer_get_attribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                            address) != CUDA_SUCCESS ||
        ng_guard.cuda.pointer_get_attribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address) !=
            CUDA_SUCCESS ||
        address < start || address - start + PROGRESS_BYTES > bytes ||
        !take_copy(reader, address, PROGRESS_BYTES))
        return NG_KERNEL_UNKNOWN;
    return ng_launch_counters_kernel(reader->copy);
}

static void read_one(struct ng_comm *comm, struct ng_launch_log *log,
                     struct ng_device_reader *reader)
{
    const struct ng_nccl *nccl = atomic_load(&comm->nccl);
    uint64_t pending_record = NG_LOAD(comm->group->pending_record), counted = 0;
    uint64_t device_comm = atomic_load(&log->device_comm), counters[NG_LAUNCH_CHANNELS];
    struct ng_launch_progress progress;

    atomic_store(&reading.copied, comm);
    int version = nccl ? atomic_load(&nccl->version) : 0;
    enum ng_kernel kernel = NG_KERNEL_UNKNOWN;
    bool taken = ng_comm_is_let_live(comm) && take_copy(reader, device_comm, NG_LAUNCH_COMM_BYTES);
    bool known = taken && ng_launch_counters_parse(reader->copy, device_comm, version,
                                                   NG_LOAD(comm->group->group_rank),
                                                   NG_LOAD(comm->group->nranks), counters);
    if (known)
        kernel = look_at_kernel(reader, version);
    if (!atomic_load(&reading.late))
        atomic_store(&reading.copied, NULL);
    if (!taken || ng_launch_log_of(comm) != log)
        return;
    if (!known)
        ng_launch_log_distrust(log, "their layout is not that of a known release of NCCL");
    else if (ng_launch_log_compare(log, counters, &progress) &&
             ng_launch_counters_agree(&progress, NG_LOAD(comm->group->completed),
                                      NG_LOAD(comm->group->pending_seq)))
        counted = ng_box_counted(pending_record, progress.counted, progress.left,
                                 progress.collective ? kernel : NG_KERNEL_UNKNOWN);
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

static void visit_all(bool reads)
{
    uint32_t done = 0;

    for (uint32_t i = 0, count = ng_comm_count(); i < count && done < COMMS_MAX; i++) {
        struct ng_comm *comm = ng_comm_at(i);
        struct ng_launch_log *log = ng_launch_log_of(comm);
        if (!log || (reads && !is_wanted(comm)) || atomic_load(&reading.given_up))
            continue;
        ng_device_reading_visit(&reading, comm, log, reads);
        done++;
    }
}

/* ---- On the incident thread ---- */

void ng_launch_counters_read(void)
{
    int64_t now = ng_clock_mono_ns();

    if (!ng_guard.config.counters || (read_mono_ns && now - read_mono_ns < AGAIN_NS))
        return;
    read_mono_ns = now;
    if (ng_device_reading_begin(&reading, NG_DEVICE_READS) &&
        !ng_io_workers_await(&reading.under_way, NG_DEVICE_READS, now + NG_LAUNCH_COUNTERS_NS))
        ng_device_reading_give_up(&reading,
                                  "the driver did not return from a copy of them in time");
}

bool ng_launch_counters_prepare(void)
{
    bool is_new = ng_launch_log_is_new();

    if (is_new)
        ng_device_reading_begin(&reading, NG_DEVICE_PREPARES);
    return is_new;
}

bool ng_launch_counters_copies(const struct ng_comm *comm)
{
    return ng_device_reading_copies(&reading, comm);
}

void ng_launch_counters_finish(void)
{
    ng_device_reading_finish(&reading, NG_LAUNCH_COUNTERS_NS);
}

void ng_launch_counters_after_fork(void)
{
    ng_device_reading_after_fork(&reading);
    read_mono_ns = 0;
    ng_launch_log_after_fork();
}
