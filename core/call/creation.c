/*
 * Creating and ending communicators.
 *
 * Entered by the program's threads. The handle of a communicator is available when the call
 * returns, when the NCCL group around it ends or, in nonblocking mode, some time later, as the
 * program's own queries to NCCL show. Must never block, nor query NCCL for anything that is
 * forbidden while a communicator is in progress.
 */
#include "core/call/creation.h"

#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>

#include "core/call/nonblocking.h"
#include "core/comm/comm.h"
#include "core/comm/ended.h"
#include "core/comm/in_flight_calls.h"
#include "core/comm/rules_file.h"
#include "core/comm/shared_resources.h"
#include "core/device/gpu.h"
#include "core/device/in_progress.h"
#include "core/device/poison.h"
#include "core/device/release.h"
#include "core/incident/program_requests.h"
#include "core/nccl/group_id.h"
#include "core/policy/abort.h"
#include "core/registration/registrations.h"
#include "core/runtime/runtime.h"
#include "core/runtime/wake.h"
#include "core/util/clock.h"
#include "core/util/log.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/watchdog/watchdog.h"

/* Children of nonblocking splits whose handle NCCL writes later. Protected by unbound_lock, which
 * nests inside nothing. */
static NG_FORGOTTEN pthread_mutex_t unbound_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ng_created unbound[64] NG_LARGE;
static NG_FORGOTTEN _Atomic uint32_t unbound_count;

/* Number of ncclCommInitAll calls of this process, for the group ids. */
static _Atomic uint32_t init_all_count;

/* The program has the communicator now. */
static void go_on_with(const struct ng_comm *comm)
{
    ng_poison_made(NG_LOAD(comm->group->created_mono_ns));
}

/* True: it is ready, and the program continues with it. */
static bool bind(struct ng_comm *comm, void *handle, bool made)
{
    if (!ng_comm_bind(comm, handle, made))
        return false;
    go_on_with(comm);
    return true;
}

struct ng_comm *ng_creation_adopt(const struct ng_call *call)
{
    struct ng_comm *comm = call->comm ? ng_comm_adopt(call->nccl, call->comm) : NULL;

    if (comm)
        go_on_with(comm);
    return comm;
}

/* By its own configuration, or its parent's. If the environment overrules that, NCCL's first "in
 * progress" reveals it. */
static bool is_nonblocking(const struct ng_nccl_config *config, const struct ng_comm *parent)
{
    if (config && NG_NCCL_CONFIG_SAYS_BLOCKING(config) &&
        (config->blocking == 0 || config->blocking == 1))
        return config->blocking == 0;
    return parent && atomic_load(&parent->mode.nonblocking);
}

/* The device that the call names for this rank; -1: the calling thread's current device. */
static int device_of(const struct ng_creation *creation, enum ng_op op, int rank)
{
    if (op != NG_OP_CommInitAll)
        return -1;
    return creation->list ? creation->list[rank] : rank;
}

static struct ng_comm *create_one(const struct ng_call *call, struct ng_thread *thread,
                                  struct ng_comm *parent, uint64_t id, int nranks, int rank,
                                  void **new_comm)
{
    struct ng_group_calls *calls = ng_thread_group_calls(thread, call->nccl);
    struct ng_comm *comm = calls ? ng_comm_create(call->nccl, call->op, id, nranks, rank,
                                                  ng_creation_name(call->creation))
                                 : NULL;
    struct ng_created *created = comm ? ng_thread_add_created(calls) : NULL;
    /* NCCL has not yet checked how many handles the program has room for. */
    bool early = new_comm && call->op != NG_OP_CommInitAll;

    if (!comm)
        return NULL;
    if (!created) {
        ng_comm_end(comm, NG_GROUP_FAILED);
        return NULL;
    }
    *created = (struct ng_created){.comm = comm,
                                   .new_comm = new_comm,
                                   .watched = call->comm,
                                   .before = early ? *new_comm : NULL,
                                   .generation = atomic_load(&comm->group->generation)};
    NG_STORE(comm->group->creator_tid, thread->tid);
    ng_comm_set_device(comm, device_of(call->creation, call->op, rank));
    ng_rules_file_apply(comm); /* rules may be for this device */
    ng_comm_find_twins(comm, parent);
    if (is_nonblocking(call->creation->config, parent))
        atomic_store(&comm->mode.nonblocking, true);
    if (ng_guard.registers)
        ng_shared_resources_make(comm, parent, call);
    /* An abort from another thread must be able to distinguish the new handle from the variable's
     * old value, and NCCL often reuses an address. */
    if (early)
        __atomic_store_n(new_comm, NULL, __ATOMIC_RELEASE);
    ng_comm_making(comm, early ? new_comm : NULL, parent);
    return comm;
}

/* NCCL has returned, and no longer writes the program's variable, except for a nonblocking
 * split. */
static void finish_making(const struct ng_created *created, int result)
{
    bool good = result == NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS;

    ng_comm_made(created->comm);
    if (created->before && !good && !*created->new_comm)
        *created->new_comm = created->before;
}

void ng_creation_invite(const struct ng_call *call, int result)
{
    struct ng_comm *comm = NULL;

    if (result == NG_NCCL_SUCCESS && call->recv_buffer)
        comm = ng_comm_find(call->comm);
    if (comm)
        atomic_store(&comm->invited_id, ng_group_id_unique(call->recv_buffer, 1));
}

/* The group id that joining ranks use for the grown communicator, if this rank has created the
 * unique id or passes it on; 0: not known. NCCL's own example passes the unique id to ncclCommGrow
 * on no rank of the parent, its performance test on all of them. */
static uint64_t invited_id(struct ng_comm *parent, const struct ng_creation *creation)
{
    uint64_t made = atomic_exchange(&parent->invited_id, 0);

    return creation->unique_ids ? ng_group_id_unique(creation->unique_ids, 1) : made;
}

/* Drop what this call was creating: it failed. */
static void drop_created(struct ng_group_calls *calls, const struct ng_call_context *context,
                         int result)
{
    while (calls->created_count > context->created_before) {
        const struct ng_created *created = &calls->created[--calls->created_count];
        finish_making(created, result);
        ng_comm_end(created->comm, NG_GROUP_FAILED);
    }
}

int ng_creation_enter(const struct ng_call *call, struct ng_thread *thread,
                      struct ng_call_context *context)
{
    const struct ng_creation *creation = call->creation;
    struct ng_comm *comm = NULL, *parent = NULL;
    const struct ng_box_header *header = ng_guard.box.header;
    struct ng_group_calls *calls = ng_thread_group_calls(thread, call->nccl);

    if (calls && calls->broken)
        return NG_NCCL_SYSTEM_ERROR;
    int ended = ng_comm_find(call->comm) ? NG_CALL_PROCEED : ng_ended_answer(call->comm, call->op);
    if (ended != NG_CALL_PROCEED)
        return ended;

    context->created_before = calls ? calls->created_count : 0;
    ng_guard_find_cuda(); /* each rank publishes its device before it waits for others */
    switch (call->op) {
    case NG_OP_CommInitAll: {
        uint64_t id = ng_group_id_init_all(header->host, header->pid, header->start_ticks,
                                           atomic_fetch_add(&init_all_count, 1) + 1);
        for (int i = 0; i < creation->nranks && i < (int)NG_COMM_CAPACITY; i++)
            create_one(call, thread, NULL, id, creation->nranks, i,
                       (void **)creation->new_comm + i);
        break;
    }
    case NG_OP_CommSplit:
    case NG_OP_CommShrink:
    case NG_OP_CommGrow: {
        parent = ng_comm_find(call->comm) ?: ng_creation_adopt(call);
        if (!parent) {
            /* A rank that joins a grown communicator has no parent; it knows the group only by the
             * unique id: core/view/grow_id.h. */
            if (creation->unique_ids)
                comm = create_one(call, thread, NULL, ng_group_id_unique(creation->unique_ids, 1),
                                  creation->nranks, creation->rank, creation->new_comm);
            if (comm && call->op == NG_OP_CommGrow)
                NG_STORE(comm->group->joined_id, NG_LOAD(comm->group->id));
            break;
        }
        if (ng_comm_is_condemned(parent) && !ng_comm_find_made(call->comm))
            return ng_abort_answer(parent, call);
        uint32_t ordinal = atomic_fetch_add(&parent->group->derived, 1) + 1;
        uint64_t parent_id = NG_LOAD(parent->group->id);
        if (call->op == NG_OP_CommSplit && creation->color < 0)
            break; /* takes part, but gets no communicator */
        uint64_t excluded = call->op == NG_OP_CommShrink
                                ? ng_group_id_excluded(creation->list, creation->list_count)
                                : 0;
        uint64_t id = call->op == NG_OP_CommShrink
                          ? ng_group_id_shrink(parent_id, ordinal, excluded)
                          : ng_group_id_split(parent_id, ordinal,
                                              call->op == NG_OP_CommSplit ? creation->color : 0);
        bool grows = call->op == NG_OP_CommGrow; /* the parent's ranks keep their numbers */
        comm = create_one(call, thread, parent, id, grows ? creation->nranks : 0,
                          grows ? NG_LOAD(parent->group->group_rank) : -1, creation->new_comm);
        if (comm) {
            NG_STORE(comm->group->ordinal, ordinal);
            NG_STORE(comm->group->excluded, excluded);
            if (call->op == NG_OP_CommSplit)
                NG_STORE(comm->group->color, creation->color);
            /* From now on core/view/grow_id.c may derive the id again and publish it. */
            atomic_store_explicit(&comm->group->parent_id, parent_id, memory_order_release);
            if (call->op == NG_OP_CommGrow)
                atomic_store_explicit(&comm->group->joined_id, invited_id(parent, creation),
                                      memory_order_release);
            ng_rules_file_apply(comm);
        }
        break;
    }
    default:
        if (creation->unique_ids)
            comm = create_one(call, thread, NULL,
                              ng_group_id_unique(creation->unique_ids, creation->unique_id_count),
                              creation->nranks, creation->rank, creation->new_comm);
        if (comm && creation->unique_ids)
            atomic_store(&comm->nccl_hash, ng_group_id_nccl(creation->unique_ids,
                                                            NG_LOAD(comm->group->nccl_version)));
    }
    ng_thread_enter(thread, call->op, parent ? parent : comm, 0, 0, ng_clock_mono_ns());
    if (!parent || !ng_comm_is_shut_now(parent) || !ng_in_flight_await(parent)) {
        /* The resources shared with its parent are in use from here on. */
        if (ng_guard.registers && parent && comm)
            ng_registrations_hold(comm);
        return NG_CALL_PROCEED;
    }
    int result = ng_abort_answer(parent, call);
    ng_thread_leave(thread);
    if (calls)
        drop_created(calls, context, result);
    return result;
}

/* Under way in nonblocking mode: the handle, or what NCCL reports about it, is available later. */
static void keep_unfinished(const struct ng_created *created)
{
    NG_HOLD(&unbound_lock);
    uint32_t count = unbound_count;
    if (count < NG_COUNT(unbound)) {
        unbound[count] = *created;
        atomic_store(&unbound_count, count + 1);
    } else {
        ng_comm_end(created->comm, NG_GROUP_FAILED);
    }
}

/* The handle of a nonblocking child may be written later although NCCL returns success: it does so
 * while a split, a shrink or a grow is under way (2.28.9). */
static bool is_under_way(const struct ng_created *created, int result, const void *handle)
{
    return result == NG_NCCL_IN_PROGRESS ||
           (result == NG_NCCL_SUCCESS && !handle && atomic_load(&created->comm->mode.nonblocking));
}

static __attribute__((noinline)) void bind_created(struct ng_group_calls *calls,
                                                   struct ng_thread *thread, int result)
{
    /* By now NCCL has loaded the driver, if the program had not done so. */
    ng_guard_find_cuda();
    NG_EACH (created, calls->created, calls->created_count) {
        bool good = result == NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS;
        bool condemned = ng_comm_is_condemned(created->comm);
        void *handle = (good || condemned) && created->new_comm ? *created->new_comm : NULL;
        /* If the guard aborts it, later calls of the program with this handle must not reach
         * NCCL. */
        if (handle && bind(created->comm, handle, result == NG_NCCL_SUCCESS))
            ng_gpu_prepare(created->comm);
        if (ng_guard.registers && handle && result == NG_NCCL_SUCCESS)
            ng_registrations_made(created->comm);
        finish_making(created, result);
        if (condemned && thread) {
            thread->not_made = created->comm;
            thread->not_made_generation = created->generation;
        }
        if (condemned)
            continue;
        if (is_under_way(created, result, handle)) {
            atomic_store(&created->comm->mode.nonblocking, true);
            if (handle)
                created->watched = handle;
            keep_unfinished(created);
        } else if (!handle) {
            ng_comm_end(created->comm, NG_GROUP_FAILED);
        }
    }
    calls->created_count = 0;
    if (ng_guard_cuda())
        ng_watchdog_meet();
}

void ng_creation_bind(struct ng_group_calls *calls, int result)
{
    struct ng_thread *thread = ng_this_thread;

    if (thread)
        thread->not_made = NULL;
    if (calls->created_count > 0)
        bind_created(calls, thread, result);
}

/*
 * The program has asked for the state of `watched`. Once that is no longer in progress, the
 * communicators created from it are finished: NCCL has written their handles, so they can be read,
 * and accepts queries.
 */
static void bind_finished(const struct ng_call *call)
{
    int state;

    if (!call->comm || !call->nccl->comm_get_async_error ||
        call->nccl->comm_get_async_error(call->comm, &state) != NG_NCCL_SUCCESS ||
        state == NG_NCCL_IN_PROGRESS)
        return;
    NG_HOLD(&unbound_lock);
    uint32_t kept = 0;
    NG_EACH (created, unbound, unbound_count) {
        uint32_t life = atomic_load(&created->comm->group->state);
        /* Ended meanwhile: its record, its handle and the program's variable may have been
         * reused. */
        if (created->generation != atomic_load(&created->comm->group->generation) ||
            (life != NG_GROUP_CREATING && life != NG_GROUP_READY))
            continue;
        if (created->watched != call->comm) {
            unbound[kept++] = *created;
            continue;
        }
        void *handle = atomic_load(&created->comm->handle);
        if (state == NG_NCCL_SUCCESS && !handle && *created->new_comm)
            bind(created->comm, *created->new_comm, true);
        else if (state == NG_NCCL_SUCCESS && handle)
            bind(created->comm, handle, true);
        else if (!handle)
            ng_comm_end(created->comm, NG_GROUP_FAILED);
    }
    atomic_store(&unbound_count, kept);
}

void ng_creation_poll(const struct ng_call *call, int result)
{
    if (__builtin_expect(atomic_load_explicit(&unbound_count, memory_order_relaxed) > 0, 0) &&
        result == NG_NCCL_SUCCESS)
        bind_finished(call);
}

void ng_creation_leave(const struct ng_call *call, const struct ng_call_context *context,
                       int result)
{
    struct ng_group_calls *calls = ng_thread_group_calls(context->thread, call->nccl);
    bool good = result == NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS;

    if (ng_guard.registers && call->comm && calls && calls->created_count > context->created_before)
        ng_registrations_let_go(calls->created[context->created_before].comm);
    /* The handles are written at the end of the group, which keeps the entries until then. */
    for (uint32_t i = context->created_before;
         calls && calls->depth && good && i < calls->created_count; i++) {
        calls->created[i].in_group = true;
        atomic_fetch_add(&calls->created[i].comm->in_flight.open_groups, 1);
    }
    if (result == NG_NCCL_IN_PROGRESS && !(calls && calls->depth))
        ng_in_progress_stay_here(context->thread);
    else
        ng_thread_leave(context->thread);
    if (!calls || (calls->depth && good))
        return;
    if (calls->depth) /* Only this call failed; other calls of the group may still succeed. */
        drop_created(calls, context, result);
    else
        ng_creation_bind(calls, result);
}

static bool ends_handle(enum ng_op op)
{
    return op == NG_OP_CommDestroy || op == NG_OP_CommAbort;
}

/* False: the guard or another thread of the program is ending it. */
static bool claim_end(struct ng_comm *comm)
{
    uint32_t lives;

    do {
        lives = NG_FATE_LIVES;
        ng_in_flight_await(comm);
    } while (!atomic_compare_exchange_strong(&comm->fate, &lives, NG_FATE_PROGRAM_ENDS) &&
             lives == NG_FATE_HELD);
    return lives == NG_FATE_LIVES;
}

/* From this release on ncclCommDestroy waits for the ranks of its host, without a deadline. */
#define VERSION_DESTROY_WAITS 23102
#define QUITTERS_WAIT_NS      NG_S

/* An abort would end the work that ncclCommDestroy lets finish, and leave garbage where the program
 * expects its result. False: it does not finish. */
static bool await_works(const struct ng_comm *comm)
{
    int64_t until = ng_clock_mono_ns() + ng_guard.config.abort_wait_ns;

    while (ng_comm_has_works(comm)) {
        if (!atomic_load(&ng_guard.running) || ng_clock_mono_ns() >= until)
            return false;
        ng_wake_await_rounds(until);
    }
    return true;
}

/* Would ncclCommDestroy wait for a rank that will never come to it, and for nothing else? */
static bool waits_for_quitter(const struct ng_call *call, const struct ng_comm *comm)
{
    uint64_t id = NG_LOAD(comm->group->id);
    bool any = false;

    if (call->op != NG_OP_CommDestroy || call->nccl->version < VERSION_DESTROY_WAITS ||
        !call->nccl->comm_abort || NG_LOAD(comm->group->nranks) < 2 ||
        ng_program_request_quitters(id, ng_clock_mono_ns() + QUITTERS_WAIT_NS, &any) != 0 || !any ||
        !await_works(comm))
        return false;
    ng_log(NG_LOG_WARN,
           "ncclCommDestroy of group %016" PRIx64 ": a rank has aborted this communicator or has "
           "ended, and NCCL would wait for it for ever: it is aborted instead",
           id);
    return true;
}

/* Carries out the program's ncclCommDestroy as an abort. */
static int abort_instead(const struct ng_call *call, const struct ng_call_context *context)
{
    struct ng_call aborts = *call;

    aborts.op = NG_OP_CommAbort;
    ng_watchdog_cut_off(context->comm);
    return ng_ending_leave(&aborts, context, call->nccl->comm_abort(call->comm));
}

static void let_go(const struct ng_call_context *context)
{
    if (context->turn)
        ng_shared_resources_let_go(context->turn);
}

int ng_ending_enter(const struct ng_call *call, struct ng_thread *thread,
                    struct ng_call_context *context)
{
    const struct ng_group_calls *calls = ng_thread_open_group(thread, call->nccl);
    struct ng_comm *comm = ng_comm_find(call->comm);

    if (calls && calls->broken)
        return NG_NCCL_SYSTEM_ERROR;
    /* Another thread may be inside the call that creates it: an abort is its way out. */
    if (!comm || ng_comm_is_condemned(comm)) {
        struct ng_comm *made = ng_comm_find_made(call->comm);
        comm = made ? made : comm;
    }
    context->comm = comm;
    context->turn = NULL;
    if (!comm)
        return ng_ended_answer(call->comm, call->op);
    ng_thread_enter(thread, call->op, comm, 0, 0, ng_clock_mono_ns());
    /* Either the program ends it, or the guard does, but never both. */
    if (ends_handle(call->op) && claim_end(comm)) {
        if (call->op == NG_OP_CommAbort)
            ng_watchdog_cut_off(comm);
        ng_release_await(comm);
    } else if (ng_comm_is_shut_now(comm)) {
        ng_in_flight_await(comm);
    }
    if (ng_guard.registers && (ends_handle(call->op) || call->op == NG_OP_CommFinalize))
        context->turn = ng_registrations_end(comm, call->op != NG_OP_CommAbort);
    if (!ng_comm_is_condemned_now(comm))
        return !calls && waits_for_quitter(call, comm) ? abort_instead(call, context)
                                                       : NG_CALL_PROCEED;
    let_go(context);
    ng_thread_leave(thread);
    return ng_abort_answer(comm, call);
}

static void finalize(struct ng_comm *comm)
{
    uint32_t ready = NG_GROUP_READY;
    atomic_compare_exchange_strong(&comm->group->state, &ready, NG_GROUP_FINALIZED);
}

int ng_ending_leave(const struct ng_call *call, const struct ng_call_context *context, int result)
{
    struct ng_comm *comm = context->comm;
    uint32_t ends = NG_FATE_PROGRAM_ENDS;
    struct ng_group_calls *calls = ng_thread_open_group(context->thread, call->nccl);

    if (!ends_handle(call->op))
        result = ng_nonblocking_finish(comm, calls, context->thread, result);
    let_go(context);
    if (comm && result == NG_NCCL_IN_PROGRESS && !calls)
        ng_in_progress_stay(comm, context->thread);
    else
        ng_thread_leave(context->thread);
    if (!comm)
        return result;
    /* NCCL 2.28.9 returns success for a finalize whose communicator an abort has freed. */
    if (call->op == NG_OP_CommFinalize && result == NG_NCCL_SUCCESS && ng_comm_is_condemned(comm))
        result = comm->abort.result;
    if (result != NG_NCCL_SUCCESS && result != NG_NCCL_IN_PROGRESS) {
        if (ends_handle(call->op) &&
            atomic_compare_exchange_strong(&comm->fate, &ends, NG_FATE_LIVES))
            atomic_store(&comm->cut_off, false);
        return result;
    }
    switch (call->op) {
    case NG_OP_CommFinalize:
        finalize(comm);
        break;
    case NG_OP_CommDestroy:
    case NG_OP_CommAbort:
        ng_in_progress_end(comm);
        /* Otherwise the creating call on another thread ends the record when it returns. */
        if (!ng_comm_is_being_made(comm))
            ng_comm_end(comm,
                        call->op == NG_OP_CommDestroy ? NG_GROUP_DESTROYED : NG_GROUP_ABORTED);
        break;
    default:
        break;
    }
    return result;
}
