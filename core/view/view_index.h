/*
 * The processes of a view, indexed: the devices that each drives, its host, and the numbers of its
 * ranks.
 *
 * Pure. Built once for a verdict, so that no lookup has to scan the whole view.
 */
#ifndef NCCLGUARD_CORE_VIEW_VIEW_INDEX_H
#define NCCLGUARD_CORE_VIEW_VIEW_INDEX_H

#include "core/view/view.h"

/* A loop over the members of a group, in order of group rank; none if the view has none. */
#define NG_EACH_MEMBER(item, view, group)                                                          \
    for (const struct ng_view_member *item##_end, *item = ({                                       \
             uint32_t count_ = 0;                                                                  \
             const struct ng_view_member *first_ = ng_view_members(view, group, &count_);          \
             item##_end = first_ ? first_ + count_ : NULL;                                         \
             first_;                                                                               \
         });                                                                                       \
         item < item##_end; item++)

struct ng_view_host {
    uint32_t first, count; /* its processes in ng_view_index.of_host */
    uint32_t lost;         /* how many of them are NG_LIFE_LOST */
    bool silent;  /* no process on it is known to be alive: those that are not lost have ended */
    bool answers; /* one that is alive has answered when last asked */
    bool quiet;   /* one that is alive, as far as is known, has not */
};

struct ng_view_index {
    const struct ng_view *view;
    /* Members of process p: members[first[p]] up to, not including, members[first[p + 1]]; indices
     * in the view, ascending. */
    uint32_t *first, *members;
    uint32_t *first_call; /* per process: index in the view + 1; 0 none. A process's calls are
                             contiguous. */
    int *ranks;           /* per member: the result of ng_view_rank, precomputed */
    struct ng_view_host *hosts;
    uint32_t *host;    /* per process: index in `hosts` */
    uint32_t *of_host; /* processes in order of host, then rank */
    uint32_t host_count;
};

/* What a process left open. */
struct ng_remains {
    uint32_t open;    /* communicators that it has neither destroyed nor aborted */
    uint32_t pending; /* communicators, in whatever state, with work in flight */
    uint32_t seen;    /* communicators of it that are known */
};

/* Builds the index of a sealed view; memory from `arena`. 0 or -ENOMEM. */
int ng_view_index_find(const struct ng_view *view, struct ng_arena *arena,
                       struct ng_view_index *ret_processes);

/* Is this a group of the whole job, in which each rank equals the rank that the launcher gave? */
bool ng_view_index_is_world(const struct ng_view_index *processes, uint32_t group);

/* The process of global rank `rank`, a live one in preference to one of an earlier run; UINT32_MAX:
 * not in the view. */
uint32_t ng_view_index_of_rank(const struct ng_view_index *processes, int rank);

void ng_view_index_remains(const struct ng_view_index *processes, uint32_t process,
                           struct ng_remains *ret_remains);

/* The first known call that a thread of the process is inside; NULL none. */
const struct ng_view_call *ng_view_index_call(const struct ng_view_index *processes,
                                              uint32_t process);

/* Ranks of the lost processes of a host, "4-5", as many as there is room for. *ret_count: number of
 * ranks. */
void ng_view_index_lost_ranks(const struct ng_view_index *processes,
                              const struct ng_view_host *host, char *ret_text, size_t bytes,
                              uint32_t *ret_count);

/* Is work of this member in flight? */
bool ng_view_is_pending(const struct ng_view_member *member);

#endif
