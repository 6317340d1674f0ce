/*
 * What the guard has registered with a communicator: a table of up to 256 segments, and who holds
 * it.
 *
 * Inside of the guard's registrations (core/registration/registrations.h) only, which says what is
 * promised of them. A table lies at the slot of its communicator's record, and stays there when the
 * record is given to another.
 *
 * "Held": the caller has the turn of the communicator's family (core/comm/shared_resources.h), on
 * whichever thread, and `comm` is the communicator that the table is of. Where that gives back or
 * registers, it is in a call on the communicator besides, or its guest (ng_gate_visit), so that an
 * abort waits.
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
#define NG_REGISTRATION_FREE_WAIT_NS (5 * NG_MS) /* of a free, for a call to come back */
#define NG_REGISTRATION_IDLE_WAIT_NS                                                               \
    (250 * NG_MS) /* of a free, for the device: some watchdog rounds */
#define NG_REGISTRATION_PAUSE_NS     (20 * NG_US)
#define NG_REGISTRATION_PAUSE_MAX_NS NG_MS

enum ng_registration_state {
    NG_REGISTRATION_NEW, /* it is not known yet whether anything may be registered */
    NG_REGISTRATION_OPEN,
    NG_REGISTRATION_CLOSED, /* nothing any more */
    NG_REGISTRATION_ENDED,  /* the communicator is, or is about to be */
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
    /* Who does not hold the table may read these two, while `changes` is even and stays the same.
     */
    _Atomic uintptr_t base;
    _Atomic size_t bytes;
    void *handle;  /* NULL: not there yet */
    uint64_t used; /* by the clock of the table; the least recent is the first out */
};

struct ng_registration_range {
    uintptr_t base;
    size_t bytes;
};

/* Who has the turn of its communicator's family (core/comm/shared_resources.h) may read and write
 * it. */
struct ng_registration_table {
    _Atomic uint32_t generation; /* of the communicator's record */
    _Atomic uint32_t state;      /* NG_REGISTRATION_* */
    _Atomic uint32_t count;
    _Atomic uint32_t changes; /* of `count`, and what entries are about; odd: one is under way */
    bool unobserved;          /* there was work whose end nobody sees */
    uint64_t clock;
    uint64_t
        before_group; /* the clock when the open NCCL group had no call on the communicator yet */
    struct ng_registration_entry entries[NG_REGISTRATION_ENTRIES];

    /* Frees that could not wait: core/registration/registration_frees.h. `deferred_lock` protects
     * the ranges, is held for some instructions, and nests inside nothing. */
    atomic_flag deferred_lock;
    atomic_bool deferred;
    bool deferred_in_use;    /* the device may still use one of them */
    uint32_t deferred_count; /* more than there is room for: all that is registered */
    struct ng_registration_range deferred_ranges[NG_REGISTRATION_DEFERRED];
    /* How many frees have asked so far; of how many all is given back; of how many that was tried.
     */
    uint64_t asked;
    _Atomic uint64_t done, tried;
    atomic_bool
        retired; /* closed, and what is registered goes when the device is through with it */
    atomic_bool registering; /* NCCL is at it, or about to be: the newest entry */

    /* Figures, which others may read: in the black box, where there is room. */
    struct ng_box_registrations *told, own;
};

/* ---- Who holds a table ---- */

/* Take the turn of its `family`; ng_shared_resources_let_go gives it back, and they nest. False: it
 * was another thread's until `until_mono_ns`; 0: for as long as the communicator is not aborted.
 * Any thread. */
bool ng_registration_table_hold(const struct ng_comm *comm, struct ng_shared_resources *sharing,
                                int64_t until_mono_ns);

/* Held by a thread that is not in a call on the communicator: is the table of the one that has the
 * record now, and the turn its? */
bool ng_registration_table_is_of_turn(const struct ng_comm *comm,
                                      const struct ng_shared_resources *sharing,
                                      const struct ng_registration_table *table);

/* An abort has taken the communicator, or is about to: NCCL must not be called with it any more,
 * not even by who is in the middle of several calls. Any thread. */
bool ng_registration_table_is_cut_off(const struct ng_comm *comm);

/* Held, as a guest: the program is not ending the communicator, and it has its handle. */
bool ng_registration_table_lives(const struct ng_comm *comm);

/* A moment of waiting for others. Any thread. */
void ng_registration_table_sleep(int64_t ns);

/* ---- Tables ---- */

/* The table at the record of a communicator, and at a slot: for ever readable; NULL none yet. Any
 * thread. */
struct ng_registration_table *ng_registration_table_of(const struct ng_comm *comm);
struct ng_registration_table *ng_registration_table_at(uint32_t slot);

/* The same, made where there is none; NULL: no memory. Program thread. */
struct ng_registration_table *ng_registration_table_make(const struct ng_comm *comm);

/* Tables lie in slots below it. Any thread. */
uint32_t ng_registration_table_slots(void);

/* In a forked child: there are none. */
void ng_registration_table_after_fork(void);

/* ---- Figures ---- */

/* Held: figures of the communicator that the table is of now. */
void ng_registration_table_tell_new(struct ng_registration_table *table);

/* Held: more of one of them. */
void ng_registration_table_count(_Atomic uint64_t *counter, uint64_t more);

/* Of the whole process: how many were made, and given back. Any thread. */
void ng_registration_table_total(uint64_t *ret_made, uint64_t *ret_ended);

/* ---- What is registered ---- */

/* Held, and open: register a segment; the newest entry is its. Where NCCL does not take it, the
 * table is closed. `is_there`: it cannot be freed meanwhile. False: it is not registered. */
bool ng_registration_table_register(struct ng_comm *comm, struct ng_registration_table *table,
                                    const struct ng_segment *segment, bool is_there);

/* Held: does an entry overlap? */
bool ng_registration_table_any_overlaps(const struct ng_registration_table *table,
                                        const struct ng_registration_range *range);

/* Not held, any thread. False: none does, for certain; so the holder need not be waited for. */
bool ng_registration_table_may_overlap(const struct ng_registration_table *table,
                                       const struct ng_registration_range *range);

/* Held: give back what overlaps, and all. NCCL waits for a peer without a bound; nothing is touched
 * any more once the communicator is cut off. */
void ng_registration_table_end_overlapping(struct ng_comm *comm,
                                           struct ng_registration_table *table,
                                           const struct ng_registration_range *range);
void ng_registration_table_end_all(struct ng_comm *comm, struct ng_registration_table *table);

/* Held: no entries any more; NCCL is not called. */
void ng_registration_table_clear(struct ng_registration_table *table);

/* Held: wait until the device is through with what was launched on the communicator; its peers are
 * then through with our buffers too. False: it is not, by then. One that is condemned meanwhile
 * will not be touched any more. */
bool ng_registration_table_await_idle(const struct ng_comm *comm,
                                      const struct ng_registration_table *table, int64_t wait_ns);

/* Do peers answer who gives back? Not with an error, nor where one lets a work wait for longer than
 * a second: no deadline watches who asks. Any thread. */
bool ng_registration_table_peers_answer(const struct ng_comm *comm);

/* How long a call waits for that, which must not reach NCCL while its buffers are registered, or
 * the other way round. Any thread. */
int64_t ng_registration_table_close_wait_ns(const struct ng_comm *comm);

/* Is plain memory registered, too (NCCL_LEGACY_CUDA_REGISTER)? Any thread. */
bool ng_registration_table_takes_plain_memory(void);

/* ---- Closing ---- */

/* Held: from now on nothing is registered, and what is goes (ng_registration_table_end_closed).
 * Logs why. */
void ng_registration_table_close(struct ng_comm *comm, struct ng_registration_table *table,
                                 enum ng_registration_reason reason);

/* Held, and closed: what is registered goes. False: the device is not through with it; it stays. */
bool ng_registration_table_end_closed(struct ng_comm *comm, struct ng_registration_table *table);

/* Log why: each reason once a process, for there may be thousands of communicators. Any thread. */
void ng_registration_table_tell_closed(const struct ng_comm *comm,
                                       enum ng_registration_reason reason);

#endif
