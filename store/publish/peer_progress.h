/*
 * The progress that all processes of a job have published on the store, read together.
 *
 * Used by the publisher's thread and by tools; functions that only read memory may run on any
 * thread.
 */
#ifndef NCCLGUARD_STORE_PUBLISH_PEER_PROGRESS_H
#define NCCLGUARD_STORE_PUBLISH_PEER_PROGRESS_H

#include <stdint.h>

#include "core/util/arena.h"
#include "core/view/view.h"
#include "store/publish/publish.h"

/* Room for a sign of life: ms since the progress changed, the question answered, the writer. */
#define NG_SIGN_BYTES 64

struct ng_kv;

/* Slots of a job; a larger count on the store is invalid. */
#define NG_PEER_PROGRESS_SLOTS_MAX (1 << 20)

/* Every process's blob with its sign of life and incarnation, into `arena`. 0 or -errno. */
int ng_peer_progress_fetch(struct ng_kv *kv, int64_t deadline_mono_ns, struct ng_arena *arena,
                           struct ng_peer_progress **ret_blobs, uint32_t *ret_count);

/* Has it given a sign of life, and does not tell of an end? */
bool ng_peer_progress_is_living(const struct ng_peer_progress *blob);

/*
 * Append processes to a view that may have some already; those are more accurate, and are not added
 * again (by uid). Only those of incarnation `root`, and live processes of others whose global rank
 * no process of `root` has: they have no group in common with `root` yet. Their launcher must say
 * the same of its run, or all live processes must fit into one run. Does not seal the view.
 * `ttl_ns`: of signs of life. 0 or -ENOMEM.
 */
int ng_peer_progress_add(const struct ng_peer_progress *blobs, uint32_t count, uint64_t root,
                         int64_t ttl_ns, struct ng_view *view);

/*
 * May these incarnations, `roots`, be one? 0; -EPERM: a rank of the job is two of their processes,
 * even if dead by now, so that each has its own: they are runs of the job that overlap; or -ENOMEM.
 */
int ng_peer_progress_may_be_one(const struct ng_peer_progress *blobs, uint32_t count,
                                const uint64_t *roots, uint32_t root_count, struct ng_arena *arena);

/* The run of processes by hand that have no communicator yet, while there are several runs. */
#define NG_PEER_RUN_OPEN 1

/*
 * For each blob the run that it belongs to, as tools name it: what the launcher says to all of its
 * processes, else an incarnation. Processes are of one run by a communicator in common, by the same
 * word of their launchers, and as long as all live ones fit together. NULL: no memory.
 */
const uint64_t *ng_peer_progress_runs(const struct ng_peer_progress *blobs, uint32_t count,
                                      struct ng_arena *arena);

enum ng_peer_whose {
    NG_PEER_OF_OURS,    /* as far as is known */
    NG_PEER_OF_ANOTHER, /* run, for certain */
    NG_PEER_UNCLEAR,    /* several runs are active, and it fits into ours as into another */
};

/*
 * Of which run is process `uid`, for process `own_uid`, if no launcher has identified either and
 * one of them has no communicator yet? 0; -ENOMEM.
 */
int ng_peer_progress_whose(const struct ng_peer_progress *blobs, uint32_t count, uint64_t own_uid,
                           uint64_t uid, struct ng_arena *arena, enum ng_peer_whose *ret_whose);

#endif
