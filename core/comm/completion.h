/*
 * Reports each operation that has ended to the program.
 *
 * The watchdog puts retired operations into a bounded queue; a dedicated thread, "ncclguard/tell",
 * passes them to the program's callback. A callback that is slow or never returns blocks only that
 * thread: operations for which the queue has no room are dropped and counted.
 */
#ifndef NCCLGUARD_CORE_COMM_COMPLETION_H
#define NCCLGUARD_CORE_COMM_COMPLETION_H

#include <stdatomic.h>
#include <stdint.h>

#include "core/recorder/box.h"

struct ng_comm;

/* One operation. Times are CLOCK_MONOTONIC. */
struct ng_completion {
    uint64_t group_id;
    char group_name[NG_BOX_NAME_BYTES];
    enum ng_op op;
    int peer;     /* root, or peer of a send or receive; -1 none */
    uint64_t seq; /* of the group's collectives, or of its sends and receives */
    uint64_t bytes;
    int64_t called_ns, started_ns, completed_ns;
    int64_t duration_ns; /* measured by the device; 0 not measured */
    int result;          /* ncclResult_t */
};

/* Passes a completion to the program's `callback`, whatever its actual type is. */
typedef void ng_completion_fn(void (*callback)(void), void *context,
                              const struct ng_completion *completion);

/*
 * Program threads: from now on `tell` is called for each operation that ends, one call at a time,
 * without any lock held; a forked child has no callback. 0; -EBUSY: one is already registered;
 * -ENOMEM; or -errno of creating the thread.
 */
int ng_completion_begin(ng_completion_fn *tell, void (*callback)(void), void *context);

/*
 * Unregister the callback: operations that have ended by now are reported first, until
 * `deadline_mono_ns`; the rest is dropped. 0, and `tell` is not called again; -ETIMEDOUT: a call is
 * still running, which will be the last; -ENOENT: no callback is registered. *ret_dropped:
 * operations not reported since the registration.
 */
int ng_completion_end(int64_t deadline_mono_ns, uint64_t *ret_dropped);

/* ---- Guard threads ---- */

/* Start the thread with the guard, if a callback is registered. */
void ng_completion_start(void);

extern atomic_bool ng_completion_wanted __attribute__((visibility("hidden")));

/* The slow halves of the functions below. */
void ng_completion_add(const struct ng_comm *comm, const struct ng_box_record *record,
                       enum ng_record_state state);
void ng_completion_add_dropped(uint64_t count);

/* Watchdog: this record has reached its final state. */
static inline void ng_completion_note(const struct ng_comm *comm,
                                      const struct ng_box_record *record,
                                      enum ng_record_state state)
{
    if (__builtin_expect(atomic_load_explicit(&ng_completion_wanted, memory_order_acquire), 0))
        ng_completion_add(comm, record, state);
}

/* `count` operations will not be reported: their records are gone, or their end cannot be observed.
 * Any thread. */
static inline void ng_completion_lose(uint64_t count)
{
    if (__builtin_expect(atomic_load_explicit(&ng_completion_wanted, memory_order_acquire), 0))
        ng_completion_add_dropped(count);
}

/* Watchdog, once a round: wake the thread if anything was added. */
void ng_completion_flush(void);

/* Operations that were not reported since the last registration. Any thread. */
uint64_t ng_completion_dropped(void);

/* The process exits, or only threads of the guard are left: nothing more is reported, and the
 * thread ends. Does not wait. */
void ng_completion_quit(void);

#endif
