/*
 * A call's way through core: communicator, record, events.
 *
 * Steps 2 to 4 before the real function, step 6 after it. Entered by the program's threads. Must never block, change
 * errno or NCCL's result; what cannot be recorded goes through unrecorded, and is counted.
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

#define STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)
#define LOAD(field)         atomic_load_explicit(&(field), memory_order_relaxed)

/* The head of ncclConfig_t up to commName (2.27), which is append-only; `size` says how much of it the caller has. */
struct config_head {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share, traffic_class;
    const char *comm_name;
};
#define CONFIG_MAGIC 0xcafebeefu

/* Children of nonblocking splits whose handle NCCL writes later. Protected by its mutex; nests inside nothing. */
static pthread_mutex_t unbound_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ng_created unbound[64];
static _Atomic uint32_t unbound_count;

/* ncclCommInitAll calls of this process, for their ids. */
static _Atomic uint32_t init_all_count;

static void enter_slot(struct ng_thread *thread, const struct ng_call *call, const struct ng_comm *comm,
                       uint64_t seq, int64_t now_mono_ns)
{
    struct ng_box_thread *slot = thread->slot;

    STORE(slot->group_id, comm ? LOAD(comm->group->id) : 0);
    STORE(slot->group_slot, comm ? comm->slot : UINT32_MAX);
    STORE(slot->record_id, call->record_id);
    STORE(slot->seq, seq);
    STORE(slot->since_mono_ns, now_mono_ns);
    atomic_store_explicit(&slot->op, call->op, memory_order_release);
}

static struct ng_comm *find_comm(const struct ng_call *call)
{
    struct ng_comm *comm = ng_comm_find(call->comm);

    if (__builtin_expect(!comm && call->comm, 0))
        comm = ng_comm_adopt(call->nccl, call->comm);
    return comm;
}

/* ---- Work on a stream ---- */

static void enter_work(struct ng_call *call, struct ng_thread *thread, bool p2p)
{
    struct ng_comm *comm = find_comm(call);
    uint64_t coll_seq, p2p_seq, peer_ordinal = 0;
    uint32_t flags = thread->group_depth ? NG_RECORD_IN_GROUP : 0;

    if (!comm)
        return;
    struct ng_box_group *group = comm->group;
    int64_t now = ng_clock_mono_ns();
    uint64_t op_id = atomic_fetch_add_explicit(&comm->op_count, 1, memory_order_relaxed) + 1;
    if (p2p) {
        struct ng_peer_count *peer = ng_comm_peer(comm, call->root);
        coll_seq = LOAD(group->entered);
        p2p_seq = atomic_fetch_add_explicit(&group->p2p_entered, 1, memory_order_relaxed) + 1;
        if (peer)
            peer_ordinal = 1 + atomic_fetch_add_explicit(call->op == NG_OP_Send ? &peer->sends : &peer->receives, 1,
                                                         memory_order_relaxed);
        flags |= NG_RECORD_P2P;
    } else {
        p2p_seq = LOAD(group->p2p_entered);
        coll_seq = LOAD(group->entered) + 1;
        STORE(group->last_op, call->op);
        STORE(group->last_dtype, call->dtype);
        STORE(group->last_redop, call->redop);
        STORE(group->last_root, call->root);
        STORE(group->last_count, call->count);
        STORE(group->entered_mono_ns, now);
        if (call->send_buffer && call->send_buffer == call->recv_buffer)
            flags |= NG_RECORD_IN_PLACE;
    }
    call->thread = thread;
    call->tid = thread->tid;
    call->comm_record = comm;
    call->seq = coll_seq;
    call->peer_ordinal = peer_ordinal;
    call->record_id = ng_ring_add(call, comm, now, coll_seq, p2p_seq, op_id, peer_ordinal, flags);
    call->entered_mono_ns = now;
    if (!p2p) {
        STORE(group->entered_record, call->record_id);
        atomic_store_explicit(&group->entered, coll_seq, memory_order_release);
    }
    enter_slot(thread, call, comm, p2p ? 0 : coll_seq, now);
    if (thread->group_depth)
        return;
    struct ng_gpu *gpu = ng_gpu_of(comm, call->stream, &call->capturing);
    if (__builtin_expect(gpu != NULL, 1)) {
        call->work = ng_gpu_take(gpu);
        if (call->work)
            ng_gpu_record_start(call->work, call->stream);
    }
}

/* NCCL refused the call: it did not happen, and the group's numbering must stay that of the other ranks. */
static void undo_one(struct ng_comm *comm, enum ng_op op, int root)
{
    if (ng_op_table[op].op_class == NG_CLASS_P2P) {
        struct ng_peer_count *peer = ng_comm_peer(comm, root);
        atomic_fetch_sub_explicit(&comm->group->p2p_entered, 1, memory_order_relaxed);
        if (peer)
            atomic_fetch_sub_explicit(op == NG_OP_Send ? &peer->sends : &peer->receives, 1, memory_order_relaxed);
    } else {
        atomic_fetch_sub_explicit(&comm->group->entered, 1, memory_order_relaxed);
    }
}

/* Over everything that ranks must agree on, so that a peer's hash tells whether histories are alike. */
static void fold_signature(struct ng_box_group *group, const struct ng_call *call)
{
    uint64_t hash = LOAD(group->hash);
    uint64_t word = (uint64_t)call->op | (uint64_t)(uint16_t)call->dtype << 16 | (uint64_t)(uint32_t)call->root << 32;

    hash = (hash ^ word ^ (uint64_t)(uint16_t)call->redop << 8) * UINT64_C(0x9e3779b97f4a7c15);
    hash = (hash ^ hash >> 32 ^ call->count) * UINT64_C(0xbf58476d1ce4e5b9);
    STORE(group->hash, hash ^ hash >> 29);
}

static void set_record_state(uint64_t id, enum ng_record_state state)
{
    if (id)
        ng_ring_set_state(id, state);
}

/* The whole chain of records of a work that is not handed to the watchdog. */
static void set_chain_state(uint64_t id, enum ng_record_state state)
{
    while (id) {
        struct ng_box_record *record = ng_ring_find(id);
        if (!record)
            return;
        uint64_t previous = LOAD(record->work_previous);
        ng_ring_set_state(id, state);
        id = previous;
    }
}

/* Hand a work whose end is recorded to the watchdog. Its records are visible as scheduled before it can finish. */
static void hand_over(struct ng_comm *comm, struct ng_work *work)
{
    work->comm = comm;
    work->generation = LOAD(comm->group->generation);
    work->timeout_ns = ng_guard.config.timeout_ns;
    atomic_fetch_add_explicit(&comm->group->pending_works, 1, memory_order_relaxed);
    struct ng_work *head = atomic_load_explicit(&comm->incoming, memory_order_relaxed);
    do
        work->next = head;
    while (!atomic_compare_exchange_weak_explicit(&comm->incoming, &head, work, memory_order_release,
                                                  memory_order_relaxed));
}

/* The real function has returned `result` for work that is not, or no longer, inside a NCCL group. */
static void close_work(struct ng_pending *pending, int result)
{
    struct ng_comm *comm = pending->comm;
    struct ng_work *work = pending->work;

    if (pending->last_seq)
        STORE(comm->group->scheduled, pending->last_seq);
    /* In progress: NCCL launches later, from a thread of its own; an event recorded now would come too early. */
    if (work && result == NG_NCCL_SUCCESS && ng_gpu_record_end(work, pending->stream)) {
        work->last_record = pending->last_record;
        work->first_seq = pending->first_seq;
        work->last_seq = pending->last_seq;
        work->p2p_count = pending->p2p_count;
        work->entered_mono_ns = pending->entered_mono_ns;
        set_chain_state(pending->last_record, NG_RECORD_SCHEDULED);
        hand_over(comm, work);
        return;
    }
    if (work)
        ng_gpu_give(work);
    if (!pending->capturing)
        atomic_fetch_add_explicit(&ng_guard.box.header->records_lost, 1, memory_order_relaxed);
    set_chain_state(pending->last_record, pending->capturing ? NG_RECORD_CAPTURED : NG_RECORD_UNWATCHED);
}

/* Inside a NCCL group: remember the call until the group is closed. */
static void keep_for_group_end(struct ng_thread *thread, struct ng_call *call, bool p2p)
{
    struct ng_pending *pending = NULL;
    struct ng_box_record *record;

    for (uint32_t i = thread->pending_count; i > 0 && !pending; i--)
        if (thread->pending[i - 1].comm == call->comm_record && thread->pending[i - 1].stream == call->stream)
            pending = &thread->pending[i - 1];
    if (!pending) {
        pending = ng_thread_add_pending(thread);
        if (!pending)
            return;
        *pending = (struct ng_pending){
            .comm = call->comm_record, .stream = call->stream, .entered_mono_ns = call->entered_mono_ns};
    }
    record = ng_ring_find(call->record_id);
    if (record)
        STORE(record->work_previous, pending->last_record);
    if (call->record_id)
        pending->last_record = call->record_id;
    if (p2p) {
        pending->p2p_count++;
    } else {
        if (!pending->first_seq)
            pending->first_seq = call->seq;
        pending->last_seq = call->seq;
    }
}

static void leave_work(struct ng_call *call, int result, bool p2p)
{
    struct ng_thread *thread = call->thread;

    atomic_store_explicit(&thread->slot->op, 0, memory_order_release);
    if (__builtin_expect(result != NG_NCCL_SUCCESS && result != NG_NCCL_IN_PROGRESS, 0)) {
        struct ng_box_record *record = ng_ring_find(call->record_id);
        if (record)
            STORE(record->result, result);
        set_record_state(call->record_id, NG_RECORD_FAILED);
        if (call->work)
            ng_gpu_give(call->work);
        undo_one(call->comm_record, call->op, call->root);
        return;
    }
    fold_signature(call->comm_record->group, call);
    if (thread->group_depth) {
        keep_for_group_end(thread, call, p2p);
        return;
    }
    struct ng_pending pending = {.comm = call->comm_record,
                                 .stream = call->stream,
                                 .last_record = call->record_id,
                                 .first_seq = p2p ? 0 : call->seq,
                                 .last_seq = p2p ? 0 : call->seq,
                                 .p2p_count = p2p,
                                 .entered_mono_ns = call->entered_mono_ns,
                                 .work = call->work,
                                 .capturing = call->capturing};
    close_work(&pending, result);
}

/* ---- NCCL groups ---- */

static void enter_group(struct ng_call *call, struct ng_thread *thread)
{
    call->thread = thread;
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
    enter_slot(thread, call, comm, thread->pending_count ? thread->pending[0].first_seq : 0, ng_clock_mono_ns());
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
        uint64_t previous = LOAD(record->work_previous);
        undo_one(pending->comm, (enum ng_op)LOAD(record->op), LOAD(record->root));
        ng_ring_set_state(id, NG_RECORD_FAILED);
        id = previous;
    }
}

static void leave_group(struct ng_call *call, int result)
{
    struct ng_thread *thread = call->thread;

    if (call->op == NG_OP_GroupStart) {
        if (result == NG_NCCL_SUCCESS)
            thread->group_depth++;
        STORE(thread->slot->group_depth, thread->group_depth);
        return;
    }
    atomic_store_explicit(&thread->slot->op, 0, memory_order_release);
    if (!thread->group_depth || --thread->group_depth) {
        STORE(thread->slot->group_depth, thread->group_depth);
        return;
    }
    STORE(thread->slot->group_depth, 0);
    bool taken = call->op == NG_OP_GroupEnd && (result == NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS);
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

static void set_name(struct ng_comm *comm, const struct ng_call *call)
{
    const struct config_head *config = call->config;

    if (config && config->magic == CONFIG_MAGIC && config->size >= sizeof(*config) && config->comm_name)
        strncpy(comm->group->name, config->comm_name, sizeof(comm->group->name) - 1);
}

static struct ng_comm *create_one(struct ng_call *call, struct ng_thread *thread, uint64_t id, int nranks, int rank,
                                  void **new_comm)
{
    struct ng_comm *comm = ng_comm_create(call->nccl, call->op, id, nranks, rank);
    struct ng_created *created = comm ? ng_thread_add_created(thread) : NULL;

    if (!comm)
        return NULL;
    if (!created) {
        ng_comm_end(comm, NG_GROUP_FAILED);
        return NULL;
    }
    *created = (struct ng_created){.comm = comm, .new_comm = new_comm};
    set_name(comm, call);
    return comm;
}

static void enter_create(struct ng_call *call, struct ng_thread *thread)
{
    struct ng_comm *comm = NULL, *parent = NULL;
    const struct ng_box_header *header = ng_guard.box.header;

    call->thread = thread;
    call->tid = thread->tid;
    switch (call->op) {
    case NG_OP_CommInitAll: {
        uint64_t id = ng_group_id_init_all(header->host, header->pid, header->start_ticks,
                                           atomic_fetch_add(&init_all_count, 1) + 1);
        for (int i = 0; i < call->nranks; i++)
            create_one(call, thread, id, call->nranks, i, (void **)call->new_comm + i);
        break;
    }
    case NG_OP_CommSplit:
    case NG_OP_CommShrink:
    case NG_OP_CommGrow: {
        parent = find_comm(call);
        if (!parent) {
            /* A rank that joins a grown communicator has no parent of its own; only the id tells it. */
            if (call->unique_ids)
                comm = create_one(call, thread, ng_group_id_unique(call->unique_ids, 1), call->nranks, call->rank,
                                  call->new_comm);
            break;
        }
        uint32_t ordinal = atomic_fetch_add(&parent->group->derived, 1) + 1;
        uint64_t parent_id = LOAD(parent->group->id);
        if (call->op == NG_OP_CommSplit && call->color < 0)
            break; /* takes part, gets nothing */
        uint64_t id = call->op == NG_OP_CommShrink
                          ? ng_group_id_shrink(parent_id, ordinal, call->list, call->list_count)
                      : call->op == NG_OP_CommGrow && call->unique_ids
                          ? ng_group_id_unique(call->unique_ids, 1)
                          : ng_group_id_split(parent_id, ordinal, call->op == NG_OP_CommSplit ? call->color : 0);
        comm = create_one(call, thread, id, call->op == NG_OP_CommGrow ? call->nranks : 0, -1, call->new_comm);
        if (comm) {
            STORE(comm->group->parent_id, parent_id);
            STORE(comm->group->ordinal, ordinal);
            if (call->op == NG_OP_CommSplit)
                STORE(comm->group->color, call->color);
        }
        break;
    }
    default:
        if (call->unique_ids)
            comm = create_one(call, thread, ng_group_id_unique(call->unique_ids, call->unique_id_count ? call->unique_id_count : 1), call->nranks, call->rank,
                              call->new_comm);
    }
    enter_slot(thread, call, parent ? parent : comm, 0, ng_clock_mono_ns());
}

static void keep_unbound(const struct ng_created *created)
{
    pthread_mutex_lock(&unbound_lock);
    uint32_t count = unbound_count;
    if (count < sizeof(unbound) / sizeof(unbound[0])) {
        unbound[count] = *created;
        atomic_store(&unbound_count, count + 1);
    } else {
        ng_comm_end(created->comm, NG_GROUP_FAILED);
    }
    pthread_mutex_unlock(&unbound_lock);
}

static void bind_created(struct ng_thread *thread, int result)
{
    for (uint32_t i = 0; i < thread->created_count; i++) {
        struct ng_created *created = &thread->created[i];
        bool good = result == NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS;
        void *handle = good && created->new_comm ? *created->new_comm : NULL;
        if (handle)
            ng_comm_bind(created->comm, handle, result == NG_NCCL_SUCCESS);
        else if (result == NG_NCCL_IN_PROGRESS)
            keep_unbound(created);
        else
            ng_comm_end(created->comm, NG_GROUP_FAILED);
    }
    thread->created_count = 0;
}

/* A nonblocking split has finished once its parent is no longer in progress: then NCCL has written the handle. */
static void bind_late(void)
{
    pthread_mutex_lock(&unbound_lock);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < unbound_count; i++) {
        void *handle = *(void *volatile *)unbound[i].new_comm;
        if (handle)
            ng_comm_bind(unbound[i].comm, handle, false);
        else
            unbound[kept++] = unbound[i];
    }
    atomic_store(&unbound_count, kept);
    pthread_mutex_unlock(&unbound_lock);
}

static void leave_create(struct ng_call *call, int result)
{
    struct ng_thread *thread = call->thread;

    atomic_store_explicit(&thread->slot->op, 0, memory_order_release);
    if (thread->group_depth && (result == NG_NCCL_SUCCESS || result == NG_NCCL_IN_PROGRESS))
        return; /* the handles come with the end of the group */
    if (thread->group_depth) {
        /* Only this call failed; the others of the group may still succeed. */
        if (thread->created_count)
            ng_comm_end(thread->created[--thread->created_count].comm, NG_GROUP_FAILED);
        return;
    }
    bind_created(thread, result);
}

static void enter_end(struct ng_call *call, struct ng_thread *thread)
{
    struct ng_comm *comm = ng_comm_find(call->comm);

    call->thread = thread;
    call->comm_record = comm;
    if (comm)
        enter_slot(thread, call, comm, 0, ng_clock_mono_ns());
}

static void leave_end(struct ng_call *call, int result)
{
    struct ng_comm *comm = call->comm_record;

    atomic_store_explicit(&call->thread->slot->op, 0, memory_order_release);
    if (!comm || (result != NG_NCCL_SUCCESS && result != NG_NCCL_IN_PROGRESS))
        return;
    switch (call->op) {
    case NG_OP_CommFinalize:
        STORE(comm->group->state, NG_GROUP_FINALIZED);
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

/* ---- The door ---- */

void ng_call_enter(struct ng_call *call)
{
    if (__builtin_expect(!atomic_load_explicit(&ng_guard.running, memory_order_acquire), 0) && !ng_guard_start())
        return;
    struct ng_thread *thread = ng_thread_get();
    if (!thread)
        return;
    switch (ng_op_table[call->op].op_class) {
    case NG_CLASS_COLLECTIVE:
        enter_work(call, thread, false);
        break;
    case NG_CLASS_P2P:
        enter_work(call, thread, true);
        break;
    case NG_CLASS_GROUP:
        enter_group(call, thread);
        break;
    case NG_CLASS_CREATE:
        enter_create(call, thread);
        break;
    case NG_CLASS_END:
        enter_end(call, thread);
        break;
    default: /* QUERY, ONESIDED: seen at leave, or passed */
        call->thread = thread;
    }
}

void ng_call_leave(struct ng_call *call, int result)
{
    if (!call->thread)
        return;
    switch (ng_op_table[call->op].op_class) {
    case NG_CLASS_COLLECTIVE:
        leave_work(call, result, false);
        break;
    case NG_CLASS_P2P:
        leave_work(call, result, true);
        break;
    case NG_CLASS_GROUP:
        leave_group(call, result);
        break;
    case NG_CLASS_CREATE:
        leave_create(call, result);
        break;
    case NG_CLASS_END:
        leave_end(call, result);
        break;
    default:
        if (__builtin_expect(atomic_load_explicit(&unbound_count, memory_order_relaxed) > 0, 0) &&
            result == NG_NCCL_SUCCESS)
            bind_late();
    }
}
