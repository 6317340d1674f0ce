/*
 * Records that outlast the ring.
 *
 * All communicators of a process share one ring of records. If a thread is stuck, or a communicator
 * rests, the calls of other threads overwrite its records, and no verdict could tell what it was
 * doing. So the newest calls of each communicator are copied before they are overwritten. The
 * copies lie behind the ring (core/recorder/box.h), under their own ids, and make room for others
 * once their communicator has gone on.
 *
 * Written by the program's threads, and states by those that write them in the ring. No lock: a
 * slot is claimed by its guard word. Readers tolerate damaged boxes.
 */
#ifndef NCCLGUARD_CORE_RECORDER_KEPT_H
#define NCCLGUARD_CORE_RECORDER_KEPT_H

#include "core/recorder/box.h"

#define NG_KEPT_MAX   128u /* slots; not more than the ring has */
#define NG_KEPT_CALLS 16u  /* the newest of a communicator are those that matter */

/*
 * May this record of the process's own box matter, which a call of the communicator in slot `slot`
 * is to overwrite? A communicator's own calls overwrite none of its records that matter, unless
 * more than a whole ring ago: then nothing older matters either.
 */
static inline __attribute__((always_inline)) bool
ng_kept_may_matter(const struct ng_box *box, const struct ng_box_record *record, uint32_t slot)
{
    uint32_t its = NG_LOAD(record->group_slot);

    /* Behind the slots in use there may be no pages, where shared memory is full. */
    if (__builtin_expect(its == slot, 1) || !NG_LOAD(record->id_state) ||
        its >= NG_LOAD(box->header->group_used))
        return false;
    const struct ng_box_group *group = &box->groups[its];
    uint64_t since = NG_LOAD(group->entered) - NG_LOAD(record->coll_seq);
    return since < NG_KEPT_CALLS &&
           since + NG_LOAD(group->p2p_entered) - NG_LOAD(record->p2p_seq) < NG_KEPT_CALLS;
}

/* Copies a record, with its frames, before record `next` takes its slot, if it matters and there is
 * room. */
void ng_kept_take(struct ng_box *box, struct ng_box_record *record, uint64_t next);

/* How much a record matters, for its group as it is now; 0 not at all. */
unsigned ng_kept_worth(const struct ng_box *box, const struct ng_box_record *record);

/* The copy of record `id`, which is not in the ring; NULL none. */
struct ng_box_record *ng_kept_find(const struct ng_box *box, uint64_t id);

/* The slot of the frames of record `id`, if there are any: as that of the record. */
uint32_t ng_kept_slot(const struct ng_box *box, uint64_t id);

#endif
