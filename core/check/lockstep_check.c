/*
 * Agreeing before each launch.
 *
 * A rank's call is in its hash log before the check (core/view/hash_log.h), so nothing needs to be
 * sent. The calling threads of a host meet (core/check/rendezvous.h). At the first call of a
 * communicator, and while they do not meet, the calling thread puts its request into a slot and
 * sleeps; the incident thread checks every millisecond while a thread waits.
 *
 * If the group has ranks on other hosts, the lowest rank of a host has its incident thread record
 * in its hash log which collective all ranks of its host have reached. The store's thread publishes
 * that to the other hosts, and writes their answers into the same hash log
 * (store/publish/publish_lockstep.c), where the other ranks of the host read them.
 *
 * A rejected call did not happen on any rank, so its number is used again. To distinguish a
 * rejected call from the next one with its number, each rank counts its rejected calls, and only
 * ranks with equal counts are compared. A rank with a higher count has given up the call that the
 * others still wait for.
 */
#include "core/check/lockstep_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/check/check.h"
#include "core/check/rendezvous.h"
#include "core/check/signature_compare.h"
#include "core/comm/comm.h"
#include "core/comm/deadline.h"
#include "core/nccl/board.h"
#include "core/nccl/call.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/log.h"
#include "core/util/memory.h"
#include "core/view/comparable.h"
#include "core/view/hash_log.h"

#define SLOTS         64u
#define SLICE_NS      (50 * NG_MS)
#define MEET_NS       (20 * NG_MS) /* after which the incident thread looks, too: … */
#define MEET_SLICE_NS (5 * NG_MS)  /* … its answer is noticed after this long */
#define BOXES_MAX     256u
#define VERDICT_NS    (3 * NG_S) /* the job may end with the call's error: the verdict comes first */
#define CERTAIN_NS                                                                                 \
    (20 * NG_MS) /* a call captured into a CUDA graph is marked only after it has entered */

/* States of a slot: the lower bits of a futex word. The other bits count its uses, so that no
 * thread gets the answer for another one that has given up. */
#define STATE 7u
enum {
    FREE,
    FILLING, /* owned by the calling thread */
    POSTED,  /* owned by the incident thread */
    BUSY,    /* owned by the incident thread for a moment, to write */
    JUDGED,  /* owned by the incident thread; agreement has failed, and the verdict is being worked
                out or published */
    DONE,    /* owned by the calling thread again */
};

struct slot {
    _Atomic uint32_t word;
    uint32_t comm; /* index */
    uint64_t seq;
    int64_t deadline_mono_ns; /* INT64_MAX none */
    int result;
    int other;              /* group rank that differs, or has given up; -1 none */
    int64_t judged_mono_ns; /* used by the incident thread only */
    int64_t differ_mono_ns; /* likewise: since when ranks differ; 0 they do not */
};

static struct slot slots[SLOTS] NG_LARGE;

/* There is news for the other hosts besides the fact that a call is waiting. */
static atomic_bool stirred;

/* The incident thread's own. */
static const struct ng_box *boxes[BOXES_MAX] NG_LARGE;
static uint32_t box_count;
static bool told_of_loss; /* other hosts cannot be reached */

static bool is_reached(uint64_t from, uint64_t seq)
{
    return from && from <= seq;
}

/* A capture may be discarded on one rank alone, so no rank waits from the first captured call
 * on. */
static bool is_captured(const struct ng_box_hash_log *hash_log, uint64_t seq)
{
    return is_reached(NG_LOAD(hash_log->captured), seq) ||
           is_reached(NG_LOAD(hash_log->unasked), seq);
}

/* ---- The calling thread ---- */

static struct slot *take_slot(void)
{
    for (unsigned i = 0; i < SLOTS; i++) {
        uint32_t word = atomic_load(&slots[i].word);
        if ((word & STATE) == FREE &&
            atomic_compare_exchange_strong(&slots[i].word, &word, word + STATE + 1 + FILLING))
            return &slots[i];
    }
    return NULL;
}

/* The same use of the slot, in another state. */
static uint32_t in_state(uint32_t word, uint32_t state)
{
    return (word & ~STATE) | state;
}

/* Take the slot back from the incident thread, whatever it is doing. */
static void take_back(struct slot *slot)
{
    for (;;) {
        uint32_t word = atomic_load(&slot->word);
        if ((word & STATE) != BUSY &&
            atomic_compare_exchange_strong(&slot->word, &word, in_state(word, FREE)))
            return;
    }
}

static void stir(void)
{
    atomic_store(&stirred, true);
    ng_wake_incident();
}

static void lower(_Atomic uint64_t *word, uint64_t seq)
{
    if (atomic_load(word) >= seq)
        atomic_store(word, seq - 1);
}

void ng_lockstep_take_back(struct ng_comm *comm, uint64_t seq)
{
    lower(&comm->hash_log->here, seq);
    lower(&comm->hash_log->agreed, seq);
    lower(&comm->hash_log->passed, seq);
}

void ng_lockstep_pass(struct ng_comm *comm, uint64_t seq)
{
    ng_rendezvous_announce(comm);
    if (!ng_guard.board || !ng_guard.board->ops->agree)
        return;
    atomic_store(&comm->hash_log->passed, seq);
    ng_hash_log_wake(comm->hash_log);
    stir();
}

static int turn_down(struct ng_comm *comm, uint64_t seq, int result)
{
    struct ng_box_hash_log *hash_log = comm->hash_log;

    /* Before it can be mistaken for the next call with its number. */
    ng_lockstep_take_back(comm, seq);
    atomic_store(&hash_log->refused, NG_LOAD(hash_log->refused) + 1);
    stir();
    return result;
}

/* A capture never waits for other ranks. */
static bool goes_into_graph(const struct ng_call *call)
{
    const struct ng_cuda *cuda = ng_guard_cuda();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return cuda && cuda->stream_is_capturing(call->stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* Sleep for at most a slice, or until the slot changes; as long as ranks of this host may still
 * `meet`, until they have met. True: they have, and the slot is free again. */
static bool sleep_posted(const struct ng_comm *comm, uint64_t seq, struct slot *slot, uint32_t word,
                         enum ng_rendezvous_outcome *meet)
{
    if (*meet != NG_RENDEZVOUS_AWAITED || (word & STATE) != POSTED) {
        ng_futex_wait(&slot->word, word, SLICE_NS);
        return false;
    }
    *meet = ng_rendezvous_await(comm, seq, ng_clock_mono_ns() + MEET_SLICE_NS);
    return *meet == NG_RENDEZVOUS_MET &&
           atomic_compare_exchange_strong(&slot->word, &word, in_state(word, FREE));
}

/* How long a call has waited, without time in which its clock was paused. */
struct patience {
    int64_t last_mono_ns, age_ns;
    int64_t mark; /* ng_deadline_mark */
};

/* Has it waited for a second longer than its deadline, by which there is a verdict? */
static bool is_over(const struct ng_comm *comm, enum ng_op op, struct patience *patience)
{
    int64_t now_mono_ns = ng_clock_mono_ns(), timeout_ns = ng_deadline_timeout(comm, op);
    int64_t step_ns = now_mono_ns - patience->last_mono_ns;

    patience->last_mono_ns = now_mono_ns;
    /* Longer steps are time in which this process did not run. */
    if (!ng_deadline_rests(comm))
        patience->age_ns += step_ns < NG_S ? step_ns : NG_S;
    return timeout_ns &&
           patience->age_ns >= timeout_ns + ng_deadline_extension(comm, patience->mark) + NG_S;
}

static int agree(const struct ng_call *call, struct ng_comm *comm, uint64_t seq, char *ret_reason,
                 unsigned bytes)
{
    int64_t timeout_ns = ng_deadline_timeout(comm, call->op), begun = ng_clock_mono_ns();
    struct patience patience = {.last_mono_ns = begun, .mark = ng_deadline_mark(comm, begun)};
    uint32_t word;

    ng_rendezvous_announce(comm);
    if (goes_into_graph(call) && !is_reached(NG_LOAD(comm->hash_log->captured), seq)) {
        ng_hash_log_capture(comm->hash_log, seq);
        stir();
    }
    if (is_captured(comm->hash_log, seq))
        return NG_CALL_PROCEED;
    enum ng_rendezvous_outcome meet = ng_rendezvous_await(comm, seq, begun + MEET_NS);
    if (meet == NG_RENDEZVOUS_MET)
        return NG_CALL_PROCEED;
    struct slot *slot = ng_guard.board ? take_slot() : NULL;
    if (!slot) {
        ng_lockstep_pass(comm, seq);
        return NG_CALL_PROCEED;
    }
    word = atomic_load(&slot->word);
    slot->comm = comm->slot;
    slot->seq = seq;
    slot->deadline_mono_ns = timeout_ns ? begun + timeout_ns : INT64_MAX;
    slot->other = -1;
    slot->result = NG_CALL_PROCEED;
    slot->differ_mono_ns = 0;
    atomic_store(&slot->word, in_state(word, POSTED));
    ng_wake_incident();
    while (((word = atomic_load(&slot->word)) & STATE) != DONE) {
        if (sleep_posted(comm, seq, slot, word, &meet))
            return NG_CALL_PROCEED;
        if (atomic_load(&ng_guard.ending) || !atomic_load(&ng_guard.running) ||
            ng_comm_is_condemned(comm) || atomic_load(&comm->cut_off)) {
            take_back(slot);
            return NG_CALL_PROCEED; /* the later steps return the result for such a call */
        }
        if (is_over(comm, call->op, &patience)) {
            take_back(slot);
            snprintf(ret_reason, bytes,
                     "NCCLGUARD_CHECK=strict: not all ranks came to %s #%" PRIu64
                     " by its deadline",
                     ng_op_name(call->op), seq);
            return turn_down(comm, seq, NG_NCCL_SYSTEM_ERROR);
        }
    }
    int result = slot->result, other = slot->other;
    atomic_store(&slot->word, in_state(word, FREE));
    if (result == NG_CALL_PROCEED)
        return result;
    snprintf(ret_reason, bytes,
             "NCCLGUARD_CHECK=strict: group rank %d called something else as #%" PRIu64
             ", or has given it up, where this rank called %s: no rank has made it",
             other, seq, ng_op_name(call->op));
    return turn_down(comm, seq, result);
}

int ng_lockstep_agree(const struct ng_call *call, struct ng_comm *comm, uint64_t seq,
                      char *ret_reason, unsigned bytes)
{
    int result = agree(call, comm, seq, ret_reason, bytes);

    /* The program has aborted it meanwhile, on another thread: NCCL would use freed memory. */
    if (result != NG_CALL_PROCEED || !atomic_load(&comm->cut_off))
        return result;
    snprintf(ret_reason, bytes,
             "NCCLGUARD_CHECK=strict: the communicator was aborted before all ranks came to "
             "%s #%" PRIu64,
             ng_op_name(call->op), seq);
    return NG_NCCL_INTERNAL_ERROR;
}

/* ---- The incident thread ---- */

static void take_box(void *context, const struct ng_box *box)
{
    if (box_count < BOXES_MAX)
        boxes[box_count++] = box;
}

/* Take the slot from its calling thread. False: that has given up meanwhile. */
static bool seize(struct slot *slot, uint32_t word)
{
    return atomic_compare_exchange_strong(&slot->word, &word, in_state(word, BUSY));
}

static void answer(struct slot *slot, uint32_t word, int result, int other)
{
    if (!seize(slot, word))
        return;
    slot->result = result;
    slot->other = other;
    atomic_store(&slot->word, in_state(word, DONE));
    ng_futex_wake(&slot->word, 1);
}

static bool is_open(const struct ng_box_group *group)
{
    return ng_group_state_is_open(atomic_load_explicit(&group->state, memory_order_acquire));
}

/* Report it, by a verdict on the current state, before any rank takes its call back. */
static void raise_difference(uint64_t group_id, uint64_t seq, int rank, int other)
{
    struct ng_disagreement disagreement = {
        .group_id = group_id, .difference = {.after = seq - 1, .seq = seq}, .ranks = {rank, other}};

    ng_signature_compare_raise(&disagreement, NG_INCIDENT_SUSPECT);
}

/* Answer the call once a verdict has reported it. */
static void await_verdict(struct slot *slot, uint32_t word, int other)
{
    slot->other = other;
    slot->judged_mono_ns = ng_clock_mono_ns();
    atomic_store(&slot->word, in_state(word, JUDGED));
}

/* Ranks differ: have the verdict worked out while all of them are still present. */
static void judge(struct slot *slot, uint32_t word, int other)
{
    const struct ng_box_group *mine = ng_comm_at(slot->comm)->group;

    if (!seize(slot, word))
        return;
    raise_difference(NG_LOAD(mine->id), slot->seq, NG_LOAD(mine->group_rank), other);
    await_verdict(slot, word, other);
}

/* Another rank has given up the call that this one waits for: because their calls differ, and it
 * has received the verdict, which this rank may not have; or because its deadline has passed, and
 * then ours usually has, too. */
static void give_up_too(struct slot *slot, uint32_t word, int other, int64_t now_mono_ns)
{
    if (now_mono_ns >= slot->deadline_mono_ns)
        answer(slot, word, NG_NCCL_INVALID_USAGE, other);
    else if (seize(slot, word))
        await_verdict(slot, word, other);
}

/* Which ranks of a slot's group are on this host. */
struct here {
    uint32_t count;
    int lowest_rank;
    const struct ng_box_hash_log *lowest; /* of that rank */
    bool passed; /* one of them has made the collective without the check */
    struct ng_rendezvous_place lowest_place;
    struct ng_rendezvous_place others[NG_RENDEZVOUS_MAX]; /* as many as there is room for */
};

/* Record that no rank waits from this collective on. */
static void leave_unasked(struct ng_box_hash_log *hash_log, uint64_t seq)
{
    uint64_t before = NG_LOAD(hash_log->unasked);

    if (is_reached(before, seq))
        return;
    NG_STORE(hash_log->unasked, seq);
    atomic_store(&stirred, true);
}

/* Query the other hosts. False: they cannot be reached. */
static bool ask_hosts(struct ng_board *board, struct ng_box_hash_log *hash_log, uint64_t seq,
                      uint32_t count)
{
    bool changed = NG_LOAD(hash_log->here) != seq;

    NG_STORE(hash_log->here_count, count);
    atomic_store_explicit(&hash_log->here, seq, memory_order_release);
    bool lost = board->ops->agree(board, changed) != 0;
    if (lost && !told_of_loss)
        ng_log(
            NG_LOG_WARN,
            "NCCLGUARD_CHECK=strict: other hosts cannot be asked at the moment: ranks of each host "
            "agree alone");
    told_of_loss = lost;
    return !lost;
}

/* From the next call on, the ranks of this host meet without this thread. Its slot is ours. */
static void let_meet(const struct ng_comm *comm, const struct here *here, bool has_others)
{
    bool leads = here->lowest == comm->hash_log;

    if (!ng_check_strict_across() || here->count > NG_RENDEZVOUS_MAX)
        return;
    if (has_others && !leads)
        ng_rendezvous_open(comm, NG_RENDEZVOUS_FOLLOWS, &here->lowest_place, 1);
    else if (has_others || (int64_t)here->count == NG_LOAD(comm->group->nranks))
        ng_rendezvous_open(comm, has_others ? NG_RENDEZVOUS_LEADS : NG_RENDEZVOUS_WHOLE,
                           here->others, here->count - 1);
}

/* All ranks of this host have arrived with the same call, and the group has other hosts. Acts only
 * if the slot is still in state `word`: a call that was given up is not reported. */
static void look_abroad(struct ng_board *board, struct slot *slot, uint32_t word,
                        const struct here *here, int64_t now_mono_ns)
{
    if (!seize(slot, word))
        return;
    struct ng_box_hash_log *hash_log = ng_comm_at(slot->comm)->hash_log;
    uint64_t seq = slot->seq, refused = NG_LOAD(hash_log->refused);
    bool lowest = here->lowest == hash_log;
    if (!lowest)
        NG_STORE(hash_log->here_count, 0);
    else if (!ask_hosts(board, hash_log, seq, here->count))
        ng_hash_log_agree(hash_log, seq);
    let_meet(ng_comm_at(slot->comm), here, true);
    atomic_store(&slot->word, in_state(word, POSTED));
    if (NG_LOAD(here->lowest->agreed) >= seq)
        answer(slot, word, NG_CALL_PROCEED, -1);
    else if (lowest && atomic_load(&hash_log->given_up) > refused)
        give_up_too(slot, word, (int)NG_LOAD(hash_log->given_up_rank), now_mono_ns);
    else if (lowest && atomic_load(&hash_log->apart) == seq &&
             NG_LOAD(hash_log->apart_after) == refused)
        judge(slot, word, (int)NG_LOAD(hash_log->apart_rank));
}

/* All ranks of this host have arrived with the same call. Treats the slot as look_abroad does. */
static void all_came_here(struct ng_board *board, struct slot *slot, uint32_t word,
                          const struct here *here, int64_t now_mono_ns)
{
    const struct ng_comm *comm = ng_comm_at(slot->comm);
    struct ng_box_hash_log *hash_log = comm->hash_log;
    uint64_t seq = slot->seq;

    /* Still true after some ranks have ended their communicators. */
    if ((int64_t)here->count >= NG_LOAD(comm->group->nranks) && !NG_LOAD(hash_log->whole))
        NG_STORE(hash_log->whole, 1);
    bool has_others = board->ops->agree && ng_check_strict_across() && !NG_LOAD(hash_log->whole) &&
                      ng_comparable_is_clear(&ng_guard.box, comm->slot);
    if (has_others && !here->passed && !is_captured(hash_log, seq)) {
        look_abroad(board, slot, word, here, now_mono_ns);
        return;
    }
    if (!seize(slot, word))
        return;
    if (NG_LOAD(hash_log->whole))
        let_meet(comm, here, false);
    if (board->ops->agree) {
        if (here->passed) { /* no rank can be stopped any more, and others may end before they are
                               queried */
            atomic_store(&hash_log->passed, seq);
            ng_hash_log_wake(hash_log);
            atomic_store(&stirred, true);
        } else if (NG_LOAD(hash_log->here) >
                   NG_LOAD(hash_log->agreed)) { /* some ranks of this host were seen late */
            ng_hash_log_agree(hash_log, seq);
        }
    }
    atomic_store(&slot->word, in_state(word, POSTED));
    answer(slot, word, NG_CALL_PROCEED, -1);
}

static void look(struct ng_board *board, struct slot *slot, uint32_t word, int64_t now_mono_ns)
{
    const struct ng_comm *comm = ng_comm_at(slot->comm);
    const struct ng_box_group *mine = comm->group;
    uint64_t id = NG_LOAD(mine->id), refused = NG_LOAD(comm->hash_log->refused), seq = slot->seq;
    struct here here = {
        .count = 1, .lowest_rank = NG_LOAD(mine->group_rank), .lowest = comm->hash_log};
    struct ng_hash_log hash_log;
    bool missing = false, differ = false;

    ng_hash_log_copy(comm->hash_log, seq, seq, &hash_log);
    uint64_t hash = ng_hash_log_at(&hash_log, seq);
    for (uint32_t i = 0; i < box_count; i++) {
        uint32_t used = NG_LOAD(boxes[i]->header->group_used);
        for (uint32_t k = 0; k < used && k < boxes[i]->hash_log_capacity; k++) {
            const struct ng_box_group *group = &boxes[i]->groups[k];
            const struct ng_box_hash_log *theirs = &boxes[i]->hash_logs[k];
            if (group == mine || NG_LOAD(group->id) != id || !is_open(group))
                continue;
            uint64_t given_up = NG_LOAD(theirs->refused);
            uint64_t entered = atomic_load_explicit(&group->entered, memory_order_acquire);
            int rank = NG_LOAD(group->group_rank);
            if (here.count <= NG_RENDEZVOUS_MAX)
                here.others[here.count - 1] = (struct ng_rendezvous_place){boxes[i], k};
            here.count++;
            if (rank < here.lowest_rank) {
                here.lowest_rank = rank;
                here.lowest = theirs;
                here.lowest_place = (struct ng_rendezvous_place){boxes[i], k};
            }
            if (given_up > refused) {
                give_up_too(slot, word, rank, now_mono_ns);
                return;
            }
            if (is_captured(theirs, seq)) {
                leave_unasked(comm->hash_log, seq);
                answer(slot, word, NG_CALL_PROCEED, -1);
                return;
            }
            here.passed |= atomic_load(&theirs->passed) >= seq;
            ng_hash_log_copy(theirs, seq, seq, &hash_log);
            uint64_t other = ng_hash_log_at(&hash_log, seq);
            if (given_up < refused || entered < seq) {
                missing = true;
            } else if (other && other != hash) { /* 0: so far ahead that the hash is gone */
                differ = true;
                if (!slot->differ_mono_ns)
                    slot->differ_mono_ns = now_mono_ns;
                if (now_mono_ns - slot->differ_mono_ns < CERTAIN_NS)
                    continue;
                judge(slot, word, rank);
                return;
            }
        }
    }
    if (!differ)
        slot->differ_mono_ns = 0;
    if (missing || differ)
        return;
    all_came_here(board, slot, word, &here, now_mono_ns);
}

bool ng_lockstep_check(struct ng_board *board, int64_t now_mono_ns)
{
    bool waiting = false;

    box_count = 0;
    ng_rendezvous_drop_ended();
    for (unsigned i = 0; board && i < SLOTS; i++) {
        struct slot *slot = &slots[i];
        uint32_t word = atomic_load(&slot->word), state = word & STATE;
        if (state == JUDGED &&
            (ng_signature_compare_is_reported(NG_LOAD(ng_comm_at(slot->comm)->group->id)) ||
             now_mono_ns - slot->judged_mono_ns >= VERDICT_NS))
            answer(slot, word, NG_NCCL_INVALID_USAGE, slot->other);
        waiting |= state == JUDGED;
        if (state != POSTED)
            continue;
        if (!box_count) {
            boxes[box_count++] = &ng_guard.box;
            if (board->ops->each)
                board->ops->each(board, take_box, NULL);
        }
        look(board, slot, word, now_mono_ns);
        state = atomic_load(&slot->word) & STATE;
        waiting |= state == POSTED || state == JUDGED;
    }
    box_count = 0;
    if (board && board->ops->agree && atomic_exchange(&stirred, false))
        board->ops->agree(board, true);
    return waiting;
}

void ng_lockstep_after_fork(void)
{
    ng_rendezvous_after_fork();
    memset(slots, 0, sizeof(slots));
    atomic_store(&stirred, false);
    told_of_loss = false;
}
