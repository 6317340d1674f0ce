/*
 * The log of NCCL's launches.
 *
 * Entered by the program's threads from a hook on the launch, inside a call of NCCL; read by a
 * guard thread. Must never lock, nor call the driver for more than the state of a stream.
 */
#include "core/device/launch_log.h"

#include <sys/mman.h>

#include "core/comm/comm.h"
#include "core/comm/thread.h"
#include "core/nccl/op.h"
#include "core/runtime/runtime.h"
#include "core/util/log.h"

/* struct ncclDevKernelArgs and ncclDevWorkBatch of NCCL 2.22.3 to 2.32.3, src/include/device.h. */
struct arguments {
    uint64_t device_comm;
    uint64_t channels;
    uint8_t storage_type;
    uint32_t work_mask;
    uint64_t works;
};

struct batch {
    uint32_t next_jump : 14, next_extends : 1, work_type : 2, function : 15;
    uint32_t offset_base;
    uint64_t offset_bits; /* one for each work */
};

_Static_assert(sizeof(struct arguments) == 32 && sizeof(struct batch) == 16, "as in NCCL");

#define STORAGE_TYPES 3
#define BATCHES_MAX   4096u

static _Atomic(struct ng_launch_log *) logs[NG_COMM_CAPACITY]; /* by slot */
static atomic_bool is_new;

void ng_launch_log_distrust(struct ng_launch_log *log, const char *why)
{
    const char *none = NULL;

    if (atomic_compare_exchange_strong(&log->distrusted, &none, why))
        ng_log(NG_LOG_INFO, "NCCL's counters of a communicator are not used: %s", why);
}

static struct ng_launch_log *find(const struct ng_comm *comm)
{
    struct ng_launch_log *log =
        atomic_load_explicit(&logs[comm->slot % NG_COMM_CAPACITY], memory_order_acquire);

    return log && atomic_load(&log->generation) == NG_LOAD(comm->group->generation) ? log : NULL;
}

struct ng_launch_log *ng_launch_log_of(const struct ng_comm *comm)
{
    struct ng_launch_log *log = find(comm);

    return log && atomic_load(&log->device_comm) && !atomic_load(&log->distrusted) ? log : NULL;
}

/* The log of a communicator that launches; NULL out of memory. */
static struct ng_launch_log *log_for(const struct ng_comm *comm)
{
    _Atomic(struct ng_launch_log *) *place = &logs[comm->slot % NG_COMM_CAPACITY];
    struct ng_launch_log *log = find(comm);

    if (log)
        return log;
    log = atomic_load(place);
    if (!log) {
        void *memory =
            mmap(NULL, sizeof(*log), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return NULL;
        log = memory;
        atomic_store(place, log);
    }
    /* The slot's former communicator has ended. Readers check the generation first. */
    atomic_store(&log->device_comm, 0);
    for (uint32_t i = 0; i < NG_LAUNCH_LOG_SIZE; i++)
        atomic_store(&log->entries[i].number, 0);
    for (uint32_t channel = 0; channel < NG_LAUNCH_CHANNELS; channel++)
        atomic_store(&log->after[channel], 0);
    atomic_store(&log->count, 0);
    atomic_store(&log->distrusted, NULL);
    atomic_store(&log->generation, NG_LOAD(comm->group->generation));
    return log;
}

/* ---- Whose launch it is ---- */

struct owner {
    struct ng_comm *comm;
    bool collective;
};

/*
 * Of the communicators with calls in a NCCL group, the one that is known to have this structure on
 * the device; or the only one that has launched nothing so far and has calls on this stream.
 */
static void find_in_group(const struct ng_group_calls *calls, const struct ng_kernel_launch *launch,
                          uint64_t device_comm, struct owner *owner)
{
    struct ng_comm *found = NULL;
    bool several = false;

    for (uint32_t i = 0; i < calls->pending_count; i++) {
        struct ng_pending *pending = &calls->pending[i];
        struct ng_launch_log *log = find(pending->comm);
        uint64_t known = log ? atomic_load(&log->device_comm) : 0;

        if (known == device_comm) {
            found = pending->comm;
            several = false;
            break;
        }
        if (known || pending->stream != launch->stream || pending->comm == found)
            continue;
        several = found != NULL;
        found = pending->comm;
    }
    for (uint32_t i = 0; i < calls->pending_count && several; i++) {
        struct ng_launch_log *log = log_for(calls->pending[i].comm);
        if (log && !atomic_load(&log->device_comm))
            ng_launch_log_distrust(log, "its first launch was one of several in a NCCL group");
    }
    for (uint32_t i = 0; i < calls->pending_count && found && !several; i++)
        if (calls->pending[i].comm == found) {
            owner->comm = found;
            owner->collective |= calls->pending[i].coll_count > 0;
        }
}

static struct owner find_owner(const struct ng_kernel_launch *launch, uint64_t device_comm)
{
    struct ng_thread *thread = ng_this_thread;
    struct owner owner = {0};
    enum ng_op op = thread ? (enum ng_op)NG_LOAD(thread->slot->op) : NG_OP_NONE;

    if (op == NG_OP_GroupEnd) {
        find_in_group(&thread->first, launch, device_comm, &owner);
        for (unsigned i = 0; i < NG_NCCL_MAX - 1 && !owner.comm; i++)
            if (thread->others[i])
                find_in_group(thread->others[i], launch, device_comm, &owner);
    } else if (op != NG_OP_NONE && (ng_op_table[op].op_class == NG_CLASS_COLLECTIVE ||
                                    ng_op_table[op].op_class == NG_CLASS_P2P)) {
        owner.comm = ng_comm_at(NG_LOAD(thread->slot->group_slot));
        owner.collective = ng_op_table[op].op_class == NG_CLASS_COLLECTIVE;
    }
    return owner;
}

/* ---- The entry ---- */

static uint32_t works_of_channel(const struct ng_kernel_launch *launch, uint32_t first)
{
    const struct batch *batches =
        (const struct batch *)((const char *)launch->arguments + sizeof(struct arguments));
    size_t count = (launch->bytes - sizeof(struct arguments)) / sizeof(struct batch);
    uint32_t works = 0;

    for (size_t at = first; at < count && at < BATCHES_MAX; at += batches[at].next_jump) {
        works += (uint32_t)__builtin_popcountll(batches[at].offset_bits);
        if (!batches[at].next_jump)
            return works;
    }
    return 0;
}

static bool is_known(const struct ng_kernel_launch *launch)
{
    const struct arguments *arguments = launch->arguments;

    return arguments && launch->bytes >= sizeof(*arguments) + sizeof(struct batch) &&
           arguments->device_comm && arguments->storage_type < STORAGE_TYPES &&
           (unsigned)__builtin_popcountll(arguments->channels) == launch->blocks;
}

bool ng_launch_log_add(struct ng_launch_log *log, const struct ng_kernel_launch *launch,
                       uint64_t seq, bool collective)
{
    const struct arguments *arguments = launch->arguments;
    uint64_t number = atomic_load_explicit(&log->count, memory_order_relaxed) + 1;
    struct ng_launch_entry *entry = &log->entries[number % NG_LAUNCH_LOG_SIZE];
    uint32_t block = 0;

    if (!is_known(launch))
        return false;
    NG_STORE(entry->number, 0);
    atomic_thread_fence(memory_order_release);
    for (uint64_t left = arguments->channels; left; left &= left - 1) {
        uint32_t channel = (uint32_t)__builtin_ctzll(left);
        uint32_t works = works_of_channel(launch, block++);
        if (!works)
            return false;
        uint32_t after = atomic_load_explicit(&log->after[channel], memory_order_relaxed) + works;
        NG_STORE(log->after[channel], after);
        NG_STORE(entry->after[channel], after);
    }
    NG_STORE(entry->channels, arguments->channels);
    NG_STORE(entry->seq, seq);
    NG_STORE(entry->collective, collective);
    atomic_store_explicit(&entry->number, number, memory_order_release);
    atomic_store_explicit(&log->count, number, memory_order_release);
    return true;
}

static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const struct ng_cuda *cuda = ng_guard_cuda();

    return !cuda || cuda->stream_is_capturing(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct ng_launch_log *ng_launch_log_note(const struct ng_kernel_launch *launch)
{
    const struct arguments *arguments = launch->arguments;
    bool known = is_known(launch);
    struct owner owner = find_owner(launch, known ? arguments->device_comm : 0);
    struct ng_launch_log *log = owner.comm ? log_for(owner.comm) : NULL;

    if (!log || atomic_load_explicit(&log->distrusted, memory_order_relaxed))
        return NULL;
    uint64_t device_comm = atomic_load_explicit(&log->device_comm, memory_order_relaxed);
    if (!known || (device_comm && device_comm != arguments->device_comm)) {
        ng_launch_log_distrust(log, "it launches kernels of another kind");
        return NULL;
    }
    if (is_captured(launch->stream)) {
        ng_launch_log_distrust(log, "its calls go into a CUDA graph");
        return NULL;
    }
    if (!ng_launch_log_add(log, launch, NG_LOAD(owner.comm->group->entered), owner.collective)) {
        ng_launch_log_distrust(log, "the arguments of its kernels are not those that are known");
        return NULL;
    }
    if (!device_comm) {
        atomic_store(&log->device_comm, arguments->device_comm);
        atomic_store(&is_new, true);
    }
    return log;
}

bool ng_launch_log_is_new(void)
{
    return atomic_load_explicit(&is_new, memory_order_relaxed) && atomic_exchange(&is_new, false);
}

/* ---- Reading ---- */

/* A copy of an entry; false: it is gone. */
static bool copy(struct ng_launch_log *log, uint64_t number, struct ng_launch_entry *ret_entry)
{
    struct ng_launch_entry *entry = &log->entries[number % NG_LAUNCH_LOG_SIZE];

    if (atomic_load_explicit(&entry->number, memory_order_acquire) != number)
        return false;
    ret_entry->channels = NG_LOAD(entry->channels);
    ret_entry->seq = NG_LOAD(entry->seq);
    ret_entry->collective = NG_LOAD(entry->collective);
    for (uint32_t channel = 0; channel < NG_LAUNCH_CHANNELS; channel++)
        NG_STORE(ret_entry->after[channel], NG_LOAD(entry->after[channel]));
    atomic_thread_fence(memory_order_acquire);
    return NG_LOAD(entry->number) == number;
}

/* The channels on which the kernel has not counted. */
static uint64_t uncounted(const struct ng_launch_entry *entry, const uint64_t *counters)
{
    uint64_t channels = 0;

    for (uint64_t left = NG_LOAD(entry->channels); left; left &= left - 1) {
        uint32_t channel = (uint32_t)__builtin_ctzll(left);
        if ((int32_t)((uint32_t)counters[channel] - NG_LOAD(entry->after[channel])) < 0)
            channels |= UINT64_C(1) << channel;
    }
    return channels;
}

/*
 * The newest collective that launch `number` and those before it have completed, with the launch
 * after it, `next`, not counted: a NCCL group may take several launches, which all have its last
 * collective. False: the log does not reach back that far.
 */
static bool find_counted(struct ng_launch_log *log, uint64_t number,
                         const struct ng_launch_entry *next, uint64_t *ret_seq)
{
    struct ng_launch_entry entry;

    for (; number > 0; number--) {
        if (!copy(log, number, &entry))
            return false;
        if (!NG_LOAD(next->collective) || !NG_LOAD(entry.collective) ||
            NG_LOAD(entry.seq) != NG_LOAD(next->seq)) {
            *ret_seq = NG_LOAD(entry.seq);
            return true;
        }
    }
    *ret_seq = 0;
    return true;
}

bool ng_launch_log_compare(struct ng_launch_log *log, const uint64_t counters[NG_LAUNCH_CHANNELS],
                           struct ng_launch_progress *ret_progress)
{
    uint64_t count = atomic_load_explicit(&log->count, memory_order_acquire);
    uint64_t first = count > NG_LAUNCH_LOG_SIZE ? count - NG_LAUNCH_LOG_SIZE + 1 : 1;
    struct ng_launch_progress progress = {0};
    struct ng_launch_entry entry, next = {0};

    for (uint32_t channel = 0; channel < NG_LAUNCH_CHANNELS; channel++)
        if ((int32_t)((uint32_t)counters[channel] - NG_LOAD(log->after[channel])) > 0)
            return false;
    for (uint64_t number = first; number <= count; number++) {
        if (!copy(log, number, &entry))
            return false;
        if (!uncounted(&entry, counters)) {
            if (progress.left)
                return false; /* kernels of one communicator run in the order of their launch */
        } else if (progress.left++ == 0) {
            next = entry;
        }
    }
    if (!find_counted(log, count - progress.left, &next, &progress.counted))
        return false;
    progress.channels = progress.left ? uncounted(&next, counters) : 0;
    progress.collective = NG_LOAD(next.collective);
    *ret_progress = progress;
    return true;
}

void ng_launch_log_after_fork(void)
{
    for (uint32_t i = 0; i < NG_COMM_CAPACITY; i++)
        atomic_store(&logs[i], NULL);
}
