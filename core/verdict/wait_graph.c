/*
 * The wait-for graph: derives waits and absentees from counters and pending work.
 *
 * Pure. Each group is examined once per kind of wait; the cost is about linear in what there is.
 */
#include "core/verdict/wait_graph.h"

#include <errno.h>
#include <string.h>

#include "core/nccl/group_id.h"
#include "core/nccl/nccl.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/view/signature.h"
#include "core/view/view_index.h"

/* The clocks of different hosts differ by less than this. A process that ends closes its
 * connections before it is gone. */
#define CLOCKS_APART_NS NG_S

/* A program to which NCCL reports an end may end its communicators before it ends itself, by at
 * most this time. */
#define LEAVING_NS (5 * NG_S)

struct finder {
    const struct ng_view *view;
    struct ng_arena *arena;
    struct ng_wait_graph *waits;
    int64_t stalled_ns;
    uint64_t farthest; /* the last collective of the current group that any rank has finished */
    /* Up to this collective of the current group, which all ranks have called, a hanging watchdog's
     * word that it is in flight counts for nothing. */
    uint64_t all_called;
    /* NULL: looks for ranks that wait now. Otherwise, per member, whether it is a leaver: looks for
     * the operations that the leavers were in. `left_in` has the index of each leaver's wait, -1
     * none. */
    const bool *leavers;
    int32_t *left_in;
    uint32_t *calls_of_process; /* index of the first call of a process + 1; calls of a process are
                                   contiguous */
};

static const struct ng_view_process *process_of(const struct finder *finder,
                                                const struct ng_view_member *member)
{
    return &finder->view->processes[member->process];
}

/* Has it stopped waiting? Its process has ended, or its program has ended the communicator, whose
 * last work may appear to be in flight until the watchdog checks again. */
static bool waits_no_more(const struct finder *finder, const struct ng_view_member *member)
{
    if (finder->leavers)
        return !finder->leavers[member - finder->view->members];
    return ng_life_is_gone(process_of(finder, member)->life) ||
           ng_group_state_is_freed(member->state);
}

/* The NCCL call of class `op_class` on this member's group that its process is inside; NULL none.
 */
static const struct ng_view_call *call_of(const struct finder *finder,
                                          const struct ng_view_member *member,
                                          enum ng_op_class op_class, uint64_t group_id)
{
    const struct ng_view *view = finder->view;
    uint32_t first = finder->calls_of_process[member->process];

    for (uint32_t i = first;
         first && i - 1 < view->call_count && view->calls[i - 1].process == member->process; i++) {
        const struct ng_view_call *call = &view->calls[i - 1];
        if (ng_op_table[call->op].op_class != op_class)
            continue;
        if (call->group_id == group_id &&
            (call->group_rank < 0 || call->group_rank == member->group_rank))
            return call;
    }
    return NULL;
}

/* The call in which thread `tid` (0, not known: any) closes an NCCL group, which covers every call
 * of that thread in the group, on any communicator. */
static const struct ng_view_call *group_end_of(const struct finder *finder,
                                               const struct ng_view_member *member, uint32_t tid)
{
    const struct ng_view *view = finder->view;
    uint32_t first = finder->calls_of_process[member->process];

    for (uint32_t i = first;
         first && i - 1 < view->call_count && view->calls[i - 1].process == member->process; i++)
        if (view->calls[i - 1].op == NG_OP_GroupEnd && (!tid || view->calls[i - 1].tid == tid))
            return &view->calls[i - 1];
    return NULL;
}

/* Was this call made in an NCCL group that its thread has not begun to close? */
static bool in_open_group(const struct finder *finder, const struct ng_view_member *member,
                          const struct ng_view_record *record)
{
    return record->state == NG_RECORD_ENTERED && (record->flags & NG_RECORD_IN_GROUP) &&
           !group_end_of(finder, member, record->tid);
}

static struct ng_wait *add_wait(struct finder *finder, enum ng_wait_type type, uint32_t group)
{
    struct ng_wait_graph *waits = finder->waits;

    struct ng_wait *wait = NG_ARENA_APPEND(finder->arena, waits->waits, waits->count, waits->room);
    if (wait)
        *wait = (struct ng_wait){.type = type,
                                 .group = group,
                                 .left_out = -1,
                                 .unwatched = -1,
                                 .of_leavers = finder->leavers != NULL};
    return wait;
}

static struct ng_absentee *add_absentee(struct finder *finder, struct ng_wait *wait,
                                        const struct ng_view_member *member, int group_rank)
{
    struct ng_absentee *absentee =
        NG_ARENA_APPEND(finder->arena, wait->absentees, wait->absentee_count, wait->absentee_room);
    if (!absentee)
        return NULL;
    *absentee = (struct ng_absentee){.member = member,
                                     .group_rank = group_rank,
                                     .absence = NG_ABSENT_UNSEEN,
                                     .stuck_in = -1,
                                     .for_rank = -1};
    if (!member)
        return absentee;
    switch (process_of(finder, member)->life) {
    case NG_LIFE_DEAD:
        absentee->absence = NG_ABSENT_DEAD;
        break;
    case NG_LIFE_EXITED:
        absentee->absence = NG_ABSENT_EXITED;
        break;
    case NG_LIFE_STOPPED:
        absentee->absence = NG_ABSENT_STOPPED;
        break;
    case NG_LIFE_LOST:
        absentee->absence = NG_ABSENT_LOST;
        break;
    default:
        absentee->absence = NG_ABSENT_ALIVE;
    }
    const struct ng_view_call *end =
        call_of(finder, member, NG_CLASS_END, finder->view->groups[member->group].id);
    absentee->left_group = ng_group_state_is_freed(member->state);
    absentee->leaving = end && !absentee->left_group ? end->op : NG_OP_NONE;
    return absentee;
}

static void join(struct finder *finder, const struct ng_wait *wait,
                 const struct ng_view_member *member)
{
    int32_t index = (int32_t)(wait - finder->waits->waits);
    int32_t *of_member = finder->leavers ? finder->left_in : finder->waits->wait_of_member;
    int32_t *held = &of_member[member - finder->view->members];

    if (*held < 0)
        *held = index;
}

/*
 * Is a member's own report outdated? Its process has not answered and was not stuck yet at its last
 * message, and a rank has since finished collective `seq`, for which this one had to proceed. A
 * host that is gone within a second of its start leaves little other evidence.
 */
static bool is_outdated(const struct finder *finder, const struct ng_view_member *member,
                        uint64_t seq, int64_t age_ns)
{
    int64_t quiet_ns = process_of(finder, member)->quiet_ns;

    return quiet_ns && age_ns - quiet_ns < finder->stalled_ns && finder->farthest >= seq;
}

/* Did NCCL fail this call because a peer is gone? */
static bool was_failed(const struct ng_view_record *record)
{
    return record->state == NG_RECORD_FAILED && record->result == NG_NCCL_REMOTE_ERROR;
}

/* The time since a leaver got stuck: its own clock ran until its end. */
static int64_t left_age(const struct finder *finder, const struct ng_view_member *member)
{
    return ng_view_age(ng_view_age(member->pending_age_ns) +
                       ng_view_age(process_of(finder, member)->life_age_ns));
}

/* The collective that a leaver was stuck in, or that NCCL failed; 0 none. */
static uint64_t left_collective(const struct finder *finder, const struct ng_view_member *member,
                                int64_t *ret_age_ns)
{
    *ret_age_ns = left_age(finder, member);
    if (member->pending_record)
        return member->pending_seq;
    for (uint32_t i = member->record_count; i > 0; i--) {
        const struct ng_view_record *record = &member->records[i - 1];
        if (was_failed(record) && !ng_view_record_is_p2p(record))
            return record->coll_seq;
    }
    return member->entered > member->completed ? member->completed + 1 : 0;
}

static bool done(enum ng_record_state state)
{
    return state == NG_RECORD_COMPLETED || state == NG_RECORD_FAILED ||
           state == NG_RECORD_CAPTURED || state == NG_RECORD_UNWATCHED ||
           state == NG_RECORD_WRITING;
}

/* The oldest operation of a member in flight; NULL none, or not recorded. */
static const struct ng_view_record *pending_of(const struct ng_view_member *member)
{
    const struct ng_view_record *record = ng_view_pending_record(member);

    return record && !done(record->state) ? record : NULL;
}

/* Is work of another communicator in flight between two calls of a member on one stream? `to` NULL:
 * anywhere after the first. */
static bool is_work_between(const struct finder *finder, const struct ng_view_member *member,
                            const struct ng_view_record *from, const struct ng_view_record *to)
{
    const struct ng_view *view = finder->view;
    const struct ng_view_process *process = process_of(finder, member);

    for (uint32_t i = 0; i < process->member_count && view->by_process; i++) {
        const struct ng_view_member *other =
            &view->members[view->by_process[process->first_member + i]];
        const struct ng_view_record *pending = pending_of(other);
        if (other != member && pending && ng_same_actor(view, other, member) &&
            pending->stream == from->stream && pending->stream && pending->id > from->id &&
            (!to || pending->id < to->id))
            return true;
    }
    return false;
}

/*
 * A watchdog sees the calls of an NCCL group end together. A call that another rank has finished,
 * for which this rank had to do its part, appears to be in flight while the device is in a later
 * call. Returns the collective, from `seq` on, that the rank is in or waits to enter; 0 none.
 */
static uint64_t skip_finished(const struct finder *finder, const struct ng_view_member *member,
                              uint64_t seq)
{
    for (; seq && seq <= finder->farthest; seq = seq < member->entered ? seq + 1 : 0) {
        const struct ng_view_record *record = ng_view_collective(member, seq);
        const struct ng_view_record *next =
            seq < member->entered ? ng_view_collective(member, seq + 1) : NULL;
        if (!record || (!next && seq < member->entered) || !(record->flags & NG_RECORD_IN_GROUP) ||
            !ng_op_is_symmetric(record->signature.op) ||
            ((!next || next->work_previous != record->id) &&
             !is_work_between(finder, member, record, next)))
            break;
    }
    return seq;
}

/* Is a member's work in flight only what its watchdog saw before it hung? */
static bool is_unwatched(const struct ng_view *view, const struct ng_view_member *member)
{
    return member->pending_record &&
           (member->pending_unwatched || view->processes[member->process].watchdog_stuck_ns > 0);
}

/*
 * May the collective be over that a member is said to be in? Its watchdog hangs, and all ranks have
 * made the call, so that none holds it up by its absence. What the device is in is then not known,
 * but for what the program has called since.
 */
static bool may_be_over(const struct finder *finder, const struct ng_view_member *member)
{
    return member->pending_seq && member->pending_seq <= finder->all_called &&
           is_unwatched(finder->view, member);
}

/* The last collective that all ranks of a group have called; 0: none, or not known of all. */
static uint64_t last_of_all(const struct finder *finder, uint32_t group,
                            const struct ng_view_member *members, uint32_t count)
{
    uint64_t least = UINT64_MAX;
    int ranks = 0;

    for (uint32_t i = 0; i < count; i++) {
        ranks += i == 0 || members[i - 1].group_rank != members[i].group_rank;
        least = NG_MIN(least, members[i].entered);
    }
    return ranks && ranks == finder->view->groups[group].nranks ? least : 0;
}

/* The collective that a member itself reports to be stuck in, and for how long; 0 none. */
static uint64_t reported_collective(const struct finder *finder,
                                    const struct ng_view_member *member, int64_t *ret_age_ns)
{
    const struct ng_view_group *group = &finder->view->groups[member->group];
    const struct ng_view_call *call = call_of(finder, member, NG_CLASS_COLLECTIVE, group->id);

    if (waits_no_more(finder, member))
        return 0;
    if (finder->leavers)
        return left_collective(finder, member, ret_age_ns);
    if (member->pending_record && member->pending_seq &&
        member->pending_age_ns >= finder->stalled_ns && !may_be_over(finder, member)) {
        *ret_age_ns = member->pending_age_ns;
        return skip_finished(finder, member, member->pending_seq);
    }
    if (call && call->seq && call->age_ns >= finder->stalled_ns) {
        *ret_age_ns = call->age_ns;
        return call->seq;
    }
    if (member->entered <= member->scheduled)
        return 0;
    const struct ng_view_record *record = ng_view_collective(member, member->scheduled + 1);
    call = group_end_of(finder, member, record ? record->tid : 0);
    if (call && call->age_ns >= finder->stalled_ns) {
        *ret_age_ns = call->age_ns;
        return member->scheduled + 1;
    }
    return 0;
}

/* The collective that it is stuck in, by all evidence. */
static uint64_t stuck_collective(const struct finder *finder, const struct ng_view_member *member,
                                 int64_t *ret_age_ns)
{
    uint64_t seq = reported_collective(finder, member, ret_age_ns);

    return seq && is_outdated(finder, member, seq, *ret_age_ns) ? 0 : seq;
}

/* Did a member call its collective `seq` in an NCCL group whose end it has not reached? */
static bool in_open_collective(const struct finder *finder, const struct ng_view_member *member,
                               uint64_t seq)
{
    const struct ng_view_record *record = ng_view_collective(member, seq);
    uint64_t group_id = finder->view->groups[member->group].id;

    return member->scheduled < seq && !call_of(finder, member, NG_CLASS_COLLECTIVE, group_id) &&
           !group_end_of(finder, member, record ? record->tid : 0);
}

/* Has the call of this collective not returned to the program? */
static bool is_inside(const struct ng_view_member *member, uint64_t seq)
{
    return member->entered >= seq && member->scheduled < seq;
}

/* The first collective that a member is stuck in; 0 none. */
static uint64_t first_stuck(const struct finder *finder, const struct ng_view_member *members,
                            uint32_t count)
{
    uint64_t stuck = 0;
    int64_t age_ns;

    for (uint32_t i = 0; i < count; i++) {
        uint64_t seq = stuck_collective(finder, &members[i], &age_ns);
        if (seq && (!stuck || seq < stuck))
            stuck = seq;
    }
    return stuck;
}

/* Has a rank not made a call for which every rank waits? */
static bool is_sure(const struct finder *finder, const struct ng_wait *wait)
{
    bool missing = NG_ANY(absentee, wait->absentees, wait->absentee_count,
                          !absentee->came && !absentee->open_group);

    return missing && ng_op_is_symmetric(ng_wait_op(finder->view, wait));
}

static int find_collective(struct finder *finder, uint32_t group,
                           const struct ng_view_member *members, uint32_t count)
{
    const struct ng_view *view = finder->view;
    uint32_t watched = 0;
    int64_t age_ns;

    finder->all_called = finder->leavers ? 0 : last_of_all(finder, group, members, count);
    uint64_t stuck = first_stuck(finder, members, count);
    if (!stuck && finder->all_called) {
        finder->all_called = 0; /* nothing better is known */
        stuck = first_stuck(finder, members, count);
    }
    if (!stuck)
        return 0;
    if (finder->all_called >= stuck)
        finder->all_called = stuck - 1;
    struct ng_wait *wait = add_wait(finder, NG_WAIT_COLLECTIVE, group);
    if (!wait)
        return -ENOMEM;
    wait->seq = stuck;
    for (uint32_t i = 0; i < count; i++) {
        const struct ng_view_member *member = &members[i];
        wait->on_host |= is_inside(member, stuck);
        if (i > 0 && member[-1].group_rank == member->group_rank)
            continue;
        uint64_t seq = stuck_collective(finder, member, &age_ns);
        if (seq) {
            join(finder, wait, member);
            wait->waiter_count++;
            wait->age_ns = NG_MAX(wait->age_ns, age_ns);
            const struct ng_view_record *record =
                seq == stuck ? ng_view_collective(member, seq) : NULL;
            if (record && record->entered_age_ns > wait->entered_age_ns)
                wait->entered_age_ns = record->entered_age_ns;
            if (seq == stuck && !member->pending_started)
                wait->not_started++;
            wait->cold |= stuck == 1 && seq == 1 && !member->scheduled;
            watched += !is_unwatched(view, member);
        } else if (may_be_over(finder, member) && !waits_no_more(finder, member)) {
            if (wait->unwatched < 0)
                wait->unwatched = (int32_t)(member - view->members);
            if (member->entered < stuck)
                continue;
            join(finder, wait, member);
            wait->waiter_count++;
        }
    }
    for (int rank = 0; rank < view->groups[group].nranks; rank++) {
        const struct ng_view_member *member = ng_view_member_among(members, count, rank);
        enum ng_life life = member ? process_of(finder, member)->life : NG_LIFE_UNKNOWN;
        struct ng_absentee *absentee = NULL;
        /* NCCL reported to the leavers neither a live rank nor one without evidence. */
        if (finder->leavers &&
            (!member || !ng_life_is_gone(life) || stuck_collective(finder, member, &age_ns)))
            continue;
        if (!member || member->entered < stuck) {
            absentee = add_absentee(finder, wait, member, rank);
            if (!absentee)
                return -ENOMEM;
        } else if (member->completed < stuck &&
                   (ng_life_is_gone(life) || life == NG_LIFE_STOPPED)) {
            absentee = add_absentee(finder, wait, member, rank);
            if (!absentee)
                return -ENOMEM;
            absentee->came = true;
        } else if (member->completed < stuck && member->cuda_error) {
            absentee = add_absentee(finder, wait, member, rank);
            if (!absentee)
                return -ENOMEM;
            absentee->came = absentee->faulted = true;
        } else if (member->completed < stuck && in_open_collective(finder, member, stuck)) {
            absentee = add_absentee(finder, wait, member, rank);
            if (!absentee)
                return -ENOMEM;
            absentee->open_group = true;
        } else if (member->completed < stuck) {
            finder->waits->held[member - view->members] = true;
        }
    }
    wait->sure = is_sure(finder, wait);
    wait->from_memory = !watched && wait->waiter_count && !finder->leavers && !wait->sure;
    return 0;
}

/* Does no rank wait in this send or receive any more? */
static bool is_over(const struct finder *finder, const struct ng_view_record *record)
{
    return done(record->state) && !(finder->leavers && was_failed(record));
}

/*
 * The `ordinal`-th call of the opposite direction that `peer` made towards `rank`, or a later one;
 * NULL none. *ret_known false: there may have been one, but the peer's records do not reach back
 * far enough.
 */
static const struct ng_view_record *counterpart_of(const struct ng_view_member *peer,
                                                   bool peer_sends, int rank, uint64_t ordinal,
                                                   bool *ret_known)
{
    const struct ng_view_record *found = NULL;
    uint64_t kept = 0;

    *ret_known = ordinal != 0;
    /* Newest first: the ordinals of a pair only increase. */
    for (uint32_t i = peer->record_count; i > 0 && *ret_known; i--) {
        const struct ng_view_record *record = &peer->records[i - 1];
        if (!ng_view_record_is_p2p(record) || !ng_view_record_counts(record))
            continue;
        kept += record->peer_ordinal != 0;
        if (!record->peer_ordinal || record->signature.root != rank ||
            (record->signature.op == NG_OP_Send) != peer_sends)
            continue;
        if (record->peer_ordinal < ordinal)
            return found;
        found = record;
        if (record->peer_ordinal == ordinal)
            return found;
    }
    *ret_known = found || (*ret_known && kept >= peer->p2p_entered);
    return found;
}

/* Group ranks that are absent from a point-to-point wait: index of the absentee + 1, by rank. */
struct absent_ranks {
    uint32_t *of_rank;
    int nranks;
};

static struct ng_absentee *find_absentee(const struct ng_wait *wait,
                                         const struct absent_ranks *ranks, int rank)
{
    if (rank >= 0 && rank < ranks->nranks)
        return ranks->of_rank[rank] ? &wait->absentees[ranks->of_rank[rank] - 1] : NULL;
    return NG_FIND(one, wait->absentees, wait->absentee_count, one->group_rank == rank);
}

static int add_need(struct finder *finder, struct ng_wait *wait, struct ng_need need)
{
    struct ng_need *added =
        NG_ARENA_APPEND(finder->arena, wait->needs, wait->need_count, wait->need_room);

    if (!added)
        return -ENOMEM;
    *added = need;
    return 0;
}

/* Is the member's point-to-point work stuck: pending on the device, or inside a host call? */
static bool stuck_p2p(const struct finder *finder, const struct ng_view_member *member,
                      int64_t *ret_age_ns)
{
    uint64_t id = finder->view->groups[member->group].id;

    if (finder->leavers) {
        *ret_age_ns = left_age(finder, member);
        return finder->leavers[member - finder->view->members];
    }
    if (waits_no_more(finder, member) || !member->p2p_entered)
        return false;
    if (member->pending_record && member->pending_age_ns >= finder->stalled_ns) {
        *ret_age_ns = member->pending_age_ns;
        return true;
    }
    const struct ng_view_call *call = call_of(finder, member, NG_CLASS_P2P, id);
    if (!call && !member->record_count)
        call = group_end_of(finder, member, 0);
    for (uint32_t i = member->record_count; i > 0 && !call; i--) {
        const struct ng_view_record *record = &member->records[i - 1];
        if (record->state == NG_RECORD_ENTERED && (record->flags & NG_RECORD_IN_GROUP) &&
            ng_view_record_is_p2p(record))
            call = group_end_of(finder, member, record->tid);
    }
    if (call && call->age_ns >= finder->stalled_ns) {
        *ret_age_ns = call->age_ns;
        return true;
    }
    return false;
}

/* Is the oldest operation of a member's sends and receives unknown? The oldest one still recorded
 * has not finished, and is not the first. */
static bool is_overwritten(const struct ng_view_member *member)
{
    NG_EACH (record, member->records, member->record_count)
        if (ng_view_record_is_p2p(record) && ng_view_record_counts(record))
            return !done(record->state) && record->p2p_seq > 1;
    return false;
}

/* Did a member call this send or receive after a collective of the same communicator that it is
 * stuck in? */
static bool is_behind_collective(const struct finder *finder, const struct ng_view_member *member,
                                 const struct ng_view_record *record)
{
    int32_t stuck_in = finder->waits->wait_of_member[member - finder->view->members];

    return stuck_in >= 0 && finder->waits->waits[stuck_in].type == NG_WAIT_COLLECTIVE &&
           member->pending_record && member->pending_seq && record->id > member->pending_record &&
           !done(record->state);
}

/* Finds what one send or receive of `member` waits for. Sets *ret_served to false if the peer has
 * not done its part, so that more than `member`'s own device is awaited. */
static int look_for_peer(struct finder *finder, struct ng_wait *wait, struct absent_ranks *ranks,
                         const struct ng_view_member *member, const struct ng_view_member *other,
                         const struct ng_view_record *record, bool *ret_served)
{
    int peer = record->signature.root;
    bool peer_sends = record->signature.op == NG_OP_Recv, known = true;
    enum ng_life life = other ? process_of(finder, other)->life : NG_LIFE_UNKNOWN;
    const struct ng_view_record *theirs =
        other ? counterpart_of(other, peer_sends, member->group_rank, record->peer_ordinal, &known)
              : NULL;
    bool open = theirs && in_open_group(finder, other, theirs);
    bool faulted = theirs && other->cuda_error && theirs->state != NG_RECORD_COMPLETED;
    /* A rank that has done its part is no longer needed, whatever happened to it later. But data
     * from a rank that then died may have been lost on its way to another host. */
    bool did_its_part = theirs && theirs->state == NG_RECORD_COMPLETED && life != NG_LIFE_DEAD;

    if (finder->leavers && !ng_life_is_gone(life))
        return 0;
    bool queued = theirs && is_behind_collective(finder, other, theirs);
    if (theirs && !open && !faulted && !queued &&
        (did_its_part || (!ng_life_is_gone(life) && life != NG_LIFE_STOPPED)))
        return 0;
    *ret_served = false;
    struct ng_absentee *absentee = find_absentee(wait, ranks, peer);
    bool overwritten = !known && (!absentee || absentee->overwritten);
    /* What one waiting rank does not know about a peer, another may. */
    if (!absentee || (absentee->overwritten && !overwritten)) {
        struct ng_absentee *fresh = absentee ?: add_absentee(finder, wait, other, peer);
        if (!fresh)
            return -ENOMEM;
        if (peer >= 0 && peer < ranks->nranks)
            ranks->of_rank[peer] = (uint32_t)(fresh - wait->absentees) + 1;
        bool alive = absentee || fresh->absence == NG_ABSENT_ALIVE;
        fresh->came = theirs != NULL;
        fresh->open_group = open;
        fresh->queued = queued && !open && !faulted && alive;
        fresh->faulted = faulted && alive;
        fresh->overwritten = overwritten && alive;
        if (alive)
            fresh->absence = fresh->overwritten ? NG_ABSENT_UNSEEN : NG_ABSENT_ALIVE;
        fresh->send = peer_sends;
        fresh->for_rank = member->group_rank;
        absentee = fresh;
    }
    return add_need(finder, wait,
                    (struct ng_need){.member = (uint32_t)(member - finder->view->members),
                                     .absentee = (uint32_t)(absentee - wait->absentees),
                                     .op = (enum ng_op)record->signature.op});
}

static int find_p2p(struct finder *finder, uint32_t group, const struct ng_view_member *members,
                    uint32_t count)
{
    struct ng_wait *wait = NULL;
    struct absent_ranks ranks = {.nranks = finder->view->groups[group].nranks};
    uint32_t watched = 0;
    int64_t age_ns;

    for (uint32_t i = 0; i < count; i++) {
        const struct ng_view_member *member = &members[i];
        bool waits = false, served = true;
        if ((i > 0 && member[-1].group_rank == member->group_rank) ||
            !stuck_p2p(finder, member, &age_ns))
            continue;
        NG_EACH (record, member->records, member->record_count) {
            if (!ng_view_record_is_p2p(record) || is_over(finder, record) ||
                record->signature.root == member->group_rank ||
                in_open_group(finder, member, record))
                continue;
            /* Work queued after the stuck operation waits for that one, not for its own peer. */
            if (member->pending_record && record->id > member->pending_record)
                break;
            waits = true;
            if (!wait) {
                wait = add_wait(finder, NG_WAIT_P2P, group);
                if (!wait)
                    return -ENOMEM;
                wait->op = (enum ng_op)record->signature.op;
            }
            if (!ranks.of_rank)
                ranks.of_rank = ng_arena_alloc(finder->arena,
                                               ((size_t)ranks.nranks + 1) * sizeof(*ranks.of_rank));
            if (!ranks.of_rank)
                return -ENOMEM;
            wait->entered_age_ns = NG_MAX(wait->entered_age_ns, record->entered_age_ns);
            const struct ng_view_member *other =
                ng_view_member_among(members, count, record->signature.root);
            int error = look_for_peer(finder, wait, &ranks, member, other, record, &served);
            if (error)
                return error;
        }
        if (!waits) {
            /* Only collectives are pending, or the records of the sends and receives are gone. */
            if (member->pending_record ? member->pending_seq : member->record_count > 0)
                continue;
            if (!wait)
                wait = add_wait(finder, NG_WAIT_P2P, group);
            if (!wait)
                return -ENOMEM;
            wait->blind = true;
        } else if (is_overwritten(member)) {
            wait->blind = true;
            served = false;
        }
        wait->served |= waits && served;
        /* Ranks that have not connected yet do so inside the call; if a device has work, that is
         * better evidence. */
        wait->on_host = (wait->on_host || !wait->waiter_count) && !member->pending_record;
        join(finder, wait, member);
        wait->waiter_count++;
        watched += !is_unwatched(finder->view, member);
        wait->from_memory = !watched && !finder->leavers;
        wait->age_ns = NG_MAX(wait->age_ns, age_ns);
        /* A rank that has not connected to its peer yet blocks on the host, so its device has no
         * work. */
        if (member->pending_record && !member->pending_started)
            wait->not_started++;
    }
    return 0;
}

/* Adds a member that is stuck in a call that creates or ends a communicator to wait *wait, which is
 * created for the first such member. */
static int join_call(struct finder *finder, struct ng_wait **wait, enum ng_wait_type type,
                     const struct ng_view_member *member, const struct ng_view_call *call)
{
    if (!*wait)
        *wait = add_wait(finder, type, member->group);
    if (!*wait)
        return -ENOMEM;
    (*wait)->waiter_count++;
    if (call->age_ns > (*wait)->age_ns)
        (*wait)->age_ns = (*wait)->entered_age_ns = call->age_ns;
    join(finder, *wait, member);
    return 0;
}

/* How a communicator is created: the calls of each kind, and the progress of a rank. */
struct making {
    const struct ng_view_call *(*call)(const struct finder *finder,
                                       const struct ng_view_member *member);
    bool (*came)(const struct ng_view_member *member, uint32_t ordinal);
    bool (*through)(const struct ng_view_member *member);
    uint64_t ends_before; /* a rank that has finished this collective of the group has finished the
                             creation */
};

/* Init: members are those of the new group. */
static const struct ng_view_call *init_call_of(const struct finder *finder,
                                               const struct ng_view_member *member)
{
    const struct ng_view_group *group = &finder->view->groups[member->group];
    const struct ng_view_call *call = call_of(finder, member, NG_CLASS_CREATE, group->id);

    if (member->state != NG_GROUP_CREATING)
        return NULL;
    /* An existing rank calls ncclCommGrow on the parent, but waits for the joining ranks. */
    if (!call && member->created_by == NG_OP_CommGrow)
        call = call_of(finder, member, NG_CLASS_CREATE, group->parent_id);
    return call ? call : group_end_of(finder, member, member->creator_tid);
}

static bool came_to_init(const struct ng_view_member *member, uint32_t ordinal)
{
    return true;
}

static bool through_init(const struct ng_view_member *member)
{
    return member->state != NG_GROUP_CREATING;
}

/* Split, shrink, grow: members are those of the parent, and the call is identified by its ordinal
 * on it. */
static const struct ng_view_call *derive_call_of(const struct finder *finder,
                                                 const struct ng_view_member *member)
{
    const struct ng_view_call *call =
        call_of(finder, member, NG_CLASS_CREATE, finder->view->groups[member->group].id);
    bool derives = call && (call->op == NG_OP_CommSplit || call->op == NG_OP_CommShrink ||
                            call->op == NG_OP_CommGrow);

    return derives && member->derived ? call : NULL;
}

static bool came_to_derive(const struct ng_view_member *member, uint32_t ordinal)
{
    return member->derived >= ordinal;
}

static bool through_derive(const struct ng_view_member *member)
{
    return false; /* not visible in the parent */
}

static const struct making makings[] = {
    {init_call_of, came_to_init, through_init, 1},
    {derive_call_of, came_to_derive, through_derive, UINT64_MAX},
};

/*
 * A shrink excludes ranks on purpose. Only its callers know which, and they publish a hash of them:
 * true if this is the hash of a single rank.
 */
static bool find_left_out(const struct finder *finder, uint32_t parent, uint32_t ordinal,
                          int *ret_rank)
{
    const struct ng_view *view = finder->view;
    uint64_t parent_id = view->groups[parent].id, excluded = 0;

    for (uint32_t i = 0; i < view->member_count && !excluded; i++)
        if (view->groups[view->members[i].group].parent_id == parent_id &&
            view->members[i].ordinal == ordinal && view->members[i].state == NG_GROUP_CREATING)
            excluded = view->members[i].excluded;
    for (int rank = 0; rank < view->groups[parent].nranks && excluded; rank++)
        if (ng_group_id_excluded(&rank, 1) == excluded) {
            *ret_rank = rank;
            return true;
        }
    return false;
}

/* Finds members that are inside the creating call, and group ranks that have not joined it. */
static int find_making(struct finder *finder, const struct making *making, uint32_t group,
                       const struct ng_view_member *members, uint32_t count)
{
    int nranks = finder->view->groups[group].nranks;
    struct ng_wait *wait = NULL;
    uint32_t ordinal = UINT32_MAX;

    NG_EACH (member, members, count) {
        const struct ng_view_call *call = making->call(finder, member);
        if (!call || call->age_ns < finder->stalled_ns ||
            ng_life_is_gone(process_of(finder, member)->life) ||
            is_outdated(finder, member, making->ends_before, call->age_ns))
            continue;
        int error = join_call(finder, &wait, NG_WAIT_CREATE, member, call);
        if (error)
            return error;
        /* If the call was made in an NCCL group, the rank waits in the end of the group. */
        if (ng_op_table[call->op].op_class == NG_CLASS_CREATE)
            wait->op = call->op;
        else if (!wait->op)
            wait->op = (enum ng_op)member->created_by;
        ordinal = NG_MIN(ordinal, member->derived);
    }
    int left_out = -1;
    if (!wait ||
        (wait->op == NG_OP_CommShrink && !find_left_out(finder, group, ordinal, &left_out)))
        return 0;
    wait->left_out = left_out;
    for (int rank = 0; rank < nranks; rank++) {
        const struct ng_view_member *member = ng_view_member_among(members, count, rank);
        enum ng_life life = member ? process_of(finder, member)->life : NG_LIFE_UNKNOWN;
        if (wait->op == NG_OP_CommShrink && rank == left_out)
            continue;
        bool came = member && making->came(member, ordinal);
        bool failed = member && member->state == NG_GROUP_FAILED;
        /* A rank that has finished it is no longer needed, whatever happened to it later. */
        if (came && !failed &&
            (making->through(member) || (!ng_life_is_gone(life) && life != NG_LIFE_STOPPED)))
            continue;
        struct ng_absentee *absentee = add_absentee(finder, wait, member, rank);
        if (!absentee)
            return -ENOMEM;
        absentee->came = came;
        absentee->failed = failed;
    }
    return 0;
}

/* The call of operation `op`, of class HOST, that a member is inside; in an NCCL group, the one
 * that closes the group. NULL none. */
static const struct ng_view_call *host_call_of(const struct finder *finder,
                                               const struct ng_view_member *member, enum ng_op op)
{
    const struct ng_view_host_calls *calls = &member->host_calls;
    const struct ng_view_call *call =
        call_of(finder, member, NG_CLASS_HOST, finder->view->groups[member->group].id);

    if (call)
        return call->op == op ? call : NULL;
    return calls->op == op && !calls->open && calls->tid ? group_end_of(finder, member, calls->tid)
                                                         : NULL;
}

static bool in_open_host_call(const struct ng_view_member *member, enum ng_op op)
{
    return member->host_calls.op == op && member->host_calls.open;
}

/*
 * Adds what a wait in host calls needs of one rank. `number`: which call of this operation on the
 * communicator it is, from 1; 0: ranks do not make it equally often, and it needs only that their
 * processes answer.
 */
static int look_for_caller(struct finder *finder, struct ng_wait *wait,
                           const struct ng_view_member *member, int rank, uint32_t number)
{
    int index = ng_op_joint_call(wait->op);
    enum ng_life life = member ? process_of(finder, member)->life : NG_LIFE_UNKNOWN;
    bool gone = ng_life_is_gone(life) || life == NG_LIFE_STOPPED;
    bool came = member && (!number || member->host_calls.entered[index] >= number);
    bool open = came && number && member->host_calls.entered[index] == number &&
                in_open_host_call(member, wait->op);

    if (!number && (!member || !gone))
        return 0;
    /* A rank that has left the call has finished it, whatever happened to it later. */
    if (came && !open && (!gone || (number && !host_call_of(finder, member, wait->op))))
        return 0;
    struct ng_absentee *absentee = add_absentee(finder, wait, member, rank);
    if (!absentee)
        return -ENOMEM;
    absentee->came = came && !open;
    absentee->open_group = open;
    return 0;
}

/* Finds members that are inside host calls of operation `op`, and ranks that have not come. */
static int find_host_call(struct finder *finder, uint32_t group,
                          const struct ng_view_member *members, uint32_t count, enum ng_op op)
{
    struct ng_wait *wait = NULL;
    uint32_t number = UINT32_MAX;
    int index = ng_op_joint_call(op), error = 0;

    for (uint32_t i = 0; i < count && !error; i++) {
        const struct ng_view_call *call = host_call_of(finder, &members[i], op);
        if (!call || call->age_ns < finder->stalled_ns ||
            ng_life_is_gone(process_of(finder, &members[i])->life))
            continue;
        error = join_call(finder, &wait, NG_WAIT_HOST, &members[i], call);
        uint32_t own = index < 0 ? 0 : members[i].host_calls.entered[index];
        number = own < number ? own : number;
        if (!error)
            wait->op = op;
    }
    for (int rank = 0; wait && !error && rank < finder->view->groups[group].nranks; rank++)
        error =
            look_for_caller(finder, wait, ng_view_member_among(members, count, rank), rank, number);
    return error;
}

static int find_host_calls(struct finder *finder, uint32_t group,
                           const struct ng_view_member *members, uint32_t count)
{
    int error = 0;

    for (unsigned op = NG_OP_CommWindowRegister; op <= NG_OP_CommDeregister && !error; op++)
        error = find_host_call(finder, group, members, count, (enum ng_op)op);
    return error;
}

/* From this release on a rank that destroys its communicator waits for those that aborted theirs.
 */
#define VERSION_DESTROY_WAITS 23102

static bool is_awaited_at_end(const struct finder *finder, const struct ng_wait *wait,
                              const struct ng_view_member *member)
{
    if (member->state <= NG_GROUP_READY)
        return true;
    int version = member->nccl_version ? member->nccl_version
                                       : finder->view->groups[wait->group].nccl_version;
    return member->state == NG_GROUP_ABORTED && wait->op == NG_OP_CommDestroy &&
           version >= VERSION_DESTROY_WAITS;
}

static int find_end(struct finder *finder, uint32_t group, const struct ng_view_member *members,
                    uint32_t count)
{
    struct ng_wait *wait = NULL;

    for (uint32_t i = 0; i < count; i++) {
        const struct ng_view_call *call =
            call_of(finder, &members[i], NG_CLASS_END, finder->view->groups[group].id);
        if (!call || call->age_ns < finder->stalled_ns ||
            ng_life_is_gone(process_of(finder, &members[i])->life))
            continue;
        int error = join_call(finder, &wait, NG_WAIT_END, &members[i], call);
        if (error)
            return error;
        wait->op = call->op;
    }
    if (!wait)
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        if ((i > 0 && members[i - 1].group_rank == members[i].group_rank) ||
            finder->waits->wait_of_member[&members[i] - finder->view->members] >= 0 ||
            !is_awaited_at_end(finder, wait, &members[i]) ||
            call_of(finder, &members[i], NG_CLASS_END, finder->view->groups[group].id))
            continue;
        if (!add_absentee(finder, wait, &members[i], members[i].group_rank))
            return -ENOMEM;
    }
    return 0;
}

/* The record of a member's call in the wait; NULL not recorded. */
static const struct ng_view_record *called_in(const struct ng_wait *wait,
                                              const struct ng_view_member *member)
{
    return wait->seq ? ng_view_collective(member, wait->seq) : pending_of(member);
}

/* Is the operation of the stuck member with index `stuck` ahead of the call `called`, on the same
 * stream? */
static bool is_ahead(const struct ng_view *view, const struct ng_wait_graph *waits, uint32_t stuck,
                     const struct ng_view_record *called, bool *ret_vague)
{
    const struct ng_view_member *other = &view->members[stuck];
    const struct ng_wait *wait = &waits->waits[waits->wait_of_member[stuck]];
    /* Other ranks may have finished its oldest operation in flight. */
    const struct ng_view_record *pending = other->pending_seq && wait->seq > other->pending_seq
                                               ? ng_view_collective(other, wait->seq)
                                               : pending_of(other);

    if (!pending || !called || done(pending->state) || done(called->state) || !called->stream ||
        pending->stream != called->stream || pending->id >= called->id)
        return false;
    *ret_vague = pending->flags & called->flags & NG_RECORD_IN_GROUP;
    return true;
}

/* Did thread `tid` make a call of this member in an NCCL group that has not ended, and does the
 * member wait for another rank in it? */
static bool waits_in_group(const struct ng_view *view, const struct ng_wait *wait, uint32_t member,
                           uint32_t tid)
{
    const struct ng_view_member *caller = &view->members[member];
    bool needs = (wait->absentee_count && !wait->need_count) ||
                 NG_ANY(need, wait->needs, wait->need_count, need->member == member);

    return needs && NG_ANY(record, caller->records, caller->record_count,
                           record->state == NG_RECORD_ENTERED && record->tid == tid &&
                               (record->flags & NG_RECORD_IN_GROUP));
}

bool ng_wait_is_held_up(const struct ng_view *view, const struct ng_wait_graph *waits,
                        uint32_t wait, const struct ng_absentee *absentee, uint32_t stuck)
{
    const struct ng_view_member *other = &view->members[stuck];
    bool own = waits->wait_of_member[stuck] == (int32_t)wait;

    if (!ng_same_actor(view, other, absentee->member))
        return false;
    if (absentee->closing_tid)
        return !own && waits_in_group(view, &waits->waits[waits->wait_of_member[stuck]], stuck,
                                      absentee->closing_tid);
    bool vague;
    if (absentee->in_order)
        return !own && is_ahead(view, waits, stuck,
                                called_in(&waits->waits[wait], absentee->member), &vague);
    /* Work of one communicator runs in call order, on any streams. */
    if (absentee->queued)
        return !own && other->pending_record &&
               (other->pending_started || other == absentee->member);
    return !own || waits->waits[wait].type == NG_WAIT_P2P;
}

/* The wait that blocks an absentee, preferably not `wait` itself; -1 none. */
static int32_t held_by(const struct finder *finder, uint32_t wait,
                       const struct ng_absentee *absentee)
{
    const struct ng_wait_graph *waits = finder->waits;
    uint32_t process = absentee->member->process;
    int32_t found = -1;

    for (uint32_t k = waits->stuck_first[process]; k < waits->stuck_first[process + 1]; k++) {
        if (!ng_wait_is_held_up(finder->view, waits, wait, absentee, waits->stuck[k]))
            continue;
        found = waits->wait_of_member[waits->stuck[k]];
        if (found != (int32_t)wait)
            break;
    }
    return found;
}

/* For a member that joined wait `wait`: finds the other work that its device must finish first, in
 * `ret_behind`. False: none. */
static bool find_behind(const struct finder *finder, uint32_t wait,
                        const struct ng_view_member *member, struct ng_absentee *ret_behind)
{
    const struct ng_wait_graph *waits = finder->waits;
    const struct ng_view_record *called = called_in(&waits->waits[wait], member);

    *ret_behind =
        (struct ng_absentee){.member = member, .came = true, .queued = true, .in_order = true};
    ret_behind->stuck_in = held_by(finder, wait, ret_behind);
    if (ret_behind->stuck_in < 0) {
        uint64_t seq = waits->waits[wait].seq;
        bool begun = member->pending_started || (seq && member->pending_seq != seq);
        ret_behind->in_order = false;
        ret_behind->stuck_in = begun ? -1 : held_by(finder, wait, ret_behind);
    }
    for (uint32_t k = waits->stuck_first[member->process];
         k < waits->stuck_first[member->process + 1] && ret_behind->stuck_in >= 0; k++) {
        uint32_t stuck = waits->stuck[k];
        bool vague = finder->view->members[stuck].pending_inferred;
        if (waits->wait_of_member[stuck] == ret_behind->stuck_in &&
            (!ret_behind->in_order || is_ahead(finder->view, waits, stuck, called, &vague)))
            ret_behind->vague |= vague;
    }
    return ret_behind->stuck_in >= 0;
}

/* Does another wait hold up this member, which made its call in wait `wait`? Sets in `ret_behind`
 * what tells how. */
typedef bool is_held_up_fn(const struct finder *finder, uint32_t wait,
                           const struct ng_view_member *member, struct ng_absentee *ret_behind);

/* Link a wait to the waits that hold up members which made its call. */
static int link_those_that_came(struct finder *finder, uint32_t w, is_held_up_fn *is_held_up)
{
    struct ng_wait *wait = &finder->waits->waits[w];
    struct ng_absentee behind;

    NG_EACH_MEMBER (member, finder->view, wait->group) {
        if (!is_held_up(finder, w, member, &behind))
            continue;
        struct ng_absentee *absentee = add_absentee(finder, wait, member, member->group_rank);
        if (!absentee)
            return -ENOMEM;
        absentee->came = true;
        absentee->queued = behind.queued;
        absentee->in_order = behind.in_order;
        absentee->vague = behind.vague;
        absentee->closing_tid = behind.closing_tid;
        absentee->stuck_in = behind.stuck_in;
    }
    return 0;
}

static bool is_queued(const struct finder *finder, uint32_t wait,
                      const struct ng_view_member *member, struct ng_absentee *ret_behind)
{
    return finder->waits->queued[member - finder->view->members] &&
           find_behind(finder, wait, member, ret_behind);
}

/*
 * If all ranks made the call, but devices have not reached the operation because they are in other
 * work that does not finish, this wait waits for that other work.
 */
static int link_devices(struct finder *finder, uint32_t w)
{
    const struct ng_view *view = finder->view;
    struct ng_wait_graph *waits = finder->waits;
    const struct ng_wait *wait = &waits->waits[w];
    struct ng_absentee behind;
    uint32_t others = 0;

    NG_EACH_MEMBER (member, view, wait->group) {
        uint32_t index = (uint32_t)(member - view->members);
        if (waits->wait_of_member[index] != (int32_t)w || !member->pending_record ||
            (wait->seq && (!member->pending_seq || member->pending_seq > wait->seq)))
            continue;
        waits->queued[index] = find_behind(finder, w, member, &behind);
        others += !waits->queued[index] && !member->pending_started &&
                  (!wait->seq || member->pending_seq == wait->seq);
    }
    /* Other ranks are blocked by something that is not NCCL work: the wait has an independent
     * cause. */
    return others ? 0 : link_those_that_came(finder, w, is_queued);
}

/* Its device is still in earlier sends or receives on the same communicator, which wait for other
 * ranks. */
static bool is_behind_p2p(const struct finder *finder, uint32_t wait,
                          const struct ng_view_member *member, struct ng_absentee *ret_behind)
{
    const struct ng_wait_graph *waits = finder->waits;
    int32_t stuck_in = waits->wait_of_member[member - finder->view->members];
    const struct ng_view_record *record = ng_view_collective(member, waits->waits[wait].seq);

    *ret_behind = (struct ng_absentee){.queued = true, .stuck_in = stuck_in};
    return stuck_in >= 0 && waits->waits[stuck_in].type == NG_WAIT_P2P && member->pending_record &&
           !member->pending_seq && record && !done(record->state) &&
           record->id >= member->pending_record && !member->cuda_error &&
           process_of(finder, member)->life != NG_LIFE_STOPPED;
}

/* The thread of a member that is inside the end of an NCCL group with its call in the wait; 0:
 * none, or not known. */
static uint32_t closing_tid(const struct finder *finder, const struct ng_wait *wait,
                            const struct ng_view_member *member)
{
    for (uint32_t i = 0; i < member->record_count && !member->pending_record; i++) {
        const struct ng_view_record *record = &member->records[i];
        if (record->state == NG_RECORD_ENTERED && (record->flags & NG_RECORD_IN_GROUP) &&
            (wait->seq ? record->coll_seq == wait->seq : ng_view_record_is_p2p(record)) &&
            group_end_of(finder, member, record->tid))
            return record->tid;
    }
    return 0;
}

/* It made the call in an NCCL group whose end waits for ranks of another communicator. */
static bool is_in_group_end(const struct finder *finder, uint32_t wait,
                            const struct ng_view_member *member, struct ng_absentee *ret_behind)
{
    const struct ng_wait_graph *waits = finder->waits;

    if (waits->wait_of_member[member - finder->view->members] != (int32_t)wait)
        return false;
    *ret_behind =
        (struct ng_absentee){.member = member,
                             .vague = true,
                             .closing_tid = closing_tid(finder, &waits->waits[wait], member)};
    ret_behind->stuck_in = ret_behind->closing_tid ? held_by(finder, wait, ret_behind) : -1;
    return ret_behind->stuck_in >= 0;
}

/* All ranks made its call, and nothing tells yet why it is stuck. */
static bool is_unexplained(const struct ng_wait *wait)
{
    return !wait->absentee_count && (wait->type == NG_WAIT_COLLECTIVE || wait->type == NG_WAIT_P2P);
}

static int link_waits(struct finder *finder)
{
    const struct ng_view *view = finder->view;
    struct ng_wait_graph *waits = finder->waits;
    uint32_t *first = ng_arena_alloc(finder->arena, (view->process_count + 2) * sizeof(*first));
    uint32_t *stuck = ng_arena_alloc(finder->arena, (view->member_count + 1) * sizeof(*stuck));

    if (!first || !stuck)
        return -ENOMEM;
    /* Sort the stuck members by process (counting sort). */
    for (uint32_t i = 0; i < view->member_count; i++)
        if (waits->wait_of_member[i] >= 0)
            first[view->members[i].process + 2]++;
    for (uint32_t p = 0; p < view->process_count; p++)
        first[p + 2] += first[p + 1];
    for (uint32_t i = 0; i < view->member_count; i++)
        if (waits->wait_of_member[i] >= 0)
            stuck[first[view->members[i].process + 1]++] = i;
    waits->stuck_first = first;
    waits->stuck = stuck;
    for (uint32_t w = 0; w < waits->count; w++) {
        struct ng_wait *wait = &waits->waits[w];
        NG_EACH (absentee, wait->absentees, wait->absentee_count)
            if (absentee->member && absentee->absence == NG_ABSENT_ALIVE)
                absentee->stuck_in = held_by(finder, w, absentee);
    }
    int error = 0;
    for (uint32_t w = 0; w < waits->count && !error; w++)
        if (is_unexplained(&waits->waits[w]))
            error = link_devices(finder, w);
    for (uint32_t w = 0; w < waits->count && !error; w++)
        if (is_unexplained(&waits->waits[w]))
            error = link_those_that_came(finder, w, is_in_group_end);
    for (uint32_t w = 0; w < waits->count && !error; w++)
        if (waits->waits[w].type == NG_WAIT_COLLECTIVE)
            error = link_those_that_came(finder, w, is_behind_p2p);
    return error;
}

bool ng_wait_is_remembered(const struct ng_view *view, const struct ng_wait_graph *waits,
                           uint32_t stuck)
{
    const struct ng_view_member *member = &view->members[stuck];
    const struct ng_wait *wait = &waits->waits[waits->wait_of_member[stuck]];

    /* A thread that is inside a call tells so itself. */
    return is_unwatched(view, member) &&
           (wait->type == NG_WAIT_P2P ||
            (wait->type == NG_WAIT_COLLECTIVE && !wait->sure && !is_inside(member, wait->seq)));
}

bool ng_wait_left_after_report(const struct ng_view *view, const struct ng_view_member *member)
{
    if (view->processes[member->process].life != NG_LIFE_EXITED ||
        member->async_error != NG_NCCL_REMOTE_ERROR)
        return false;
    switch (member->state) {
    case NG_GROUP_CREATING:
    case NG_GROUP_READY:
    case NG_GROUP_FINALIZED:
        return true;
    case NG_GROUP_DESTROYED:
    case NG_GROUP_ABORTED:
        /* The ages of a process that left stop at its end, so this is the time from the
         * communicator's end to the process's end. */
        return member->ended_age_ns && member->ended_age_ns < LEAVING_NS;
    default:
        return false;
    }
}

/* State while leavers are traced back to the ends that NCCL reported to them. */
struct following {
    bool *leavers;         /* per member */
    bool *looked_at;       /* per group */
    bool *told, *followed; /* per process: is a member of it a leaver; is it known for which end */
    uint32_t first;        /* the first wait of leavers */
};

/* Finds the operations that all leavers of a group were in. */
static int find_left(struct finder *finder, struct following *following, uint32_t group)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(finder->view, group, &count);

    if (following->looked_at[group])
        return 0;
    following->looked_at[group] = true;
    return find_collective(finder, group, members, count)
               ?: find_p2p(finder, group, members, count);
}

/* Finds the operations of all leavers that other ranks wait for, including waits of leavers. */
static int find_all_left(struct finder *finder, struct following *following)
{
    const struct ng_view *view = finder->view;
    struct ng_wait_graph *waits = finder->waits;
    bool *looked_at = ng_arena_alloc(finder->arena, view->process_count + 1);
    int error = looked_at ? 0 : -ENOMEM;

    for (uint32_t w = 0; w < waits->count && !error; w++)
        for (uint32_t a = 0; a < waits->waits[w].absentee_count && !error; a++) {
            const struct ng_view_member *member = waits->waits[w].absentees[a].member;
            if (!member || !following->told[member->process] || looked_at[member->process])
                continue;
            looked_at[member->process] = true;
            const struct ng_view_process *process = &view->processes[member->process];
            for (uint32_t i = 0; i < process->member_count && !error; i++) {
                uint32_t index = view->by_process[process->first_member + i];
                if (following->leavers[index])
                    error = find_left(finder, following, view->members[index].group);
            }
        }
    return error;
}

/* Was it still alive when the other left? Then its end is not the one that NCCL reported to the
 * other. */
static bool ended_later(const struct ng_view_process *process, const struct ng_view_process *left)
{
    int64_t alive_ns = process->life == NG_LIFE_DEAD ? process->alive_age_ns : process->life_age_ns;

    return alive_ns && ng_view_age(alive_ns) + CLOCKS_APART_NS < left->life_age_ns;
}

/* Is there an end for which this leaver may have left: of a process to which NCCL reported no end
 * itself, or that left for another end? */
static bool has_reason(const struct finder *finder, const struct following *following,
                       const struct ng_wait *wait, const struct ng_view_process *leaver)
{
    for (uint32_t a = 0; a < wait->absentee_count; a++) {
        uint32_t index = wait->absentees[a].member->process;
        const struct ng_view_process *process = &finder->view->processes[index];
        if (process != leaver && (!following->told[index] || following->followed[index]) &&
            !ended_later(process, leaver))
            return true;
    }
    return false;
}

/* Works outwards from the ends, until no more leavers are found. */
static void follow(const struct finder *finder, struct following *following)
{
    const struct ng_view *view = finder->view;
    bool found;

    do {
        found = false;
        for (uint32_t i = 0; i < view->member_count; i++) {
            uint32_t process = view->members[i].process;
            if (finder->left_in[i] < 0 || following->followed[process] ||
                !has_reason(finder, following, &finder->waits->waits[finder->left_in[i]],
                            &view->processes[process]))
                continue;
            found = following->followed[process] = true;
        }
    } while (found);
}

/* Do other ranks still wait in it? */
static bool is_waited_in(const struct finder *finder, const struct following *following,
                         const struct ng_wait *left)
{
    return NG_ANY(wait, finder->waits->waits, following->first,
                  left->type == NG_WAIT_COLLECTIVE && wait->type == left->type &&
                      wait->group == left->group && wait->seq == left->seq);
}

/*
 * Finds leavers for which no end is known while ranks of their groups do not answer: in
 * `ret_doubted`, per process. A process that does not answer may not have reported yet that it
 * belongs to the group.
 */
static void doubt(const struct finder *finder, const struct following *following, bool *ret_doubted)
{
    const struct ng_view *view = finder->view;
    bool any = NG_ANY(process, view->processes, view->process_count, process->quiet_ns > 0);

    for (uint32_t i = 0; i < view->member_count; i++) {
        uint32_t process = view->members[i].process, count;
        if (finder->left_in[i] < 0 || following->followed[process] || ret_doubted[process])
            continue;
        const struct ng_view_group *group = &view->groups[view->members[i].group];
        const struct ng_view_member *members =
            ng_view_members(view, view->members[i].group, &count);
        ret_doubted[process] = any && (int64_t)group->member_count < group->nranks;
        for (uint32_t k = 0; k < count && any && !ret_doubted[process]; k++)
            ret_doubted[process] = process_of(finder, &members[k])->quiet_ns > 0;
    }
}

/* Removes the waits that explain no rank's leaving. */
static int keep_reasons(struct finder *finder, const struct following *following)
{
    const struct ng_view *view = finder->view;
    struct ng_wait_graph *waits = finder->waits;
    bool *reasons = ng_arena_alloc(finder->arena, waits->count + 1);
    uint32_t kept = following->first;

    if (!reasons)
        return -ENOMEM;
    for (uint32_t i = 0; i < view->member_count; i++)
        if (finder->left_in[i] >= 0 && following->followed[view->members[i].process])
            reasons[finder->left_in[i]] = true;
    for (uint32_t w = following->first; w < waits->count; w++)
        if (reasons[w] && !is_waited_in(finder, following, &waits->waits[w]))
            waits->waits[kept++] = waits->waits[w];
    waits->count = kept;
    return 0;
}

/*
 * Over a network, NCCL immediately reports to ranks that a peer is gone, and they leave; a rank
 * that waits for them may share no group with that peer. So the peer is searched for in the
 * operations that they were in when they left: these are waits, too. If none is found there, they
 * count as ordinary leavers.
 */
static int follow_leavers(struct finder *finder)
{
    const struct ng_view *view = finder->view;
    struct ng_wait_graph *waits = finder->waits;
    struct following following = {.first = waits->count};
    bool any = NG_ANY(wait, waits->waits, waits->count,
                      NG_ANY(absentee, wait->absentees, wait->absentee_count,
                             absentee->absence == NG_ABSENT_EXITED));

    if (!any || !view->by_process)
        return 0;
    following.leavers = ng_arena_alloc(finder->arena, view->member_count + 1);
    following.looked_at = ng_arena_alloc(finder->arena, view->group_count + 1);
    following.told = ng_arena_alloc(finder->arena, view->process_count + 1);
    following.followed = ng_arena_alloc(finder->arena, view->process_count + 1);
    finder->left_in = ng_arena_alloc(finder->arena, (view->member_count + 1) * sizeof(int32_t));
    bool *doubted = ng_arena_alloc(finder->arena, view->process_count + 1);
    if (!following.leavers || !following.looked_at || !following.told || !following.followed ||
        !finder->left_in || !doubted)
        return -ENOMEM;
    memset(finder->left_in, 0xff, view->member_count * sizeof(int32_t));
    for (uint32_t i = 0; i < view->member_count; i++) {
        following.leavers[i] = ng_wait_left_after_report(view, &view->members[i]);
        following.told[view->members[i].process] |= following.leavers[i];
    }
    finder->leavers = following.leavers;
    finder->stalled_ns = 0;
    int error = find_all_left(finder, &following);
    if (error)
        return error;
    follow(finder, &following);
    doubt(finder, &following, doubted);
    for (uint32_t w = 0; w < waits->count; w++)
        NG_EACH (absentee, waits->waits[w].absentees, waits->waits[w].absentee_count) {
            absentee->followed = absentee->member && following.followed[absentee->member->process];
            absentee->may_follow = absentee->member && doubted[absentee->member->process];
        }
    return keep_reasons(finder, &following);
}

enum ng_op ng_wait_op(const struct ng_view *view, const struct ng_wait *wait)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, wait->group, &count);
    struct ng_signature signature;

    for (uint32_t i = 0; i < count && wait->seq; i++)
        if (ng_signature_at(&members[i], wait->seq, &signature))
            return (enum ng_op)signature.op;
    return wait->op;
}

static bool is_in_group(const struct ng_view *view, uint32_t group, uint32_t process)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(view, group, &count);

    return NG_ANY(member, members, count, member->process == process);
}

/* Does the process of which RAS speaks report, though not this group? In a group of the whole job
 * it has the rank's number; in others the pid, which one of another host may have, too. */
static bool reports(const struct ng_view *view, uint32_t group, const struct ng_ras_rank *rank)
{
    for (uint32_t i = 0; i < view->process_count; i++) {
        const struct ng_view_process *process = &view->processes[i];
        if (process->quiet_ns ||
            (process->life != NG_LIFE_RUNNING && process->life != NG_LIFE_STOPPED))
            continue;
        if (process->rank == rank->rank && process->world_size == view->groups[group].nranks)
            return true;
        if (rank->pid && process->pid == rank->pid && process->life == NG_LIFE_RUNNING &&
            !is_in_group(view, group, i))
            return true;
    }
    return false;
}

/* An answer that is older than the wait says nothing about it, nor does RAS speak for a rank that
 * reports. */
static void look_outside(const struct finder *finder)
{
    for (uint32_t w = 0; w < finder->waits->count && finder->view->ras_count; w++) {
        struct ng_wait *wait = &finder->waits->waits[w];
        NG_EACH (absentee, wait->absentees, wait->absentee_count) {
            if (absentee->member)
                continue;
            absentee->ras = ng_view_find_ras(finder->view, finder->view->groups[wait->group].id,
                                             absentee->group_rank);
            if (absentee->ras && absentee->ras->age_ns >= wait->age_ns)
                absentee->ras = NULL;
            if (absentee->ras && reports(finder->view, wait->group, &absentee->ras->rank))
                absentee->ras = NULL;
        }
    }
}

int ng_wait_graph_find(const struct ng_view *view, int64_t stalled_ns, struct ng_arena *arena,
                       struct ng_wait_graph *ret_waits)
{
    struct finder finder = {
        .view = view, .arena = arena, .waits = ret_waits, .stalled_ns = stalled_ns};
    int error = 0;

    *ret_waits = (struct ng_wait_graph){0};
    ret_waits->wait_of_member = ng_arena_alloc(arena, (view->member_count + 1) * sizeof(int32_t));
    finder.calls_of_process = ng_arena_alloc(arena, (view->process_count + 1) * sizeof(uint32_t));
    ret_waits->held = ng_arena_alloc(arena, (view->member_count + 1) * sizeof(bool));
    ret_waits->queued = ng_arena_alloc(arena, (view->member_count + 1) * sizeof(bool));
    if (!ret_waits->wait_of_member || !finder.calls_of_process || !ret_waits->held ||
        !ret_waits->queued)
        return -ENOMEM;
    memset(ret_waits->wait_of_member, 0xff, view->member_count * sizeof(int32_t));
    for (uint32_t i = view->call_count; i > 0; i--)
        finder.calls_of_process[view->calls[i - 1].process] = i;
    for (uint32_t group = 0; group < view->group_count && !error; group++) {
        uint32_t count;
        const struct ng_view_member *members = ng_view_members(view, group, &count);
        if (!members)
            continue;
        finder.farthest = 0;
        for (uint32_t i = 0; i < count; i++)
            finder.farthest = NG_MAX(finder.farthest, members[i].completed);
        for (size_t i = 0; i < NG_COUNT(makings) && !error; i++)
            error = find_making(&finder, &makings[i], group, members, count);
        error = error ?: find_host_calls(&finder, group, members, count);
        error = error ?: find_collective(&finder, group, members, count);
        error = error ?: find_p2p(&finder, group, members, count);
        error = error ?: find_end(&finder, group, members, count);
    }
    error = error ?: link_waits(&finder) ?: follow_leavers(&finder);
    if (!error)
        look_outside(&finder);
    return error;
}
