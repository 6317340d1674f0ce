/*
 * Agreeing before each launch.
 *
 * Step 2. What a rank called is in its trail before it asks (core/trail.h), so nothing needs to be
 * sent: the calling thread puts what it waits for into a slot and sleeps; the incident thread, which
 * alone may look at the neighbours' black boxes, looks every millisecond while somebody waits.
 *
 * A call that is turned down did not happen, on any rank: its number comes again. So that nobody
 * takes what was turned down for what comes again, each rank counts what it has turned down, and only
 * ranks with equal counts are compared. Who counts more has given up what the others still wait for.
 */
#include "core/strict.h"

#include <inttypes.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/agreement.h"
#include "core/board.h"
#include "core/call.h"
#include "core/clock.h"
#include "core/comm.h"
#include "core/deadline.h"
#include "core/guard.h"
#include "core/incident.h"
#include "core/trail.h"

#define SLOTS     64u
#define SLICE_NS  (50 * NG_MS)
#define BOXES_MAX 256u
#define VERDICT_NS (2 * NG_S) /* the job may end with the call's error: the verdict comes first */
#define CERTAIN_NS (20 * NG_MS) /* a call that goes into a CUDA graph says so when it has entered already */

/* States of a slot: the lower bits of a futex word. The others count who takes it, so that nobody gets the answer
 * to the question of one who has given up. */
#define STATE 7u
enum {
    FREE,
    FILLING, /* the calling thread's */
    POSTED,  /* the incident thread's */
    BUSY,    /* likewise, and for a moment: it writes */
    JUDGED,  /* likewise; they differ, and the verdict is being worked out */
    DONE,    /* the calling thread's again */
};

struct slot {
    _Atomic uint32_t word;
    uint32_t comm; /* index */
    uint64_t seq;
    int result;
    int other; /* group rank that differs, or gave up; -1 none */
    int64_t judged_mono_ns; /* the incident thread's own */
    int64_t differ_mono_ns; /* likewise: since when; 0 they do not */
};

static struct slot slots[SLOTS];

/* The incident thread's own. */
static const struct ng_box *boxes[BOXES_MAX];
static uint32_t box_count;

/* A capture may be thrown away, on one rank alone: from the first call in a graph on nobody waits. */
static bool is_captured(const struct ng_box_trail *trail, uint64_t seq)
{
    uint64_t captured = NG_LOAD(trail->captured);

    return captured && captured <= seq;
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

/* The same taking, in another state. */
static uint32_t in_state(uint32_t word, uint32_t state)
{
    return (word & ~STATE) | state;
}

/* Back from the incident thread, whatever it is at. */
static void take_back(struct slot *slot)
{
    for (;;) {
        uint32_t word = atomic_load(&slot->word);
        if ((word & STATE) != BUSY && atomic_compare_exchange_strong(&slot->word, &word, in_state(word, FREE)))
            return;
    }
}

static void sleep_on(_Atomic uint32_t *word, uint32_t value)
{
    struct timespec pause = {.tv_nsec = SLICE_NS};

    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &pause, NULL, 0);
}

static int turn_down(struct ng_comm *comm, int result)
{
    NG_STORE(comm->trail->refused, NG_LOAD(comm->trail->refused) + 1);
    return result;
}

/* A capture waits for nobody. */
static bool goes_into_graph(const struct ng_call *call)
{
    const struct ng_cuda *cuda = ng_guard_cuda();
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    return cuda && cuda->stream_is_capturing(call->stream, &status) == CUDA_SUCCESS &&
           status != CU_STREAM_CAPTURE_STATUS_NONE;
}

int ng_strict_agree(const struct ng_call *call, struct ng_comm *comm, uint64_t seq,
                    char *ret_reason, unsigned bytes)
{
    int64_t timeout_ns = ng_deadline_timeout(comm, call->op), begun = ng_clock_mono_ns();
    uint32_t word;

    if (goes_into_graph(call))
        ng_trail_capture(comm->trail, seq);
    if (is_captured(comm->trail, seq))
        return NG_CALL_PROCEED;
    struct slot *slot = ng_guard.board ? take_slot() : NULL;
    if (!slot)
        return NG_CALL_PROCEED;
    word = atomic_load(&slot->word);
    slot->comm = comm->slot;
    slot->seq = seq;
    slot->other = -1;
    slot->result = NG_CALL_PROCEED;
    slot->differ_mono_ns = 0;
    atomic_store(&slot->word, in_state(word, POSTED));
    ng_incident_wake();
    while (((word = atomic_load(&slot->word)) & STATE) != DONE) {
        sleep_on(&slot->word, word);
        if (atomic_load(&ng_guard.ending) || !atomic_load(&ng_guard.running) ||
            ng_comm_is_condemned(comm)) {
            take_back(slot);
            return NG_CALL_PROCEED; /* and from there to what such a call returns */
        }
        if (timeout_ns && ng_clock_mono_ns() - begun >= timeout_ns + NG_S) {
            take_back(slot);
            snprintf(ret_reason, bytes, "NCCLGUARD_CHECK=strict: not all ranks came to %s #%" PRIu64
                                        " by its deadline", ng_op_name(call->op), seq);
            return turn_down(comm, NG_NCCL_SYSTEM_ERROR);
        }
    }
    int result = slot->result, other = slot->other;
    atomic_store(&slot->word, in_state(word, FREE));
    if (result == NG_CALL_PROCEED)
        return result;
    snprintf(ret_reason, bytes,
             "NCCLGUARD_CHECK=strict: group rank %d called something else as #%" PRIu64
             ", or has given it up, where this rank called %s: no rank has made it", other, seq,
             ng_op_name(call->op));
    return turn_down(comm, result);
}

/* ---- The incident thread ---- */

static void take_box(void *context, const struct ng_box *box)
{
    (void)context;
    if (box_count < BOXES_MAX)
        boxes[box_count++] = box;
}

/* False: the calling thread has given up meanwhile. */
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
    syscall(SYS_futex, &slot->word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool is_open(const struct ng_box_group *group)
{
    uint32_t state = atomic_load_explicit(&group->state, memory_order_acquire);

    return state == NG_GROUP_CREATING || state == NG_GROUP_READY;
}

/* Tell of it, by a verdict on what is there now, before anybody takes it back. */
static void raise(uint64_t group_id, uint64_t seq, int rank, int other)
{
    struct ng_disagreement disagreement = {.group_id = group_id,
                                           .difference = {.after = seq - 1, .seq = seq},
                                           .ranks = {rank, other}};

    ng_agreement_raise(&disagreement, NG_INCIDENT_SUSPECT);
}

static void look(struct slot *slot, uint32_t word, int64_t now_mono_ns)
{
    const struct ng_comm *comm = ng_comm_at(slot->comm);
    const struct ng_box_group *mine = comm->group;
    uint64_t id = NG_LOAD(mine->id), refused = NG_LOAD(comm->trail->refused), seq = slot->seq;
    struct ng_trail trail;
    bool missing = false, differ = false;

    ng_trail_copy(comm->trail, seq, seq, &trail);
    uint64_t hash = ng_trail_at(&trail, seq);
    for (uint32_t i = 0; i < box_count; i++) {
        uint32_t used = NG_LOAD(boxes[i]->header->group_used);
        for (uint32_t k = 0; k < used && k < boxes[i]->trail_capacity; k++) {
            const struct ng_box_group *group = &boxes[i]->groups[k];
            if (group == mine || NG_LOAD(group->id) != id || !is_open(group))
                continue;
            uint64_t given_up = NG_LOAD(boxes[i]->trails[k].refused);
            uint64_t entered = atomic_load_explicit(&group->entered, memory_order_acquire);
            if (given_up > refused) {
                answer(slot, word, NG_NCCL_INVALID_USAGE, NG_LOAD(group->group_rank));
                return;
            }
            if (is_captured(&boxes[i]->trails[k], seq)) {
                answer(slot, word, NG_CALL_PROCEED, -1);
                return;
            }
            ng_trail_copy(&boxes[i]->trails[k], seq, seq, &trail);
            uint64_t other = ng_trail_at(&trail, seq);
            if (given_up < refused || entered < seq || !other) {
                missing = true;
            } else if (other != hash) {
                differ = true;
                if (!slot->differ_mono_ns)
                    slot->differ_mono_ns = now_mono_ns;
                if (now_mono_ns - slot->differ_mono_ns < CERTAIN_NS)
                    continue;
                if (!seize(slot, word))
                    return;
                slot->other = NG_LOAD(group->group_rank);
                raise(id, seq, NG_LOAD(mine->group_rank), slot->other);
                slot->judged_mono_ns = ng_clock_mono_ns();
                atomic_store(&slot->word, in_state(word, JUDGED));
                return;
            }
        }
    }
    if (!differ)
        slot->differ_mono_ns = 0;
    if (!missing && !differ)
        answer(slot, word, NG_CALL_PROCEED, -1);
}

bool ng_strict_tend(struct ng_board *board, int64_t now_mono_ns)
{
    bool waiting = false;

    box_count = 0;
    for (unsigned i = 0; board && i < SLOTS; i++) {
        struct slot *slot = &slots[i];
        uint32_t word = atomic_load(&slot->word), state = word & STATE;
        if (state == JUDGED && (ng_agreement_is_told(NG_LOAD(ng_comm_at(slot->comm)->group->id)) ||
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
        look(slot, word, now_mono_ns);
        state = atomic_load(&slot->word) & STATE;
        waiting |= state == POSTED || state == JUDGED;
    }
    box_count = 0;
    return waiting;
}

void ng_strict_after_fork(void)
{
    memset(slots, 0, sizeof(slots));
}
