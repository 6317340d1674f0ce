/*
 * What the guard has registered with a communicator: a table of up to 256 segments, and its
 * ownership.
 *
 * Internal to the guard's registrations; core/registration/registrations.h states what they
 * guarantee. A table belongs to the slot of its communicator's record, and stays there when the
 * record is reused for another communicator.
 *
 * "Held": the caller, on any thread, has the turn of the communicator's family
 * (core/comm/shared_resources.h), and `comm` is the communicator that the table belongs to. To
 * register or deregister, the caller must also be in a call on the communicator, or its guest
 * (ng_gate_visit), so that an abort waits.
 */
#ifndef NCCLGUARD_CORE_REGISTRATION_REGISTRATION_TABLE_H
#define NCCLGUARD_CORE_REGISTRATION_REGISTRATION_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/recorder/box.h"
#include "core/util/clock.h"

struct ng_comm;
struct ng_shared_resources;
struct ng_segment;

#define NG_REGISTRATION_ENTRIES      256u
#define NG_REGISTRATION_DEFERRED     16u
#define NG_REGISTRATION_FREE_WAIT_NS (5 * NG_MS) /* how long a free waits for a call to return */
#define NG_REGISTRATION_IDLE_WAIT_NS                                                               \
    (250 * NG_MS) /* how long a free waits for the device: some watchdog rounds */
#define NG_REGISTRATION_PAUSE_NS     (20 * NG_US)
#define NG_REGISTRATION_PAUSE_MAX_NS NG_MS

enum ng_registration_state {
    NG_REGISTRATION_NEW, /* not known yet whether anything may be registered */
    NG_REGISTRATION_OPEN,
    NG_REGISTRATION_CLOSED, /* nothing may be registered any more */
    NG_REGISTRATION_ENDED,  /* the communicator has ended, or is about to */
};

/* Why a table is closed. */
enum ng_registration_reason {
    NG_CLOSED_NO_FUNCTION,
    NG_CLOSED_NOT_MEASURED,
    NG_CLOSED_NONBLOCKING,
    NG_CLOSED_ELSEWHERE,
    NG_CLOSED_COLLECTIVES,
    NG_CLOSED_CAPTURE,
    NG_CLOSED_MIXED,
    NG_CLOSED_SWITCHED_OFF,
    NG_CLOSED_CROWDED,
    NG_CLOSED_STUCK,
    NG_CLOSED_REASONS
};

struct ng_registration_entry {
    /* Threads that do not hold the table may read these two, while `changes` is even and does not
     * change. */
    _Atomic uintptr_t base;
    _Atomic size_t bytes;
    void *handle;  /* NULL: not registered yet */
    uint64_t used; /* by the clock of the table; the least recently used entry is evicted first */
};

struct ng_registration_range {
    uintptr_t base;
    size_t bytes;
};

/* The thread that has the turn of its communicator's family (core/comm/shared_resources.h) may read
 * and write it. */
struct ng_registration_table {
    _Atomic uint32_t generation; /* of the communicator's record */
    _Atomic uint32_t state;      /* NG_REGISTRATION_* */
    _Atomic uint32_t count;
    _Atomic uint32_t changes; /* of `count` and of the entries' ranges; odd: one is under way */
    bool unobserved;          /* there was work whose end is not observed */
    uint64_t clock;
    uint64_t
        before_group; /* the clock when the open NCCL group had no call on the communicator yet */
    struct ng_registration_entry entries[NG_REGISTRATION_ENTRIES];

    /* Frees that could not wait: core/registration/registration_frees.h. `deferred_lock` protects
     * the ranges, is held for some instructions, and is never nested inside another lock. */
    atomic_flag deferred_lock;
    atomic_bool deferred;
    bool deferred_in_use;    /* the device may still use one of them */
    uint32_t deferred_count; /* more than fit in the array: everything that is registered */
    struct ng_registration_range deferred_ranges[NG_REGISTRATION_DEFERRED];
    /* Number of frees requested so far; of those completed; of those tried. */
    uint64_t asked;
    _Atomic uint64_t done, tried;
    atomic_bool retired; /* closed, and registrations end when the device has finished with them */
    atomic_bool registering; /* NCCL is registering the newest entry, or is about to */

    /* Figures, readable by others: in the black box, if there is room. */
    struct ng_box_registrations *told, own;
};

/* ---- Holding a table ---- */

/* Take the turn of its `family`; ng_shared_resources_let_go releases it, and they nest. False:
 * another thread had the turn until `until_mono_ns`; 0: wait as long as the communicator is not
 * aborted. Any thread. */
bool ng_registration_table_hold(const struct ng_comm *comm, struct ng_shared_resources *sharing,
                                int64_t until_mono_ns);

/* Held by a thread that is not in a call on the communicator: does the table belong to the
 * communicator that has the record now, and is the turn that of its family? */
bool ng_registration_table_is_of_turn(const struct ng_comm *comm,
                                      const struct ng_shared_resources *sharing,
                                      const struct ng_registration_table *table);

/* An abort has taken the communicator, or is about to: NCCL must not be called with it any more,
 * not even by a thread in the middle of several calls. Any thread. */
bool ng_registration_table_is_cut_off(const struct ng_comm *comm);

/* Held, as a guest: the program is not ending the communicator, and it has its handle. */
bool ng_registration_table_lives(const struct ng_comm *comm);

/* ---- Tables ---- */

/* The table at the record of a communicator, and at a slot: stays readable for the life of the
 * process; NULL none yet. Any thread. */
struct ng_registration_table *ng_registration_table_of(const struct ng_comm *comm);
struct ng_registration_table *ng_registration_table_at(uint32_t slot);

/* The same, created if there is none; NULL: no memory. Program thread. */
struct ng_registration_table *ng_registration_table_make(const struct ng_comm *comm);

/* All tables are in slots below this number. Any thread. */
uint32_t ng_registration_table_slots(void);

/* In a forked child: there are none. */
void ng_registration_table_after_fork(void);

/* ---- Figures ---- */

/* Held: publish the figures of the communicator that the table belongs to now. */
void ng_registration_table_tell_new(struct ng_registration_table *table);

/* Held: add to one of the figures. */
void ng_registration_table_count(_Atomic uint64_t *counter, uint64_t more);

/* How many registrations the whole process has made, and ended. Any thread. */
void ng_registration_table_total(uint64_t *ret_made, uint64_t *ret_ended);

/* ---- What is registered ---- */

/* Held, and open: register a segment as the newest entry. If NCCL rejects it, the table is closed.
 * `is_there`: the segment cannot be freed meanwhile. False: it is not registered. */
bool ng_registration_table_register(struct ng_comm *comm, struct ng_registration_table *table,
                                    const struct ng_segment *segment, bool is_there);

/* Held: does an entry overlap? */
bool ng_registration_table_any_overlaps(const struct ng_registration_table *table,
                                        const struct ng_registration_range *range);

/* Not held, any thread. False: certainly no entry overlaps, so the caller need not wait for the
 * holder. */
bool ng_registration_table_may_overlap(const struct ng_registration_table *table,
                                       const struct ng_registration_range *range);

/* Held: deregister overlapping entries; deregister all. NCCL waits for a peer without a bound.
 * Stops once the communicator is cut off. */
void ng_registration_table_end_overlapping(struct ng_comm *comm,
                                           struct ng_registration_table *table,
                                           const struct ng_registration_range *range);
void ng_registration_table_end_all(struct ng_comm *comm, struct ng_registration_table *table);

/* Held: drop all entries without calling NCCL. */
void ng_registration_table_clear(struct ng_registration_table *table);

/* Held: wait until the device has finished everything launched on the communicator; its peers have
 * then finished with our buffers too. False: not finished in time. A communicator that is condemned
 * meanwhile must not be touched any more. */
bool ng_registration_table_await_idle(const struct ng_comm *comm,
                                      const struct ng_registration_table *table, int64_t wait_ns);

/* Can a deregistration expect its peers to answer? Not if the communicator has an error, nor if a
 * work has waited for a peer for longer than a second: no deadline covers a thread that
 * deregisters. Any thread. */
bool ng_registration_table_peers_answer(const struct ng_comm *comm);

/* How long a call waits for this, if it must not reach NCCL while its buffers are registered, or
 * while they are not. Any thread. */
int64_t ng_registration_table_close_wait_ns(const struct ng_comm *comm);

/* Is plain memory registered as well (NCCL_LEGACY_CUDA_REGISTER)? Any thread. */
bool ng_registration_table_takes_plain_memory(void);

/* ---- Closing ---- */

/* Held: close the table: nothing more is registered, and ng_registration_table_end_closed removes
 * what is. Logs why. */
void ng_registration_table_close(struct ng_comm *comm, struct ng_registration_table *table,
                                 enum ng_registration_reason reason);

/* Held, and closed: deregister everything. False: the device still uses some of it, and nothing was
 * removed. */
bool ng_registration_table_end_closed(struct ng_comm *comm, struct ng_registration_table *table);

/* Log why: each reason once per process, since there may be thousands of communicators. Any
 * thread. */
void ng_registration_table_tell_closed(const struct ng_comm *comm,
                                       enum ng_registration_reason reason);

#endif
