/*
 * Which rank a collective waits for that all ranks have called: what NCCL's connections show, side
 * by side.
 *
 * Pure. A rank that takes part sends, or takes what others have sent. One that does neither, though
 * what it needs to begin is there, is what the others wait for: its kernel does not run, or hangs.
 * Where a network has taken data that have not come to the receiver, which waits for them, it is
 * the path between the two. Data that move, and ranks whose connections were not looked at, say
 * nothing. Never certain: the look of each rank is of another moment.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "core/util/macros.h"
#include "core/verdict/culprits.h"

#define TREE        (NG_EDGE_TREE_UP | NG_EDGE_TREE_DOWN)
#define TOGETHER_NS NG_S /* looks that show one moment of a path */

struct picture {
    struct ng_verdict_builder *builder;
    const struct ng_view_member *members; /* of the group */
    uint32_t count;
    int32_t wait;
    bool ring, tree; /* something was sent that is only in a ring, only in a tree */
};

static bool waits(const struct picture *picture, const struct ng_view_member *member)
{
    const struct ng_verdict_builder *builder = picture->builder;

    return builder->waits.wait_of_member[member - builder->view->members] == picture->wait;
}

/* The same connection as its other end saw it; NULL not known. */
static const struct ng_edge *other_end(const struct picture *picture,
                                       const struct ng_view_member *member,
                                       const struct ng_edge *edge,
                                       const struct ng_view_member **ret_peer)
{
    const struct ng_view_member *peer =
        ng_view_member_among(picture->members, picture->count, edge->peer);

    *ret_peer = peer;
    return peer && waits(picture, peer)
               ? NG_FIND(back, peer->edges, peer->edge_count,
                         back->peer == member->group_rank &&
                             (back->flags & NG_EDGE_SENDS) != (edge->flags & NG_EDGE_SENDS))
               : NULL;
}

/* Is every rank that waits known, of about one moment, and does nothing move? */
static bool is_whole(struct picture *picture, uint32_t waiters)
{
    uint32_t known = 0;
    int64_t newest_ns = INT64_MAX, oldest_ns = 0;

    NG_EACH (member, picture->members, picture->count) {
        if (!waits(picture, member) || !member->edge_count)
            continue;
        known++;
        newest_ns = member->edges_age_ns < newest_ns ? member->edges_age_ns : newest_ns;
        oldest_ns = member->edges_age_ns > oldest_ns ? member->edges_age_ns : oldest_ns;
        NG_EACH (edge, member->edges, member->edge_count) {
            if (edge->flags & NG_EDGE_MOVES)
                return false;
            if (!edge->begun && !edge->held)
                continue;
            picture->ring |= (edge->flags & NG_EDGE_RING) && !(edge->flags & TREE);
            picture->tree |= (edge->flags & TREE) && !(edge->flags & NG_EDGE_RING);
        }
    }
    return known && known == waiters && oldest_ns - newest_ns < NG_EDGES_TOGETHER_NS;
}

/* Has it neither sent nor taken anything in this operation, by both ends of its connections? */
static bool is_silent(const struct picture *picture, const struct ng_view_member *member)
{
    NG_EACH (edge, member->edges, member->edge_count) {
        const struct ng_view_member *peer;
        const struct ng_edge *other = other_end(picture, member, edge, &peer);
        bool sent = edge->begun || edge->held || (other && (other->begun || other->held));
        /* The head of a sender tells what the network took. */
        bool near = other && !(other->flags & NG_EDGE_PROXY);
        /* Either end may have looked at fewer channels. */
        uint8_t held = near && other->channels < edge->held ? other->channels : edge->held;
        bool took = edge->taken || (near && (other->taken || other->held < held));
        if (edge->flags & NG_EDGE_SENDS ? sent : took)
            return false;
    }
    return true;
}

/* Is what it needs to begin there? In a ring, data of the rank before it; in a tree, of its parent
 * or of all its children. Unless it is known which of the two it is, both. */
static bool is_owed(const struct picture *picture, const struct ng_view_member *member)
{
    bool ring = false, up = false, any_tree = false;
    uint32_t children = 0, children_came = 0;

    NG_EACH (edge, member->edges, member->edge_count) {
        if (edge->flags & NG_EDGE_SENDS)
            continue;
        any_tree |= edge->flags & TREE;
        ring |= (edge->flags & NG_EDGE_RING) && edge->held;
        up |= (edge->flags & NG_EDGE_TREE_UP) && edge->held;
        children += (edge->flags & NG_EDGE_TREE_DOWN) != 0;
        children_came += (edge->flags & NG_EDGE_TREE_DOWN) && edge->held;
    }
    bool tree = up || (children && children_came == children);
    if (picture->ring != picture->tree)
        return picture->ring ? ring : tree;
    return any_tree ? ring && tree : ring;
}

static int global_rank(const struct picture *picture, const struct ng_view_member *member)
{
    return picture->builder->processes.ranks[member - picture->builder->view->members];
}

static struct ng_culprit *add(const struct picture *picture, const struct ng_view_member *member)
{
    return ng_verdict_builder_blame(picture->builder, member);
}

static int name_silent(struct picture *picture, uint32_t waiters)
{
    const struct ng_verdict_builder *builder = picture->builder;
    uint32_t found = 0;

    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < picture->count && (!pass || found < waiters); i++) {
            const struct ng_view_member *member = &picture->members[i], *peer = NULL;
            if (!waits(picture, member) || builder->waits.queued[member - builder->view->members] ||
                !is_silent(picture, member) || !is_owed(picture, member))
                continue;
            if (!pass) {
                found++;
                continue;
            }
            const struct ng_edge *owed = NULL;
            for (uint32_t k = 0; k < member->edge_count && !owed; k++)
                if (!(member->edges[k].flags & NG_EDGE_SENDS) && member->edges[k].held)
                    owed = &member->edges[k];
            peer = ng_view_member_among(picture->members, picture->count, owed->peer);
            struct ng_culprit *culprit = add(picture, member);
            snprintf(culprit->why, sizeof(culprit->why),
                     "made the call, but its device has neither taken what rank %d has sent nor "
                     "sent anything: its kernel of NCCL does not run, or hangs",
                     peer ? global_rank(picture, peer) : owed->peer);
        }
    return picture->builder->error;
}

/* Steps that the network has taken from the sender, and that have not come to a receiver that has
 * taken all that came; 0 none. */
static uint32_t lost(const struct picture *picture, const struct ng_view_member *member,
                     const struct ng_edge *edge, const struct ng_view_member **ret_peer)
{
    const struct ng_edge *other = other_end(picture, member, edge, ret_peer);

    if (!other || !(edge->flags & NG_EDGE_SENDS) || !(edge->flags & other->flags & NG_EDGE_PROXY) ||
        edge->channel != other->channel || other->held || is_silent(picture, *ret_peer) ||
        member->edges_age_ns - (*ret_peer)->edges_age_ns > TOGETHER_NS ||
        (*ret_peer)->edges_age_ns - member->edges_age_ns > TOGETHER_NS)
        return 0;
    int32_t steps = (int32_t)(edge->base + edge->consumed - (other->base + other->posted));
    return steps > 0 ? (uint32_t)steps : 0;
}

/* The first path that loses data: both of its ends. */
static int name_path(const struct picture *picture)
{
    for (uint32_t i = 0; i < picture->count; i++) {
        const struct ng_view_member *member = &picture->members[i], *peer;
        for (uint32_t k = 0; waits(picture, member) && k < member->edge_count; k++) {
            uint32_t steps = lost(picture, member, &member->edges[k], &peer);
            if (!steps)
                continue;
            struct ng_culprit *culprit = add(picture, member);
            snprintf(culprit->why, sizeof(culprit->why),
                     "sent data that do not come to rank %d: the network has taken %" PRIu32
                     " step%s that did not arrive; the path between the two, not either of them, "
                     "holds up the others",
                     global_rank(picture, peer), steps, steps == 1 ? "" : "s");
            culprit = add(picture, peer);
            snprintf(culprit->why, sizeof(culprit->why),
                     "waits for data of rank %d that the network has taken and not delivered",
                     global_rank(picture, member));
            return picture->builder->error;
        }
    }
    return picture->builder->error;
}

/* ---- In words ---- */

#define LINES_MAX 4u

/* "rank 0's data for rank 1 wait on 4 of 4 channels: 4 steps sent, 0 taken; nothing came from
 * rank 1" */
static int tell(const struct picture *picture, const struct ng_view_member *member,
                const struct ng_edge *edge)
{
    const struct ng_view_member *peer =
        ng_view_member_among(picture->members, picture->count, edge->peer);
    int rank = global_rank(picture, member), other = peer ? global_rank(picture, peer) : edge->peer;
    bool nothing = NG_ANY(back, member->edges, member->edge_count,
                          back->peer == edge->peer && !(back->flags & NG_EDGE_SENDS) &&
                              !back->begun && !back->taken);
    char from_it[64] = "";
    if (nothing)
        snprintf(from_it, sizeof(from_it), "; nothing came from rank %d", other);
    return ng_verdict_add_connection(
        picture->builder->verdict,
        "rank %d's data for rank %d wait on %u of %u channel%s: %u step%s sent, %u taken%s", rank,
        other, edge->held, edge->channels, edge->channels == 1 ? "" : "s", edge->posted,
        edge->posted == 1 ? "" : "s", edge->consumed, from_it);
}

static int tell_all(const struct picture *picture)
{
    uint32_t told = 0;

    for (uint32_t i = 0; i < picture->count; i++)
        for (uint32_t k = 0; waits(picture, &picture->members[i]) &&
                             k < picture->members[i].edge_count && told < LINES_MAX;
             k++) {
            const struct ng_edge *edge = &picture->members[i].edges[k];
            if (!(edge->flags & NG_EDGE_SENDS) || !edge->held)
                continue;
            told++;
            if (tell(picture, &picture->members[i], edge) != 0)
                return -ENOMEM;
        }
    return 0;
}

int ng_culprits_edges(struct ng_verdict_builder *builder, const struct ng_wait *wait)
{
    struct ng_verdict *verdict = builder->verdict;
    struct picture picture = {.builder = builder, .wait = (int32_t)(wait - builder->waits.waits)};

    picture.members = ng_view_members(builder->view, wait->group, &picture.count);
    bool whole = is_whole(&picture, wait->waiter_count);
    if (tell_all(&picture) != 0)
        return -ENOMEM;
    if (!whole || verdict->culprit_count)
        return 0;
    int error = name_silent(&picture, wait->waiter_count);
    if (!error && !verdict->culprit_count)
        error = name_path(&picture);
    if (!error && verdict->culprit_count)
        verdict->confidence = NG_CONFIDENCE_LIKELY;
    return error;
}
