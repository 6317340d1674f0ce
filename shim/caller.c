/*
 * Which copy of NCCL serves a call: the one that would have served it without us.
 *
 * Runs before the real function, for calls without a communicator, and for all calls if there are
 * several copies. Entered by the program's threads, several at once, perhaps before our constructor
 * or from another library's constructor. Must never call the dynamic linker with our lock held.
 */
#include "shim/caller.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include "core/comm/comm.h"
#include "core/util/macros.h"
#include "core/util/memory.h"
#include "shim/state.h"

/* ---- Known callers ---- */

/*
 * The copy to which symbols of the program and of its start-up libraries are bound, if that copy
 * was also loaded at start. It is first in the global scope and stays there, so objects loaded
 * later see it first as well. NULL not known (yet).
 */
static const struct ng_instance *_Atomic first;

/* Objects that stay until the end: their entries never change. */
#define STAYING_MAX 16u
static struct {
    uintptr_t start, size;
    const struct ng_instance *instance;
} staying[STAYING_MAX];
static atomic_uint staying_count;
struct ng_caller_object ng_caller_usual;

/* Bindings of objects that may be unloaded: decided once, as with lazy binding. */
struct known {
    _Atomic uint32_t turn; /* odd while an entry is written */
    _Atomic uintptr_t start, end;
    _Atomic(const struct ng_instance *) instance;
    /* How many objects had been unloaded by then: after another unload, the address may belong to
     * another object. */
    _Atomic uint64_t unloads;
};

#define KNOWN_MAX 256u
static struct known callers[KNOWN_MAX] NG_LARGE;
static atomic_uint caller_count;

/* Serialises writers of the above. Innermost lock: no function is called with it held. */
static pthread_mutex_t callers_lock = PTHREAD_MUTEX_INITIALIZER;

static const struct ng_instance *recall_staying(const void *caller)
{
    unsigned count = atomic_load_explicit(&staying_count, memory_order_acquire);

    for (unsigned i = 0; i < count; i++)
        if ((uintptr_t)caller - staying[i].start < staying[i].size)
            return staying[i].instance;
    return NULL;
}

static const struct ng_instance *recall(const void *caller, bool *ret_counted, uint64_t *unloads)
{
    unsigned count = atomic_load_explicit(&caller_count, memory_order_acquire);

    NG_EACH (known, callers, count) {
        uint32_t turn = atomic_load_explicit(&known->turn, memory_order_acquire);
        uintptr_t start = atomic_load_explicit(&known->start, memory_order_relaxed);
        uintptr_t end = atomic_load_explicit(&known->end, memory_order_relaxed);
        uint64_t then = atomic_load_explicit(&known->unloads, memory_order_relaxed);
        const struct ng_instance *instance =
            atomic_load_explicit(&known->instance, memory_order_relaxed);

        if ((uintptr_t)caller - start >= end - start)
            continue;
        /* A read-modify-write that changes nothing: earlier reads are not reordered after it. */
        if (turn & 1 || atomic_fetch_add_explicit(&known->turn, 0, memory_order_acq_rel) != turn)
            continue;
        if (!*ret_counted) {
            *unloads = ng_object_unloads();
            *ret_counted = true;
        }
        if (then == *unloads)
            return instance;
    }
    return NULL;
}

static void remember_staying(const struct ng_object *caller, const struct ng_instance *instance)
{
    unsigned count;

    pthread_mutex_lock(&callers_lock);
    count = atomic_load_explicit(&staying_count, memory_order_relaxed);
    if (count < STAYING_MAX && !recall_staying((const void *)caller->start)) {
        staying[count].start = caller->start;
        staying[count].size = caller->end - caller->start;
        staying[count].instance = instance;
        if (instance == &ng_instances[0] && !atomic_load(&ng_caller_usual.size) &&
            !ng_instance_contains((const void *)caller->start)) {
            atomic_store(&ng_caller_usual.start, caller->start);
            atomic_store(&ng_caller_usual.size, caller->end - caller->start);
        }
        atomic_store_explicit(&staying_count, count + 1, memory_order_release);
    }
    pthread_mutex_unlock(&callers_lock);
}

static void remember(const struct ng_object *caller, const struct ng_instance *instance,
                     uint64_t unloads)
{
    struct known *known = NULL;
    unsigned count;

    pthread_mutex_lock(&callers_lock);
    count = atomic_load_explicit(&caller_count, memory_order_relaxed);
    for (unsigned i = 0; i < count && !known; i++) {
        if (atomic_load_explicit(&callers[i].unloads, memory_order_relaxed) != unloads)
            known = &callers[i]; /* no object uses it any more */
        else if (atomic_load_explicit(&callers[i].start, memory_order_relaxed) == caller->start)
            goto unlock; /* another thread was first */
    }
    if (!known && count < KNOWN_MAX)
        known = &callers[count];
    if (!known)
        goto unlock;
    atomic_fetch_add_explicit(&known->turn, 1, memory_order_acq_rel);
    atomic_store_explicit(&known->start, caller->start, memory_order_relaxed);
    atomic_store_explicit(&known->end, caller->end, memory_order_relaxed);
    atomic_store_explicit(&known->instance, instance, memory_order_relaxed);
    atomic_store_explicit(&known->unloads, unloads, memory_order_relaxed);
    atomic_fetch_add_explicit(&known->turn, 1, memory_order_acq_rel);
    if (count < KNOWN_MAX && known == &callers[count])
        atomic_store_explicit(&caller_count, count + 1, memory_order_release);
unlock:
    pthread_mutex_unlock(&callers_lock);
}

/* ---- The copy to which a caller's symbols are bound ---- */

/* `next` is the object after us in the global scope. */
static const struct ng_instance *find_for(const struct ng_object *caller,
                                          const struct ng_instance *next)
{
    const struct ng_instance *needed;

    /* NCCL's own calls stay in their library, whatever else is in the global scope. */
    if (ng_object_is_nccl(caller))
        return ng_instance_add(caller);
    /* Symbols are bound when an object is loaded: a NCCL that enters the global scope later is not
     * the one to which they are bound. */
    if (next && !ng_object_missed(caller, &next->object))
        return next;
    needed = ng_instance_add_needed_by(caller);
    return needed ? needed : next;
}

static const struct ng_instance *resolve(const void *caller)
{
    const struct ng_instance *instance, *next;
    struct ng_object object;
    bool counted = false, known;
    uint64_t unloads = 0;

    instance = atomic_load_explicit(&first, memory_order_acquire);
    if (!instance && (instance = recall(caller, &counted, &unloads)))
        return instance;
    known = ng_object_of(caller, &object);
    if (instance && known && !ng_object_is_nccl(&object)) {
        if (ng_object_stays(&object))
            remember_staying(&object, instance);
        return instance;
    }
    if (!known && atomic_load(&ng_instance_count) > 0)
        return &ng_instances[0]; /* code generated at run time has no scope */
    if (ng_shim_state.depth > 8)
        return NULL; /* an interposer that calls us when a function is looked up in it */
    if (!counted)
        unloads = ng_object_unloads();

    ng_shim_state.depth++;
    next = ng_instance_add_next();
    if (next && ng_object_stays(&next->object))
        atomic_store_explicit(&first, next, memory_order_release);
    instance = known ? find_for(&object, next) : next;
    /* Also the others: return addresses in them belong to NCCL itself. */
    ng_instance_add_all(false);
    if (!instance && atomic_load(&ng_instance_count) == 0)
        ng_instance_add_all(true);
    if (!instance && atomic_load(&ng_instance_count) > 0)
        instance = &ng_instances[0];
    if (instance && known && ng_object_stays(&object))
        remember_staying(&object, instance);
    else if (instance && known)
        remember(&object, instance, unloads);
    dlerror(); /* or the program would read our errors as its own */
    ng_shim_state.depth--;
    return instance;
}

void ng_caller_start(void)
{
    const struct ng_instance *next;
    int saved = errno;

    ng_shim_state.depth++;
    next = ng_instance_add_next();
    if (next && ng_object_stays(&next->object))
        atomic_store_explicit(&first, next, memory_order_release);
    dlerror();
    ng_shim_state.depth--;
    errno = saved;
}

static const struct ng_instance *containing(const void *address)
{
    unsigned count = atomic_load_explicit(&ng_instance_count, memory_order_acquire);

    return NG_FIND(one, ng_instances, count,
                   !one->chained && (uintptr_t)address - one->start < one->size);
}

const struct ng_instance *ng_caller_choose(const void *owner, const void *caller)
{
    const struct ng_instance *instance = containing(caller);
    const struct ng_nccl *nccl;
    int saved = errno;

    if (instance || (!owner && (instance = recall_staying(caller))))
        return instance;
    if (owner && (nccl = ng_comm_nccl(owner)))
        instance = &ng_instances[nccl->index];
    else
        instance = resolve(caller);
    errno = saved;
    if (!instance)
        return &ng_instance_absent;
    if (!ng_instance_is_guarded(instance))
        ng_instance_tell_too_many(instance);
    /* A call from within NCCL, by which the library has just become known, is not the program's. */
    if (!ng_instance_contains(caller))
        ng_instance_note_call(instance);
    return instance;
}

void ng_caller_after_fork(void)
{
    pthread_mutex_init(&callers_lock, NULL);
    /* An entry that a thread of the parent was writing at the fork. */
    for (unsigned i = 0; i < KNOWN_MAX; i++)
        if (atomic_load(&callers[i].turn) & 1) {
            atomic_store(&callers[i].end, atomic_load(&callers[i].start));
            atomic_fetch_add(&callers[i].turn, 1);
        }
}
