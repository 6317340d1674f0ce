/*
 * How calls, segments and the end of communicators use registrations, and what may be registered.
 *
 * Entered by the program's threads, in calls on a communicator and where memory is allocated. Must
 * never call NCCL with a communicator that is condemned or has ended, nor let a call reach NCCL
 * whose buffers have to be deregistered before.
 */
#include "core/registration/registrations.h"

#include <errno.h>
#include <inttypes.h>

#include "core/comm/comm.h"
#include "core/comm/gate.h"
#include "core/comm/shared_resources.h"
#include "core/comm/thread.h"
#include "core/device/gpu.h"
#include "core/nccl/call.h"
#include "core/registration/registration_frees.h"
#include "core/registration/registration_table.h"
#include "core/registration/segment_map.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"

#define GUEST_WAIT_NS (250 * NG_MS) /* longest wait of the program's abort for a free in NCCL */

/*
 * Releases on which registration was seen to be safe, and under which conditions. Nothing is
 * registered on other releases: each row was measured.
 */
static const struct {
    int first, last; /* ncclGetVersion */
} safe_for_p2p_alone[] = {
    {22800, 22899}, /* with all buffers of one kind, deregistered before the first collective */
};

bool ng_registrations_are_on(void)
{
    return ng_guard.config.register_how != NG_REGISTER_OFF;
}

/* Held: the record may have been reused for another communicator since. */
static void know(const struct ng_comm *comm, struct ng_registration_table *table)
{
    uint32_t generation = NG_LOAD(comm->group->generation);

    if (table->generation == generation) {
        if (!NG_LOAD(table->told->generation))
            ng_registration_table_tell_new(table);
        return;
    }
    table->generation = generation;
    table->unobserved = false;
    table->clock = 0;
    table->before_group = 0;
    ng_registration_table_clear(table);
    ng_registration_frees_forget(table);
    atomic_store(&table->retired, false);
    ng_registration_table_tell_new(table);
    atomic_store(&table->state, NG_REGISTRATION_NEW);
}

/* ---- What may be registered ---- */

static bool is_eligible(const struct ng_segment *segment)
{
    unsigned alone = NG_SEGMENT_SHAREABLE | NG_SEGMENT_WHOLE;

    switch (segment->kind) {
    case NG_SEGMENT_NCCL:
    case NG_SEGMENT_MAPPED:
        return (segment->flags & alone) == alone && segment->device >= 0;
    case NG_SEGMENT_PLAIN:
        return ng_registration_table_takes_plain_memory();
    default:
        return false;
    }
}

/* Held: may anything be registered on it? */
static bool open_table(struct ng_comm *comm, struct ng_registration_table *table)
{
    const struct ng_nccl *nccl = atomic_load(&comm->nccl);
    enum ng_registration_reason reason;

    if (atomic_load(&table->state) != NG_REGISTRATION_NEW)
        return atomic_load(&table->state) == NG_REGISTRATION_OPEN;
    if (!nccl->comm_register || !nccl->comm_deregister)
        reason = NG_CLOSED_NO_FUNCTION;
    else if (!NG_ANY(measured, safe_for_p2p_alone, NG_COUNT(safe_for_p2p_alone),
                     nccl->version >= measured->first && nccl->version <= measured->last))
        reason = NG_CLOSED_NOT_MEASURED;
    else if (atomic_load(&comm->mode.nonblocking))
        reason = NG_CLOSED_NONBLOCKING;
    else if (nccl->foreign)
        reason = NG_CLOSED_ELSEWHERE;
    else if (NG_LOAD(comm->group->entered) > 0)
        reason = NG_CLOSED_COLLECTIVES;
    else {
        atomic_store(&table->state, NG_REGISTRATION_OPEN);
        return true;
    }
    ng_registration_table_close(comm, table, reason);
    return false;
}

static struct ng_registration_entry *find_entry(struct ng_registration_table *table,
                                                uintptr_t address, uint64_t bytes)
{
    uint32_t entries = atomic_load_explicit(&table->count, memory_order_relaxed);

    NG_EACH (entry, table->entries, entries) {
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
static void use_buffer(struct ng_comm *comm, struct ng_registration_table *table,
                       const struct ng_call *call)
{
    const void *buffer = call->send_buffer ? call->send_buffer : call->recv_buffer;
    uint64_t bytes = call->count * ng_dtype_bytes(call->dtype);
    struct ng_segment segment;

    /* NCCL needs no registration for data sent to the rank itself, or nowhere. */
    if (!bytes || !buffer || call->root == NG_LOAD(comm->group->group_rank))
        return;
    if (is_captured(call->stream)) {
        ng_registration_table_close(comm, table, NG_CLOSED_CAPTURE);
        return;
    }
    ng_registration_table_count(&table->told->bytes, bytes);
    int device = NG_LOAD(comm->group->device);
    struct ng_registration_entry *entry = find_entry(table, (uintptr_t)buffer, bytes);
    if (!entry) {
        if (!ng_segment_map_find(buffer, &segment) || !is_eligible(&segment) ||
            (device >= 0 && segment.device >= 0 && segment.device != device) ||
            bytes > segment.bytes - ((uintptr_t)buffer - segment.base)) {
            ng_registration_table_close(comm, table, NG_CLOSED_MIXED);
            return;
        }
        if (!ng_registration_table_register(comm, table, &segment, true))
            return;
        entry = &table->entries[atomic_load(&table->count) - 1];
    }
    entry->used = ++table->clock;
    ng_registration_table_count(&table->told->registered_bytes, bytes);
}

/* ---- Calls ---- */

/* Assumes a buffer with `count` elements from, or for, each rank: no operation has more. */
static bool touches_buffer(const struct ng_comm *comm, const struct ng_registration_table *table,
                           const struct ng_call *call, const void *buffer)
{
    int nranks = NG_LOAD(comm->group->nranks);
    struct ng_registration_range range = {(uintptr_t)buffer,
                                          call->count * ng_dtype_bytes(call->dtype) *
                                              (nranks > 0 ? (uint64_t)nranks : 1)};

    return buffer && ng_registration_table_any_overlaps(table, &range);
}

/* Held: does, or may, a collective use registered memory? */
static bool touches(const struct ng_comm *comm, const struct ng_registration_table *table,
                    const struct ng_call *call)
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
 * Held: a collective. From now on nothing is registered, on any rank. Registered memory that the
 * collective, or an earlier call of its NCCL group, would use is deregistered at once, which waits
 * for the device. The rest is deregistered once the device has finished with it, and before the
 * next send or receive at the latest: those require the same state on all ranks.
 */
static void meet_collective(struct ng_comm *comm, struct ng_registration_table *table,
                            const struct ng_call *call)
{
    bool grouped = atomic_load(&comm->in_flight.open_groups) && table->clock > table->before_group;

    if (atomic_load(&table->state) <= NG_REGISTRATION_OPEN &&
        (grouped || touches(comm, table, call))) {
        ng_registration_table_close(comm, table, NG_CLOSED_COLLECTIVES);
    } else if (atomic_load(&table->state) <= NG_REGISTRATION_OPEN) {
        atomic_store(&table->state, NG_REGISTRATION_CLOSED);
        NG_STORE(table->told->closed, 1);
        ng_registration_table_tell_closed(comm, NG_CLOSED_COLLECTIVES);
        if (atomic_load(&table->count)) {
            atomic_store(&table->retired, true);
            ng_registration_frees_ask_thread();
        }
    } else if (atomic_load(&table->retired) && touches(comm, table, call) &&
               !ng_registration_table_end_closed(comm, table)) {
        ng_registration_table_tell_closed(comm, NG_CLOSED_STUCK);
    }
}

bool ng_registrations_enter(struct ng_comm *comm, const struct ng_call *call, bool p2p)
{
    struct ng_shared_resources *sharing = ng_shared_resources_of(comm);
    struct ng_registration_table *table = ng_registration_table_of(comm);

    if (!table && (!p2p || !(table = ng_registration_table_make(comm))) &&
        !atomic_load(&sharing->shared))
        return true;
    if (!ng_registration_table_hold(comm, sharing, 0))
        return !atomic_load(&comm->cut_off);
    if (!table)
        return true;
    know(comm, table);
    if (ng_registration_table_is_cut_off(comm))
        return !atomic_load(&comm->cut_off);
    if (!atomic_load(&comm->in_flight.open_groups))
        table->before_group = table->clock;
    ng_registration_frees_catch_up(comm, table, true);
    if (!p2p) {
        meet_collective(comm, table, call);
    } else if (open_table(comm, table)) {
        use_buffer(comm, table, call);
    } else if (atomic_load(&table->state) == NG_REGISTRATION_CLOSED) {
        if (atomic_load(&table->retired) && !ng_registration_table_end_closed(comm, table))
            ng_registration_table_tell_closed(comm, NG_CLOSED_STUCK);
        ng_registration_table_count(&table->told->bytes, call->count * ng_dtype_bytes(call->dtype));
    }
    return !atomic_load(&comm->cut_off);
}

static void let_go(const struct ng_comm *comm, struct ng_shared_resources *sharing,
                   struct ng_registration_table *table)
{
    if (table)
        ng_registration_frees_drop_cut_off(comm, table);
    ng_shared_resources_let_go(sharing);
}

void ng_registrations_leave(struct ng_comm *comm, bool observed)
{
    struct ng_shared_resources *sharing = ng_shared_resources_of(comm);
    struct ng_registration_table *table = ng_registration_table_of(comm);

    if (!ng_shared_resources_is_mine(sharing))
        return;
    if (table)
        table->unobserved |= !observed;
    let_go(comm, sharing, table);
}

bool ng_registrations_hold(struct ng_comm *comm)
{
    struct ng_registration_table *table = comm ? ng_registration_table_of(comm) : NULL;

    if (!comm || !(table || atomic_load(&ng_shared_resources_of(comm)->shared)))
        return true;
    if (!ng_registration_table_hold(comm, ng_shared_resources_of(comm), 0))
        return false;
    if (table)
        know(comm, table);
    return true;
}

void ng_registrations_let_go(struct ng_comm *comm)
{
    struct ng_shared_resources *sharing = comm ? ng_shared_resources_of(comm) : NULL;

    if (sharing && ng_shared_resources_is_mine(sharing))
        let_go(comm, sharing, ng_registration_table_of(comm));
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

/* ---- All segments, on all communicators (`eager`) ---- */

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
    struct ng_shared_resources *sharing = ng_shared_resources_of(comm);
    struct ng_registration_table *table = ng_registration_table_of(comm);
    if (!table && !(table = ng_registration_table_make(comm)))
        return;
    if (!ng_registration_table_hold(comm, sharing, 0))
        return;
    know(comm, table);
    /* The creating call has already left its thread's slot: enter as a guest, so that an abort
     * waits. */
    bool lives_on = ng_gate_visit(atomic_load(&comm->handle), &guest) == NG_CALL_PROCEED;
    while (lives_on && guest == comm && !ng_registration_table_is_cut_off(comm) &&
           open_table(comm, table) && atomic_load(&table->count) < NG_REGISTRATION_ENTRIES &&
           ng_segment_map_next(from, &segment)) {
        if (is_meant(comm, &segment))
            ng_registration_table_register(comm, table, &segment, false);
        from = segment.base + 1;
    }
    ng_gate_leave(guest);
    let_go(comm, sharing, table);
}

static void add_to(struct ng_comm *comm, const struct ng_shared_resources *sharing,
                   struct ng_registration_table *table, const struct ng_segment *segment)
{
    struct ng_comm *guest;

    if (!ng_registration_table_is_of_turn(comm, sharing, table) ||
        atomic_load(&table->state) != NG_REGISTRATION_OPEN || !is_meant(comm, segment) ||
        atomic_load(&table->count) == NG_REGISTRATION_ENTRIES || atomic_load(&table->deferred))
        return;
    if (ng_gate_visit(atomic_load(&comm->handle), &guest) != NG_CALL_PROCEED)
        return;
    if (guest == comm && ng_registration_table_lives(comm))
        ng_registration_table_register(comm, table, segment, true);
    ng_gate_leave(guest);
}

/* If a call is under way, the segment is registered on its first use. */
void ng_registrations_added(const struct ng_segment *segment)
{
    uint32_t tables_used = ng_registration_table_slots();
    int saved = errno;

    if (ng_guard.config.register_how != NG_REGISTER_EAGER || !is_eligible(segment))
        return;
    for (uint32_t slot = 0; slot < tables_used; slot++) {
        struct ng_registration_table *table = ng_registration_table_at(slot);
        if (!table || atomic_load(&table->state) != NG_REGISTRATION_OPEN)
            continue;
        struct ng_shared_resources *sharing = ng_shared_resources_of(ng_comm_at(slot));
        if (!ng_shared_resources_try_hold(sharing))
            continue;
        add_to(ng_comm_at(slot), sharing, table, segment);
        ng_shared_resources_let_go(sharing);
    }
    errno = saved;
}

/* ---- The end ---- */

/* Held: wait, as NCCL itself is about to wait for the device. False: registrations end with the
 * communicator. */
static bool await_last(const struct ng_comm *comm, const struct ng_registration_table *table)
{
    int64_t until = ng_clock_mono_ns() + ng_registration_table_close_wait_ns(comm);

    while (!ng_registration_table_await_idle(comm, table, NG_REGISTRATION_IDLE_WAIT_NS))
        if (table->unobserved || ng_registration_table_is_cut_off(comm) ||
            ng_clock_mono_ns() >= until || !ng_registration_table_peers_answer(comm))
            return false;
    return NG_LOAD(comm->group->async_error) == NG_NCCL_SUCCESS;
}

struct ng_shared_resources *ng_registrations_end(struct ng_comm *comm, bool orderly)
{
    struct ng_shared_resources *sharing = ng_shared_resources_of(comm);
    struct ng_registration_table *table = ng_registration_table_of(comm);
    int64_t wait_ns =
        atomic_load(&comm->in_flight.guests) ? GUEST_WAIT_NS : NG_REGISTRATION_FREE_WAIT_NS;
    bool keeps = orderly && atomic_load(&sharing->shared);

    if ((!table && !keeps) ||
        !ng_registration_table_hold(comm, sharing, orderly ? 0 : ng_clock_mono_ns() + wait_ns))
        return NULL;
    if (table && table->generation == NG_LOAD(comm->group->generation)) {
        /* NCCL itself ends registrations that the device still uses, or for which a peer may not
         * answer. */
        if (orderly && !ng_comm_is_condemned(comm) &&
            NG_LOAD(comm->group->async_error) == NG_NCCL_SUCCESS && atomic_load(&table->count) &&
            await_last(comm, table))
            ng_registration_table_end_all(comm, table);
        ng_registration_frees_drop_all(table);
        atomic_store(&table->state, NG_REGISTRATION_ENDED);
    }
    if (keeps)
        return sharing;
    ng_shared_resources_let_go(sharing);
    return NULL;
}

bool ng_registrations_count(const struct ng_comm *comm, struct ng_registration_count *ret_count)
{
    const struct ng_registration_table *table = ng_registration_table_of(comm);

    if (!table || table->generation != NG_LOAD(comm->group->generation))
        return false;
    const struct ng_box_registrations *told = table->told;
    uint64_t ended = NG_LOAD(told->ended), made = NG_LOAD(told->made);
    /* NCCL releases the remaining registrations when a communicator ends. */
    bool over = ng_group_state_is_freed(NG_LOAD(comm->group->state));
    *ret_count = (struct ng_registration_count){
        .bytes = NG_LOAD(told->bytes),
        .registered_bytes = NG_LOAD(told->registered_bytes),
        .made = made,
        .ended = ended,
        .ended_with_group = over && made > ended ? made - ended : 0,
        .held = !over && made > ended ? made - ended : 0,
        .failed = NG_LOAD(told->failed),
        .deferred = NG_LOAD(told->deferred),
        .spent_ns = NG_LOAD(told->spent_ns),
        .closed = NG_LOAD(table->state) == NG_REGISTRATION_CLOSED,
    };
    return true;
}

void ng_registrations_tell_end(void)
{
    uint32_t tables_used = ng_registration_table_slots();
    struct ng_registration_count count;
    uint64_t made, ended, held = 0;

    ng_registration_table_total(&made, &ended);
    for (uint32_t slot = 0; slot < tables_used; slot++)
        if (ng_registration_table_at(slot) && ng_registrations_count(ng_comm_at(slot), &count))
            held += count.held;
    if (made)
        ng_log(NG_LOG_INFO,
               "NCCLGUARD_REGISTER: of %" PRIu64 " registrations %" PRIu64
               " were given back, %" PRIu64 " ended with their communicators, %" PRIu64
               " are still held",
               made, ended, made > ended + held ? made - ended - held : 0, held);
}
