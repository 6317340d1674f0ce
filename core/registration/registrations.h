/*
 * Buffers that the guard registers with communicators (NCCLGUARD_REGISTER), so that NCCL moves data
 * between them without a copy.
 *
 * A call on a communicator holds its registrations from before the real function until after it.
 * NCCL keeps them without a lock, and its rule is one thread at a time, also of communicators that
 * share resources (core/comm/shared_resources.h); so whoever registers or deregisters holds them
 * too.
 *
 * What is guaranteed.
 *   When    Only where a table by NCCL's version says that it was seen to be safe, which is on
 *           communicators that so far were used for sends and receives alone. The first collective
 *           on one ends that for good: what is registered of its buffers is given back before NCCL
 * sees that collective, once the device is through with what used it, and the rest before the next
 *           send or receive. (On NCCL 2.28 a ring collective on a buffer that was first used,
 * registered, by a send or receive never ends. All ranks come to that collective, so all of them
 * give back.) The same, with all, where work is captured into a graph, whose replays are no calls.
 *   What    Memory that NCCL can share and that lies alone in its reservation: ncclMemAlloc, or
 *           cuMemCreate with a handle type for other processes, mapped as a whole. Not what grows
 * by further mappings (expandable segments): NCCL registers one mapping, and a buffer that spans
 * two would be registered on one side of a transfer only. Plain memory only where the user has set
 * NCCL_LEGACY_CUDA_REGISTER: it gains nothing without. Until   It is freed, or the communicator
 * ends. What is about to be freed is given back by a thread of the guard, for NCCL asks a peer, and
 * waits for it without a bound: the free waits for half a second at most, and not at all while an
 * earlier one is not answered. Where the communicator is in a call that does not come back, or has
 * an error, or a work that no peer ends, the peer is not asked: that is tried again, and is done
 * before the communicator's next call at the latest, earlier than which NCCL does not look at it.
 * (What NCCL can share stays in memory until the last mapping of it goes, so the peer's does no
 * harm. Of plain memory CUDA promises nothing, which is one more reason not to set the variable for
 * it.) A destroy or finalize gives back what is left, once the device is through with it; but not
 * where a work waits for a peer. An abort takes everything with it: afterwards nothing is given
 * back, since NCCL has freed it. The figures tell which ended how. Whose   The guard's own alone:
 * NCCL counts, so what the program registers stays the program's.
 *
 * What is not: NCCL wants both sides of a transfer registered, or neither, and the guard of one
 * rank does not see the buffers of another. Programs whose ranks send from one kind of memory and
 * receive into another must not switch this on; a rank that meets both kinds on one communicator
 * says so and gives everything back.
 */
#ifndef NCCLGUARD_CORE_REGISTRATION_REGISTRATIONS_H
#define NCCLGUARD_CORE_REGISTRATION_REGISTRATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/registration/segments.h"

struct ng_call;
struct ng_comm;
struct ng_group_calls;

/* Is it configured? The same for the life of the process; NG_REGISTER_* of core/config/config.h. */
bool ng_registrations_are_on(void);

/* Start what gives back for frees. 0 or -errno. */
int ng_registrations_start(void);

/* A call on `comm` is about to reach NCCL, and has come back. Same thread; they nest. Program
 * thread, with the call in its slot of the black box. False: the program has aborted it meanwhile,
 * on another thread, and the call must not reach NCCL; it leaves all the same. */
bool ng_registrations_enter(struct ng_comm *comm, const struct ng_call *call, bool p2p);
void ng_registrations_leave(struct ng_comm *comm, bool observed);

/* The same for the end of a NCCL group, with all that it holds. */
void ng_registrations_enter_group(const struct ng_group_calls *calls);
void ng_registrations_leave_group(const struct ng_group_calls *calls);

/* The program calls NCCL itself with the registrations of `comm`. NULL: nothing. False: it was
 * aborted while they were somebody else's, and NCCL must not be called. */
bool ng_registrations_hold(struct ng_comm *comm);
void ng_registrations_let_go(struct ng_comm *comm);

/* A communicator was made. Program thread. */
void ng_registrations_made(struct ng_comm *comm);

/* The program is about to finalize or destroy (`orderly`) or abort it. Program thread. The turn
 * that it keeps until that call has returned, for relatives share what NCCL works on; NULL none. */
struct ng_shared_resources *ng_registrations_end(struct ng_comm *comm, bool orderly);

/* There is a new segment; these addresses are about to be freed. `in_use`: the device may still use
 * them, since that free waits for it (cuMemFree does, cuMemUnmap does not). Program thread. */
void ng_registrations_added(const struct ng_segment *segment);
void ng_registrations_forget(uintptr_t base, size_t bytes, bool in_use);

/* What it brought. */
struct ng_registration_count {
    uint64_t bytes,
        registered_bytes; /* of sends and receives: all, and those within registrations */
    /* `made` is `ended` (given back by the guard), `ended_with_group` (NCCL gave back what was left
     * when the communicator ended) and `held` (registered now), together. */
    uint64_t made, ended, ended_with_group, held, failed, deferred;
    uint64_t spent_ns; /* of the program's threads, in NCCL's register and deregister */
    bool closed;       /* no more on this communicator */
};

/* False: nothing was ever registered or asked for on it. Any thread. */
bool ng_registrations_count(const struct ng_comm *comm, struct ng_registration_count *ret_count);

/* The process ends: log what became of all. */
void ng_registrations_tell_end(void);

/* In a forked child. */
void ng_registrations_after_fork(void);

#endif
