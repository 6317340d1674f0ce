/*
 * The ring of the newest calls.
 *
 * Design notes.
 *
 * Many threads write the ring at the rate of calls. Other processes read it at any moment, even
 * after the writer was killed between any two instructions. There is no lock that could be left
 * held. A slot's guard word holds the id of its record and its state. A writer takes a fresh id,
 * which gives the slot; it marks the slot WRITING with its own id, stores the fields, and publishes
 * with a release store of id and state. A reader copies the fields between two loads of the guard
 * word and discards the copy unless both show the same id.
 *
 * A record that may still matter is first copied to a place of its own (core/recorder/kept.h): the
 * call of a thread that is stuck must not be lost to the calls that other threads go on making.
 *
 * Two writers meet in one slot only if the ring wraps around while one of them is between two
 * stores. Then the older record is lost, as it would be anyway; readers see one of the two ids, and
 * at worst fields of the newer call.
 *
 * The watchdog changes states much later, by compare-and-swap on the guard word, so that a slot
 * reused meanwhile is left alone. It stores the times of its observations before that, and only if
 * the record is far from being overwritten, so that they cannot end up in the next record.
 */
#include "core/comm/ring.h"

#include "core/runtime/runtime.h"

#define GROUP_RECORDS 4096u /* calls of an NCCL group are searched for among this many */

/* In the ring alone. */
static inline struct ng_box_record *find_in_ring(uint64_t id)
{
    struct ng_box *box = &ng_guard.box;

    if (!id || !box->record_capacity)
        return NULL;
    struct ng_box_record *record = &box->records[ng_record_slot(id, box->record_capacity)];
    return ng_record_id(atomic_load_explicit(&record->id_state, memory_order_acquire)) == id
               ? record
               : NULL;
}

static inline struct ng_box_record *find(uint64_t id)
{
    struct ng_box_record *record = find_in_ring(id);

    return __builtin_expect(record != NULL, 1) ? record : ng_kept_find(&ng_guard.box, id);
}

struct ng_box_record *ng_ring_find(uint64_t id)
{
    return find(id);
}

bool ng_ring_is_cold_call(const struct ng_box_thread *thread, enum ng_op op)
{
    uint64_t newest = NG_LOAD(thread->record_id), oldest = newest;
    enum ng_op_class op_class = ng_op_table[op].op_class;

    if (op_class == NG_CLASS_GROUP) {
        newest = NG_LOAD(ng_guard.box.header->record_next);
        oldest = newest > GROUP_RECORDS ? newest - GROUP_RECORDS : 1;
    } else if (op_class != NG_CLASS_COLLECTIVE && op_class != NG_CLASS_P2P) {
        return false;
    }
    for (uint64_t id = newest; id && id >= oldest; id--) {
        struct ng_box_record *record = ng_ring_find(id);
        if (record && ng_record_state(NG_LOAD(record->id_state)) == NG_RECORD_ENTERED &&
            NG_LOAD(record->tid) == NG_LOAD(thread->tid) && ng_ring_is_cold(record))
            return true;
    }
    return NG_LOAD(thread->seq) == 1;
}

static bool set_state(struct ng_box_record *record, uint64_t id, enum ng_record_state state)
{
    uint64_t before = atomic_load_explicit(&record->id_state, memory_order_relaxed);

    while (ng_record_id(before) == id)
        if (atomic_compare_exchange_weak_explicit(&record->id_state, &before, id << 8 | state,
                                                  memory_order_release, memory_order_relaxed))
            return true;
    return false;
}

bool ng_ring_set_state(uint64_t id, enum ng_record_state state)
{
    struct ng_box_record *record = find(id);

    /* The second time it is kept. */
    return record &&
           (set_state(record, id, state) || ((record = find(id)) && set_state(record, id, state)));
}

/* The rest of a chain, from the first record on that is not in the ring. */
static __attribute__((noinline)) void set_kept_chain(uint64_t id, enum ng_record_state state)
{
    struct ng_box_record *record;

    while (id && (record = find(id))) {
        uint64_t previous = NG_LOAD(record->work_previous);
        ng_ring_set_state(id, state);
        id = previous;
    }
}

void ng_ring_set_chain(uint64_t id, enum ng_record_state state)
{
    struct ng_box_record *record;

    while ((record = find_in_ring(id))) {
        uint64_t previous = NG_LOAD(record->work_previous);
        if (!set_state(record, id, state))
            break;
        id = previous;
    }
    if (__builtin_expect(id != 0, 0))
        set_kept_chain(id, state);
}
