/*
 * Do the ranks of a host call the same?
 *
 * Incident thread, not in the path of a call. Background:
 *
 * NCCL compares nothing. If ranks differ in the count or the operation, the device mostly hangs; if
 * they differ only in the reduction, nothing hangs, and the result is wrong on every rank. Each
 * rank's calls are in its rolling hash (core/recorder/signature.h), and its hash log
 * (core/view/hash_log.h) has the hash after each collective. So a difference is detected without
 * reading records, and without waiting for any rank.
 *
 * No alarm is ever false, whatever NCCL lets ranks do:
 *   - sends, receives and one-sided work are not in the hash: their numbers and peers differ
 *     freely;
 *   - each group is compared separately, by its id, with the same number of ranks: calls in other
 *     groups, and their order across groups, do not count; nor does a communicator that was found
 *     after it had made calls, since its numbers differ from those of the others;
 *   - if several communicators may have one id, as all have with NCCL_COMM_ID, one is compared only
 *     as long as no other with its id and rank lives in its process, even if still being created;
 *     and those of which two have lived at once never, since ranks may end them in any order;
 *   - buffers, streams, and whether a call is in place are not in the hash; operators that the
 *     program created are numbered by each rank alone, and count as alike;
 *   - a call counts once NCCL has accepted it: one that was rejected, or in a group that is still
 *     open, has not happened yet. In a call that has not returned for a second, NCCL is past its
 *     checks;
 *   - from the first call in a CUDA graph on nothing is compared: a capture may be discarded, and
 *     then numbers differ though the calls do not;
 *   - a hash log never gives the hash of one call for that of another, however the rings have
 *     wrapped; nor does a record (core/view/recall.h), which contains when it was made, and so for
 *     which communicator.
 */
#include "core/check/signature_compare.h"

#include <pthread.h>
#include <string.h>

#include "core/check/check.h"
#include "core/comm/comm.h"
#include "core/nccl/board.h"
#include "core/runtime/alarm.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/view/comparable.h"
#include "core/view/recall.h"

#define ROUND_NS  NG_S
#define BOXES_MAX 256u
#define LOOKS_MAX (1u << 18) /* slots of neighbours compared in one round */
#define TOLD_MAX  64u
#define AGAIN                                                                                      \
    10u /* rounds within which a verdict follows an alarm; then it is raised again, after twice as \
           many */
#define AGAIN_MAX 1280u /* maximum */

/* Protects `found`, which the store's thread writes. Never taken while another lock is held; held
 * only for copies. */
static pthread_mutex_t found_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ng_disagreement found;

/* Used by the incident thread only. */
static struct {
    const struct ng_box *boxes[BOXES_MAX]; /* of this round; our own first */
    uint32_t box_count;
    uint32_t at; /* slot at which the round begins */
    int64_t next_ns;
    uint64_t rounds;
    struct {
        uint64_t group_id;
        bool told;      /* reported by a verdict; else an alarm was raised, … */
        uint64_t until; /* … which is valid until this round: it may have been dropped, like other
                           alarms at an abort */
        uint32_t pause;
    } known[TOLD_MAX];
    uint32_t known_count;
} own NG_LARGE;

/* The next rank of the same group on this host, and whether ours is the lowest there. False: there
 * is no other, or it cannot be determined. */
static bool find_next(uint32_t own_slot, const struct ng_box **ret_box, uint32_t *ret_slot,
                      bool *ret_lowest, uint32_t *looks)
{
    const struct ng_box_group *mine = &ng_guard.box.groups[own_slot];
    int nranks = NG_LOAD(mine->nranks), rank = NG_LOAD(mine->group_rank), nearest = nranks;
    bool twice = false;

    *ret_lowest = true;

    for (uint32_t i = 0; i < own.box_count; i++) {
        const struct ng_box *box = own.boxes[i];
        uint32_t used = NG_LOAD(box->header->group_used);
        used = NG_MIN(used, box->group_capacity);
        *looks += used;
        for (uint32_t slot = 0; slot < used; slot++) {
            const struct ng_box_group *group = &box->groups[slot];
            if (group == mine || !ng_comparable_is_there(group, NG_LOAD(mine->id)) ||
                NG_LOAD(group->nranks) != nranks)
                continue;
            int distance = (NG_LOAD(group->group_rank) - rank + nranks) % nranks;
            if (distance == 0) { /* the same rank again */
                *ret_lowest = false;
                return false;
            }
            *ret_lowest &= NG_LOAD(group->group_rank) > rank;
            twice = distance == nearest || (twice && distance > nearest);
            if (distance >= nearest)
                continue;
            nearest = distance;
            *ret_box = box;
            *ret_slot = slot;
        }
    }
    return nearest < nranks && !twice && ng_comparable_is_ready(&(*ret_box)->groups[*ret_slot]);
}

/* Does the slot still belong to the group whose hash log was copied? */
static bool is_still(const struct ng_box_group *group, uint32_t generation, uint64_t id)
{
    atomic_thread_fence(memory_order_acquire);
    return NG_LOAD(group->generation) == generation && NG_LOAD(group->id) == id &&
           ng_comparable_is_ready(group);
}

/* Index of a known group; TOLD_MAX: not known. */
static uint32_t find_known(uint64_t group_id)
{
    for (uint32_t i = 0; i < TOLD_MAX && i < own.known_count; i++)
        if (own.known[i].group_id == group_id)
            return i;
    return TOLD_MAX;
}

static bool is_known(uint64_t group_id)
{
    uint32_t at = find_known(group_id);

    return at < TOLD_MAX && (own.known[at].told || own.rounds < own.known[at].until);
}

static void keep_known(uint64_t group_id, bool told)
{
    uint32_t at = find_known(group_id);

    if (at == TOLD_MAX) {
        at = own.known_count++ % TOLD_MAX;
        own.known[at].group_id = group_id;
        own.known[at].told = false;
        own.known[at].pause = AGAIN;
    } else if (own.known[at].pause < AGAIN_MAX) {
        own.known[at].pause *= 2;
    }
    own.known[at].told |= told; /* and it stays so if it is found again */
    own.known[at].until = own.rounds + own.known[at].pause;
}

void ng_signature_compare_mark_reported(uint64_t group_id)
{
    keep_known(group_id, true);
}

bool ng_signature_compare_is_reported(uint64_t group_id)
{
    uint32_t at = find_known(group_id);

    return at < TOLD_MAX && own.known[at].told;
}

void ng_signature_compare_raise(const struct ng_disagreement *disagreement,
                                enum ng_incident_level level)
{
    struct ng_alarm alarm = {.level = level,
                             .group_id = disagreement->group_id,
                             .seq = disagreement->difference.seq,
                             .disagreement = *disagreement,
                             .restarts = ng_alarm_restarts()};

    keep_known(disagreement->group_id, false);
    ng_alarm_raise(&alarm);
}

/* What this rank called at that number; NG_OP_NONE: nothing, or no longer known. */
static enum ng_op own_op(uint64_t group_id, uint64_t seq)
{
    const struct ng_box *box = &ng_guard.box;
    uint32_t used = NG_LOAD(box->header->group_used);

    for (uint32_t slot = 0; slot < used && slot < box->group_capacity; slot++)
        if (ng_comparable_is_there(&box->groups[slot], group_id))
            return ng_recall_op(box, slot, seq);
    return NG_OP_NONE;
}

/* `their_op`: what the other rank called, if known. */
static void raise_difference(const struct ng_disagreement *disagreement, enum ng_op their_op)
{
    uint64_t id = disagreement->group_id;
    bool ends =
        ng_check_ends(id, own_op(id, disagreement->difference.seq)) || ng_check_ends(id, their_op);

    ng_signature_compare_raise(disagreement, ends ? NG_INCIDENT_TIMEOUT : NG_INCIDENT_SUSPECT);
}

static void compare(uint32_t slot, int64_t now_mono_ns, uint32_t *looks)
{
    const struct ng_box_group *mine = &ng_guard.box.groups[slot], *theirs;
    uint64_t id = NG_LOAD(mine->id);
    struct ng_disagreement disagreement = {.group_id = id};
    struct ng_hash_log hash_log, other;
    const struct ng_box *box = NULL;
    uint32_t there = 0;
    bool lowest = false;

    NG_STORE(ng_guard.box.hash_logs[slot].across, NG_HASH_LOG_SILENT);
    if (!NG_LOAD(mine->entered) || is_known(id) || !ng_check_compares(id) ||
        !ng_comparable_is_clear(&ng_guard.box, slot))
        return;
    bool has_next = find_next(slot, &box, &there, &lowest, looks);
    /* Even if it is the only rank on this host. */
    NG_STORE(ng_guard.box.hash_logs[slot].across, NG_LOAD(mine->group_rank) == 0 ? NG_HASH_LOG_TELLS
                                                  : lowest                       ? NG_HASH_LOG_ASKS
                                                           : NG_HASH_LOG_SILENT);
    if (!has_next || there >= box->hash_log_capacity || NG_LOAD(box->hash_logs[there].shared))
        return;
    theirs = &box->groups[there];
    uint32_t generation = NG_LOAD(mine->generation), their_generation = NG_LOAD(theirs->generation);
    if (!ng_comparable_hash_log(&ng_guard.box, slot, now_mono_ns, &hash_log) ||
        !ng_comparable_hash_log(box, there, now_mono_ns, &other))
        return;
    const struct ng_hash_log *ahead = ng_hash_log_ahead(&hash_log, &other);
    if (ahead == &hash_log)
        *looks += ng_recall(&ng_guard.box, slot, other.last, &hash_log);
    else if (ahead)
        *looks += ng_recall(box, there, hash_log.last, &other);
    if (!ng_hash_log_differ(&hash_log, &other, &disagreement.difference))
        return;
    ng_box_read(box, NG_BOX_GROUPS);
    if (!is_still(mine, generation, id) || !is_still(theirs, their_generation, id))
        return;
    disagreement.ranks[0] = NG_LOAD(mine->group_rank);
    disagreement.ranks[1] = NG_LOAD(theirs->group_rank);
    raise_difference(&disagreement, ng_recall_op(box, there, disagreement.difference.seq));
}

static void take_box(void *context, const struct ng_box *box)
{
    if (own.box_count < BOXES_MAX)
        own.boxes[own.box_count++] = box;
}

void ng_signature_compare_found(const struct ng_disagreement *disagreement)
{
    pthread_mutex_lock(&found_lock);
    found = *disagreement;
    pthread_mutex_unlock(&found_lock);
    ng_wake_incident();
}

static void take_found(void)
{
    pthread_mutex_lock(&found_lock);
    struct ng_disagreement taken = found;
    found.group_id = 0;
    pthread_mutex_unlock(&found_lock);
    if (taken.group_id && !is_known(taken.group_id))
        raise_difference(&taken, NG_OP_NONE);
}

void ng_signature_compare_run(struct ng_board *board, int64_t now_mono_ns)
{
    uint32_t used = NG_LOAD(ng_guard.box.header->group_used), looks = 0;

    take_found();
    if (now_mono_ns < own.next_ns || !ng_check_signatures() || !used)
        return;
    own.next_ns = now_mono_ns + ROUND_NS;
    own.rounds++;
    own.boxes[0] = &ng_guard.box;
    own.box_count = 1;
    if (board && board->ops->each)
        board->ops->each(board, take_box, NULL);
    for (uint32_t i = 0; i < used && looks < LOOKS_MAX; i++) {
        own.at = own.at + 1 < used ? own.at + 1 : 0;
        compare(own.at, now_mono_ns, &looks);
    }
    own.box_count = 0; /* they may be closed before the next round */
}

void ng_signature_compare_after_fork(void)
{
    found_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    found.group_id = 0;
    memset(&own, 0, sizeof(own));
}
