/* Looks at connections, without a device. */
#include "tests/unit/core/helpers/looks.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/comm/comm.h"
#include "core/device/connection_reader.h"
#include "core/device/connections.h"
#include "core/device/gpu.h"
#include "core/device/launch_counters.h"
#include "core/device/launch_log.h"
#include "core/runtime/io_workers.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "tests/unit/core/helpers/answers.h"

#define KNOWN 0x10000u /* addresses of the device: NG_LAUNCH_COMM_BYTES from here on */

struct looks looks;
static struct ng_comm *comms;
static struct ng_launch_log *log_;
static struct ng_gpu gpu;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);
void __wrap_ng_clock_sleep(int64_t ns);
uint32_t __wrap_ng_comm_count(void);
struct ng_comm *__wrap_ng_comm_at(uint32_t index);
struct ng_launch_log *__wrap_ng_launch_log_of(const struct ng_comm *comm);
bool __wrap_ng_launch_log_compare(struct ng_launch_log *log, const uint64_t *counters,
                                  struct ng_launch_progress *ret_progress);
bool __wrap_ng_launch_counters_parse(const void *copy, uint64_t device_comm, int nccl_version,
                                     int rank, int nranks, uint64_t *ret_counters);
bool __wrap_ng_launch_counters_agree(const struct ng_launch_progress *progress, uint64_t completed,
                                     uint64_t pending_seq);
int __wrap_ng_io_workers_add(const char *place, ng_io_work_fn *run, void *context);
const char *__wrap_ng_connection_reader_read(const struct ng_connection_source *source,
                                             struct ng_edge *ret_edges, uint32_t *ret_count);

/* ---- The driver ---- */

CUDA_ANSWER(push, (CUcontext context))
CUDA_ANSWER(pop, (CUcontext * ret_context), *ret_context = NULL)
CUDA_ANSWER(relax, (CUstreamCaptureMode * mode))
CUDA_ANSWER(make_stream, (CUstream * ret_stream, unsigned flags), *ret_stream = (CUstream)8)
CUDA_ANSWER(make_event, (CUevent * ret_event, unsigned flags), *ret_event = (CUevent)16)
CUDA_ANSWER(record, (CUevent event, CUstream stream), looks.waits++;
            looks.now_ms += looks.copying_ms)

static CUresult query(CUevent event)
{
    return looks.hangs ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult alloc(void **ret_memory, size_t bytes, unsigned flags)
{
    static unsigned char pinned[1 << 16];

    *ret_memory = pinned;
    return bytes <= sizeof(pinned) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUDA_ANSWER(copy, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))
CUDA_ANSWER(copy_rows, (const CUDA_MEMCPY2D *rows, CUstream stream))

static CUresult attribute(void *ret_value, CUpointer_attribute wanted, CUdeviceptr address)
{
    if (address < KNOWN || address >= KNOWN + NG_LAUNCH_COMM_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    if (wanted == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
        *(unsigned *)ret_value = CU_MEMORYTYPE_DEVICE;
    else
        *(uint64_t *)ret_value =
            wanted == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ? KNOWN : NG_LAUNCH_COMM_BYTES;
    return CUDA_SUCCESS;
}

/* ---- What lies around it ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    *ret_time = (struct timespec){looks.now_ms / 1000, looks.now_ms % 1000 * NG_MS};
    return 0;
}

/* Each time a millisecond. */
void __wrap_ng_clock_sleep(int64_t ns)
{
    looks.now_ms++;
}

uint32_t __wrap_ng_comm_count(void)
{
    return LOOKS_COMMS;
}

struct ng_comm *__wrap_ng_comm_at(uint32_t index)
{
    return &comms[index];
}

struct ng_launch_log *__wrap_ng_launch_log_of(const struct ng_comm *comm)
{
    return log_;
}

bool __wrap_ng_launch_log_compare(struct ng_launch_log *log, const uint64_t *counters,
                                  struct ng_launch_progress *ret_progress)
{
    *ret_progress = (struct ng_launch_progress){.left = 1, .channels = 0xff00, .collective = true};
    return true;
}

bool __wrap_ng_launch_counters_parse(const void *copy, uint64_t device_comm, int nccl_version,
                                     int rank, int nranks, uint64_t *ret_counters)
{
    *ret_counters = 0;
    return true;
}

bool __wrap_ng_launch_counters_agree(const struct ng_launch_progress *progress, uint64_t completed,
                                     uint64_t pending_seq)
{
    return true;
}

int __wrap_ng_io_workers_add(const char *place, ng_io_work_fn *run, void *context)
{
    run(context);
    return 0;
}

const char *__wrap_ng_connection_reader_read(const struct ng_connection_source *source,
                                             struct ng_edge *ret_edges, uint32_t *ret_count)
{
    char to[2];
    struct ng_connection_item items[] = {{KNOWN, 1, 1, 1, &to[0]}, {KNOWN, 1, 1, 1, &to[1]}};

    if (!looks.count)
        looks.channels = source->channels;
    looks.seen[looks.count++] = (unsigned)source->rank;
    looks.now_ms += looks.reading_ms;
    if (looks.unread)
        items[1].address = 1;
    if (!source->read(source->context, items, 2))
        return NG_CONNECTION_UNREAD;
    ret_edges[0] = (struct ng_edge){.peer = 1};
    *ret_count = 1;
    return NULL;
}

/* ---- The test's ---- */

void looks_begin(void)
{
    static const struct ng_box_identity identity = {.rank = 0, .world_size = 2};
    struct ng_cuda *cuda = &ng_guard.cuda;

    looks = (struct looks){.now_ms = 1000000};
    if (!ng_guard.box.header && ng_box_create(NULL, &identity, 16, &ng_guard.box) != 0)
        abort();
    *cuda = (struct ng_cuda){.loaded = true,
                             .ctx_push = push,
                             .ctx_pop = pop,
                             .thread_exchange_capture_mode = relax,
                             .stream_create = make_stream,
                             .event_create = make_event,
                             .event_record = record,
                             .event_query = query,
                             .mem_host_alloc = alloc,
                             .memcpy_dtoh_async = copy,
                             .memcpy_2d_async = copy_rows,
                             .pointer_get_attribute = attribute};
    atomic_store(&ng_guard.cuda_found, true);
    ng_guard.config.counters = true;
    free(comms);
    free(log_);
    comms = calloc(LOOKS_COMMS, sizeof(*comms));
    log_ = calloc(1, sizeof(*log_));
    atomic_store(&log_->device_comm, KNOWN);
    atomic_store(&gpu.context, (CUcontext)24);
    for (unsigned i = 0; i < LOOKS_COMMS; i++) {
        comms[i].slot = i;
        comms[i].group = &ng_guard.box.groups[i];
        atomic_store(&comms[i].gpu, &gpu);
        atomic_store(&comms[i].fate, NG_FATE_LIVES);
        NG_STORE(comms[i].group->group_rank, (int)i);
        NG_STORE(comms[i].group->pending_record, 1 + NG_LOAD(comms[i].group->pending_record));
    }
    ng_connections_after_fork();
    ng_launch_counters_after_fork();
}

void looks_look(void)
{
    ng_connections_look();
}

void looks_look_again(void)
{
    ng_connections_look_again();
}

void looks_go_on(void)
{
    for (unsigned i = 0; i < LOOKS_COMMS; i++)
        NG_STORE(comms[i].group->pending_record, 1 + NG_LOAD(comms[i].group->pending_record));
}

bool looks_copies(unsigned comm)
{
    return ng_connections_copies(&comms[comm]);
}

void looks_count(void)
{
    ng_launch_counters_read();
}

bool looks_counts(unsigned comm)
{
    return ng_launch_counters_copies(&comms[comm]);
}

bool looks_are_late(void)
{
    return ng_connections_are_late();
}
