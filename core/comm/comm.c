/*
 * The registry of communicators.
 *
 * Must never free memory that a program thread may still read: records are reused, oldest first,
 * only after many others have ended in between, which also keeps their evidence in the black box
 * for a while.
 */
#include "core/comm/comm.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "core/comm/comm_table.h"
#include "core/comm/in_flight_calls.h"
#include "core/comm/rules_file.h"
#include "core/nccl/group_id.h"
#include "core/runtime/runtime.h"
#include "core/util/clock.h"
#include "core/util/futex.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "core/view/hash_log.h"

_Static_assert(offsetof(struct ng_comm, p2p) <= 64, "what every call reads stands together");

#define KEEP_ENDED 64u /* ended records that keep their slot */

/* Protects creation and end of records, and writes to the table. Nests inside nothing; never held
 * while calling NCCL or CUDA. */
static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static uint16_t ended[NG_COMM_CAPACITY] NG_LARGE; /* ring of ended records, oldest first */
static uint32_t ended_first, ended_count;
static uint16_t aborted[NG_COMM_CAPACITY] NG_LARGE; /* aborted by the guard: the same, and their
                                                       handles are kept */
static uint32_t aborted_first, aborted_count;
static atomic_bool
    some_not_known; /* there was no room for a communicator, which may have any handle */

bool ng_comm_has_works(const struct ng_comm *comm)
{
    return atomic_load(&comm->group->pending_works) != 0 || atomic_load(&comm->incoming) ||
           atomic_load(&comm->in_progress.works) || atomic_load(&comm->group->pending_works) != 0;
}

/* No other record is left: reuse the one that the guard aborted first and forget its handle. Under
 * the lock. */
static struct ng_comm *take_aborted(void)
{
    for (uint32_t tries = aborted_count; tries > 0; tries--) {
        struct ng_comm *comm = ng_comm_at(aborted[aborted_first]);
        aborted_first = (aborted_first + 1) % NG_COMM_CAPACITY;
        aborted_count--;
        if (atomic_load(&comm->fate) == NG_FATE_ABORTED && !ng_comm_has_works(comm)) {
            void *handle = atomic_exchange(&comm->handle, NULL);
            if (handle)
                ng_comm_table_remove(handle, comm);
            return comm;
        }
        aborted[(aborted_first + aborted_count++) % NG_COMM_CAPACITY] = (uint16_t)comm->slot;
    }
    return NULL;
}

/* An unused record, or NULL. Under the lock. */
static struct ng_comm *take_record(void)
{
    struct ng_comm *comm;

    if (!ng_comm_table_make())
        return NULL;
    for (uint32_t tries = ended_count; ended_count > KEEP_ENDED && tries > 0; tries--) {
        uint32_t index = ended[ended_first];
        ended_first = (ended_first + 1) % NG_COMM_CAPACITY;
        ended_count--;
        comm = ng_comm_at(index);
        /* Works still in flight belong to the old communicator: this record is reused later. */
        if (!ng_comm_has_works(comm))
            return comm;
        ended[(ended_first + ended_count++) % NG_COMM_CAPACITY] = (uint16_t)index;
    }
    uint32_t index = ng_comm_count();
    if (index == NG_COMM_CAPACITY)
        return take_aborted();
    comm = ng_comm_at(index);
    comm->slot = index;
    comm->group = &comm->spare.group;
    comm->hash_log = &comm->spare.hash_log;
    comm->host_calls = &comm->spare.host_calls;
    if (ng_box_reserve_group(&ng_guard.box, index) == 0) {
        comm->group = &ng_guard.box.groups[index];
        comm->hash_log = &ng_guard.box.hash_logs[index];
        comm->host_calls = &ng_guard.box.host_calls[index];
    }
    return comm;
}

/* Other threads, or processes, read the words meanwhile. */
static void clear(void *from, size_t bytes)
{
    _Atomic uint64_t *words = from;

    for (size_t i = 0; i < bytes / sizeof(*words); i++)
        NG_STORE(words[i], 0);
}

static void reset_group(struct ng_box_group *group)
{
    uint32_t generation = atomic_load(&group->generation);
    size_t head = offsetof(struct ng_box_group, id);
    /* Of the former communicator: whether this process has gone on since some moment. */
    int64_t completed_mono_ns = NG_LOAD(group->completed_mono_ns);

    /* Readers skip a free slot, or compare the id: other words follow both. */
    atomic_store(&group->state, NG_GROUP_FREE);
    atomic_store(&group->id, 0);
    atomic_thread_fence(memory_order_release);
    clear(&group->id, sizeof(*group) - head);
    NG_STORE(group->completed_mono_ns, completed_mono_ns);
    atomic_store(&group->device, -1);
    atomic_store(&group->color, -1);
    atomic_store(&group->generation, generation + 1);
}

/* Readers check the generation before and after reading. */
static void reset_hash_log(struct ng_box_hash_log *hash_log)
{
    clear(hash_log, sizeof(*hash_log));
    NG_STORE(hash_log->across, NG_HASH_LOG_SILENT);
}

static void forget_peers(struct ng_comm_p2p *p2p)
{
    struct ng_peer_count *counts = atomic_exchange(&p2p->counts, NULL);

    if (counts)
        munmap(counts, p2p->bytes);
}

/* Not reset here: `watch` and `async` follow the generation of the slot, calls inside NCCL leave
 * `in_flight` themselves, and `abort` is written before `fate` makes it valid. */
static void reset_parts(struct ng_comm *comm)
{
    forget_peers(&comm->p2p);
    comm->p2p.lost = false;
    clear(&comm->mode, offsetof(struct ng_comm, host_calls) - offsetof(struct ng_comm, mode));
    atomic_store(&comm->wait.overdue_mono_ns, 0);
    atomic_store(&comm->wait.failed, false);
    clear(&comm->totals, sizeof(comm->totals));
}

struct ng_comm *ng_comm_create(const struct ng_nccl *nccl, enum ng_op created_by, uint64_t id,
                               int nranks, int rank, const char *name)
{
    pthread_mutex_lock(&registry_lock);
    struct ng_comm *comm = take_record();
    if (!comm) {
        pthread_mutex_unlock(&registry_lock);
        atomic_store(&some_not_known, true);
        atomic_fetch_add(&ng_guard.box.header->groups_lost, 1);
        return NULL;
    }
    struct ng_box_group *group = comm->group;
    reset_group(group);
    reset_hash_log(comm->hash_log);
    clear(comm->host_calls, sizeof(*comm->host_calls));
    reset_parts(comm);
    atomic_store(&comm->handle, NULL);
    atomic_store(&comm->fate, NG_FATE_LIVES);
    atomic_store(&comm->cut_off, false);
    atomic_store(&comm->may_retry, false);
    atomic_store_explicit(&comm->nccl, nccl, memory_order_relaxed);
    atomic_store(&comm->gpu, nccl->foreign ? NG_COMM_GPU_OUT_OF_REACH : NULL);
    atomic_store(&group->id, id);
    atomic_store(&group->nranks, nranks);
    atomic_store(&group->group_rank, rank);
    atomic_store(&group->nccl_version, nccl->version);
    atomic_store(&group->created_by, created_by);
    atomic_store(&group->created_mono_ns, ng_clock_mono_ns());
    ng_rules_file_begin(comm, name);
    atomic_store_explicit(&group->state, NG_GROUP_CREATING, memory_order_release);
    if (comm->slot == ng_comm_count()) {
        ng_comm_table_count(comm->slot + 1);
        if (comm->group != &comm->spare.group)
            atomic_store_explicit(&ng_guard.box.header->group_used, comm->slot + 1,
                                  memory_order_release);
        else
            atomic_fetch_add(&ng_guard.box.header->groups_lost, 1);
    }
    pthread_mutex_unlock(&registry_lock);
    return comm;
}

/* The driver touches no stream for this, so it is safe during a stream capture. */
static void find_pci_id(struct ng_box_group *group, int device)
{
    const struct ng_cuda *cuda = ng_guard_cuda();
    char text[sizeof(group->pci_id)] = "";
    uint64_t words[2];

    if (NG_LOAD(group->pci_id[0]) || !cuda || !cuda->device_get_pci_bus_id ||
        cuda->device_get_pci_bus_id(text, sizeof(text), device) != CUDA_SUCCESS)
        return;
    text[sizeof(text) - 1] = '\0';
    for (char *at = text; *at; at++)
        *at = (char)tolower((unsigned char)*at);
    memcpy(words, text, sizeof(words));
    NG_STORE(group->pci_id[1], words[1]);
    NG_STORE(group->pci_id[0], words[0]);
}

void ng_comm_set_device(struct ng_comm *comm, int device)
{
    const struct ng_nccl *nccl = atomic_load_explicit(&comm->nccl, memory_order_relaxed);
    const struct ng_cuda *cuda = nccl->foreign ? NULL : ng_guard_cuda();
    CUdevice current;

    if (device < 0 && cuda && cuda->ctx_get_device &&
        cuda->ctx_get_device(&current) == CUDA_SUCCESS)
        device = current;
    if (device < 0)
        return;
    atomic_store(&comm->group->device, device);
    if (cuda)
        find_pci_id(comm->group, device);
}

void ng_comm_ask(struct ng_comm *comm, void *handle)
{
    struct ng_box_group *group = comm->group;
    const struct ng_nccl *nccl = atomic_load_explicit(&comm->nccl, memory_order_relaxed);
    int value;

    if (atomic_load(&group->nranks) <= 0 && nccl->comm_count &&
        nccl->comm_count(handle, &value) == 0)
        atomic_store(&group->nranks, value);
    if (atomic_load(&group->group_rank) < 0 && nccl->comm_user_rank &&
        nccl->comm_user_rank(handle, &value) == 0)
        atomic_store(&group->group_rank, value);
    if (nccl->comm_cu_device && nccl->comm_cu_device(handle, &value) == 0) {
        if (atomic_exchange(&group->device, value) != value)
            NG_STORE(group->pci_id[0], 0); /* of another device, which the thread used before */
        if (!nccl->foreign)
            find_pci_id(group, value);
    }
    ng_rules_file_apply(comm);
}

static bool has_life(const struct ng_box_group *group)
{
    return ng_group_state_is_alive(atomic_load(&group->state));
}

/* A process may have several ranks of one communicator, each on a different device. A child does
 * not know its rank yet. */
static bool is_twin(const struct ng_box_group *group, const struct ng_box_group *other, int device)
{
    int rank = NG_LOAD(group->group_rank);

    return NG_LOAD(other->id) == NG_LOAD(group->id) && has_life(other) &&
           ((device >= 0 && NG_LOAD(other->device) == device) ||
            (rank >= 0 && (NG_LOAD(other->group_rank) == rank ||
                           NG_LOAD(other->nranks) != NG_LOAD(group->nranks))));
}

void ng_comm_find_twins(struct ng_comm *comm, const struct ng_comm *parent)
{
    bool shared = parent && NG_LOAD(parent->hash_log->shared);
    int device = NG_LOAD((parent ? parent : comm)->group->device);

    NG_HOLD(&registry_lock);
    for (uint32_t i = 0; NG_LOAD(comm->group->id) && i < ng_comm_count(); i++) {
        struct ng_comm *other = ng_comm_at(i);
        if (other == comm || !is_twin(comm->group, other->group, device))
            continue;
        NG_STORE(other->hash_log->shared, 1);
        shared = true;
    }
    if (shared)
        NG_STORE(comm->hash_log->shared, 1);
}

static void set_ended(struct ng_comm *comm, enum ng_group_state state)
{
    atomic_store(&comm->group->ended_mono_ns, ng_clock_mono_ns());
    atomic_store_explicit(&comm->group->state, state, memory_order_release);
}

/* Under the lock. */
static void end_locked(struct ng_comm *comm, enum ng_group_state state)
{
    if (!has_life(comm->group))
        return;
    void *handle = atomic_exchange(&comm->handle, NULL);
    if (handle)
        ng_comm_table_remove(handle, comm);
    set_ended(comm, state);
    ended[(ended_first + ended_count++) % NG_COMM_CAPACITY] = (uint16_t)comm->slot;
}

/* Bind the handle to this record. Under the lock. */
static void give_handle(struct ng_comm *comm, void *handle)
{
    /* NCCL reused the memory of another communicator for this one: the other one has ended, perhaps
     * unseen (its destruction returned an error, or bypassed our wrappers), or by the guard's
     * abort. */
    struct ng_comm *before = ng_comm_find(handle);
    if (before && before != comm) {
        end_locked(before, NG_GROUP_DESTROYED);
        ng_comm_table_remove(handle, before);
        atomic_store(&before->handle, NULL);
    }
    atomic_store(&comm->group->handle, (uintptr_t)handle);
    atomic_store(&comm->handle, handle);
    ng_comm_table_insert(handle, comm);
}

bool ng_comm_bind(struct ng_comm *comm, void *handle, bool made)
{
    /* Counted as a guest, so that the guard's abort waits for these queries. */
    atomic_store_explicit(&comm->in_flight.guest_tid, 0, memory_order_relaxed);
    atomic_fetch_add(&comm->in_flight.guests, 1);
    if (made && !ng_comm_is_condemned(comm))
        ng_comm_ask(comm, handle);
    atomic_fetch_sub(&comm->in_flight.guests, 1);
    NG_HOLD(&registry_lock);
    /* A communicator aborted during creation may get here late, when NCCL has already reused its
     * memory. */
    bool was_its_own =
        ng_comm_is_condemned(comm) && atomic_load(&comm->group->handle) == (uintptr_t)handle;
    if (atomic_load(&comm->handle) != handle && !was_its_own)
        give_handle(comm, handle);
    if (made)
        atomic_store(&comm->making.parent, NULL);
    made = made && !ng_comm_is_condemned(comm);
    if (made)
        atomic_store_explicit(&comm->group->state, NG_GROUP_READY, memory_order_release);
    return made;
}

void ng_comm_making(struct ng_comm *comm, void **made_at, struct ng_comm *parent)
{
    NG_HOLD(&registry_lock);
    comm->making.under_way = true;
    comm->making.handle_at = made_at;
    atomic_store(&comm->making.parent, parent);
}

void ng_comm_made(struct ng_comm *comm)
{
    NG_HOLD(&registry_lock);
    comm->making.under_way = false;
    comm->making.handle_at = NULL;
}

bool ng_comm_is_being_made(const struct ng_comm *comm)
{
    NG_HOLD(&registry_lock);
    return comm->making.under_way;
}

/* The handle that NCCL, on another thread, has written by now. Under the lock. */
static void *read_made(const struct ng_comm *comm)
{
    return comm->making.handle_at ? __atomic_load_n(comm->making.handle_at, __ATOMIC_ACQUIRE)
                                  : NULL;
}

bool ng_comm_has_ended(const void *handle)
{
    bool ended = false;

    if (!handle || ng_comm_find(handle) || atomic_load(&some_not_known))
        return false;
    /* The table has only handles of live communicators; records keep theirs until they are
     * reused. */
    NG_EACH_COMM (comm) {
        const struct ng_box_group *group = comm->group;
        uint32_t state = atomic_load_explicit(&group->state, memory_order_acquire);
        if (NG_LOAD(group->handle) != (uintptr_t)handle)
            continue;
        if (state != NG_GROUP_DESTROYED && state != NG_GROUP_ABORTED)
            return false;
        ended = true;
    }
    return ended;
}

struct ng_comm *ng_comm_find_made(const void *handle)
{
    NG_HOLD(&registry_lock);
    return handle ? NG_FIND_COMM(comm, read_made(comm) == handle) : NULL;
}

/* False also if it is held at this moment. */
static bool condemn(struct ng_comm *comm, int result, const char *reason, int64_t until_mono_ns)
{
    uint32_t lives = NG_FATE_LIVES;

    NG_HOLD(&registry_lock);
    bool condemned = has_life(comm->group) && atomic_load(&comm->fate) == NG_FATE_LIVES;
    if (condemned) {
        /* These are not read before the fate says so; if the program claims the end first, they do
         * no harm. */
        comm->abort.result = result;
        comm->abort.until_mono_ns = until_mono_ns;
        snprintf(comm->abort.reason, sizeof(comm->abort.reason), "%s", reason);
        condemned = atomic_compare_exchange_strong(&comm->fate, &lives, NG_FATE_CONDEMNED);
    }
    if (condemned) {
        set_ended(comm, NG_GROUP_ABORTED);
        aborted[(aborted_first + aborted_count++) % NG_COMM_CAPACITY] = (uint16_t)comm->slot;
    }
    return condemned;
}

bool ng_comm_condemn(struct ng_comm *comm, int result, const char *reason, int64_t until_mono_ns)
{
    bool condemned;

    while (!(condemned = condemn(comm, result, reason, until_mono_ns)) &&
           atomic_load(&comm->fate) == NG_FATE_HELD)
        ng_in_flight_await(comm);
    /* Wake threads that wait for NCCL's progress: core/call/nonblocking.h. */
    if (condemned)
        ng_futex_wake_all(&comm->fate);
    return condemned;
}

void *ng_comm_condemned_handle(struct ng_comm *comm, bool *ret_making)
{
    NG_HOLD(&registry_lock);
    void *handle = atomic_load(&comm->handle);
    if (!handle && (handle = read_made(comm)))
        give_handle(comm, handle);
    *ret_making = comm->making.under_way;
    return handle;
}

struct ng_comm *ng_comm_adopt(const struct ng_nccl *nccl, void *handle)
{
    /* How it was created is not known, so its id is unique to this process: it takes no part in
     * verdicts across ranks. */
    uint64_t words[] = {(uintptr_t)handle, (uint64_t)ng_guard.box.header->pid,
                        ng_guard.box.header->start_ticks};
    struct ng_comm *comm =
        ng_comm_create(nccl, NG_OP_NONE, ng_hash(0, words, sizeof(words)), 0, -1, "");

    if (comm)
        ng_comm_bind(comm, handle, true);
    return comm;
}

void ng_comm_rename(struct ng_comm *comm, const char *name)
{
    uint64_t id = atomic_load(&comm->group->id);

    NG_HOLD(&registry_lock);
    NG_EACH_COMM (other)
        if (has_life(other->group) && atomic_load(&other->group->id) == id)
            ng_rules_file_rename(other, name);
}

void ng_comm_end(struct ng_comm *comm, enum ng_group_state state)
{
    NG_HOLD(&registry_lock);
    end_locked(comm, state);
}

struct ng_peer_count *ng_comm_peer(struct ng_comm *comm, int peer)
{
    int nranks = atomic_load_explicit(&comm->group->nranks, memory_order_relaxed);
    struct ng_peer_count *peers = atomic_load_explicit(&comm->p2p.counts, memory_order_acquire);

    if (peer < 0 || peer >= nranks)
        return NULL;
    if (__builtin_expect(!peers, 0)) {
        if (comm->p2p.lost)
            return NULL;
        /* Not from malloc: leak checkers would not find the reference to it. */
        size_t bytes = (size_t)nranks * sizeof(*peers);
        struct ng_peer_count *made = ng_memory_reserve(bytes), *expected = NULL;
        if (!made)
            return NULL;
        if (atomic_compare_exchange_strong(&comm->p2p.counts, &expected, made)) {
            comm->p2p.bytes = bytes;
            peers = made;
        } else {
            munmap(made, bytes);
            peers = expected;
        }
    }
    return &peers[peer];
}

void ng_comm_uncount_peer(struct ng_comm *comm, enum ng_op op, int peer)
{
    struct ng_peer_count *counts = ng_comm_peer(comm, peer);

    if (counts)
        atomic_fetch_sub_explicit(op == NG_OP_Send ? &counts->sends : &counts->receives, 1,
                                  memory_order_relaxed);
}

void ng_comm_set_timing(int mode)
{
    atomic_store(&ng_guard.timing, mode);
    /* Each next call of every kind looks at the mode. */
    NG_EACH_COMM (comm) {
        atomic_store(&comm->timing.next_coll, 0);
        atomic_store(&comm->timing.next_joined, 0);
        atomic_store(&comm->timing.next_p2p, 0);
    }
}

void ng_comm_lose_peers(struct ng_comm *comm)
{
    comm->p2p.lost = true;
    forget_peers(&comm->p2p);
}

void ng_comm_describe(const struct ng_comm *comm, char *ret_text, size_t bytes)
{
    const struct ng_box_group *group = comm->group;
    char name[NG_BOX_NAME_BYTES];

    ng_box_read_name(group, name);
    snprintf(ret_text, bytes, "group %s%s%s%016llx (rank %d of %d)", name[0] ? "\"" : "", name,
             name[0] ? "\", id " : "", (unsigned long long)atomic_load(&group->id),
             atomic_load(&group->group_rank), atomic_load(&group->nranks));
}

void ng_comm_after_fork(void)
{
    /* The mutex may have been held by a thread of the parent, which does not exist here. */
    registry_lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    ng_comm_table_forget();
    ended_first = ended_count = 0;
    aborted_first = aborted_count = 0;
    atomic_store(&some_not_known, false);
}
