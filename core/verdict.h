/*
 * The verdict engine: a job's progress in, the reason of a stall out.
 *
 * Step 9. Pure functions: no clock, no file, no lock, no globals; the live library and the offline
 * tool share them. Linear in members and records. Calibrated: a rank without evidence is never
 * blamed, it is listed as missing evidence, and the confidence says how far the evidence goes.
 */
#ifndef NCCLGUARD_CORE_VERDICT_H
#define NCCLGUARD_CORE_VERDICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/view.h"

enum ng_verdict_kind {
#define NG_VERDICT(id, name, text) NG_KIND_##id,
#include "core/verdict.def"
#undef NG_VERDICT
    NG_KIND_COUNT
};

enum ng_confidence { NG_CONFIDENCE_UNKNOWN, NG_CONFIDENCE_LIKELY, NG_CONFIDENCE_CERTAIN };

struct ng_culprit {
    int rank;       /* global, as ng_view_rank; -1 not known */
    int group_rank; /* in the verdict's group; -1 not a member */
    int pid;        /* 0 not known */
    enum ng_life life;
    int64_t quiet_ns; /* it did not answer when asked: what is known is so old; 0 it did */
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
    enum ng_op composed; /* what the sends and receives that are waited in make up, where all of
                            those are known to: core/composed.h; NG_OP_NONE else */
    int64_t stalled_ns;  /* the longest wait in that operation */
    struct ng_culprit *culprits;
    uint32_t culprit_count;
    int *waiting; /* global ranks, ascending, that wait directly or indirectly */
    uint32_t waiting_count;
    struct ng_verdict_step *cycle; /* of an order deadlock; none else */
    uint32_t cycle_count;
    char **missing_evidence; /* one phrase each */
    uint32_t missing_evidence_count;

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
};

/*
 * Judge a sealed view. Always gives a verdict; HEALTHY where nothing is stalled. `verdict` is
 * initialised by this function and freed with ng_verdict_fini. -ENOMEM is the only error.
 */
int ng_verdict_reach(const struct ng_view *view, const struct ng_verdict_query *query,
                     struct ng_verdict *ret_verdict);

void ng_verdict_fini(struct ng_verdict *verdict);

const char *ng_verdict_kind_name(enum ng_verdict_kind kind); /* "missing_rank" */
const char *ng_verdict_kind_text(enum ng_verdict_kind kind);
const char *ng_confidence_name(enum ng_confidence confidence);

#endif
