/*
 * What NCCL launched together, and the collectives that programs compose from sends and receives.
 *
 * Called by the guard's threads. Must never allocate except from the arena, and must tolerate any
 * numbers that a damaged black box holds.
 */
#include "core/view/p2p_patterns.h"

#include <errno.h>
#include <string.h>

#include "core/util/macros.h"

/* The shape of one rank's part, before it is checked against other ranks. */
enum shape {
    SHAPELESS,
    EXCHANGE, /* a send to and a receive from every other rank */
    FAN_IN,   /* receives from every other rank */
    FAN_OUT,  /* sends to every other rank */
    ONE_SEND,
    ONE_RECEIVE,
};

/* Whether the other ranks' evidence was checked already, and its result. */
enum agreement { NOT_ASKED, AGREED, CONTRADICTED };

struct part {
    enum shape shape;
    enum agreement agreement;
    bool equal; /* all counts are the same */
};

/* A member under examination: the one in question, or another rank of its group. */
struct side {
    const struct ng_view_member *member;
    bool known; /* the fields below are valid */
    struct ng_p2p_pattern pattern;
    struct part *parts; /* per work */
    uint32_t *slots;    /* record index + 1 by peer, direction and ordinal */
    uint32_t slot_mask;
};

struct ng_p2p_pattern_search {
    const struct ng_view *view;
    struct ng_arena *arena;
    int nranks;
    bool complete;       /* the view has all ranks of the group */
    struct side *sides;  /* per group rank */
    unsigned char *seen; /* per group rank; scratch of shape_of */
};

/* A refused call returns its numbers, and the next call reuses them, so from the newest record
 * backwards numbers only decrease. A captured call never has numbers of its own. */
static void leave_out_refused(const struct ng_view_member *member, uint32_t *work_of)
{
    uint64_t limit = member->entered + member->p2p_entered;

    for (uint32_t i = member->record_count; i > 0; i--) {
        const struct ng_view_record *record = &member->records[i - 1];
        bool counted = record->state != NG_RECORD_CAPTURED &&
                       (record->state != NG_RECORD_FAILED || ng_view_record_op_id(record) <= limit);
        work_of[i - 1] = counted ? 0 : NG_P2P_PATTERN_NONE;
        if (counted && ng_view_record_op_id(record) <= limit)
            limit = ng_view_record_op_id(record) - 1;
    }
}

/* The record of this id before `index`; ids are ascending. NG_P2P_PATTERN_NONE: it was
 * overwritten. */
static uint32_t find_before(const struct ng_view_member *member, uint32_t index, uint64_t id)
{
    while (index > 0 && member->records[index - 1].id >= id)
        if (member->records[--index].id == id)
            return index;
    return NG_P2P_PATTERN_NONE;
}

static int find_works(const struct ng_view_member *member, struct ng_arena *arena,
                      struct ng_p2p_pattern *ret_composed)
{
    struct ng_p2p_pattern *pattern = ret_composed;

    *pattern = (struct ng_p2p_pattern){0};
    pattern->work_of =
        ng_arena_alloc(arena, ((size_t)member->record_count + 1) * sizeof(*pattern->work_of));
    pattern->works =
        ng_arena_alloc(arena, ((size_t)member->record_count + 1) * sizeof(*pattern->works));
    if (!pattern->work_of || !pattern->works)
        return -ENOMEM;
    leave_out_refused(member, pattern->work_of);
    for (uint32_t i = 0; i < member->record_count; i++) {
        const struct ng_view_record *record = &member->records[i];
        uint32_t before = NG_P2P_PATTERN_NONE;
        if (pattern->work_of[i] == NG_P2P_PATTERN_NONE)
            continue;
        if (record->work_previous)
            before = find_before(member, i, record->work_previous);
        uint32_t index =
            before == NG_P2P_PATTERN_NONE ? NG_P2P_PATTERN_NONE : pattern->work_of[before];
        if (index == NG_P2P_PATTERN_NONE) {
            index = pattern->work_count++;
            pattern->works[index] = (struct ng_p2p_pattern_work){
                .first = i, .cut = record->work_previous != 0, .root = -1};
        }
        pattern->work_of[i] = index;
        struct ng_p2p_pattern_work *work = &pattern->works[index];
        work->last = i;
        work->coll_count += !ng_view_record_is_p2p(record);
        work->p2p_count += ng_view_record_is_p2p(record);
    }
    return 0;
}

enum { SENT_TO = 1, RECEIVED_FROM = 2 };

/* The next record of the same work, from `index` on. */
static uint32_t next_of(const struct ng_p2p_pattern *pattern, uint32_t work, uint32_t index)
{
    while (pattern->work_of[index] != work)
        index++;
    return index;
}

/* The shape that the calls form together, if each peer occurs at most once in each direction. */
static enum shape shape_of_peers(const struct ng_p2p_pattern_search *search,
                                 const struct side *side, uint32_t sends, uint32_t receives)
{
    int me = side->member->group_rank, others = search->nranks - 1;
    bool self_sent = search->seen[me] & SENT_TO, self_received = search->seen[me] & RECEIVED_FROM;
    uint32_t sent_out = sends - self_sent, received_in = receives - self_received;

    if (sends + receives == 1 && !self_sent && !self_received)
        return sends ? ONE_SEND : ONE_RECEIVE;
    if (self_sent != self_received || others < 1)
        return SHAPELESS;
    /* Two ranks that exchange data may just as well be neighbours in a ring. */
    if (sent_out == (uint32_t)others && received_in == (uint32_t)others &&
        (others > 1 || self_sent))
        return EXCHANGE;
    if (others > 1 && sent_out == 0 && received_in == (uint32_t)others)
        return FAN_IN;
    if (others > 1 && received_in == 0 && sent_out == (uint32_t)others)
        return FAN_OUT;
    return SHAPELESS;
}

static struct part part_of(const struct ng_p2p_pattern_search *search, const struct side *side,
                           uint32_t index)
{
    const struct ng_view_member *member = side->member;
    struct ng_p2p_pattern_work *work = &side->pattern.works[index];
    struct part part = {.shape = SHAPELESS, .equal = true};
    uint32_t sends = 0, receives = 0, i = work->first;

    if (work->cut || work->coll_count || member->group_rank < 0 ||
        work->p2p_count > 2 * (uint32_t)search->nranks ||
        (work->p2p_count > 1 && work->p2p_count + 1 < (uint32_t)search->nranks))
        return part;
    const struct ng_signature *sample = &member->records[i].signature;
    memset(search->seen, 0, (size_t)search->nranks);
    for (uint32_t left = work->p2p_count; left > 0; left--, i++) {
        i = next_of(&side->pattern, index, i);
        const struct ng_signature *call = &member->records[i].signature;
        unsigned bit = call->op == NG_OP_Send ? SENT_TO : RECEIVED_FROM;
        if (call->root < 0 || call->root >= search->nranks || (search->seen[call->root] & bit) ||
            call->dtype != sample->dtype)
            return part;
        search->seen[call->root] |= (unsigned char)bit;
        part.equal &= call->count == sample->count;
        if (bit == SENT_TO) {
            sends++;
            work->sent += call->count;
        } else {
            receives++;
            work->received += call->count;
        }
    }
    part.shape = shape_of_peers(search, side, sends, receives);
    return part;
}

/* The table entry of the send to (or receive from) a peer with this ordinal, used or free. */
static uint32_t *slot_of(const struct side *side, enum ng_op op, int peer, uint64_t ordinal)
{
    uint64_t key = (ordinal << 1 | (op == NG_OP_Send)) * UINT64_C(0x9e3779b97f4a7c15) +
                   (uint32_t)peer * UINT64_C(0xd1b54a32d192ed03);
    uint32_t at = (uint32_t)(key >> 32) & side->slot_mask;

    for (; side->slots[at]; at = (at + 1) & side->slot_mask) {
        const struct ng_view_record *record = &side->member->records[side->slots[at] - 1];
        if (record->signature.op == (uint32_t)op && record->signature.root == peer &&
            record->peer_ordinal == ordinal)
            break;
    }
    return &side->slots[at];
}

static int index_calls(struct ng_p2p_pattern_search *search, struct side *side)
{
    const struct ng_view_member *member = side->member;
    uint32_t mask = 15;

    while (mask / 2 < member->record_count)
        mask = mask * 2 + 1;
    side->slots = ng_arena_alloc(search->arena, ((size_t)mask + 1) * sizeof(*side->slots));
    if (!side->slots)
        return -ENOMEM;
    side->slot_mask = mask;
    for (uint32_t i = 0; i < member->record_count; i++) {
        const struct ng_view_record *record = &member->records[i];
        if (side->pattern.work_of[i] != NG_P2P_PATTERN_NONE && record->peer_ordinal)
            *slot_of(side, (enum ng_op)record->signature.op, record->signature.root,
                     record->peer_ordinal) = i + 1;
    }
    return 0;
}

/* Computes everything about one rank, once. */
static int know(struct ng_p2p_pattern_search *search, struct side *side)
{
    if (side->known)
        return 0;
    int error = find_works(side->member, search->arena, &side->pattern);
    if (error)
        return error;
    side->parts = ng_arena_alloc(search->arena,
                                 ((size_t)side->pattern.work_count + 1) * sizeof(*side->parts));
    if (!side->parts)
        return -ENOMEM;
    for (uint32_t i = 0; i < side->pattern.work_count; i++)
        side->parts[i] = part_of(search, side, i);
    error = index_calls(search, side);
    side->known = !error;
    return error;
}

/* The peer's work that contains the matching call of this one. *ret_index NG_P2P_PATTERN_NONE: not
 * in the view. */
static int other_end(struct ng_p2p_pattern_search *search, const struct side *side,
                     const struct ng_view_record *record, struct side **ret_peer,
                     uint32_t *ret_index)
{
    struct side *peer = &search->sides[record->signature.root];
    enum ng_op opposite = record->signature.op == NG_OP_Send ? NG_OP_Recv : NG_OP_Send;

    *ret_index = NG_P2P_PATTERN_NONE;
    if (!peer->member || !record->peer_ordinal)
        return 0;
    int error = know(search, peer);
    if (error)
        return error;
    uint32_t slot = *slot_of(peer, opposite, side->member->group_rank, record->peer_ordinal);
    *ret_peer = peer;
    if (slot)
        *ret_index = peer->pattern.work_of[slot - 1];
    return 0;
}

/* Does every matching call that the view has belong to a work of the shape `wanted`? */
static int ask_others(struct ng_p2p_pattern_search *search, struct side *side, uint32_t index,
                      enum shape wanted)
{
    struct part *part = &side->parts[index];
    uint32_t i = side->pattern.works[index].first, at;
    struct side *peer;

    if (part->agreement != NOT_ASKED)
        return 0;
    part->agreement = AGREED;
    for (uint32_t left = side->pattern.works[index].p2p_count; left > 0; left--, i++) {
        i = next_of(&side->pattern, index, i);
        int error = other_end(search, side, &side->member->records[i], &peer, &at);
        if (error)
            return error;
        if (at != NG_P2P_PATTERN_NONE && peer != side && peer->parts[at].shape != wanted)
            part->agreement = CONTRADICTED;
    }
    return 0;
}

/* A fan is one collective only if all counts are the same and every rank's evidence confirms it. */
static int name_fan(struct ng_p2p_pattern_search *search, struct side *root, uint32_t index,
                    bool *ret_named)
{
    struct part *part = &root->parts[index];

    *ret_named = false;
    if (!search->complete || !part->equal)
        return 0;
    int error = ask_others(search, root, index, part->shape == FAN_IN ? ONE_SEND : ONE_RECEIVE);
    *ret_named = part->agreement == AGREED;
    return error;
}

static int name_work(struct ng_p2p_pattern_search *search, struct side *side, uint32_t index)
{
    struct ng_p2p_pattern_work *work = &side->pattern.works[index];
    struct part *part = &side->parts[index];
    struct side *root = side;
    uint32_t at = index;
    bool named;
    int error = 0;

    switch (part->shape) {
    case SHAPELESS:
        return 0;
    case EXCHANGE:
        error = ask_others(search, side, index, EXCHANGE);
        if (part->agreement == AGREED)
            work->op = part->equal ? NG_OP_AlltoAll : NG_OP_AllToAllv;
        return error;
    case ONE_SEND:
    case ONE_RECEIVE:
        if (!search->complete || search->nranks < 3)
            return 0;
        error = other_end(search, side, &side->member->records[work->first], &root, &at);
        if (error || at == NG_P2P_PATTERN_NONE)
            return error;
        if (root->parts[at].shape != (part->shape == ONE_SEND ? FAN_IN : FAN_OUT))
            return 0;
        break;
    case FAN_IN:
    case FAN_OUT:
        break;
    }
    error = name_fan(search, root, at, &named);
    if (!error && named) {
        work->op = root->parts[at].shape == FAN_IN ? NG_OP_Gather : NG_OP_Scatter;
        work->root = root->member->group_rank;
    }
    return error;
}

static int look_at_group(struct ng_p2p_pattern_search *search, uint32_t group)
{
    uint32_t count;
    const struct ng_view_member *members = ng_view_members(search->view, group, &count);

    search->sides = ng_arena_alloc(search->arena, (size_t)search->nranks * sizeof(*search->sides));
    search->seen = ng_arena_alloc(search->arena, (size_t)search->nranks);
    if (!search->sides || !search->seen)
        return -ENOMEM;
    uint32_t told = 0;
    for (uint32_t i = 0; i < count; i++) {
        int rank = members[i].group_rank;
        /* If a rank has several handles, the first counts. */
        if (rank < 0 || rank >= search->nranks || search->sides[rank].member)
            continue;
        search->sides[rank].member = &members[i];
        told++;
    }
    search->complete = told == (uint32_t)search->nranks;
    return 0;
}

int ng_p2p_pattern_begin(const struct ng_view *view, uint32_t group, struct ng_arena *arena,
                         struct ng_p2p_pattern_search **ret_search)
{
    struct ng_p2p_pattern_search *search = ng_arena_alloc(arena, sizeof(*search));

    if (!search)
        return -ENOMEM;
    *search = (struct ng_p2p_pattern_search){
        .view = view, .arena = arena, .nranks = view->groups[group].nranks};
    *ret_search = search;
    /* No pattern can span more ranks than there are records. */
    if (search->nranks < 2 || (uint32_t)search->nranks > UINT32_C(1) << 20)
        search->nranks = 0;
    return search->nranks ? look_at_group(search, group) : 0;
}

int ng_p2p_pattern_next(struct ng_p2p_pattern_search *search, const struct ng_view_member *member,
                        struct ng_p2p_pattern *ret_composed)
{
    if (member->group_rank < 0 || member->group_rank >= search->nranks)
        return find_works(member, search->arena, ret_composed);
    struct side *side = &search->sides[member->group_rank];
    if (side->member != member) {
        side->member = member;
        side->known = false;
    }
    int error = know(search, side);
    for (uint32_t i = 0; !error && i < side->pattern.work_count; i++)
        error = name_work(search, side, i);
    if (!error)
        *ret_composed = side->pattern;
    return error;
}

int ng_p2p_pattern_find(const struct ng_view *view, const struct ng_view_member *member,
                        struct ng_arena *arena, struct ng_p2p_pattern *ret_composed)
{
    struct ng_p2p_pattern_search *search;

    int error = find_works(member, arena, ret_composed);
    /* There must be sends or receives that could be part of a pattern. */
    if (error || !NG_ANY(work, ret_composed->works, ret_composed->work_count,
                         work->p2p_count && !work->coll_count))
        return error;
    return ng_p2p_pattern_begin(view, member->group, arena, &search)
               ?: ng_p2p_pattern_next(search, member, ret_composed);
}

const char *ng_p2p_pattern_words(enum ng_op op)
{
    switch (op) {
    case NG_OP_AlltoAll:
    case NG_OP_AllToAllv:
        return "all-to-all";
    case NG_OP_Gather:
        return "gather";
    case NG_OP_Scatter:
        return "scatter";
    default:
        return NULL;
    }
}
