/*
 * Records that outlast the ring.
 */
#include "core/recorder/kept.h"

#include <stddef.h>

#define LOOKS 8u /* slots in which a record may be kept */

/* Fields of four and of eight bytes are copied alike. */
typedef uint64_t __attribute__((may_alias)) word;

static void copy_words(void *ret_slot, const void *slot, size_t bytes)
{
    for (size_t i = 1; i < bytes / sizeof(word); i++)
        __atomic_store_n((word *)ret_slot + i,
                         __atomic_load_n((const word *)slot + i, __ATOMIC_RELAXED),
                         __ATOMIC_RELAXED);
}

static uint32_t place_of(const struct ng_box *box, uint64_t id, uint32_t look)
{
    return box->record_capacity + (uint32_t)((id + look) % box->kept_capacity);
}

struct ng_box_record *ng_kept_find(const struct ng_box *box, uint64_t id)
{
    for (uint32_t i = 0; i < LOOKS && id && box->kept_capacity; i++) {
        struct ng_box_record *record = &box->records[place_of(box, id, i)];
        uint64_t guard = atomic_load_explicit(&record->id_state, memory_order_acquire);
        if (ng_record_id(guard) == id && ng_record_state(guard) != NG_RECORD_WRITING)
            return record;
    }
    return NULL;
}

uint32_t ng_kept_slot(const struct ng_box *box, uint64_t id)
{
    uint32_t slot = ng_record_slot(id, box->record_capacity);
    uint64_t guard = atomic_load_explicit(&box->records[slot].id_state, memory_order_acquire);
    struct ng_box_record *kept = ng_record_id(guard) == id ? NULL : ng_kept_find(box, id);

    return kept ? (uint32_t)(kept - box->records) : slot;
}

unsigned ng_kept_worth(const struct ng_box *box, const struct ng_box_record *record)
{
    enum { NONE, RECENT, NEWEST_COLLECTIVE, PENDING };
    enum ng_record_state state = ng_record_state(NG_LOAD(record->id_state));
    uint32_t slot = NG_LOAD(record->group_slot);

    if (state == NG_RECORD_WRITING || slot >= box->group_capacity ||
        slot >= NG_LOAD(box->header->group_used))
        return NONE;
    const struct ng_box_group *group = &box->groups[slot];
    uint32_t group_state = NG_LOAD(group->state);
    uint64_t group_id = NG_LOAD(record->group_id), number = NG_LOAD(record->coll_seq);
    if (group_state == NG_GROUP_FREE || group_state == NG_GROUP_DESTROYED ||
        group_state == NG_GROUP_FAILED ||
        (group_id != NG_LOAD(group->id) && group_id != NG_LOAD(group->former_id)))
        return NONE;
    int64_t since = (int64_t)(NG_LOAD(group->entered) + NG_LOAD(group->p2p_entered) - number -
                              NG_LOAD(record->p2p_seq));
    if (since >= (int64_t)NG_KEPT_CALLS)
        return NONE;
    return state < NG_RECORD_COMPLETED ? PENDING
           : number == NG_LOAD(group->entered) && !(NG_LOAD(record->flags) & NG_RECORD_P2P)
               ? NEWEST_COLLECTIVE
               : RECENT;
}

/* Claims a slot for a record that is worth `worth`: a free one, or that of the one which is worth
 * least, and less. NULL: none. */
static struct ng_box_record *claim(struct ng_box *box, uint64_t id, unsigned worth)
{
    struct ng_box_record *best = NULL;
    uint64_t best_guard = 0;

    for (uint32_t i = 0; i < LOOKS && worth; i++) {
        struct ng_box_record *slot = &box->records[place_of(box, id, i)];
        uint64_t guard = atomic_load_explicit(&slot->id_state, memory_order_acquire);
        unsigned its = guard ? ng_kept_worth(box, slot) : 0;
        if (its >= worth || (guard && ng_record_state(guard) == NG_RECORD_WRITING))
            continue;
        best = slot;
        best_guard = guard;
        worth = its;
    }
    if (!best || !atomic_compare_exchange_strong_explicit(
                     &best->id_state, &best_guard, id << 8 | NG_RECORD_WRITING,
                     memory_order_acquire, memory_order_relaxed))
        return NULL;
    atomic_thread_fence(memory_order_release);
    return best;
}

/* Frames, native or Python, of the record in slot `from`; all have the guard word first. */
static void copy_frames(char *slots, size_t bytes, uint32_t from, uint32_t to)
{
    _Atomic uint64_t *source = (_Atomic uint64_t *)(void *)(slots + from * bytes),
                     *target = (_Atomic uint64_t *)(void *)(slots + to * bytes);
    uint64_t guard = atomic_load_explicit(source, memory_order_acquire);

    NG_STORE(*target, 0);
    atomic_thread_fence(memory_order_release);
    copy_words(target, source, bytes);
    atomic_thread_fence(memory_order_acquire);
    if (NG_LOAD(*source) == guard)
        atomic_store_explicit(target, guard, memory_order_release);
}

void ng_kept_take(struct ng_box *box, struct ng_box_record *record, uint64_t next)
{
    uint64_t guard = atomic_load_explicit(&record->id_state, memory_order_acquire);
    uint64_t id = ng_record_id(guard);
    unsigned worth = id && box->kept_capacity ? ng_kept_worth(box, record) : 0;
    struct ng_box_record *kept = worth ? claim(box, id, worth) : NULL;

    if (!kept)
        return;
    copy_words(kept, record, sizeof(*kept));
    uint32_t from = (uint32_t)(record - box->records), to = (uint32_t)(kept - box->records);
    if (box->frames_capacity)
        copy_frames((char *)box->frames, NG_BOX_FRAMES_BYTES, from, to);
    if (box->python_capacity)
        copy_frames((char *)box->python, NG_BOX_PYTHON_BYTES, from, to);
    atomic_thread_fence(memory_order_acquire);
    if (ng_record_id(NG_LOAD(record->id_state)) != id) { /* another writer met this one here */
        NG_STORE(kept->id_state, 0);
        return;
    }
    atomic_store_explicit(&kept->id_state, guard, memory_order_release);
    /* Its state may have changed meanwhile: from now on it changes in the copy. */
    uint64_t newest = atomic_exchange_explicit(&record->id_state, next << 8 | NG_RECORD_WRITING,
                                               memory_order_acq_rel);
    if (newest != guard && ng_record_id(newest) == id)
        atomic_compare_exchange_strong(&kept->id_state, &guard, newest);
}
