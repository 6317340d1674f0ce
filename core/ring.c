/*
 * The ring of the newest calls.
 *
 * Step 3. An essay, for what is not obvious here.
 *
 * The ring is written at the speed of calls by many threads and read by other processes at any moment, among them
 * after the writer was killed between any two instructions. There is no lock that could be left held. A slot's guard
 * word holds the id of its record and its state. A writer takes a fresh id, which gives the slot; it marks the slot
 * WRITING with its own id, stores the fields, and publishes with a release store of id and state. A reader copies the
 * fields between two loads of the guard word and throws the copy away unless both tell the same id.
 *
 * Two writers meet in one slot only if the whole ring went round while one of them was between two stores. Then the
 * older record is lost, which it is anyway; readers see one of the two ids, and at worst fields of the newer call.
 *
 * The watchdog changes states long after, by compare-and-swap on the guard word, so that a slot that was taken over
 * meanwhile is left alone. Times of discovery are stored before that, and only where the record is far from being
 * overwritten, so that they cannot land in its successor.
 */
#include "core/ring.h"

#include "core/call.h"
#include "core/comm.h"
#include "core/guard.h"

#define STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

uint64_t ng_ring_add(const struct ng_call *call, const struct ng_comm *comm, int64_t now_mono_ns, uint64_t coll_seq,
                     uint64_t p2p_seq, uint64_t op_id, uint64_t peer_ordinal, uint32_t flags)
{
    struct ng_box *box = &ng_guard.box;

    if (!box->record_capacity)
        return 0;
    uint64_t id = atomic_fetch_add_explicit(&box->header->record_next, 1, memory_order_relaxed);
    struct ng_box_record *record = &box->records[id % box->record_capacity];
    STORE(record->id_state, id << 8 | NG_RECORD_WRITING);
    atomic_thread_fence(memory_order_release);
    STORE(record->group_id, atomic_load_explicit(&comm->group->id, memory_order_relaxed));
    STORE(record->group_slot, comm->slot);
    STORE(record->op, call->op);
    STORE(record->coll_seq, coll_seq);
    STORE(record->p2p_seq, p2p_seq);
    STORE(record->op_id, op_id);
    STORE(record->count, call->count);
    STORE(record->dtype, call->dtype);
    STORE(record->redop, call->redop);
    STORE(record->root, call->root);
    STORE(record->result, 0);
    STORE(record->peer_ordinal, peer_ordinal);
    STORE(record->send_buffer, (uintptr_t)call->send_buffer);
    STORE(record->recv_buffer, (uintptr_t)call->recv_buffer);
    STORE(record->stream, (uintptr_t)call->stream);
    STORE(record->caller, (uintptr_t)call->caller);
    STORE(record->entered_mono_ns, now_mono_ns);
    STORE(record->started_mono_ns, 0);
    STORE(record->completed_mono_ns, 0);
    STORE(record->tid, call->tid);
    STORE(record->flags, flags);
    STORE(record->work_previous, 0);
    STORE(record->timeout_ns, ng_guard.config.timeout_ns);
    atomic_store_explicit(&record->id_state, id << 8 | NG_RECORD_ENTERED, memory_order_release);
    return id;
}

struct ng_box_record *ng_ring_find(uint64_t id)
{
    struct ng_box *box = &ng_guard.box;

    if (!id || !box->record_capacity)
        return NULL;
    struct ng_box_record *record = &box->records[id % box->record_capacity];
    return ng_record_id(atomic_load_explicit(&record->id_state, memory_order_acquire)) == id ? record : NULL;
}

bool ng_ring_set_state(uint64_t id, enum ng_record_state state)
{
    struct ng_box_record *record = ng_ring_find(id);

    if (!record)
        return false;
    uint64_t before = atomic_load_explicit(&record->id_state, memory_order_relaxed);
    while (ng_record_id(before) == id)
        if (atomic_compare_exchange_weak_explicit(&record->id_state, &before, id << 8 | state, memory_order_release,
                                                  memory_order_relaxed))
            return true;
    return false;
}
