/*
 * The log of NCCL's launches.
 *
 * Entered by the program's threads from a hook on the launch, inside a call of NCCL; read by a
 * guard thread. Must never lock, nor call the driver for more than the state of a stream.
 */
#include "core/device/launch_log.h"

#include <sys/mman.h>

#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define BATCHES_MAX 4096u
#define READS_MAX   16 /* as often as this a writer may come between */
#define MOVED_MAX   16 /* launches of the newest run that may be added while the log is read */

/* By slot, for the communicators that have it one after the other. */
static _Atomic(struct ng_launch_log *) logs[NG_COMM_CAPACITY] NG_LARGE;
static atomic_bool is_new;

void ng_launch_log_distrust(struct ng_launch_log *log, const char *why)
{
    const char *none = NULL;

    if (atomic_compare_exchange_strong(&log->distrusted, &none, why))
        ng_log(NG_LOG_INFO, "NCCL's counters of a communicator are not used: %s", why);
}

struct ng_launch_log *ng_launch_log_of(const struct ng_comm *comm)
{
    struct ng_launch_log *log = atomic_load_explicit(&comm->launch_log, memory_order_acquire);

    return log && atomic_load(&log->device_comm) && !atomic_load(&log->distrusted) ? log : NULL;
}

void ng_launch_log_clear(struct ng_launch_log *log)
{
    uint64_t changes = NG_LOAD(log->changes);

    NG_STORE(log->changes, changes + 1);
    atomic_thread_fence(memory_order_release);
    log->like.bytes = SIZE_MAX;
    for (uint32_t channel = 0; channel < NG_LAUNCH_CHANNELS; channel++)
        NG_STORE(log->after[channel], 0);
    NG_STORE(log->run_count, 0);
    NG_STORE(log->runs[0].channels, 0);
    NG_STORE(log->count, 0);
    atomic_store_explicit(&log->changes, changes + 2, memory_order_release);
}

/* The log of a communicator that launches; NULL out of memory. */
static struct ng_launch_log *log_for(struct ng_comm *comm)
{
    _Atomic(struct ng_launch_log *) *place = &logs[comm->slot % NG_COMM_CAPACITY];
    struct ng_launch_log *log = atomic_load_explicit(&comm->launch_log, memory_order_acquire);

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
    atomic_store(&log->device_comm, 0);
    ng_launch_log_clear(log);
    atomic_store(&log->distrusted, NULL);
    atomic_store(&comm->launch_log, log);
    return log;
}

/* ---- Whose launch it is ---- */

struct owner {
    struct ng_comm *comm;
    bool collective;
    bool eager; /* its call has seen that this stream is not captured */
};

static uint64_t device_comm_of(const struct ng_comm *comm)
{
    const struct ng_launch_log *log = atomic_load_explicit(&comm->launch_log, memory_order_acquire);

    return log ? atomic_load_explicit(&log->device_comm, memory_order_relaxed) : 0;
}

/* Of the communicators with calls in a NCCL group, the one that is known to have this structure on
 * the device; or `new_one`, where none has. */
static void find_in_group(const struct ng_group_calls *calls, const struct ng_kernel_launch *launch,
                          uint64_t device_comm, struct ng_comm *new_one, struct owner *owner)
{
    owner->comm = new_one;
    NG_EACH (pending, calls->pending, calls->pending_count) {
        if (owner->comm ? pending->comm != owner->comm
                        : device_comm_of(pending->comm) != device_comm)
            continue;
        owner->comm = pending->comm;
        owner->collective |= pending->coll_count > 0;
        owner->eager |= pending->work && pending->stream == launch->stream;
    }
}

/* The only communicator of an NCCL group that has launched nothing so far and has calls on this
 * stream; NULL: there is none, or there are several, which are then distrusted. */
static struct ng_comm *find_new_in_group(const struct ng_group_calls *calls,
                                         const struct ng_kernel_launch *launch)
{
    struct ng_comm *found = NULL;
    bool several = false;

    NG_EACH (pending, calls->pending, calls->pending_count) {
        if (device_comm_of(pending->comm) || pending->stream != launch->stream ||
            pending->comm == found)
            continue;
        several = found != NULL;
        found = pending->comm;
    }
    for (uint32_t i = 0; i < calls->pending_count && several; i++) {
        struct ng_launch_log *log = log_for(calls->pending[i].comm);
        if (log && !atomic_load(&log->device_comm))
            ng_launch_log_distrust(log, "its first launch was one of several in a NCCL group");
    }
    return several ? NULL : found;
}

static const struct ng_group_calls *group_calls(const struct ng_thread *thread, unsigned library)
{
    return library ? thread->others[library - 1] : &thread->first;
}

static struct owner find_owner_in_group(const struct ng_thread *thread,
                                        const struct ng_kernel_launch *launch, uint64_t device_comm)
{
    const struct ng_group_calls *calls;
    struct owner owner = {0};
    struct ng_comm *new_one;

    if (device_comm)
        find_in_group(&thread->first, launch, device_comm, NULL, &owner);
    for (unsigned i = 1; i < NG_NCCL_MAX && device_comm && !owner.comm; i++)
        if ((calls = group_calls(thread, i)))
            find_in_group(calls, launch, device_comm, NULL, &owner);
    for (unsigned i = 0; i < NG_NCCL_MAX && !owner.comm; i++)
        if ((calls = group_calls(thread, i)) && (new_one = find_new_in_group(calls, launch)))
            find_in_group(calls, launch, device_comm, new_one, &owner);
    return owner;
}

static struct owner find_owner(const struct ng_kernel_launch *launch, uint64_t device_comm)
{
    struct ng_thread *thread = ng_this_thread;
    struct owner owner = {0};
    enum ng_op op = thread ? (enum ng_op)NG_LOAD(thread->slot->op) : NG_OP_NONE;

    if (op == NG_OP_GroupEnd)
        return find_owner_in_group(thread, launch, device_comm);
    if (op != NG_OP_NONE && (ng_op_table[op].op_class == NG_CLASS_COLLECTIVE ||
                             ng_op_table[op].op_class == NG_CLASS_P2P)) {
        owner.comm = ng_comm_at(NG_LOAD(thread->slot->group_slot));
        owner.collective = ng_op_table[op].op_class == NG_CLASS_COLLECTIVE;
        owner.eager = thread->eager_stream == launch->stream;
    }
    return owner;
}

/* ---- The entry ---- */

static uint32_t works_of_channel(const struct ng_kernel_launch *launch, uint32_t first)
{
    const struct ng_launch_batch *batches = (const struct ng_launch_batch *)(launch->arguments + 1);
    size_t count = (launch->bytes - sizeof(*launch->arguments)) / sizeof(*batches);
    uint32_t works = 0;

    for (size_t at = first; at < count && at < BATCHES_MAX;) {
        uint32_t jump = batches[at].flags & NG_LAUNCH_JUMP;
        works += (uint32_t)__builtin_popcountll(batches[at].offset_bits);
        if (!jump)
            return works;
        at += jump;
    }
    return 0;
}

static bool is_known(const struct ng_kernel_launch *launch)
{
    const struct ng_launch_arguments *arguments = launch->arguments;

    return arguments && launch->bytes >= sizeof(*arguments) + sizeof(struct ng_launch_batch) &&
           arguments->device_comm && arguments->storage_type < NG_LAUNCH_STORAGE_TYPES &&
           (unsigned)__builtin_popcountll(arguments->channels) == launch->blocks;
}

/* The works of `launches` launches of a run, more. */
static void count_run(const struct ng_launch_log *log, uint64_t number, uint64_t launches,
                      _Atomic uint32_t *after)
{
    const struct ng_launch_run *run = &log->runs[number % NG_LAUNCH_LOG_SIZE];
    uint32_t works = NG_LOAD(run->works);

    for (uint64_t left = NG_LOAD(run->channels); left; left &= left - 1) {
        uint32_t channel = (uint32_t)__builtin_ctzll(left);
        uint32_t each = works ? works : NG_LOAD(log->mixed[number % NG_LAUNCH_LOG_SIZE][channel]);
        NG_STORE(after[channel], NG_LOAD(after[channel]) + each * (uint32_t)launches);
    }
}

/* Each of its channels has `works`, or 0: `mixed`. */
static void begin_run(struct ng_launch_log *log, const struct ng_kernel_launch *launch,
                      uint64_t first, uint32_t works, const uint32_t *mixed)
{
    uint64_t number = NG_LOAD(log->run_count);
    struct ng_launch_run *run = &log->runs[number % NG_LAUNCH_LOG_SIZE];

    count_run(log, number, first - NG_LOAD(run->first), log->after);
    run = &log->runs[++number % NG_LAUNCH_LOG_SIZE];
    NG_STORE(run->first, first);
    NG_STORE(run->channels, launch->arguments->channels);
    NG_STORE(run->works, works);
    for (uint64_t left = launch->arguments->channels; left && !works; left &= left - 1) {
        uint32_t channel = (uint32_t)__builtin_ctzll(left);
        NG_STORE(log->mixed[number % NG_LAUNCH_LOG_SIZE][channel], mixed[channel]);
    }
    NG_STORE(log->run_count, number);
}

/* Those after it may be like it. */
static void note_likeness(struct ng_launch_log *log, const struct ng_kernel_launch *launch,
                          uint32_t works)
{
    const struct ng_launch_batch *batches = (const struct ng_launch_batch *)(launch->arguments + 1);

    log->like.bytes = sizeof(*launch->arguments) + launch->blocks * sizeof(*batches);
    log->like.blocks = launch->blocks;
    log->like.channels = launch->arguments->channels;
    log->like.bits = batches[0].offset_bits;
    if (!works || !ng_launch_log_continues(log, launch))
        log->like.bytes = SIZE_MAX;
}

/* A launch that is not like the one before it; it begins a run. */
static bool add_other(struct ng_launch_log *log, const struct ng_kernel_launch *launch,
                      uint64_t seq)
{
    uint64_t changes = NG_LOAD(log->changes);
    uint32_t mixed[NG_LAUNCH_CHANNELS], block = 0, works = 0;
    bool alike = true;

    for (uint64_t left = launch->arguments->channels; left; left &= left - 1) {
        uint32_t channel = (uint32_t)__builtin_ctzll(left);
        mixed[channel] = works_of_channel(launch, block);
        if (!mixed[channel])
            return false;
        works = block++ ? works : mixed[channel];
        alike &= works == mixed[channel];
    }
    NG_STORE(log->changes, changes + 1);
    atomic_thread_fence(memory_order_release);
    begin_run(log, launch, NG_LOAD(log->count) + 1, alike ? works : 0, mixed);
    note_likeness(log, launch, alike ? works : 0);
    ng_launch_log_continue(log, seq);
    atomic_store_explicit(&log->changes, changes + 2, memory_order_release);
    return true;
}

bool ng_launch_log_add(struct ng_launch_log *log, const struct ng_kernel_launch *launch,
                       uint64_t seq, bool collective)
{
    if (!is_known(launch))
        return false;
    if (!ng_launch_log_continues(log, launch))
        return add_other(log, launch, seq << 1 | collective);
    ng_launch_log_continue(log, seq << 1 | collective);
    return true;
}

static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const struct ng_cuda *cuda = ng_guard_cuda();

    return !cuda || cuda->stream_is_capturing(stream, &status) != CUDA_SUCCESS ||
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* A launch whose log this is; `is_like`: ng_launch_log_continues. */
static inline bool add(struct ng_launch_log *log, const struct ng_kernel_launch *launch,
                       const struct owner *owner, bool is_like)
{
    uint64_t seq = NG_LOAD(owner->comm->group->entered) << 1 | owner->collective;

    if (!owner->eager && is_captured(launch->stream)) {
        ng_launch_log_distrust(log, "its calls go into a CUDA graph");
        return false;
    }
    if (is_like) {
        ng_launch_log_continue(log, seq);
    } else if (!add_other(log, launch, seq)) {
        ng_launch_log_distrust(log, "the arguments of its kernels are not those that are known");
        return false;
    }
    return true;
}

struct ng_launch_log *ng_launch_log_note(const struct ng_kernel_launch *launch)
{
    const struct ng_launch_arguments *arguments = launch->arguments;
    uint64_t named = arguments && launch->bytes >= sizeof(*arguments) ? arguments->device_comm : 0;
    struct owner owner = find_owner(launch, named);
    struct ng_launch_log *log = owner.comm ? log_for(owner.comm) : NULL;

    if (!log || atomic_load_explicit(&log->distrusted, memory_order_relaxed))
        return NULL;
    uint64_t device_comm = atomic_load_explicit(&log->device_comm, memory_order_relaxed);
    bool is_like = device_comm && device_comm == named && ng_launch_log_continues(log, launch);
    if (!is_like && (!is_known(launch) || (device_comm && device_comm != named))) {
        ng_launch_log_distrust(log, "it launches kernels of another kind");
        return NULL;
    }
    if (!add(log, launch, &owner, is_like))
        return NULL;
    if (!device_comm) {
        atomic_store(&log->device_comm, named);
        atomic_store(&is_new, true);
    }
    return log;
}

bool ng_launch_log_is_new(void)
{
    return atomic_load_explicit(&is_new, memory_order_relaxed) && atomic_exchange(&is_new, false);
}

/* ---- Reading ---- */

/* The counters while the log is read, from its newest launch back. */
struct position {
    const struct ng_launch_log *log;
    uint64_t number;                            /* launch */
    uint64_t run;                               /* which has it */
    _Atomic uint32_t after[NG_LAUNCH_CHANNELS]; /* with it */
};

static void begin_at_newest(struct position *position, uint64_t count)
{
    const struct ng_launch_log *log = position->log;

    position->number = count;
    position->run = NG_LOAD(log->run_count);
    for (uint32_t channel = 0; channel < NG_LAUNCH_CHANNELS; channel++)
        NG_STORE(position->after[channel], NG_LOAD(log->after[channel]));
    uint64_t first = NG_LOAD(log->runs[position->run % NG_LAUNCH_LOG_SIZE].first);
    count_run(log, position->run, count + 1 - first, position->after);
}

/* Its channels on which the kernel has not counted. Moves to the launch before it. */
static uint64_t step_back(struct position *position, const uint64_t *counters)
{
    const struct ng_launch_run *run = &position->log->runs[position->run % NG_LAUNCH_LOG_SIZE];
    uint64_t channels = 0;

    for (uint64_t left = NG_LOAD(run->channels); left; left &= left - 1) {
        uint32_t channel = (uint32_t)__builtin_ctzll(left);
        if ((int32_t)((uint32_t)counters[channel] - NG_LOAD(position->after[channel])) < 0)
            channels |= UINT64_C(1) << channel;
    }
    count_run(position->log, position->run, UINT64_MAX, position->after); /* one less */
    if (position->number-- == NG_LOAD(run->first))
        position->run--;
    return channels;
}

/*
 * The newest collective that launch `number` and those before it have completed, with the launch
 * after it, of `next_seq` as in struct ng_launch_log, not counted: a NCCL group may take several
 * launches, which all have its last collective. False: the log does not reach back that far.
 */
static bool find_counted(const struct ng_launch_log *log, uint64_t number, uint64_t first,
                         uint64_t next_seq, uint64_t *ret_seq)
{
    for (; number > 0; number--) {
        if (number < first)
            return false;
        uint64_t seq = NG_LOAD(log->seqs[number % NG_LAUNCH_LOG_SIZE]);
        if (!(seq & next_seq & 1) || seq != next_seq) {
            *ret_seq = seq >> 1;
            return true;
        }
    }
    *ret_seq = 0;
    return true;
}

/* Reads nothing that up to `moved` launches after `count`, and one that is being added,
 * overwrite. */
static bool compare(const struct ng_launch_log *log, uint64_t count, uint64_t moved,
                    const uint64_t *counters, struct ng_launch_progress *ret_progress)
{
    uint64_t end = count + moved + 2;
    uint64_t first = end <= NG_LAUNCH_LOG_SIZE + 1 ? 1 : end - NG_LAUNCH_LOG_SIZE;
    struct position position = {.log = log};
    struct ng_launch_progress progress = {0};
    uint64_t next_seq = 0;

    begin_at_newest(&position, count);
    for (uint32_t channel = 0; channel < NG_LAUNCH_CHANNELS; channel++)
        if ((int32_t)((uint32_t)counters[channel] - NG_LOAD(position.after[channel])) > 0)
            return false;
    for (uint64_t number = count; number >= first; number--) {
        uint64_t uncounted = step_back(&position, counters);
        if (!uncounted)
            continue;
        if (progress.left != count - number)
            return false; /* kernels of one communicator run in the order of their launch */
        progress.left++;
        progress.channels = uncounted;
        next_seq = NG_LOAD(log->seqs[number % NG_LAUNCH_LOG_SIZE]);
    }
    progress.collective = next_seq & 1;
    *ret_progress = progress;
    return find_counted(log, count - progress.left, first, next_seq, &ret_progress->counted);
}

bool ng_launch_log_compare(struct ng_launch_log *log, const uint64_t counters[NG_LAUNCH_CHANNELS],
                           struct ng_launch_progress *ret_progress)
{
    for (int reads = 0; reads < READS_MAX; reads++) {
        uint64_t changes = atomic_load_explicit(&log->changes, memory_order_acquire);
        uint64_t count = atomic_load_explicit(&log->count, memory_order_acquire);
        uint64_t moved = reads ? MOVED_MAX : 0; /* of a log at rest all launches are read */
        struct ng_launch_progress progress;
        bool good = !(changes & 1) && compare(log, count, moved, counters, &progress);

        atomic_thread_fence(memory_order_acquire);
        if (changes & 1 || NG_LOAD(log->changes) != changes || NG_LOAD(log->count) - count > moved)
            continue; /* the thread that calls NCCL has launched meanwhile */
        if (good)
            *ret_progress = progress;
        return good;
    }
    return false;
}

void ng_launch_log_after_fork(void)
{
    for (uint32_t i = 0; i < NG_COMM_CAPACITY; i++)
        atomic_store(&logs[i], NULL);
}
