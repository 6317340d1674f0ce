/*
 * The verdict engine: a job's progress in, the reason of a stall out.
 *
 * Pure functions: no clock, no file, no lock, no globals; the live library and the offline tool
 * share them. Linear in members and records. Calibrated: a rank without evidence is never blamed,
 * it is listed as missing evidence, and the confidence says how far the evidence goes.
 */
#ifndef NCCLGUARD_CORE_VERDICT_VERDICT_H
#define NCCLGUARD_CORE_VERDICT_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/nccl/disagreement.h"
#include "core/view/view.h"

enum ng_verdict_kind {
#define NG_VERDICT(id, name, text) NG_KIND_##id,
#include "core/verdict/verdict.def"
#undef NG_VERDICT
    NG_KIND_COUNT
};

enum ng_confidence { NG_CONFIDENCE_UNKNOWN, NG_CONFIDENCE_LIKELY, NG_CONFIDENCE_CERTAIN };

struct ng_mismatch;

struct ng_culprit {
    int rank;       /* global, as ng_view_rank; -1 not known */
    int group_rank; /* in the verdict's group; -1 not a member */
    int pid;        /* 0 not known */
    enum ng_life life;
    int64_t quiet_ns; /* it did not answer when asked: what is known is so old; 0 it did */
    int64_t gone_ns;  /* its life ended so long ago; 0 not known, or it lives */
    char host[64];
    char why[512]; /* one sentence */
};

/*
 * One step of a deadlock by order: a rank is in an operation that needs the rank of the next step
 * (after the last step, of the first), and that one is in an operation of its own and has not come.
 */
struct ng_verdict_step {
    int rank, group_rank; /* global, and in the group of the operation */
    uint64_t group_id;
    char group_name[64];
    enum ng_op op;
    uint64_t seq; /* 0 where it is no collective */
    int waits_for_rank;
    bool queued; /* the rank that it waits for has called the operation too, but its device is still
                    in the operation of the next step */
};

/* A fault that NCCLGUARD_FAULT has injected: what looks like an accident may be a rehearsal. */
struct ng_verdict_rehearsal {
    int rank;          /* global; -1 not known */
    const char *fault; /* as NCCLGUARD_FAULT has it */
    uint64_t times;
    /* The newest of them. */
    enum ng_op op;
    uint64_t group_id, seq; /* 0 none */
    int64_t age_ns;
};

/* Where a rank concerned called NCCL, of those whose calls have frames. */
struct ng_verdict_call {
    int rank;   /* global */
    bool waits; /* in this call, of the verdict's operation; else it is a culprit's newest call */
    uint64_t group_id;
    enum ng_op op;
    uint64_t seq;                       /* 0 where it is no collective */
    const struct ng_view_frame *frames; /* innermost first */
    uint32_t count;
};

struct ng_verdict {
    struct ng_arena arena; /* owns everything below */
    enum ng_verdict_kind kind;
    enum ng_confidence confidence;
    /* The group and operation in question; group_id 0 where there is none (healthy). */
    uint64_t group_id;
    char group_name[64];
    int group_nranks;
    uint64_t seq; /* from 1; 0 where it is no collective */
    enum ng_op op;
    enum ng_op pattern; /* what the sends and receives that are waited in make up, where all of
                            those are known to: core/view/p2p_patterns.h; NG_OP_NONE else */
    bool cold; /* the first collective of the group, and ranks are inside the call: NCCL connects
                  them there */
    /* Of a remote error, or of who left since NCCL told it of one: nobody is known to be behind it,
     * and ranks of the group do not answer. If they are gone, that will be known soon. */
    bool may_be_gone;
    /* A rank has ended, and what others wait in never comes: that is certain, though of two ranks
     * nothing tells which one is wrong. */
    bool end_is_certain;
    /* Calls differ, and ranks of the group that have not come to that call yet may tell who is
     * wrong. */
    bool others_may_tell;
    /* Nobody knows why, all ranks have come, and some are inside the host call: the making of a
     * communicator, or a collective in which NCCL connects them, or which waits for an agreement
     * (NCCLGUARD_CHECK=strict). */
    bool all_came;
    /* Where those that wait are in the replay of a CUDA graph: which, by their numbers in one of
     * the processes. 0 none. The position is 0 where a later launch hides it. */
    uint64_t graph, replay;
    uint32_t graph_position, graph_calls;
    /* What all known ranks passed to it alike; core/verdict/verdict_arguments.c. */
    uint64_t count; /* elements */
    bool count_known;
    const char *dtype;   /* NCCL's name; NULL none, not known, or not alike */
    int64_t stalled_ns;  /* the longest wait in that operation */
    int64_t deadline_ns; /* how long ranks may wait in it; 0 none, or not known */
    struct ng_culprit *culprits;
    uint32_t culprit_count;
    int *waiting; /* global ranks, ascending, that wait directly or indirectly */
    uint32_t waiting_count;
    struct ng_verdict_step *cycle; /* of an order deadlock; none else */
    uint32_t cycle_count;
    struct ng_verdict_call *calls; /* culprits first, then one rank that waits */
    uint32_t call_count;
    uint64_t *other_ids; /* what ranks with another unique id call the group; none else */
    uint32_t other_id_count;
    char **missing_evidence; /* one phrase each */
    uint32_t missing_evidence_count;
    struct ng_verdict_rehearsal *rehearsal; /* all that were injected so far, by rank */
    uint32_t rehearsal_count;

    /* Not the engine's: filled by who acts. */
    char job[128];
    int64_t time_unix_ns;
    int detected_by;    /* global rank; -1 offline */
    const char *action; /* "none", "log", "kill" */
};

struct ng_verdict_query {
    /* Work pending for at least this long counts as stalled; younger work is not looked at. */
    int64_t stalled_ns;
    /* Asked since a watchdog is stuck: that is told of, whatever else is wrong. Else it is told of
     * where nothing that needs no watchdog explains the stall. */
    bool watchdog;
    /* Asked since numbers that are none were found: that is told of, whatever else is wrong. Else
     * it is told of where the call that was to send them is held for it. */
    bool nan;
    /* Asked for ends that are news: the end that a rank which lives waits for, and that nothing
     * explains, goes before the one for which others left. */
    bool ends;
    /* Asked since two ranks of this group were found to call different things, whether or not
     * anything hangs: that alone is judged. Its group_id 0: not so. */
    struct ng_disagreement disagreement;
};

/*
 * Judge a sealed view. Always gives a verdict; HEALTHY where nothing is stalled. `verdict` is
 * initialised by this function and freed with ng_verdict_fini. -ENOMEM is the only error.
 */
int ng_verdict_reach(const struct ng_view *view, const struct ng_verdict_query *query,
                     struct ng_verdict *ret_verdict);

/* The last part of that: verdict->calls, as far as the view has frames. 0 or -ENOMEM. */
int ng_verdict_add_calls(const struct ng_view *view, struct ng_verdict *verdict);

void ng_verdict_fini(struct ng_verdict *verdict);

const char *ng_verdict_kind_name(enum ng_verdict_kind kind); /* "missing_rank" */
const char *ng_verdict_kind_text(enum ng_verdict_kind kind);
/* Of a verdict's line, as ng_report_line writes it; NG_KIND_UNKNOWN where it begins with no kind.
 */
enum ng_verdict_kind ng_verdict_kind_of_line(const char *line);
const char *ng_confidence_name(enum ng_confidence confidence);

/* How sure it is that those are wrong who differ from `expected`. */
enum ng_confidence ng_mismatch_confidence(const struct ng_mismatch *mismatch);

#endif
