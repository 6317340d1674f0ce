/*
 * Who waits in what, and for whom: the wait-for relation of a view.
 *
 * A wait is one operation of one group in which at least one rank has been stuck for long enough.
 * Ranks that it needs and that have not come are its absentees; an absentee that is itself stuck in
 * another wait is an edge from this wait to that one. Pure.
 */
#ifndef NCCLGUARD_CORE_VERDICT_WAIT_GRAPH_H
#define NCCLGUARD_CORE_VERDICT_WAIT_GRAPH_H

#include "core/view/view.h"

enum ng_wait_type {
    NG_WAIT_COLLECTIVE,
    NG_WAIT_P2P,
    NG_WAIT_CREATE, /* communicator init: the group is the new one; split and its kin: the parent */
    NG_WAIT_END,    /* finalize, destroy */
};

enum ng_absence {
    NG_ABSENT_ALIVE,
    NG_ABSENT_STOPPED,
    NG_ABSENT_EXITED,
    NG_ABSENT_DEAD,
    NG_ABSENT_LOST,   /* of a host that nobody has heard of for too long */
    NG_ABSENT_UNSEEN, /* no evidence of this rank */
};

/* A rank that a wait needs. */
struct ng_absentee {
    const struct ng_view_member *member; /* NULL: no evidence */
    int group_rank;
    enum ng_absence absence;
    int32_t stuck_in; /* index of another wait that holds it; -1 none */
    bool came;        /* it made the call, but is gone or frozen before it finished */
    bool queued;      /* it made the call, but its device is still in the work of `stuck_in` */
    bool in_order;    /* likewise, as the order of calls on the stream tells */
    bool vague;       /* likewise, but all are of NCCL groups: it may be the other way round */
    bool open_group;  /* it made the call inside ncclGroupStart and has not reached ncclGroupEnd */
    bool faulted;     /* it made the call, but CUDA has failed on its device for good */
    bool overwritten; /* point-to-point: alive, but its records do not reach back far enough to tell
                         whether it made the call; UNSEEN as well */
    bool left_group;  /* it destroyed or aborted its communicator */
    enum ng_op
        leaving;     /* it is inside that call, or ncclCommFinalize; NG_OP_NONE: in none of them */
    bool failed;     /* NCCL told it that the communicator cannot be made */
    bool followed;   /* it left since NCCL told it of another end, that of who is absent from a wait
                        of leavers */
    bool may_follow; /* likewise, but nobody is known to be gone: ranks of that group do not answer,
                        and may be */
    bool process_seen; /* no evidence of it in this group, but its process is in the view */
    bool send;         /* point-to-point: what is missing is its send (else its receive) */
    int for_rank;      /* point-to-point: group rank that waits for it */
};

/* Has it ended the communicator, or is about to, without having come? Then it never will, wherever
 * it is stuck now. */
static inline bool ng_absentee_has_left(const struct ng_absentee *absentee)
{
    return absentee->left_group || (absentee->leaving && !absentee->came);
}

/* What one rank in a point-to-point wait needs: the call of a peer that has not come. */
struct ng_need {
    uint32_t member;   /* index in the view: who waits */
    uint32_t absentee; /* index in the wait: for whom */
    enum ng_op op;     /* what the waiter called: send, receive */
};

struct ng_wait {
    enum ng_wait_type type;
    uint32_t group;
    uint64_t seq; /* collective sequence; 0 else */
    enum ng_op op;
    enum ng_op
        pattern; /* point-to-point: what all that wait make up together, core/view/p2p_patterns.h;
                     NG_OP_NONE: nothing, or one cannot tell. Set by core/verdict/verdict.c */
    int64_t age_ns;         /* the longest */
    int64_t entered_age_ns; /* since the first of the waiters made the call; 0 not recorded */
    int left_out;           /* the one rank that a shrink leaves out; -1 none, or not known */
    bool cold; /* the first collective, and a waiter is inside the host call: NCCL connects there */
    bool on_host;    /* a rank is still inside the call of a collective, all ranks inside those of
                        sends and    receives: their devices have nothing of it yet */
    bool blind;      /* what a waiter waits for is not recorded, or not all of it */
    bool served;     /* point-to-point: there is a waiter whose own peers have all come */
    bool of_leavers; /* what those were in that left since NCCL told them of an end: nobody waits in
                        it any more, and those that are gone are its absentees */
    uint32_t waiter_count;
    uint32_t not_started; /* waiters whose device has not reached the work */
    struct ng_absentee *absentees;
    uint32_t absentee_count, absentee_room;
    struct ng_need *needs; /* point-to-point: in order of members; else all need all absentees */
    uint32_t need_count, need_room;
};

struct ng_wait_graph {
    struct ng_wait *waits;
    uint32_t count, room;
    /* Index of the (oldest) wait that a member is stuck in; -1 none: none of leavers. */
    int32_t *wait_of_member;
    bool *
        queued; /* a member's device has not reached its work, and is in the work of another wait */
    bool *
        held; /* a member came to a wait, even if not long enough ago to count as stuck by itself */
    /* Members that are stuck in a wait: of process p, stuck[stuck_first[p]] up to, not including,
     * stuck[stuck_first[p + 1]]. */
    uint32_t *stuck_first, *stuck;
};

/*
 * Are two members the same rank of the job: what one waits for, the other cannot do? The same
 * process and, where it drives several devices, the same device.
 */
static inline bool ng_same_actor(const struct ng_view *view, const struct ng_view_member *a,
                                 const struct ng_view_member *b)
{
    return a->process == b->process &&
           (!view->processes[a->process].drives_several || a->device == b->device);
}

/*
 * Does `stuck`, a member in wait `in`, hold up wait `wait`, which needs `absentee` of it? Not in
 * one's own wait, but for sends and receives; and where the absentee is only queued on its device,
 * what the device is in does.
 */
bool ng_wait_is_held_up(const struct ng_view *view, const struct ng_wait_graph *waits,
                        uint32_t wait, const struct ng_absentee *absentee, uint32_t stuck);

/*
 * Has the process of this member left since NCCL told it that a peer of this communicator is gone,
 * with the communicator as it was, or once it had ended that? Then it was in the middle of things
 * everywhere, and who waits for it elsewhere waits for that peer, in truth.
 */
bool ng_wait_left_since_told(const struct ng_view *view, const struct ng_view_member *member);

/* What the wait is about: of a collective from whoever knows. */
enum ng_op ng_wait_op(const struct ng_view *view, const struct ng_wait *wait);

/* From a sealed view; memory from `arena`. 0 or -ENOMEM. */
int ng_wait_graph_find(const struct ng_view *view, int64_t stalled_ns, struct ng_arena *arena,
                       struct ng_wait_graph *ret_waits);

#endif
