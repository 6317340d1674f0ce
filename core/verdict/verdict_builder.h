/*
 * What the parts of the verdict engine share: the state of a verdict under construction, and the
 * functions by which several parts write into it.
 *
 * Pure; inside the engine (core/verdict/verdict.h) only. Everything belongs to the calling thread.
 * Functions that return int return 0, or -ENOMEM, after which the verdict is unusable.
 */
#ifndef NCCLGUARD_CORE_VERDICT_VERDICT_BUILDER_H
#define NCCLGUARD_CORE_VERDICT_VERDICT_BUILDER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/util/arena.h"
#include "core/util/clock.h"
#include "core/verdict/init_mismatch.h"
#include "core/verdict/verdict.h"
#include "core/verdict/wait_cause.h"
#include "core/verdict/wait_graph.h"
#include "core/view/view_index.h"

/* Each watchdog measures separately: waits whose ages differ by less count as equally old. */
#define NG_VERDICT_BUILDER_SAME_AGE_NS NG_S

struct ng_verdict_builder {
    const struct ng_view *view;
    struct ng_verdict *verdict;
    struct ng_arena scratch;
    struct ng_wait_graph waits;
    struct ng_view_index processes;
    enum ng_cause *causes; /* of the waits */
    /* The first process that ended normally while others wait for it; NULL none. */
    const struct ng_view_process *leaver;
    bool
        leaver_heard; /* NCCL had reported to it that a peer is gone, so it need not be the first */
    bool ends;        /* ng_verdict_query.ends */
    struct ng_init_mismatch
        ids; /* the result about different unique ids, shared by all their waits */
    uint32_t culprit_room;
    int error;                 /* -ENOMEM once there was no room for a culprit; then: */
    struct ng_culprit no_room; /* what is written of it */
};

static inline const struct ng_view_process *
ng_verdict_builder_process_of(const struct ng_verdict_builder *builder,
                              const struct ng_view_member *member)
{
    return &builder->view->processes[member->process];
}

/* Has the process of this member ended, or is it lost? */
bool ng_verdict_builder_is_gone(const struct ng_verdict_builder *builder,
                                const struct ng_view_member *member);

/* Adds a culprit with empty `why`; `member` NULL if nothing is known of it. Never NULL: if there is
 * no room, builder->error says so. */
struct ng_culprit *ng_verdict_builder_add_culprit(struct ng_verdict_builder *builder,
                                                  const struct ng_view_member *member,
                                                  int group_rank);

/* The same for a member of the group of the verdict. */
static inline struct ng_culprit *ng_verdict_builder_blame(struct ng_verdict_builder *builder,
                                                          const struct ng_view_member *member)
{
    return ng_verdict_builder_add_culprit(builder, member, member->group_rank);
}

/* The rank that the process of `member` has in another group; -1: none, or more than one. */
int ng_verdict_builder_rank_in(const struct ng_verdict_builder *builder, uint32_t group,
                               const struct ng_view_member *member);

/* Sets the group of the verdict. */
void ng_verdict_builder_set_group(struct ng_verdict_builder *builder, uint32_t group);

/* Sorts by rank; culprits without a rank come last. */
void ng_verdict_builder_sort_culprits(struct ng_culprit *culprits, uint32_t count);

/* List each waiting rank once, excluding culprits (already sorted): in all groups, and in one
 * group. */
int ng_verdict_builder_list_waiting(struct ng_verdict_builder *builder);
int ng_verdict_builder_list_waiting_in(struct ng_verdict_builder *builder, uint32_t group);

#endif
