/*
 * The verdict engine: takes a job's progress, returns the reason of a stall.
 *
 * Pure functions: no clock, no file, no lock, no globals; the live library and the offline tool
 * share them. Linear in members and records. Calibrated: a rank without evidence is never a culprit
 * but listed as missing evidence, and the confidence says how far the evidence goes.
 */
#ifndef NCCLGUARD_CORE_VERDICT_VERDICT_H
#define NCCLGUARD_CORE_VERDICT_VERDICT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "core/nccl/disagreement.h"
#include "core/nccl/verdict_kind.h"
#include "core/view/view.h"

enum ng_confidence { NG_CONFIDENCE_UNKNOWN, NG_CONFIDENCE_LIKELY, NG_CONFIDENCE_CERTAIN };

struct ng_mismatch;

struct ng_culprit {
    int rank;       /* global, as ng_view_rank; -1 not known */
    int group_rank; /* in the verdict's group; -1 not a member */
    int pid;        /* 0 not known */
    enum ng_life life;
    int64_t
        quiet_ns; /* it did not answer a request: age of what is known about it; 0: it answered */
    int64_t gone_ns; /* time since its life ended; 0 not known, or alive */
    char host[64];
    char why[512]; /* one sentence */
};

/* Is this the culprit's process? */
static inline bool ng_culprit_is_of(const struct ng_culprit *culprit,
                                    const struct ng_view_process *process)
{
    return culprit->pid == process->pid && strcmp(culprit->host, process->host) == 0;
}

/*
 * One step of an order deadlock: a rank is in an operation that needs the rank of the next step
 * (after the last step, of the first), which is in a different operation and has not entered this
 * one.
 */
struct ng_verdict_step {
    int rank, group_rank; /* global, and in the group of the operation */
    uint64_t group_id;
    char group_name[64];
    enum ng_op op;
    uint64_t seq; /* 0 if it is no collective */
    int waits_for_rank;
    bool queued;  /* the awaited rank has also called the operation, but its device is still in the
                     operation of the next step */
    bool closing; /* the awaited rank has also called the operation, but in the NCCL group of the
                     operation of the next step, whose end it is inside */
};

/* A fault that NCCLGUARD_FAULT has injected, so that an apparent failure can be recognised as a
 * rehearsal. */
struct ng_verdict_rehearsal {
    int rank;          /* global; -1 not known */
    const char *fault; /* as written in NCCLGUARD_FAULT */
    uint64_t times;
    /* The newest injection. */
    enum ng_op op;
    uint64_t group_id, seq; /* 0 none */
    int64_t age_ns;
};

#define NG_VERDICT_DEVICE_ERRORS_MAX 64u

/* What the driver knows of the device of a rank of the verdict's group. */
struct ng_verdict_device_error {
    int rank;   /* global */
    int device; /* as CUDA numbers it in that process; -1 not known */
    struct ng_device_error error;
};

/* Where an affected rank called NCCL; only for calls that have frames. */
struct ng_verdict_call {
    int rank;   /* global */
    bool waits; /* the rank waits in this call of the verdict's operation; false: it is a culprit's
                   newest call */
    uint64_t group_id;
    enum ng_op op;
    uint64_t seq;                 /* 0 if it is no collective */
    struct ng_view_frame *frames; /* innermost first */
    uint32_t count;
};

struct ng_verdict {
    struct ng_arena arena; /* owns everything below */
    enum ng_verdict_kind kind;
    enum ng_confidence confidence;
    /* The group and operation in question; group_id 0 if there is none (healthy). */
    uint64_t group_id;
    char group_name[64];
    int group_nranks;
    uint64_t seq; /* from 1; 0 if it is no collective */
    enum ng_op op;
    enum ng_op pattern; /* what the sends and receives that ranks wait in form, if that is known of
                           all of them: core/view/p2p_patterns.h; otherwise NG_OP_NONE */
    bool cold; /* the first collective of the group, and ranks are inside the call: NCCL connects
                  them there */
    /* For a remote error, or a rank that left because NCCL reported one: no rank is known to be the
     * reason, and ranks of the group do not answer. If they are gone, that will be known soon. */
    bool may_be_gone;
    /* On a host with ranks that are lost, other processes do not answer. If they are lost, too,
     * that will be known soon: once nothing has been heard of them for as long. */
    bool more_may_be_lost;
    /* A rank that others wait for has ended, so what they wait for will certainly never happen,
     * though which rank is wrong is only likely. */
    bool end_is_certain;
    /* Time since a rank that waits in that operation gave up and ended: core/verdict/victims.h; 0
     * none did. */
    int64_t gave_up_ns;
    /* Calls differ, and ranks of the group that have not made that call yet may show which side is
     * wrong. */
    bool others_may_tell;
    /* There is no evidence of ranks that others wait for: NCCL's RAS may know of them. */
    bool lacks_ranks;
    /* The reason is not known, all ranks have made the call, and some are inside the host call: the
     * creation or the end of a communicator, or a collective in which NCCL connects them or which
     * waits for an agreement (NCCLGUARD_CHECK=strict). */
    bool all_came;
    /* If the waiting ranks are in the replay of a CUDA graph: which one, as numbered in one of the
     * processes. 0 none. The position is 0 if a later launch hides it. */
    uint64_t graph, replay;
    uint32_t graph_position, graph_calls;
    /* By NCCL's own counters, the devices of all ranks that wait have finished the collective
     * before `seq`, and not this one. */
    bool counted;
    /* Arguments that all known ranks passed alike; core/verdict/verdict_arguments.c. */
    uint64_t count; /* elements */
    bool count_known;
    const char *dtype;   /* NCCL's name; NULL: none, not known, or not the same on all ranks */
    int64_t stalled_ns;  /* the longest wait in that operation */
    int64_t deadline_ns; /* how long ranks may wait in it; 0 none, or not known */
    struct ng_culprit *culprits;
    uint32_t culprit_count;
    int *waiting; /* global ranks, ascending, that wait directly or indirectly */
    uint32_t waiting_count;
    struct ng_verdict_step *cycle; /* only for an order deadlock */
    uint32_t cycle_count;
    struct ng_verdict_call *calls; /* culprits first, then one waiting rank */
    uint32_t call_count;
    uint64_t *other_ids; /* ids that ranks with another unique id use for the group */
    uint32_t other_id_count;
    char **missing_evidence; /* one phrase each */
    uint32_t missing_evidence_count;
    char **connections; /* what NCCL's connections show of a stall on the device, likewise */
    uint32_t connection_count;
    struct ng_verdict_device_error *device_errors; /* those that may stop a device first */
    uint32_t device_error_count;
    bool device_errors_cut;                 /* there may be more */
    struct ng_verdict_rehearsal *rehearsal; /* all injected so far, by rank */
    uint32_t rehearsal_count;

    /* Not set by the engine: the caller that acts on the verdict fills these. */
    char job[128];
    int64_t time_unix_ns;
    int detected_by;    /* global rank; -1 offline */
    const char *action; /* "none", "log", "kill" */
};

struct ng_verdict_query {
    /* Work pending for at least this long counts as stalled; younger work is ignored. */
    int64_t stalled_ns;
    /* The query was made because a watchdog is stuck: report that, whatever else is wrong.
     * Otherwise a stuck watchdog is reported only if nothing that is known without it explains the
     * stall. */
    bool watchdog;
    /* The query was made because NaN was found: report that, whatever else is wrong. Otherwise NaN
     * is reported only if the call that was to send it is held because of it. */
    bool nan;
    /* The job has ended: report ranks that crashed, if nothing else is wrong, though no rank waits
     * for them. */
    bool crashes;
    /* Look for new ends of processes: an unexplained end that a live rank waits for takes
     * precedence over the end because of which others left. */
    bool ends;
    /* The query was made because two ranks of this group made different calls, whether or not
     * anything hangs: examine only that. group_id 0: not so. */
    struct ng_disagreement disagreement;
};

/*
 * Reaches the verdict on a sealed view. Always returns one; HEALTHY if nothing is stalled.
 * `verdict` is initialised by this function and freed with ng_verdict_fini. -ENOMEM is the only
 * error.
 */
int ng_verdict_reach(const struct ng_view *view, const struct ng_verdict_query *query,
                     struct ng_verdict *ret_verdict);

/* The last part of ng_verdict_reach: fills verdict->calls, as far as the view has frames. 0 or
 * -ENOMEM. */
int ng_verdict_add_calls(const struct ng_view *view, struct ng_verdict *verdict);

/* Add one phrase to the missing evidence. 0 or -ENOMEM. */
__attribute__((format(printf, 2, 3))) int
ng_verdict_add_missing_evidence(struct ng_verdict *verdict, const char *format, ...);

/* Add one phrase on a connection. 0 or -ENOMEM. */
__attribute__((format(printf, 2, 3))) int ng_verdict_add_connection(struct ng_verdict *verdict,
                                                                    const char *format, ...);

void ng_verdict_fini(struct ng_verdict *verdict);

const char *ng_confidence_name(enum ng_confidence confidence);

/* How certain it is that the ranks that differ from `expected` are wrong. */
enum ng_confidence ng_mismatch_confidence(const struct ng_mismatch *mismatch);

#endif
