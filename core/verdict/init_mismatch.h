/*
 * Ranks that joined the creation of a communicator with parameters that do not match.
 *
 * Pure. NCCL's bootstrap cannot complete with a duplicate rank number, a different number of ranks,
 * or a different unique id; once all ranks have joined, it refuses a different version, or one
 * device used twice. Sources: NCCL 2.28.9, bootstrap.cc (bootstrapRoot gives up without notifying
 * the ranks that have joined) and init.cc (initTransportsRank); for variables
 * core/config/nccl_variables.def.
 */
#ifndef NCCLGUARD_CORE_VERDICT_INIT_MISMATCH_H
#define NCCLGUARD_CORE_VERDICT_INIT_MISMATCH_H

#include "core/verdict/wait_graph.h"
#include "core/view/view_index.h"

enum ng_init_differ {
    NG_INIT_RANK,     /* one rank number twice */
    NG_INIT_NRANKS,   /* different numbers of ranks */
    NG_INIT_ID,       /* different unique ids for what is one group */
    NG_INIT_VERSION,  /* NCCL's version */
    NG_INIT_DEVICE,   /* one device twice */
    NG_INIT_VARIABLE, /* an NCCL variable that each rank evaluates for itself */
};

struct ng_init_odd {
    const struct ng_view_member *member;
    const char *why; /* begins with a verb */
};

struct ng_init_mismatch {
    enum ng_init_differ differ;
    uint32_t group; /* the group that the others create */
    int nranks; /* its number of ranks; 0: ranks disagree on it, and the right number is not known
                 */
    /* The ranks that differ from the majority; both sides if it is not known which is wrong. */
    struct ng_init_odd *odds;
    uint32_t odd_count;
    bool undecided;
    bool likely; /* concluded from common practice, or from the rank that the launcher gave it */
    /* The ids that the others use for the group, if ids differ. */
    uint64_t *other_ids;
    uint32_t other_id_count;
};

/*
 * Is such a mismatch the reason why the creation in wait `wait` does not end? Reasons why ranks are
 * missing are looked for first; the others only if no rank is missing, since NCCL checks them only
 * after all ranks have joined. 1: yes, 0: no, or -ENOMEM; memory from `arena`. Also accepts the
 * wait of a first collective: checks variables only, and not if some devices have the operation
 * queued but have not reached it.
 */
int ng_init_mismatch_find(const struct ng_view_index *processes, const struct ng_wait_graph *waits,
                          uint32_t wait, struct ng_arena *arena,
                          struct ng_init_mismatch *ret_mismatch);

/* The name of what differs: "unique id". */
const char *ng_init_differ_text(enum ng_init_differ differ);

#endif
