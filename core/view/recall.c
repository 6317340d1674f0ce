/*
 * Rolling hashes of earlier collectives, from the records of a black box.
 *
 * Not on the path of a call. Called by the incident thread and the store's thread.
 */
#include "core/view/recall.h"

#include "core/recorder/signature.h"

#define WINDOW                                                                                     \
    (NG_HASH_LOG_NEWEST + 1) /* a collective is accepted only if it follows from the one before */

/* The contents of a record: the hash of the group after its collective, and before it. */
struct told {
    uint64_t after, before; /* after 0: not known */
};

/* The number of a record's collective; 0: not of this group, or the record is being written. */
static uint64_t number_in(const struct ng_box_record *record, uint64_t id,
                          const struct ng_box_group *group, uint32_t slot, struct told *ret_told)
{
    uint64_t before = atomic_load_explicit(&record->id_state, memory_order_acquire);
    uint32_t state = ng_record_state(before);

    if (ng_record_id(before) != id || state == NG_RECORD_WRITING || state == NG_RECORD_FAILED ||
        state == NG_RECORD_CAPTURED)
        return 0;
    struct ng_signature signature = ng_signature_of_record(record);
    uint64_t hash = NG_LOAD(record->rolling_hash), group_id = NG_LOAD(record->group_id);
    uint64_t number = NG_LOAD(record->coll_seq);
    /* The slot's current group, not an earlier one of the same id. */
    bool its = NG_LOAD(record->group_slot) == slot &&
               (group_id == NG_LOAD(group->id) || group_id == NG_LOAD(group->former_id)) &&
               NG_LOAD(record->entered_mono_ns) >= NG_LOAD(group->created_mono_ns);
    atomic_thread_fence(memory_order_acquire);
    if (!its || !hash ||
        ng_record_id(atomic_load_explicit(&record->id_state, memory_order_relaxed)) != id)
        return 0;
    *ret_told = (struct told){hash, ng_signature_unroll(hash, &signature)};
    return number;
}

/* Two writers may have collided in a slot after the ring wrapped; then its hash does not follow
 * from the collective before. */
static bool follows(const struct told *told, uint64_t number, const struct told *previous)
{
    return told->after &&
           (number == 1 ? told->before == 0 : previous->after && told->before == previous->after);
}

uint32_t ng_recall(const struct ng_box *box, uint32_t slot, uint64_t seq,
                   struct ng_hash_log *hash_log)
{
    ng_box_read(box, NG_BOX_RECORDS);
    const struct ng_box_group *group = &box->groups[slot];
    uint32_t capacity = box->record_capacity, looks = 0;
    uint64_t next = NG_LOAD(box->header->record_next), first = seq >= WINDOW ? seq - WINDOW + 1 : 1;
    struct told told[WINDOW] = {0}, found;

    while (looks < capacity && looks < NG_RECALL_LOOKS && looks + 1 < next) {
        uint64_t id = next - ++looks;
        uint64_t number =
            number_in(&box->records[ng_record_slot(id, capacity)], id, group, slot, &found);
        if (!number || number > seq)
            continue;
        if (number < first)
            break; /* and the remaining records are older */
        if (!told[number - first].after)
            told[number - first] = found;
    }
    ng_box_forget(box);
    for (uint64_t number = first > 1 ? first + 1 : 1; number <= seq; number++) {
        const struct told *one = &told[number - first];
        if (follows(one, number, number > 1 ? one - 1 : NULL))
            hash_log->newest[number % NG_HASH_LOG_NEWEST] = ng_hash_log_word(number, one->after);
    }
    return looks;
}

enum ng_op ng_recall_op(const struct ng_box *box, uint32_t slot, uint64_t seq)
{
    ng_box_read(box, NG_BOX_RECORDS);
    const struct ng_box_group *group = &box->groups[slot];
    uint32_t capacity = box->record_capacity, looks = 0;
    uint64_t next = NG_LOAD(box->header->record_next);
    struct told found;
    enum ng_op op = NG_OP_NONE;
    bool there = false;

    while (!there && looks < capacity && looks < NG_RECALL_LOOKS && looks + 1 < next) {
        uint64_t id = next - ++looks;
        const struct ng_box_record *record = &box->records[ng_record_slot(id, capacity)];
        uint32_t called = NG_LOAD(record->op);
        there = number_in(record, id, group, slot, &found) == seq;
        if (there && called < NG_OP_LIMIT)
            op = (enum ng_op)called;
    }
    ng_box_forget(box);
    return op;
}
