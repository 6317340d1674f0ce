/*
 * Buffers that the guard registers with communicators (NCCLGUARD_REGISTER), so that NCCL moves data
 * between them without a copy.
 *
 * A call on a communicator holds its registrations from before the real function until after it.
 * NCCL keeps them without a lock, and its rule is one thread at a time, also across communicators
 * that share resources (core/comm/shared_resources.h); so a thread that registers or deregisters
 * holds them too.
 *
 * Guarantees.
 *   When    Only if a table by NCCL's version says that it was seen to be safe: on communicators
 *           that so far were used for sends and receives only. The first collective on one ends
 *           registration there for good: its own buffers are deregistered before NCCL sees the
 *           collective, once the device has finished with them, and the rest before the next send
 *           or receive. (On NCCL 2.28 a ring collective never ends on a buffer that a send or
 *           receive has used registered before. All ranks reach that collective, so all of them
 *           deregister.) The same happens, with all buffers, when work is captured into a graph,
 *           since replays are not calls.
 *   What    Memory that NCCL can share and that is alone in its reservation: ncclMemAlloc, or
 *           cuMemCreate with a handle type for other processes, mapped as a whole. Not memory that
 *           grows by further mappings (expandable segments): NCCL registers one mapping, and a
 *           buffer that spans two would be registered on one side of a transfer only. Plain memory
 *           only if the user has set NCCL_LEGACY_CUDA_REGISTER: without it, it gains nothing.
 *   Until   It is freed, or the communicator ends. Memory about to be freed is deregistered by a
 *           thread of the guard, since NCCL asks a peer and waits for it without a bound: the free
 *           waits for half a second at most, and not at all while an earlier request is
 *           unanswered. If the communicator is in a call that does not return, or has an error, or
 *           a work that waits for a peer, the peer is not asked; this is retried, and is done
 *           before the communicator's next call at the latest, and NCCL does not use the
 *           registration earlier. (Memory that NCCL can share exists until its last mapping goes,
 *           so the peer's mapping does no harm. CUDA guarantees nothing for plain memory, one more
 *           reason not to set the variable for it.) A destroy or finalize deregisters the rest,
 *           once the device has finished with it; but not if a work waits for a peer. An abort
 *           frees everything in NCCL: afterwards nothing is deregistered. The figures tell how
 *           each registration ended.
 *   Whose   The guard's own only: NCCL counts references, so the program's registrations stay.
 *
 * Limits: NCCL requires both sides of a transfer to be registered, or neither, and the guard of one
 * rank does not see the buffers of another. Programs whose ranks send from one kind of memory and
 * receive into another must not enable this; a rank that meets both kinds on one communicator logs
 * it and deregisters everything.
 */
#ifndef NCCLGUARD_CORE_REGISTRATION_REGISTRATIONS_H
#define NCCLGUARD_CORE_REGISTRATION_REGISTRATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/util/memory_map.h"

struct ng_call;
struct ng_comm;
struct ng_group_calls;

/* Is it configured? The same for the life of the process; NG_REGISTER_* of core/config/config.h. */
bool ng_registrations_are_on(void);

/* Start the thread that deregisters for frees. 0 or -errno. */
int ng_registrations_start(void);

/* A call on `comm` is about to reach NCCL; it has returned. Same thread; they nest. Program thread,
 * with the call in its slot of the black box. False: the program has aborted the communicator
 * meanwhile, on another thread, and the call must not reach NCCL; it must still leave. */
bool ng_registrations_enter(struct ng_comm *comm, const struct ng_call *call, bool p2p);
void ng_registrations_leave(struct ng_comm *comm, bool observed);

/* The same for the end of a NCCL group, with all calls in it. */
void ng_registrations_enter_group(const struct ng_group_calls *calls);
void ng_registrations_leave_group(const struct ng_group_calls *calls);

/* The program is about to register or deregister with `comm` itself; it has done so. NULL: does
 * nothing. False: `comm` was aborted while another thread held its registrations, and NCCL must not
 * be called. */
bool ng_registrations_hold(struct ng_comm *comm);
void ng_registrations_let_go(struct ng_comm *comm);

/* A communicator was created. Program thread. */
void ng_registrations_made(struct ng_comm *comm);

/* The program is about to finalize or destroy (`orderly`) or abort it. Program thread. Returns the
 * turn, which it keeps until that call has returned, since NCCL works on resources that related
 * communicators share; NULL none. */
struct ng_shared_resources *ng_registrations_end(struct ng_comm *comm, bool orderly);

/* A segment was added; these addresses are about to be freed. `in_use`: the device may still use
 * them, since that free waits for it (cuMemFree does, cuMemUnmap does not). Program thread. */
void ng_registrations_added(const struct ng_segment *segment);
void ng_registrations_forget(uintptr_t base, size_t bytes, bool in_use);

/* What registration has achieved. */
struct ng_registration_count {
    uint64_t bytes,
        registered_bytes; /* of sends and receives: all, and those in registered buffers */
    /* `made` is the sum of `ended` (deregistered by the guard), `ended_with_group` (released by
     * NCCL when the communicator ended) and `held` (registered now). */
    uint64_t made, ended, ended_with_group, held, failed, deferred;
    uint64_t spent_ns; /* time of the program's threads in NCCL's register and deregister */
    bool closed;       /* nothing more is registered on this communicator */
};

/* False: nothing was ever registered or requested on it. Any thread. */
bool ng_registrations_count(const struct ng_comm *comm, struct ng_registration_count *ret_count);

/* The process ends: log what became of all registrations. */
void ng_registrations_tell_end(void);

#endif
