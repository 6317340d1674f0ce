/*
 * Abort orders, and the threads that carry them out.
 *
 * One thread marks the communicators of an order and keeps its bound; one further thread per copy
 * of NCCL waits for program threads to leave, and calls ncclCommAbort. Must never call NCCL with a
 * handle that the program is ending or has ended.
 */
#include "core/policy/abort.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "core/comm/ended.h"
#include "core/comm/gate.h"
#include "core/comm/in_flight_calls.h"
#include "core/comm/thread.h"
#include "core/device/capture.h"
#include "core/device/device_wait.h"
#include "core/device/in_progress.h"
#include "core/device/poison.h"
#include "core/device/release.h"
#include "core/fault/inject.h"
#include "core/nccl/call.h"
#include "core/policy/init_abort.h"
#include "core/policy/teardown.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"

/* A thread that stays in NCCL longer is blocked there, unless it has had no processor to leave it.
 */
#define INSIDE_WAIT_NS  (250 * NG_MS)
#define INSIDE_CPU_NS   (20 * NG_MS) /* ready to run, and less than this of a processor: starved */
#define GROUP_WAIT_NS   NG_S         /* longest wait before an open NCCL group is given up */
#define LOOK_PAUSE_NS   NG_MS
#define HANDLE_PAUSE_NS (10 * NG_MS)
#define ORDERS          4u

/* From this version on an abort in an NCCL group ends at once what waits, and frees the
 * communicator at the end of the group. */
#define VERSION_GROUPED_ABORT 22200

enum work_state {
    FREE,
    PREPARED, /* being filled in */
    WAITING,  /* for its thread to start */
    RUNNING,
    SETTLED, /* all aborts have returned; only logging is left */
};

/* The communicators of one order in one copy of NCCL, and the thread that aborts them. */
struct crew {
    _Atomic uint32_t state; /* enum work_state */
    uint16_t *slots;        /* communicators still to be aborted; owned by the crew once RUNNING */
    uint32_t count;
};

/* One ng_abort_groups. Written by the caller until it is WAITING, then by its own threads. */
struct order {
    _Atomic uint32_t state;
    _Atomic uint32_t crews_left; /* futex word */
    atomic_bool stuck;
    enum ng_abort_origin origin;
    struct ng_group_set scope;
    int64_t begun_mono_ns, until_mono_ns;
    enum ng_verdict_kind kind; /* of the verdict in `reason`; NG_KIND_HEALTHY: it is no verdict */
    char reason[NG_COMM_REASON_BYTES];
    struct crew crews[NG_NCCL_MAX];
    uint32_t count; /* of both arrays, which hold the same slots in different orders */
    uint16_t condemned[NG_COMM_CAPACITY], slots[NG_COMM_CAPACITY];
};

static struct order orders[ORDERS] NG_LARGE;
static atomic_bool any_returned[NG_ABORT_ORIGINS];

/* ---- Results of the program's calls ---- */

void ng_abort_await(struct ng_comm *comm)
{
    uint32_t fate;

    while ((fate = atomic_load(&comm->fate)) == NG_FATE_CONDEMNED || fate == NG_FATE_ABORTING)
        if (!ng_futex_wait_until(&comm->fate, fate, comm->abort.until_mono_ns))
            return;
}

int ng_abort_answer(struct ng_comm *comm, const struct ng_call *call)
{
    ng_teardown_await_end();
    switch (call->op) {
    case NG_OP_CommDestroy:
    case NG_OP_CommAbort:
        /* The program is about to free what the communicator's kernels use. */
        ng_abort_await(comm);
        return NG_NCCL_SUCCESS;
    case NG_OP_CommFinalize:
    case NG_OP_CommRevoke:
        return NG_NCCL_SUCCESS;
    case NG_OP_CommGetAsyncError:
        if (!call->recv_buffer)
            return NG_NCCL_INVALID_ARGUMENT;
        *(int *)call->recv_buffer = comm->abort.result;
        return NG_NCCL_SUCCESS;
    default:
        ng_device_wait_note_error(comm);
        return comm->abort.result;
    }
}

int ng_abort_visit(const struct ng_call *call, struct ng_comm **ret_guest)
{
    int answer = ng_gate_try(call->comm, call->op, ret_guest);
    struct ng_comm *condemned = answer == NG_CALL_PROCEED ? NULL : *ret_guest;

    if (answer != NG_CALL_PROCEED)
        *ret_guest = NULL;
    return condemned ? ng_abort_answer(condemned, call) : answer;
}

/* The communicator that the calling thread was creating when the guard aborted it; NULL none. It
 * may have no handle. */
static const struct ng_comm *not_made(void)
{
    const struct ng_thread *thread = ng_this_thread;
    const struct ng_comm *comm = thread ? thread->not_made : NULL;

    return comm && atomic_load(&comm->group->generation) == thread->not_made_generation ? comm
                                                                                        : NULL;
}

const char *ng_abort_reason(const void *handle)
{
    const struct ng_comm *comm = handle ? ng_comm_find(handle) : not_made();

    if (!comm)
        return ng_ended_reason(handle);
    return ng_comm_is_condemned(comm) ? comm->abort.reason : ng_device_wait_reason(comm);
}

/* ---- Waiting for the program's threads to leave ---- */

/*
 * Wait until the program's threads have left NCCL; each kind of them has its own time limit. `fate`
 * of the communicators that are meant: CONDEMNED, or ABORTING, when a thread that is between two
 * calls of a group no longer closes it on them.
 */
static void wait_for_threads(const struct order *order, const uint16_t *slots, uint32_t count,
                             uint32_t fate)
{
    int64_t now = ng_clock_mono_ns(), bound = (order->until_mono_ns - now) / 2;
    int64_t inside_until = now + (bound < INSIDE_WAIT_NS ? bound : INSIDE_WAIT_NS);
    int64_t starved_until = now + bound;
    int64_t groups_until = now + (bound < GROUP_WAIT_NS ? bound : GROUP_WAIT_NS);
    struct ng_in_flight_start start = {.count = 0};

    for (bool busy = true; busy; now = ng_clock_mono_ns()) {
        bool open = false, inside = false;
        for (uint32_t i = 0; i < count && !open; i++) {
            const struct ng_comm *comm = ng_comm_at(slots[i]);
            if (atomic_load(&comm->fate) != fate)
                continue;
            inside = inside || (now < inside_until && ng_in_flight_inside(comm));
            /* The first look notes what each thread has had of a processor so far. */
            if (now >= inside_until || !start.count)
                inside =
                    (ng_in_flight_starved(comm, INSIDE_CPU_NS, &start) && now < starved_until) ||
                    inside;
            /* A thread that leaves its first call of a group has opened it before. */
            open = fate == NG_FATE_CONDEMNED && atomic_load(&comm->in_flight.open_groups) > 0 &&
                   now < groups_until;
        }
        busy = open || inside;
        if (busy)
            ng_clock_sleep(LOOK_PAUSE_NS);
    }
}

/* ---- The abort itself ---- */

static void set_aborted(struct ng_comm *comm)
{
    ng_in_progress_end(comm);
    atomic_store(&comm->fate, NG_FATE_ABORTED);
    ng_futex_wake_all(&comm->fate);
}

static void tell_failure(const struct ng_nccl *nccl, const char *what, int result)
{
    ng_log(NG_LOG_ERROR, "aborting %s failed: %s", what,
           nccl->get_error_string ? nccl->get_error_string(result) : ng_result_name(result));
}

static void abort_one(const struct ng_nccl *nccl, struct ng_comm *comm, bool grouped)
{
    char name[160];

    if (ng_inject_armed)
        ng_inject_abort(comm);
    int result = nccl->comm_abort ? nccl->comm_abort(atomic_load(&comm->handle)) : NG_NCCL_SUCCESS;
    /* Before logging, since the log may hang. */
    if (!grouped)
        set_aborted(comm);
    if (result == NG_NCCL_SUCCESS)
        return;
    ng_comm_describe(comm, name, sizeof(name));
    tell_failure(nccl, name, result);
}

/*
 * All these communicators are ABORTING and belong to one copy of NCCL. A thread that is blocked
 * inside leaves when the abort has begun, and reads the communicator on its way: NCCL would free it
 * meanwhile.
 */
static void call_abort(const struct order *order, const uint16_t *slots, uint32_t count)
{
    const struct ng_nccl *nccl = atomic_load(&ng_comm_at(slots[0])->nccl);
    bool grouped = (count > 1 || ng_in_flight_inside(ng_comm_at(slots[0]))) &&
                   nccl->version >= VERSION_GROUPED_ABORT && nccl->group_start && nccl->group_end &&
                   nccl->group_start() == NG_NCCL_SUCCESS;

    for (uint32_t i = 0; i < count; i++)
        abort_one(nccl, ng_comm_at(slots[i]), grouped);
    if (grouped)
        wait_for_threads(order, slots, count, NG_FATE_ABORTING);
    int result = grouped ? nccl->group_end() : NG_NCCL_SUCCESS;
    for (uint32_t i = 0; i < count && grouped; i++)
        set_aborted(ng_comm_at(slots[i]));
    if (result != NG_NCCL_SUCCESS)
        tell_failure(nccl, "several communicators in one NCCL group", result);
    if (!nccl->comm_abort)
        ng_log(NG_LOG_ERROR, "%s has no ncclCommAbort: its communicators are only closed to calls",
               nccl->path);
}

static void swap(uint16_t *a, uint16_t *b)
{
    uint16_t before = *a;
    *a = *b;
    *b = before;
}

/* Abort the communicators whose handle is known; the others stay in the list. */
static void abort_ready(const struct order *order, struct crew *crew)
{
    uint32_t ready = 0;

    for (uint32_t i = 0; i < crew->count; i++) {
        struct ng_comm *comm = ng_comm_at(crew->slots[i]);
        bool making;
        if (ng_comm_condemned_handle(comm, &making)) {
            atomic_store(&comm->fate, NG_FATE_ABORTING);
            ng_release_await(comm);
            swap(&crew->slots[ready++], &crew->slots[i]);
        } else if (!making) {
            /* Its creation has failed, or will end with its parent's abort. */
            set_aborted(comm);
            swap(&crew->slots[i--], &crew->slots[--crew->count]);
        }
    }
    if (!ready)
        return;
    /* A thread that closes an NCCL group from here on sees ABORTING. */
    ng_in_flight_fence();
    call_abort(order, crew->slots, ready);
    crew->count -= ready;
    memmove(crew->slots, crew->slots + ready, crew->count * sizeof(crew->slots[0]));
}

static void run_crew(struct order *order, struct crew *crew)
{
    /* From here on every call sees CONDEMNED, or this thread sees the call. */
    ng_in_flight_fence();
    while (crew->count) {
        wait_for_threads(order, crew->slots, crew->count, NG_FATE_CONDEMNED);
        abort_ready(order, crew);
        if (crew->count)
            ng_clock_sleep(HANDLE_PAUSE_NS);
    }
    atomic_store(&crew->state, FREE);
    atomic_fetch_sub(&order->crews_left, 1);
    ng_futex_wake_all(&order->crews_left);
}

static void *abort_some(void *unused)
{
    ng_guard.adopt_thread();
    for (uint32_t i = 0; i < ORDERS * NG_NCCL_MAX; i++) {
        struct order *order = &orders[i / NG_NCCL_MAX];
        struct crew *crew = &order->crews[i % NG_NCCL_MAX];
        uint32_t waiting = WAITING;
        if (!atomic_compare_exchange_strong(&crew->state, &waiting, RUNNING))
            continue;
        run_crew(order, crew);
        break;
    }
    return unused;
}

/* ---- Orders ---- */

static bool is_meant(const struct order *order, const struct ng_comm *comm)
{
    /* A group that others joined may have been renamed since: core/view/grow_id.h. */
    uint64_t former = NG_LOAD(comm->group->former_id);

    return ng_group_set_holds(&order->scope, atomic_load(&comm->group->id)) ||
           (former && ng_group_set_holds(&order->scope, former));
}

static void condemn(struct order *order, struct ng_comm *comm)
{
    int own = NG_LOAD(comm->group->async_error); /* the error of this rank itself, if it has one */
    bool itself = own != NG_NCCL_SUCCESS && own != NG_NCCL_REMOTE_ERROR;
    int result = itself ? NG_NCCL_SYSTEM_ERROR : ng_gate_result(comm, order->kind, order->reason);

    bool in_flight =
        ng_poison_threatens(comm); /* once it is condemned, the watchdog clears its queue */
    if (!ng_comm_condemn(comm, result, order->reason, order->until_mono_ns))
        return;
    order->condemned[order->count++] = (uint16_t)comm->slot;
    /* Checked again: a call may have been faster than the mark. */
    if (in_flight || ng_poison_threatens(comm))
        ng_poison_comm(comm);
}

static bool is_being_made(const struct ng_comm *comm)
{
    return atomic_load(&comm->group->state) == NG_GROUP_CREATING;
}

static bool lives(const struct ng_comm *comm)
{
    return ng_group_state_is_alive(atomic_load(&comm->group->state));
}

/* Does `a` occupy the device that `b` needs: has its work started, or waited longer? */
static bool holds_up(const struct ng_comm *a, const struct ng_comm *b)
{
    bool works_a = NG_LOAD(a->group->pending_record) && NG_LOAD(a->group->pending_started);
    bool works_b = NG_LOAD(b->group->pending_record) && NG_LOAD(b->group->pending_started);

    if (works_a != works_b)
        return works_a;
    return NG_LOAD(a->group->pending_age_ns) > NG_LOAD(b->group->pending_age_ns);
}

/* If they are aborted one by one, an abort must not wait for the device while a later one in the
 * list occupies it. */
static void sort_condemned(struct order *order)
{
    for (uint32_t i = 1; i < order->count; i++)
        for (uint32_t k = i; k > 0 && holds_up(ng_comm_at(order->condemned[k]),
                                               ng_comm_at(order->condemned[k - 1]));
             k--)
            swap(&order->condemned[k], &order->condemned[k - 1]);
}

static void condemn_all(struct order *order)
{
    struct ng_comm *parent;

    NG_EACH_COMM (comm)
        if (is_meant(order, comm))
            condemn(order, comm);
    /* A child that is being created has no handle yet: only its parent's abort ends the call, and
     * that ends all children that are being created from the parent. */
    for (uint32_t i = 0, count = order->count; i < count; i++)
        if (!atomic_load(&ng_comm_at(order->condemned[i])->handle) &&
            (parent = atomic_load(&ng_comm_at(order->condemned[i])->making.parent)))
            condemn(order, parent);
    NG_EACH_COMM (comm)
        if (is_being_made(comm) && (parent = atomic_load(&comm->making.parent)) &&
            ng_comm_is_condemned(parent))
            condemn(order, comm);
    sort_condemned(order);
}

/* Start a crew for each copy of NCCL. */
static void start_crews(struct order *order)
{
    uint32_t placed = 0;

    for (uint32_t library = 0; library < NG_NCCL_MAX; library++) {
        struct crew *crew = &order->crews[library];
        crew->slots = &order->slots[placed];
        crew->count = 0;
        for (uint32_t i = 0; i < order->count; i++)
            if (atomic_load(&ng_comm_at(order->condemned[i])->nccl)->index == library)
                crew->slots[crew->count++] = order->condemned[i];
        placed += crew->count;
        if (!crew->count)
            continue;
        atomic_fetch_add(&order->crews_left, 1);
        atomic_store(&crew->state, WAITING);
        uint32_t waiting = WAITING;
        if (ng_guard_thread("ncclguard/abort", abort_some) != 0 &&
            atomic_compare_exchange_strong(&crew->state, &waiting, RUNNING))
            run_crew(order, crew); /* then no bound applies, but that is better than no abort */
    }
}

static double seconds_since(int64_t mono_ns)
{
    return (double)(ng_clock_mono_ns() - mono_ns) / 1e9;
}

static void tell_stuck(struct order *order)
{
    char name[160];

    for (uint32_t i = 0; i < order->count; i++) {
        const struct ng_comm *comm = ng_comm_at(order->condemned[i]);
        uint32_t fate = atomic_load(&comm->fate);
        if (fate != NG_FATE_CONDEMNED && fate != NG_FATE_ABORTING)
            continue;
        ng_comm_describe(comm, name, sizeof(name));
        ng_log(NG_LOG_ERROR, "abort_stuck: %s: %s for %.1f s", name,
               fate == NG_FATE_CONDEMNED ? "its abort has not begun"
                                         : "ncclCommAbort has not returned",
               seconds_since(order->begun_mono_ns));
    }
}

/* A communicator of the order that the program is ending itself; NULL none. */
static const struct ng_comm *left_to_program(const struct order *order)
{
    return NG_FIND_COMM(comm,
                        atomic_load(&comm->fate) == NG_FATE_PROGRAM_ENDS && lives(comm) &&
                            atomic_load(&comm->group->created_mono_ns) <= order->begun_mono_ns &&
                            is_meant(order, comm));
}

/* Sleep for a moment. False: timed out. */
static bool wait_for_program(int64_t until_mono_ns)
{
    if (until_mono_ns && ng_clock_mono_ns() >= until_mono_ns)
        return false;
    ng_clock_sleep(HANDLE_PAUSE_NS);
    return true;
}

/* Wait until all aborts have returned; when the bound passes, report the order as stuck and keep
 * waiting. */
static void await_all(struct order *order)
{
    bool insists = order->origin == NG_ABORT_POLICY;
    int64_t until = order->until_mono_ns;
    uint32_t left;

    while ((left = atomic_load(&order->crews_left)) != 0 || (insists && left_to_program(order))) {
        if (left ? ng_futex_wait_until(&order->crews_left, left, until) : wait_for_program(until))
            continue;
        until = 0;
        atomic_store(&order->stuck, true);
        ng_wake_incident();
        tell_stuck(order);
    }
}

static void carry_out(struct order *order)
{
    order->count = 0;
    condemn_all(order);
    /* Lets the watchdog retire finished work, so that it is not mistaken for work that the abort
     * ends. */
    ng_wake_watchdog();
    start_crews(order);
    await_all(order);
    ng_wake_watchdog();
    /* Before logging, since the log may hang. */
    atomic_store(&order->stuck, false);
    atomic_store(&any_returned[order->origin], true);
    atomic_store(&order->state, SETTLED);
    if (order->count)
        ng_log(NG_LOG_WARN, "%u communicator%s aborted in %.1f s: %s", order->count,
               order->count == 1 ? " was" : "s were", seconds_since(order->begun_mono_ns),
               order->reason);
    atomic_store(&order->state, FREE);
    ng_wake_incident();
}

static void *attend(void *unused)
{
    ng_guard.adopt_thread();
    for (uint32_t i = 0; i < ORDERS; i++) {
        uint32_t waiting = WAITING;
        if (atomic_compare_exchange_strong(&orders[i].state, &waiting, RUNNING)) {
            carry_out(&orders[i]);
            break;
        }
    }
    return unused;
}

/* Is there a communicator to abort or to wait for? */
static bool has_any(const struct order *order)
{
    NG_EACH_COMM (comm) {
        if (lives(comm) && ng_comm_is_let_live(comm) && is_meant(order, comm))
            return true;
    }
    return order->origin == NG_ABORT_POLICY && left_to_program(order);
}

/* A communicator of the order that its NCCL release does not allow to be aborted now; NULL none. */
static const struct ng_comm *forbidden(const struct order *order)
{
    return NG_FIND_COMM(comm, is_being_made(comm) && !atomic_load(&comm->mode.nonblocking) &&
                                  is_meant(order, comm) &&
                                  ng_init_abort_unsafe(atomic_load(&comm->nccl)->version));
}

/* Take an unused order; NULL all are in use. */
static struct order *take_order(void)
{
    for (uint32_t i = 0; i < ORDERS; i++) {
        uint32_t free = FREE;
        if (atomic_compare_exchange_strong(&orders[i].state, &free, PREPARED))
            return &orders[i];
    }
    return NULL;
}

int ng_abort_groups(const struct ng_group_set *scope, enum ng_verdict_kind kind, const char *reason,
                    enum ng_abort_origin origin)
{
    struct order *order = take_order();

    if (!order)
        return -EBUSY;
    order->scope = *scope;
    order->origin = origin;
    order->begun_mono_ns = ng_clock_mono_ns();
    order->until_mono_ns = order->begun_mono_ns + ng_guard.config.abort_wait_ns;
    order->kind = kind;
    snprintf(order->reason, sizeof(order->reason), "%s", reason);
    if (!has_any(order)) {
        atomic_store(&order->state, FREE);
        return -ENOENT;
    }
    const struct ng_comm *unsafe = forbidden(order);
    if (unsafe) {
        char name[160];
        int version = atomic_load(&unsafe->nccl)->version;
        ng_comm_describe(unsafe, name, sizeof(name));
        ng_log(NG_LOG_ERROR,
               "%s is being made, and NCCL %d.%d.%d lets no other thread abort that: %s", name,
               version >= 10000 ? version / 10000 : version / 1000,
               version >= 10000 ? version / 100 % 100 : version / 100 % 10, version % 100,
               ng_init_abort_unsafe(version));
        atomic_store(&order->state, FREE);
        return -EOPNOTSUPP;
    }
    atomic_store(&order->state, WAITING);
    int error = ng_guard_thread("ncclguard/await", attend);
    uint32_t waiting = WAITING;
    /* If no thread could be created, the thread of another order may have taken this one. */
    if (error && !atomic_compare_exchange_strong(&order->state, &waiting, FREE))
        error = 0;
    return error;
}

enum ng_abort_state ng_abort_state(enum ng_abort_origin origin)
{
    enum ng_abort_state gravest =
        atomic_load(&any_returned[origin]) ? NG_ABORT_RETURNED : NG_ABORT_NONE;

    for (uint32_t i = 0; i < ORDERS; i++) {
        uint32_t state = atomic_load(&orders[i].state);
        if ((state != WAITING && state != RUNNING) || orders[i].origin != origin)
            continue;
        if (atomic_load(&orders[i].stuck))
            return NG_ABORT_STUCK;
        gravest = NG_ABORT_UNDER_WAY;
    }
    return gravest;
}

bool ng_abort_concerns(uint64_t group_id)
{
    for (uint32_t i = 0; i < ORDERS; i++) {
        uint32_t state = atomic_load(&orders[i].state);
        if ((state == WAITING || state == RUNNING) && orders[i].origin == NG_ABORT_POLICY &&
            ng_group_set_holds(&orders[i].scope, group_id))
            return true;
    }
    return false;
}

/* ---- Why an abort does not return ---- */

/* Was work of this communicator captured into CUDA graphs, as far as the records of the black box
 * show? */
static bool was_captured(const struct ng_comm *comm)
{
    const struct ng_box *box = &ng_guard.box;

    if (ng_capture_holds(comm))
        return true;
    for (uint32_t i = 0; i < box->record_capacity; i++) {
        uint64_t id_state = atomic_load_explicit(&box->records[i].id_state, memory_order_acquire);
        if (ng_record_state(id_state) == NG_RECORD_CAPTURED &&
            NG_LOAD(box->records[i].group_slot) == comm->slot)
            return true;
    }
    return false;
}

/* In ascending order of likelihood that the other aborts wait for it: the greatest is reported. */
enum obstacle { NO_OBSTACLE, ITS_TURN, NOT_RETURNED, PROGRAM_INSIDE, LIVE_GRAPH, PROGRAM_ENDS };

static enum obstacle find_obstacle(const struct ng_comm *comm)
{
    uint32_t fate = atomic_load(&comm->fate);

    if (fate == NG_FATE_CONDEMNED)
        return ITS_TURN;
    if (fate != NG_FATE_ABORTING)
        return NO_OBSTACLE;
    return was_captured(comm)        ? LIVE_GRAPH
           : ng_in_flight_call(comm) ? PROGRAM_INSIDE
                                     : NOT_RETURNED;
}

static void describe(const struct order *order, const struct ng_comm *comm, enum obstacle obstacle,
                     struct ng_abort_stuck *ret_stuck)
{
    const struct ng_box_group *group = comm->group;
    uint32_t inside = ng_in_flight_call(comm);
    double seconds = seconds_since(order->begun_mono_ns);
    char *why = ret_stuck->why;
    size_t bytes = sizeof(ret_stuck->why);

    *ret_stuck = (struct ng_abort_stuck){.group_id = atomic_load(&group->id),
                                         .nranks = atomic_load(&group->nranks),
                                         .group_rank = atomic_load(&group->group_rank),
                                         .since_ns = ng_clock_mono_ns() - order->begun_mono_ns,
                                         .op = NG_OP_CommAbort};
    ng_box_read_name(group, ret_stuck->group_name);
    snprintf(ret_stuck->reason, sizeof(ret_stuck->reason), "%s", order->reason);
    switch (obstacle) {
    case PROGRAM_ENDS:
        ret_stuck->op = inside ? (enum ng_op)inside : NG_OP_CommDestroy;
        snprintf(why, bytes,
                 "the program is inside nccl%s on it, which has not returned for %.1f s, and which "
                 "no abort can interrupt",
                 ng_op_name(ret_stuck->op), seconds);
        break;
    case LIVE_GRAPH:
        snprintf(why, bytes,
                 "ncclCommAbort has not returned for %.1f s: work of this communicator was "
                 "captured into CUDA graphs, and NCCL waits until the program has destroyed all of "
                 "them",
                 seconds);
        break;
    case PROGRAM_INSIDE:
        snprintf(why, bytes,
                 "ncclCommAbort has not returned for %.1f s, and a thread of the program is still "
                 "inside nccl%s on it",
                 seconds, ng_op_name(inside));
        break;
    default:
        snprintf(why, bytes, "%s for %.1f s",
                 obstacle == ITS_TURN ? "its abort has not begun"
                                      : "ncclCommAbort has not returned",
                 seconds);
    }
}

bool ng_abort_stuck(struct ng_abort_stuck *ret_stuck)
{
    NG_EACH (order, orders, ORDERS) {
        if (!atomic_load(&order->stuck) || order->origin != NG_ABORT_POLICY)
            continue;
        const struct ng_comm *worst = left_to_program(order);
        enum obstacle obstacle = worst ? PROGRAM_ENDS : NO_OBSTACLE;
        for (uint32_t k = 0; k < order->count; k++) {
            const struct ng_comm *comm = ng_comm_at(order->condemned[k]);
            enum obstacle here = find_obstacle(comm);
            if (here > obstacle) {
                obstacle = here;
                worst = comm;
            }
        }
        if (!worst)
            continue;
        describe(order, worst, obstacle, ret_stuck);
        return true;
    }
    return false;
}

void ng_abort_after_fork(void)
{
    for (uint32_t i = 0; i < ORDERS; i++) {
        atomic_store(&orders[i].state, FREE);
        atomic_store(&orders[i].stuck, false);
        atomic_store(&orders[i].crews_left, 0);
        for (uint32_t library = 0; library < NG_NCCL_MAX; library++)
            atomic_store(&orders[i].crews[library].state, FREE);
    }
    for (uint32_t origin = 0; origin < NG_ABORT_ORIGINS; origin++)
        atomic_store(&any_returned[origin], false);
}
