/*
 * What the parts of the verdict engine share: one judgement under way, and what is written into its
 * verdict by more than one of them.
 *
 * Pure; inside of the engine (core/verdict/verdict.h) only. Everything is of the thread that
 * judges. Functions that return int return 0, or -ENOMEM: then the verdict is of no use.
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

/* Every watchdog measures for itself: waits that differ by less are equally old. */
#define NG_VERDICT_BUILDER_SAME_AGE_NS NG_S

struct ng_verdict_builder {
    const struct ng_view *view;
    struct ng_verdict *verdict;
    struct ng_arena scratch;
    struct ng_wait_graph waits;
    struct ng_view_index processes;
    enum ng_cause *causes; /* of the waits */
    /* Of those that ended normally while others wait for them, the first; NULL none. */
    const struct ng_view_process *leaver;
    bool leaver_heard; /* NCCL had told it that a peer is gone: it need not be the first */
    bool ends;         /* asked for ends that are news */
    struct ng_init_mismatch
        ids; /* what was found of different unique ids, once for all their waits */
    uint32_t culprit_room;
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

/* One more culprit, `why` still empty; `member` NULL where nothing is known of it. NULL: no memory.
 */
struct ng_culprit *ng_verdict_builder_add_culprit(struct ng_verdict_builder *builder,
                                                  const struct ng_view_member *member,
                                                  int group_rank);

/* The rank in another group of the process that `member` belongs to; -1 not in it, or not one. */
int ng_verdict_builder_rank_in(const struct ng_verdict_builder *builder, uint32_t group,
                               const struct ng_view_member *member);

/* The group that the verdict tells of. */
void ng_verdict_builder_set_group(struct ng_verdict_builder *builder, uint32_t group);

/* By rank; those that have none come last. */
void ng_verdict_builder_sort_culprits(struct ng_culprit *culprits, uint32_t count);

/* Who waits, once each, but not the culprits, which are in order: in any group, and in one. */
int ng_verdict_builder_list_waiting(struct ng_verdict_builder *builder);
int ng_verdict_builder_list_waiting_in(struct ng_verdict_builder *builder, uint32_t group);

#endif
