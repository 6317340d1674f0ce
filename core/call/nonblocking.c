/*
 * Converts communicators to nonblocking transparently, and waits on behalf of the program.
 *
 * Entered by the program's threads, any number at once. Must never hold a lock, query a state that
 * another thread may free, or sleep at a cancellation point.
 */
#include "core/call/nonblocking.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/call/create_comm.h"
#include "core/comm/comm.h"
#include "core/comm/deadline.h"
#include "core/comm/in_flight_calls.h"
#include "core/device/async.h"
#include "core/device/device_wait.h"
#include "core/policy/abort.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/log.h"
#include "core/util/macros.h"

#define VERSION_NONBLOCKING 21400 /* ncclConfig_t, and ncclCommInitRankConfig */
#define CONFIG_MAX          1024  /* bytes of a configuration: ncclConfig_t of 2.32 has 144 */
#define QUICK_LOOKS         120 /* before the first sleep, a microsecond each: NCCL needs 45 to 80 */
#define SLEEP_MIN_NS        (10 * NG_US)
#define SLEEP_MAX_NS        NG_MS
#define STEP_MAX_NS         NG_S /* counted at most between two looks; the rest was a standstill */
#define VERDICT_WAIT_NS     (3 * NG_S) /* beyond a deadline */

/* ---- What is converted ---- */

enum obstacle { ENVIRONMENT, LIBRARY, INIT_ALL, OBSTACLES };

/* Log each obstacle once. */
static void tell(enum obstacle obstacle, const char *detail)
{
    static atomic_flag told[OBSTACLES] = {ATOMIC_FLAG_INIT, ATOMIC_FLAG_INIT, ATOMIC_FLAG_INIT};
    static const char *const why[] = {
        [ENVIRONMENT] = "NCCL_COMM_BLOCKING=%s overrules what communicators are made with",
        [LIBRARY] = "%s is older than NCCL 2.14, which brought nonblocking communicators",
        [INIT_ALL] =
            "the program uses nccl%s, which always blocks, and one NCCL group must not hold "
            "both kinds",
    };
    char text[400];

    if (atomic_flag_test_and_set(&told[obstacle]))
        return;
    snprintf(text, sizeof(text), why[obstacle], detail);
    ng_log(NG_LOG_WARN, "NCCLGUARD_INIT=nonblocking: %s; they are guarded as with `watch`", text);
}

/* The program has called ncclCommInitAll. */
static atomic_bool keeps_blocking;

static const char *overruled_by(void)
{
    const char *text = getenv("NCCL_COMM_BLOCKING");

    return text && (strcmp(text, "0") == 0 || strcmp(text, "1") == 0) ? text : NULL;
}

static void *function_for(const struct ng_call *call)
{
    switch (call->op) {
    case NG_OP_CommInitRank:
    case NG_OP_CommInitRankConfig:
        return (void *)call->nccl->comm_init_rank_config;
    case NG_OP_CommInitRankScalable:
        return (void *)call->nccl->comm_init_rank_scalable;
    case NG_OP_CommSplit:
        return (void *)call->nccl->comm_split;
    case NG_OP_CommShrink:
        return (void *)call->nccl->comm_shrink;
    case NG_OP_CommGrow:
        return (void *)call->nccl->comm_grow;
    default:
        return NULL;
    }
}

/* A configuration that is not NCCL's, or is too large to copy, is left to NCCL. */
static bool can_copy(const struct ng_nccl_config *config)
{
    return !config || (NG_NCCL_CONFIG_SAYS_BLOCKING(config) && config->size <= CONFIG_MAX);
}

bool ng_nonblocking_takes(const struct ng_call *call)
{
    const struct ng_nccl_config *config = call->creation->config;
    const struct ng_comm *parent;
    const char *overrules;

    if (ng_guard.config.init != NG_INIT_NONBLOCKING)
        return false;
    if (call->op == NG_OP_CommInitAll) {
        atomic_store(&keeps_blocking, true);
        tell(INIT_ALL, "CommInitAll");
        return false;
    }
    if (!can_copy(config) || (config && config->blocking == 0))
        return false;
    if (call->comm &&
        (!(parent = ng_comm_find(call->comm)) || !atomic_load(&parent->mode.converted)))
        return false;
    if ((overrules = overruled_by())) {
        tell(ENVIRONMENT, overrules);
        return false;
    }
    if (!function_for(call) || !call->nccl->comm_get_async_error ||
        (call->nccl->version && call->nccl->version < VERSION_NONBLOCKING)) {
        tell(LIBRARY, call->nccl->path);
        return false;
    }
    return call->comm || !atomic_load(&keeps_blocking);
}

/* ---- Waiting ---- */

/* Stands in for the fate of a communicator without a record. */
static _Atomic uint32_t nobodys_fate = NG_FATE_LIVES;

struct wait {
    struct ng_comm *asked; /* whose state is queried; NULL no record */
    struct ng_comm *about; /* the communicator being created; or `asked` */
    const struct ng_nccl *nccl;
    void *handle; /* of `asked` */
    struct ng_thread *thread;
    enum ng_op makes; /* the call that creates `about`; NG_OP_NONE: none does */
    unsigned looks;
    int64_t sleep_ns;
    /* For creating calls: a separate clock, for the policy `log`. */
    int64_t looked_mono_ns, waited_ns, mark;
    uint32_t told_before;
    bool given_up;
};

static void relax(void)
{
    for (int i = 0; i < 20; i++)
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("yield" ::: "memory");
#else
        atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Sleep; an abort wakes it. Not nanosleep, which is a cancellation point. */
static void pause_some(struct wait *wait)
{
    _Atomic uint32_t *fate = wait->asked ? &wait->asked->fate : &nobodys_fate;

    if (wait->looks++ < QUICK_LOOKS) {
        relax();
        return;
    }
    ng_futex_wait(fate, NG_FATE_LIVES, wait->sleep_ns);
    wait->sleep_ns += wait->sleep_ns / 2;
    wait->sleep_ns = NG_MIN(wait->sleep_ns, SLEEP_MAX_NS);
}

/*
 * Query NCCL for the state, or its error. A thread that frees the communicator sets its fate before
 * it checks for queries; this thread checks in the opposite order: ng_release_await.
 */
static int ask(const struct wait *wait)
{
    int state = NG_NCCL_IN_PROGRESS, result = NG_NCCL_SUCCESS;

    if (wait->asked)
        atomic_fetch_add(&wait->asked->mode.questions, 1);
    if (!wait->asked || ng_comm_is_let_live(wait->asked))
        result = wait->nccl->comm_get_async_error(wait->handle, &state);
    if (wait->asked)
        atomic_fetch_sub(&wait->asked->mode.questions, 1);
    return result != NG_NCCL_SUCCESS ? result : state;
}

/* Not a child without a handle: its abort is its parent's, which waits for this call. */
static struct ng_comm *condemned_of(const struct wait *wait)
{
    struct ng_comm *comm = wait->asked ? wait->asked : wait->about;

    return comm && ng_comm_is_condemned(comm) ? comm : NULL;
}

/* NCCL uses the arguments of the call until the abort has returned, and the abort waits until the
 * thread has left the call. */
static int leave_aborted(struct wait *wait, struct ng_comm *comm)
{
    ng_thread_leave(wait->thread);
    ng_abort_await(comm);
    return comm->abort.result;
}

/* True: the deadline passed at least `by_ns` ago. */
static bool is_overdue(struct wait *wait, int64_t by_ns)
{
    int64_t timeout_ns = ng_deadline_timeout(wait->about, wait->makes);

    if (timeout_ns)
        timeout_ns += ng_deadline_extension(wait->about, wait->mark);
    return timeout_ns && wait->waited_ns >= timeout_ns + by_ns;
}

static void keep_time(struct wait *wait)
{
    int64_t now = ng_clock_mono_ns(), step = now - wait->looked_mono_ns;

    wait->looked_mono_ns = now;
    if (!ng_deadline_rests(wait->about))
        wait->waited_ns += step > STEP_MAX_NS ? STEP_MAX_NS : step;
}

/*
 * Under the policy `log` nothing is ended except what has not begun: a call that creates a
 * communicator fails at its deadline, with the verdict as the reason.
 */
static void look_at_deadline(struct wait *wait)
{
    struct ng_comm_reason reason;
    enum ng_on_timeout policy;

    keep_time(wait);
    if (wait->given_up || !is_overdue(wait, 0))
        return;
    uint64_t id = NG_LOAD(wait->about->group->id);
    if (ng_deadline_policy(id, wait->makes) != NG_ON_TIMEOUT_LOG)
        return;
    if (!ng_device_wait_get_verdict(wait->told_before, &reason, &policy)) {
        if (!is_overdue(wait, VERDICT_WAIT_NS))
            return;
        reason.kind = NG_KIND_HEALTHY;
        snprintf(reason.text, sizeof(reason.text),
                 "nccl%s of group %016" PRIx64
                 " has not finished within its deadline; no verdict came",
                 ng_op_name(wait->makes), id);
    }
    struct ng_group_set scope = {.count = 1, .groups = {id}};
    wait->given_up = ng_abort_groups(&scope, reason.kind, reason.text, NG_ABORT_PERSON) == 0;
}

static int wait_for(struct wait *wait)
{
    struct ng_comm *condemned;

    wait->sleep_ns = SLEEP_MIN_NS;
    wait->looked_mono_ns = ng_clock_mono_ns();
    wait->told_before = ng_device_wait_newest();
    wait->mark = wait->about ? ng_deadline_mark(wait->about, wait->looked_mono_ns) : 0;
    for (;; pause_some(wait)) {
        if ((condemned = condemned_of(wait)))
            return leave_aborted(wait, condemned);
        /* The program is aborting it from another thread. */
        if (wait->asked && atomic_load(&wait->asked->fate) == NG_FATE_PROGRAM_ENDS)
            return NG_NCCL_INTERNAL_ERROR;
        int state = ask(wait);
        if (state != NG_NCCL_IN_PROGRESS)
            return state;
        if (wait->makes && wait->looks > QUICK_LOOKS)
            look_at_deadline(wait);
    }
}

/* ---- Calls on existing communicators ---- */

static bool is_good(int result)
{
    return result == NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS;
}

/* Closing the group must also wait for this communicator, which is neither created nor used for
 * work in it. */
static void join(struct ng_group_calls *calls, struct ng_comm *comm)
{
    for (uint32_t i = 0; i < calls->joined_count; i++)
        if (calls->joined[i] == comm)
            return;
    if (calls->joined_count < NG_GROUP_JOINED)
        calls->joined[calls->joined_count++] = comm;
}

int ng_nonblocking_finish(struct ng_comm *comm, struct ng_group_calls *calls,
                          struct ng_thread *thread, int result)
{
    if (!comm || !atomic_load_explicit(&comm->mode.converted, memory_order_relaxed) ||
        !is_good(result))
        return result;
    if (calls && calls->depth) {
        join(calls, comm);
        return NG_NCCL_SUCCESS;
    }
    if (result == NG_NCCL_SUCCESS)
        return result;
    struct wait wait = {.asked = comm,
                        .about = comm,
                        .nccl = atomic_load(&comm->nccl),
                        .handle = atomic_load(&comm->handle),
                        .thread = thread};
    return wait.handle ? wait_for(&wait) : NG_NCCL_INVALID_ARGUMENT;
}

int ng_nonblocking_finish_passed(struct ng_comm *comm, int result)
{
    if (__builtin_expect(!comm, 1))
        return result;
    /* Inside a group NCCL only notes the call; it is in progress once the group is closed. */
    if (result != NG_NCCL_IN_PROGRESS &&
        !(result == NG_NCCL_SUCCESS && atomic_load(&comm->mode.converted)))
        return result;
    int saved = errno;
    struct ng_thread *thread = ng_thread_get();
    if (thread)
        result = ng_nonblocking_finish(comm, ng_thread_open_group(thread, atomic_load(&comm->nccl)),
                                       thread, result);
    errno = saved;
    return result;
}

int ng_nonblocking_answer(struct ng_comm *comm, const struct ng_call *call)
{
    int state = NG_NCCL_SUCCESS, result = NG_NCCL_SUCCESS;

    if (!call->recv_buffer)
        return NG_NCCL_INVALID_ARGUMENT;
    if (ng_in_flight_hold(comm)) {
        result = call->nccl->comm_get_async_error(call->comm, &state);
        ng_in_flight_let_go(comm);
        if (result == NG_NCCL_SUCCESS)
            ng_async_record_answer(comm, state);
    } else {
        /* NCCL's answer belongs to the calls that are under way. */
        state = atomic_load(&comm->group->async_error);
    }
    if (result == NG_NCCL_SUCCESS)
        *(int *)call->recv_buffer = state == NG_NCCL_IN_PROGRESS ? NG_NCCL_SUCCESS : state;
    return result;
}

/* ---- Creating ---- */

/* Copy the caller's configuration, by its own size; without one, the header that all libraries
 * know, which leaves everything else at its default. */
static void copy_config(const struct ng_nccl_config *config, struct ng_nccl_config *ret_copy)
{
    if (config) {
        memcpy(ret_copy, config, config->size);
    } else {
        memset(ret_copy, 0, CONFIG_MAX);
        ret_copy->size = offsetof(struct ng_nccl_config, cga_cluster_size);
        ret_copy->magic = NG_NCCL_CONFIG_MAGIC;
        ret_copy->version = VERSION_NONBLOCKING;
    }
    ret_copy->blocking = 0;
}

/* The parent's state is queried if NCCL creates the child through the parent; else the child's
 * own. */
static bool asks_parent(enum ng_op op)
{
    return op == NG_OP_CommSplit || op == NG_OP_CommShrink;
}

static int await_made(struct ng_comm *made, struct ng_comm *parent, const struct ng_nccl *nccl,
                      enum ng_op op, void **new_comm, struct ng_thread *thread)
{
    bool by_parent = asks_parent(op);
    struct wait wait = {.asked = by_parent ? parent : made,
                        .about = made,
                        .nccl = nccl,
                        .handle = by_parent  ? parent ? atomic_load(&parent->handle) : NULL
                                  : new_comm ? *new_comm
                                             : NULL,
                        .thread = thread,
                        .makes = made ? op : NG_OP_NONE};

    /* The result alone is not enough: ncclCommShrink and ncclCommGrow report success while in
     * progress. */
    return wait.handle ? wait_for(&wait) : NG_NCCL_SUCCESS;
}

int ng_nonblocking_make(const struct ng_call *call, const struct ng_call_context *context)
{
    struct ng_group_calls *calls = ng_thread_group_calls(context->thread, call->nccl);
    bool created = calls && calls->created_count > context->created_before;
    struct ng_comm *made = created ? calls->created[context->created_before].comm : NULL;
    struct ng_comm *parent = ng_comm_find(call->comm);
    union {
        struct ng_nccl_config config;
        char bytes[CONFIG_MAX];
    } copy;

    copy_config(call->creation->config, &copy.config);
    if (made) {
        atomic_store(&made->mode.nonblocking, true);
        atomic_store(&made->mode.converted, true);
    }
    /* A child without its own configuration inherits its parent's, which is nonblocking. */
    int result = ng_create_comm(call, call->comm && !call->creation->config ? NULL : &copy);
    if (!is_good(result))
        return result;
    if (calls && calls->depth) {
        if (parent && asks_parent(call->op))
            join(calls, parent);
        return NG_NCCL_SUCCESS;
    }
    return await_made(made, parent, call->nccl, call->op, call->creation->new_comm,
                      context->thread);
}

/* ---- Groups ---- */

/* Is this a nonblocking communicator of the program's own? Then the whole group is nonblocking. */
static bool is_of_program(const struct ng_comm *comm)
{
    return atomic_load(&comm->mode.nonblocking) && !atomic_load(&comm->mode.converted);
}

static bool is_all_ours(const struct ng_group_calls *calls)
{
    NG_EACH (entry, calls->pending, calls->pending_count)
        if (is_of_program(entry->comm))
            return false;
    for (uint32_t i = 0; i < calls->created_count; i++)
        if (is_of_program(calls->created[i].comm))
            return false;
    return calls->pending_count || calls->created_count || calls->joined_count;
}

static void keep_first(int *result, int next)
{
    if (*result == NG_NCCL_SUCCESS)
        *result = next;
}

static int await_one(struct ng_comm *comm, struct ng_thread *thread)
{
    struct wait wait = {.asked = comm,
                        .about = comm,
                        .nccl = atomic_load(&comm->nccl),
                        .handle = atomic_load(&comm->handle),
                        .thread = thread};

    return wait.handle ? wait_for(&wait) : NG_NCCL_SUCCESS;
}

static bool comes_again(const struct ng_group_calls *calls, uint32_t index)
{
    return NG_ANY(entry, calls->pending, index, entry->comm == calls->pending[index].comm);
}

/* Every communicator must be queried: each keeps part of the group's resources until then. */
int ng_nonblocking_finish_group(struct ng_group_calls *calls, struct ng_thread *thread)
{
    int first = NG_NCCL_SUCCESS;

    if (!is_all_ours(calls))
        return NG_NCCL_IN_PROGRESS;
    NG_EACH (created, calls->created, calls->created_count)
        keep_first(&first, await_made(created->comm, ng_comm_find(created->watched),
                                      atomic_load(&created->comm->nccl),
                                      (enum ng_op)NG_LOAD(created->comm->group->created_by),
                                      created->new_comm, thread));
    for (uint32_t i = 0; i < calls->joined_count; i++)
        keep_first(&first, await_one(calls->joined[i], thread));
    for (uint32_t i = 0; i < calls->pending_count; i++)
        if (!comes_again(calls, i))
            keep_first(&first, await_one(calls->pending[i].comm, thread));
    return first;
}
