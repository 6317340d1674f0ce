/*
 * Streams, pinned memory and tasks for reading device memory.
 *
 * Entered by the incident thread and by the worker thread that it hands the work to. Must never be
 * entered by the watchdog.
 */
#include "core/device/device_reading.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "core/comm/comm.h"
#include "core/device/gpu.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"

#define PLACE      "the memory of the devices" /* all readings: core/runtime/io_workers.h */
#define POLL_NS    (20 * NG_US)
#define ROOM_BYTES (1u << 20) /* what the driver needs for a thread, at most */

void ng_device_reading_give_up(struct ng_device_reading *reading, const char *why)
{
    if (!atomic_exchange(&reading->given_up, true))
        ng_log(NG_LOG_INFO, "%s: %s", reading->over, why);
}

/* ---- On the worker thread ---- */

bool ng_device_reading_has_room(void)
{
    void *room = mmap(NULL, ROOM_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return room != MAP_FAILED && munmap(room, ROOM_BYTES) == 0;
}

static void run(struct ng_device_reading *reading, uint32_t task)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    if (ng_guard_cuda() && ng_device_reading_has_room() && ng_gpu_relax_thread(&mode)) {
        reading->visit_all(task == NG_DEVICE_READS);
        ng_gpu_relax_thread(&mode);
    }
    ng_io_workers_end(&reading->under_way, task);
}

static void read_all(void *reading)
{
    run(reading, NG_DEVICE_READS);
}

static void prepare_all(void *reading)
{
    run(reading, NG_DEVICE_PREPARES);
}

/* The context is current. */
static void make(struct ng_device_reader *reader, uint32_t copy_bytes)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    void *copy = NULL;

    if (cuda->stream_create && cuda->memcpy_dtoh_async && cuda->mem_host_alloc &&
        cuda->stream_create(&reader->stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS &&
        cuda->event_create(&reader->event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
        cuda->mem_host_alloc(&copy, copy_bytes, 0) == CUDA_SUCCESS)
        reader->copy = copy;
}

static struct ng_device_reader *reader_for(struct ng_device_reading *reading, CUcontext context,
                                           uint64_t context_id)
{
    struct ng_device_reader *reader = reading->readers;

    for (; reader < reading->readers + reading->reader_count; reader++)
        if (reader->context == context && reader->context_id == context_id)
            return reader->copy ? reader : NULL;
    if (reading->reader_count == NG_DEVICE_READERS_MAX)
        return NULL;
    reading->reader_count++;
    *reader = (struct ng_device_reader){.context = context, .context_id = context_id};
    make(reader, reading->copy_bytes);
    return reader->copy ? reader : NULL;
}

void ng_device_reading_visit(struct ng_device_reading *reading, struct ng_comm *comm,
                             struct ng_launch_log *log, bool reads)
{
    struct ng_gpu *gpu = atomic_load_explicit(&comm->gpu, memory_order_acquire);

    if (!gpu || gpu == NG_COMM_GPU_OUT_OF_REACH || atomic_load(&gpu->lost))
        return;
    CUcontext context = atomic_load(&gpu->context);
    if (ng_guard.cuda.ctx_push(context) != CUDA_SUCCESS)
        return;
    struct ng_device_reader *reader = reader_for(reading, context, atomic_load(&gpu->context_id));
    if (reader && reads)
        reading->read(comm, log, reader);
    ng_gpu_leave_context();
}

int ng_device_reading_await(struct ng_device_reading *reading,
                            const struct ng_device_reader *reader, int64_t until_mono_ns)
{
    const struct ng_cuda *cuda = &ng_guard.cuda;
    CUresult result = cuda->event_record(reader->event, reader->stream);

    while (result == CUDA_SUCCESS &&
           (result = cuda->event_query(reader->event)) == CUDA_ERROR_NOT_READY) {
        if (ng_clock_mono_ns() >= until_mono_ns) {
            atomic_store(&reading->late, reader->event);
            return -ETIME;
        }
        ng_clock_sleep(POLL_NS);
        result = CUDA_SUCCESS;
    }
    return result == CUDA_SUCCESS ? 0 : -EIO;
}

bool ng_device_reading_is_free(struct ng_device_reading *reading)
{
    CUevent late = atomic_load(&reading->late);

    if (late && ng_guard.cuda.event_query(late) == CUDA_ERROR_NOT_READY)
        return false;
    atomic_store(&reading->copied, NULL);
    atomic_store(&reading->late, NULL);
    return true;
}

/* ---- On the thread that frees a communicator ---- */

bool ng_device_reading_copies(const struct ng_device_reading *reading, const struct ng_comm *comm)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUevent late = atomic_load(&reading->late);

    if (atomic_load(&reading->copied) != comm)
        return false;
    if (!late || !ng_gpu_relax_thread(&mode))
        return true;
    CUresult result = ng_guard.cuda.event_query(late);
    ng_gpu_relax_thread(&mode);
    return result == CUDA_ERROR_NOT_READY;
}

/* ---- On the incident thread ---- */

bool ng_device_reading_begin(struct ng_device_reading *reading, uint32_t task)
{
    if (atomic_load(&reading->given_up) || atomic_fetch_or(&reading->under_way, task) & task)
        return false;
    if (ng_io_workers_add(PLACE, task == NG_DEVICE_READS ? read_all : prepare_all, reading) == 0)
        return true;
    ng_io_workers_end(&reading->under_way, task);
    return false;
}

void ng_device_reading_finish(struct ng_device_reading *reading, int64_t wait_ns)
{
    atomic_store(&reading->given_up, true);
    ng_io_workers_await(&reading->under_way, NG_DEVICE_READS | NG_DEVICE_PREPARES,
                        ng_clock_mono_ns() + wait_ns);
}

void ng_device_reading_after_fork(struct ng_device_reading *reading)
{
    atomic_store(&reading->given_up, false);
    atomic_store(&reading->copied, NULL);
    atomic_store(&reading->late, NULL);
    atomic_store(&reading->under_way, 0);
    reading->reader_count = 0;
    memset(reading->readers, 0, sizeof(reading->readers));
}
