/*
 * Requests of program threads, and their handling by the incident thread.
 *
 * Not part of the life of a call. A request occupies one of a few slots, so that neither side ever
 * holds memory of the other: the requesting thread fills the slot and sleeps; the incident thread
 * works on it in short steps, so that its other duties are not delayed; the side that gives up
 * first marks the slot, and the other side frees it. Must never allocate, nor make the requesting
 * thread wait beyond its deadline and the grace.
 *
 * The monitored barrier uses board entries under one prefix per barrier call. Each rank puts
 * "<rank>", and rank 0 checks which are there. The outcome is put once under "o" by the first of:
 * rank 0, when all have arrived; or, after a rank's deadline has passed, the rank that has put "j".
 * So all ranks that arrive get the same answer.
 */
#include "core/incident/program_requests.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/comm/comm.h"
#include "core/incident/dumps.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/view/view.h"

#define SLOTS           32u
#define PAUSE_MIN_NS    (5 * NG_MS) /* between two steps; later an eighth of the time so far */
#define PAUSE_MAX_NS    (500 * NG_MS)
#define BARRIER_KEEP_NS (60 * NG_S) /* beyond its deadline */
#define JUDGE_NS        NG_S /* time for the rank with "j" to find out which ranks are missing */
#define BATCHES_A_STEP  8
#define PREFIX_BYTES    48
#define OUTCOME_RANKS   (NG_BOARD_VALUE_MAX / sizeof(int32_t) - 1)

enum kind { PUT, GET, MEET, BARRIER, DUMP, QUITTERS };

/* States of a slot: a futex word. */
enum {
    FREE,
    FILLING,  /* owned by the requesting thread */
    POSTED,   /* owned by the incident thread */
    GIVEN_UP, /* owned by the incident thread; the requester has stopped waiting */
    DONE,     /* owned by the requesting thread again */
};

struct outcome {
    uint32_t missing; /* number of missing ranks; 0: all have arrived */
    int32_t ranks[OUTCOME_RANKS];
};

struct barrier {
    uint64_t group_id, ordinal;
    uint32_t rank, nranks;
    uint32_t there; /* rank 0: ranks 0 to there - 1 have arrived */
    bool arrived, asked_to_judge;
};

struct slot {
    _Atomic uint32_t state;
    enum kind kind;
    int result;
    int64_t asked_ns, deadline_ns, next_ns;
    bool store_silent; /* the store was unreachable in the last step */
    char key[NG_BOARD_KEY_MAX + 1];
    int64_t keep_ns;       /* lifetime of the entry; 0 as long as the process */
    uint32_t first, count; /* of MEET: numbers not seen yet */
    struct barrier barrier;
    size_t bytes;
    union {
        char data[NG_BOARD_VALUE_MAX]; /* or the folder of a dump */
        struct outcome outcome;
    };
};

static struct slot slots[SLOTS] NG_LARGE;
static atomic_bool closed;

/* ---- The requesting thread ---- */

/* Take a free slot; NULL, and -errno in *ret_error. */
static struct slot *take_slot(enum kind kind, int64_t deadline_ns, int *ret_error)
{
    *ret_error = -ESHUTDOWN;
    if (atomic_load(&ng_guard.ending) || atomic_load(&closed))
        return NULL;
    *ret_error = -EBUSY;
    for (unsigned i = 0; i < SLOTS; i++) {
        uint32_t state = FREE;
        if (!atomic_compare_exchange_strong(&slots[i].state, &state, FILLING))
            continue;
        slots[i].kind = kind;
        slots[i].asked_ns = ng_clock_mono_ns();
        slots[i].deadline_ns = deadline_ns;
        slots[i].next_ns = 0;
        slots[i].store_silent = false;
        slots[i].bytes = 0;
        return &slots[i];
    }
    return NULL;
}

static void free_slot(struct slot *slot)
{
    atomic_store_explicit(&slot->state, FREE, memory_order_release);
}

/* True: `result` is the outcome, and the caller must free the slot. False: the request was given
 * up. */
static bool await(struct slot *slot)
{
    int64_t until = slot->deadline_ns + NG_PROGRAM_REQUEST_GRACE_NS;
    uint32_t state = POSTED;

    atomic_store(&slot->state, POSTED);
    ng_wake_incident();
    while (atomic_load(&slot->state) == POSTED && !atomic_load(&closed) &&
           ng_clock_mono_ns() < until)
        ng_futex_wait_until(&slot->state, POSTED, until);
    return !atomic_compare_exchange_strong(&slot->state, &state, GIVEN_UP);
}

/* The result of a request of which nothing else is needed. */
static int collect(struct slot *slot)
{
    if (!await(slot))
        return -ETIMEDOUT;
    int result = slot->result;
    free_slot(slot);
    return result;
}

int ng_program_request_put(const char *key, const void *data, size_t bytes,
                           int64_t deadline_mono_ns)
{
    return ng_program_request_put_for(key, data, bytes, 0, deadline_mono_ns);
}

int ng_program_request_put_for(const char *key, const void *data, size_t bytes, int64_t keep_ns,
                               int64_t deadline_mono_ns)
{
    int result = -ETIMEDOUT;

    if (strnlen(key, NG_BOARD_KEY_MAX + 1) > NG_BOARD_KEY_MAX || bytes > NG_BOARD_VALUE_MAX)
        return -EMSGSIZE;
    if (!key[0])
        return -EINVAL;
    struct slot *slot = take_slot(PUT, deadline_mono_ns, &result);
    if (!slot)
        return result;
    strcpy(slot->key, key);
    if (bytes)
        memcpy(slot->data, data, bytes);
    slot->bytes = bytes;
    slot->keep_ns = keep_ns;
    return collect(slot);
}

int ng_program_request_meet(const char *prefix, uint32_t first, uint32_t count,
                            int64_t deadline_mono_ns)
{
    int result;

    /* Leave room for a number after it. */
    if (strnlen(prefix, NG_BOARD_KEY_MAX + 1) > NG_BOARD_KEY_MAX - 10)
        return -EMSGSIZE;
    struct slot *slot = take_slot(MEET, deadline_mono_ns, &result);
    if (!slot)
        return result;
    strcpy(slot->key, prefix);
    slot->first = first;
    slot->count = count;
    return collect(slot);
}

int ng_program_request_get(const char *key, void *ret_data, size_t room, size_t *ret_bytes,
                           int64_t deadline_mono_ns)
{
    int result;

    if (strnlen(key, NG_BOARD_KEY_MAX + 1) > NG_BOARD_KEY_MAX)
        return -EMSGSIZE;
    if (!key[0])
        return -EINVAL;
    struct slot *slot = take_slot(GET, deadline_mono_ns, &result);
    if (!slot)
        return result;
    strcpy(slot->key, key);
    if (!await(slot))
        return -ETIMEDOUT;
    result = slot->result;
    if (!result) {
        *ret_bytes = slot->bytes;
        if (slot->bytes > room)
            result = -EMSGSIZE;
        else if (slot->bytes)
            memcpy(ret_data, slot->data, slot->bytes);
    }
    free_slot(slot);
    return result;
}

int ng_program_request_barrier(struct ng_comm *comm, int64_t deadline_mono_ns, int *ranks,
                               uint32_t room, uint32_t *ret_missing)
{
    int nranks = atomic_load(&comm->group->nranks), rank = atomic_load(&comm->group->group_rank);
    int result;

    *ret_missing = 0;
    if (nranks <= 0 || rank < 0 || rank >= nranks)
        return -EINVAL;
    struct slot *slot = take_slot(BARRIER, deadline_mono_ns, &result);
    if (!slot)
        return result;
    slot->barrier = (struct barrier){.group_id = atomic_load(&comm->group->id),
                                     .ordinal = 1 + atomic_fetch_add(&comm->barriers, 1),
                                     .rank = (uint32_t)rank,
                                     .nranks = (uint32_t)nranks};
    if (!await(slot))
        return -ETIMEDOUT;
    result = slot->result;
    if (result == -ETIMEDOUT) {
        *ret_missing = slot->outcome.missing;
        for (uint32_t i = 0; i < room && i < slot->outcome.missing && i < OUTCOME_RANKS; i++)
            ranks[i] = slot->outcome.ranks[i];
    }
    free_slot(slot);
    return result;
}

int ng_program_request_dump(const char *folder, int64_t deadline_mono_ns)
{
    int result;

    if (strlen(folder) >= sizeof(slots[0].data))
        return -ENAMETOOLONG;
    struct slot *slot = take_slot(DUMP, deadline_mono_ns, &result);
    if (!slot)
        return result;
    strcpy(slot->data, folder);
    return collect(slot);
}

int ng_program_request_quitters(uint64_t group_id, int64_t deadline_mono_ns, bool *ret_any)
{
    int result;

    struct slot *slot = take_slot(QUITTERS, deadline_mono_ns, &result);
    if (!slot)
        return result;
    slot->barrier.group_id = group_id;
    if (!await(slot))
        return -ETIMEDOUT;
    result = slot->result;
    *ret_any = slot->outcome.missing != 0;
    free_slot(slot);
    return result;
}

/* ---- The incident thread: entries ---- */

/* As the program has it: shim/annotate.c puts "u." before it. */
static const char *key_of_program(const struct slot *slot)
{
    return strncmp(slot->key, "u.", 2) == 0 ? slot->key + 2 : slot->key;
}

/* A value was not given to the program; the words that came with it are in the slot. */
static void tell_words(struct slot *slot)
{
    char differ[400];

    slot->data[slot->bytes < sizeof(slot->data) ? slot->bytes : sizeof(slot->data) - 1] = '\0';
    ng_launch_compare_words(ng_guard.launch.words, slot->data, differ, sizeof(differ));
    ng_log(
        NG_LOG_WARN,
        "key %s: there is a value, but nothing tells whether it is of this run of job %s: "
        "where it was put the launcher's words are others (%s); set them alike for all ranks, or "
        "exchange values once the ranks have a communicator in common",
        key_of_program(slot), ng_guard.launch.job,
        differ[0] ? differ : "MASTER_ADDR is a local address");
}

/* What a board error means for a request that continues until its deadline: -EAGAIN, or the final
 * result. `missing` is no failure before the deadline. */
static int go_on(struct slot *slot, int error, int64_t now)
{
    if (error != -EIO && error != -ENOENT && error != -EAGAIN && error != -ENOTUNIQ &&
        error != -EXDEV)
        return error;
    slot->store_silent = error == -EIO;
    if (now < slot->deadline_ns)
        return -EAGAIN;
    if (error == -ENOTUNIQ)
        ng_log(NG_LOG_WARN,
               "key %s: several runs of job %s are active, and nothing tells whose value this is: "
               "set NCCLGUARD_JOB to a name of its own for each",
               key_of_program(slot), ng_guard.launch.job);
    if (error == -EXDEV) {
        tell_words(slot);
        return -ENOTUNIQ;
    }
    return error == -EIO || error == -ENOTUNIQ ? error : -ETIMEDOUT;
}

static int step_put(struct slot *slot, struct ng_board *board, int64_t now)
{
    struct ng_board_entry entry = {.key = slot->key,
                                   .data = slot->data,
                                   .bytes = slot->bytes,
                                   .keep_ns = slot->keep_ns,
                                   .words = ng_guard.launch.words};

    return go_on(slot, board->ops->put(board, &entry), now);
}

static int step_get(struct slot *slot, struct ng_board *board, int64_t now)
{
    return go_on(slot, board->ops->fetch(board, slot->key, slot->data, &slot->bytes), now);
}

/* ---- The incident thread: ranks that have left ---- */

/* How many ranks of the group on this host have aborted their communicator, or ended without
 * destroying it: NCCL waits for no others. */
static uint32_t count_quitters(const struct ng_view *view, uint64_t group_id)
{
    uint32_t group = ng_view_find_group(view, group_id), count = 0, found = 0;
    const struct ng_view_member *members =
        group != UINT32_MAX ? ng_view_members(view, group, &count) : NULL;
    const struct ng_view_process *self =
        NG_FIND(process, view->processes, view->process_count, process->self);

    for (uint32_t i = 0; members && i < count; i++) {
        const struct ng_view_process *process = &view->processes[members[i].process];
        if (!self || strcmp(process->host, self->host) == 0)
            found += members[i].state == NG_GROUP_ABORTED ||
                     (members[i].state != NG_GROUP_DESTROYED && ng_life_is_gone(process->life));
    }
    return found;
}

static int step_quitters(struct slot *slot, struct ng_board *board)
{
    struct ng_view view;

    ng_view_init(&view);
    int error = board->ops->view(board, &view);
    slot->outcome.missing = error ? 0 : count_quitters(&view, slot->barrier.group_id);
    ng_view_fini(&view);
    return error;
}

/* ---- The incident thread: the barrier ---- */

static void barrier_prefix(const struct barrier *barrier, uint64_t ordinal,
                           char ret_prefix[PREFIX_BYTES])
{
    snprintf(ret_prefix, PREFIX_BYTES, "b.%016" PRIx64 ".%" PRIx64 ".", barrier->group_id, ordinal);
}

static void barrier_key(const struct barrier *barrier, uint64_t ordinal, const char *what,
                        char ret_key[NG_BOARD_KEY_MAX + 1])
{
    char prefix[PREFIX_BYTES];

    barrier_prefix(barrier, ordinal, prefix);
    snprintf(ret_key, NG_BOARD_KEY_MAX + 1, "%s%s", prefix, what);
}

static int put_of_barrier(const struct slot *slot, struct ng_board *board, const char *what,
                          const void *data, size_t bytes, int64_t now)
{
    char key[NG_BOARD_KEY_MAX + 1];
    int64_t left = slot->deadline_ns > now ? slot->deadline_ns - now : 0;
    struct ng_board_entry entry = {
        .key = key, .data = data, .bytes = bytes, .keep_ns = left + BARRIER_KEEP_NS};

    barrier_key(&slot->barrier, slot->barrier.ordinal, what, key);
    return board->ops->put(board, &entry);
}

/* Put this rank's arrival, and remove its entry of the previous barrier, which all ranks have
 * passed. */
static int arrive(struct slot *slot, struct ng_board *board, int64_t now)
{
    struct barrier *barrier = &slot->barrier;
    char rank[16], key[NG_BOARD_KEY_MAX + 1];

    snprintf(rank, sizeof(rank), "%" PRIu32, barrier->rank);
    int error = put_of_barrier(slot, board, rank, "", 0, now);
    if (error)
        return error;
    barrier->arrived = true;
    barrier_key(barrier, barrier->ordinal - 1, rank, key);
    board->ops->forget(board, key);
    return 0;
}

static int end_barrier(const struct slot *slot, struct ng_board *board)
{
    const struct barrier *barrier = &slot->barrier;
    char key[NG_BOARD_KEY_MAX + 1];

    if (slot->bytes < sizeof(slot->outcome.missing))
        return -EPROTO;
    if (slot->outcome.missing)
        return -ETIMEDOUT;
    /* All ranks have reached this barrier, so no rank needs the outcome of the previous one. */
    if (barrier->rank == 0) {
        barrier_key(barrier, barrier->ordinal - 1, "o", key);
        board->ops->forget(board, key);
        barrier_key(barrier, barrier->ordinal - 1, "j", key);
        board->ops->forget(board, key);
    }
    return 0;
}

/* Fetch the outcome if there is one: 0, and it is in the slot; -ENOENT, -EIO. */
static int fetch_outcome(struct slot *slot, struct ng_board *board)
{
    char key[NG_BOARD_KEY_MAX + 1];

    barrier_key(&slot->barrier, slot->barrier.ordinal, "o", key);
    return board->ops->fetch(board, key, slot->data, &slot->bytes);
}

/* Put the outcome, unless another rank has put one: that one counts then. */
static int put_outcome(struct slot *slot, struct ng_board *board, int64_t now)
{
    uint32_t told =
        slot->outcome.missing < OUTCOME_RANKS ? slot->outcome.missing : (uint32_t)OUTCOME_RANKS;

    slot->bytes = sizeof(slot->outcome.missing) + told * sizeof(slot->outcome.ranks[0]);
    int error = put_of_barrier(slot, board, "o", &slot->outcome, slot->bytes, now);
    return error == -EEXIST ? fetch_outcome(slot, board) : error;
}

/* Advance *first past the entries that exist, and reduce *count accordingly. 0: all exist; -EAGAIN:
 * not yet; or -errno. */
static int pass_there(struct ng_board *board, const char *prefix, uint32_t *first, uint32_t *count)
{
    for (int i = 0; i < BATCHES_A_STEP && *count; i++) {
        uint32_t batch = *count < NG_BOARD_HAVE_MAX ? *count : NG_BOARD_HAVE_MAX;
        uint64_t there;
        int error = board->ops->have(board, prefix, *first, batch, &there);
        if (error)
            return error;
        uint32_t reached = ~there ? (uint32_t)__builtin_ctzll(~there) : 64;
        reached = NG_MIN(reached, batch);
        *first += reached;
        *count -= reached;
        if (reached < batch)
            return -EAGAIN;
    }
    return *count ? -EAGAIN : 0;
}

static int step_meet(struct slot *slot, struct ng_board *board, int64_t now)
{
    return go_on(slot, pass_there(board, slot->key, &slot->first, &slot->count), now);
}

/* Rank 0: have all ranks arrived? 0, -EAGAIN not yet, or -errno. */
static int count_there(struct slot *slot, struct ng_board *board)
{
    struct barrier *barrier = &slot->barrier;
    uint32_t left = barrier->nranks - barrier->there;
    char prefix[PREFIX_BYTES];

    barrier_prefix(barrier, barrier->ordinal, prefix);
    return pass_there(board, prefix, &barrier->there, &left);
}

/* The global rank of a rank in the group; the latter itself if the former is not known. */
static int global_rank(const struct ng_view *view, uint32_t group, int rank)
{
    const struct ng_view_member *member =
        group != UINT32_MAX ? ng_view_member(view, group, rank) : NULL;
    int known = member ? ng_view_rank(view, member) : -1;

    return known >= 0 ? known : rank;
}

static void tell_missing(const struct slot *slot)
{
    const struct outcome *outcome = &slot->outcome;
    char ranks[120];
    size_t used = 0;

    for (uint32_t i = 0; i < outcome->missing && i < OUTCOME_RANKS && used + 20 < sizeof(ranks);
         i++)
        used += (size_t)snprintf(ranks + used, sizeof(ranks) - used, "%s%d", i ? "," : "",
                                 outcome->ranks[i]);
    /* Only informative: the program gets the result and decides what it means. */
    ng_log(NG_LOG_INFO,
           "barrier #%" PRIu64 " of group %016" PRIx64 ": %" PRIu32 " of %" PRIu32
           " ranks did not come within %.1f s: %s%s",
           slot->barrier.ordinal, slot->barrier.group_id, outcome->missing, slot->barrier.nranks,
           (double)(slot->deadline_ns - slot->asked_ns) / 1e9, ranks,
           used + 20 < sizeof(ranks) ? "" : ",…");
}

/* Store the missing ranks, as global ranks, in the slot. */
static int find_missing(struct slot *slot, struct ng_board *board)
{
    const struct barrier *barrier = &slot->barrier;
    struct outcome *outcome = &slot->outcome;
    char prefix[PREFIX_BYTES];
    struct ng_view view;

    outcome->missing = 0;
    barrier_prefix(barrier, barrier->ordinal, prefix);
    for (uint32_t first = 0; first < barrier->nranks; first += NG_BOARD_HAVE_MAX) {
        uint32_t count = barrier->nranks - first;
        uint64_t there;
        count = NG_MIN(count, NG_BOARD_HAVE_MAX);
        int error = board->ops->have(board, prefix, first, count, &there);
        if (error)
            return error;
        for (uint32_t i = 0; i < count; i++) {
            if (there >> i & 1)
                continue;
            if (outcome->missing < OUTCOME_RANKS)
                outcome->ranks[outcome->missing] = (int32_t)(first + i);
            outcome->missing++;
        }
        ng_guard_beat();
    }
    if (!outcome->missing)
        return 0;
    ng_view_init(&view);
    if (board->ops->view(board, &view) == 0) {
        uint32_t group = ng_view_find_group(&view, barrier->group_id);
        for (uint32_t i = 0; i < outcome->missing && i < OUTCOME_RANKS; i++)
            outcome->ranks[i] = global_rank(&view, group, outcome->ranks[i]);
    }
    ng_view_fini(&view);
    return 0;
}

/* The deadline has passed: one of the waiting ranks finds out which ranks are missing. */
static int judge_barrier(struct slot *slot, struct ng_board *board, int64_t now)
{
    struct barrier *barrier = &slot->barrier;

    int error = barrier->asked_to_judge ? -EEXIST : put_of_barrier(slot, board, "j", "", 0, now);
    if (error == -EEXIST) {
        barrier->asked_to_judge = true;
        if (now < slot->deadline_ns + JUDGE_NS)
            return -EAGAIN;
        slot->outcome.missing = 0; /* the outcome is not known */
        return -ETIMEDOUT;
    }
    error = error ?: find_missing(slot, board) ?: put_outcome(slot, board, now);
    if (error)
        return error;
    int result = end_barrier(slot, board);
    if (result == -ETIMEDOUT)
        tell_missing(slot);
    return result;
}

static int step_barrier(struct slot *slot, struct ng_board *board, int64_t now)
{
    struct barrier *barrier = &slot->barrier;

    int error = (barrier->arrived ? 0 : arrive(slot, board, now)) ?: fetch_outcome(slot, board);
    if (!error)
        return end_barrier(slot, board);
    if (error == -ENOENT && barrier->rank == 0) {
        error = count_there(slot, board);
        if (!error) {
            slot->outcome.missing = 0;
            error = put_outcome(slot, board, now);
            if (!error)
                return end_barrier(slot, board);
        }
    }
    if (now >= slot->deadline_ns && (error == -ENOENT || error == -EAGAIN))
        error = judge_barrier(slot, board, now);
    if (error == -EAGAIN)
        return -EAGAIN;
    slot->outcome.missing = error == -ETIMEDOUT ? slot->outcome.missing : 0;
    return go_on(slot, error, now);
}

/* ---- The incident thread ---- */

static int step(struct slot *slot, int64_t now)
{
    struct ng_board *board = ng_guard.board;

    if (slot->kind == DUMP)
        return ng_dumps_write(slot->data);
    if (!board)
        return -EOPNOTSUPP;
    switch (slot->kind) {
    case PUT:
        return step_put(slot, board, now);
    case GET:
        return step_get(slot, board, now);
    case MEET:
        return step_meet(slot, board, now);
    case QUITTERS:
        return step_quitters(slot, board);
    default:
        return step_barrier(slot, board, now);
    }
}

static void finish(struct slot *slot, int result)
{
    uint32_t state = POSTED;

    slot->result = result;
    if (atomic_compare_exchange_strong(&slot->state, &state, DONE))
        ng_futex_wake(&slot->state, 1);
    else
        free_slot(slot); /* the requester has stopped waiting */
}

int ng_program_request_serve(bool news)
{
    int64_t next_ns = INT64_MAX;

    NG_EACH (slot, slots, SLOTS) {
        uint32_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
        int64_t now = ng_clock_mono_ns();
        if (state == GIVEN_UP)
            free_slot(slot);
        if (state != POSTED)
            continue;
        if (news || now >= slot->next_ns) {
            int result = step(slot, now);
            if (result != -EAGAIN) {
                finish(slot, result);
                continue;
            }
            int64_t pause = (now - slot->asked_ns) / 8;
            pause = pause < PAUSE_MIN_NS ? PAUSE_MIN_NS : pause;
            slot->next_ns = now + (pause > PAUSE_MAX_NS ? PAUSE_MAX_NS : pause);
            /* Do not sleep past the deadline. */
            if (slot->next_ns > slot->deadline_ns && now < slot->deadline_ns)
                slot->next_ns = slot->deadline_ns;
        }
        next_ns = NG_MIN(next_ns, slot->next_ns);
    }
    if (next_ns == INT64_MAX)
        return -1;
    int64_t left_ms = (next_ns - ng_clock_mono_ns() + NG_MS - 1) / NG_MS;
    return left_ms > 0 ? (int)left_ms : 0;
}

void ng_program_request_close(void)
{
    atomic_store(&closed, true);
    for (unsigned i = 0; i < SLOTS; i++)
        if (atomic_load_explicit(&slots[i].state, memory_order_acquire) == POSTED)
            finish(&slots[i], -ESHUTDOWN);
}

void ng_program_request_after_fork(void)
{
    atomic_store(&closed, false);
    for (unsigned i = 0; i < SLOTS; i++)
        atomic_store(&slots[i].state, FREE);
}
