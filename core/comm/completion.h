/*
 * Telling the program of each operation that has ended.
 *
 * The watchdog puts what it retires into a bounded queue; a thread of its own, "ncclguard/tell",
 * hands it to the program's callback. A callback that is slow, or never returns, holds up that
 * thread alone: what the queue has no room for is dropped and counted.
 */
#ifndef NCCLGUARD_CORE_COMM_COMPLETION_H
#define NCCLGUARD_CORE_COMM_COMPLETION_H

#include <stdatomic.h>
#include <stdbool.h>
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

/* Hands a completion to the program's `callback`, whatever its type is. */
typedef void ng_completion_fn(void (*callback)(void), void *context,
                              const struct ng_completion *completion);

/*
 * Program threads: `tell` is called with each operation that ends from now on, one call at a time,
 * without any lock. 0; -EBUSY: somebody is told already; -ENOMEM; or -errno of the thread.
 */
int ng_completion_begin(ng_completion_fn *tell, void (*callback)(void), void *context);

/*
 * No more: what has ended by now is told first, until `deadline_mono_ns`; what is left then is
 * dropped. 0, and `tell` is not called again; -ETIMEDOUT: it is inside a call still, which will be
 * its last; -ENOENT: nobody is told. *ret_dropped: operations that were not told, since the
 * beginning.
 */
int ng_completion_end(int64_t deadline_mono_ns, uint64_t *ret_dropped);

/* ---- Guard threads ---- */

/* The guard starts: so does the thread, where somebody is to be told. */
void ng_completion_start(void);

extern atomic_bool ng_completion_wanted __attribute__((visibility("hidden")));

/* The slow halves of the functions below. */
void ng_completion_add(const struct ng_comm *comm, const struct ng_box_record *record,
                       enum ng_record_state state);
void ng_completion_add_dropped(uint64_t count);

/* Watchdog: this record has reached its last state. */
static inline void ng_completion_note(const struct ng_comm *comm,
                                      const struct ng_box_record *record,
                                      enum ng_record_state state)
{
    if (__builtin_expect(atomic_load_explicit(&ng_completion_wanted, memory_order_acquire), 0))
        ng_completion_add(comm, record, state);
}

/* So many will not be told: their records are gone, or nobody can see them end. Any thread. */
static inline void ng_completion_lose(uint64_t count)
{
    if (__builtin_expect(atomic_load_explicit(&ng_completion_wanted, memory_order_acquire), 0))
        ng_completion_add_dropped(count);
}

/* Watchdog, once a round: let the thread see what was added. */
void ng_completion_flush(void);

/* Operations that were not told, since somebody is or was. Any thread. */
uint64_t ng_completion_dropped(void);

/* The process exits, or no thread but the guard's is left: nothing more is told, and the thread
 * ends. Does not wait. */
void ng_completion_quit(void);

/* In a forked child: nobody is told. */
void ng_completion_after_fork(void);

#endif
