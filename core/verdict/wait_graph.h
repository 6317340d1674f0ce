/*
 * The wait-for graph of a view: which ranks wait in which operation, and for which ranks.
 *
 * A wait is one operation of one group in which at least one rank has been stuck for long enough.
 * Ranks that the operation needs and that have not joined it are its absentees. An absentee that is
 * itself stuck in another wait forms an edge from this wait to that one. Pure.
 */
#ifndef NCCLGUARD_CORE_VERDICT_WAIT_GRAPH_H
#define NCCLGUARD_CORE_VERDICT_WAIT_GRAPH_H

#include "core/view/view.h"

enum ng_wait_type {
    NG_WAIT_COLLECTIVE,
    NG_WAIT_P2P,
    NG_WAIT_CREATE, /* communicator init: the group is the new one; split, shrink and grow: the
                       parent */
    NG_WAIT_END,    /* finalize, destroy */
    NG_WAIT_HOST,   /* the other calls in which ranks wait for each other on the host */
};

enum ng_absence {
    NG_ABSENT_ALIVE,
    NG_ABSENT_STOPPED,
    NG_ABSENT_EXITED,
    NG_ABSENT_DEAD,
    NG_ABSENT_LOST,   /* on a host that has sent no message for too long */
    NG_ABSENT_UNSEEN, /* no evidence of this rank */
};

/* A rank that a wait needs. */
struct ng_absentee {
    const struct ng_view_member *member; /* NULL: no evidence */
    int group_rank;
    enum ng_absence absence;
    int32_t stuck_in; /* index of another wait that holds it; -1 none */
    bool came;        /* it made the call, but was gone or frozen before it finished */
    bool queued;      /* it made the call, but its device is still in the work of `stuck_in` */
    bool in_order;    /* as `queued`, concluded from the order of calls on the stream */
    bool vague; /* as `queued`, but all calls belong to NCCL groups, so the order may be reversed;
                   or that the device is in the other work is inferred */
    uint32_t closing_tid; /* it made the call in an NCCL group that this thread of it is inside the
                             end of: NCCL starts no call of the group before those of `stuck_in`, on
                             another communicator, are connected. 0: not so, or not known */
    bool open_group;  /* it made the call inside ncclGroupStart and has not reached ncclGroupEnd */
    bool faulted;     /* it made the call, but CUDA has failed permanently on its device */
    bool overwritten; /* point-to-point: alive, but its records do not reach back far enough to show
                         whether it made the call; also UNSEEN */
    bool left_group;  /* it destroyed or aborted its communicator */
    enum ng_op leaving; /* the call that ends the communicator, or ncclCommFinalize, which it is
                           inside; NG_OP_NONE: none */
    bool failed;        /* NCCL reported to it that the communicator cannot be created */
    bool followed;   /* it left because NCCL reported the end of another process, one that is absent
                        from a wait of leavers */
    bool may_follow; /* as `followed`, but no process is known to be gone: ranks of that group do
                        not answer and may be */
    /* UNSEEN: what NCCL's RAS says of it, since the wait began; NULL nothing. */
    const struct ng_view_ras *ras;
    bool process_seen; /* no evidence of it in this group, but its process is in the view */
    bool send;         /* point-to-point: its send is missing (false: its receive) */
    int for_rank;      /* point-to-point: group rank that waits for it */
};

/* Has it ended the communicator, or is it about to, without having joined the operation? Then it
 * never will, wherever it is stuck now. */
static inline bool ng_absentee_has_left(const struct ng_absentee *absentee)
{
    return absentee->left_group || (absentee->leaving && !absentee->came);
}

/* What one rank in a point-to-point wait needs: a call that a peer has not made. */
struct ng_need {
    uint32_t member;   /* the waiting member: index in the view */
    uint32_t absentee; /* the absentee it waits for: index in the wait */
    enum ng_op op;     /* what the waiting rank called: send or receive */
};

struct ng_wait {
    enum ng_wait_type type;
    uint32_t group;
    uint64_t seq; /* collective sequence number; otherwise 0 */
    enum ng_op op;
    enum ng_op pattern;     /* point-to-point: what the calls of all waiting ranks form,
                               core/view/p2p_patterns.h; NG_OP_NONE: nothing, or not known. Set by
                               core/verdict/verdict.c */
    int64_t age_ns;         /* of the longest waiting rank */
    int64_t entered_age_ns; /* since the first waiting rank made the call; 0 not recorded */
    int left_out;           /* the one rank that a shrink excludes; -1 none, or not known */
    bool cold;    /* the first collective, and a waiting rank is inside the host call: NCCL connects
                     there */
    bool on_host; /* a rank is still inside the call of a collective, or all ranks are inside calls
                     of sends and receives: their devices have no work of it yet */
    bool blind;   /* what a waiting rank waits for is not recorded, or only in part */
    bool served;  /* point-to-point: there is a waiting rank whose own peers have all made their
                     calls */
    bool of_leavers; /* the operation that ranks were in when they left because NCCL reported an
                        end: no rank waits in it any more, and the processes that are gone are its
                        absentees */
    bool sure; /* a collective that every rank waits in for each other, and that one has not called:
                  it is not over, whatever else is known */
    /* All that is known of it comes from watchdogs that hang: the devices may have finished it. */
    bool from_memory;
    int32_t unwatched; /* a member of which another collective was known, by a watchdog that hangs,
                          and is not believed, since all ranks have called it; index in the view, -1
                          none */
    uint32_t waiter_count;
    uint32_t not_started; /* waiting ranks whose device has not reached the work */
    struct ng_absentee *absentees;
    uint32_t absentee_count, absentee_room;
    struct ng_need *needs; /* point-to-point: in order of members; else all need all absentees */
    uint32_t need_count, need_room;
};

struct ng_wait_graph {
    struct ng_wait *waits;
    uint32_t count, room;
    /* Index of the (oldest) wait that a member is stuck in, not counting waits of leavers; -1
     * none. */
    int32_t *wait_of_member;
    bool *
        queued; /* per member: its device has not reached its work, and is in another wait's work */
    bool *
        held; /* per member: it joined a wait, though maybe too recently to count as stuck itself */
    /* Members that are stuck in a wait; for process p: stuck[stuck_first[p]] up to, not including,
     * stuck[stuck_first[p + 1]]. */
    uint32_t *stuck_first, *stuck;
};

/*
 * Are two members the same rank of the job, so that the second can do nothing while the first
 * waits? True for the same process and, if it drives several devices, the same device.
 */
static inline bool ng_same_actor(const struct ng_view *view, const struct ng_view_member *a,
                                 const struct ng_view_member *b)
{
    return a->process == b->process &&
           (!view->processes[a->process].drives_several || a->device == b->device);
}

/*
 * Does member `stuck` block wait `wait`, which needs `absentee` of the same rank? A member does not
 * block the wait that it is in itself, except for sends and receives; and if the absentee's work is
 * only queued on its device, only the work that the device is in blocks it.
 */
bool ng_wait_is_held_up(const struct ng_view *view, const struct ng_wait_graph *waits,
                        uint32_t wait, const struct ng_absentee *absentee, uint32_t stuck);

/*
 * Has the process of this member left because NCCL reported that a peer of this communicator is
 * gone, either with the communicator still open or after ending it? Then it had unfinished work
 * everywhere, and a rank that waits for it in another group really waits for that peer.
 */
bool ng_wait_left_after_report(const struct ng_view *view, const struct ng_view_member *member);

/*
 * Is it only by a watchdog that hangs that the stuck member with this index waits? Its device may
 * have finished what the watchdog saw.
 */
bool ng_wait_is_remembered(const struct ng_view *view, const struct ng_wait_graph *waits,
                           uint32_t stuck);

/* The operation of the wait; for a collective, from any member that knows it. */
enum ng_op ng_wait_op(const struct ng_view *view, const struct ng_wait *wait);

/* Builds the graph of a sealed view; memory from `arena`. 0 or -ENOMEM. */
int ng_wait_graph_find(const struct ng_view *view, int64_t stalled_ns, struct ng_arena *arena,
                       struct ng_wait_graph *ret_waits);

#endif
