/*
 * Records of calls in the black box.
 *
 * Step 3. Written by the program's threads, each record by one thread until it is on the stream, then by the
 * watchdog; see box.h for how readers tell a valid slot. No system call, no lock: one atomic increment and stores.
 */
#ifndef NCCLGUARD_CORE_RING_H
#define NCCLGUARD_CORE_RING_H

#include <stdint.h>

#include "core/box.h"

struct ng_call;
struct ng_comm;

/*
 * A record for `call` on `comm`, in state ENTERED. Returns its id; 0 where the box has no room for records.
 */
uint64_t ng_ring_add(const struct ng_call *call, const struct ng_comm *comm, int64_t now_mono_ns, uint64_t coll_seq,
                     uint64_t p2p_seq, uint64_t op_id, uint64_t peer_ordinal, uint32_t flags);

/* The slot of a record; NULL when it was overwritten, or never was. */
struct ng_box_record *ng_ring_find(uint64_t id);

/* Change the state of a record that may have been overwritten meanwhile. True if it was still there. */
bool ng_ring_set_state(uint64_t id, enum ng_record_state state);

#endif
