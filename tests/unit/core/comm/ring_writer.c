/*
 * The ring of core/comm/ring.h as C++ tests can call it.
 */
#include "tests/unit/core/comm/ring_writer.h"

#include "core/comm/ring.h"

static struct ng_comm comm;

void ring_use(struct ng_box *box, uint32_t slot)
{
    ng_guard.box = *box;
    comm.slot = slot;
    comm.group = &ng_guard.box.groups[slot];
}

uint64_t ring_add(uint64_t seq)
{
    struct ng_call call = {.op = NG_OP_AllReduce,
                           .dtype = 7,
                           .redop = 0,
                           .root = -1,
                           .count = seq * 3,
                           .caller = (void *)(seq * 7)};
    uint64_t id, hash;

    struct ng_box_record *record = ng_ring_add(&call, &comm, 1, 1, seq, 0, 0, 0, true, &id, &hash);
    ng_ring_advance(record, id, NG_RECORD_SCHEDULED);
    return id;
}

uint64_t ring_call(void)
{
    uint64_t seq = NG_LOAD(comm.group->entered) + 1, id = ring_add(seq);

    NG_STORE(comm.group->entered, seq);
    return id;
}

bool ring_complete(uint64_t id)
{
    return ng_ring_set_state(id, NG_RECORD_COMPLETED);
}
