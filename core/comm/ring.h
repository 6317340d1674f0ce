/*
 * Records of calls in the black box.
 *
 * Written by the program's threads, each record by one thread until its work is on the stream, then
 * by the watchdog; box.h says how readers recognise a valid slot. No system call, no lock: one
 * atomic increment and stores.
 */
#ifndef NCCLGUARD_CORE_COMM_RING_H
#define NCCLGUARD_CORE_COMM_RING_H

#include <stdint.h>

#include "core/comm/comm.h"
#include "core/nccl/call.h"
#include "core/recorder/box.h"
#include "core/recorder/kept.h"
#include "core/recorder/signature.h"
#include "core/runtime/runtime.h"

/* The signature on which ranks must agree. */
static inline struct ng_signature ng_ring_signature(const struct ng_call *call)
{
    return (struct ng_signature){.op = call->op,
                                 .dtype = call->dtype,
                                 .redop = call->redop,
                                 .root = call->root,
                                 .count = call->count};
}

/* The group's rolling hash including this collective. */
static inline __attribute__((always_inline)) uint64_t ng_ring_roll(const struct ng_box_group *group,
                                                                   const struct ng_call *call)
{
    struct ng_signature signature = ng_ring_signature(call);

    return ng_signature_roll(NG_LOAD(group->rolling_hash), &signature);
}

/* The group's rolling hash before this collective. */
static inline uint64_t ng_ring_unroll(const struct ng_box_group *group, const struct ng_call *call)
{
    struct ng_signature signature = ng_ring_signature(call);

    return ng_signature_unroll(NG_LOAD(group->rolling_hash), &signature);
}

/*
 * Begin a record of the communicator in `group_slot`, in a box that has room for records; *ret_id
 * is its id. Readers see it once
 * ng_ring_publish has completed it, which must follow at once on the same thread.
 */
static inline __attribute__((always_inline)) struct ng_box_record *
ng_ring_begin(uint32_t group_slot, uint64_t *ret_id)
{
    struct ng_box *box = &ng_guard.box;
    uint64_t id = atomic_fetch_add_explicit(&box->header->record_next, 1, memory_order_relaxed);
    struct ng_box_record *record = &box->records[ng_record_slot(id, box->record_capacity)];

    if (__builtin_expect(ng_kept_may_matter(box, record, group_slot), 0))
        ng_kept_take(box, record, id);
    NG_STORE(record->id_state, id << 8 | NG_RECORD_WRITING);
    atomic_thread_fence(memory_order_release);
    *ret_id = id;
    return record;
}

/* What the program passed. */
static inline __attribute__((always_inline)) void ng_ring_describe(struct ng_box_record *record,
                                                                   const struct ng_call *call)
{
    NG_STORE(record->send_buffer, (uintptr_t)call->send_buffer);
    NG_STORE(record->recv_buffer, (uintptr_t)call->recv_buffer);
    NG_STORE(record->stream, (uintptr_t)call->stream);
    NG_STORE(record->caller, (uintptr_t)call->caller);
    NG_STORE(record->count, call->count);
    NG_STORE(record->type, ng_signature_pair(call->dtype, (uint32_t)call->redop));
    NG_STORE(record->root_of_new, (uint32_t)call->root);
    NG_STORE(record->op, call->op);
}

/* Whose call it is; and what is not known yet. */
static inline __attribute__((always_inline)) void
ng_ring_set_origin(struct ng_box_record *record, uint32_t group_slot,
                   const struct ng_box_group *group, uint32_t tid)
{
    NG_STORE(record->group_id, NG_LOAD(group->id));
    NG_STORE(record->group_slot, group_slot);
    NG_STORE(record->tid, tid);
    NG_STORE(record->started_mono_ns, 0);
    NG_STORE(record->completed_mono_ns, 0);
    NG_STORE(record->work_previous, 0);
    NG_STORE(record->duration_ns, 0);
}

/* What the guard counts; `rolling_hash` is the one that includes the call, 0 a send or receive. */
static inline __attribute__((always_inline)) void
ng_ring_count(struct ng_box_record *record, uint64_t coll_seq, uint64_t p2p_seq,
              uint64_t peer_ordinal, uint32_t flags, uint64_t rolling_hash)
{
    NG_STORE(record->p2p_seq, p2p_seq);
    NG_STORE(record->peer_ordinal, peer_ordinal);
    NG_STORE(record->flags, flags);
    NG_STORE(record->rolling_hash, rolling_hash);
    NG_STORE(record->coll_seq, coll_seq);
}

/* It is complete, in state ENTERED since `now_mono_ns`. */
static inline __attribute__((always_inline)) void ng_ring_publish(struct ng_box_record *record,
                                                                  uint64_t id, int64_t now_mono_ns)
{
    NG_STORE(record->entered_mono_ns, now_mono_ns);
    atomic_store_explicit(&record->id_state, id << 8 | NG_RECORD_ENTERED, memory_order_release);
}

/*
 * Add a whole record for `call`; NULL if the box has no room for records. `collective`: the call
 * counts in the group's rolling hash, and *ret_hash is the hash that includes it.
 */
static inline struct ng_box_record *
ng_ring_add(const struct ng_call *call, const struct ng_comm *comm, uint32_t tid,
            int64_t now_mono_ns, uint64_t coll_seq, uint64_t p2p_seq, uint64_t peer_ordinal,
            uint32_t flags, bool collective, uint64_t *ret_id, uint64_t *ret_hash)
{
    *ret_id = 0;
    if (!ng_guard.box.record_capacity)
        return NULL;
    *ret_hash = collective ? ng_ring_roll(comm->group, call) : 0;
    struct ng_box_record *record = ng_ring_begin(comm->slot, ret_id);
    ng_ring_describe(record, call);
    ng_ring_set_origin(record, comm->slot, comm->group, tid);
    ng_ring_count(record, coll_seq, p2p_seq, peer_ordinal, flags, *ret_hash);
    ng_ring_publish(record, *ret_id, now_mono_ns);
    return record;
}

/* Change the state of a record that may have been overwritten meanwhile. True: it was still there,
 * or it is kept. */
bool ng_ring_set_state(uint64_t id, enum ng_record_state state);

/* Set the state of the calling thread's fresh record. The record is overwritten only if the ring
 * has wrapped around meanwhile. */
static inline void ng_ring_advance(struct ng_box_record *record, uint64_t id,
                                   enum ng_record_state state)
{
    if (record && __builtin_expect(ng_record_id(NG_LOAD(record->id_state)) == id, 1))
        atomic_store_explicit(&record->id_state, id << 8 | state, memory_order_release);
    else if (record)
        ng_ring_set_state(id, state);
}

/* The same for a record that is ENTERED: its work is on the stream. */
static inline __attribute__((always_inline)) void ng_ring_schedule(struct ng_box_record *record,
                                                                   uint64_t id)
{
    uint64_t id_state = NG_LOAD(record->id_state);

    if (__builtin_expect(ng_record_id(id_state) == id, 1))
        atomic_store_explicit(&record->id_state, (id_state & ~UINT64_C(0xff)) | NG_RECORD_SCHEDULED,
                              memory_order_release);
    else
        ng_ring_set_state(id, NG_RECORD_SCHEDULED);
}

/* The slot of a record, or where it is kept; NULL if it was overwritten or never existed. */
struct ng_box_record *ng_ring_find(uint64_t id);

/* Does NCCL connect ranks in this call: the first collective, or the first send to, or receive
 * from, a peer? */
static inline bool ng_ring_is_cold(const struct ng_box_record *record)
{
    return (NG_LOAD(record->flags) & NG_RECORD_P2P ? NG_LOAD(record->peer_ordinal)
                                                   : NG_LOAD(record->coll_seq)) == 1;
}

/* Does NCCL connect ranks in call `op` that a thread is inside? For the end of an NCCL group: in
 * any call of that group. */
bool ng_ring_is_cold_call(const struct ng_box_thread *thread, enum ng_op op);

/* The same for all chained records of a work that is not handed to the watchdog, starting at the
 * newest. */
void ng_ring_set_chain(uint64_t id, enum ng_record_state state);

#endif
