/*
 * A call's way through core: communicator, record, events.
 *
 * Steps 2 to 4 before the real function, step 6 after it. Entered by the program's threads. Must
 * never block, change errno or NCCL's result; what cannot be recorded goes through unrecorded, and
 * is counted.
 */
#include "core/call.h"

#include <pthread.h>
#include <string.h>

#include "core/clock.h"
#include "core/comm.h"
#include "core/gpu.h"
#include "core/group_id.h"
#include "core/guard.h"
#include "core/log.h"
#include "core/ring.h"
#include "core/thread.h"

/* The head of ncclConfig_t up to commName (2.27), which is append-only; `size` says how much of it
 * the caller has. */
struct config_head {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
};
#define CONFIG_MAGIC 0xcafebeefu

/* Children of nonblocking splits whose handle NCCL writes later. Protected by its mutex; nests
 * inside nothing. */
static pthread_mutex_t unbound_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ng_created unbound[64];
static _Atomic uint32_t unbound_count;

/* ncclCommInitAll calls of this process, for their ids. */
static _Atomic uint32_t init_all_count;

static inline void enter_slot(struct ng_thread *thread, enum ng_op op, const struct ng_comm *comm,
                              uint64_t record_id, uint64_t seq, int64_t now_mono_ns)
{
    struct ng_box_thread *slot = thread->slot;

    NG_STORE(slot->group_slot, comm ? comm->slot : UINT32_MAX);
    NG_STORE(slot->record_id, record_id);
    NG_STORE(slot->seq, seq);
    NG_STORE(slot->since_mono_ns, now_mono_ns);
    atomic_store_explicit(&slot->op, op, memory_order_release);
}

/* A communicator that was made behind our back. */
static struct ng_comm *adopt(const struct ng_call *call)
{
    return call->comm ? ng_comm_adopt(call->nccl, call->comm) : NULL;
}

/* ---- Work on a stream ---- */

/* A communicator is called from one thread at a time (NCCL's rule), so its counters are plain loads
 * and stores. */
static inline uint64_t count_up(_Atomic uint64_t *counter)
{
    uint64_t next = atomic_load_explicit(counter, memory_order_relaxed) + 1;
    atomic_store_explicit(counter, next, memory_order_release);
    return next;
}

static uint64_t count_peer(struct ng_comm *comm, const struct ng_call *call)
{
    struct ng_peer_count *peer = ng_comm_peer(comm, call->root);

    if (!peer)
        return 0;
    return 1 + atomic_fetch_add_explicit(call->op == NG_OP_Send ? &peer->sends : &peer->receives, 1,
                                         memory_order_relaxed);
}

/* Without records, the group itself remembers its newest call. */
static void keep_last(struct ng_box_group *group, const struct ng_call *call)
{
    NG_STORE(group->last_call, ng_box_pack_call(call->op, call->dtype, call->root));
    NG_STORE(group->last_redop, call->redop);
    NG_STORE(group->last_count, call->count);
}

static inline __attribute__((always_inline)) void enter_work(const struct ng_call *call, bool p2p,
                                                             struct ng_passage *ret_passage)
{
    struct ng_passage *passage = ret_passage;
    uint64_t coll_seq, p2p_seq, peer_ordinal = 0;

    passage->thread = NULL;
    if (__builtin_expect(!atomic_load_explicit(&ng_guard.running, memory_order_acquire), 0) &&
        !ng_guard_start())
        return;
    struct ng_thread *thread = ng_thread_get();
    struct ng_comm *comm = ng_comm_find(call->comm);
    if (__builtin_expect(!comm, 0))
        comm = adopt(call);
    if (__builtin_expect(!thread || !comm, 0))
        return;
    struct ng_box_group *group = comm->group;
    int64_t now = ng_clock_mono_ns();
    uint32_t flags = thread->group_depth ? NG_RECORD_IN_GROUP : 0;
    if (p2p) {
        coll_seq = NG_LOAD(group->entered);
        p2p_seq = count_up(&group->p2p_entered);
        peer_ordinal = count_peer(comm, call);
        flags |= NG_RECORD_P2P;
    } else {
        coll_seq = NG_LOAD(group->entered) + 1;
        p2p_seq = NG_LOAD(group->p2p_entered);
        if (call->send_buffer == call->recv_buffer)
            flags |= NG_RECORD_IN_PLACE;
    }
    passage->thread = thread;
    passage->comm = comm;
    passage->seq = coll_seq;
    passage->entered_mono_ns = now;
    passage->work = NULL;
    passage->capturing = false;
    passage->record = ng_ring_add(call, comm, thread->tid, now, coll_seq, p2p_seq, peer_ordinal,
                                  flags, &passage->record_id);
    if (!p2p) {
        NG_STORE(group->entered_record, passage->record_id);
        if (__builtin_expect(!passage->record, 0))
            keep_last(group, call);
        atomic_store_explicit(&group->entered, coll_seq, memory_order_release);
    }
    enter_slot(thread, call->op, comm, passage->record_id, p2p ? 0 : coll_seq, now);
    if (thread->group_depth)
        return;
    struct ng_gpu *gpu = ng_gpu_of(comm, call->stream, &passage->capturing);
    if (__builtin_expect(gpu != NULL, 1)) {
        passage->work = ng_gpu_take(gpu);
        if (__builtin_expect(passage->work != NULL, 1))
            ng_gpu_record_start(passage->work, call->stream);
    }
}

/* NCCL refused the call: it did not happen, and the group's numbering must stay that of the other
 * ranks. */
static void undo_one(struct ng_comm *comm, enum ng_op op, int root)
{
    if (ng_op_table[op].op_class == NG_CLASS_P2P) {
        struct ng_peer_count *peer = ng_comm_peer(comm, root);
        atomic_fetch_sub_explicit(&comm->group->p2p_entered, 1, memory_order_relaxed);
        if (peer)
            atomic_fetch_sub_explicit(op == NG_OP_Send ? &peer->sends : &peer->receives, 1,
                                      memory_order_relaxed);
    } else {
        atomic_fetch_sub_explicit(&comm->group->entered, 1, memory_order_relaxed);
    }
}

/* The whole chain of records of a work that is not handed to the watchdog. */
static void set_chain_state(uint64_t id, enum ng_record_state state)
{
    while (id) {
        struct ng_box_record *record = ng_ring_find(id);
        if (!record)
            return;
        uint64_t previous = NG_LOAD(record->work_previous);
        ng_ring_set_state(id, state);
        id = previous;
    }
}

/* Hand a work whose end is recorded to the watchdog. Its records are visible as scheduled before it
 * can finish. */
static inline void hand_over(struct ng_comm *comm, struct ng_work *work)
{
    work->timeout_ns = ng_guard.config.timeout_ns;
    struct ng_work *head = atomic_load_explicit(&comm->incoming, memory_order_relaxed);
    do
        work->next = head;
    while (!atomic_compare_exchange_weak_explicit(&comm->incoming, &head, work,
                                                  memory_order_release, memory_order_relaxed));
}

/* Nobody will see this work finish: it was captured, NCCL launches it later, or no event was to be
 * had. */
static inline void give_up(struct ng_work *work, bool capturing)
{
    if (work)
        ng_gpu_give(work);
    if (!capturing)
        atomic_fetch_add_explicit(&ng_guard.box.header->records_lost, 1, memory_order_relaxed);
}

static inline enum ng_record_state unseen_state(bool capturing)
{
    return capturing ? NG_RECORD_CAPTURED : NG_RECORD_UNWATCHED;
}

static inline void fill_work(struct ng_work *work, uint64_t last_record, uint64_t first_seq,
                             uint64_t last_seq, uint32_t p2p_count, int64_t entered_mono_ns)
{
    work->last_record = last_record;
    work->first_seq = first_seq;
    work->last_seq = last_seq;
    work->p2p_count = p2p_count;
    work->entered_mono_ns = entered_mono_ns;
}

/* A NCCL group was closed, and NCCL took what is on one communicator and stream. */
static void close_work(struct ng_pending *pending, int result)
{
    struct ng_work *work = pending->work;

    if (pending->last_seq)
        NG_STORE(pending->comm->group->scheduled, pending->last_seq);
    /* In progress: NCCL launches later, from a thread of its own; an event recorded now would come
     * too early. */
    if (!work || result != NG_NCCL_SUCCESS ||
        !ng_gpu_record(work->gpu, work->end, pending->stream)) {
        give_up(work, pending->capturing);
        set_chain_state(pending->last_record, unseen_state(pending->capturing));
        return;
    }
    fill_work(work, pending->last_record, pending->first_seq, pending->last_seq, pending->p2p_count,
              pending->entered_mono_ns);
    set_chain_state(pending->last_record, NG_RECORD_SCHEDULED);
    hand_over(pending->comm, work);
}

/* Inside a NCCL group: remember the call until the group is closed. */
static void keep_for_group_end(const struct ng_call *call, bool p2p,
                               const struct ng_passage *passage)
{
    struct ng_thread *thread = passage->thread;
    struct ng_pending *pending = NULL;

    for (uint32_t i = thread->pending_count; i > 0 && !pending; i--)
        if (thread->pending[i - 1].comm == passage->comm &&
            thread->pending[i - 1].stream == call->stream)
            pending = &thread->pending[i - 1];
    if (!pending) {
        pending = ng_thread_add_pending(thread);
        if (!pending)
            return;
        *pending = (struct ng_pending){.comm = passage->comm,
                                       .stream = call->stream,
                                       .entered_mono_ns = passage->entered_mono_ns};
    }
    if (passage->record) {
        NG_STORE(passage->record->work_previous, pending->last_record);
        pending->last_record = passage->record_id;
    }
    if (p2p) {
        pending->p2p_count++;
    } else {
        if (!pending->first_seq)
            pending->first_seq = passage->seq;
        pending->last_seq = passage->seq;
    }
}

static void fail_work(const struct ng_call *call, const struct ng_passage *passage, int result)
{
    if (passage->record) {
        NG_STORE(passage->record->result, result);
        ng_ring_advance(passage->record, passage->record_id, NG_RECORD_FAILED);
    }
    if (passage->work)
        ng_gpu_give(passage->work);
    undo_one(passage->comm, call->op, call->root);
}

static inline __attribute__((always_inline)) void leave_work(const struct ng_call *call, bool p2p,
                                                             struct ng_passage *passage, int result)
{
    struct ng_thread *thread = passage->thread;

    if (__builtin_expect(!thread, 0))
        return;
    struct ng_comm *comm = passage->comm;
    struct ng_work *work = passage->work;
    atomic_store_explicit(&thread->slot->op, 0, memory_order_release);
    if (__builtin_expect(result != NG_NCCL_SUCCESS && result != NG_NCCL_IN_PROGRESS, 0)) {
        fail_work(call, passage, result);
        return;
    }
    if (thread->group_depth) {
        keep_for_group_end(call, p2p, passage);
        return;
    }
    uint64_t seq = p2p ? 0 : passage->seq;
    if (!p2p)
        NG_STORE(comm->group->scheduled, seq);
    if (__builtin_expect(!work || result != NG_NCCL_SUCCESS ||
                             !ng_gpu_record(work->gpu, work->end, call->stream),
                         0)) {
        give_up(work, passage->capturing);
        ng_ring_advance(passage->record, passage->record_id, unseen_state(passage->capturing));
        return;
    }
    fill_work(work, passage->record_id, seq, seq, p2p, passage->entered_mono_ns);
    ng_ring_advance(passage->record, passage->record_id, NG_RECORD_SCHEDULED);
    hand_over(comm, work);
}

void ng_collective_enter(const struct ng_call *call, struct ng_passage *ret_passage)
{
    enter_work(call, false, ret_passage);
}

void ng_collective_leave(const struct ng_call *call, struct ng_passage *passage, int result)
{
    leave_work(call, false, passage, result);
}

void ng_p2p_enter(const struct ng_call *call, struct ng_passage *ret_passage)
{
    enter_work(call, true, ret_passage);
}

void ng_p2p_leave(const struct ng_call *call, struct ng_passage *passage, int result)
{
    leave_work(call, true, passage, result);
}

/* ---- NCCL groups ---- */

static void enter_group(const struct ng_call *call, struct ng_thread *thread)
{
    if (call->op != NG_OP_GroupEnd || thread->group_depth != 1)
        return;
    for (uint32_t i = 0; i < thread->pending_count; i++) {
        struct ng_pending *pending = &thread->pending[i];
        struct ng_gpu *gpu = ng_gpu_of(pending->comm, pending->stream, &pending->capturing);
        pending->work = gpu ? ng_gpu_take(gpu) : NULL;
        if (pending->work)
            ng_gpu_record_start(pending->work, pending->stream);
    }
    /* Named after the first communicator in the group; the whole group waits in this call. */
    const struct ng_comm *comm = thread->pending_count   ? thread->pending[0].comm
                                 : thread->created_count ? thread->created[0].comm
                                                         : NULL;
    enter_slot(thread, call->op, comm, 0, thread->pending_count ? thread->pending[0].first_seq : 0,
               ng_clock_mono_ns());
}

static void bind_created(struct ng_thread *thread, int result);

/* None of these calls happened. */
static void undo_chain(const struct ng_pending *pending)
{
    uint64_t id = pending->last_record;

    while (id) {
        struct ng_box_record *record = ng_ring_find(id);
        if (!record)
            return;
        uint64_t previous = NG_LOAD(record->work_previous);
        undo_one(pending->comm, (enum ng_op)NG_LOAD(record->op), NG_LOAD(record->root));
        ng_ring_set_state(id, NG_RECORD_FAILED);
        id = previous;
    }
}

static void leave_group(const struct ng_call *call, struct ng_thread *thread, int result)
{
    if (call->op == NG_OP_GroupStart) {
        if (result == NG_NCCL_SUCCESS)
            thread->group_depth++;
        NG_STORE(thread->slot->group_depth, thread->group_depth);
        return;
    }
    atomic_store_explicit(&thread->slot->op, 0, memory_order_release);
    if (!thread->group_depth || --thread->group_depth) {
        NG_STORE(thread->slot->group_depth, thread->group_depth);
        return;
    }
    NG_STORE(thread->slot->group_depth, 0);
    bool taken =
        call->op == NG_OP_GroupEnd && (result == NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS);
    for (uint32_t i = 0; i < thread->pending_count; i++) {
        struct ng_pending *pending = &thread->pending[i];
        if (taken) {
            close_work(pending, result);
            continue;
        }
        /* The group failed as a whole, or was only simulated. */
        if (pending->work)
            ng_gpu_give(pending->work);
        undo_chain(pending);
    }
    thread->pending_count = 0;
    bind_created(thread, result);
}

/* ---- Making and ending communicators ---- */

static void set_name(struct ng_comm *comm, const struct ng_creation *creation)
{
    const struct config_head *config = creation->config;

    if (config && config->magic == CONFIG_MAGIC && config->size >= sizeof(*config) &&
        config->comm_name)
        strncpy(comm->group->name, config->comm_name, sizeof(comm->group->name) - 1);
}

static struct ng_comm *create_one(const struct ng_call *call, struct ng_thread *thread, uint64_t id,
                                  int nranks, int rank, void **new_comm)
{
    struct ng_comm *comm = ng_comm_create(call->nccl, call->op, id, nranks, rank);
    struct ng_created *created = comm ? ng_thread_add_created(thread) : NULL;

    if (!comm)
        return NULL;
    if (!created) {
        ng_comm_end(comm, NG_GROUP_FAILED);
        return NULL;
    }
    *created = (struct ng_created){.comm = comm,
                                   .new_comm = new_comm,
                                   .watched = call->comm,
                                   .generation = atomic_load(&comm->group->generation)};
    set_name(comm, call->creation);
    return comm;
}

static void enter_create(const struct ng_call *call, struct ng_thread *thread)
{
    const struct ng_creation *creation = call->creation;
    struct ng_comm *comm = NULL, *parent = NULL;
    const struct ng_box_header *header = ng_guard.box.header;

    switch (call->op) {
    case NG_OP_CommInitAll: {
        uint64_t id = ng_group_id_init_all(header->host, header->pid, header->start_ticks,
                                           atomic_fetch_add(&init_all_count, 1) + 1);
        for (int i = 0; i < creation->nranks && i < (int)NG_COMM_CAPACITY; i++)
            create_one(call, thread, id, creation->nranks, i, (void **)creation->new_comm + i);
        break;
    }
    case NG_OP_CommSplit:
    case NG_OP_CommShrink:
    case NG_OP_CommGrow: {
        parent = ng_comm_find(call->comm);
        if (!parent)
            parent = adopt(call);
        if (!parent) {
            /* A rank that joins a grown communicator has no parent of its own; only the id tells
             * it. */
            if (creation->unique_ids)
                comm = create_one(call, thread, ng_group_id_unique(creation->unique_ids, 1),
                                  creation->nranks, creation->rank, creation->new_comm);
            break;
        }
        uint32_t ordinal = atomic_fetch_add(&parent->group->derived, 1) + 1;
        uint64_t parent_id = NG_LOAD(parent->group->id);
        if (call->op == NG_OP_CommSplit && creation->color < 0)
            break; /* takes part, gets nothing */
        uint64_t id =
            call->op == NG_OP_CommShrink
                ? ng_group_id_shrink(parent_id, ordinal, creation->list, creation->list_count)
            : call->op == NG_OP_CommGrow && creation->unique_ids
                ? ng_group_id_unique(creation->unique_ids, 1)
                : ng_group_id_split(parent_id, ordinal,
                                    call->op == NG_OP_CommSplit ? creation->color : 0);
        comm = create_one(call, thread, id, call->op == NG_OP_CommGrow ? creation->nranks : 0, -1,
                          creation->new_comm);
        if (comm) {
            NG_STORE(comm->group->parent_id, parent_id);
            NG_STORE(comm->group->ordinal, ordinal);
            if (call->op == NG_OP_CommSplit)
                NG_STORE(comm->group->color, creation->color);
        }
        break;
    }
    default:
        if (creation->unique_ids)
            comm = create_one(call, thread,
                              ng_group_id_unique(creation->unique_ids, creation->unique_id_count),
                              creation->nranks, creation->rank, creation->new_comm);
    }
    enter_slot(thread, call->op, parent ? parent : comm, 0, 0, ng_clock_mono_ns());
}

/* Under way in nonblocking mode: the handle, or what NCCL can tell of it, comes later. */
static void keep_unfinished(const struct ng_created *created)
{
    pthread_mutex_lock(&unbound_lock);
    uint32_t count = unbound_count;
    if (count < sizeof(unbound) / sizeof(unbound[0])) {
        unbound[count] = *created;
        atomic_store(&unbound_count, count + 1);
    } else if (!atomic_load(&created->comm->handle)) {
        ng_comm_end(created->comm, NG_GROUP_FAILED);
    }
    pthread_mutex_unlock(&unbound_lock);
}

static void bind_created(struct ng_thread *thread, int result)
{
    /* By now NCCL has loaded the driver, if the program had not. */
    ng_guard_find_cuda();
    for (uint32_t i = 0; i < thread->created_count; i++) {
        struct ng_created *created = &thread->created[i];
        bool good = result == NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS;
        void *handle = good && created->new_comm ? *created->new_comm : NULL;
        if (handle)
            ng_comm_bind(created->comm, handle, result == NG_NCCL_SUCCESS);
        if (result == NG_NCCL_IN_PROGRESS) {
            if (handle)
                created->watched = handle;
            keep_unfinished(created);
        } else if (!handle) {
            ng_comm_end(created->comm, NG_GROUP_FAILED);
        }
    }
    thread->created_count = 0;
}

/*
 * The program has asked for the state of `watched`. Once that is no longer in progress, what was
 * made from it is finished: NCCL has written the handle, which therefore is still there to be read,
 * and answers questions.
 */
static void bind_finished(const struct ng_call *call)
{
    int state;

    if (!call->comm || !call->nccl->comm_get_async_error ||
        call->nccl->comm_get_async_error(call->comm, &state) != NG_NCCL_SUCCESS ||
        state == NG_NCCL_IN_PROGRESS)
        return;
    pthread_mutex_lock(&unbound_lock);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < unbound_count; i++) {
        struct ng_created *created = &unbound[i];
        uint32_t life = atomic_load(&created->comm->group->state);
        /* Ended meanwhile: its record, its handle and the program's variable may mean something
         * else by now. */
        if (created->generation != atomic_load(&created->comm->group->generation) ||
            (life != NG_GROUP_CREATING && life != NG_GROUP_READY))
            continue;
        if (created->watched != call->comm) {
            unbound[kept++] = *created;
            continue;
        }
        void *handle = atomic_load(&created->comm->handle);
        if (state == NG_NCCL_SUCCESS && !handle && *created->new_comm)
            ng_comm_bind(created->comm, *created->new_comm, true);
        else if (state == NG_NCCL_SUCCESS && handle)
            ng_comm_ask(created->comm, handle);
        else if (!handle)
            ng_comm_end(created->comm, NG_GROUP_FAILED);
    }
    atomic_store(&unbound_count, kept);
    pthread_mutex_unlock(&unbound_lock);
}

static void leave_create(struct ng_thread *thread, uint32_t created_before, int result)
{
    atomic_store_explicit(&thread->slot->op, 0, memory_order_release);
    if (thread->group_depth && (result == NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS))
        return; /* the handles come with the end of the group */
    if (thread->group_depth) {
        /* Only this call failed; the others of the group may still succeed. */
        while (thread->created_count > created_before)
            ng_comm_end(thread->created[--thread->created_count].comm, NG_GROUP_FAILED);
        return;
    }
    bind_created(thread, result);
}

static struct ng_comm *enter_end(const struct ng_call *call, struct ng_thread *thread)
{
    struct ng_comm *comm = ng_comm_find(call->comm);

    if (comm)
        enter_slot(thread, call->op, comm, 0, 0, ng_clock_mono_ns());
    return comm;
}

static void leave_end(const struct ng_call *call, const struct ng_passage *passage, int result)
{
    struct ng_comm *comm = passage->comm;

    atomic_store_explicit(&passage->thread->slot->op, 0, memory_order_release);
    if (!comm || (result != NG_NCCL_SUCCESS && result != NG_NCCL_IN_PROGRESS))
        return;
    switch (call->op) {
    case NG_OP_CommFinalize:
        NG_STORE(comm->group->state, NG_GROUP_FINALIZED);
        break;
    case NG_OP_CommDestroy:
        ng_comm_end(comm, NG_GROUP_DESTROYED);
        break;
    case NG_OP_CommAbort:
        ng_comm_end(comm, NG_GROUP_ABORTED);
        break;
    default:
        break;
    }
}

void ng_call_after_fork(void)
{
    unbound_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    unbound_count = 0;
}

/* ---- The door for all others ---- */

void ng_call_enter(const struct ng_call *call, struct ng_passage *ret_passage)
{
    ret_passage->thread = NULL;
    ret_passage->comm = NULL;
    if (__builtin_expect(!atomic_load_explicit(&ng_guard.running, memory_order_acquire), 0) &&
        !ng_guard_start())
        return;
    struct ng_thread *thread = ng_thread_get();
    if (!thread)
        return;
    ret_passage->thread = thread;
    switch (ng_op_table[call->op].op_class) {
    case NG_CLASS_GROUP:
        enter_group(call, thread);
        break;
    case NG_CLASS_CREATE:
        ret_passage->created_before = thread->created_count;
        enter_create(call, thread);
        break;
    case NG_CLASS_END:
        ret_passage->comm = enter_end(call, thread);
        break;
    default: /* QUERY, ONESIDED: seen at leave, or passed */
        break;
    }
}

void ng_call_leave(const struct ng_call *call, struct ng_passage *passage, int result)
{
    if (!passage->thread)
        return;
    switch (ng_op_table[call->op].op_class) {
    case NG_CLASS_GROUP:
        leave_group(call, passage->thread, result);
        break;
    case NG_CLASS_CREATE:
        leave_create(passage->thread, passage->created_before, result);
        break;
    case NG_CLASS_END:
        leave_end(call, passage, result);
        break;
    default:
        if (__builtin_expect(atomic_load_explicit(&unbound_count, memory_order_relaxed) > 0, 0) &&
            result == NG_NCCL_SUCCESS)
            bind_finished(call);
    }
}
