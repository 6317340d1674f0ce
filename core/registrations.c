/*
 * The registrations of each communicator: a table of up to 256 segments, and who holds it.
 *
 * Steps 2 and 6. Entered by the program's threads, in calls on a communicator and in frees. Must
 * never call NCCL with a communicator that is condemned or has ended, nor keep a free waiting for
 * longer than a moment.
 */
#include "core/registrations.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "core/abort.h"
#include "core/call.h"
#include "core/clock.h"
#include "core/comm.h"
#include "core/deadline.h"
#include "core/family.h"
#include "core/gpu.h"
#include "core/guard.h"
#include "core/log.h"
#include "core/registration_thread.h"
#include "core/thread.h"
#include "core/watchdog.h"

#define ENTRIES         256u
#define LEAVE_AT_ONCE   64u /* of them, where there is no room: each time the device is waited for */
#define DEFERRED_RANGES 16u
#define FREE_WAIT_NS    (5 * NG_MS)   /* of a free, for a call to come back */
#define ANSWER_WAIT_NS  (500 * NG_MS) /* of a free, in all, for what it frees to be given back */
#define IDLE_WAIT_NS    (250 * NG_MS) /* of a free or a destroy, for the device: some rounds of the watchdog */
#define CLOSE_WAIT_NS   (30 * NG_S)   /* of a call, for the device, at most: see close_wait_ns */
#define GUEST_WAIT_NS   (250 * NG_MS) /* of the program's abort, for a free to come out of NCCL */
#define PEER_WAIT_NS    NG_S          /* a peer that lets a work wait for longer may not answer a free either */
#define LOOKS           64u           /* at a table that changes, before it is held instead */
#define PAUSE_NS        (20 * NG_US)
#define PAUSE_MAX_NS    NG_MS

/*
 * Where registration was seen to be safe, and how. Nothing is registered on a release that is not
 * here: each row was measured.
 */
static const struct {
    int first, last; /* ncclGetVersion */
} safe_for_p2p_alone[] = {
    {22800, 22899}, /* with all buffers of one kind, and given back before the first collective */
};

enum table_state {
    NEW,    /* it is not known yet whether anything may be registered */
    OPEN,
    CLOSED, /* nothing any more */
    ENDED,  /* the communicator is, or is about to be */
};

struct entry {
    /* Who does not hold the table may read these two, while `changes` is even and stays the same. */
    _Atomic uintptr_t base;
    _Atomic size_t bytes;
    void *handle;  /* NULL: not there yet */
    uint64_t used; /* by the clock of the table; the least recent is the first out */
};

struct range {
    uintptr_t base;
    size_t bytes;
};

/* Who has the turn of its communicator's family (core/family.h) may read and write it. */
struct table {
    _Atomic uint32_t generation; /* of the communicator's record */
    _Atomic uint32_t state;
    _Atomic uint32_t count;
    _Atomic uint32_t changes; /* of `count`, and what entries are about; odd: one is under way */
    bool unobserved; /* there was work whose end nobody sees */
    uint64_t clock;
    uint64_t before_group; /* the clock when the open NCCL group had no call on the communicator yet */
    struct entry entries[ENTRIES];

    /* Frees that could not wait. `deferred_lock` protects the ranges, is held for some
     * instructions, and nests inside nothing. */
    atomic_flag deferred_lock;
    atomic_bool deferred;
    bool deferred_in_use;    /* the device may still use one of them */
    uint32_t deferred_count; /* more than there is room for: all that is registered */
    struct range deferred_ranges[DEFERRED_RANGES];
    /* How many frees have asked so far; of how many all is given back; of how many that was tried. */
    uint64_t asked;
    _Atomic uint64_t done, tried;
    atomic_bool retired; /* closed, and what is registered goes when the device is through with it */

    /* Figures, which others may read: in the black box, where there is room. */
    struct ng_box_registrations *told, own;
};

static _Atomic(struct table *) tables[NG_COMM_CAPACITY];
static _Atomic uint32_t table_count; /* tables lie in slots below it */

bool ng_registrations_are_on(void)
{
    return ng_guard.config.register_how != NG_REGISTER_OFF;
}

/* ---- Who holds a table ---- */

static void sleep_ns(int64_t ns)
{
    struct timespec pause = {.tv_sec = ns / NG_S, .tv_nsec = ns % NG_S};
    nanosleep(&pause, NULL);
}

/* An abort has taken it, or is about to: NCCL must not be called with it any more, not even by who is
 * in the middle of several calls. */
static bool is_cut_off(const struct ng_comm *comm)
{
    return ng_comm_is_condemned(comm) || atomic_load(&comm->cut_off);
}

/* Until `until_mono_ns`; 0: for as long as the communicator is not aborted. */
static bool hold(const struct ng_comm *comm, struct ng_family *family, int64_t until_mono_ns)
{
    int64_t pause = PAUSE_NS;

    while (!ng_family_try_hold(family)) {
        if (until_mono_ns ? ng_clock_mono_ns() >= until_mono_ns : is_cut_off(comm))
            return false;
        sleep_ns(pause);
        pause = pause < PAUSE_MAX_NS ? 2 * pause : PAUSE_MAX_NS;
    }
    return true;
}

/* Held by a thread that is not in a call on the communicator: is the table of the one that has the
 * record now, and the turn its? The record may have gone to one of another family while the turn was
 * taken; the family is looked at last, since only then the rest was read under its turn. */
static bool is_of_turn(const struct ng_comm *comm, const struct ng_family *family, const struct table *table)
{
    return atomic_load(&table->generation) == atomic_load(&comm->group->generation) &&
           ng_family_of(comm) == family;
}

/* Around each change of which entries there are. Held. */
static void begin_change(struct table *table)
{
    atomic_fetch_add(&table->changes, 1);
}

static void end_change(struct table *table)
{
    atomic_fetch_add(&table->changes, 1);
}

static void clear_entries(struct table *table)
{
    begin_change(table);
    atomic_store(&table->count, 0);
    end_change(table);
}

static struct table *table_of(const struct ng_comm *comm)
{
    return atomic_load_explicit(&tables[comm->slot], memory_order_acquire);
}

static struct table *make_table(const struct ng_comm *comm)
{
    struct table *expected = NULL, *table;
    uint32_t count = atomic_load(&table_count);

    table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        return NULL;
    table->generation = NG_LOAD(comm->group->generation);
    table->told = comm->slot < ng_guard.box.registration_capacity
                      ? &ng_guard.box.registrations[comm->slot]
                      : &table->own;
    if (!atomic_compare_exchange_strong(&tables[comm->slot], &expected, table)) {
        munmap(table, sizeof(*table));
        return expected;
    }
    while (count <= comm->slot &&
           !atomic_compare_exchange_weak(&table_count, &count, comm->slot + 1))
        ;
    return table;
}

/* Held: figures of the communicator that the table is of now. */
static void tell_new(struct table *table)
{
    struct ng_box_registrations *told = table->told;

    NG_STORE(told->generation, 0);
    atomic_thread_fence(memory_order_release);
    NG_STORE(told->closed, 0);
    NG_STORE(told->segments, 0);
    NG_STORE(told->segment_bytes, 0);
    NG_STORE(told->bytes, 0);
    NG_STORE(told->registered_bytes, 0);
    NG_STORE(told->made, 0);
    NG_STORE(told->ended, 0);
    NG_STORE(told->failed, 0);
    NG_STORE(told->deferred, 0);
    NG_STORE(told->spent_ns, 0);
    atomic_store_explicit(&told->generation, table->generation, memory_order_release);
}

static void lock_deferred(struct table *table)
{
    while (atomic_flag_test_and_set_explicit(&table->deferred_lock, memory_order_acquire))
        sleep_ns(PAUSE_NS);
}

static void unlock_deferred(struct table *table)
{
    atomic_flag_clear_explicit(&table->deferred_lock, memory_order_release);
}

/* Of a communicator that is no more, nothing is left to be given back. */
static void forget_deferred(struct table *table)
{
    lock_deferred(table);
    table->deferred_count = 0;
    table->deferred_in_use = false;
    atomic_store(&table->deferred, false);
    atomic_store(&table->done, table->asked);
    unlock_deferred(table);
}

/* Held: the record may have been given to another communicator since. */
static void know(const struct ng_comm *comm, struct table *table)
{
    uint32_t generation = NG_LOAD(comm->group->generation);

    if (table->generation == generation) {
        if (!NG_LOAD(table->told->generation))
            tell_new(table);
        return;
    }
    table->generation = generation;
    table->unobserved = false;
    table->clock = 0;
    table->before_group = 0;
    clear_entries(table);
    forget_deferred(table);
    atomic_store(&table->retired, false);
    tell_new(table);
    atomic_store(&table->state, NEW);
}

static void count(_Atomic uint64_t *counter, uint64_t more)
{
    NG_STORE(*counter, NG_LOAD(*counter) + more);
}

/* Held: one more, or one less. */
static void tell_now(struct table *table, int more, size_t bytes)
{
    struct ng_box_registrations *told = table->told;

    NG_STORE(told->segments, NG_LOAD(told->segments) + (uint64_t)(int64_t)more);
    NG_STORE(told->segment_bytes, more > 0 ? NG_LOAD(told->segment_bytes) + bytes
                                           : NG_LOAD(told->segment_bytes) - bytes);
}

/* ---- Calls of NCCL ---- */

/* What NCCL must not change for the program's thread, on ways of its own that fail too. */
struct surroundings {
    CUcontext context;
    CUstreamCaptureMode mode;
    bool has_context, relaxed;
    int64_t begun_mono_ns;
};

static struct surroundings begin_call(void)
{
    const struct ng_cuda *cuda = ng_guard_cuda();
    struct surroundings before = {.mode = CU_STREAM_CAPTURE_MODE_RELAXED,
                                  .begun_mono_ns = ng_clock_mono_ns()};

    if (!cuda)
        return before;
    before.has_context = cuda->ctx_get_current(&before.context) == CUDA_SUCCESS;
    /* Another thread may be capturing: whatever NCCL frees or maps is none of that. */
    before.relaxed = ng_gpu_relax_thread(&before.mode);
    return before;
}

static void end_call(struct table *table, struct surroundings *before)
{
    const struct ng_cuda *cuda = ng_guard_cuda();

    if (before->relaxed)
        cuda->thread_exchange_capture_mode(&before->mode);
    if (before->has_context)
        cuda->ctx_set_current(before->context);
    count(&table->told->spent_ns, (uint64_t)(ng_clock_mono_ns() - before->begun_mono_ns));
}

/* Held. */
static void drop_entry(struct table *table, uint32_t index)
{
    uint32_t last = atomic_load(&table->count) - 1;
    struct entry *to = &table->entries[index], *from = &table->entries[last];

    begin_change(table);
    NG_STORE(to->base, NG_LOAD(from->base));
    NG_STORE(to->bytes, NG_LOAD(from->bytes));
    to->handle = from->handle;
    to->used = from->used;
    atomic_store(&table->count, last);
    end_change(table);
}

/*
 * Held. NCCL asks a peer to let go of its mapping, and waits for the answer: for ever, where that is
 * stopped, or until an abort, and then the others must not be touched any more.
 */
static void end_entry(struct ng_comm *comm, struct table *table, uint32_t index)
{
    const struct ng_nccl *nccl = atomic_load(&comm->nccl);
    void *handle = table->entries[index].handle;
    size_t bytes = table->entries[index].bytes;

    if (is_cut_off(comm))
        return;
    drop_entry(table, index);
    tell_now(table, -1, bytes);
    if (!handle)
        return;
    struct surroundings before = begin_call();
    int result = nccl->comm_deregister(atomic_load(&comm->handle), handle);
    end_call(table, &before);
    count(&table->told->ended, 1);
    count(&table->told->failed, result != NG_NCCL_SUCCESS);
}

static bool overlap(const struct entry *entry, const struct range *range)
{
    uintptr_t base = atomic_load_explicit(&entry->base, memory_order_acquire);
    size_t bytes = atomic_load_explicit(&entry->bytes, memory_order_acquire);

    return base < range->base ? range->base - base < bytes : base - range->base < range->bytes;
}

static bool any_overlaps(const struct table *table, const struct range *range)
{
    uint32_t entries = atomic_load(&table->count);
    bool any = false;

    for (uint32_t i = 0; i < entries && !any; i++)
        any = overlap(&table->entries[i], range);
    return any;
}

/* Not held. False: none does, for certain; so the holder need not be waited for. */
static bool may_overlap(const struct table *table, const struct range *range)
{
    for (unsigned looks = 0; looks < LOOKS; looks++) {
        uint32_t before = atomic_load(&table->changes);
        bool any = any_overlaps(table, range);
        if (before % 2 == 0 && atomic_load(&table->changes) == before)
            return any;
    }
    return true;
}

static void end_overlapping(struct ng_comm *comm, struct table *table, const struct range *range)
{
    for (uint32_t i = atomic_load(&table->count); i-- > 0;)
        if (overlap(&table->entries[i], range))
            end_entry(comm, table, i);
}

static void end_all(struct ng_comm *comm, struct table *table)
{
    for (uint32_t i = atomic_load(&table->count); i-- > 0;)
        end_entry(comm, table, i);
}

/*
 * Until the device is through with what was launched on the communicator; its peers are then through
 * with our buffers too. False: it is not, by then. One that is condemned meanwhile will not be
 * touched any more.
 */
static bool await_idle(const struct ng_comm *comm, const struct table *table, int64_t wait_ns)
{
    int64_t until = ng_clock_mono_ns() + wait_ns, pause = PAUSE_NS;
    const struct ng_cuda *cuda = ng_guard_cuda();

    while (ng_comm_has_works(comm)) {
        if (is_cut_off(comm) || ng_clock_mono_ns() >= until)
            return false;
        ng_watchdog_hurry(); /* it sees the end */
        sleep_ns(pause);
        pause = pause < PAUSE_MAX_NS ? 2 * pause : PAUSE_MAX_NS;
    }
    if (!table->unobserved)
        return true;
    return wait_ns > IDLE_WAIT_NS && cuda && cuda->ctx_synchronize &&
           cuda->ctx_synchronize() == CUDA_SUCCESS;
}

/* Of a call that must not reach NCCL while its buffers are registered, or the other way round: not so
 * long that this alone brings it near its deadline. */
static int64_t close_wait_ns(const struct ng_comm *comm)
{
    int64_t timeout_ns = ng_deadline_timeout(comm, NG_OP_NONE);

    if (!timeout_ns || timeout_ns / 2 > CLOSE_WAIT_NS)
        return CLOSE_WAIT_NS;
    return timeout_ns / 2 > 2 * IDLE_WAIT_NS ? timeout_ns / 2 : 2 * IDLE_WAIT_NS;
}

/* ---- What may be registered ---- */

static bool takes_plain_memory(void)
{
    static _Atomic int known = -1;
    int takes = atomic_load_explicit(&known, memory_order_relaxed);

    if (takes < 0) {
        const char *value = getenv("NCCL_LEGACY_CUDA_REGISTER");
        takes = value && strtol(value, NULL, 0) != 0;
        atomic_store(&known, takes);
    }
    return takes;
}

static bool is_eligible(const struct ng_segment *segment)
{
    unsigned alone = NG_SEGMENT_SHAREABLE | NG_SEGMENT_WHOLE;

    switch (segment->kind) {
    case NG_SEGMENT_NCCL:
    case NG_SEGMENT_MAPPED:
        return (segment->flags & alone) == alone && segment->device >= 0;
    case NG_SEGMENT_PLAIN:
        return takes_plain_memory();
    default:
        return false;
    }
}

enum reason {
    NO_FUNCTION,
    NOT_MEASURED,
    NONBLOCKING,
    ELSEWHERE,
    COLLECTIVES,
    CAPTURE,
    MIXED,
    SWITCHED_OFF,
    CROWDED,
    STUCK,
    REASONS
};

static const struct {
    enum ng_log_level level;
    const char *text;
} reasons[REASONS] = {
    [NO_FUNCTION] = {NG_LOG_WARN, "this NCCL cannot register buffers"},
    [NOT_MEASURED] = {NG_LOG_WARN, "it was not tried whether that is safe with this NCCL"},
    [NONBLOCKING] = {NG_LOG_WARN, "it is nonblocking"},
    [ELSEWHERE] = {NG_LOG_WARN, "its NCCL has a CUDA of its own"},
    [COLLECTIVES] = {NG_LOG_INFO, "it is used for collectives, too"},
    [CAPTURE] = {NG_LOG_INFO, "its work goes into CUDA graphs"},
    [MIXED] = {NG_LOG_WARN,
               "it sends or receives memory that NCCL cannot share, too; where this differs between "
               "ranks, transfers do not end: set NCCLGUARD_REGISTER=off"},
    [SWITCHED_OFF] = {NG_LOG_WARN, "NCCL takes no registrations (NCCL_LOCAL_REGISTER=0?)"},
    [CROWDED] = {NG_LOG_WARN, "one NCCL group of it moves more segments than are kept registered"},
    [STUCK] = {NG_LOG_ERROR, "its sends and receives have not ended before a collective begins; they "
                             "stay registered, and that collective may not end"},
};

/* Each reason once a process: there may be thousands of communicators. */
static void tell_closed(const struct ng_comm *comm, enum reason reason)
{
    static atomic_bool told[REASONS];
    char name[160];

    if (atomic_exchange(&told[reason], true))
        return;
    ng_comm_describe(comm, name, sizeof(name));
    ng_log(reasons[reason].level, "NCCLGUARD_REGISTER: the buffers of %s are left alone: %s (said once)",
           name, reasons[reason].text);
}

/* Held, and closed. False: the device is not through with it; it stays. */
static bool end_closed(struct ng_comm *comm, struct table *table)
{
    atomic_store(&table->retired, false);
    if (!atomic_load(&table->count) || is_cut_off(comm))
        return true;
    if (await_idle(comm, table, close_wait_ns(comm)))
        end_all(comm, table);
    else if (!is_cut_off(comm))
        return false;
    return true;
}

/* Held. */
static void close_table(struct ng_comm *comm, struct table *table, enum reason reason)
{
    atomic_store(&table->state, CLOSED);
    NG_STORE(table->told->closed, 1);
    tell_closed(comm, end_closed(comm, table) ? reason : STUCK);
}

static bool is_measured(int version)
{
    for (size_t i = 0; i < sizeof(safe_for_p2p_alone) / sizeof(safe_for_p2p_alone[0]); i++)
        if (version >= safe_for_p2p_alone[i].first && version <= safe_for_p2p_alone[i].last)
            return true;
    return false;
}

/* Held: whether anything may be registered on it. */
static bool open_table(struct ng_comm *comm, struct table *table)
{
    const struct ng_nccl *nccl = atomic_load(&comm->nccl);
    enum reason reason;

    if (atomic_load(&table->state) != NEW)
        return atomic_load(&table->state) == OPEN;
    if (!nccl->comm_register || !nccl->comm_deregister)
        reason = NO_FUNCTION;
    else if (!is_measured(nccl->version))
        reason = NOT_MEASURED;
    else if (atomic_load(&comm->nonblocking))
        reason = NONBLOCKING;
    else if (nccl->foreign)
        reason = ELSEWHERE;
    else if (NG_LOAD(comm->group->entered) > 0)
        reason = COLLECTIVES;
    else {
        atomic_store(&table->state, OPEN);
        return true;
    }
    close_table(comm, table, reason);
    return false;
}

/*
 * Held: those that were used longest ago go. False: they cannot, now. NCCL looks for the buffers of
 * an open group at its end, where both sides of each transfer must still be alike: what it holds may
 * not go, unless all do.
 */
static bool make_room(struct ng_comm *comm, struct table *table)
{
    uint32_t in_group = 0;

    if (atomic_load(&table->count) < ENTRIES)
        return true;
    for (uint32_t i = 0; i < ENTRIES; i++)
        in_group += table->entries[i].used > table->before_group;
    if (in_group > ENTRIES - LEAVE_AT_ONCE) {
        close_table(comm, table, CROWDED);
        return false;
    }
    if (!await_idle(comm, table, close_wait_ns(comm)))
        return false;
    for (unsigned left = 0; left < LEAVE_AT_ONCE && !is_cut_off(comm); left++) {
        uint32_t oldest = 0;
        for (uint32_t i = 1; i < atomic_load(&table->count); i++)
            if (table->entries[i].used < table->entries[oldest].used)
                oldest = i;
        end_entry(comm, table, oldest);
    }
    return !is_cut_off(comm);
}

/* Held, and open. `is_there`: it cannot be freed meanwhile. */
static bool register_segment(struct ng_comm *comm, struct table *table,
                             const struct ng_segment *segment, bool is_there)
{
    const struct ng_nccl *nccl = atomic_load(&comm->nccl);
    void *handle = NULL; /* NCCL may succeed and not write it */
    struct ng_segment now;

    if (!make_room(comm, table) || is_cut_off(comm))
        return false;
    /* Before NCCL knows: who frees it from here on waits. */
    uint32_t index = atomic_load(&table->count);
    begin_change(table);
    NG_STORE(table->entries[index].base, segment->base);
    NG_STORE(table->entries[index].bytes, segment->bytes);
    table->entries[index].handle = NULL;
    table->entries[index].used = ++table->clock;
    atomic_store(&table->count, index + 1);
    end_change(table);
    /* And who was freeing it has taken it out of the map first. */
    if (!is_there && (!ng_segments_find((const void *)segment->base, &now) ||
                      now.base != segment->base || now.bytes != segment->bytes)) {
        drop_entry(table, index);
        return false;
    }
    struct surroundings before = begin_call();
    int result = nccl->comm_register(atomic_load(&comm->handle), (void *)segment->base,
                                     segment->bytes, &handle);
    end_call(table, &before);
    if (result != NG_NCCL_SUCCESS || !handle) {
        drop_entry(table, index);
        count(&table->told->failed, 1);
        close_table(comm, table, result == NG_NCCL_SUCCESS ? SWITCHED_OFF : MIXED);
        return false;
    }
    table->entries[index].handle = handle;
    tell_now(table, 1, segment->bytes);
    count(&table->told->made, 1);
    return true;
}

static struct entry *find_entry(struct table *table, uintptr_t address, uint64_t bytes)
{
    uint32_t entries = atomic_load_explicit(&table->count, memory_order_relaxed);

    for (uint32_t i = 0; i < entries; i++) {
        struct entry *entry = &table->entries[i];
        uintptr_t at = address - NG_LOAD(entry->base);
        if (at < NG_LOAD(entry->bytes) && bytes <= NG_LOAD(entry->bytes) - at)
            return entry;
    }
    return NULL;
}

static bool is_captured(void *stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    const struct ng_cuda *cuda = ng_guard_cuda();

    return cuda && (cuda->stream_is_capturing(stream, &status) != CUDA_SUCCESS ||
                    status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Held, and open: the buffer of a send or receive. */
static void use_buffer(struct ng_comm *comm, struct table *table, const struct ng_call *call)
{
    const void *buffer = call->send_buffer ? call->send_buffer : call->recv_buffer;
    uint64_t bytes = call->count * ng_dtype_bytes(call->dtype);
    struct ng_segment segment;

    /* Of what goes to itself, or nowhere, NCCL asks no registration. */
    if (!bytes || !buffer || call->root == NG_LOAD(comm->group->group_rank))
        return;
    if (is_captured(call->stream)) {
        close_table(comm, table, CAPTURE);
        return;
    }
    count(&table->told->bytes, bytes);
    int device = NG_LOAD(comm->group->device);
    struct entry *entry = find_entry(table, (uintptr_t)buffer, bytes);
    if (!entry) {
        if (!ng_segments_find(buffer, &segment) || !is_eligible(&segment) ||
            (device >= 0 && segment.device >= 0 && segment.device != device) ||
            bytes > segment.bytes - ((uintptr_t)buffer - segment.base)) {
            close_table(comm, table, MIXED);
            return;
        }
        if (!register_segment(comm, table, &segment, true))
            return;
        entry = &table->entries[atomic_load(&table->count) - 1];
    }
    entry->used = ++table->clock;
    count(&table->told->registered_bytes, bytes);
}

/* ---- Frees that could not wait ---- */

/* Ask for it. The number of the question. */
static uint64_t defer(struct table *table, const struct range *range, bool in_use)
{
    lock_deferred(table);
    if (table->deferred_count < DEFERRED_RANGES)
        table->deferred_ranges[table->deferred_count] = *range;
    if (table->deferred_count <= DEFERRED_RANGES)
        table->deferred_count++;
    table->deferred_in_use |= in_use;
    atomic_store(&table->deferred, true);
    uint64_t number = ++table->asked;
    unlock_deferred(table);
    return number;
}

/* What was asked for so far. */
struct deferral {
    uint64_t asked;
    uint32_t count;
    bool in_use;
    struct range ranges[DEFERRED_RANGES];
};

static struct deferral read_deferred(struct table *table)
{
    struct deferral deferral;

    lock_deferred(table);
    deferral.asked = table->asked;
    deferral.count = table->deferred_count;
    deferral.in_use = table->deferred_in_use;
    memcpy(deferral.ranges, table->deferred_ranges, sizeof(deferral.ranges));
    unlock_deferred(table);
    return deferral;
}

/* False: more was asked for since. */
static bool take_deferred(struct table *table, const struct deferral *deferral)
{
    lock_deferred(table);
    bool same = table->asked == deferral->asked;
    if (same) {
        table->deferred_count = 0;
        table->deferred_in_use = false;
        atomic_store(&table->deferred, false);
    }
    unlock_deferred(table);
    return same;
}

/* Held. `waits`: for the device, as calls do. False: it is not through with what is to go. */
static bool catch_up(struct ng_comm *comm, struct table *table, bool waits)
{
    struct deferral deferral;
    bool all;

    if (!atomic_load(&table->deferred))
        return true;
    do {
        deferral = read_deferred(table);
        /* Where all go, also what was not freed: the device may be in the middle of it. What a free
         * has not waited for is freed by now, or the driver waits for the device itself. */
        all = deferral.count > DEFERRED_RANGES;
        bool busy = all || takes_plain_memory() || (deferral.in_use && !waits);
        if (busy && !await_idle(comm, table, waits ? close_wait_ns(comm) : IDLE_WAIT_NS))
            return false;
        if (is_cut_off(comm))
            return false;
    } while (!take_deferred(table, &deferral));
    if (all)
        end_all(comm, table);
    for (uint32_t i = 0; i < deferral.count && !all; i++)
        end_overlapping(comm, table, &deferral.ranges[i]);
    atomic_store(&table->done, deferral.asked);
    return true;
}

/* Held: all of it is NCCL's to free now. */
static void drop_all(struct table *table)
{
    clear_entries(table);
    NG_STORE(table->told->segments, 0);
    NG_STORE(table->told->segment_bytes, 0);
    atomic_store(&table->deferred, false);
    atomic_store(&table->retired, false);
}

/* Held, as a guest: the program is not ending it, and it has its handle. */
static bool lives(const struct ng_comm *comm)
{
    return atomic_load(&comm->fate) == NG_FATE_LIVES && atomic_load(&comm->handle);
}

/* No deadline watches a free: it must not ask who answers nobody. */
static bool peers_answer(const struct ng_comm *comm)
{
    const struct ng_box_group *group = comm->group;

    return NG_LOAD(group->async_error) == NG_NCCL_SUCCESS &&
           !(NG_LOAD(group->pending_record) && NG_LOAD(group->pending_age_ns) > PEER_WAIT_NS);
}

/* Held: on the guard's thread. False: not now. */
static bool serve_held(struct ng_comm *comm, struct ng_family *family, struct table *table)
{
    struct ng_comm *guest;
    bool done = true;

    if (!is_of_turn(comm, family, table) || atomic_load(&table->state) == ENDED)
        return true;
    /* As a guest it is waited for before the guard aborts the communicator. */
    if (ng_abort_visit(atomic_load(&comm->handle), NULL, &guest) != NG_CALL_PROCEED) {
        drop_all(table);
        return true;
    }
    if (guest == comm && lives(comm)) {
        done = peers_answer(comm) && catch_up(comm, table, false);
        if (done && atomic_load(&table->retired)) {
            done = !table->unobserved && await_idle(comm, table, 0);
            if (done)
                end_all(comm, table);
            atomic_store(&table->retired, !done);
        }
    }
    ng_abort_left(guest);
    return done;
}

static bool serve(struct ng_comm *comm, struct table *table)
{
    struct ng_family *family = ng_family_of(comm);
    uint64_t asked = read_deferred(table).asked;
    bool done = false;

    if (hold(comm, family, ng_clock_mono_ns() + FREE_WAIT_NS)) {
        ng_registration_thread_begin();
        done = serve_held(comm, family, table);
        ng_registration_thread_end();
        ng_family_let_go(family);
    }
    atomic_store(&table->tried, asked);
    return done;
}

static bool serve_all(void)
{
    uint32_t tables_used = atomic_load_explicit(&table_count, memory_order_acquire);
    bool left = false;

    for (uint32_t slot = 0; slot < tables_used; slot++) {
        struct table *table = atomic_load_explicit(&tables[slot], memory_order_acquire);
        if (table && (atomic_load(&table->deferred) || atomic_load(&table->retired)))
            left |= !serve(ng_comm_at(slot), table);
    }
    return left;
}

int ng_registrations_start(void)
{
    return ng_registration_thread_start(serve_all);
}

/* What the thread has been at for so long does not come back soon. */
static bool is_stuck(void)
{
    int64_t busy = ng_registration_thread_busy_mono_ns();

    return busy && ng_clock_mono_ns() - busy > ANSWER_WAIT_NS;
}

/* A free goes on without what it has asked for, sooner or later: the memory of what NCCL can share
 * stays until the last of its mappings goes, and NCCL looks at the registration no more. */
static void await_given_back(struct table *table, uint64_t number, int64_t until_mono_ns)
{
    int64_t pause = PAUSE_NS;

    while (atomic_load(&table->done) < number) {
        if (atomic_load(&table->tried) >= number || ng_clock_mono_ns() >= until_mono_ns || is_stuck()) {
            atomic_fetch_add(&table->told->deferred, 1);
            return;
        }
        sleep_ns(pause);
        pause = pause < PAUSE_MAX_NS ? 2 * pause : PAUSE_MAX_NS;
    }
}

void ng_registrations_forget(uintptr_t base, size_t bytes, bool in_use)
{
    uint32_t tables_used = atomic_load_explicit(&table_count, memory_order_acquire);
    struct range range = {base, bytes};
    int64_t until = 0;
    int saved = errno;

    for (uint32_t slot = 0; slot < tables_used; slot++) {
        struct table *table = atomic_load_explicit(&tables[slot], memory_order_acquire);
        if (!table || !may_overlap(table, &range))
            continue;
        if (!until)
            until = ng_clock_mono_ns() + ANSWER_WAIT_NS; /* for all together */
        uint64_t number = defer(table, &range, in_use);
        await_given_back(table, number, ng_registration_thread_ask() ? until : 0);
    }
    errno = saved;
}

/* ---- Calls ---- */

/* A buffer of as many elements from, or for, each rank: no operation has more. */
static bool touches_buffer(const struct ng_comm *comm, const struct table *table, const struct ng_call *call,
                           const void *buffer)
{
    int nranks = NG_LOAD(comm->group->nranks);
    struct range range = {(uintptr_t)buffer,
                          call->count * ng_dtype_bytes(call->dtype) * (nranks > 0 ? (uint64_t)nranks : 1)};

    return buffer && any_overlaps(table, &range);
}

/* Held: does a collective use what is registered, or may it? */
static bool touches(const struct ng_comm *comm, const struct table *table, const struct ng_call *call)
{
    switch (call->op) {
    case NG_OP_AllReduce:
    case NG_OP_Reduce:
    case NG_OP_Broadcast:
    case NG_OP_AllGather:
    case NG_OP_ReduceScatter:
    case NG_OP_AlltoAll:
    case NG_OP_Gather:
    case NG_OP_Scatter:
        return !call->count || !ng_dtype_bytes(call->dtype) || NG_LOAD(comm->group->nranks) <= 0 ||
               touches_buffer(comm, table, call, call->send_buffer) ||
               touches_buffer(comm, table, call, call->recv_buffer);
    default:
        return true;
    }
}

/*
 * Held: a collective. From now on nothing is registered, on any rank; what is goes at once where the
 * collective, or what is in its NCCL group already, would meet it, and that waits for the device.
 * Else it goes when the device is through with it, and before the next send or receive at the latest:
 * those want it alike on all ranks.
 */
static void meet_collective(struct ng_comm *comm, struct table *table, const struct ng_call *call)
{
    bool grouped = atomic_load(&comm->open_groups) && table->clock > table->before_group;

    if (atomic_load(&table->state) <= OPEN && (grouped || touches(comm, table, call))) {
        close_table(comm, table, COLLECTIVES);
    } else if (atomic_load(&table->state) <= OPEN) {
        atomic_store(&table->state, CLOSED);
        NG_STORE(table->told->closed, 1);
        tell_closed(comm, COLLECTIVES);
        if (atomic_load(&table->count)) {
            atomic_store(&table->retired, true);
            ng_registration_thread_ask();
        }
    } else if (atomic_load(&table->retired) && touches(comm, table, call) && !end_closed(comm, table)) {
        tell_closed(comm, STUCK);
    }
}

bool ng_registrations_enter(struct ng_comm *comm, const struct ng_call *call, bool p2p)
{
    struct ng_family *family = ng_family_of(comm);
    struct table *table = table_of(comm);

    if (!table && (!p2p || !(table = make_table(comm))) && !atomic_load(&family->shared))
        return true;
    if (!hold(comm, family, 0))
        return !atomic_load(&comm->cut_off);
    if (!table)
        return true;
    know(comm, table);
    if (is_cut_off(comm))
        return !atomic_load(&comm->cut_off);
    if (!atomic_load(&comm->open_groups))
        table->before_group = table->clock;
    catch_up(comm, table, true);
    if (!p2p) {
        meet_collective(comm, table, call);
    } else if (open_table(comm, table)) {
        use_buffer(comm, table, call);
    } else if (atomic_load(&table->state) == CLOSED) {
        if (atomic_load(&table->retired) && !end_closed(comm, table))
            tell_closed(comm, STUCK);
        count(&table->told->bytes, call->count * ng_dtype_bytes(call->dtype));
    }
    return !atomic_load(&comm->cut_off);
}

void ng_registrations_leave(struct ng_comm *comm, bool observed)
{
    struct ng_family *family = ng_family_of(comm);
    struct table *table = table_of(comm);

    if (!ng_family_is_mine(family))
        return;
    if (table)
        table->unobserved |= !observed;
    ng_family_let_go(family);
}

bool ng_registrations_hold(struct ng_comm *comm)
{
    struct table *table = comm ? table_of(comm) : NULL;

    if (!comm || !(table || atomic_load(&ng_family_of(comm)->shared)))
        return true;
    if (!hold(comm, ng_family_of(comm), 0))
        return false;
    if (table)
        know(comm, table);
    return true;
}

void ng_registrations_let_go(struct ng_comm *comm)
{
    struct ng_family *family = comm ? ng_family_of(comm) : NULL;

    if (family && ng_family_is_mine(family))
        ng_family_let_go(family);
}

void ng_registrations_enter_group(const struct ng_group_calls *calls)
{
    for (uint32_t i = 0; i < calls->pending_count; i++)
        ng_registrations_hold(calls->pending[i].comm);
    for (uint32_t i = 0; i < calls->created_count; i++)
        ng_registrations_hold(calls->created[i].comm);
}

void ng_registrations_leave_group(const struct ng_group_calls *calls)
{
    for (uint32_t i = 0; i < calls->pending_count; i++)
        ng_registrations_leave(calls->pending[i].comm, calls->pending[i].work != NULL);
    for (uint32_t i = 0; i < calls->created_count; i++)
        ng_registrations_let_go(calls->created[i].comm);
}

/* ---- All there is, on all there are (`eager`) ---- */

static bool is_meant(const struct ng_comm *comm, const struct ng_segment *segment)
{
    return is_eligible(segment) && segment->device == NG_LOAD(comm->group->device);
}

void ng_registrations_made(struct ng_comm *comm)
{
    struct ng_segment segment = {0};
    struct ng_comm *guest;
    uintptr_t from = 0;

    if (ng_guard.config.register_how != NG_REGISTER_EAGER)
        return;
    struct ng_family *family = ng_family_of(comm);
    struct table *table = table_of(comm);
    if (!table && !(table = make_table(comm)))
        return;
    if (!hold(comm, family, 0))
        return;
    know(comm, table);
    /* The call that made it is over for its thread's slot: a guest, so that an abort waits. */
    bool lives_on = ng_abort_visit(atomic_load(&comm->handle), NULL, &guest) == NG_CALL_PROCEED;
    while (lives_on && guest == comm && !is_cut_off(comm) && open_table(comm, table) &&
           atomic_load(&table->count) < ENTRIES && ng_segments_next(from, &segment)) {
        if (is_meant(comm, &segment))
            register_segment(comm, table, &segment, false);
        from = segment.base + 1;
    }
    ng_abort_left(guest);
    ng_family_let_go(family);
}

static void add_to(struct ng_comm *comm, const struct ng_family *family, struct table *table,
                   const struct ng_segment *segment)
{
    struct ng_comm *guest;

    if (!is_of_turn(comm, family, table) || atomic_load(&table->state) != OPEN || !is_meant(comm, segment) ||
        atomic_load(&table->count) == ENTRIES || atomic_load(&table->deferred))
        return;
    if (ng_abort_visit(atomic_load(&comm->handle), NULL, &guest) != NG_CALL_PROCEED)
        return;
    if (guest == comm && lives(comm))
        register_segment(comm, table, segment, true);
    ng_abort_left(guest);
}

/* Where a call is under way, the segment is registered when it is first used. */
void ng_registrations_added(const struct ng_segment *segment)
{
    uint32_t tables_used = atomic_load_explicit(&table_count, memory_order_acquire);
    int saved = errno;

    if (ng_guard.config.register_how != NG_REGISTER_EAGER || !is_eligible(segment))
        return;
    for (uint32_t slot = 0; slot < tables_used; slot++) {
        struct table *table = atomic_load_explicit(&tables[slot], memory_order_acquire);
        if (!table || atomic_load(&table->state) != OPEN)
            continue;
        struct ng_family *family = ng_family_of(ng_comm_at(slot));
        if (!ng_family_try_hold(family))
            continue;
        add_to(ng_comm_at(slot), family, table, segment);
        ng_family_let_go(family);
    }
    errno = saved;
}

/* ---- The end ---- */

struct ng_family *ng_registrations_end(struct ng_comm *comm, bool orderly)
{
    struct ng_family *family = ng_family_of(comm);
    struct table *table = table_of(comm);
    int64_t wait_ns = atomic_load(&comm->guests) ? GUEST_WAIT_NS : FREE_WAIT_NS;
    bool keeps = orderly && atomic_load(&family->shared);

    if ((!table && !keeps) || !hold(comm, family, orderly ? 0 : ng_clock_mono_ns() + wait_ns))
        return NULL;
    if (table && table->generation == NG_LOAD(comm->group->generation)) {
        /* What the device is not through with, or a peer may not answer for, NCCL ends itself. */
        if (orderly && !ng_comm_is_condemned(comm) &&
            NG_LOAD(comm->group->async_error) == NG_NCCL_SUCCESS &&
            atomic_load(&table->count) && await_idle(comm, table, IDLE_WAIT_NS))
            end_all(comm, table);
        drop_all(table);
        atomic_store(&table->state, ENDED);
    }
    if (keeps)
        return family;
    ng_family_let_go(family);
    return NULL;
}

bool ng_registrations_count(const struct ng_comm *comm, struct ng_registration_count *ret_count)
{
    const struct table *table = table_of(comm);

    if (!table || table->generation != NG_LOAD(comm->group->generation))
        return false;
    const struct ng_box_registrations *told = table->told;
    *ret_count = (struct ng_registration_count){
        .bytes = NG_LOAD(told->bytes),
        .registered_bytes = NG_LOAD(told->registered_bytes),
        .made = NG_LOAD(told->made),
        .ended = NG_LOAD(told->ended),
        .failed = NG_LOAD(told->failed),
        .deferred = NG_LOAD(told->deferred),
        .spent_ns = NG_LOAD(told->spent_ns),
        .now = NG_LOAD(table->count),
        .closed = NG_LOAD(table->state) == CLOSED,
    };
    return true;
}

void ng_registrations_after_fork(void)
{
    for (uint32_t slot = 0; slot < atomic_load(&table_count); slot++)
        atomic_store(&tables[slot], NULL);
    atomic_store(&table_count, 0);
    ng_registration_thread_after_fork();
    ng_family_after_fork();
}
