/*
 * The registrations of each communicator: their ownership, registering and deregistering with NCCL,
 * and closing a communicator's table permanently.
 *
 * Entered by the program's threads, in calls on a communicator and in frees, and by the
 * deregistration thread. Must never call NCCL with a communicator that is condemned or has ended,
 * nor let such a call change the context or the capture mode of the thread.
 */
#include "core/registration/registration_table.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "core/comm/comm.h"
#include "core/comm/deadline.h"
#include "core/comm/shared_resources.h"
#include "core/device/gpu.h"
#include "core/registration/segment_map.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define LEAVE_AT_ONCE                                                                              \
    64u /* entries removed together if there is no room: each time waits for the device */
#define CLOSE_WAIT_NS                                                                              \
    (30 * NG_S) /* of a call, for the device, at most: see ng_registration_table_close_wait_ns */
#define PEER_WAIT_NS NG_S /* a peer that blocks a work for longer may not answer either */
#define LOOKS        64u  /* attempts to read a changing table, before taking it */

static _Atomic(struct ng_registration_table *) tables[NG_COMM_CAPACITY] NG_LARGE;
static _Atomic uint32_t table_count;         /* all tables are in slots below it */
static _Atomic uint64_t all_made, all_ended; /* including records that were reused since */

/* ---- Holding a table ---- */

bool ng_registration_table_is_cut_off(const struct ng_comm *comm)
{
    return ng_comm_is_condemned(comm) || atomic_load(&comm->cut_off);
}

bool ng_registration_table_lives(const struct ng_comm *comm)
{
    return atomic_load(&comm->fate) == NG_FATE_LIVES && atomic_load(&comm->handle);
}

bool ng_registration_table_hold(const struct ng_comm *comm, struct ng_shared_resources *sharing,
                                int64_t until_mono_ns)
{
    int64_t pause = NG_REGISTRATION_PAUSE_NS;

    while (!ng_shared_resources_try_hold(sharing)) {
        if (until_mono_ns ? ng_clock_mono_ns() >= until_mono_ns
                          : ng_registration_table_is_cut_off(comm))
            return false;
        ng_clock_sleep(pause);
        pause = pause < NG_REGISTRATION_PAUSE_MAX_NS ? 2 * pause : NG_REGISTRATION_PAUSE_MAX_NS;
    }
    return true;
}

/* The record may have been reused for another family while the turn was taken. The family is
 * checked last: only if it matches was the rest read under its turn. */
bool ng_registration_table_is_of_turn(const struct ng_comm *comm,
                                      const struct ng_shared_resources *sharing,
                                      const struct ng_registration_table *table)
{
    return atomic_load(&table->generation) == atomic_load(&comm->group->generation) &&
           ng_shared_resources_of(comm) == sharing;
}

/* Begin and end each change to the set of entries. Held. */
static void begin_change(struct ng_registration_table *table)
{
    atomic_fetch_add(&table->changes, 1);
}

static void end_change(struct ng_registration_table *table)
{
    atomic_fetch_add(&table->changes, 1);
}

void ng_registration_table_clear(struct ng_registration_table *table)
{
    begin_change(table);
    atomic_store(&table->count, 0);
    end_change(table);
}

/* ---- Tables ---- */

struct ng_registration_table *ng_registration_table_of(const struct ng_comm *comm)
{
    return atomic_load_explicit(&tables[comm->slot], memory_order_acquire);
}

struct ng_registration_table *ng_registration_table_make(const struct ng_comm *comm)
{
    struct ng_registration_table *expected = NULL, *table;
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

struct ng_registration_table *ng_registration_table_at(uint32_t slot)
{
    return atomic_load_explicit(&tables[slot], memory_order_acquire);
}

uint32_t ng_registration_table_slots(void)
{
    return atomic_load_explicit(&table_count, memory_order_acquire);
}

void ng_registration_table_after_fork(void)
{
    for (uint32_t slot = 0; slot < atomic_load(&table_count); slot++)
        atomic_store(&tables[slot], NULL);
    atomic_store(&table_count, 0);
    atomic_store(&all_made, 0);
    atomic_store(&all_ended, 0);
}

/* ---- Figures ---- */

void ng_registration_table_tell_new(struct ng_registration_table *table)
{
    struct ng_box_registrations *told = table->told;

    NG_STORE(told->generation, 0);
    atomic_thread_fence(memory_order_release);
    NG_STORE(told->closed, 0);
#define CLEAR(count) NG_STORE(told->count, 0);
    NG_REGISTRATION_COUNTS(CLEAR)
    atomic_store_explicit(&told->generation, table->generation, memory_order_release);
}

void ng_registration_table_count(_Atomic uint64_t *counter, uint64_t more)
{
    NG_STORE(*counter, NG_LOAD(*counter) + more);
}

void ng_registration_table_total(uint64_t *ret_made, uint64_t *ret_ended)
{
    *ret_ended = atomic_load(&all_ended);
    *ret_made = atomic_load(&all_made);
}

/* Held: count one more, or one less. */
static void tell_now(struct ng_registration_table *table, int more, size_t bytes)
{
    struct ng_box_registrations *told = table->told;

    NG_STORE(told->segments, NG_LOAD(told->segments) + (uint64_t)(int64_t)more);
    NG_STORE(told->segment_bytes, more > 0 ? NG_LOAD(told->segment_bytes) + bytes
                                           : NG_LOAD(told->segment_bytes) - bytes);
}

/* ---- Calls of NCCL ---- */

/* State of the program's thread that NCCL must not change, even on its error paths. */
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
    /* Another thread may be capturing: what NCCL frees or maps must not affect that. */
    before.relaxed = ng_gpu_relax_thread(&before.mode);
    return before;
}

static void end_call(struct ng_registration_table *table, struct surroundings *before)
{
    const struct ng_cuda *cuda = ng_guard_cuda();

    if (before->relaxed)
        cuda->thread_exchange_capture_mode(&before->mode);
    if (before->has_context)
        cuda->ctx_set_current(before->context);
    ng_registration_table_count(&table->told->spent_ns,
                                (uint64_t)(ng_clock_mono_ns() - before->begun_mono_ns));
}

/* Held. */
static void drop_entry(struct ng_registration_table *table, uint32_t index)
{
    uint32_t last = atomic_load(&table->count) - 1;
    struct ng_registration_entry *to = &table->entries[index], *from = &table->entries[last];

    begin_change(table);
    NG_STORE(to->base, NG_LOAD(from->base));
    NG_STORE(to->bytes, NG_LOAD(from->bytes));
    to->handle = from->handle;
    to->used = from->used;
    atomic_store(&table->count, last);
    end_change(table);
}

/*
 * Held. NCCL asks a peer to release its mapping, and waits for the answer: if the peer is stopped,
 * for ever or until an abort; after an abort, the other entries must not be touched any more.
 */
static void end_entry(struct ng_comm *comm, struct ng_registration_table *table, uint32_t index)
{
    const struct ng_nccl *nccl = atomic_load(&comm->nccl);
    void *handle = table->entries[index].handle;
    size_t bytes = table->entries[index].bytes;

    if (ng_registration_table_is_cut_off(comm))
        return;
    drop_entry(table, index);
    tell_now(table, -1, bytes);
    if (!handle)
        return;
    struct surroundings before = begin_call();
    int result = nccl->comm_deregister(atomic_load(&comm->handle), handle);
    end_call(table, &before);
    ng_registration_table_count(&table->told->ended, 1);
    atomic_fetch_add(&all_ended, 1);
    ng_registration_table_count(&table->told->failed, result != NG_NCCL_SUCCESS);
}

static bool overlap(const struct ng_registration_entry *entry,
                    const struct ng_registration_range *range)
{
    uintptr_t base = atomic_load_explicit(&entry->base, memory_order_acquire);
    size_t bytes = atomic_load_explicit(&entry->bytes, memory_order_acquire);

    return base < range->base ? range->base - base < bytes : base - range->base < range->bytes;
}

bool ng_registration_table_any_overlaps(const struct ng_registration_table *table,
                                        const struct ng_registration_range *range)
{
    return NG_ANY(entry, table->entries, atomic_load(&table->count), overlap(entry, range));
}

bool ng_registration_table_may_overlap(const struct ng_registration_table *table,
                                       const struct ng_registration_range *range)
{
    for (unsigned looks = 0; looks < LOOKS; looks++) {
        uint32_t before = atomic_load(&table->changes);
        bool any = ng_registration_table_any_overlaps(table, range);
        if (before % 2 == 0 && atomic_load(&table->changes) == before)
            return any;
    }
    return true;
}

void ng_registration_table_end_overlapping(struct ng_comm *comm,
                                           struct ng_registration_table *table,
                                           const struct ng_registration_range *range)
{
    for (uint32_t i = atomic_load(&table->count); i-- > 0;)
        if (overlap(&table->entries[i], range))
            end_entry(comm, table, i);
}

void ng_registration_table_end_all(struct ng_comm *comm, struct ng_registration_table *table)
{
    for (uint32_t i = atomic_load(&table->count); i-- > 0;)
        end_entry(comm, table, i);
}

bool ng_registration_table_await_idle(const struct ng_comm *comm,
                                      const struct ng_registration_table *table, int64_t wait_ns)
{
    int64_t until = ng_clock_mono_ns() + wait_ns, pause = NG_REGISTRATION_PAUSE_NS;
    const struct ng_cuda *cuda = ng_guard_cuda();

    while (ng_comm_has_works(comm)) {
        if (ng_registration_table_is_cut_off(comm) || ng_clock_mono_ns() >= until)
            return false;
        ng_wake_watchdog(); /* its round detects the end */
        ng_clock_sleep(pause);
        pause = pause < NG_REGISTRATION_PAUSE_MAX_NS ? 2 * pause : NG_REGISTRATION_PAUSE_MAX_NS;
    }
    if (!table->unobserved)
        return true;
    return wait_ns > NG_REGISTRATION_IDLE_WAIT_NS && cuda && cuda->ctx_synchronize &&
           cuda->ctx_synchronize() == CUDA_SUCCESS;
}

bool ng_registration_table_peers_answer(const struct ng_comm *comm)
{
    const struct ng_box_group *group = comm->group;

    return NG_LOAD(group->async_error) == NG_NCCL_SUCCESS &&
           !(NG_LOAD(group->pending_record) && NG_LOAD(group->pending_age_ns) > PEER_WAIT_NS);
}

/* Short enough not to bring the call near its deadline by itself. */
int64_t ng_registration_table_close_wait_ns(const struct ng_comm *comm)
{
    int64_t timeout_ns = ng_deadline_timeout(comm, NG_OP_NONE);

    if (!timeout_ns || timeout_ns / 2 > CLOSE_WAIT_NS)
        return CLOSE_WAIT_NS;
    return timeout_ns / 2 > 2 * NG_REGISTRATION_IDLE_WAIT_NS ? timeout_ns / 2
                                                             : 2 * NG_REGISTRATION_IDLE_WAIT_NS;
}

bool ng_registration_table_takes_plain_memory(void)
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

/* ---- Closing ---- */

static const struct {
    enum ng_log_level level;
    const char *text;
} reasons[NG_CLOSED_REASONS] = {
    [NG_CLOSED_NO_FUNCTION] = {NG_LOG_WARN, "this NCCL cannot register buffers"},
    [NG_CLOSED_NOT_MEASURED] = {NG_LOG_WARN,
                                "it was not tried whether that is safe with this NCCL"},
    [NG_CLOSED_NONBLOCKING] = {NG_LOG_WARN, "it is nonblocking"},
    [NG_CLOSED_ELSEWHERE] = {NG_LOG_WARN, "its NCCL has a CUDA of its own"},
    [NG_CLOSED_COLLECTIVES] = {NG_LOG_INFO, "it is used for collectives, too"},
    [NG_CLOSED_CAPTURE] = {NG_LOG_INFO, "its work goes into CUDA graphs"},
    [NG_CLOSED_MIXED] =
        {NG_LOG_WARN,
         "it sends or receives memory that NCCL cannot share, too; where this differs between "
         "ranks, transfers do not end: set NCCLGUARD_REGISTER=off"},
    [NG_CLOSED_SWITCHED_OFF] = {NG_LOG_WARN,
                                "NCCL takes no registrations (NCCL_LOCAL_REGISTER=0?)"},
    [NG_CLOSED_CROWDED] = {NG_LOG_WARN,
                           "one NCCL group of it moves more segments than are kept registered"},
    [NG_CLOSED_STUCK] = {NG_LOG_ERROR,
                         "its sends and receives have not ended before a collective begins; they "
                         "stay registered, and that collective may not end"},
};

void ng_registration_table_tell_closed(const struct ng_comm *comm,
                                       enum ng_registration_reason reason)
{
    static atomic_bool told[NG_CLOSED_REASONS];
    char name[160];

    if (atomic_exchange(&told[reason], true))
        return;
    ng_comm_describe(comm, name, sizeof(name));
    ng_log(reasons[reason].level,
           "NCCLGUARD_REGISTER: the buffers of %s are left alone: %s (said once)", name,
           reasons[reason].text);
}

bool ng_registration_table_end_closed(struct ng_comm *comm, struct ng_registration_table *table)
{
    atomic_store(&table->retired, false);
    if (!atomic_load(&table->count) || ng_registration_table_is_cut_off(comm))
        return true;
    if (ng_registration_table_await_idle(comm, table, ng_registration_table_close_wait_ns(comm)))
        ng_registration_table_end_all(comm, table);
    else if (!ng_registration_table_is_cut_off(comm))
        return false;
    return true;
}

void ng_registration_table_close(struct ng_comm *comm, struct ng_registration_table *table,
                                 enum ng_registration_reason reason)
{
    atomic_store(&table->state, NG_REGISTRATION_CLOSED);
    NG_STORE(table->told->closed, 1);
    ng_registration_table_tell_closed(
        comm, ng_registration_table_end_closed(comm, table) ? reason : NG_CLOSED_STUCK);
}

/* ---- Registering ---- */

/*
 * Held: remove the least recently used entries. False: not possible now. NCCL looks up the buffers
 * of an open group at its end, when both sides of each transfer must still match: so buffers of the
 * group may be removed only if all are.
 */
static bool make_room(struct ng_comm *comm, struct ng_registration_table *table)
{
    uint32_t in_group = 0;

    if (atomic_load(&table->count) < NG_REGISTRATION_ENTRIES)
        return true;
    for (uint32_t i = 0; i < NG_REGISTRATION_ENTRIES; i++)
        in_group += table->entries[i].used > table->before_group;
    if (in_group > NG_REGISTRATION_ENTRIES - LEAVE_AT_ONCE) {
        ng_registration_table_close(comm, table, NG_CLOSED_CROWDED);
        return false;
    }
    if (!ng_registration_table_await_idle(comm, table, ng_registration_table_close_wait_ns(comm)))
        return false;
    for (unsigned left = 0; left < LEAVE_AT_ONCE && !ng_registration_table_is_cut_off(comm);
         left++) {
        uint32_t oldest = 0;
        for (uint32_t i = 1; i < atomic_load(&table->count); i++)
            if (table->entries[i].used < table->entries[oldest].used)
                oldest = i;
        end_entry(comm, table, oldest);
    }
    return !ng_registration_table_is_cut_off(comm);
}

bool ng_registration_table_register(struct ng_comm *comm, struct ng_registration_table *table,
                                    const struct ng_segment *segment, bool is_there)
{
    const struct ng_nccl *nccl = atomic_load(&comm->nccl);
    void *handle = NULL; /* NCCL may succeed without writing it */
    struct ng_segment now;

    if (!make_room(comm, table) || ng_registration_table_is_cut_off(comm))
        return false;
    /* Before calling NCCL: a free of this memory waits from here on. */
    uint32_t index = atomic_load(&table->count);
    atomic_store(&table->registering, true);
    begin_change(table);
    NG_STORE(table->entries[index].base, segment->base);
    NG_STORE(table->entries[index].bytes, segment->bytes);
    table->entries[index].handle = NULL;
    table->entries[index].used = ++table->clock;
    atomic_store(&table->count, index + 1);
    end_change(table);
    /* A free already under way has removed it from the map first. */
    if (!is_there && (!ng_segment_map_find((const void *)segment->base, &now) ||
                      now.base != segment->base || now.bytes != segment->bytes)) {
        drop_entry(table, index);
        atomic_store(&table->registering, false);
        return false;
    }
    struct surroundings before = begin_call();
    int result = nccl->comm_register(atomic_load(&comm->handle), (void *)segment->base,
                                     segment->bytes, &handle);
    end_call(table, &before);
    table->entries[index].handle = handle;
    atomic_store(&table->registering, false);
    if (result != NG_NCCL_SUCCESS || !handle) {
        drop_entry(table, index);
        ng_registration_table_count(&table->told->failed, 1);
        ng_registration_table_close(
            comm, table, result == NG_NCCL_SUCCESS ? NG_CLOSED_SWITCHED_OFF : NG_CLOSED_MIXED);
        return false;
    }
    tell_now(table, 1, segment->bytes);
    ng_registration_table_count(&table->told->made, 1);
    atomic_fetch_add(&all_made, 1);
    return true;
}
