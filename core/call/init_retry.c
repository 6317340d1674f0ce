/*
 * Attempts to create a communicator, and the agreement of all ranks on each.
 *
 * The program's thread makes the attempt and then takes part in the agreement. Beside it a guard
 * thread ends the attempt when another rank's has failed or the time is over: by an abort, since
 * the program's thread is inside NCCL. Must never hold a lock while it waits, and every wait must
 * have a bound.
 */
#include "core/call/init_retry.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/call/create_comm.h"
#include "core/call/creation.h"
#include "core/call/nonblocking.h"
#include "core/comm/comm.h"
#include "core/comm/deadline.h"
#include "core/incident/program_requests.h"
#include "core/nccl/group_id.h"
#include "core/nccl/op.h"
#include "core/policy/abort.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

#define SESSIONS     64u
#define AT_ONCE      (8u * NG_BOARD_HAVE_MAX) /* keys that one step of a request checks */
#define LOOK_NS      (100 * NG_MS)            /* between two checks of the board */
#define STEP_NS      (500 * NG_MS) /* of a wait for the others, between two checks of this process */
#define STEP_MAX_NS  NG_S /* counted at most between two checks; the rest was a standstill */
#define PUT_NS       (5 * NG_S)
#define SHARED_NS    (10 * NG_S) /* each rank that has reached NCCL has put its entry within this */
#define AGREE_NS     (30 * NG_S) /* beyond the attempt's deadline */
#define AWAY_NS      (30 * NG_S) /* a store that is silent for this long is given up */
#define KEEP_NS      (120 * NG_S) /* lifetime of entries, beyond that */
#define PREFIX_BYTES 32

/* One attempt on this rank, as seen by the thread that watches it. */
struct session {
    _Atomic uint32_t state; /* futex word */
    _Atomic uint32_t over;  /* futex word: the call has returned */
    struct ng_comm *made;
    char prefix[PREFIX_BYTES];
    uint32_t nranks;
    unsigned attempt, attempts;
    bool ended_it; /* the watching thread has aborted it */
};
enum { FREE, FILLED, WAITING, RUNNING, DONE };

static struct session sessions[SESSIONS] NG_LARGE;
static atomic_bool not_shared; /* ranks cannot find each other on the board */

enum decision { AGREED, AGAIN, GIVEN_UP };

/* The outcome that rank 0 puts. */
struct outcome {
    uint32_t decision; /* enum decision */
    int32_t code;      /* ncclResult_t of the rank that failed first */
    struct ng_nccl_unique_id id;
};

/* An attempt, for both halves of this file. */
struct attempt {
    const struct ng_call *call;
    struct ng_comm *made;
    struct ng_thread *thread;
    uint64_t group_id;
    uint32_t rank, nranks;
    unsigned number, attempts; /* number of this attempt, from 0; attempts allowed */
    char prefix[PREFIX_BYTES];
    int64_t until_mono_ns; /* of the agreement */
    bool dropped;          /* its new communicator has been aborted by this file */
    bool silent;           /* the store was silent when the newest wait ended */
    bool alone;            /* it was silent for long: other ranks cannot be reached */
};

/* A futex word for plain sleeps; never woken. */
static _Atomic uint32_t nobody;

/* ---- The board ---- */

static void key_of(const char *prefix, uint32_t number, char ret_key[NG_BOARD_KEY_MAX + 1])
{
    snprintf(ret_key, NG_BOARD_KEY_MAX + 1, "%s%" PRIu32, prefix, number);
}

/* 0; -EEXIST: another rank has put it; or -errno. */
static int put(const char *prefix, uint32_t number, const void *data, size_t bytes)
{
    int64_t until = ng_clock_mono_ns() + PUT_NS;
    int64_t keep_ns = ng_guard.config.init_timeout_ns + AGREE_NS + KEEP_NS;
    char key[NG_BOARD_KEY_MAX + 1];
    int error;

    key_of(prefix, number, key);
    /* The program may be out of descriptors, which can pass. */
    while ((error = ng_program_request_put_for(key, data, bytes, keep_ns, until)) != 0 &&
           error != -EEXIST && error != -EOPNOTSUPP && ng_clock_mono_ns() < until)
        ng_futex_wait(&nobody, 0, LOOK_NS);
    return error;
}

/* A few entries need one check, thousands need several. */
static bool is_there(const char *prefix, uint32_t first, uint32_t count)
{
    return ng_program_request_meet(prefix, first, count,
                                   ng_clock_mono_ns() + (count > AT_ONCE ? SHARED_NS : 0)) == 0;
}

/* ---- The watching thread ---- */

/* True: there is nothing left to watch. False: other abort orders come first; try again. */
static bool end_attempt(struct session *session, const char *why)
{
    uint64_t id = NG_LOAD(session->made->group->id);
    struct ng_group_set scope = {.count = 1, .groups = {id}};
    char reason[200];

    snprintf(reason, sizeof(reason), "attempt %u of %u to make group %016" PRIx64 " %s",
             session->attempt + 1, session->attempts, id, why);
    int error = ng_abort_groups(&scope, NG_KIND_HEALTHY, reason, NG_ABORT_PERSON);
    if (error == -EBUSY)
        return false;
    session->ended_it = !error || error == -ENOENT;
    if (!session->ended_it) {
        ng_log(NG_LOG_WARN, "cannot end %s: %s", reason, strerror(-error));
        /* The watchdog's deadline applies again. */
        atomic_store(&session->made->may_retry, false);
    }
    return true;
}

/* Check the attempt's own deadline, while the watchdog's is suspended. True: there is nothing left
 * to watch. */
static bool look_at_time(struct session *session, int64_t waited_ns)
{
    int64_t timeout_ns =
        ng_deadline_of_call(session->made, (enum ng_op)NG_LOAD(session->made->group->created_by));
    int32_t code = NG_NCCL_SYSTEM_ERROR;

    if (!timeout_ns || waited_ns < timeout_ns)
        return false;
    if (is_there(session->prefix, 0, session->nranks)) {
        put(session->prefix, 2 * session->nranks, &code, sizeof(code));
        return end_attempt(session,
                           "has not finished within its deadline, though all ranks have come");
    }
    /* A rank is missing: the watchdog reports that. */
    atomic_store(&session->made->may_retry, false);
    return true;
}

static void watch_session(struct session *session)
{
    int64_t looked = ng_clock_mono_ns(), waited_ns = 0;

    while (!atomic_load(&session->over)) {
        ng_futex_wait(&session->over, 0, LOOK_NS);
        int64_t now = ng_clock_mono_ns(), step = now - looked;
        looked = now;
        if (!ng_deadline_rests(session->made))
            waited_ns += step > STEP_MAX_NS ? STEP_MAX_NS : step;
        if (atomic_load(&session->over))
            return;
        if (is_there(session->prefix, 2 * session->nranks, 1) && !atomic_load(&session->over) &&
            end_attempt(session, "has failed on another rank"))
            return;
        /* The last attempt has the watchdog's deadline. */
        if (session->attempt + 1 < session->attempts && look_at_time(session, waited_ns))
            return;
    }
}

static void *watch(void *unused)
{
    ng_guard.adopt_thread();
    for (unsigned i = 0; i < SESSIONS; i++) {
        uint32_t waiting = WAITING;
        if (!atomic_compare_exchange_strong(&sessions[i].state, &waiting, RUNNING))
            continue;
        watch_session(&sessions[i]);
        atomic_store(&sessions[i].state, DONE);
        ng_futex_wake_all(&sessions[i].state);
        break;
    }
    return unused;
}

/* NULL: the attempt is not watched, and the watchdog's deadline applies. */
static struct session *begin_watching(const struct attempt *attempt)
{
    NG_EACH (session, sessions, SESSIONS) {
        uint32_t free = FREE;
        if (!atomic_compare_exchange_strong(&session->state, &free, FILLED))
            continue;
        session->made = attempt->made;
        session->nranks = attempt->nranks;
        session->attempt = attempt->number;
        session->attempts = attempt->attempts;
        session->ended_it = false;
        memcpy(session->prefix, attempt->prefix, sizeof(session->prefix));
        atomic_store(&session->over, 0);
        atomic_store(&session->state, WAITING);
        if (attempt->number + 1 < attempt->attempts)
            atomic_store(&attempt->made->may_retry, true);
        uint32_t waiting = WAITING;
        if (ng_guard_thread("ncclguard/retry", watch) == 0 ||
            !atomic_compare_exchange_strong(&session->state, &waiting, FREE))
            return session;
        atomic_store(&attempt->made->may_retry, false);
        return NULL;
    }
    return NULL;
}

/* True: the watching thread has ended the attempt. Waits for it, since an abort order that it is
 * giving now must not hit the next attempt. */
static bool stop_watching(struct session *session)
{
    uint32_t state;

    if (!session)
        return false;
    atomic_store(&session->over, 1);
    ng_futex_wake_all(&session->over);
    while ((state = atomic_load(&session->state)) != DONE)
        ng_futex_wait(&session->state, state, NG_S);
    bool ended_it = session->ended_it;
    atomic_store(&session->state, FREE);
    return ended_it;
}

/* ---- Agreeing ---- */

static void tell_alone(struct attempt *attempt)
{
    if (!attempt->alone)
        ng_log(NG_LOG_WARN,
               "attempt %u of %u to make group %016" PRIx64 " (rank %" PRIu32 " of %" PRIu32
               "): the store does not answer: its result stands as it is here",
               attempt->number + 1, attempt->attempts, attempt->group_id, attempt->rank,
               attempt->nranks);
    attempt->alone = true;
}

/*
 * Wait for `count` numbers from `first`. False: the time is over, the store has been silent for
 * long, a verdict has ended the communicator, or the process is ending. Once one rank has failed,
 * the others end the attempt as soon as their aborts have returned: a rank that has not by then has
 * died.
 */
static bool meet(struct attempt *attempt, uint32_t first, uint32_t count, int64_t until)
{
    int64_t silent_ns = 0;
    bool failed = false;

    for (int64_t now; (now = ng_clock_mono_ns()) < until && !attempt->alone;) {
        int64_t step = now + STEP_NS < until ? now + STEP_NS : until;
        int error = ng_program_request_meet(attempt->prefix, first, count, step);
        if (!error)
            return true;
        /* Each wait has lasted one step: time in which this process stood still does not count
         * against the store. */
        attempt->silent = error == -EIO;
        silent_ns = attempt->silent ? silent_ns + STEP_NS : 0;
        if (silent_ns >= AWAY_NS)
            tell_alone(attempt);
        if (error != -ETIMEDOUT)
            ng_futex_wait(&nobody, 0, LOOK_NS);
        if (atomic_load(&ng_guard.ending) ||
            (!attempt->dropped && ng_comm_is_condemned(attempt->made)))
            return false;
        if (failed || !is_there(attempt->prefix, 2 * attempt->nranks, 1))
            continue;
        failed = true;
        int64_t soon = ng_clock_mono_ns() + ng_guard.config.abort_wait_ns + SHARED_NS;
        until = until < soon ? until : soon;
    }
    return false;
}

static bool is_retried(int code)
{
    return code == NG_NCCL_SYSTEM_ERROR || code == NG_NCCL_REMOTE_ERROR;
}

/* The code of the rank that failed first; NG_NCCL_SUCCESS: none has failed. */
static int failure_of(const struct attempt *attempt)
{
    char key[NG_BOARD_KEY_MAX + 1];
    int32_t code = NG_NCCL_SYSTEM_ERROR;
    size_t bytes;

    if (!is_there(attempt->prefix, 2 * attempt->nranks, 1))
        return NG_NCCL_SUCCESS;
    key_of(attempt->prefix, 2 * attempt->nranks, key);
    ng_program_request_get(key, &code, sizeof(code), &bytes, ng_clock_mono_ns() + STEP_NS);
    return code;
}

/* Rank 0 decides, after all ranks have ended the attempt, or not all in time. */
static void decide(struct attempt *attempt, int result, struct outcome *ret_outcome)
{
    struct outcome outcome = {.decision = GIVEN_UP, .code = result};

    bool all = meet(attempt, attempt->nranks, attempt->nranks, attempt->until_mono_ns);
    int code = failure_of(attempt);
    if (code != NG_NCCL_SUCCESS)
        outcome.code = code;
    if ((all || (attempt->alone && result == NG_NCCL_SUCCESS)) && code == NG_NCCL_SUCCESS)
        outcome.decision = AGREED;
    else if (all && is_retried(code) && attempt->number + 1 < attempt->attempts &&
             attempt->call->nccl->get_unique_id &&
             attempt->call->nccl->get_unique_id(&outcome.id) == NG_NCCL_SUCCESS)
        outcome.decision = AGAIN;
    *ret_outcome = outcome;
    put(attempt->prefix, 2 * attempt->nranks + 1, &outcome, sizeof(outcome));
}

/* Read the outcome. 0, or -errno: there is none. */
static int hear(struct attempt *attempt, struct outcome *ret_outcome)
{
    uint32_t number = 2 * attempt->nranks + 1;
    char key[NG_BOARD_KEY_MAX + 1];
    struct outcome outcome;
    size_t bytes;

    /* Allows for rank 0's wait and its put. */
    if (!meet(attempt, number, 1, attempt->until_mono_ns + PUT_NS))
        return -ETIMEDOUT;
    key_of(attempt->prefix, number, key);
    int error = ng_program_request_get(key, &outcome, sizeof(outcome), &bytes,
                                       ng_clock_mono_ns() + STEP_NS);
    if (!error && bytes != sizeof(outcome))
        error = -EPROTO;
    if (!error)
        *ret_outcome = outcome;
    return error;
}

/* This rank's attempt has ended with `result`; get the common decision. */
static void agree(struct attempt *attempt, int result, struct outcome *ret_outcome)
{
    int32_t code = result;
    bool good = result == NG_NCCL_SUCCESS;

    *ret_outcome = (struct outcome){.decision = good ? AGREED : GIVEN_UP, .code = result};
    if (good && !meet(attempt, 0, attempt->nranks, ng_clock_mono_ns() + SHARED_NS) &&
        failure_of(attempt) == NG_NCCL_SUCCESS) {
        if (attempt->silent)
            tell_alone(attempt);
        else if (!atomic_exchange(&not_shared, true))
            ng_log(NG_LOG_WARN,
                   "NCCLGUARD_INIT_RETRY: ranks of one group do not find each other on the board "
                   "(NCCLGUARD_STORE): nothing is tried again");
        put(attempt->prefix, attempt->nranks + attempt->rank, "", 0);
        return;
    }
    /* The order matters: a rank that has seen all ends must also see whether there was a
     * failure. */
    if (!good)
        put(attempt->prefix, 2 * attempt->nranks, &code, sizeof(code));
    put(attempt->prefix, attempt->nranks + attempt->rank, "", 0);
    if (attempt->rank == 0)
        decide(attempt, result, ret_outcome);
    else
        hear(attempt, ret_outcome);
}

/* ---- Attempts ---- */

/* Discard what the attempt has created here: it failed, or another rank's attempt did. */
static void drop(struct attempt *attempt, bool ordered)
{
    struct ng_group_set scope = {.count = 1, .groups = {attempt->group_id}};

    ng_thread_leave(attempt->thread);
    attempt->dropped = true;
    /* If NCCL has created nothing, there is nothing to abort. */
    if (!__atomic_load_n((void **)attempt->call->creation->new_comm, __ATOMIC_ACQUIRE))
        return;
    if (!ordered && !ng_comm_is_condemned(attempt->made))
        ordered = ng_abort_groups(&scope, NG_KIND_HEALTHY, "an attempt to make it has failed",
                                  NG_ABORT_PERSON) == 0;
    if (ordered && !ng_comm_is_condemned(attempt->made))
        ng_futex_wait(&attempt->made->fate, NG_FATE_LIVES, NG_S);
    if (ng_comm_is_condemned(attempt->made))
        ng_abort_await(attempt->made);
}

/* The guard has ended it for another reason, which has been reported: no attempt follows. */
static int give_up(const struct attempt *attempt, struct outcome *ret_outcome)
{
    int32_t code = NG_NCCL_INTERNAL_ERROR;

    put(attempt->prefix, 2 * attempt->nranks, &code, sizeof(code));
    put(attempt->prefix, attempt->nranks + attempt->rank, "", 0);
    ret_outcome->decision = GIVEN_UP;
    return attempt->made->abort.result;
}

static void tell(const struct attempt *attempt, int code, bool again)
{
    ng_log(NG_LOG_WARN,
           "attempt %u of %u to make group %016" PRIx64 " (rank %" PRIu32 " of %" PRIu32
           ") has failed: %s; %s",
           attempt->number + 1, attempt->attempts, attempt->group_id, attempt->rank,
           attempt->nranks, ng_result_name(code),
           again ? "all ranks try again" : "it is not tried again");
}

/* Make the call with the unique id of this attempt: the program's own, or rank 0's. */
static int make(const struct ng_call *call, const struct ng_call_context *context,
                const struct outcome *before, bool converts)
{
    struct ng_creation creation = *call->creation;
    struct ng_call again = *call;

    if (before->decision == AGAIN) {
        creation.unique_ids = &before->id;
        creation.unique_id_count = 1;
    }
    again.creation = &creation;
    return converts ? ng_nonblocking_make(&again, context)
                    : ng_create_comm(&again, (void *)(uintptr_t)creation.config);
}

/* The agreement's end, derived from the attempt's deadline; without a deadline, an hour is
 * assumed. */
static int64_t agreement_ends(const struct attempt *attempt)
{
    int64_t timeout_ns = ng_deadline_of_call(attempt->made, attempt->call->op);

    return ng_clock_mono_ns() + (timeout_ns ? timeout_ns : 3600 * NG_S) + AGREE_NS;
}

/* Run one attempt that has been entered. Returns the result for the program, unless *ret_outcome
 * says AGAIN. */
static int try_once(struct attempt *attempt, struct ng_call_context *context, bool converts,
                    struct outcome *outcome)
{
    struct outcome before = *outcome;

    snprintf(attempt->prefix, sizeof(attempt->prefix), "i.%016" PRIx64 ".%x.", attempt->group_id,
             attempt->number);
    attempt->until_mono_ns = agreement_ends(attempt);
    attempt->dropped = attempt->silent = attempt->alone = false;
    put(attempt->prefix, attempt->rank, "", 0);
    struct session *session = begin_watching(attempt);
    int result = make(attempt->call, context, &before, converts);
    bool ended = stop_watching(session);
    /* The failure of another thread may have ended it. */
    if (ng_comm_is_condemned(attempt->made) && !ended && is_retried(failure_of(attempt)))
        ended = true;
    if (ng_comm_is_condemned(attempt->made) && !ended)
        return give_up(attempt, outcome);
    if (ended)
        result = NG_NCCL_SYSTEM_ERROR;
    /* Read before dropping, which also ends what other threads of this process create of the
     * group. */
    int32_t code = result;
    if (result != NG_NCCL_SUCCESS) {
        put(attempt->prefix, 2 * attempt->nranks, &code, sizeof(code));
        drop(attempt, ended);
    }
    agree(attempt, result, outcome);
    if (!attempt->dropped && ng_comm_is_condemned(attempt->made)) {
        outcome->decision = GIVEN_UP;
        return attempt->made->abort.result;
    }
    if (outcome->decision == AGREED)
        return result;
    if (result == NG_NCCL_SUCCESS) {
        drop(attempt, false);
        result = NG_NCCL_SYSTEM_ERROR;
    }
    tell(attempt, outcome->code, outcome->decision == AGAIN);
    return result;
}

int ng_init_retry_make(const struct ng_call *call, struct ng_thread *thread,
                       struct ng_call_context *context, bool converts, ng_call_leave_fn *leave)
{
    const struct ng_creation *creation = call->creation;
    struct ng_group_calls *calls = ng_thread_group_calls(thread, call->nccl);
    struct attempt attempt = {
        .call = call,
        .thread = thread,
        .group_id = ng_group_id_unique(creation->unique_ids, creation->unique_id_count),
        .rank = (uint32_t)creation->rank,
        .nranks = (uint32_t)creation->nranks,
        .attempts = (unsigned)ng_guard.config.init_retry + 1,
    };
    struct outcome outcome = {.decision = AGREED};

    for (;; attempt.number++) {
        int result = ng_creation_enter(call, thread, context);
        if (result != NG_CALL_PROCEED)
            return result;
        if (!calls || calls->created_count == context->created_before)
            return leave(call, context, make(call, context, &outcome, converts));
        attempt.made = calls->created[context->created_before].comm;
        result = try_once(&attempt, context, converts, &outcome);
        result = leave(call, context, result);
        if (outcome.decision != AGAIN)
            return result;
    }
}

static void refuse(const char *why)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;

    if (!atomic_flag_test_and_set(&told))
        ng_log(NG_LOG_WARN, "NCCLGUARD_INIT_RETRY: %s: nothing is tried again", why);
}

bool ng_init_retry_takes(const struct ng_call *call, struct ng_thread *thread)
{
    const struct ng_creation *creation = call->creation;
    const struct ng_nccl_config *config = creation->config;

    if (ng_guard.config.init_retry == 0 || atomic_load(&not_shared))
        return false;
    if (call->op != NG_OP_CommInitRank && call->op != NG_OP_CommInitRankConfig &&
        call->op != NG_OP_CommInitRankScalable)
        return false;
    if (!creation->new_comm || !creation->unique_ids || creation->unique_id_count < 1 ||
        creation->nranks < 2 || creation->rank < 0 || creation->rank >= creation->nranks ||
        ng_thread_open_group(thread, call->nccl))
        return false;
    if (config && NG_NCCL_CONFIG_SAYS_BLOCKING(config) && config->blocking == 0)
        return false;
    if (!ng_guard.board) {
        refuse("ranks share nothing here (NCCLGUARD_STORE=none, or no board could be made)");
        return false;
    }
    return true;
}

void ng_init_retry_after_fork(void)
{
    for (unsigned i = 0; i < SESSIONS; i++)
        atomic_store(&sessions[i].state, FREE);
}
